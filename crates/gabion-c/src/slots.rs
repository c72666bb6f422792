//! Slots for C: `gabion_slots_*`.

use std::alloc::Layout;
use std::ffi::{c_char, c_void};
use std::ptr::{self, NonNull};

use gabion_blocks::{BLOCK_BYTES, Pool, inside, try_box};
use gabion_slots::{Affinity, AffinitySettings, AffinityStats, Slots};
use once_cell::race::OnceBox;

use crate::handle::{Handle, Held, Kind};
use crate::status::{Failure, Status, call, value};
use crate::text;

static KIND: Kind = Kind(*b"gabslots");

impl Held for Slots {
    const KIND: &'static Kind = &KIND;
    const NAME: &str = "slots";
    const GIVEN_BY: &str = "gabion_slots_new or gabion_slots_global";
}

/// What C calls `gabion_slots`.
pub type SlotsHandle = Handle<Slots>;

/// The affinities that every slots has, by their names in C.
pub const AFFINITIES: [(&str, Affinity); 4] = [
    ("GABION_OBJECTS", Affinity::OBJECTS),
    ("GABION_DATA", Affinity::DATA),
    ("GABION_NODES", Affinity::NODES),
    ("GABION_PHYSICS", Affinity::PHYSICS),
];

/// Stands for every affinity where figures are asked for: `GABION_ALL_AFFINITIES`.
pub const ALL_AFFINITIES: u32 = u32::MAX;

/// Stands for the lack of a limit: `GABION_NO_LIMIT`.
pub const NO_LIMIT: u64 = u64::MAX;

/// What is longer lies in no slot.
const LARGEST_SLOT: usize = Slots::MOST_SLOT_BYTES;

/// What C calls `gabion_slots_figures`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the header says what each is")]
pub struct SlotsFigures {
    pub live_objects: u64,
    pub live_bytes: u64,
    pub peak_bytes: u64,
    pub free_bytes: u64,
    pub wasted_bytes: u64,
    pub blocks: u64,
    pub large_objects: u64,
    pub large_bytes: u64,
    pub mapped_bytes: u64,
    pub late_double_frees: u64,
}

impl From<&AffinityStats> for SlotsFigures {
    fn from(stats: &AffinityStats) -> Self {
        Self {
            live_objects: stats.live_objects,
            live_bytes: stats.live_bytes,
            peak_bytes: stats.peak_bytes,
            free_bytes: stats.free_bytes,
            wasted_bytes: stats.wasted_bytes,
            blocks: stats.blocks,
            large_objects: stats.large_objects,
            large_bytes: stats.large_bytes,
            mapped_bytes: stats.mapped_bytes,
            late_double_frees: stats.late_double_frees,
        }
    }
}

/// The affinity with this index, if there can be one.
#[inline(always)]
fn kind(index: u32) -> Option<Affinity> {
    u8::try_from(index).ok().map(Affinity::from_index)
}

/// The layout of that many bytes with the affinity's own alignment, if a slot serves it.
#[inline(always)]
fn small(size: usize) -> Option<Layout> {
    if size <= LARGEST_SLOT { Layout::from_size_align(size, 1).ok() } else { None }
}

#[inline]
fn affinity(index: u32) -> Result<Affinity, Failure> {
    kind(index).ok_or_else(|| no_affinity(index))
}

#[cold]
fn no_affinity(index: u32) -> Failure {
    Failure::new(Status::BAD_ARGUMENT, format_args!("there is no affinity {index}: make it with gabion_slots_affinity"))
}

/// A request's layout; alignment 0 is the affinity's own.
#[inline]
fn layout(size: usize, alignment: usize) -> Result<Layout, Failure> {
    Layout::from_size_align(size, alignment.max(1)).map_err(|_| no_layout(size, alignment))
}

#[cold]
fn no_layout(size: usize, alignment: usize) -> Failure {
    if alignment <= 1 || alignment.is_power_of_two() && alignment <= BLOCK_BYTES {
        return Failure::new(
            Status::LIMIT,
            format_args!("{size} bytes were asked for: no object is longer than half of the address space"),
        );
    }
    Failure::new(
        Status::BAD_ARGUMENT,
        format_args!("an alignment of {alignment} was asked for: it is 0 or a power of two up to 4 MiB"),
    )
}

fn settings(alignment: usize, max_blocks: u64) -> AffinitySettings {
    let mut settings = AffinitySettings::default();
    if alignment > 0 {
        settings.alignment = alignment;
    }
    settings.max_blocks = (max_blocks != NO_LIMIT).then(|| usize::try_from(max_blocks).unwrap_or(usize::MAX));
    settings
}

