//! From a path to a file that is open, locked, and one of ours.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::error::FileError;
use super::layout::{HEAD_BYTES, Superblock};
use crate::os::Disk;
use crate::os::beside::is_same;

/// How a file is opened.
#[derive(Clone, Copy)]
pub(super) struct How {
    /// It is made where it is not there.
    pub create: bool,
    /// To write, or else to read only.
    pub write: bool,
}

/// Opens a file that is one, and no pipe or device, where an opening may wait. Says whether it was made.
pub(super) fn open_file(path: &Path, How { create, write }: How) -> Result<(File, bool), FileError> {
    let not_found = |error: &std::io::Error| error.kind() == ErrorKind::NotFound;
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            return Err(FileError::system("open the file")(std::io::Error::from_raw_os_error(libc::EISDIR)));
        }
        Ok(found) if !found.is_file() => return Err(FileError::NotOurs),
        Err(error) if !(not_found(&error) && create) => {
            return Err(FileError::system("open the file")(error));
        }
        _ => {}
    }
    let mut open = OpenOptions::new();
    open.read(true).write(write).mode(0o600);
    if create && let Ok(made) = open.create_new(true).open(path) {
        return Ok((made, true));
    }
    // It is there, or a link leads to where it is to be.
    let found = open.create_new(false).create(create).open(path);
    found.map(|file| (file, false)).map_err(FileError::system("open the file"))
}

/// Takes away a file that was just made and cannot be what it was to be. The caller has its lock.
pub(super) fn unmake(path: &Path, file: &File) {
    let own = file.metadata().and_then(|own| Ok(is_same(&own, &std::fs::metadata(path)?)));
    if own.unwrap_or(false) {
        // Where this fails too, an empty file is left, which the next opening makes a pile of.
        drop(std::fs::remove_file(path));
    }
}

/// What a lock is refused with.
pub(super) fn not_locked(errno: i32) -> FileError {
    match errno {
        libc::EWOULDBLOCK => FileError::InUse,
        errno => FileError::number("lock the file")(errno),
    }
}

/// How often a file is opened whose name leads elsewhere by the time that it is locked. Where that is always so, files
/// have no numbers that stay.
pub(super) const ATTEMPTS: usize = 100;

/// As [`open_file`], and locks it: alone, to write.
pub(super) fn open_locked(path: &Path, how: How, disk: &dyn Disk) -> Result<(File, bool), FileError> {
    let mut attempts = 0;
    loop {
        let (file, made) = open_file(path, how)?;
        let locked = disk.lock(&file, how.write);
        attempts += 1;
        // Before the lock was there, another file may have got the name, and this one is nobody's.
        let opened = file.metadata().map_err(FileError::system("look at the file"))?;
        if attempts == ATTEMPTS || std::fs::metadata(path).is_ok_and(|found| is_same(&found, &opened)) {
            return locked.map(|()| (file, made)).map_err(not_locked);
        }
    }
}

/// Whether a file that is there is one that somebody has begun to make, and did not come to an end with. Refuses others
/// than ours, before anything is changed or mapped.
pub(super) fn is_begun(file: &File, length: u64) -> Result<bool, FileError> {
    let mut head = [0; 64];
    let read = read_whole(file, &mut head, 0)?;
    let words = head.as_chunks::<8>().0;
    if read < head.len() {
        return Err(FileError::NotOurs);
    }
    match Superblock::read(|at| u64::from_le_bytes(words[at]))? {
        Some(_) if length < HEAD_BYTES as u64 => Err(FileError::damaged(length, "the file ends within its table")),
        Some(_) => Ok(false),
        None if length == HEAD_BYTES as u64 && is_zero(file, head.len() as u64, length)? => Ok(true),
        None => Err(FileError::NotOurs),
    }
}

/// Whether a part of a file reads as zero, as far as there is something to read.
pub(super) fn is_zero(file: &File, from: u64, to: u64) -> Result<bool, FileError> {
    let mut piece = [0; 4096];
    let mut at = from;
    while at < to {
        let most = piece.len().min((to - at) as usize);
        let read = read_whole(file, &mut piece[..most], at)?;
        if piece[..read].iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        if read < most {
            break;
        }
        at += read as u64;
    }
    Ok(true)
}

/// Reads a part of a file, however many calls that takes. Returns how much there is: less than was asked for where the
/// file ends.
pub(super) fn read_whole(file: &File, into: &mut [u8], at: u64) -> Result<usize, FileError> {
    let mut read = 0;
    while read < into.len() {
        match file.read_at(&mut into[read..], at + read as u64) {
            Ok(0) => break,
            Ok(some) => read += some,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(FileError::system("read the file")(error)),
        }
    }
    Ok(read)
}
