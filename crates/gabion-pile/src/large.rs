//! Objects longer than a chunk: each in a run of its own, numbered within its shard.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use gabion_blocks::{BlockError, Budget, Piece, Run, make_room, total_len};
use gabion_heap::Ground;

/// A run and its charge: both go back with the last user, be it the pile, a reader or a view.
#[derive(Debug)]
pub(crate) struct ChargedRun {
    /// `None` only while it is dropped.
    run: Option<Run>,
    charge: u64,
    budget: Arc<Budget>,
}

// Bytes that never change once they are shared.
impl UnwindSafe for ChargedRun {}
impl RefUnwindSafe for ChargedRun {}

impl ChargedRun {
    /// Takes and fills a run. Takes as long as the bytes do: no lock is held meanwhile.
    pub fn new(ground: Ground<'_>, budget: &Arc<Budget>, pieces: &[Piece<'_>]) -> Result<Arc<Self>, BlockError> {
        let mapped = Run::mapped_bytes(total_len(pieces)) as u64;
        budget.take(mapped)?;
        let run = match ground.blocks.file() {
            None => Run::new(ground.blocks.pool(), pieces),
            Some(file) => Run::in_file(file, pieces),
        };
        let run = run.inspect_err(|_| budget.give(mapped))?;
        Ok(Arc::new(Self { run: Some(run), charge: mapped, budget: Arc::clone(budget) }))
    }

    /// One that was found in a file.
    pub fn found(run: Run, budget: &Arc<Budget>) -> Arc<Self> {
        let charge = Run::mapped_bytes(run.bytes().len()) as u64;
        budget.charge(charge);
        Arc::new(Self { run: Some(run), charge, budget: Arc::clone(budget) })
    }

    /// Says in its file, if it lies in one, whose it is: of which shard, and which number it has there.
    fn own(&self, owner: Option<(u32, u32)>) {
        let number = owner.map_or(0, |(shard, index)| number_of(shard, index));
        if let Some(run) = &self.run {
            run.own(number);
        }
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

/// What a run in a file says of whose it is. Never 0.
pub(crate) fn number_of(shard: u32, index: u32) -> u64 {
    1 + (u64::from(shard) << 32 | u64::from(index))
}

/// Whose a run in a file says it is: the shard, and its number there.
pub(crate) fn owner_of(number: u64) -> Option<(u32, u32)> {
    number.checked_sub(1).map(|number| ((number >> 32) as u32, number as u32))
}

/// The runs of one shard, which are immutable and shared with their readers.
#[derive(Debug)]
pub(crate) struct LargeTable {
    shard: u32,
    runs: Vec<Option<Arc<ChargedRun>>>,
    back: Vec<u32>,
    /// Runs in use.
    pub count: u64,
}

impl LargeTable {
    pub fn new(shard: u32) -> Self {
        Self { shard, runs: Vec::new(), back: Vec::new(), count: 0 }
    }

    /// # Errors
    /// [`BlockError::Refused`]; nothing is changed.
    pub fn add(&mut self, run: Arc<ChargedRun>) -> Result<u32, BlockError> {
        let index = if let Some(index) = self.back.pop() {
            index
        } else {
            make_room(&mut self.runs, 1)?;
            // For all of them, so that none needs memory to be freed.
            let most = self.runs.len() + 1;
            make_room(&mut self.back, most)?;
            self.runs.push(None);
            most as u32 - 1
        };
        run.own(Some((self.shard, index)));
        self.runs[index as usize] = Some(run);
        self.count += 1;
        Ok(index)
    }

    /// Enters a run that was found in a file, under the number that it has there. False when there is one already.
    ///
    /// # Errors
    /// [`BlockError::Refused`].
    pub fn enter(&mut self, index: u32, run: Arc<ChargedRun>) -> Result<bool, BlockError> {
        let most = self.runs.len().max(index as usize + 1);
        let more = most - self.runs.len();
        make_room(&mut self.runs, more)?;
        make_room(&mut self.back, most)?;
        self.runs.resize_with(most, || None);
        let place = &mut self.runs[index as usize];
        let is_free = place.is_none();
        if is_free {
            *place = Some(run);
            self.count += 1;
        }
        Ok(is_free)
    }

    /// Says which numbers are free, after all runs of a file were entered.
    pub fn list_free_numbers(&mut self) {
        let free = self.runs.iter().enumerate().filter(|(_, run)| run.is_none());
        self.back.extend(free.map(|(index, _)| index as u32));
    }

    /// Whether somebody else reads one of them.
    pub fn is_shared(&self) -> bool {
        self.runs.iter().flatten().any(|run| Arc::strong_count(run) > 1)
    }

    /// Leaves all runs in the file.
    pub fn leave(&mut self) {
        *self = Self::new(self.shard);
    }

    /// Takes all runs out. The last drop of each unmaps it: not under a lock.
    pub fn take_all(&mut self) -> Self {
        let all = std::mem::replace(self, Self::new(self.shard));
        all.runs.iter().flatten().for_each(|run| run.own(None));
        all
    }

    pub fn get(&self, index: u32) -> Option<&Arc<ChargedRun>> {
        self.runs.get(index as usize)?.as_ref()
    }

    /// All runs, with their numbers.
    pub fn each(&self) -> impl Iterator<Item = (u32, &Arc<ChargedRun>)> {
        (0..).zip(&self.runs).filter_map(|(index, run)| Some((index, run.as_ref()?)))
    }

    /// Takes a run out. Its last drop unmaps it: not under a lock.
    pub fn free(&mut self, index: u32) -> Option<Arc<ChargedRun>> {
        let run = self.runs.get_mut(index as usize).and_then(Option::take);
        debug_assert!(run.is_some(), "a word names a run in use");
        // Nothing leads to it any more: the next opening of its file lets it go.
        if let Some(run) = &run {
            run.own(None);
        }
        self.count -= 1;
        self.back.push(index);
        run
    }
}