/// Makes slots of the caller's own.
///
/// # Safety
/// `out` is null or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_new(out: *mut *mut SlotsHandle) -> Status {
    call(|| {
        text::check(out, "out")?;
        let handle = Handle::give(Slots::new(Pool::global())?);
        // SAFETY: looked at above, and room for a pointer (caller's duty).
        unsafe { text::write(out, handle, "out") }
    })
}

/// The slots of the process, once somebody has asked for them.
static GLOBAL: OnceBox<SlotsHandle> = OnceBox::new();

/// The slots of the process.
#[unsafe(no_mangle)]
pub extern "C" fn gabion_slots_global() -> *mut SlotsHandle {
    value(ptr::null_mut(), || {
        let make = || {
            let _inside = inside::enter();
            Ok::<_, Failure>(try_box(Handle::new(Slots::try_global()?.clone()))?)
        };
        Ok(ptr::from_ref(GLOBAL.get_or_try_init(make)?).cast_mut())
    })
}

/// Deletes slots.
///
/// # Safety
/// Null or a handle that nobody uses any more, nor anything in these slots.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_delete(slots: *mut SlotsHandle) -> Status {
    call(|| {
        // Not asked for: what gives memory back must need none.
        if GLOBAL.get().is_some_and(|global| ptr::eq(global, slots)) {
            return Err(Failure::argument("the slots of the process are never deleted"));
        }
        // SAFETY: the caller's duty is the same.
        unsafe { Handle::take(slots) }.map(drop)
    })
}

/// Makes or finds an affinity.
///
/// # Safety
/// `slots` is a handle, `name` a string, `out` room for a number, or any of them null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_affinity(
    slots: *mut SlotsHandle,
    name: *const c_char,
    alignment: usize,
    max_blocks: u64,
    out: *mut u32,
) -> Status {
    call(|| {
        text::check(out, "out")?;
        // SAFETY: the caller's duties are the same.
        let (slots, name) = unsafe { (Handle::look(slots)?, text::string(name)?) };
        let made = slots.affinity(name, settings(alignment, max_blocks))?;
        // SAFETY: room for a number (caller's duty).
        unsafe { text::write(out, u32::from(made.index()), "out") }
    })
}

/// Tells an affinity its alignment and budget.
///
/// # Safety
/// `slots` is a handle or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_configure(
    slots: *mut SlotsHandle,
    index: u32,
    alignment: usize,
    max_blocks: u64,
) -> Status {
    call(|| {
        // SAFETY: the caller's duty is the same.
        let slots = unsafe { Handle::look(slots) }?;
        Ok(slots.configure(affinity(index)?, settings(alignment, max_blocks))?)
    })
}

/// An affinity's alignment and budget.
///
/// # Safety
/// `slots` is a handle, `alignment` and `max_blocks` room for a number, or any of them null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_settings(
    slots: *const SlotsHandle,
    index: u32,
    alignment: *mut usize,
    max_blocks: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: the caller's duty is the same.
        let settings = unsafe { Handle::look(slots) }?.settings(affinity(index)?)?;
        let most = settings.max_blocks.map_or(NO_LIMIT, |blocks| blocks as u64);
        if !alignment.is_null() {
            // SAFETY: room for a number (caller's duty).
            unsafe { text::write(alignment, settings.alignment, "alignment") }?;
        }
        if !max_blocks.is_null() {
            // SAFETY: room for a number (caller's duty).
            unsafe { text::write(max_blocks, most, "max_blocks") }?;
        }
        Ok(())
    })
}

/// Allocates.
///
/// # Safety
/// `slots` is a handle, `out` room for a pointer, or either of them null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_alloc(
    slots: *mut SlotsHandle,
    index: u32,
    size: usize,
    alignment: usize,
    out: *mut *mut c_void,
) -> Status {
    // First what cannot fail or panic, so that nothing is set up for that.
    // SAFETY: the caller's duty is the same.
    if let (Some(slots), Some(affinity)) = (unsafe { Handle::at_hand(slots) }, kind(index))
        && alignment == 0
        && !out.is_null()
        && let Some(layout) = small(size)
        && let Some(at) = slots.alloc_at_hand(affinity, layout)
    {
        // SAFETY: not null, and room for a pointer (caller's duty).
        unsafe { out.write_unaligned(at.as_ptr().cast()) };
        return Status::OK;
    }
    // SAFETY: the caller's duty is the same.
    unsafe { alloc_further(slots, index, size, alignment, out) }
}

