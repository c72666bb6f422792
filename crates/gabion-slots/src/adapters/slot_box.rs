//! One value in a slot, owned.

use std::alloc::Layout;
use std::borrow::{Borrow, BorrowMut};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::ptr::{self, NonNull};

use allocator_api2::alloc::Allocator;

use super::fault::expect_freed;
use super::within::Within;
use crate::checked::CHECKED;
use crate::tier::is_small;
use crate::{Affinity, Slots, SlotsError};

/// A value in a slot, owned as by a `Box`: dropped, and its slot freed, with the `SlotBox`.
///
/// ```
/// use gabion_slots::{Affinity, SlotBox, Slots};
///
/// struct Node<'s> {
///     value: u64,
///     children: [Option<SlotBox<'s, Node<'s>>>; 2],
/// }
///
/// let slots = Slots::new(gabion_blocks::Pool::global())?;
/// let nodes = slots.within(Affinity::NODES);
/// let leaf = nodes.boxed(Node { value: 1, children: [None, None] })?;
/// let root = nodes.boxed(Node { value: 2, children: [Some(leaf), None] })?;
/// assert_eq!(root.value + root.children[0].as_ref().unwrap().value, 3);
/// # Ok::<(), gabion_slots::SlotsError>(())
/// ```
///
/// It borrows the slots, which therefore outlive it, and may be sent to another thread and dropped there.
pub struct SlotBox<'s, T: ?Sized> {
    at: NonNull<T>,
    slots: &'s Slots,
    _owns: PhantomData<T>,
}

// SAFETY: a `SlotBox` owns its value as a `Box` does, and slots may be freed from any thread.
unsafe impl<T: ?Sized + Send> Send for SlotBox<'_, T> {}
// SAFETY: a shared `SlotBox` gives shared references to its value and nothing else.
unsafe impl<T: ?Sized + Sync> Sync for SlotBox<'_, T> {}

// As a `Box`: what a panic may have left half changed is the value.
impl<T: ?Sized + UnwindSafe> UnwindSafe for SlotBox<'_, T> {}
impl<T: ?Sized + RefUnwindSafe> RefUnwindSafe for SlotBox<'_, T> {}

/// Makes a [`SlotBox`] of what its value is behind a reference, too: of a trait object, or of a slice where it is an
/// array. So nodes of many kinds lie in slots, without unsafe code.
///
/// ```
/// #![forbid(unsafe_code)]
/// use gabion_slots::{Affinity, SlotBox, Slots, unsize};
///
/// trait Shape {
///     fn area(&self) -> f64;
/// }
/// struct Square(f64);
/// struct Circle(f64);
/// impl Shape for Square {
///     fn area(&self) -> f64 {
///         self.0 * self.0
///     }
/// }
/// impl Shape for Circle {
///     fn area(&self) -> f64 {
///         self.0 * self.0 * 3.0
///     }
/// }
///
/// let slots = Slots::new(gabion_blocks::Pool::global())?;
/// let nodes = slots.within(Affinity::NODES);
/// let shapes: Vec<SlotBox<'_, dyn Shape>> =
///     vec![unsize!(nodes.boxed(Square(2.0))? => dyn Shape), unsize!(nodes.boxed(Circle(1.0))? => dyn Shape)];
/// assert_eq!(shapes.iter().map(|shape| shape.area()).sum::<f64>(), 7.0);
/// # Ok::<(), gabion_slots::SlotsError>(())
/// ```
///
/// What the value is not is refused by the compiler:
///
/// ```compile_fail,E0277
/// # use gabion_slots::{Affinity, Slots, unsize};
/// let slots = Slots::new(gabion_blocks::Pool::global())?;
/// let shown = unsize!(slots.within(Affinity::NODES).boxed(Some(1))? => dyn std::fmt::Display);
/// # Ok::<(), gabion_slots::SlotsError>(())
/// ```
/// ```compile_fail,E0308
/// # use gabion_slots::{Affinity, Slots, unsize};
/// let slots = Slots::new(gabion_blocks::Pool::global())?;
/// let number = unsize!(slots.within(Affinity::NODES).boxed(1_u32)? => i32);
/// # Ok::<(), gabion_slots::SlotsError>(())
/// ```
#[macro_export]
macro_rules! unsize {
    ($boxed:expr => $to:ty) => {{
        let boxed: $crate::SlotBox<'_, _> = $boxed;
        let slots = $crate::SlotBox::slots(&boxed);
        let at = $crate::SlotBox::into_raw(boxed);
        // No cast: the compiler lets a pointer become another here only where the value is of the other type, too.
        let at: ::core::ptr::NonNull<$to> = at;
        // SAFETY: let go of just above, in a slot of these slots, and nobody else has it.
        unsafe { $crate::SlotBox::from_raw(slots, at) }
    }};
}

