//! Objects longer than a chunk: each in a run of its own, numbered within its shard.

use std::sync::Arc;

use gabion_blocks::{BlockError, Budget, Run};
use gabion_heap::Ground;

/// A run and its charge: both go back with the last user, be it the pile, a reader or a view.
#[derive(Debug)]
pub(crate) struct ChargedRun {
    run: Run,
    budget: Arc<Budget>,
}

impl ChargedRun {
    fn new(ground: Ground<'_>, budget: &Arc<Budget>, bytes: &[u8]) -> Result<Self, BlockError> {
        let mapped = Run::mapped_bytes(bytes.len()) as u64;
        budget.take(mapped)?;
        let run = Run::new(ground.blocks.os(), bytes).inspect_err(|_| budget.give(mapped))?;
        Ok(Self { run, budget: Arc::clone(budget) })
    }

    pub fn bytes(&self) -> &[u8] {
        self.run.bytes()
    }
}

impl Drop for ChargedRun {
    fn drop(&mut self) {
        self.budget.give(Run::mapped_bytes(self.run.bytes().len()) as u64);
    }
}

/// The runs of one shard, which are immutable and shared with whoever reads them.
#[derive(Debug, Default)]
pub(crate) struct LargeTable {
    runs: Vec<Option<Arc<ChargedRun>>>,
    back: Vec<u32>,
    /// Runs in use.
    pub count: u64,
}

impl LargeTable {
    pub fn add(&mut self, ground: Ground<'_>, budget: &Arc<Budget>, bytes: &[u8]) -> Result<u32, BlockError> {
        let run = Some(Arc::new(ChargedRun::new(ground, budget, bytes)?));
        self.count += 1;
        if let Some(index) = self.back.pop() {
            self.runs[index as usize] = run;
            return Ok(index);
        }
        self.runs.push(run);
        Ok(self.runs.len() as u32 - 1)
    }

    pub fn get(&self, index: u32) -> Option<&Arc<ChargedRun>> {
        self.runs.get(index as usize)?.as_ref()
    }

    pub fn free(&mut self, index: u32) {
        let run = self.runs.get_mut(index as usize).and_then(Option::take);
        debug_assert!(run.is_some(), "a word names a run in use");
        self.count -= 1;
        self.back.push(index);
    }
}
