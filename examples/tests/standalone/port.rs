//! Ports for programs that bind them later.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ephemeral ports (from 32768) and the node ports (from 30000).
const FIRST: u16 = 20_000;
const COUNT: u16 = 8_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port without a listener. Nobody else gets it before its program binds it: not as the port of a
/// connection, because those are ephemeral ports, and not from this function.
pub(crate) fn free_port() -> u16 {
    // Another test program beside this one begins elsewhere.
    let begin = (std::process::id() % u32::from(COUNT)) as u16;
    let next = || FIRST + (begin + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT;
    let is_free = |port: &u16| TcpListener::bind(("0.0.0.0", *port)).is_ok();
    std::iter::repeat_with(next).take(COUNT.into()).find(is_free).expect("a free port")
}