impl<'s> Within<'s> {
    /// Moves a value into a slot. A value of no size takes none.
    ///
    /// # Errors
    /// As [`Slots::alloc`]; the value is dropped then.
    #[inline]
    pub fn boxed<T>(&self, value: T) -> Result<SlotBox<'s, T>, SlotsError> {
        let at = self.room(Layout::new::<T>())?.cast::<T>();
        // SAFETY: room for a `T`, aligned, and nobody else's.
        unsafe { at.write(value) };
        Ok(SlotBox { at, slots: self.slots(), _owns: PhantomData })
    }

    /// As [`Within::boxed`], of a value that is made only once there is a slot for it: where there is none, `make` is
    /// not called. If it panics, the slot is freed. That the value is built in place is left to the compiler, and not
    /// promised.
    ///
    /// ```
    /// use gabion_slots::{Affinity, Slots};
    ///
    /// let slots = Slots::new(gabion_blocks::Pool::global())?;
    /// let table = slots.within(Affinity::DATA).boxed_with(|| [0_u64; 512])?;
    /// assert_eq!(table.len(), 512);
    /// # Ok::<(), gabion_slots::SlotsError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Slots::alloc`].
    #[inline]
    pub fn boxed_with<T>(&self, make: impl FnOnce() -> T) -> Result<SlotBox<'s, T>, SlotsError> {
        let layout = Layout::new::<T>();
        let slot = Slot(self.slots(), self.room(layout)?, layout);
        let value = make();
        let at = ManuallyDrop::new(slot).1.cast::<T>();
        // SAFETY: room for a `T`, aligned, and nobody else's.
        unsafe { at.write(value) };
        Ok(SlotBox { at, slots: self.slots(), _owns: PhantomData })
    }

    /// Room for a value that is written in its place: for what is too large to be made elsewhere first.
    ///
    /// ```
    /// use gabion_slots::{Affinity, Slots, SlotBox};
    ///
    /// let slots = Slots::new(gabion_blocks::Pool::global())?;
    /// let mut table = slots.within(Affinity::DATA).boxed_zeroed::<[u8; 16 << 20]>()?;
    /// // SAFETY: bytes may be zero.
    /// let mut table = unsafe { SlotBox::assume_init(table) };
    /// table[7] = 1;
    /// # Ok::<(), gabion_slots::SlotsError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Slots::alloc`].
    pub fn boxed_uninit<T>(&self) -> Result<SlotBox<'s, MaybeUninit<T>>, SlotsError> {
        let at = self.room(Layout::new::<T>())?.cast();
        Ok(SlotBox { at, slots: self.slots(), _owns: PhantomData })
    }

    /// As [`Within::boxed_uninit`], all bytes zero: large ones without being touched, where their memory is fresh.
    ///
    /// # Errors
    /// As [`Slots::alloc`].
    pub fn boxed_zeroed<T>(&self) -> Result<SlotBox<'s, MaybeUninit<T>>, SlotsError> {
        let layout = Layout::new::<T>();
        let at =
            if layout.size() == 0 { self.room(layout)? } else { self.slots().alloc_zeroed(self.affinity(), layout)? };
        Ok(SlotBox { at: at.cast(), slots: self.slots(), _owns: PhantomData })
    }

    /// A slice of `len` values, each made by `make` from its index, in a slot. If it panics, those made are dropped,
    /// and the slot is freed.
    ///
    /// ```
    /// # use gabion_slots::{Affinity, Slots};
    /// # let slots = Slots::new(gabion_blocks::Pool::global())?;
    /// let names = slots.within(Affinity::DATA).boxed_slice_with(3, |index| format!("part {index}"))?;
    /// assert_eq!(names[2], "part 2");
    /// # Ok::<(), gabion_slots::SlotsError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Slots::alloc`]; nothing was made then.
    ///
    /// # Panics
    /// When that many values take more than half of the address space.
    pub fn boxed_slice_with<T>(
        &self,
        len: usize,
        mut make: impl FnMut(usize) -> T,
    ) -> Result<SlotBox<'s, [T]>, SlotsError> {
        let layout = Layout::array::<T>(len).expect("the slice is no longer than half of the address space");
        let slot = Slot(self.slots(), self.room(layout)?, layout);
        // Dropped before the slot.
        let mut made = Made { first: slot.1.cast::<T>(), count: 0 };
        for index in 0..len {
            let value = make(index);
            // SAFETY: room for `len` values, aligned, and nobody else's; the index is below that.
            unsafe { made.first.add(index).write(value) };
            made.count += 1;
        }
        let made = ManuallyDrop::new(made);
        let slot = ManuallyDrop::new(slot);
        let at = NonNull::slice_from_raw_parts(made.first, len);
        Ok(SlotBox { at, slots: slot.0, _owns: PhantomData })
    }

    /// Copies a slice into a slot.
    ///
    /// # Errors
    /// As [`Slots::alloc`].
    pub fn boxed_slice<T: Copy>(&self, values: &[T]) -> Result<SlotBox<'s, [T]>, SlotsError> {
        let at = self.room(Layout::for_value(values))?.cast::<T>();
        // SAFETY: room for as many values, aligned, and nobody else's; a `Copy` value may be copied by its bytes.
        unsafe { at.copy_from_nonoverlapping(NonNull::from(values).cast(), values.len()) };
        let at = NonNull::slice_from_raw_parts(at, values.len());
        Ok(SlotBox { at, slots: self.slots(), _owns: PhantomData })
    }

    /// Copies a string into a slot.
    ///
    /// # Errors
    /// As [`Slots::alloc`].
    pub fn boxed_str(&self, text: &str) -> Result<SlotBox<'s, str>, SlotsError> {
        let bytes = SlotBox::into_raw(self.boxed_slice(text.as_bytes())?);
        let at = NonNull::new(bytes.as_ptr() as *mut str).expect("it was not null before");
        Ok(SlotBox { at, slots: self.slots(), _owns: PhantomData })
    }

    #[inline]
    fn room(&self, layout: Layout) -> Result<NonNull<u8>, SlotsError> {
        if layout.size() == 0 {
            let nothing = self.allocate(layout).expect("no bytes are never refused");
            return Ok(nothing.cast());
        }
        self.slots().alloc(self.affinity(), layout)
    }
}

