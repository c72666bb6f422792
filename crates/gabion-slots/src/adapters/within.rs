//! One affinity as an allocator for collections.

use std::alloc::Layout;
use std::ptr::{self, NonNull};

use allocator_api2::alloc::{AllocError, Allocator};

use super::fault::expect_freed;
use crate::{Affinity, Slots};

/// One affinity of some [`Slots`], as the `Allocator` of the crate `allocator-api2`: its `Vec` and `Box` take it, and
/// so does `hashbrown`. Made by [`Slots::within`]; two words, copied freely.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use gabion_slots::{Affinity, Slots};
///
/// let slots = Slots::new(gabion_blocks::Pool::global())?;
/// let mut edges = Vec::new_in(slots.within(Affinity::DATA));
/// edges.extend(0..1000_u32);
/// assert_eq!(edges.iter().sum::<u32>(), 499_500);
/// # Ok::<(), gabion_slots::SlotsError>(())
/// ```
///
/// An allocation costs what [`Slots::alloc`] does. Zero bytes take no slot. What the slots refuse is an `AllocError`;
/// collections take it as "out of memory".
#[derive(Clone, Copy, Debug)]
pub struct Within<'s> {
    slots: &'s Slots,
    affinity: Affinity,
}

impl Slots {
    /// These slots, for objects of one affinity, behind the `Allocator` of `allocator-api2`. Costs nothing.
    #[inline]
    pub fn within(&self, affinity: Affinity) -> Within<'_> {
        Within { slots: self, affinity }
    }
}

impl<'s> Within<'s> {
    /// The slots that it takes from.
    #[inline]
    pub fn slots(&self) -> &'s Slots {
        self.slots
    }

    /// The affinity that it asks for.
    #[inline]
    pub fn affinity(&self) -> Affinity {
        self.affinity
    }

    /// # Safety
    /// As [`Allocator::grow`], and [`Allocator::shrink`] when `new` is not larger than `old`.
    #[inline]
    unsafe fn resize(&self, ptr: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if old.size() == 0 {
            return self.allocate(new);
        }
        if new.size() == 0 {
            // SAFETY: the caller's duty: allocated here with `old`, and not used again.
            unsafe { self.deallocate(ptr, old) };
            return Ok(nothing(new));
        }
        // SAFETY: the caller's duty is the same, and both sizes are more than 0.
        let moved = unsafe { self.slots.realloc(self.affinity, ptr, old, new) };
        Ok(NonNull::slice_from_raw_parts(moved.map_err(|_| AllocError)?, new.size()))
    }
}

/// One affinity of [`Slots::global`] as an allocator that takes no room itself, so that a `Box` with it is one word.
/// The affinity is given by its index.
///
/// ```
/// use allocator_api2::boxed::Box;
/// use gabion_slots::{Affinity, WithinGlobal};
///
/// type InNodes = WithinGlobal<{ Affinity::NODES.index() }>;
/// struct Node {
///     child: Option<Box<Node, InNodes>>,
/// }
/// let leaf = Box::new_in(Node { child: None }, InNodes::default());
/// let root = Box::new_in(Node { child: Some(leaf) }, InNodes::default());
/// assert!(root.child.is_some() && size_of::<Node>() == 8);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct WithinGlobal<const AFFINITY: u8>;

impl<const AFFINITY: u8> WithinGlobal<AFFINITY> {
    /// An error where there is no memory for the slots of the process: then nothing was allocated here either.
    #[inline]
    fn within() -> Result<Within<'static>, AllocError> {
        let slots = Slots::try_global().map_err(|_| AllocError)?;
        Ok(slots.within(Affinity::from_index(AFFINITY)))
    }
}

/// One affinity of some [`Slots`], and a handle of them: as [`Within`], but it borrows nothing, and what is made with
/// it keeps the slots alive. So a struct may own slots together with what lies in them. Made by
/// [`Slots::within_owned`].
///
/// ```
/// use allocator_api2::{boxed::Box, vec::Vec};
/// use gabion_slots::{Affinity, AffinitySettings, Slots, SlotsError, WithinOwned};
///
/// struct Node {
///     children: Vec<u32, WithinOwned>, // their places in `Level::nodes`
/// }
/// struct Level {
///     nodes: Vec<Node, WithinOwned>,
///     root: Box<Node, WithinOwned>,
///     slots: Slots,
/// }
///
/// fn load() -> Result<Level, SlotsError> {
///     let slots = Slots::new(gabion_blocks::Pool::global())?;
///     let nodes = slots.within_owned(slots.affinity("level", AffinitySettings::default())?);
///     let leaf = || Node { children: Vec::new_in(nodes.clone()) };
///     Ok(Level { root: Box::new_in(leaf(), nodes.clone()), nodes: Vec::new_in(nodes), slots })
/// }
/// let mut level = load()?;
/// level.root.children.extend([1, 2, 3]);
/// assert_eq!(level.slots.stats().total().live_objects, 2);
/// # Ok::<(), SlotsError>(())
/// ```
///
/// It is three words, and each clone counts the handles by an atomic step: right for what holds many objects, and for a
/// few boxes. Of many nodes each with a box of its own, [`Within`] or [`WithinGlobal`] costs less.
#[derive(Clone, Debug)]
pub struct WithinOwned {
    slots: Slots,
    affinity: Affinity,
}

