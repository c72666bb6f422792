//! Bodies that views look at: they are neither changed nor let to others until the last view is gone.

use std::collections::HashMap;

use gabion_blocks::BlockError;
use gabion_heap::Loc;

/// What a pin holds on to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Pinned {
    /// The body of a slot, owned inline or let to a guest.
    Body(Loc),
    /// A chunk.
    Chunk(Loc),
}

#[derive(Debug, Default)]
struct Pin {
    views: u64,
    /// The object is gone: the last view frees the memory.
    orphan: bool,
}

/// The pins of one shard.
#[derive(Debug, Default)]
pub(crate) struct Pins(HashMap<Pinned, Pin>);

impl Pins {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether views look at it.
    pub fn has(&self, body: Pinned) -> bool {
        self.0.contains_key(&body)
    }

    /// # Errors
    /// [`BlockError::Refused`]; nothing is changed.
    pub fn add(&mut self, body: Pinned) -> Result<(), BlockError> {
        // A table that grows by itself ends the process where there is no memory.
        self.0.try_reserve(1).map_err(|_| BlockError::out_of_memory(size_of::<(Pinned, Pin)>()))?;
        self.0.entry(body).or_default().views += 1;
        Ok(())
    }

    /// One view more of a body that has one. Takes no memory.
    pub fn again(&mut self, body: Pinned) {
        self.0.get_mut(&body).expect("a pinned body has a pin").views += 1;
    }

    /// The object has left the body to its views.
    pub fn orphan(&mut self, body: Pinned) {
        self.0.get_mut(&body).expect("a pinned body has a pin").orphan = true;
    }

    /// One view less. `Some(orphan)` when it was the last.
    pub fn release(&mut self, body: Pinned) -> Option<bool> {
        let pin = self.0.get_mut(&body)?;
        pin.views -= 1;
        if pin.views > 0 {
            return None;
        }
        let orphan = pin.orphan;
        self.0.remove(&body);
        Some(orphan)
    }
}
