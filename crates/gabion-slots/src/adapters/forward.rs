//! A [`SlotBox`] as what its value is: an iterator, a future, an error, or the type behind `dyn Any`.

use std::any::Any;
use std::error::Error;
use std::future::Future;
use std::iter::FusedIterator;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::slot_box::SlotBox;

impl<I: ?Sized + Iterator> Iterator for SlotBox<'_, I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        (**self).next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (**self).size_hint()
    }

    fn nth(&mut self, n: usize) -> Option<I::Item> {
        (**self).nth(n)
    }
}

impl<I: ?Sized + DoubleEndedIterator> DoubleEndedIterator for SlotBox<'_, I> {
    fn next_back(&mut self) -> Option<I::Item> {
        (**self).next_back()
    }

    fn nth_back(&mut self, n: usize) -> Option<I::Item> {
        (**self).nth_back(n)
    }
}

impl<I: ?Sized + ExactSizeIterator> ExactSizeIterator for SlotBox<'_, I> {
    fn len(&self) -> usize {
        (**self).len()
    }
}

impl<I: ?Sized + FusedIterator> FusedIterator for SlotBox<'_, I> {}

/// Of futures that may be moved; another one is pinned first, by [`SlotBox::into_pin`].
impl<F: ?Sized + Future + Unpin> Future for SlotBox<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        Pin::new(&mut **self).poll(context)
    }
}

impl<E: ?Sized + Error> Error for SlotBox<'_, E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        (**self).source()
    }
}

/// `downcast` for each form of `dyn Any`.
macro_rules! downcasts {
    ($($any:ty),*) => {$(
        impl<'s> SlotBox<'s, $any> {
            /// The box of the value's own type, if that is `T`.
            ///
            /// ```
            /// use std::any::Any;
            /// use gabion_slots::{Affinity, SlotBox, Slots, unsize};
            ///
            /// let slots = Slots::new(gabion_blocks::Pool::global())?;
            /// let part = unsize!(slots.within(Affinity::OBJECTS).boxed(7_u32)? => dyn Any);
            /// let part = SlotBox::<dyn Any>::downcast::<String>(part).unwrap_err();
            /// assert_eq!(*SlotBox::<dyn Any>::downcast::<u32>(part).unwrap(), 7);
            /// # Ok::<(), gabion_slots::SlotsError>(())
            /// ```
            ///
            /// # Errors
            /// The box as it was, when its value is of another type.
            pub fn downcast<T: Any>(this: Self) -> Result<SlotBox<'s, T>, Self> {
                if !this.is::<T>() {
                    return Err(this);
                }
                let slots = SlotBox::slots(&this);
                let at = SlotBox::into_raw(this).cast::<T>();
                // SAFETY: let go of just above, in a slot of these slots, and a `T` as was just seen.
                Ok(unsafe { SlotBox::from_raw(slots, at) })
            }
        }
    )*};
}

downcasts!(dyn Any, dyn Any + Send, dyn Any + Send + Sync);
