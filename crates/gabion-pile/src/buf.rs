//! Room for what is read.

use std::cell::Cell;
use std::sync::{Arc, Weak};

use gabion_blocks::ending::Noted;
use gabion_blocks::{BlockError, make_room, try_box};
use gabion_heap::Loc;

use crate::large::ChargedRun;

/// Room that payloads are copied into, reused from read to read.
///
/// It grows to the longest payload read and keeps that size. Payloads over 1 MiB are not copied at all: it holds on to
/// their run, which counts in the pile's limit, until the next read or [`ReadBuf::let_go`].
#[derive(Debug)]
pub struct ReadBuf {
    pub(crate) bytes: Vec<u8>,
    pub(crate) length: usize,
    /// Where the rest of the payload is, or all of it, when it was not copied here.
    pub(crate) elsewhere: Option<Elsewhere>,
    /// Whether long payloads are left where they lie, except for their beginning.
    pub(crate) leaves: bool,
}

/// Where a payload is that was not copied.
#[derive(Debug)]
pub(crate) enum Elsewhere {
    /// All of it is in a run.
    Run(Arc<ChargedRun>),
    /// Its beginning was copied.
    Left(Left),
    /// Nowhere: there was no memory to copy it to.
    Refused(BlockError),
}

/// A long payload that was left where it lies, and the guards of it: words that have other values once it is gone or
/// another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left {
    pub payload: Loc,
    pub length: usize,
    pub guards: [(Loc, u64); 3],
}

/// Payloads from this length on may be left where they lie: those that a second copy takes longer for than a second
/// look.
pub(crate) const LONG: usize = 8 << 10;

/// How much of them is copied all the same: what says where the rest belongs.
pub(crate) const BEGINNING: usize = 1 << 10;

/// Which run a payload over 1 MiB lay in, known without holding it. No other is equal to it, even when it is gone.
#[derive(Debug, Clone)]
pub struct RunIdentity(Weak<ChargedRun>);

impl PartialEq for RunIdentity {
    fn eq(&self, other: &Self) -> bool {
        // The address is nobody else's as long as one knows of it.
        self.0.ptr_eq(&other.0)
    }
}

impl Eq for RunIdentity {}

impl ReadBuf {
    /// Bytes of the largest buffer that [`with_read_buf`] keeps for a thread: 1 MiB, which holds all that is copied at
    /// all.
    pub const MOST_KEPT: usize = 1 << 20;

    /// Bytes that may come before what a reader wants of a payload that is left where it lies: as many follow in its
    /// beginning.
    pub const MOST_BEFORE: usize = BEGINNING / 2;

    /// An empty buffer; it takes memory at the first read.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), length: 0, elsewhere: None, leaves: false }
    }

    /// The payload that was read last. After a read that failed, or [`Pile::read_brief`](crate::Pile::read_brief) that
    /// told nothing, it is of any length and content.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        match &self.elsewhere {
            Some(Elsewhere::Run(run)) => run.bytes(),
            _ => &self.bytes[..self.length],
        }
    }

    /// What refused memory to the buffer, if the last read came to nothing for that reason only; the payload is empty
    /// then. A [`Pile::read`](crate::Pile::read) returns it as an error, and this tells it where nothing is returned,
    /// as by a cache.
    pub fn refusal(&self) -> Option<BlockError> {
        match self.elsewhere {
            Some(Elsewhere::Refused(error)) => Some(error),
            _ => None,
        }
    }

    /// Bytes that the buffer keeps.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Has `read` leave long payloads where they lie, except for their first 1024 bytes:
    /// [`Pile::reading`](crate::Pile::reading) tells what it came to. [`ReadBuf::payload`] is no more than these bytes
    /// then.
    pub fn leaving<R>(&mut self, read: impl FnOnce(&mut Self) -> R) -> R {
        /// Also where a read panics: the next one wants all.
        struct Leaving<'a>(&'a mut ReadBuf);
        impl Drop for Leaving<'_> {
            fn drop(&mut self) {
                self.0.leaves = false;
            }
        }
        self.leaves = true;
        read(Leaving(self).0)
    }

    /// Ends [`ReadBuf::leaving`] for the rest of its call: from here on payloads are copied whole, because their reader
    /// looks at them before it goes on.
    pub fn leave_nothing(&mut self) {
        self.leaves = false;
    }

    /// Lets go of a run that the last read may have left here; the payload is empty then.
    #[inline]
    pub fn let_go(&mut self) {
        #[cold]
        fn let_it_go(buf: &mut ReadBuf) {
            buf.elsewhere = None;
            buf.length = 0;
        }
        if self.elsewhere.is_some() {
            let_it_go(self);
        }
    }

    /// Lets go of a run, as [`ReadBuf::let_go`] does, and returns what it is known again by; `None` where there was
    /// none, and nothing changes.
    pub fn let_go_of_run(&mut self) -> Option<RunIdentity> {
        let Some(Elsewhere::Run(run)) = &self.elsewhere else { return None };
        let run = RunIdentity(Arc::downgrade(run));
        self.let_go();
        Some(run)
    }

    /// The payload that was read last, from byte `first` on. Only for a payload that was copied, that is one of up to 1
    /// MiB: of a longer one the result is empty, or of the payload before it.
    #[inline(always)]
    pub fn copied(&self, first: usize) -> &[u8] {
        #[cold]
        fn nothing<'a>() -> &'a [u8] {
            &[]
        }
        // No `unwrap_or_default`: that is compiled without branches, which takes longer than one that is foreseen.
        self.bytes.get(first..self.length).unwrap_or_else(nothing)
    }

    /// As [`ReadBuf::take_room`], in words, of which `length` bytes take so many; `None` when there is not enough room
    /// yet, or a run to let go of.
    #[inline(always)]
    pub(crate) fn room_at_hand(&mut self, length: usize, words: usize) -> Option<&mut [[u8; 8]]> {
        if self.elsewhere.is_some() {
            return None;
        }
        let room = self.bytes.as_chunks_mut::<8>().0.get_mut(..words)?;
        self.length = length;
        Some(room)
    }

    /// Room for `length` bytes, in whole words, which become the payload read last; `None` as by [`ReadBuf::room`].
    #[inline]
    pub(crate) fn take_room(&mut self, length: usize) -> Option<&mut [u8]> {
        self.let_go();
        self.room(length)
    }

    /// As [`ReadBuf::take_room`], where there is no run to let go of. `None` when there is no memory:
    /// [`ReadBuf::refusal`] tells.
    #[inline]
    pub(crate) fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        let bytes = length.next_multiple_of(8);
        if self.bytes.len() < bytes && !self.grow(bytes) {
            return None;
        }
        self.length = length;
        Some(&mut self.bytes[..bytes])
    }

    /// A list that grows by itself ends the process where there is no memory. False then, and the payload is empty.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, bytes: usize) -> bool {
        let enough = bytes.next_power_of_two().max(1024);
        let more = enough - self.bytes.len();
        let grown = make_room(&mut self.bytes, more);
        match grown {
            Ok(()) => self.bytes.resize(enough, 0),
            Err(error) => (self.elsewhere, self.length) = (Some(Elsewhere::Refused(error)), 0),
        }
        grown.is_ok()
    }
}