/// What [`gabion_slots_alloc`] ends with where the next slot is not at hand.
#[inline(never)]
unsafe extern "C" fn alloc_further(
    slots: *mut SlotsHandle,
    index: u32,
    size: usize,
    alignment: usize,
    out: *mut *mut c_void,
) -> Status {
    call(|| {
        text::check(out, "out")?;
        // SAFETY: the caller's duty is the same.
        let at = unsafe { Handle::look(slots) }?.alloc(affinity(index)?, layout(size, alignment)?)?;
        // SAFETY: room for a pointer (caller's duty).
        unsafe { text::write(out, at.as_ptr().cast(), "out") }
    })
}

/// Allocates memory that reads as zero.
///
/// # Safety
/// As [`gabion_slots_alloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_alloc_zeroed(
    slots: *mut SlotsHandle,
    index: u32,
    size: usize,
    alignment: usize,
    out: *mut *mut c_void,
) -> Status {
    call(|| {
        text::check(out, "out")?;
        // SAFETY: the caller's duty is the same.
        let slots = unsafe { Handle::look(slots) }?;
        let at = slots.alloc_zeroed(affinity(index)?, layout(size, alignment)?)?;
        // SAFETY: room for a pointer (caller's duty).
        unsafe { text::write(out, at.as_ptr().cast(), "out") }
    })
}

/// Gives an object another size.
///
/// # Safety
/// As [`gabion_slots_alloc`], and `object` is null or a live object of these slots and this affinity, which nobody else
/// uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_realloc(
    slots: *mut SlotsHandle,
    index: u32,
    object: *mut c_void,
    size: usize,
    alignment: usize,
    out: *mut *mut c_void,
) -> Status {
    call(|| {
        text::check(out, "out")?;
        // SAFETY: the caller's duty is the same.
        let slots = unsafe { Handle::look(slots) }?;
        let (affinity, new) = (affinity(index)?, layout(size, alignment)?);
        let at = match NonNull::new(object.cast::<u8>()) {
            None => slots.alloc(affinity, new)?,
            // SAFETY: the caller's duty.
            Some(old) => unsafe { slots.realloc_unsized(affinity, old, new) }?,
        };
        // SAFETY: room for a pointer (caller's duty).
        unsafe { text::write(out, at.as_ptr().cast(), "out") }
    })
}

/// Frees an object.
///
/// # Safety
/// `slots` is a handle or null; `object` is null, or an object of these slots that nobody uses any more and that has
/// not been freed since.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_free(slots: *mut SlotsHandle, object: *mut c_void) -> Status {
    // As in `gabion_slots_alloc`.
    // SAFETY: the caller's duty is the same, here and below.
    if let (Some(slots), Some(at)) = (unsafe { Handle::at_hand(slots) }, NonNull::new(object.cast()))
        // SAFETY: as above.
        && unsafe { slots.free_at_hand(at) }
    {
        return Status::OK;
    }
    // SAFETY: as above.
    unsafe { free_further(slots, object) }
}

/// What [`gabion_slots_free`] ends with where it is more than a slot of this thread.
#[inline(never)]
unsafe extern "C" fn free_further(slots: *mut SlotsHandle, object: *mut c_void) -> Status {
    call(|| {
        // SAFETY: the caller's duty is the same.
        let slots = unsafe { Handle::look(slots) }?;
        match NonNull::new(object.cast()) {
            // SAFETY: the caller's duty is the same.
            Some(at) => Ok(unsafe { slots.free(at) }?),
            None => Ok(()),
        }
    })
}

/// Frees an object of known affinity, size and alignment.
///
/// # Safety
/// As [`gabion_slots_free`], and the object was asked for with the same numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_free_sized(
    slots: *mut SlotsHandle,
    index: u32,
    object: *mut c_void,
    size: usize,
    alignment: usize,
) -> Status {
    // As in `gabion_slots_alloc`.
    // SAFETY: the caller's duty is the same, here and below.
    if let (Some(slots), Some(at)) = (unsafe { Handle::at_hand(slots) }, NonNull::new(object.cast()))
        && alignment == 0
        && let Some(layout) = small(size)
        // SAFETY: as above.
        && unsafe { slots.free_sized_at_hand(at, layout) }
    {
        return Status::OK;
    }
    // SAFETY: as above.
    unsafe { free_sized_further(slots, index, object, size, alignment) }
}

/// What [`gabion_slots_free_sized`] ends with where it is more than a slot of this thread.
#[inline(never)]
unsafe extern "C" fn free_sized_further(
    slots: *mut SlotsHandle,
    index: u32,
    object: *mut c_void,
    size: usize,
    alignment: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's duty is the same.
        let slots = unsafe { Handle::look(slots) }?;
        let Some(at) = NonNull::new(object.cast()) else { return Ok(()) };
        // SAFETY: the caller's duty is the same.
        Ok(unsafe { slots.free_sized(affinity(index)?, at, layout(size, alignment)?) }?)
    })
}

