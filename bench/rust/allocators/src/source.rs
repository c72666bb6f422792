//! The interface of everything that memory is rented from, and gabion's pool behind it.

use std::ptr::NonNull;

use gabion_blocks::{Buffer, Group, GroupRequest, Pool, Request};

use crate::region::{Fresh, Region};

/// Something that rents memory out; dropping the memory gives it back.
pub trait Source: Send + Sync {
    /// What is rented.
    type Memory: Region;

    /// Rents `bytes` bytes. `lane` names the pair of threads that hand memory over; only the floor wants to know.
    ///
    /// # Panics
    /// When there is no memory.
    fn rent(&self, lane: usize, bytes: usize) -> Fresh<Self::Memory>;

    /// Gives all that is idle back to the system, as far as it can.
    fn give_back_idle(&self);
}

/// First byte and length of a buffer.
#[inline]
fn whole(buffer: &Buffer) -> (NonNull<u8>, usize) {
    (buffer.as_non_null(), buffer.len())
}

// SAFETY: a buffer owns its bytes until it is dropped, may be used and dropped in any thread, and moves without them;
// its pointer is good for writing while no reference to the bytes is alive, and this crate makes none before all are
// written.
unsafe impl Region for Buffer {
    #[inline]
    fn part(&self, index: usize) -> Option<(NonNull<u8>, usize)> {
        (index == 0).then(|| whole(self))
    }
}

// SAFETY: as for a buffer: a group owns its buffers.
unsafe impl Region for Group {
    #[inline]
    fn part(&self, index: usize) -> Option<(NonNull<u8>, usize)> {
        self.parts().get(index).map(whole)
    }
}

impl Source for &Pool {
    type Memory = Buffer;

    #[inline]
    fn rent(&self, _lane: usize, bytes: usize) -> Fresh<Buffer> {
        Fresh(Pool::rent(self, &Request::new(bytes)).expect("the pool has memory"))
    }

    fn give_back_idle(&self) {
        self.trim(true);
    }
}

/// The pool again, asked for groups: memory in parts of one block, as images take it.
pub struct Groups(pub &'static Pool);

impl Source for Groups {
    type Memory = Group;

    #[inline]
    fn rent(&self, _lane: usize, bytes: usize) -> Fresh<Group> {
        let request = GroupRequest { bytes, ..GroupRequest::default() };
        Fresh(self.0.rent_group(&request).expect("the pool has memory"))
    }

    fn give_back_idle(&self) {
        self.0.trim(true);
    }
}
