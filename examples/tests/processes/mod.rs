//! The whole agent on processes of this machine, from manifests to JSON lines.

mod end;
mod manifests;
mod restart;
mod run_once;
mod samples;