impl<'s, T: ?Sized> SlotBox<'s, T> {
    /// Lets go of the value and keeps it where it is; [`SlotBox::from_raw`] takes it back.
    #[inline]
    #[must_use = "the value and its slot are lost unless `SlotBox::from_raw` is given this"]
    pub fn into_raw(this: Self) -> NonNull<T> {
        ManuallyDrop::new(this).at
    }

    /// Takes back what [`SlotBox::into_raw`] let go. The pointer may have been cast meanwhile to another type that the
    /// same bytes are valid for, such as a trait object.
    ///
    /// # Safety
    /// The value lies in a slot of `slots`, as `into_raw` gave it (a value of no size in none), and this is its one
    /// owner.
    #[inline]
    pub unsafe fn from_raw(slots: &'s Slots, at: NonNull<T>) -> Self {
        Self { at, slots, _owns: PhantomData }
    }

    /// Keeps the value until the slots are gone, and never drops it.
    #[inline]
    #[must_use = "the value is never dropped: use `std::mem::forget` if nobody is to use it either"]
    pub fn leak(this: Self) -> &'s mut T
    where
        T: 's,
    {
        // SAFETY: nobody else refers to the value, and its slot is not freed while the slots live.
        unsafe { Self::into_raw(this).as_mut() }
    }

    /// The slots that the value lies in.
    #[inline]
    pub fn slots(this: &Self) -> &'s Slots {
        this.slots
    }
}

impl<T: ?Sized> SlotBox<'static, T> {
    /// Pins the value: it never moves anyway. For slots that live as long as the program: what is pinned keeps its
    /// memory until it is dropped, also when its box is forgotten, and other slots may go without it.
    ///
    /// ```
    /// # use gabion_slots::{Affinity, SlotBox, Slots};
    /// let pinned = SlotBox::into_pin(Slots::global().within(Affinity::NODES).boxed(std::marker::PhantomPinned)?);
    /// # drop(pinned);
    /// # Ok::<(), gabion_slots::SlotsError>(())
    /// ```
    /// ```compile_fail,E0597
    /// # use gabion_slots::{Affinity, SlotBox, Slots};
    /// let slots = Slots::new(gabion_blocks::Pool::global())?;
    /// let pinned = SlotBox::into_pin(slots.within(Affinity::NODES).boxed(std::marker::PhantomPinned)?);
    /// # Ok::<(), gabion_slots::SlotsError>(())
    /// ```
    #[inline]
    pub fn into_pin(this: Self) -> Pin<Self> {
        // SAFETY: moving a `SlotBox` does not move its value, nothing moves the value out of a pinned one, and its
        // memory stays until it is dropped, because the slots do.
        unsafe { Pin::new_unchecked(this) }
    }
}

