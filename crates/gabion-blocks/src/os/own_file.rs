//! A file that is open for long, by a descriptor that the program may close.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use crate::sync::{AtomicBool, Ordering};

/// A file that gabion has open. A program that closes all descriptors, as one does that becomes a daemon, closes this
/// one, too, and its number is the next file's that anybody opens. So each use looks first whether the number still
/// leads to the file: another's is never written to, unlocked or closed.
#[derive(Debug)]
pub(crate) struct OwnFile {
    /// Closed by its number, and only if that is still its own.
    file: ManuallyDrop<File>,
    /// Device and number of the file.
    which: (u64, u64),
    closed: AtomicBool,
}

impl OwnFile {
    /// Has a file that was opened just now.
    ///
    /// # Errors
    /// The system's, where it does not tell which file it is.
    pub fn new(file: File) -> io::Result<Self> {
        let about = file.metadata()?;
        let which = (about.dev(), about.ino());
        Ok(Self { file: ManuallyDrop::new(file), which, closed: AtomicBool::new(false) })
    }

    /// The file, if the descriptor is still its own; `None` when it was closed. Takes one system call, and neither
    /// memory nor a lock: a forked child may call it.
    pub fn get(&self) -> Option<&File> {
        // Relaxed: a use and the close are ordered by the owner's lock.
        let is_own = !self.closed.load(Ordering::Relaxed) && which(self.file.as_raw_fd()) == Some(self.which);
        is_own.then_some(&*self.file)
    }

    /// Closes the descriptor, if it is still its own. Once; nobody uses what [`OwnFile::get`] returned any more.
    pub fn close(&self) {
        if let Some(file) = self.get() {
            // SAFETY: a descriptor of this value's own, which nobody uses any more (caller's duty), and which is not
            // closed again: from here on `get` returns nothing.
            unsafe { libc::close(file.as_raw_fd()) };
        }
        self.closed.store(true, Ordering::Relaxed); // Relaxed: as above.
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        self.close();
    }
}

/// Device and number of the file that a descriptor leads to.
#[allow(clippy::unnecessary_cast, reason = "other systems have other numbers there")]
fn which(number: i32) -> Option<(u64, u64)> {
    // SAFETY: all zeros are a value of these numbers.
    let mut about: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a number, which may be no descriptor, and room for the answer.
    let answer = unsafe { libc::fstat(number, &raw mut about) };
    (answer == 0).then_some((about.st_dev as u64, about.st_ino as u64))
}
