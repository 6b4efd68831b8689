//! The CRI runtime in memory behaves as containerd does, and goes wrong as a test wants it to.

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
