//! Numbers that follow from a seed and a text.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

/// A number that looks random (FNV-1a, mixed as in SplitMix64).
pub(crate) fn hash(seed: u64, text: impl Display) -> u64 {
    Fnv::of(seed, text).mixed()
}

/// The draws so far, for each rule and each subject.
#[derive(Debug, Default)]
pub(crate) struct Drawn(BTreeMap<String, BTreeMap<u64, Row>>);

impl Drawn {
    /// Begins a draw for a subject.
    pub(crate) fn of<'a>(&'a mut self, seed: u64, what: &'a str) -> Draws<'a> {
        Draws {
            seed,
            what,
            rows: self.0.entry(what.to_owned()).or_default(),
        }
    }

    /// Restarts all draws.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The draw for one subject.
pub(crate) struct Draws<'a> {
    seed: u64,
    what: &'a str,
    rows: &'a mut BTreeMap<u64, Row>,
}

impl Draws<'_> {
    /// A number from 0 to below 1. It follows from the seed, the rule, the subject, and how often this was drawn
    /// before.
    pub(crate) fn next(&mut self, rule: u64) -> f64 {
        let Self { seed, what, rows } = self;
        let row = rows.entry(rule).or_insert_with(|| Row {
            begun: Fnv::of(*seed, format_args!("fault {rule} {what} ")),
            count: 0,
        });
        row.count += 1;
        let mut fnv = row.begun;
        fnv.write(row.count);
        fnv.unit()
    }
}

#[derive(Debug)]
struct Row {
    /// The common part of all draws, computed once because it is long.
    begun: Fnv,
    count: u64,
}

/// 64 hexadecimal digits, as in an id or a digest.
pub(crate) fn hex64(seed: u64, text: impl Display) -> String {
    let mut digits = String::with_capacity(64);
    for part in 0..4 {
        let _ = write!(digits, "{:016x}", hash(seed, format_args!("{part} {text}")));
    }
    digits
}

/// The FNV-1a hash of what is written to it.
#[derive(Clone, Copy, Debug)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn of(seed: u64, text: impl Display) -> Self {
        let mut fnv = Self::default();
        fnv.take(&seed.to_le_bytes());
        fnv.write(text);
        fnv
    }

    fn write(&mut self, text: impl Display) {
        // A write never fails.
        let _ = write!(self, "{text}");
    }

    /// As in SplitMix64.
    fn mixed(self) -> u64 {
        let mut mixed = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below 1.
    fn unit(self) -> f64 {
        // A float holds 53 bits.
        #[expect(clippy::cast_precision_loss, reason = "no more than 53 bits")]
        let bits = (self.mixed() >> 11) as f64;
        bits / (1_u64 << 53) as f64
    }

    fn take(&mut self, bytes: &[u8]) {
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        self.0 = bytes.iter().fold(self.0, hash);
    }
}

impl Write for Fnv {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.take(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_spread_and_repeatable() {
        let mut drawn = Drawn::default();
        let numbers: Vec<f64> = (0..1000)
            .map(|_| drawn.of(7, "StartContainer web").next(2))
            .collect();
        let below = numbers.iter().filter(|number| **number < 0.25).count();
        assert!((200..300).contains(&below), "{below}");
        // Each is a hash of its own.
        for (count, number) in (1..).zip(&numbers[..12]) {
            let whole = Fnv::of(7, format_args!("fault 2 StartContainer web {count}"));
            assert_eq!(*number, whole.unit());
        }
        drawn.clear();
        assert_eq!(drawn.of(7, "StartContainer web").next(2), numbers[0]);
        assert_eq!(hex64(7, "a"), hex64(7, "a"));
        assert_ne!(hex64(7, "a"), hex64(8, "a"));
        assert_eq!(hex64(7, "a").len(), 64);
    }
}
