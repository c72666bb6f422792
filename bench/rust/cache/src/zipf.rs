//! Numbers drawn by a Zipf law.

/// `count` draws from `0..keys`, where the n-th most likely key has a weight of n to the power of `-exponent`. Keys are
/// shuffled, so that likely ones do not lie together.
pub fn draws(keys: usize, exponent: f64, count: usize, seed: u64) -> Vec<u32> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        })
        .collect();
    let mut random = 0x9E37_79B9_7F4A_7C15 ^ (seed + 1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as f64 / (1_u64 << 53) as f64
    };
    let draw = |at: f64| {
        let rank = sums.partition_point(|&sum| sum < at * sums[keys - 1]).min(keys - 1);
        // A multiplication by a number without common factors is a shuffle.
        (rank as u64 * 7_919 % keys as u64) as u32
    };
    (0..count).map(|_| draw(next())).collect()
}
