//! An entry: what the cache knows of a key's value, at the head of its payload in the pile.
//!
//! ```text
//! word 0    newer neighbour (39) │ hash, high (10) │ flags (4) │ queue (2) │ own limit (1) │ priority (8)
//! word 1    older neighbour (39) │ hash, low (25)
//!      2    deadline and idle time                                  if it has an end
//!      3    previous in the wheel (39) │ bucket (25)
//!      4    next in the wheel (39)
//! then      when it ends however often it is used                   as the flags say
//!           the time to live that a touch restarts
//!           pointer to the rest, and what the rest weighs
//! then      image of the key │ value
//! ```
//! Neighbours are places. What is longer than a slot is stored as two objects: in the second lies the value, if it is
//! longer than a slot by itself and the image is not over 512 bytes; otherwise the key, too, and only the image's
//! prefix here.
//!
//! The words before the image are the lock holder's, who changes the first five in place; a reader takes of them only
//! flags, which never change for one payload, and single words.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::Run;
use gabion_heap::{MAX_SLOT_WORDS, slot_words};
use gabion_pile::{Body, CHUNK_PAYLOAD, Glance, IndexedPile, Pile, Place, Pointer, ReadBuf, SLOT_PAYLOAD, chunk_bytes};

use crate::index::PLACE;
use crate::key::{Image, KEPT_BITS, parse_prefix};
use crate::policy::Id;
use crate::time::{Due, Hooks};

const LOW_HASH_BITS: u32 = u64::BITS - Place::BITS;
const HIGH_HASH_BITS: u32 = KEPT_BITS - LOW_HASH_BITS;
const FLAGS_SHIFT: u32 = Place::BITS + HIGH_HASH_BITS;
const QUEUE_SHIFT: u32 = FLAGS_SHIFT + 4;
const OWN_SHIFT: u32 = QUEUE_SHIFT + 2;
const PRIORITY_SHIFT: u32 = OWN_SHIFT + 1;
const _: () = assert!(PRIORITY_SHIFT + 8 == u64::BITS);

const NEWER: usize = 0;
const OLDER: usize = 1;
/// The word of an entry's end, if it has one.
pub(crate) const DUE: usize = 2;
const PREVIOUS: usize = 3;
const NEXT: usize = 4;

/// The longest image that lies in its entry.
const MOST_IMAGE: usize = 512;

/// What an entry has beside key and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(u64);

impl Flags {
    const TIMED: u64 = 1;
    const END: u64 = 2;
    const TTL: u64 = 4;
    const SPLIT: u64 = 8;
    /// Nothing but key and value.
    pub const PLAIN: Self = Self(0);

    /// As an entry's first word has them.
    #[inline]
    pub fn of(word: u64) -> Self {
        Self(word >> FLAGS_SHIFT & 0xF)
    }

    /// It has an end.
    #[inline]
    pub fn timed(self) -> bool {
        self.0 & Self::TIMED != 0
    }

    /// It lies in two objects.
    #[inline]
    pub fn is_split(self) -> bool {
        self.0 & Self::SPLIT != 0
    }

    #[inline]
    fn end_at(self) -> usize {
        if self.timed() { NEXT + 1 } else { DUE }
    }

    #[inline]
    fn ttl_at(self) -> usize {
        self.end_at() + usize::from(self.0 & Self::END != 0)
    }

    /// The word of the pointer to the rest; what the rest weighs stands behind it.
    #[inline]
    pub fn rest_at(self) -> usize {
        self.ttl_at() + usize::from(self.0 & Self::TTL != 0)
    }

    /// The first word of the image.
    #[inline]
    pub const fn image_at(self) -> usize {
        const AT: [u8; 16] = {
            let (mut at, mut flags) = ([0; 16], 0);
            while flags < 16 {
                at[flags] = (2 + 3 * (flags & 1) + (flags >> 1 & 1) + (flags >> 2 & 1) + 2 * (flags >> 3)) as u8;
                flags += 1;
            }
            at
        };
        AT[self.0 as usize % 16] as usize
    }
}

/// Times that stand with the value, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// When it ends however often it is used, for entries with an idle time.
    pub end: Option<u64>,
    /// The time to live that a touch restarts, where that is not its table's; `NEVER` where there is none.
    pub ttl: Option<u64>,
}

/// How an entry of some size is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub flags: Flags,
    /// Bytes of the image in the entry.
    pub image: usize,
    /// Bytes of the second object that are to be written, if there is one.
    pub rest: Option<usize>,
    /// Bytes in the pile, as it rounds them.
    pub stored: u64,
}

