//! A step from one value to the next, taken only while the former is still there.

use gabion_pile::{ReadBuf, RunIdentity, Value};

use super::calls::Standing;
use super::core::Core;
use super::room::{Effort, Outlook};
use crate::entry::{Layout, has_value};
use crate::key::{Image, KeyHash};
use crate::options::{PutOptions, PutResult};
use crate::policy::Id;
use crate::record::Record;
use crate::shard::{Lack, Locked, Need, Progress, Request, Step, When};
use crate::stats::Figure;

/// The value that [`Table::replace_if`](crate::Table::replace_if) goes on from, and the one that
/// [`Table::remove_if`](crate::Table::remove_if) is to remove. What they take may be made into this: `&[u8]`,
/// `&[u8; N]`, `&Vec<u8>`, `&str`, `&String`, and the [`RunIdentity`] that [`ReadBuf::let_go_of_run`] gives.
///
/// ```
/// use gabion_cache::{Cache, PutOptions, PutResult, ReadBuf};
///
/// // Too small for both values at one time.
/// let (cache, mut buf) = (Cache::new(10 << 20)?, ReadBuf::new());
/// cache.put(b"picture", &vec![7; 5 << 20], &PutOptions::default());
/// let brighter: Vec<u8> = cache.get(b"picture", &mut buf).unwrap().iter().map(|pixel| pixel + 1).collect();
/// let former = buf.let_go_of_run().expect("it is longer than 1 MiB");
/// assert_eq!(cache.replace_if(b"picture", former, &brighter), Some(PutResult::Replaced));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub enum Former<'a> {
    /// Its bytes. A buffer that they were read into holds on to those of a value over 1 MiB, so that there is less
    /// room.
    Bytes(&'a [u8]),
    /// A value over 1 MiB, which nobody needs to hold meanwhile.
    Run(RunIdentity),
}

impl<'a> From<&'a [u8]> for Former<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Former<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a> From<&'a str> for Former<'a> {
    fn from(text: &'a str) -> Self {
        Self::Bytes(text.as_bytes())
    }
}

impl<'a> From<&'a String> for Former<'a> {
    fn from(text: &'a String) -> Self {
        Self::Bytes(text.as_bytes())
    }
}

impl<'a> From<&'a Vec<u8>> for Former<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<RunIdentity> for Former<'_> {
    fn from(run: RunIdentity) -> Self {
        Self::Run(run)
    }
}

impl Former<'_> {
    /// Whether it is the value of an entry.
    fn is_of(&self, locked: &Locked<'_>, id: Id, buf: &mut ReadBuf) -> bool {
        let pile = &locked.ground.pile;
        match self {
            Self::Bytes(bytes) => has_value(pile, id, bytes),
            Self::Run(run) => {
                let rest = locked.entry(id).rest();
                rest.is_some_and(|(pointer, _)| pile.read(pointer, buf).is_ok())
                    && buf.let_go_of_run().as_ref() == Some(run)
            }
        }
    }
}

impl Core {
    /// Replaces a key's value while it is `old`; its end, idle time and priority stay. `None`: it is another by now, or
    /// there is none, and nothing is changed. [`PutResult::Rejected`]: there was no room, and the key holds nothing
    /// now.
    pub fn replace_if(&self, record: &Record, key: &[u8], old: &Former<'_>, new: Value<'_>) -> Option<PutResult> {
        if let Some(whole) = new.joined() {
            return self.replace_if(record, key, old, Value::Whole(&whole));
        }
        let (image, hash, shard) = self.sought(record, key)?;
        let sought = (&image, hash);
        // When the old value went, to make room or because its time was over, this is what it leaves.
        let (mut went, mut progress) = (None, Progress::default());
        let told = self.retry(self.lock(shard), shard, |locked, effort| {
            let when = if went.is_some() { When::Absent } else { When::Always };
            let standing = went.take().or_else(|| {
                let id = self.find_former(locked, record, sought, old)?;
                Some(Standing::of(locked, id))
            });
            let Some(standing) = standing else { return Ok(None) };
            let mut request = self.stepped(record, sought, new, &standing, when);
            let step = self.try_step(locked, &mut request, &mut progress, effort);
            went = (request.when == When::Absent).then_some(standing);
            match step {
                Step::Lacks(Lack::Room) => Ok(Some((PutResult::Rejected, Figure::Rejected))),
                Step::Lacks(lack) => Err((Need::new(record, &image, &request), lack)),
                step => Ok(step.told().map(|(_, figure)| (PutResult::Replaced, figure))),
            }
        });
        progress.count(record, told.map(|(_, figure)| figure));
        told.map(|(result, _)| result)
    }

