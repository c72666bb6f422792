//! Objects longer than a chunk: each in a run of its own, numbered within its shard.

use std::sync::Arc;

use gabion_blocks::{BlockError, Run};
use gabion_heap::Ground;

/// The runs of one shard. A run is immutable and shared with whoever reads it; its memory goes back with the last user.
#[derive(Debug, Default)]
pub(crate) struct LargeTable {
    runs: Vec<Option<Arc<Run>>>,
    back: Vec<u32>,
    /// Bytes charged to the budget.
    pub mapped: u64,
    /// Runs in use.
    pub count: u64,
}

impl LargeTable {
    pub fn add(&mut self, ground: Ground<'_>, bytes: &[u8]) -> Result<u32, BlockError> {
        let mapped = Run::mapped_bytes(bytes.len()) as u64;
        ground.budget.take(mapped)?;
        let run = Run::new(ground.blocks.os(), bytes).inspect_err(|_| ground.budget.give(mapped))?;
        self.mapped += mapped;
        self.count += 1;
        let run = Some(Arc::new(run));
        if let Some(index) = self.back.pop() {
            self.runs[index as usize] = run;
            return Ok(index);
        }
        self.runs.push(run);
        Ok(self.runs.len() as u32 - 1)
    }

    pub fn get(&self, index: u32) -> Option<&Arc<Run>> {
        self.runs.get(index as usize)?.as_ref()
    }

    pub fn free(&mut self, ground: Ground<'_>, index: u32) {
        let run = self.runs.get_mut(index as usize).and_then(Option::take).expect("a word names a run in use");
        let mapped = Run::mapped_bytes(run.bytes().len()) as u64;
        ground.budget.give(mapped);
        self.mapped -= mapped;
        self.count -= 1;
        self.back.push(index);
    }

    pub fn clear(&mut self, ground: Ground<'_>) {
        ground.budget.give(self.mapped);
        *self = Self::default();
    }
}
