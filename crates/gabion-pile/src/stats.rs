//! What a pile tells about itself.

/// A pile's figures. Without writers beside it, `reserved_bytes = used_bytes + overhead_bytes`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PileStats {
    /// Live objects.
    pub objects: u64,
    /// Bytes of all payloads.
    pub used_bytes: u64,
    /// Bytes taken for the pile: pages of 64 KiB in use, and runs of large objects.
    pub reserved_bytes: u64,
    /// Words, headers, rounding and free room within the pages in use.
    pub overhead_bytes: u64,
    /// The most that `reserved_bytes` may become.
    pub max_bytes: u64,
    /// Blocks of 4 MiB mapped, runs not counted.
    pub blocks: u64,
    /// Objects whose payload is away: it lies outside their own slot (over 1 KiB, or outgrown), runs not counted.
    pub away_objects: u64,
    /// Objects over 1 MiB, each in a run of its own.
    pub large_objects: u64,
    /// Shards that writers share.
    pub shards: u64,
}
