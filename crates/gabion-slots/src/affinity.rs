//! Affinities: the kinds that objects are packed by.

/// How many affinities there can be, the four that every [`Slots`](crate::Slots) has included.
pub const MOST_AFFINITIES: usize = 255;

/// The first four, by index: their names, and their alignment until they are told otherwise.
pub(crate) const FIRST: [(&str, usize); 4] = [("objects", 8), ("data", 16), ("nodes", 8), ("physics", 16)];

/// The largest alignment that an affinity can ask for.
pub(crate) const MOST_ALIGNMENT: usize = 64;

/// A kind of objects. What has one affinity lies together, in blocks of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Affinity(u8);

impl Affinity {
    /// Anything that is no other kind. Alignment 8 unless set.
    pub const OBJECTS: Self = Self(0);
    /// Payloads: arrays, buffers, texts. Alignment 16 unless set.
    pub const DATA: Self = Self(1);
    /// What links to each other and is walked: nodes, vectors of children. Alignment 8 unless set.
    pub const NODES: Self = Self(2);
    /// What vector instructions work on. Alignment 16 unless set.
    pub const PHYSICS: Self = Self(3);

    /// Its place among the affinities, from 0.
    #[inline]
    pub const fn index(self) -> u8 {
        self.0
    }

    /// The affinity with this index. Using one that was never made is an error, not a fault.
    #[inline]
    pub const fn from_index(index: u8) -> Self {
        Self(index)
    }
}

/// What an affinity can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AffinitySettings {
    /// The least alignment in bytes of everything in this affinity: a power of two up to 64. What asks for more gets
    /// more, and what is a multiple of 16 bytes long is aligned to 16 in any case.
    pub alignment: usize,
    /// How many blocks of 4 MiB it may take, large objects counted by their bytes; `None` for as many as there are.
    pub max_blocks: Option<usize>,
}

impl AffinitySettings {
    /// What the affinity with this index has until it is told otherwise.
    pub(crate) fn of_index(index: usize) -> Self {
        let first = FIRST.get(index).map(|&(_, alignment)| Self { alignment, ..Self::default() });
        first.unwrap_or_default()
    }
}

impl Default for AffinitySettings {
    /// Alignment 8, no budget.
    fn default() -> Self {
        Self { alignment: 8, max_blocks: None }
    }
}
