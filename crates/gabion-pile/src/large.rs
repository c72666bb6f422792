//! Objects longer than a chunk: each in a run of its own, numbered within its shard.

use std::sync::Arc;

use gabion_blocks::{BlockError, Budget, Run, make_room, total_len};
use gabion_heap::Ground;

/// A run and its charge: both go back with the last user, be it the pile, a reader or a view.
#[derive(Debug)]
pub(crate) struct ChargedRun {
    /// `None` only while it is dropped.
    run: Option<Run>,
    charge: u64,
    budget: Arc<Budget>,
}

impl ChargedRun {
    /// Takes and fills a run. Takes as long as the bytes do: no lock is held meanwhile.
    pub fn new(ground: Ground<'_>, budget: &Arc<Budget>, pieces: &[&[u8]]) -> Result<Arc<Self>, BlockError> {
        let mapped = Run::mapped_bytes(total_len(pieces)) as u64;
        budget.take(mapped)?;
        let run = Run::new(ground.blocks.pool(), pieces).inspect_err(|_| budget.give(mapped))?;
        Ok(Arc::new(Self { run: Some(run), charge: mapped, budget: Arc::clone(budget) }))
    }

    pub fn bytes(&self) -> &[u8] {
        self.run.as_ref().map_or(&[], Run::bytes)
    }
}

impl Drop for ChargedRun {
    fn drop(&mut self) {
        // Given back first: the budget never promises what is still taken.
        drop(self.run.take());
        self.budget.give(self.charge);
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
    /// # Errors
    /// [`BlockError::Refused`]; nothing is changed.
    pub fn add(&mut self, run: Arc<ChargedRun>) -> Result<u32, BlockError> {
        let run = Some(run);
        if let Some(index) = self.back.pop() {
            self.runs[index as usize] = run;
            self.count += 1;
            return Ok(index);
        }
        make_room(&mut self.runs, 1)?;
        // For all of them, so that none needs memory to be freed.
        let most = self.runs.len() + 1;
        make_room(&mut self.back, most)?;
        self.runs.push(run);
        self.count += 1;
        Ok(most as u32 - 1)
    }

    pub fn get(&self, index: u32) -> Option<&Arc<ChargedRun>> {
        self.runs.get(index as usize)?.as_ref()
    }

    /// Takes a run out. Whoever drops it last unmaps it: not under a lock.
    pub fn free(&mut self, index: u32) -> Option<Arc<ChargedRun>> {
        let run = self.runs.get_mut(index as usize).and_then(Option::take);
        debug_assert!(run.is_some(), "a word names a run in use");
        self.count -= 1;
        self.back.push(index);
        run
    }
}