/// Bytes of the slot that an object of each number of words gets.
const SLOT_BYTES: [u16; MAX_SLOT_WORDS + 1] = {
    let mut table = [0; MAX_SLOT_WORDS + 1];
    let (mut class, mut words) = (0, 1);
    while words <= MAX_SLOT_WORDS {
        while slot_words(class) < words {
            class += 1;
        }
        table[words] = slot_words(class) as u16 * 8;
        words += 1;
    }
    table
};

/// Bytes that the pile takes for a payload.
#[inline(always)]
pub(crate) fn stored(payload: usize) -> u64 {
    match SLOT_BYTES.get(1 + payload.div_ceil(8)) {
        Some(&bytes) => bytes.into(),
        None => stored_apart(payload),
    }
}

/// Bytes that the pile takes for a payload that is longer than a slot.
#[cold]
fn stored_apart(payload: usize) -> u64 {
    let apart = if payload <= CHUNK_PAYLOAD { chunk_bytes(payload) } else { Run::mapped_bytes(payload) };
    // And the slot's word.
    8 + apart as u64
}

impl Layout {
    #[inline]
    pub fn new(image: &Image<'_>, value: usize, timed: bool, times: Times) -> Self {
        let flag = |is: bool, flag: u64| if is { flag } else { 0 };
        let bits =
            flag(timed, Flags::TIMED) | flag(times.end.is_some(), Flags::END) | flag(times.ttl.is_some(), Flags::TTL);
        let flags = Flags(bits);
        let length = flags.image_at() * 8 + image.len() + value;
        if length <= SLOT_PAYLOAD {
            return Self { flags, image: image.len(), rest: None, stored: stored(length) };
        }
        let flags = Flags(bits | Flags::SPLIT);
        let apart = image.len() <= MOST_IMAGE && value > SLOT_PAYLOAD;
        let (inline, rest) = if apart { (image.len(), value) } else { (image.prefix_len, image.key.len() + value) };
        let stored = stored(flags.image_at() * 8 + inline) + stored(rest);
        Self { flags, image: inline, rest: Some(rest), stored }
    }

    /// Of an entry with an end whose second object stays as it is, with that many bytes of the image in its own.
    pub fn headed(image: usize, kept: u64, times: Times) -> Self {
        let flag = |is: bool, flag: u64| if is { flag } else { 0 };
        let bits = flag(times.end.is_some(), Flags::END) | flag(times.ttl.is_some(), Flags::TTL);
        let flags = Flags(bits | Flags::TIMED | Flags::SPLIT);
        Self { flags, image, rest: Some(0), stored: stored(flags.image_at() * 8 + image) + kept }
    }
}

/// What an entry is, except for its value and what changes with use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct About {
    pub priority: i8,
    /// Its table has a limit of its own, and so policies of its own.
    pub own: bool,
}

/// An entry's head as it is written with its payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub about: About,
    pub kept: u64,
    pub due: Option<Due>,
    pub times: Times,
    /// Pointer and weight of the second object.
    pub rest: Option<(Pointer, u64)>,
}

impl Head {
    /// Writes the words of an entry that has nothing beside key and value, with no neighbours yet, to where its payload
    /// begins.
    #[inline]
    pub fn write_plain(about: About, kept: u64, words: &mut [[u8; 8]]) {
        let about = u64::from(about.own) << OWN_SHIFT | u64::from(about.priority.cast_unsigned()) << PRIORITY_SHIFT;
        words[OLDER] = (kept << Place::BITS).to_le_bytes();
        words[NEWER] = ((kept >> LOW_HASH_BITS) << Place::BITS | about).to_le_bytes();
    }

    /// Writes the words of any entry.
    #[inline(never)]
    pub fn write(&self, flags: Flags, words: &mut [[u8; 8]]) {
        Self::write_plain(self.about, self.kept, words);
        words[NEWER] = (u64::from_le_bytes(words[NEWER]) | flags.0 << FLAGS_SHIFT).to_le_bytes();
        let mut set = |at: usize, word: u64| words[at] = word.to_le_bytes();
        if let Some(due) = self.due {
            set(DUE, due.to_bits());
            set(PREVIOUS, 0);
            set(NEXT, 0);
        }
        if let Some(end) = self.times.end {
            set(flags.end_at(), end);
        }
        if let Some(ttl) = self.times.ttl {
            set(flags.ttl_at(), ttl);
        }
        if let Some((pointer, weight)) = self.rest {
            set(flags.rest_at(), pointer.to_bits());
            set(flags.rest_at() + 1, weight);
        }
    }
}

/// A live entry, for the holder of its shard's lock.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a>(Body<'a>);

