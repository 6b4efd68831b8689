//! The CRI runtime in memory behaves like containerd, and injects the faults of a test.

mod agent;
mod all_calls;
mod crashes;
mod events;
mod faults;
mod how_soon;
mod images;
mod life_cycle;
mod lists;
mod logs;
mod rig;
mod timing;
