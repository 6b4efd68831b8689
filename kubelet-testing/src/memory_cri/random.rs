//! Numbers that follow from a seed and a text.

/// A number that looks random (FNV-1a, mixed as in SplitMix64).
pub(crate) fn hash(seed: u64, text: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let seeded = seed
        .to_le_bytes()
        .into_iter()
        .chain(text.bytes())
        .fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    let mut mixed = seeded.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// From 0 to below 1.
pub(super) fn unit(seed: u64, text: &str) -> f64 {
    // A float holds 53 bits.
    #[expect(clippy::cast_precision_loss, reason = "no more than 53 bits")]
    let bits = (hash(seed, text) >> 11) as f64;
    bits / (1_u64 << 53) as f64
}

/// 64 hexadecimal digits, as an id or a digest has.
pub(crate) fn hex64(seed: u64, text: &str) -> String {
    (0..4)
        .map(|part| format!("{:016x}", hash(seed, &format!("{part} {text}"))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_spread_and_repeatable() {
        let below = (0..1000).filter(|n| unit(7, &format!("draw {n}")) < 0.25).count();
        assert!((200..300).contains(&below), "{below}");
        assert_eq!(hex64(7, "a"), hex64(7, "a"));
        assert_ne!(hex64(7, "a"), hex64(8, "a"));
        assert_eq!(hex64(7, "a").len(), 64);
    }
}