impl Default for ReadBuf {
    fn default() -> Self {
        Self::new()
    }
}

/// Calls `read` with a buffer that the thread keeps from call to call, so that reading takes no memory after the first
/// time. It keeps no more than [`ReadBuf::MOST_KEPT`] bytes, and no run.
///
/// A call inside `read` has another buffer, as does a call while the thread ends.
///
/// ```
/// # let pile = gabion_pile::Pile::new()?;
/// let pointer = pile.put(b"stones")?;
/// let stones = gabion_pile::with_read_buf(|buf| pile.read(pointer, buf).map(<[u8]>::to_vec))?;
/// assert_eq!(stones, b"stones");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[inline]
pub fn with_read_buf<R>(read: impl FnOnce(&mut ReadBuf) -> R) -> R {
    // Boxed, so that a pointer is all that moves: a processor waits long for words that it has just written in other
    // pieces.
    thread_local! {
        static KEPT: Cell<Option<Box<ReadBuf>>> = const { Cell::new(None) };
        static NOTED: Noted = const { Noted::new() };
    }
    // A thread that ends has no place left, and one without memory has none yet.
    let has_place = NOTED.with(Noted::can_be_noted);
    let kept = if has_place { KEPT.try_with(Cell::take).ok().flatten() } else { None };
    let Some(mut buf) = kept.or_else(|| try_box(ReadBuf::new()).ok()) else { return read(&mut ReadBuf::new()) };
    let result = read(&mut buf);
    if has_place && buf.capacity() <= ReadBuf::MOST_KEPT {
        buf.let_go();
        let _ = KEPT.try_with(|kept| kept.set(Some(buf)));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pile;

    /// What the thread's buffer keeps now.
    fn kept() -> usize {
        with_read_buf(|buf| buf.capacity())
    }

    #[test]
    fn a_thread_keeps_its_buffer_up_to_a_size() {
        assert_eq!(kept(), 0);
        with_read_buf(|buf| buf.take_room(5000).unwrap().fill(1));
        assert_eq!(kept(), 8192);
        with_read_buf(|buf| buf.take_room(ReadBuf::MOST_KEPT + 1).unwrap().fill(1));
        assert_eq!(kept(), 0);
        let pile = Pile::new().unwrap();
        let pointer = pile.put(&vec![1; ReadBuf::MOST_KEPT]).unwrap();
        with_read_buf(|buf| assert_eq!(pile.read(pointer, buf).unwrap(), vec![1; ReadBuf::MOST_KEPT]));
        assert_eq!(kept(), ReadBuf::MOST_KEPT);
    }

    #[test]
    fn a_read_inside_another_has_a_buffer_of_its_own() {
        let pile = Pile::new().unwrap();
        let pointers = [b"outer", b"inner"].map(|payload| pile.put(payload).unwrap());
        with_read_buf(|outer| {
            pile.read(pointers[0], outer).unwrap();
            with_read_buf(|inner| assert_eq!(pile.read(pointers[1], inner).unwrap(), b"inner"));
            assert_eq!(outer.payload(), b"outer");
        });
    }

    #[test]
    fn the_buffer_of_a_thread_holds_no_run() {
        let pile = Pile::new().unwrap();
        let empty = pile.stats().reserved_bytes;
        let pointer = pile.put(&vec![1; 2 << 20]).unwrap();
        with_read_buf(|buf| pile.read(pointer, buf).map(<[u8]>::len)).unwrap();
        pile.remove(pointer).unwrap();
        assert!(pile.stats().reserved_bytes < empty + (2 << 20));
        with_read_buf(|buf| assert_eq!(buf.payload(), b""));
    }

    #[test]
    fn a_read_that_panics_leaves_the_next_one_a_buffer() {
        let panics = || with_read_buf(|_| panic!("on purpose"));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(kept(), 0);
    }
}
