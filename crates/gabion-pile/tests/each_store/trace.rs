//! Each change that this process makes to files that it has mapped, in order.
//!
//! Mapped pages are kept unwritable. A store to one is a fault: the page is copied and opened, the processor is told to
//! trap after one instruction, and then what differs is noted and the page closed again. So nothing that is tested
//! knows of it, and no store is missed, whoever makes it.

use std::cell::UnsafeCell;
use std::fs::File;
use std::mem::{self, MaybeUninit};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};
use std::sync::{LazyLock, Mutex, Once, PoisonError};

use gabion_blocks::os::{Disk, TwinDisk};

/// One change of a file.
#[derive(Clone, Copy)]
pub enum Change {
    /// What an instruction wrote at an offset: from the first byte that differs to the last one.
    Store { at: u64, len: usize, bytes: [u8; MOST] },
    /// It has another length.
    Length(u64),
    /// A part of it reads as zero.
    Zeros { from: u64, bytes: u64 },
}

/// The most that one instruction writes.
const MOST: usize = 64;
const PAGE: usize = 4096;
/// How many changes a recording has room for, of which nothing is touched before it is used: a fault is no place to ask
/// for memory.
const ROOM: usize = 1 << 21;
/// Pages that one instruction may write to.
const OPEN: usize = 4;
const TRAP_FLAG: i64 = 0x100;

/// Pages of a file.
#[derive(Clone, Copy)]
struct Range {
    start: usize,
    bytes: usize,
    from: u64,
}

struct Recording {
    changes: Vec<Change>,
    ranges: Vec<Range>,
    /// Pages that the instruction under way may write to: their addresses, and what was there before.
    open: Vec<(usize, [u8; PAGE])>,
    opened: usize,
    full: bool,
}

impl Recording {
    fn note(&mut self, change: Change) {
        self.full |= self.changes.len() == ROOM;
        if !self.full {
            self.changes.push(change);
        }
    }

    /// Opens the page of an address, for one instruction; false where it is no file's.
    fn open(&mut self, address: usize) -> bool {
        let inside = |range: &Range| (range.start..range.start + range.bytes).contains(&address);
        if self.opened == OPEN || !self.ranges.iter().any(inside) {
            return false;
        }
        let page = address & !(PAGE - 1);
        let (at, before) = &mut self.open[self.opened];
        *at = page;
        // SAFETY: a mapped page, which nobody writes to: it is closed, and the thread that would is the one that is
        // here.
        unsafe { before.as_mut_ptr().copy_from_nonoverlapping(page as *const u8, PAGE) };
        self.opened += 1;
        set_writable(page, PAGE, true);
        true
    }

    /// Notes what the instruction wrote, and closes the pages.
    fn close(&mut self) {
        for index in 0..mem::take(&mut self.opened) {
            let (page, before) = &self.open[index];
            let page = *page;
            // SAFETY: as in `open`.
            let now = unsafe { &*(page as *const [u8; PAGE]) };
            let differs = |at: &usize| now[*at] != before[*at];
            if let (Some(first), Some(last)) = ((0..PAGE).find(differs), (0..PAGE).rev().find(differs)) {
                let (mut bytes, written) = ([0; MOST], &now[first..=last]);
                bytes[..written.len()].copy_from_slice(written);
                let range = self.ranges.iter().find(|range| (range.start..range.start + range.bytes).contains(&page));
                let at = range.map_or(0, |range| range.from + (page - range.start + first) as u64);
                self.note(Change::Store { at, len: written.len(), bytes });
            }
            set_writable(page, PAGE, false);
        }
    }
}

fn set_writable(at: usize, bytes: usize, writable: bool) {
    let prot = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    // SAFETY: pages that were mapped for the file, which Rust knows as atomics only.
    let result = unsafe { libc::mprotect(at as *mut libc::c_void, bytes, prot) };
    assert_eq!(result, 0, "mprotect");
}

/// The recording under way, or null. Its thread is the only one that uses it. `SeqCst`, throughout: also its handlers
/// of signals find it, and nothing here is worth a thought about less.
static RECORDING: AtomicPtr<UnsafeCell<Recording>> = AtomicPtr::new(ptr::null_mut());

/// Has the recording do something, if there is one.
fn with<R>(act: impl FnOnce(&mut Recording) -> R) -> Option<R> {
    // SAFETY: null, or live until `record` ends; used by the one thread that records, never twice at a time: a fault is
    // none of this module's own stores, which go to no file.
    unsafe { RECORDING.load(SeqCst).as_ref() }.map(|recording| act(unsafe { &mut *recording.get() }))
}

/// Sets or clears the flag that has the processor trap after the next instruction.
///
/// # Safety
/// What a handler of signals was given.
unsafe fn step(context: *mut libc::c_void, one: bool) {
    // SAFETY: the caller's duty.
    let flags = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_EFL as usize] };
    *flags = if one { *flags | TRAP_FLAG } else { *flags & !TRAP_FLAG };
}

