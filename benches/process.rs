//! What `/proc` says about a process.

use std::fs;

/// `USER_HZ`, the unit of CPU time in `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

/// A file of the process in `/proc`.
pub(crate) fn proc(pid: u32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).expect("the process has ended")
}

/// The user and system time of the process.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let stat = proc(pid, "stat");
    // The program's name, in parentheses, may contain spaces; `utime` and `stime` are the fields 14 and 15.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / TICKS_PER_SECOND
}

/// A field of a file in `/proc` that is in kB, in megabytes of 1,000,000 bytes.
pub(crate) fn megabytes(text: &str, field: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0 / 1e6
}
