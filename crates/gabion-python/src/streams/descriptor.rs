//! Real files, copied by the system: no byte comes to this process where the system can do without.
//!
//! A Python file stands before its descriptor: it may have bytes in its buffer, and a position of its own. So only
//! files of exactly the classes of `open()` and `socket.makefile()` are taken, whose ways are known; what they hold
//! back is flushed before, and they are set behind the copied bytes afterwards.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::ptr;

use pyo3::prelude::*;

use super::bytes::Growing;
use super::chunk;
use super::classes::Classes;
use super::file::position;
use super::refusal;
use crate::detached::{Detached, detached_ungated};
use crate::errors::system_error;
use crate::once::{intern, of_module};

/// Bytes between two looks for signals: some milliseconds' worth.
const STEP: usize = 32 << 20;

/// The same where the other end may be slow.
const STREAM_STEP: usize = 1 << 20;

/// Whether the file is exactly what `socket.socket.makefile()` gives. What encrypts has a class of its own, and its
/// descriptor must not be written to.
fn is_socket_file(file: &Bound<'_, PyAny>) -> PyResult<bool> {
    let raw = Classes::get(file.py())?.unbuffered(file)?;
    if raw.get_type().name()? != "SocketIO" {
        return Ok(false);
    }
    let Ok(module) = of_module(file.py(), c"sys", c"modules")?.get_item("socket") else { return Ok(false) };
    if !raw.get_type().is(&module.getattr(intern!(module.py(), "SocketIO")?)?) {
        return Ok(false);
    }
    Ok(raw.getattr(intern!(raw.py(), "_sock")?)?.get_type().is(&module.getattr(intern!(module.py(), "socket")?)?))
}

/// How the system writes to a descriptor.
#[derive(Clone, Copy, PartialEq)]
enum Outlet {
    /// A regular file.
    File,
    /// A pipe or a socket that makes its writer wait.
    Stream,
}

/// A regular file and where it is copied to, with descriptors of their own, so that nobody closes them meanwhile.
pub(super) struct Pair {
    src: File,
    dst: File,
    outlet: Outlet,
    /// Where the next byte is read.
    at: u64,
    /// Where it began.
    began: u64,
    /// Where it ends, if the source does not end before.
    until: u64,
}

impl Pair {
    /// The descriptors of two files that may be copied behind Python's back, or None. They are open for reading, and
    /// for writing. `limit` is how many bytes are copied at most.
    ///
    /// # Errors
    /// ValueError when both are the same file; what flushing raises.
    pub(super) fn of(src: &Bound<'_, PyAny>, dst: &Bound<'_, PyAny>, limit: u64) -> PyResult<Option<Self>> {
        let classes = Classes::get(src.py())?;
        if !classes.is_of_system(src)? || !classes.is_of_system(dst)? && !is_socket_file(dst)? {
            return Ok(None);
        }
        let Some((from, a)) = regular(src)? else { return Ok(None) };
        let Some((to, b)) = descriptor(dst)? else { return Ok(None) };
        let Some(outlet) = outlet(&to, &b) else { return Ok(None) };
        if (a.dev(), a.ino()) == (b.dev(), b.ino()) {
            return Err(refusal::same_file(src.py()));
        }
        src.call_method0(intern!(src.py(), "flush")?)?;
        dst.call_method0(intern!(dst.py(), "flush")?)?;
        let place = position(src)?;
        Ok(place.map(|at| Self { src: from, dst: to, outlet, at, began: at, until: at.saturating_add(limit) }))
    }

    /// `length`, or what is left to copy if that is less.
    fn within(&self, length: usize) -> usize {
        chunk::within(length, self.until - self.at)
    }

    /// How many bytes were copied.
    pub(super) fn copied(&self) -> u64 {
        self.at - self.began
    }

    /// Copies to the end of the source, or of what is to be copied, through `chunk` where the system does not copy by
    /// itself. Signals are handled on the way.
    pub(super) fn copy(&mut self, py: Python<'_>, chunk: &mut [u8]) -> PyResult<()> {
        let mut handled = Ok(());
        let mut look = |away: &mut Detached| {
            handled = away.visit(handle_signals);
            handled.is_ok()
        };
        let copied = {
            // SAFETY: attached (`py`); the work has nothing of the interpreter's but in the visits, and what they
            // raise is only moved.
            let mut away = unsafe { Detached::begin() };
            self.copy_while(chunk, &mut || look(&mut away))
        };
        handled?;
        copied.map_err(|error| system_error(py, &error, None))
    }