extern "C" fn on_fault(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: what the system gives to a handler.
    unsafe {
        let address = (*info).si_addr() as usize;
        if with(|recording| recording.open(address)) == Some(true) {
            step(context, true);
        } else {
            // Somebody's bug: the instruction is run again, and ends the process.
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        }
    }
}

extern "C" fn on_trap(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    with(Recording::close);
    // SAFETY: what the system gives to a handler.
    unsafe { step(context, false) };
}

fn listen() {
    type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    for (signal, handler) in [(libc::SIGSEGV, on_fault as Handler), (libc::SIGTRAP, on_trap)] {
        // SAFETY: zeros are an empty set of signals; the handlers call nothing but `mprotect`, and take no memory.
        let result = unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(signal, &raw const action, ptr::null_mut())
        };
        assert_eq!(result, 0, "sigaction");
    }
}

/// Runs `work`, on this thread, with a door to files that takes note. Returns what it returns, and all changes.
pub fn record<R>(work: impl FnOnce(&'static dyn Disk) -> R) -> (R, Vec<Change>) {
    static ONE: Mutex<()> = Mutex::new(());
    static LISTENING: Once = Once::new();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    LISTENING.call_once(listen);
    let recording = Recording {
        changes: Vec::with_capacity(ROOM),
        ranges: Vec::with_capacity(1024),
        open: vec![(0, [0; PAGE]); OPEN],
        opened: 0,
        full: false,
    };
    let recording = Box::into_raw(Box::new(UnsafeCell::new(recording)));
    RECORDING.store(recording, SeqCst);
    let result = work(&Noting);
    RECORDING.store(ptr::null_mut(), SeqCst);
    // SAFETY: from `into_raw` above, and nobody knows it any more.
    let recording = unsafe { Box::from_raw(recording) }.into_inner();
    assert!(!recording.full, "more than {ROOM} changes");
    assert!(recording.ranges.is_empty(), "a file that was mapped is mapped still");
    (result, recording.changes)
}

/// How many changes there are so far.
pub fn so_far() -> usize {
    with(|recording| recording.changes.len()).unwrap_or(0)
}

/// The real door to files, but that what goes through is noted.
#[derive(Debug)]
struct Noting;

static REAL: LazyLock<TwinDisk> = LazyLock::new(TwinDisk::new);

// SAFETY: every promise is kept by the real system, to which each call is passed on.
unsafe impl Disk for Noting {
    fn lock(&self, file: &File, alone: bool) -> Result<(), i32> {
        REAL.lock(file, alone)
    }

    fn unlock(&self, file: &File) {
        REAL.unlock(file);
    }

    fn reopen(&self, file: &File) {
        REAL.reopen(file);
    }

    fn allocate(&self, file: &File, from: u64, bytes: u64, length: u64) -> Result<(), i32> {
        let before = file.metadata().unwrap().len();
        REAL.allocate(file, from, bytes, length)?;
        let after = file.metadata().unwrap().len();
        if after != before {
            with(|recording| recording.note(Change::Length(after)));
        }
        Ok(())
    }

    fn cut(&self, file: &File, length: u64) {
        REAL.cut(file, length);
        with(|recording| recording.note(Change::Length(length)));
    }

    fn write(&self, _: &File, _: &[u8], _: u64) -> Result<(), i32> {
        unreachable!("a file that is mapped is written to by stores")
    }

    fn punch(&self, file: &File, from: u64, bytes: u64) -> bool {
        let done = REAL.punch(file, from, bytes);
        if done {
            with(|recording| recording.note(Change::Zeros { from, bytes }));
        }
        done
    }

    fn reserve(&self, bytes: usize) -> Result<NonNull<u8>, i32> {
        REAL.reserve(bytes)
    }

    unsafe fn map(&self, at: NonNull<u8>, bytes: usize, file: &File, from: u64, shared: bool) -> Result<(), i32> {
        // SAFETY: the caller's duty, passed on.
        unsafe { REAL.map(at, bytes, file, from, shared)? };
        if shared {
            let start = at.addr().get();
            with(|recording| recording.ranges.push(Range { start, bytes, from }));
            set_writable(start, bytes, false);
        }
        Ok(())
    }

    unsafe fn blank(&self, at: NonNull<u8>, bytes: usize) -> Result<(), i32> {
        // SAFETY: the caller's duty, passed on.
        unsafe { REAL.blank(at, bytes) }
    }

    unsafe fn sync(&self, at: NonNull<u8>, bytes: usize) -> Result<(), i32> {
        // SAFETY: the caller's duty, passed on.
        unsafe { REAL.sync(at, bytes) }
    }

    unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize) {
        let gone = at.addr().get()..at.addr().get() + bytes;
        with(|recording| recording.ranges.retain(|range| !gone.contains(&range.start)));
        // SAFETY: the caller's duty, passed on.
        unsafe { REAL.unmap(at, bytes) };
    }
}
