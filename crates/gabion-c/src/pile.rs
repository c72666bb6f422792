//! Piles of bytes for C: `gabion_pile_*`.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_pile::{OpenOptions, Pile, PileOptions, Pointer, with_read_buf};

use crate::handle::{Handle, Held, Kind};
use crate::status::{Failure, Status, call, call_on_file, value};
use crate::text;

static KIND: Kind = Kind(*b"gab pile");

/// A pile, as C holds it. Views keep what is behind it.
#[derive(Debug)]
pub struct Numbered {
    pile: Arc<Pile>,
    /// No other pile's, though another may come to lie at the same address.
    pub number: u64,
    read_only: bool,
}

impl Numbered {
    fn new(pile: Pile, read_only: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only that no two are the same.
        Self { pile: Arc::new(pile), number: NEXT.fetch_add(1, Ordering::Relaxed), read_only }
    }
}

impl Deref for Numbered {
    type Target = Arc<Pile>;

    #[inline(always)]
    fn deref(&self) -> &Arc<Pile> {
        &self.pile
    }
}

impl Held for Numbered {
    const KIND: &'static Kind = &KIND;
    const NAME: &str = "pile";
    const GIVEN_BY: &str = "gabion_pile_new or gabion_pile_open";
}

/// What C calls `gabion_pile`.
pub type PileHandle = Handle<Numbered>;

/// The pile behind a handle, to be read.
///
/// # Errors
/// As [`Handle::look`], and in a forked child [`Status::IN_USE`] for a pile in its parent's file.
///
/// # Safety
/// As [`Handle::look`].
#[inline]
pub(crate) unsafe fn look<'a>(handle: *const PileHandle) -> Result<&'a Numbered, Failure> {
    // SAFETY: the caller's duty is the same.
    let pile = unsafe { Handle::look(handle) }?;
    if pile.is_parted() { Err(parted()) } else { Ok(pile) }
}

/// The pile behind a handle, to be changed.
///
/// # Errors
/// As [`look`], and [`Status::FILE`] when it was opened for reading only.
///
/// # Safety
/// As [`Handle::look`].
#[inline]
unsafe fn look_to_change<'a>(handle: *const PileHandle) -> Result<&'a Numbered, Failure> {
    // SAFETY: the caller's duty is the same.
    let pile = unsafe { look(handle) }?;
    if pile.read_only { Err(unchangeable()) } else { Ok(pile) }
}

#[cold]
fn parted() -> Failure {
    let text = "this pile's file is open in the process that forked this one: here the pile can only be deleted";
    Failure::new(Status::IN_USE, format_args!("{text}"))
}

#[cold]
fn unchangeable() -> Failure {
    let text = "this pile was opened with GABION_READ_ONLY, and nothing of it can be changed";
    Failure::new(Status::FILE, format_args!("{text}"))
}

/// What C calls `gabion_pile_figures`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the header says what each is")]
pub struct PileFigures {
    pub objects: u64,
    pub used_bytes: u64,
    pub reserved_bytes: u64,
    pub overhead_bytes: u64,
    pub max_bytes: u64,
    pub blocks: u64,
    pub large_objects: u64,
}

/// Makes a pile.
///
/// # Safety
/// `out` is null or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_new(max_bytes: u64, out: *mut *mut PileHandle) -> Status {
    call(|| {
        text::check(out, "out")?;
        let options = PileOptions { max_bytes: (max_bytes > 0).then_some(max_bytes), ..PileOptions::default() };
        let handle = Handle::give(Numbered::new(Pile::with_options(options)?, false));
        // SAFETY: room for a pointer (caller's duty).
        unsafe { text::write(out, handle, "out") }
    })
}

/// What `flags` of [`gabion_pile_open`] may hold.
pub const OPENINGS: &[(&str, u32)] = &[("GABION_READ_ONLY", READ_ONLY), ("GABION_MUST_EXIST", MUST_EXIST)];
const READ_ONLY: u32 = 1;
const MUST_EXIST: u32 = 2;

