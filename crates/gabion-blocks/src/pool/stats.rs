//! What a pool reports.

/// A pool's figures at one moment. Sizes are bytes; the others count since the pool was made.
///
/// `mapped = in_use + idle`, as exactly as figures gathered while other threads work can be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Bytes that live buffers and groups take, rounded up to what they were served from, and those of allowances.
    pub in_use: u64,
    /// Bytes that are mapped and lent to nobody; also those of free pieces whose memory was given back to the system
    /// while their block is partly in use.
    pub idle: u64,
    /// Bytes mapped for buffers and groups, and those of allowances: what counts for the total limit.
    pub mapped: u64,
    /// The most that `mapped` has been.
    pub peak: u64,
    /// Bytes of `idle` that lie in threads' own caches.
    pub cached: u64,
    /// Bytes lent to the block sets and runs of piles, caches and slots, or waiting for the next set; they count apart
    /// from all the others.
    pub held: u64,
    /// Bytes of `held` that nothing is in, and that are warm: their pile comes first, and what it does not take back
    /// goes back to the system as `idle` does.
    pub held_idle: u64,
    /// Buffers that are alive; each part of a group is one.
    pub live: u64,
    /// Buffers asked for; each part of a group is one.
    pub requests: u64,
    /// Served from a thread's own cache.
    pub hits_cache: u64,
    /// Served by a piece of a block that was already cut.
    pub hits_piece: u64,
    /// Served by an idle block.
    pub hits_block: u64,
    /// Served by an idle run.
    pub hits_run: u64,
    /// Mappings made.
    pub fresh: u64,
    /// Idle memory that an arena took from another one.
    pub stolen: u64,
    /// Bytes given back to the system by trimming, eviction and pressure.
    pub trimmed: u64,
    /// Requests refused, for whatever reason.
    pub refused: u64,
    /// Requests that waited for room.
    pub waited: u64,
    /// Attempts made again because the system was out of memory.
    pub retries: u64,
    /// One entry for each arena in use.
    pub arenas: Vec<ArenaStats>,
}

/// One arena's part in [`PoolStats`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArenaStats {
    /// Buffers lent through this arena.
    pub rented: u64,
    /// Buffers that came back through this arena: to the arena that they came from, or into the cache of a thread that
    /// belongs to this one.
    pub returned: u64,
    /// Idle memory taken from other arenas.
    pub stolen: u64,
    /// Bytes out of this arena: lent, or in threads' caches.
    pub out: u64,
    /// Bytes of whole blocks and runs that are idle here.
    pub idle: u64,
}