impl<'a> Entry<'a> {
    /// The entry of a payload that is one, or was when it was looked at.
    #[inline]
    pub fn new(body: Body<'a>) -> Self {
        Self(body)
    }

    /// The entry at a place that is known to hold one.
    #[inline(always)]
    pub fn at(pile: &'a IndexedPile, id: Id) -> Self {
        Self(pile.body(Place::from_bits(id)).expect("an entry is in the cache's pile"))
    }

    #[inline]
    fn get(self, at: usize) -> u64 {
        // Relaxed throughout: the shard's lock orders its holders, and readers take single words as hints or behind the
        // pile's guards.
        self.0.word(at).load(Relaxed)
    }

    #[inline]
    fn set(self, at: usize, mask: u64, bits: u64) {
        let word: &AtomicU64 = self.0.word(at);
        word.store(word.load(Relaxed) & !mask | bits, Relaxed);
    }

    #[inline]
    pub fn links(self) -> (Id, Id) {
        (self.get(NEWER) & PLACE, self.get(OLDER) & PLACE)
    }

    #[inline]
    pub fn set_links(self, newer: Id, older: Id) {
        self.set(NEWER, PLACE, newer);
        self.set(OLDER, PLACE, older);
    }

    #[inline]
    pub fn set_newer(self, newer: Id) {
        self.set(NEWER, PLACE, newer);
    }

    #[inline]
    pub fn set_older(self, older: Id) {
        self.set(OLDER, PLACE, older);
    }

    /// The bits of the hash that the index needs.
    #[inline]
    pub fn kept(self) -> u64 {
        let high = self.get(NEWER) >> Place::BITS & ((1 << HIGH_HASH_BITS) - 1);
        self.get(OLDER) >> Place::BITS | high << LOW_HASH_BITS
    }

    #[inline]
    pub fn flags(self) -> Flags {
        Flags::of(self.get(NEWER))
    }

    #[inline]
    pub fn about(self) -> About {
        let word = self.get(NEWER);
        About { priority: ((word >> PRIORITY_SHIFT) as u8).cast_signed(), own: word >> OWN_SHIFT & 1 == 1 }
    }

    #[inline]
    pub fn queue(self) -> u8 {
        (self.get(NEWER) >> QUEUE_SHIFT & 3) as u8
    }

    #[inline]
    pub fn set_queue(self, queue: u8) {
        self.set(NEWER, 3 << QUEUE_SHIFT, u64::from(queue) << QUEUE_SHIFT);
    }

    pub fn set_priority(self, priority: i8) {
        self.set(NEWER, 0xFF << PRIORITY_SHIFT, u64::from(priority.cast_unsigned()) << PRIORITY_SHIFT);
    }

    /// Bytes of the entry and its rest, as the pile rounds them.
    #[inline(always)]
    pub fn stored(self) -> u64 {
        let flags = self.flags();
        stored(self.0.len()) + if flags.is_split() { self.get(flags.rest_at() + 1) } else { 0 }
    }

    /// Its end and idle time, or [`Due::NONE`].
    #[inline]
    pub fn end(self) -> Due {
        self.due().unwrap_or(Due::NONE)
    }

    /// Its end and idle time, if it has an end.
    #[inline]
    pub fn due(self) -> Option<Due> {
        self.flags().timed().then(|| Due::from_bits(self.get(DUE)))
    }

    /// Whether its time is over. What has no end does not ask for the time.
    #[inline]
    pub fn is_over(self, now: impl FnOnce() -> u64) -> bool {
        self.due().is_some_and(|due| due.is_over(now()))
    }

    pub fn set_due(self, due: Due) {
        self.set(DUE, u64::MAX, due.to_bits());
    }

    /// Sets the end of an entry that was put with one beside its idle time.
    pub fn set_end(self, end: u64) {
        self.set(self.flags().end_at(), u64::MAX, end);
    }

    pub fn times(self) -> Times {
        let flags = self.flags();
        let at = |flag, at: usize| (flags.0 & flag != 0).then(|| self.get(at));
        Times { end: at(Flags::END, flags.end_at()), ttl: at(Flags::TTL, flags.ttl_at()) }
    }

    /// Previous and next in the wheel, and the bucket.
    pub fn hooks(self) -> Hooks {
        let word = self.get(PREVIOUS);
        (word & PLACE, self.get(NEXT) & PLACE, (word >> Place::BITS) as usize)
    }

    pub fn set_hooks(self, previous: Id, next: Id, bucket: usize) {
        self.set_previous(previous, bucket);
        self.set_next(next);
    }

    pub fn set_previous(self, previous: Id, bucket: usize) {
        self.set(PREVIOUS, u64::MAX, previous | (bucket as u64) << Place::BITS);
    }