/// Opens the pile in a file.
///
/// # Safety
/// `path` is null or a string, `out` is null or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_open(
    path: *const c_char,
    max_bytes: u64,
    flags: u32,
    out: *mut *mut PileHandle,
) -> Status {
    call_on_file(|| {
        text::check(out, "out")?;
        // SAFETY: the caller's duty is the same.
        let path = unsafe { path_of(path) }?;
        if flags & !(READ_ONLY | MUST_EXIST) != 0 {
            return Err(Failure::argument("flags are GABION_READ_ONLY and GABION_MUST_EXIST, or 0"));
        }
        let options = OpenOptions {
            max_bytes: (max_bytes > 0).then_some(max_bytes),
            create: flags & (READ_ONLY | MUST_EXIST) == 0,
            read_only: flags & READ_ONLY != 0,
            ..OpenOptions::default()
        };
        let handle = Handle::give(Numbered::new(Pile::open(path, &options)?, options.read_only));
        // SAFETY: room for a pointer (caller's duty).
        unsafe { text::write(out, handle, "out") }
    })
}

/// Waits until all is on the disk.
///
/// # Safety
/// Null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_flush(pile: *mut PileHandle) -> Status {
    // SAFETY: the caller's duty is the same.
    call_on_file(|| Ok(unsafe { look(pile) }?.flush()?))
}

/// Saves a pile to a file of its own.
///
/// # Safety
/// `pile` is a handle, `path` a string, or any of them null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_save(pile: *mut PileHandle, path: *const c_char) -> Status {
    // SAFETY: the caller's duties are the same.
    call_on_file(|| Ok(unsafe { look(pile)?.save(path_of(path)?) }?))
}

/// # Safety
/// Null or a string, which outlives the result.
unsafe fn path_of<'a>(path: *const c_char) -> Result<&'a Path, Failure> {
    if path.is_null() {
        return Err(Failure::argument("path is NULL"));
    }
    // SAFETY: a string that ends in a zero byte (caller's duty).
    Ok(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes())))
}

/// The pointer that was kept last, or 0.
///
/// # Safety
/// `pile` is a handle, `out` is room for a number, or any of them null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_root(pile: *const PileHandle, out: *mut u64) -> Status {
    call(|| {
        // SAFETY: the caller's duties are the same.
        unsafe { text::write(out, look(pile)?.root().map_or(0, Pointer::to_bits), "out") }
    })
}

/// A pointer by its number.
#[inline]
pub(crate) fn pointer_of(number: u64) -> Result<Pointer, Failure> {
    Pointer::from_bits(number).ok_or_else(|| Failure::no_pointer(number))
}

/// Keeps a pointer, or none.
///
/// # Safety
/// Null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_set_root(pile: *mut PileHandle, pointer: u64) -> Status {
    // SAFETY: the caller's duty is the same.
    call(|| Ok(unsafe { look_to_change(pile) }?.set_root(Pointer::from_bits(pointer))?))
}

/// Deletes a pile and all that is in it, with its last view if there are any; what lies in a file stays there.
///
/// # Safety
/// Null or a handle that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_delete(pile: *mut PileHandle) -> Status {
    // SAFETY: the caller's duty is the same.
    call_on_file(|| unsafe { Handle::take(pile) }.map(drop))
}

/// Stores bytes.
///
/// # Safety
/// `pile` is a handle, `data` has `length` bytes, `out` is room for a number, or any of them null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_put(
    pile: *mut PileHandle,
    data: *const c_void,
    length: usize,
    reserve: usize,
    out: *mut u64,
) -> Status {
    call(|| {
        text::check(out, "out")?;
        // SAFETY: the caller's duties are the same.
        let (pile, data) = unsafe { (look_to_change(pile)?, text::bytes(data.cast(), length)?) };
        let pointer = pile.put_with_reserve(data, reserve)?;
        // SAFETY: room for a number (caller's duty).
        unsafe { text::write(out, pointer.to_bits(), "out") }
    })
}

