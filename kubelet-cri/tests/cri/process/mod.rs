//! The process runtime behind the CRI adapter, with real processes.

mod agent;
mod end;
mod life_cycle;
mod node;
mod output;
mod pods;
mod restart;
mod served;
mod streams;
mod usage;
