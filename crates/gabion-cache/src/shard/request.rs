//! A put on its way, and how far it came.

use std::sync::Arc;

use gabion_blocks::BlockError;
use gabion_pile::{Pointer, Value};

use crate::entry::{About, Flags, Head, Layout, Times};
use crate::key::{Image, KeyHash};
use crate::options::PutResult;
use crate::record::Record;
use crate::stats::Figure;
use crate::time::{Clock, Due};

/// When a put is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    /// Only when the key is not there.
    Absent,
    /// While the lease holds under which the value was made.
    Leased(u64),
    /// Always, but the value is the one that the key has: only its end is another.
    Touched,
}

/// A put, ready to be stored.
pub(crate) struct Request<'a> {
    pub record: &'a Record,
    pub image: &'a Image<'a>,
    pub hash: KeyHash,
    /// In pieces only where it is longer than a slot, and so the entry's second object.
    pub value: Value<'a>,
    pub layout: Layout,
    pub due: Option<Due>,
    pub times: Times,
    pub priority: i8,
    pub when: When,
    /// Pointer and weight of the entry's second object, where the new entry takes it over.
    pub rest: Option<(Pointer, u64)>,
    pub clock: &'a Arc<dyn Clock>,
}

/// What a put has found and done so far, however often it is tried.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The key had a value when it was looked for. It may be gone by the time that there is room for the new one.
    pub met: bool,
    /// The key's value was removed to make room for the new one. If that is stored it was replaced, otherwise removed:
    /// it is counted then.
    pub taken: bool,
    /// The key had a ghost, which has gone.
    pub had_ghost: bool,
}

impl Progress {
    /// Counts how the put ended, and the key's value that was removed for it in vain.
    pub fn count(&self, record: &Record, figure: Option<Figure>) {
        let taken = self.taken.then_some(Figure::Removed);
        taken.into_iter().chain(figure).for_each(|figure| record.counters.count(figure));
    }
}

impl Request<'_> {
    #[inline]
    pub fn weight(&self) -> u64 {
        crate::budget::weight(self.layout)
    }

    /// What it weighs, except for what stays where it lies.
    pub fn fresh(&self) -> u64 {
        self.weight() - self.rest.map_or(0, |(_, weight)| weight)
    }

    #[inline]
    fn about(&self) -> About {
        About { priority: self.priority, own: self.record.own.is_some() }
    }

    #[inline]
    pub fn partition(&self) -> Option<u16> {
        self.record.own.as_ref().map(|_| self.record.id)
    }

    #[inline]
    fn head(&self, rest: Option<(Pointer, u64)>) -> Head {
        Head { about: self.about(), kept: self.hash.kept(), due: self.due, times: self.times, rest }
    }

    /// Puts the entry's payload together: head, image (or as much of it as stands there), value (unless it is
    /// elsewhere).
    #[inline]
    pub fn payload<'p>(&self, rest: Option<(Pointer, u64)>, into: &'p mut Vec<u8>) -> &'p [u8] {
        let (layout, image) = (self.layout, self.image);
        let value = match self.value {
            Value::Whole(value) if rest.is_none() => value,
            _ => &[],
        };
        let head = 8 * layout.flags.image_at();
        let value_at = head + layout.image;
        let length = value_at + value.len();
        // Room for the image's first word as a whole, whatever follows it.
        if into.len() < length + 8 {
            into.resize((length + 8).next_power_of_two(), 0);
        }
        let (words, _) = into.as_chunks_mut::<8>();
        if layout.flags == Flags::PLAIN {
            Head::write_plain(self.about(), self.hash.kept(), words);
        } else {
            self.head(rest).write(layout.flags, words);
        }
        words[head / 8] = image.first();
        if layout.image > 8 {
            into[head + 8..value_at].copy_from_slice(&image.key[8 - image.prefix_len..layout.image - image.prefix_len]);
        }
        into[value_at..length].copy_from_slice(value);
        &into[..length]
    }
}

/// What is needed for a put, and whose it is: enough to make room by, and nothing of the value.
#[derive(Clone, Copy)]
pub(crate) struct Need<'a> {
    pub record: &'a Record,
    pub image: &'a Image<'a>,
    pub hash: KeyHash,
    /// Bytes of the entry's second object that are to be written, if there is one.
    pub rest: Option<usize>,
    /// What it weighs, except for what stays where it lies.
    pub fresh: u64,
    pub priority: i8,
}

impl<'a> Need<'a> {
    /// For a request to this table, under this key: they outlast the request.
    pub fn new(record: &'a Record, image: &'a Image<'a>, request: &Request<'_>) -> Self {
        let &Request { hash, layout, priority, .. } = request;
        Self { record, image, hash, rest: layout.rest, fresh: request.fresh(), priority }
    }
}

/// How far a put came.
pub(crate) enum Step {
    Inserted,
    Replaced,
    /// The key had a value, which has left since: it ended, or made room for another put.
    Renewed,
    /// It is not to be done: see [`When`].
    Unwanted,
    /// It has no room yet, or can have none.
    Lacks(Lack),
}

impl Step {
    /// What a put that came to its end is told as, and what it is counted as.
    #[inline]
    pub fn told(&self) -> Option<(PutResult, Figure)> {
        match self {
            Self::Inserted => Some((PutResult::Inserted, Figure::Inserted)),
            Self::Replaced => Some((PutResult::Replaced, Figure::Replaced)),
            // The old value is counted as evicted or expired.
            Self::Renewed => Some((PutResult::Replaced, Figure::Inserted)),
            _ => None,
        }
    }
}

/// Why there is no room.
pub(crate) enum Lack {
    /// Whether that many bytes can be had is for all shards together to say.
    Unsure(u64),
    /// There are no pages for it.
    Pages(BlockError),
    /// Entries of this priority (of the table, or of all) must go first, and this shard has none.
    Elsewhere { priority: i8, table_only: bool },
    /// No room can be made.
    Room,
}