    /// Removes a key's value while it is `old`. False: it is another by now, or there is none, and nothing is changed.
    pub fn remove_if(&self, record: &Record, key: &[u8], old: &Former<'_>) -> bool {
        let Some((image, hash, shard)) = self.sought(record, key) else { return false };
        let mut locked = self.lock(shard);
        let found = self.find_former(&locked, record, (&image, hash), old);
        if let Some(id) = found {
            locked.state.leases.end_key(hash.0);
            locked.remove_entry(id, None);
        }
        self.unlock(locked);
        if found.is_some() {
            record.counters.count(Figure::Removed);
        }
        found.is_some()
    }

    /// As [`Core::remove_if`], counted as a pop is.
    pub fn pop_if(&self, record: &Record, key: &[u8], old: &Former<'_>) -> bool {
        let popped = self.remove_if(record, key, old);
        if popped {
            record.counters.count(Figure::Hits);
        }
        popped
    }

    /// Stores a value again, with what stood with it; `None` where the key has another one by now. A value that is
    /// there again was never away, as far as figures tell; any other was removed.
    pub fn put_back(&self, record: &Record, key: &[u8], value: &[u8], standing: Standing) -> Option<PutResult> {
        let told = self.sought(record, key).and_then(move |(image, hash, shard)| {
            let request = self.stepped(record, (&image, hash), value.into(), &standing, When::Absent);
            let (mut locked, mut progress) = (self.lock(shard), Progress::default());
            let step = self.attempt(&mut locked, &request, &mut progress, Outlook::Unknown);
            self.finish(&request, &mut progress, locked, step)
        });
        let result = told.map(|(result, _)| result);
        if result.is_none_or(|result| result == PutResult::Rejected) {
            record.counters.count(Figure::Removed);
        }
        result
    }

    /// A put of a value that takes the place of one with that end and priority.
    pub(super) fn stepped<'a>(
        &'a self,
        record: &'a Record,
        (image, hash): (&'a Image<'a>, KeyHash),
        value: Value<'a>,
        &Standing { due, times, priority }: &Standing,
        when: When,
    ) -> Request<'a> {
        let request = self.request(record, image, hash, value, &PutOptions::default(), when);
        Request { layout: Layout::new(image, value.len(), due.is_some(), times), due, times, priority, ..request }
    }

    /// Tries once. If the old value has gone after that, the new one is to be put only while there is no other: those
    /// whom others put meanwhile are newer.
    fn try_step(
        &self,
        locked: &mut Locked<'_>,
        request: &mut Request<'_>,
        progress: &mut Progress,
        effort: &mut Effort,
    ) -> Step {
        let step = self.attempt(locked, request, progress, effort.outlook);
        let Step::Lacks(lack) = &step else { return step };
        if request.when == When::Absent || !Self::takes_leave(locked, request, progress, matches!(lack, Lack::Room)) {
            return step;
        }
        (request.when, *effort) = (When::Absent, Effort::default());
        self.attempt(locked, request, progress, effort.outlook)
    }

    /// Whether the old value is gone, after a put of the new one that found no room: its place was to be the new one's,
    /// or its end has come since it was looked at. Where there is no other room to hope for (`last`), it goes now.
    fn takes_leave(locked: &mut Locked<'_>, request: &Request<'_>, progress: &mut Progress, last: bool) -> bool {
        let left = locked.find(request.image, request.hash);
        if left.is_some() && !last {
            return false;
        }
        // The old value must not be taken for the new one. It also leaves room for another try.
        if let Some(id) = left {
            locked.remove_entry(id, None);
            progress.taken = true;
        }
        true
    }

    /// The key's entry, if its value is the one and its time is not over.
    fn find_former(
        &self,
        locked: &Locked<'_>,
        record: &Record,
        (image, hash): (&Image<'_>, KeyHash),
        old: &Former<'_>,
    ) -> Option<Id> {
        let id = locked.find(image, hash)?;
        let over = locked.entry(id).is_over(|| self.now());
        // The buffer goes at the end: the run that it holds must not count when room is made for the new value.
        (!over && !record.is_dropped() && old.is_of(locked, id, &mut ReadBuf::new())).then_some(id)
    }
}
