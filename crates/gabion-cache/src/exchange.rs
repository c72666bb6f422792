//! A step from one value to the next, taken only while the former is still there.

use std::cell::Cell;

use gabion_pile::{ReadBuf, RunIdentity};

use crate::core::Core;
use crate::entry::{Layout, contents};
use crate::hash::KeyHash;
use crate::key::{Image, LONGEST_KEY};
use crate::locked::Locked;
use crate::options::PutResult;
use crate::policy::Id;
use crate::record::Record;
use crate::request::{Lack, Request, Step, When};
use crate::room::Effort;
use crate::stats::Figure;
use crate::value::Value;

/// The value that [`Table::replace_if`](crate::Table::replace_if) goes on from. What it takes may be made into this: `&[u8]`,
/// `&[u8; N]`, `&Vec<u8>`, and what [`ReadBuf::let_go_of_run`] gives.
///
/// ```
/// use gabion_cache::{Cache, Former, PutOptions, PutResult, ReadBuf};
///
/// // Too small for both values at one time.
/// let (cache, mut buf) = (Cache::new(10 << 20)?, ReadBuf::new());
/// cache.put(b"picture", &vec![7; 5 << 20], &PutOptions::default());
/// let brighter: Vec<u8> = cache.get(b"picture", &mut buf).unwrap().iter().map(|pixel| pixel + 1).collect();
/// let former = buf.let_go_of_run().map(Former::Run).expect("it is longer than 1 MiB");
/// assert_eq!(cache.replace_if(b"picture", former, &brighter), Some(PutResult::Replaced));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub enum Former<'a> {
    /// Its bytes. A buffer that they were read into holds on to those of a value over 1 MiB, so that there is less room.
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

impl<'a> From<&'a Vec<u8>> for Former<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl Former<'_> {
    /// Whether it is the value of an entry.
    fn is_of(&self, locked: &Locked<'_>, id: Id, buf: &mut ReadBuf) -> bool {
        let pile = &locked.ground.pile;
        match self {
            Self::Bytes(bytes) => contents(pile, id, buf).is_some_and(|(_, value)| value == *bytes),
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
    /// there is none, and nothing is changed. [`PutResult::Rejected`]: there was no room, and the key holds nothing now.
    pub fn replace_if(&self, record: &Record, key: &[u8], old: &Former<'_>, new: Value<'_>) -> Option<PutResult> {
        if let Some(whole) = new.joined() {
            return self.replace_if(record, key, old, Value::Whole(&whole));
        }
        if key.len() > LONGEST_KEY {
            return None;
        }
        let image = Image::new(record.id, key);
        let hash = self.hash(&image);
        let shard = self.shard(hash);
        let (mut effort, mut refused, mut went) = (Effort::default(), false, None);
        loop {
            let mut locked = self.lock(shard);
            self.introduce(&mut locked, record);
            let kept = went.or_else(|| {
                let id = self.find_former(&mut locked, record, (&image, hash), old)?;
                let entry = locked.entry(id);
                Some((entry.due(), entry.times(), entry.about().priority))
            });
            let Some((due, times, priority)) = kept else {
                self.unlock(locked);
                return None;
            };
            let layout = Layout::new(&image, new.len(), due.is_some(), times);
            let (image, clock) = (&image, self.clock());
            // Where the old value went to make room, others may put theirs, which is newer.
            let request = |gone: bool| {
                let (when, met) = (if gone { When::Absent } else { When::Always }, Cell::new(false));
                Request {
                    record,
                    image,
                    hash,
                    value: new,
                    layout,
                    due,
                    times,
                    priority,
                    when,
                    spare: !gone,
                    kept: None,
                    clock,
                    met,
                }
            };
            let refuse = refused || record.is_dropped();
            let mut step =
                if refuse { Step::Lacks(Lack::Room) } else { locked.put(&request(went.is_some()), effort.sure) };
            if let (Step::Lacks(lack), None) = (&step, went)
                && Self::takes_leave(&mut locked, record, (image, hash), matches!(lack, Lack::Room))
            {
                (went, effort) = (kept, Effort::default());
                if !record.is_dropped() {
                    step = locked.put(&request(true), false);
                }
            }
            self.unlock(locked);
            if let Some((_, figure)) = step.told() {
                record.counters.count(figure);
                return Some(PutResult::Replaced);
            }
            match step {
                Step::Lacks(Lack::Room) => {
                    record.counters.count(Figure::Rejected);
                    return Some(PutResult::Rejected);
                }
                Step::Lacks(lack) => refused = !self.make_way(shard, &request(went.is_some()), &lack, &mut effort),
                _ => return None,
            }
        }
    }

    /// Whether the old value is gone, after a put of the new one that found no room: its place was to be the new one's, or its end
    /// has come since it was looked at. Where there is no other room to hope for (`last`), it goes now.
    fn takes_leave(locked: &mut Locked<'_>, record: &Record, (image, hash): (&Image<'_>, KeyHash), last: bool) -> bool {
        let left = locked.shard.find(&mut locked.state, locked.ground, image, hash);
        if left.is_some() && !last {
            return false;
        }
        // The old value must not be taken for the new one. It also leaves room for another try.
        if let Some(id) = left {
            locked.remove_entry(id, None);
            record.counters.count(Figure::Removed);
        }
        true
    }

    /// The key's entry, if its value is the one and its time is not over.
    fn find_former(
        &self,
        locked: &mut Locked<'_>,
        record: &Record,
        (image, hash): (&Image<'_>, crate::hash::KeyHash),
        old: &Former<'_>,
    ) -> Option<Id> {
        let id = locked.shard.find(&mut locked.state, locked.ground, image, hash)?;
        let over = locked.entry(id).is_over(|| self.now());
        // The buffer goes at the end: the run that it holds must not count when room is made for the new value.
        (!over && !record.is_dropped() && old.is_of(locked, id, &mut ReadBuf::new())).then_some(id)
    }
}