impl Slots {
    /// As [`Slots::within`], with a handle of its own.
    #[inline]
    pub fn within_owned(&self, affinity: Affinity) -> WithinOwned {
        WithinOwned { slots: self.clone(), affinity }
    }
}

impl WithinOwned {
    /// The slots that it takes from.
    #[inline]
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// The affinity that it asks for.
    #[inline]
    pub fn affinity(&self) -> Affinity {
        self.affinity
    }

    /// The same, borrowed: for boxes that end before it.
    #[inline]
    pub fn within(&self) -> Within<'_> {
        self.slots.within(self.affinity)
    }
}

/// Zero bytes, at an address that is aligned and nobody's.
fn nothing(layout: Layout) -> NonNull<[u8]> {
    let at = NonNull::new(ptr::without_provenance_mut(layout.align())).expect("an alignment is not 0");
    NonNull::slice_from_raw_parts(at, 0)
}

// SAFETY: a slot stays valid and where it is until it is freed, and the slots outlive `'s`; copies ask the same slots,
// so each may free what another has allocated. `Slots::release` is unsafe exactly because it would break this.
unsafe impl Allocator for Within<'_> {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(nothing(layout));
        }
        let at = self.slots.alloc(self.affinity, layout).map_err(|_| AllocError)?;
        Ok(NonNull::slice_from_raw_parts(at, layout.size()))
    }

    #[inline]
    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(nothing(layout));
        }
        let at = self.slots.alloc_zeroed(self.affinity, layout).map_err(|_| AllocError)?;
        Ok(NonNull::slice_from_raw_parts(at, layout.size()))
    }

    #[inline]
    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: the caller's duty: allocated by these slots with this layout, and not used again.
            expect_freed(unsafe { self.slots.free_sized(self.affinity, ptr, layout) });
        }
    }

    #[inline]
    unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.resize(ptr, old, new) }
    }

    #[inline]
    unsafe fn grow_zeroed(&self, ptr: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's duty is the same.
        let grown = unsafe { self.resize(ptr, old, new) }?;
        // SAFETY: `new.size()` bytes are allocated there, of which the first `old.size()` hold what they held.
        unsafe { grown.cast::<u8>().add(old.size()).write_bytes(0, new.size() - old.size()) };
        Ok(grown)
    }

    #[inline]
    unsafe fn shrink(&self, ptr: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.resize(ptr, old, new) }
    }
}

/// Hands an allocator's calls on to the [`Within`] that `$within` makes, or gives its error.
macro_rules! as_within {
    ($self:ident => $within:expr) => {
        #[inline]
        fn allocate(&$self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            $within?.allocate(layout)
        }

        #[inline]
        fn allocate_zeroed(&$self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            $within?.allocate_zeroed(layout)
        }

        #[inline]
        unsafe fn deallocate(&$self, ptr: NonNull<u8>, layout: Layout) {
            if let Ok(within) = $within {
                // SAFETY: the caller's duty is the same.
                unsafe { within.deallocate(ptr, layout) }
            }
        }

        #[inline]
        unsafe fn grow(&$self, ptr: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
            // SAFETY: the caller's duty is the same.
            unsafe { $within?.grow(ptr, old, new) }
        }

        #[inline]
        unsafe fn grow_zeroed(&$self, ptr: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
            // SAFETY: the caller's duty is the same.
            unsafe { $within?.grow_zeroed(ptr, old, new) }
        }

        #[inline]
        unsafe fn shrink(&$self, ptr: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
            // SAFETY: the caller's duty is the same.
            unsafe { $within?.shrink(ptr, old, new) }
        }
    };
}

/// A handle of slots as an allocator, for objects of no particular kind: [`Affinity::OBJECTS`]. What is made with it
/// keeps the slots alive, and borrows nothing.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use gabion_slots::Slots;
///
/// let mut owner = Vec::new_in(Slots::new(gabion_blocks::Pool::global())?);
/// owner.extend(["no", "other", "handle", "is", "alive"]);
/// assert_eq!(owner.len(), 5);
/// # Ok::<(), gabion_slots::SlotsError>(())
/// ```
// SAFETY: a slot stays valid and where it is until it is freed or the last handle is dropped, wherever handles are
// moved; clones are handles of the same slots, so each may free what another has allocated. For the rest see `Within`.
unsafe impl Allocator for Slots {
    as_within!(self => Ok::<_, AllocError>(self.within(Affinity::OBJECTS)));
}

// SAFETY: as of `Slots`: each holds a handle.
unsafe impl Allocator for WithinOwned {
    as_within!(self => Ok::<_, AllocError>(self.within()));
}

// SAFETY: all of them are one affinity of `Slots::global`, which lives as long as the process; see `Within` for the
// rest.
unsafe impl<const AFFINITY: u8> Allocator for WithinGlobal<AFFINITY> {
    as_within!(self => Self::within());
}
