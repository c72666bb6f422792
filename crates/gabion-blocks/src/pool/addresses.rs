//! The address map: which span an address lies in, in two loads and without a lock.
//!
//! Every mapping of a pool begins at a multiple of 4 MiB. So each *granule* of 4 MiB of address space holds at most
//! one of them, from its start on, and one word says which and how far it reaches; beyond it, the granule may hold
//! anybody's memory.
//!
//! ```text
//! bit 0                                             48           60   64
//!     │ address of the span's record                 │ pages, ≤ 1024 │   0 = nothing of ours
//! ```
//!
//! A word is entered after its mapping was made and struck before it is unmapped, so an address that somebody else has
//! got from the system since is never taken for ours.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::span::Span;
use crate::BLOCK_BYTES;
use crate::os::system;

/// Bits of an address that tell user memory apart, on every system at hand.
const ADDRESS_BITS: u32 = 48;
const LEAF_BITS: u32 = 12;
const ROOTS: usize = 1 << (ADDRESS_BITS - BLOCK_BYTES.ilog2() - LEAF_BITS);
const LEAVES: usize = 1 << LEAF_BITS;
const PAGE: usize = 4096;

/// A word of the map: the record's pointer, tagged in the bits that no address uses.
struct Leaf([AtomicPtr<Span>; LEAVES]);

static ROOT: [AtomicPtr<Leaf>; ROOTS] = [const { AtomicPtr::new(ptr::null_mut()) }; ROOTS];

#[inline]
fn word(granule: usize) -> Option<&'static AtomicPtr<Span>> {
    // Acquire: pairs with the release in `leaf`, which publishes the leaf's zeros.
    let leaf = ROOT.get(granule >> LEAF_BITS)?.load(Ordering::Acquire);
    // SAFETY: only `leaf` stores here, and what it stores stays mapped for ever.
    Some(&unsafe { leaf.as_ref() }?.0[granule & (LEAVES - 1)])
}

/// The span that `at` lies in, when it is in a mapping of any pool.
///
/// Sure only for memory that stays as it is meanwhile: a live buffer's, or anybody else's.
#[inline]
pub(crate) fn find(at: *const u8) -> Option<&'static Span> {
    // Acquire: pairs with the release in `enter`; whoever finds the record sees what it stands for.
    let tagged = word(at.addr() / BLOCK_BYTES)?.load(Ordering::Acquire);
    let pages = tagged.addr() >> ADDRESS_BITS;
    if at.addr() % BLOCK_BYTES / PAGE >= pages {
        return None;
    }
    // SAFETY: a word with pages is a record's address under its tag, and records are never freed.
    unsafe { tagged.map_addr(|address| address & ((1 << ADDRESS_BITS) - 1)).as_ref() }
}

/// Enters a span that was just mapped.
///
/// # Errors
/// The system's error number when it has no memory for the map or the mapping lies beyond it; nothing is entered then.
pub(crate) fn enter(span: &'static Span) -> Result<(), i32> {
    let first = span.base().addr().get() / BLOCK_BYTES;
    let granules = span.bytes().div_ceil(BLOCK_BYTES);
    for granule in first..first + granules {
        make_leaf(granule)?;
    }
    for index in 0..granules {
        let pages = ((span.bytes() - index * BLOCK_BYTES).min(BLOCK_BYTES)) / PAGE;
        if let Some(word) = word(first + index) {
            // Release: see `find`.
            word.store(tagged(span, pages), Ordering::Release);
        }
    }
    Ok(())
}

/// Strikes the end of a span from `bytes` on, which is about to be unmapped. `bytes` is more than 0 and less than before.
pub(crate) fn shorten(span: &'static Span, bytes: usize) {
    let first = span.base().addr().get() / BLOCK_BYTES;
    for index in bytes / BLOCK_BYTES..span.bytes().div_ceil(BLOCK_BYTES) {
        let pages = bytes.saturating_sub(index * BLOCK_BYTES) / PAGE;
        if let Some(word) = word(first + index) {
            // Release: not after the unmapping that follows.
            word.store(if pages > 0 { tagged(span, pages) } else { ptr::null_mut() }, Ordering::Release);
        }
    }
}

fn tagged(span: &'static Span, pages: usize) -> *mut Span {
    ptr::from_ref(span).cast_mut().map_addr(|address| address | pages << ADDRESS_BITS)
}

/// Strikes a span that is about to be unmapped.
pub(crate) fn strike(span: &Span) {
    let first = span.base().addr().get() / BLOCK_BYTES;
    for granule in first..first + span.bytes().div_ceil(BLOCK_BYTES) {
        if let Some(word) = word(granule) {
            // Release: not after the unmapping that follows.
            word.store(ptr::null_mut(), Ordering::Release);
        }
    }
}

fn make_leaf(granule: usize) -> Result<(), i32> {
    let root = ROOT.get(granule >> LEAF_BITS).ok_or(libc::ENOMEM)?;
    if !root.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    // Zeros are null pointers: an empty leaf.
    let fresh: NonNull<Leaf> = system().map(size_of::<Leaf>(), PAGE)?.cast();
    // Release: publishes the zeros. Acquire: on failure the other's leaf is as good.
    if root.compare_exchange(ptr::null_mut(), fresh.as_ptr(), Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: mapped just above and shown to nobody.
        unsafe { system().unmap(fresh.cast(), size_of::<Leaf>()) };
    }
    Ok(())
}