/// The room that an object has.
///
/// # Safety
/// `slots` is a handle or null; `object` is null or a live object of these slots.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_usable_size(slots: *const SlotsHandle, object: *const c_void) -> usize {
    value(0, || {
        // SAFETY: the caller's duty is the same.
        let slots = unsafe { Handle::look(slots) }?;
        match NonNull::new(object.cast_mut().cast::<u8>()) {
            // SAFETY: owned by these slots, and live (caller's duty).
            Some(at) if slots.owns(at.as_ptr()) => Ok(unsafe { slots.usable_size(at) }),
            Some(_) => Err(gabion_slots::FreeError::Foreign.into()),
            None => Ok(0),
        }
    })
}

/// Whether an address lies in memory of these slots.
///
/// # Safety
/// `slots` is a handle or null. The address may be any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_owns(slots: *const SlotsHandle, address: *const c_void) -> bool {
    // SAFETY: the caller's duty is the same.
    value(false, || Ok(unsafe { Handle::look(slots) }?.owns(address.cast())))
}

/// Frees everything of one affinity.
///
/// # Safety
/// `slots` is a handle or null; nobody uses anything of this affinity any more, in any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_release(slots: *mut SlotsHandle, index: u32, bytes: *mut u64) -> Status {
    call(|| {
        // SAFETY: the caller's duty is the same.
        let slots = unsafe { Handle::look(slots) }?;
        let affinity = affinity(index)?;
        if affinity.index() as usize >= slots.affinity_count() {
            return Err(no_affinity(index));
        }
        // SAFETY: the caller's duty is the same.
        let released = unsafe { slots.release(affinity) };
        // SAFETY: null or room for a number (caller's duty).
        if bytes.is_null() { Ok(()) } else { unsafe { text::write(bytes, released, "bytes") } }
    })
}

/// Sends this thread's frees of other threads' objects on their way.
///
/// # Safety
/// `slots` is a handle or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_flush(slots: *mut SlotsHandle) -> Status {
    call(|| {
        // SAFETY: the caller's duty is the same.
        unsafe { Handle::look(slots) }?.flush();
        Ok(())
    })
}

/// Gives empty blocks back.
///
/// # Safety
/// `slots` is a handle or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_trim(slots: *mut SlotsHandle) -> u64 {
    // SAFETY: the caller's duty is the same.
    value(0, || Ok(unsafe { Handle::look(slots) }?.trim()))
}

/// How many affinities there are.
///
/// # Safety
/// `slots` is a handle or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_affinities(slots: *const SlotsHandle) -> u32 {
    // SAFETY: the caller's duty is the same.
    value(0, || Ok(unsafe { Handle::look(slots) }?.affinity_count() as u32))
}

/// An affinity's name.
///
/// # Safety
/// `slots` is a handle, `buffer` has room for `capacity` bytes, `needed` for a number, or any of them null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_affinity_name(
    slots: *const SlotsHandle,
    index: u32,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's duty is the same.
        let slots = unsafe { Handle::look(slots) }?;
        let name = affinity(index)?;
        let name = slots.affinity_name(name).ok_or_else(|| no_affinity(index))?;
        // SAFETY: the caller's duty is the same.
        unsafe { text::print(&name, buffer, capacity, needed) }
    })
}

/// The figures of one affinity, or of all together.
///
/// # Safety
/// `slots` is a handle, `out` room for figures, or either of them null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_stats(slots: *const SlotsHandle, index: u32, out: *mut SlotsFigures) -> Status {
    call(|| {
        // SAFETY: the caller's duty is the same.
        let stats = unsafe { Handle::look(slots) }?.stats();
        let figures = if index == ALL_AFFINITIES {
            SlotsFigures::from(&stats.total())
        } else {
            stats.affinities.get(index as usize).map(SlotsFigures::from).ok_or_else(|| no_affinity(index))?
        };
        // SAFETY: the caller's duty is the same.
        unsafe { text::write(out, figures, "out") }
    })
}

/// The figures as text.
///
/// # Safety
/// As [`gabion_slots_affinity_name`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_report(
    slots: *const SlotsHandle,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's duties are the same.
        unsafe { text::print(&Handle::look(slots)?.report(), buffer, capacity, needed) }
    })
}

/// Checks the books.
///
/// # Safety
/// `slots` is a handle or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_slots_validate(slots: *const SlotsHandle) -> Status {
    call(|| {
        // SAFETY: the caller's duty is the same.
        let checked = unsafe { Handle::look(slots) }?.validate();
        checked.map_err(|error| Failure::new(Status::INVALID, format_args!("{error}")))
    })
}
