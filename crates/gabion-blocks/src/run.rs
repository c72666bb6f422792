//! One object larger than any chunk, in a run of the pool.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::BlockError;
use crate::file::{BlockFile, RunRoom};
use crate::piece::{Piece, total_len};
use crate::pool::{Held, Pool};

/// Bytes in a run of the pool: filled once, never changed, given back when dropped. As with block sets, what is held so
/// counts apart from the pool's buffers. Or in a run of a file, where it stays as long as it is somebody's.
pub struct Run {
    memory: Memory,
    len: usize,
}

/// Where the bytes of a run lie.
enum Memory {
    Span(Held),
    File {
        file: Arc<BlockFile>,
        room: RunRoom,
        /// Whether it is somebody's, and stays in the file.
        owned: AtomicBool,
    },
}

impl Run {
    /// Takes room for `pieces` and copies them in, one behind the other.
    ///
    /// # Errors
    /// [`BlockError::NoMemory`] when the system gives no memory, [`BlockError::Machine`] when the machine never has so
    /// much.
    pub fn new(pool: &Pool, pieces: &[Piece<'_>]) -> Result<Self, BlockError> {
        let len = total_len(pieces);
        let (span, _) = Held::take(pool, Self::mapped_bytes(len), false)?;
        // SAFETY: the span has at least `len` bytes and is this run's alone.
        unsafe { fill(span.base(), pieces) };
        Ok(Self { memory: Memory::Span(span), len })
    }

    /// As [`Run::new`], in a file. It is nobody's until [`Run::own`] says whose it is.
    ///
    /// # Errors
    /// [`BlockError::Disk`], and others of a file that cannot grow.
    pub fn in_file(file: &Arc<BlockFile>, pieces: &[Piece<'_>]) -> Result<Self, BlockError> {
        let len = total_len(pieces);
        let room = file.take_run(len)?;
        // SAFETY: as above.
        unsafe { fill(room.bytes(), pieces) };
        file.count_in();
        let memory = Memory::File { file: Arc::clone(file), room, owned: AtomicBool::new(false) };
        Ok(Self { memory, len })
    }

    /// A run that was found in a file, and is somebody's.
    ///
    /// # Safety
    /// The room is one of [`BlockFile::runs`] of this file, and no other value stands for it.
    pub unsafe fn found(file: &Arc<BlockFile>, room: RunRoom) -> Self {
        file.count_in();
        let memory = Memory::File { file: Arc::clone(file), room, owned: AtomicBool::new(true) };
        Self { memory, len: room.len() }
    }

    /// Says whose a run in a file is, a number that is not 0, or with 0 that it is nobody's. One that is somebody's
    /// stays in the file when this value is dropped.
    pub fn own(&self, owner: u64) {
        if let Memory::File { file, room, owned } = &self.memory {
            file.own_run(*room, owner);
            owned.store(owner != 0, Ordering::Relaxed); // Relaxed: told under its owner's lock, and asked by the last who has it.
        }
    }

    /// What a run of `len` bytes takes from the pool: at most 1/32 more.
    pub fn mapped_bytes(len: usize) -> usize {
        Held::bytes_for(len)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        let at = match &self.memory {
            Memory::Span(span) => span.base(),
            Memory::File { room, .. } => room.bytes(),
        };
        // SAFETY: filled when it was made, never written again, and the run's alone until it is dropped.
        unsafe { std::slice::from_raw_parts(at.as_ptr(), self.len) }
    }
}

/// Copies pieces to a place, one behind the other.
///
/// # Safety
/// There is room for all of them, which is the caller's alone.
unsafe fn fill(mut at: NonNull<u8>, pieces: &[Piece<'_>]) {
    for piece in pieces {
        // SAFETY: that many bytes were counted, of the same pieces (duty of the caller).
        unsafe {
            at.as_ptr().copy_from_nonoverlapping(piece.start(), piece.len());
            at = at.add(piece.len());
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Memory::File { file, room, owned } = &self.memory {
            // Relaxed: see `own`.
            if !owned.load(Ordering::Relaxed) {
                file.free_run(*room);
            }
            file.count_out();
        }
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::Twin;
    use crate::pool::Settings;

    #[test]
    fn no_sum_of_pieces_wraps() {
        let bytes = 1_usize << 46;
        // Only where the system promises any address space.
        let Ok(base) = crate::os::system().map(bytes, crate::SYSTEM_PAGE) else { return };
        // SAFETY: mapped, reads as zero, and stays until the pieces were counted.
        let piece = unsafe { std::slice::from_raw_parts(base.as_ptr(), bytes) };
        let mut pieces = vec![piece; (usize::MAX >> 46) + 1];
        pieces.push(&[1; 9]);
        let pieces = Piece::list(&pieces);
        assert_eq!(total_len(pieces), usize::MAX);
        let twin: &'static Twin = Box::leak(Box::default());
        let pool = Pool::new(twin, Settings::unpooled()).unwrap();
        assert!(matches!(Run::new(&pool, pieces), Err(BlockError::Machine { .. })));
        // SAFETY: the range of the map; the pieces are not used again.
        unsafe { crate::os::system().unmap(base, bytes) };
    }

    #[test]
    fn holds_what_it_was_given_and_goes_back() {
        let twin: &'static Twin = Box::leak(Box::default());
        let bytes: Vec<u8> = (0..5_000_000_u32).map(|n| n as u8).collect();
        let pool = Pool::new(twin, Settings::unpooled()).unwrap();
        let run = Run::new(&pool, Piece::list(&[&bytes[..7], &[], &bytes[7..]])).unwrap();
        assert_eq!(run.bytes(), bytes);
        assert_eq!(twin.mapped(), Run::mapped_bytes(bytes.len()) as u64);
        drop(run);
        assert_eq!(twin.mapped(), 0);
    }
}
