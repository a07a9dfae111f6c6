//! UUIDs, made from what they stand for so that they come back with it.

/// A UUID of version 5's form from a text. The digest is not SHA-1: nobody can tell, and nothing
/// depends on it but that the same text gives the same UUID.
pub fn uuid_from(text: &str) -> String {
    let half = |salt: u64| {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ salt;
        for byte in text.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        // FNV leaves its high bits weak on short texts; these are the steps of splitmix64.
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ (hash >> 31)
    };
    let high = half(0) & !0xf000 | 0x5000;
    let low = half(0x9e37_79b9_7f4a_7c15) & !(0b11 << 62) | 0b10 << 62;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// The UUID of a MIG device. It depends on nothing but the GPU and the two ids, so it is the same
/// after destroy and create.
pub fn mig_uuid(gpu_uuid: &str, gi: u32, ci: u32) -> String {
    format!("MIG-{}", uuid_from(&format!("{gpu_uuid}/{gi}/{ci}")))
}
