//! The pool for C: `gabion_rent`, `gabion_return`, `gabion_pool_*`.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::time::Duration;

use gabion_blocks::{Change, Pool, Request};

use crate::status::{Failure, Status, call, value};
use crate::text;

/// Asks for memory that reads as zero: `GABION_CLEAN`.
pub const CLEAN: u32 = 1;

/// Puts a number that C gave into a change.
type Set = fn(&mut Change, u64);

/// What can be set: its name and its number in C, and how.
pub const SETTINGS: [(&str, i32, Set); 5] = [
    ("GABION_POOL_BYTES", 0, |change, new| change.pool_bytes = Some(new)),
    ("GABION_POOL_ARENAS", 1, |change, new| change.arenas = Some(usize::try_from(new).unwrap_or(usize::MAX))),
    ("GABION_POOL_TRIM_PERIOD_MS", 2, |change, new| change.trim_period = Some(Duration::from_millis(new))),
    ("GABION_POOL_ALLOCATION_LIMIT", 3, |change, new| change.allocation_limit = Some(new)),
    ("GABION_POOL_TOTAL_LIMIT", 4, |change, new| change.total_limit = Some(new)),
];

/// What C calls `gabion_pool_figures`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the header says what each is")]
pub struct PoolFigures {
    pub in_use: u64,
    pub idle: u64,
    pub mapped: u64,
    pub peak: u64,
    pub held: u64,
    pub live: u64,
    pub requests: u64,
    pub fresh: u64,
    pub trimmed: u64,
    pub refused: u64,
}

/// Lends memory.
///
/// # Safety
/// `out` is null or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_rent(bytes: usize, flags: u32, out: *mut *mut c_void) -> Status {
    // SAFETY: the caller's duty is the same.
    call(|| unsafe { rent(bytes, flags, None, out) })
}

/// Lends memory, and waits for room.
///
/// # Safety
/// `out` is null or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_rent_wait(
    bytes: usize,
    flags: u32,
    milliseconds: u64,
    out: *mut *mut c_void,
) -> Status {
    // SAFETY: the caller's duty is the same.
    call(|| unsafe { rent(bytes, flags, Some(Duration::from_millis(milliseconds)), out) })
}

/// # Safety
/// `out` is null or room for a pointer.
#[inline]
unsafe fn rent(bytes: usize, flags: u32, timeout: Option<Duration>, out: *mut *mut c_void) -> Result<(), Failure> {
    text::check(out, "out")?;
    if flags & !CLEAN != 0 {
        return Err(Failure::argument("flags are 0 or GABION_CLEAN"));
    }
    let buffer = Pool::global().rent(&Request { bytes, clean: flags & CLEAN != 0, timeout })?;
    // SAFETY: room for a pointer (caller's duty).
    unsafe { text::write(out, buffer.into_raw().as_ptr().cast(), "out") }
}

/// Takes back what was lent.
///
/// # Safety
/// Null, or memory that was lent, is given back once, and nobody uses any more. Any other address is refused, and so is
/// memory that was given back, unless it lies in another thread's cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_return(memory: *mut c_void) -> Status {
    call(|| {
        let Some(at) = NonNull::new(memory.cast::<u8>()) else { return Ok(()) };
        let pool = Pool::global();
        if pool.lent_at(at.as_ptr()).is_none() {
            return Err(foreign(at));
        }
        // SAFETY: lent by the pool, as was just seen; the rest is the caller's duty.
        unsafe { pool.return_raw(at) };
        Ok(())
    })
}

#[cold]
fn foreign(at: NonNull<u8>) -> Failure {
    Failure::new(
        Status::FOREIGN,
        format_args!(
            "nothing that gabion_rent lent begins at {at:p}: it was returned already, is inside of something, or came from \
             elsewhere"
        ),
    )
}

/// How many bytes may be used of what was lent at an address.
#[unsafe(no_mangle)]
pub extern "C" fn gabion_rented_size(memory: *const c_void) -> usize {
    value(0, || Ok(Pool::global().lent_at(memory.cast()).unwrap_or(0)))
}

/// The pool's figures.
///
/// # Safety
/// `out` is null or room for figures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pool_stats(out: *mut PoolFigures) -> Status {
    call(|| {
        let stats = Pool::global().stats();
        let figures = PoolFigures {
            in_use: stats.in_use,
            idle: stats.idle,
            mapped: stats.mapped,
            peak: stats.peak,
            held: stats.held,
            live: stats.live,
            requests: stats.requests,
            fresh: stats.fresh,
            trimmed: stats.trimmed,
            refused: stats.refused,
        };
        // SAFETY: the caller's duty is the same.
        unsafe { text::write(out, figures, "out") }
    })
}

/// Gives idle memory back to the system.
#[unsafe(no_mangle)]
pub extern "C" fn gabion_pool_trim(all: bool) -> u64 {
    value(0, || Ok(Pool::global().trim(all)))
}

/// Changes one setting.
#[unsafe(no_mangle)]
pub extern "C" fn gabion_pool_configure(setting: i32, new: u64) -> Status {
    call(|| {
        let found = SETTINGS.iter().find(|(_, number, _)| *number == setting);
        let (.., set) = found.ok_or_else(|| Failure::argument("the setting is none of GABION_POOL_*"))?;
        let mut change = Change::default();
        set(&mut change, new);
        Ok(Pool::global().configure(&change)?)
    })
}
