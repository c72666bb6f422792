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

use std::ptr;

use super::granules::{Granules, Leaf};
use super::span::Span;
use crate::os::system;
use crate::sync::AtomicPtr;
use crate::{BLOCK_BYTES, SYSTEM_PAGE};

/// Bits of an address that tell user memory apart, on every system at hand.
const ADDRESS_BITS: u32 = 48;
const LEAF_BITS: u32 = 12;
const ROOTS: usize = 1 << (ADDRESS_BITS - BLOCK_BYTES.ilog2() - LEAF_BITS);
const LEAVES: usize = 1 << LEAF_BITS;

/// The words are records' pointers, tagged in the bits that no address uses.
static MAP: Granules<Span, ROOTS, LEAVES> = Granules::of([const { AtomicPtr::new(ptr::null_mut()) }; ROOTS]);

/// The span that `at` lies in, when it is in a mapping of any pool.
///
/// Sure only for memory that stays as it is meanwhile: a live buffer's, or anybody else's.
#[inline]
pub(crate) fn find(at: *const u8) -> Option<&'static Span> {
    let tagged = MAP.find(at.addr() / BLOCK_BYTES);
    let pages = tagged.addr() >> ADDRESS_BITS;
    if at.addr() % BLOCK_BYTES / SYSTEM_PAGE >= pages {
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
        let pages = ((span.bytes() - index * BLOCK_BYTES).min(BLOCK_BYTES)) / SYSTEM_PAGE;
        MAP.set(first + index, tagged(span, pages));
    }
    Ok(())
}

/// Strikes the end of a span from `bytes` on, which is about to be unmapped. `bytes` is more than 0 and less than
/// before.
pub(crate) fn shorten(span: &'static Span, bytes: usize) {
    let first = span.base().addr().get() / BLOCK_BYTES;
    for index in bytes / BLOCK_BYTES..span.bytes().div_ceil(BLOCK_BYTES) {
        let pages = bytes.saturating_sub(index * BLOCK_BYTES) / SYSTEM_PAGE;
        MAP.set(first + index, if pages > 0 { tagged(span, pages) } else { ptr::null_mut() });
    }
}

fn tagged(span: &'static Span, pages: usize) -> *mut Span {
    ptr::from_ref(span).cast_mut().map_addr(|address| address | pages << ADDRESS_BITS)
}

/// Strikes a span that is about to be unmapped.
pub(crate) fn strike(span: &Span) {
    let first = span.base().addr().get() / BLOCK_BYTES;
    for granule in first..first + span.bytes().div_ceil(BLOCK_BYTES) {
        MAP.set(granule, ptr::null_mut());
    }
}

fn make_leaf(granule: usize) -> Result<(), i32> {
    let bytes = size_of::<Leaf<Span, LEAVES>>();
    let fresh = || Ok(system().map(bytes, SYSTEM_PAGE)?.cast());
    // SAFETY: fresh memory reads as zero, and stays mapped; what is spare was mapped just above and shown to nobody.
    unsafe { MAP.make(granule, libc::ENOMEM, fresh, |spare| system().unmap(spare.cast(), bytes)) }
}
