//! Numbers that follow from a seed and a text.

use std::fmt::{Display, Write};

/// A number that looks random (FNV-1a, mixed as in SplitMix64).
pub(crate) fn hash(seed: u64, text: impl Display) -> u64 {
    let mut fnv = Fnv::default();
    fnv.take(&seed.to_le_bytes());
    // It takes whatever is written.
    let _ = write!(fnv, "{text}");
    let mut mixed = fnv.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// From 0 to below 1.
pub(super) fn unit(seed: u64, text: impl Display) -> f64 {
    // A float holds 53 bits.
    #[expect(clippy::cast_precision_loss, reason = "no more than 53 bits")]
    let bits = (hash(seed, text) >> 11) as f64;
    bits / (1_u64 << 53) as f64
}

/// 64 hexadecimal digits, as an id or a digest has.
pub(crate) fn hex64(seed: u64, text: impl Display) -> String {
    let mut digits = String::with_capacity(64);
    for part in 0..4 {
        let _ = write!(digits, "{:016x}", hash(seed, format_args!("{part} {text}")));
    }
    digits
}

/// FNV-1a of what is written to it.
pub(crate) struct Fnv(pub(crate) u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
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
        let below = (0..1000)
            .filter(|n| unit(7, format_args!("draw {n}")) < 0.25)
            .count();
        assert!((200..300).contains(&below), "{below}");
        assert_eq!(hex64(7, "a"), hex64(7, "a"));
        assert_ne!(hex64(7, "a"), hex64(8, "a"));
        assert_eq!(hex64(7, "a").len(), 64);
    }
}