/// Copies an object out.
///
/// # Safety
/// `pile` is a handle, `buffer` has room for `capacity` bytes, `length` for a number, or any of them null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_get(
    pile: *const PileHandle,
    pointer: u64,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's duty is the same.
        let pile = unsafe { look(pile) }?;
        with_read_buf(|own| {
            let payload = pile.read(pointer_of(pointer)?, own)?;
            // SAFETY: the caller's duty is the same.
            unsafe { text::copy_out(payload, buffer.cast(), capacity, length) }
        })
    })
}

/// Copies an object out and removes it.
///
/// # Safety
/// As [`gabion_pile_get`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_pop(
    pile: *mut PileHandle,
    pointer: u64,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's duty is the same.
        let pile = unsafe { look_to_change(pile) }?;
        with_read_buf(|own| {
            let pointer = pointer_of(pointer)?;
            loop {
                let fits = text::fits(pile.read(pointer, own)?, buffer.cast(), capacity);
                // What does not fit stays. Nothing is written before it is this call's: another may pop it first.
                if !fits || pile.remove_unchanged(pointer, own)? {
                    // SAFETY: the caller's duty is the same.
                    return unsafe { text::copy_out(own.payload(), buffer.cast(), capacity, length) };
                }
            }
        })
    })
}

/// Gives an object other bytes.
///
/// # Safety
/// `pile` is a handle, `data` has `length` bytes, or either of them null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_replace(
    pile: *mut PileHandle,
    pointer: u64,
    data: *const c_void,
    length: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's duties are the same.
        let (pile, data) = unsafe { (look_to_change(pile)?, text::bytes(data.cast(), length)?) };
        Ok(pile.replace(pointer_of(pointer)?, data)?)
    })
}

/// Removes an object.
///
/// # Safety
/// `pile` is a handle or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_remove(pile: *mut PileHandle, pointer: u64) -> Status {
    // SAFETY: the caller's duty is the same.
    call(|| Ok(unsafe { look_to_change(pile) }?.remove(pointer_of(pointer)?)?))
}

/// Bytes of an object.
///
/// # Safety
/// `pile` is a handle, `out` room for a number, or either of them null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_size_of(pile: *const PileHandle, pointer: u64, out: *mut usize) -> Status {
    call(|| {
        // SAFETY: the caller's duty is the same.
        let size = unsafe { look(pile) }?.size_of(pointer_of(pointer)?)?;
        // SAFETY: the caller's duty is the same.
        unsafe { text::write(out, size, "out") }
    })
}

/// Whether a pointer is live.
///
/// # Safety
/// `pile` is a handle or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_contains(pile: *const PileHandle, pointer: u64) -> bool {
    value(false, || {
        // SAFETY: the caller's duty is the same.
        let pile = unsafe { look(pile) }?;
        Ok(Pointer::from_bits(pointer).is_some_and(|pointer| pile.contains(pointer)))
    })
}

/// Live objects.
///
/// # Safety
/// `pile` is a handle or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_len(pile: *const PileHandle) -> u64 {
    // SAFETY: the caller's duty is the same.
    value(0, || Ok(unsafe { look(pile) }?.len()))
}

/// Removes all objects.
///
/// # Safety
/// `pile` is a handle or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_clear(pile: *mut PileHandle) -> Status {
    call(|| {
        // SAFETY: the caller's duty is the same.
        unsafe { look_to_change(pile) }?.clear();
        Ok(())
    })
}

/// Gives back what is free between objects.
///
/// # Safety
/// `pile` is a handle, `out` room for a number or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_compact(pile: *mut PileHandle, out: *mut u64) -> Status {
    call(|| {
        // SAFETY: the caller's duty is the same.
        let bytes = unsafe { look_to_change(pile) }?.compact();
        if out.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's duty is the same.
        unsafe { text::write(out, bytes, "out") }
    })
}