    fn copy_while(&mut self, chunk: &mut [u8], go_on: &mut dyn FnMut() -> bool) -> std::io::Result<()> {
        while self.copy_in_system() {
            if !go_on() {
                return Ok(());
            }
        }
        // Some file systems cannot, some (that of /proc) say that there is nothing. Reading tells.
        let (mut since, step) = (0, if self.outlet == Outlet::File { STEP } else { STREAM_STEP });
        while self.at < self.until {
            match self.copy_through(chunk) {
                Ok((0, _)) => return Ok(()),
                Ok((read, written)) if read == written => since += written,
                // A signal, while the other end made it wait: which it takes less for, or nothing.
                Ok(_) => since = step,
                Err(error) if error.kind() == ErrorKind::Interrupted => since = step,
                Err(error) => return Err(error),
            }
            if since >= step {
                since = 0;
                if !go_on() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Has the system copy up to a step. False when it cannot, or does not any more; the reason comes to light by
    /// reading and writing.
    fn copy_in_system(&mut self) -> bool {
        let Ok(mut at) = libc::off64_t::try_from(self.at) else { return false };
        let (src, dst) = (self.src.as_raw_fd(), self.dst.as_raw_fd());
        let most = self.within(if self.outlet == Outlet::File { STEP } else { STREAM_STEP });
        if most == 0 {
            return false;
        }
        // SAFETY: two open descriptors, owned by `self`; a position of the caller's for the one, the file's own for the
        // other.
        let count = unsafe {
            match self.outlet {
                Outlet::File => libc::copy_file_range(src, &raw mut at, dst, ptr::null_mut(), most, 0),
                Outlet::Stream => libc::sendfile64(dst, src, &raw mut at, most),
            }
        };
        let Ok(count) = u64::try_from(count) else {
            return std::io::Error::last_os_error().kind() == ErrorKind::Interrupted;
        };
        self.at += count;
        count > 0
    }

    /// One read and one write of up to a chunk: how many bytes were read, which is 0 at the end of the source, and
    /// written.
    fn copy_through(&mut self, chunk: &mut [u8]) -> std::io::Result<(usize, usize)> {
        let most = self.within(chunk.len());
        let read = self.src.read_at(&mut chunk[..most], self.at)?;
        let written = if read > 0 { self.dst.write(&chunk[..read])? } else { 0 };
        if written == 0 && read > 0 {
            return Err(ErrorKind::WriteZero.into());
        }
        self.at += written as u64;
        Ok((read, written))
    }

    /// Sets the Python files behind what was copied.
    pub(super) fn seek_behind(&mut self, src: &Bound<'_, PyAny>, dst: &Bound<'_, PyAny>) -> PyResult<()> {
        src.call_method1(intern!(src.py(), "seek")?, (self.at,))?;
        if self.outlet == Outlet::Stream {
            return Ok(());
        }
        // The descriptor is a second name of the same open file, whose position the writes have moved.
        dst.call_method1(intern!(dst.py(), "seek")?, (self.dst.stream_position()?,))?;
        Ok(())
    }
}

/// A regular file of `open()`, to be read from where it stands to its end without a detour.
pub(super) struct Rest {
    file: File,
    at: u64,
}

impl Rest {
    /// None for every other kind of file, and where nothing is left: so say files of /proc, too, of which some give all
    /// that they have to the first read and nothing to a second one, however short the first was.
    pub(super) fn of(file: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let is_of_system = Classes::get(file.py())?.is_of_system(file)?;
        if !is_of_system || !file.call_method0(intern!(file.py(), "readable")?)?.is_truthy()? {
            return Ok(None);
        }
        let Some((own, _)) = regular(file)? else { return Ok(None) };
        file.call_method0(intern!(file.py(), "flush")?)?;
        Ok(position(file)?.map(|at| Self { file: own, at }).filter(|rest| rest.len() > 0))
    }

    /// How many bytes there are, as things stand.
    pub(super) fn len(&self) -> usize {
        let length = self.file.metadata().map_or(0, |about| about.len());
        usize::try_from(length.saturating_sub(self.at)).unwrap_or(usize::MAX)
    }

    /// Reads until `room` bytes from `start` on are filled, or the file ends. Gives their number, also where it fails
    /// later: then with the error. The Python file is set behind them.
    ///
    /// # Safety
    /// The bytes stay in place and may be written to. Others may write to them, too.
    pub(super) unsafe fn fill(mut self, file: &Bound<'_, PyAny>, start: *mut u8, room: usize) -> (usize, PyResult<()>) {
        let py = file.py();
        let mut done = 0;
        let mut read = || {
            while done < room {
                py.check_signals()?;
                let place = Place { start: start.wrapping_add(done), room: (room - done).min(STEP) };
                // SAFETY: within the room (duty of the caller).
                match detached_ungated(py, || unsafe { place.read(&self.file, self.at) }) {
                    Ok(0) => break,
                    Ok(read) => {
                        done += read;
                        self.at += read as u64;
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(system_error(py, &error, None)),
                }
            }
            Ok(())
        };
        let read = read();
        let set = || file.call_method1(intern!(file.py(), "seek")?, (self.at,)).map(drop);
        (done, read.and(set()))
    }

    /// Reads to the end, and sets the Python file there.
    pub(super) fn read(mut self, file: &Bound<'_, PyAny>, target: &mut Growing<'_>) -> PyResult<()> {
        let py = file.py();
        loop {
            py.check_signals()?;
            let (start, room) = target.spare()?;
            let place = Place { start, room: room.min(STEP) };
            // SAFETY: `room` bytes from `start` on are the target's own, which nobody else knows.
            match detached_ungated(py, || unsafe { place.read(&self.file, self.at) }) {
                Ok(0) => break,
                Ok(read) => {
                    target.wrote(read);
                    self.at += read as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(system_error(py, &error, None)),
            }
        }
        file.call_method1(intern!(file.py(), "seek")?, (self.at,)).map(drop)
    }
}

/// Bytes to read to.
#[derive(Clone, Copy)]
struct Place {
    start: *mut u8,
    room: usize,
}

// SAFETY: an address and a length; who uses them answers for the bytes.
unsafe impl Send for Place {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for Place {}

impl Place {
    /// One read of the system. Nothing refers to the bytes: others may be writing them, or they are not initialised.
    ///
    /// # Safety
    /// The bytes stay in place and may be written to.
    unsafe fn read(self, file: &File, at: u64) -> std::io::Result<usize> {
        let Ok(at) = libc::off64_t::try_from(at) else { return Ok(0) };
        // SAFETY: an open descriptor; `room` bytes from `start` on (duty of the caller).
        let count = unsafe { libc::pread64(file.as_raw_fd(), self.start.cast(), self.room, at) };
        usize::try_from(count).map_err(|_| std::io::Error::last_os_error())
    }
}

/// A function of its own, because the method is one for each lifetime, and a visit asks for one for all.
fn handle_signals(py: Python<'_>) -> PyResult<()> {
    py.check_signals()
}

/// How the system may write there without Python, if at all.
fn outlet(file: &File, about: &Metadata) -> Option<Outlet> {
    let kind = about.file_type();
    if kind.is_file() {
        return Some(Outlet::File);
    }
    // SAFETY: an open descriptor, owned by `file`.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    // A socket with a timeout does not block either, and its file does the waiting.
    let waits = flags >= 0 && flags & libc::O_NONBLOCK == 0;
    (waits && (kind.is_fifo() || kind.is_socket())).then_some(Outlet::Stream)
}

/// A descriptor of the file's own, if it is a regular file.
fn regular(file: &Bound<'_, PyAny>) -> PyResult<Option<(File, Metadata)>> {
    Ok(descriptor(file)?.filter(|(_, about)| about.is_file()))
}

/// A second descriptor of what a number names now. Without a GIL another thread may close the file just now: then the
/// number is nobody's, which the system refuses, or another file's.
fn duplicate(number: RawFd) -> std::io::Result<File> {
    // SAFETY: takes any number, and no memory. The new one is none of 0 to 2, which are those of the standard streams.
    let own = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if own < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else knows it.
    Ok(unsafe { File::from_raw_fd(own) })
}

/// A second descriptor of the same open file, and what the system knows about it; None where it knows nothing.
///
/// # Errors
/// `ValueError` where another thread closes the file.
fn descriptor(file: &Bound<'_, PyAny>) -> PyResult<Option<(File, Metadata)>> {
    let py = file.py();
    let ask = || -> PyResult<RawFd> { file.call_method0(intern!(py, "fileno")?)?.extract() };
    let number = ask()?;
    if number < 0 {
        return Ok(None);
    }
    let own = duplicate(number);
    // A file forgets its number before it closes it: as long as it tells it, what was duplicated is its own.
    if ask()? != number {
        return Ok(None);
    }
    let own = own.map_err(|error| system_error(py, &error, None))?;
    let about = own.metadata();
    Ok(about.ok().map(|about| (own, about)))
}