impl<'s, T> SlotBox<'s, MaybeUninit<T>> {
    /// The box of the value that was written there.
    ///
    /// # Safety
    /// It was written, or its bytes are a value of its type as they are.
    #[inline]
    pub unsafe fn assume_init(this: Self) -> SlotBox<'s, T> {
        SlotBox { slots: this.slots, at: Self::into_raw(this).cast(), _owns: PhantomData }
    }
}

impl<T> SlotBox<'_, T> {
    /// Moves the value out and frees its slot.
    #[inline]
    pub fn into_inner(this: Self) -> T {
        let this = ManuallyDrop::new(this);
        // SAFETY: the value is read once and its slot freed afterwards; `this` is never dropped.
        unsafe {
            let value = this.at.read();
            free(this.slots, this.at.cast(), Layout::new::<T>());
            value
        }
    }
}

/// # Safety
/// A value of that layout was put there by a [`Within`] of `slots`, and it is not used again.
#[inline]
unsafe fn free(slots: &Slots, at: NonNull<u8>, layout: Layout) {
    if layout.size() == 0 {
        return;
    }
    expect_freed(if CHECKED || !is_small(layout) {
        // SAFETY: the caller's duty.
        unsafe { slots.free(at) }
    } else {
        // A box does not know its affinity; only the checked build would compare it.
        // SAFETY: the caller's duty.
        unsafe { slots.free_sized(Affinity::OBJECTS, at, layout) }
    });
}

/// The first values of a slice: dropped if making the next one panics.
struct Made<T> {
    first: NonNull<T>,
    count: usize,
}

impl<T> Drop for Made<T> {
    fn drop(&mut self) {
        // SAFETY: so many were written, and nobody else drops them.
        unsafe { NonNull::slice_from_raw_parts(self.first, self.count).drop_in_place() };
    }
}

/// A slot without a value: freed even if making the value, or its own drop, panics.
struct Slot<'a>(&'a Slots, NonNull<u8>, Layout);

impl Drop for Slot<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: room of that layout, which a `Within` of these slots gave. There never was a value, or it was
        // dropped, or its drop panicked: either way nobody uses it.
        unsafe { free(self.0, self.1, self.2) };
    }
}

impl<T: ?Sized> Drop for SlotBox<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the value is this box's own until here.
        let layout = Layout::for_value(unsafe { self.at.as_ref() });
        let _slot = Slot(self.slots, self.at.cast(), layout);
        // SAFETY: as above, and it is dropped once.
        unsafe { ptr::drop_in_place(self.at.as_ptr()) };
    }
}

impl<T: ?Sized> Deref for SlotBox<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value is this box's own and initialised; `&self` rules out a mutable reference.
        unsafe { self.at.as_ref() }
    }
}

impl<T: ?Sized> DerefMut for SlotBox<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` rules out any other reference.
        unsafe { self.at.as_mut() }
    }
}

impl<T: ?Sized> AsRef<T> for SlotBox<'_, T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T: ?Sized> AsMut<T> for SlotBox<'_, T> {
    fn as_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: ?Sized> Borrow<T> for SlotBox<'_, T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T: ?Sized> BorrowMut<T> for SlotBox<'_, T> {
    fn borrow_mut(&mut self) -> &mut T {
        self
    }
}

// The value does not lie in the box, so the box may move.
impl<T: ?Sized> Unpin for SlotBox<'_, T> {}

impl<T: ?Sized + fmt::Debug> fmt::Debug for SlotBox<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for SlotBox<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized> fmt::Pointer for SlotBox<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.at.fmt(f)
    }
}

impl<'a, T: ?Sized + PartialEq<U>, U: ?Sized> PartialEq<SlotBox<'a, U>> for SlotBox<'_, T> {
    fn eq(&self, other: &SlotBox<'a, U>) -> bool {
        **self == **other
    }
}

impl<T: ?Sized + Eq> Eq for SlotBox<'_, T> {}

impl<'a, T: ?Sized + PartialOrd<U>, U: ?Sized> PartialOrd<SlotBox<'a, U>> for SlotBox<'_, T> {
    fn partial_cmp(&self, other: &SlotBox<'a, U>) -> Option<Ordering> {
        (**self).partial_cmp(&**other)
    }
}

impl<T: ?Sized + Ord> Ord for SlotBox<'_, T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl<T: ?Sized + Hash> Hash for SlotBox<'_, T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}