    pub fn set_next(self, next: Id) {
        self.set(NEXT, u64::MAX, next);
    }

    /// Pointer and weight of the second object, if there is one.
    #[inline(always)]
    pub fn rest(self) -> Option<(Pointer, u64)> {
        let flags = self.flags();
        // What is half written may say 0; an entry that holds never does.
        let pointer = if flags.is_split() { Pointer::from_bits(self.get(flags.rest_at())) } else { None };
        pointer.map(|pointer| (pointer, self.get(flags.rest_at() + 1)))
    }

    /// The key's length, its table, and how long its prefix is.
    #[inline]
    pub fn prefix(self) -> (usize, u16, usize) {
        parse_prefix(self.get(self.flags().image_at()))
    }

    /// Its table.
    #[inline(always)]
    pub fn table(self) -> u16 {
        // The first bit says whether there is a number.
        if self.get(self.flags().image_at()) & 1 == 0 { 0 } else { self.prefix().1 }
    }

    fn bytes_from(self, first: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.0.len().saturating_sub(8 * first)];
        self.0.read(first, &mut bytes);
        bytes
    }

    /// All that stands here.
    pub fn bytes(self) -> Vec<u8> {
        self.bytes_from(0)
    }

    /// Image and value, as far as they stand here.
    pub fn inline_bytes(self) -> Vec<u8> {
        self.bytes_from(self.flags().image_at())
    }

    /// How many bytes of the key's image stand here, if those that do are the key's. What is missing is in the rest.
    #[inline]
    pub fn begins_with(self, image: &Image<'_>) -> Option<usize> {
        let (flags, length) = (self.flags(), self.0.len());
        let at = flags.image_at();
        let here = length.checked_sub(8 * at)?;
        let whole = here >= image.len();
        if flags.is_split() && here != image.len() && here != image.prefix_len || !flags.is_split() && !whole {
            return None;
        }
        let inline = here.min(image.len());
        image.matches(inline, |index| self.get(at + index)).then_some(inline)
    }
}

/// Table and key of what may be an entry; `None` when it cannot be one. Any payload may be given.
pub(crate) fn key_at(pile: &Pile, glance: &Glance<'_>) -> Option<(u16, Vec<u8>)> {
    let mut buf = ReadBuf::new();
    if !glance.copy(0, &mut buf) {
        return None;
    }
    let payload = buf.payload().to_vec();
    let word = |at: usize| {
        let bytes = payload.get(8 * at..).unwrap_or_default();
        bytes.iter().take(8).rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
    };
    let flags = Flags::of(word(NEWER));
    let (length, table, prefix) = parse_prefix(word(flags.image_at()));
    let from = 8 * flags.image_at() + prefix;
    if let Some(key) = payload.get(from..from + length) {
        return Some((table, key.to_vec()));
    }
    if !flags.is_split() {
        return None;
    }
    let rest = Pointer::from_bits(word(flags.rest_at()))?;
    Some((table, pile.read(rest, &mut buf).ok()?.get(..length)?.to_vec()))
}

/// The key and the value of the entry at a place that is known to hold one. Under the lock.
pub(crate) fn contents(pile: &IndexedPile, id: Id, buf: &mut ReadBuf) -> Option<(Vec<u8>, Vec<u8>)> {
    let entry = Entry::at(pile, id);
    let (length, _, prefix) = entry.prefix();
    let mut inline = entry.inline_bytes();
    let Some((pointer, _)) = entry.rest() else {
        let value = (prefix + length <= inline.len()).then(|| inline.split_off(prefix + length))?;
        return Some((inline.split_off(prefix), value));
    };
    let key = (prefix <= inline.len()).then(|| inline.split_off(prefix))?;
    let rest = pile.read(pointer, buf).ok()?;
    if key.len() == length {
        return Some((key, rest.to_vec()));
    }
    let (key, value) = rest.split_at_checked(length)?;
    Some((key.to_vec(), value.to_vec()))
}

/// Whether the value of the entry at a place that is known to hold one is these bytes. Under the lock, and where it is
/// long without a copy.
pub(crate) fn has_value(pile: &IndexedPile, id: Id, bytes: &[u8]) -> bool {
    let entry = Entry::at(pile, id);
    let (length, _, prefix) = entry.prefix();
    let inline = entry.inline_bytes();
    let Some((pointer, _)) = entry.rest() else { return inline.get(prefix + length..) == Some(bytes) };
    // The key stands in front of the value, unless all of it stands here.
    let skip = if prefix + length == inline.len() { 0 } else { length };
    pile.ends_in(pointer, skip, bytes).unwrap_or(false)
}
