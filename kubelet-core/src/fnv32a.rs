//! The hash of containers and checkpoints.

/// FNV-1a in 32 bits, the hash that the kubelet uses for containers and checkpoints (`fnv.New32a` of Go).
pub fn fnv32a(bytes: impl IntoIterator<Item = u8>) -> u32 {
    bytes.into_iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}