/// Sets the pile's limit.
///
/// # Safety
/// `pile` is a handle or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_set_max_bytes(pile: *mut PileHandle, max_bytes: u64) -> Status {
    call(|| {
        // SAFETY: the caller's duty is the same.
        unsafe { look(pile) }?.set_max_bytes((max_bytes > 0).then_some(max_bytes));
        Ok(())
    })
}

/// The pile's figures.
///
/// # Safety
/// `pile` is a handle, `out` room for figures, or either of them null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_stats(pile: *const PileHandle, out: *mut PileFigures) -> Status {
    call(|| {
        // SAFETY: the caller's duty is the same.
        let stats = unsafe { look(pile) }?.stats();
        let figures = PileFigures {
            objects: stats.objects,
            used_bytes: stats.used_bytes,
            reserved_bytes: stats.reserved_bytes,
            overhead_bytes: stats.overhead_bytes,
            max_bytes: stats.max_bytes,
            blocks: stats.blocks,
            large_objects: stats.large_objects,
        };
        // SAFETY: the caller's duty is the same.
        unsafe { text::write(out, figures, "out") }
    })
}

/// Checks the books.
///
/// # Safety
/// `pile` is a handle or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_validate(pile: *const PileHandle) -> Status {
    call(|| {
        // SAFETY: the caller's duty is the same.
        let checked = unsafe { look(pile) }?.validate();
        checked.map_err(|error| Failure::new(Status::INVALID, format_args!("{error}")))
    })
}

#[cfg(test)]
mod tests {
    use std::ptr;
    use std::sync::Barrier;

    use super::*;

    /// A pile that threads share by its handle.
    #[derive(Clone, Copy)]
    struct Shared(*mut PileHandle);
    // SAFETY: any function may be called on a pile from any thread.
    unsafe impl Sync for Shared {}

    impl Shared {
        /// Pops into an empty buffer. What was written there, and the length if one was told.
        fn pop(self, pointer: u64, capacity: usize) -> (Status, Vec<u8>, usize) {
            let (mut buffer, mut length) = (vec![0; capacity], usize::MAX);
            let at = buffer.as_mut_ptr();
            // SAFETY: a live handle, room for that many bytes, and for a number.
            let status = unsafe { gabion_pile_pop(self.0, pointer, at.cast(), capacity, &raw mut length) };
            (status, buffer, length)
        }
    }

    #[test]
    fn of_two_that_pop_an_object_one_gets_it_and_the_other_s_buffer_stays_as_it_was() {
        let payload = vec![7_u8; 400_000];
        let mut pile = ptr::null_mut();
        // SAFETY: room for a pointer.
        assert_eq!(unsafe { gabion_pile_new(0, &raw mut pile) }, Status::OK);
        let (pile, start) = (Shared(pile), Barrier::new(2));
        for _ in 0..100 {
            let mut pointer = 0;
            // SAFETY: a live handle, that many bytes, and room for a number.
            let put = unsafe { gabion_pile_put(pile.0, payload.as_ptr().cast(), payload.len(), 0, &raw mut pointer) };
            assert_eq!(put, Status::OK);
            let pop = || {
                start.wait();
                pile.pop(pointer, payload.len())
            };
            let popped =
                std::thread::scope(|scope| [scope.spawn(pop), scope.spawn(pop)].map(|one| one.join().unwrap()));
            let got = popped.iter().filter(|(status, ..)| *status == Status::OK).count();
            assert_eq!(got, 1);
            for (status, buffer, length) in popped {
                let (byte, told) = if status == Status::OK { (7, payload.len()) } else { (0, usize::MAX) };
                assert!(buffer.iter().all(|&other| other == byte) && length == told, "{status:?} wrote to its caller");
            }
        }
        // SAFETY: a live handle that nobody uses any more.
        assert_eq!(unsafe { gabion_pile_delete(pile.0) }, Status::OK);
    }
}
