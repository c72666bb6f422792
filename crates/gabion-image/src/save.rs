//! Writing to a path: aside and renamed, or straight where there is nothing to rename.

use std::cell::Cell;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use gabion_blocks::os::beside::{Aside, end_of_links, folder_of, hand_down, is_same, told_at_close};

use crate::error::Result;
use crate::writer::ErrorKeepingWriter;

/// Writes a file aside and gives it its name when it is complete, so that a reader sees the old file or the new one,
/// and a failure leaves the old one as it was.
///
/// A symbolic link stays what it is: the file that it leads to is the one that is replaced, or made. One that the
/// system does not follow, such as another user's in `/tmp`, is refused. An old file hands its rights down, and its
/// owner where this process may give files away; one that may not be written to is refused, though the rights of its
/// folder would do. What is neither a file nor a folder, such as a pipe or a device, is written to as it is. The disk
/// is not waited for: after a power failure soon after, the file may be the old one, the new one, or empty. That of
/// another machine is, where it tells at the end alone that it is full.
///
/// # Errors
/// What `write` gives; [`ImageError::Io`](crate::ImageError::Io) when the file cannot be written, or its folder does
/// not exist.
pub fn save_atomically(path: impl AsRef<Path>, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let path = path.as_ref();
    match Place::of(path)? {
        Place::Free(place) => aside(&place, None, write),
        Place::Taken(place, old) => aside(&place, Some(&old), write),
        Place::Straight => buffered(&File::options().write(true).truncate(true).open(path)?, write),
    }
}

/// Where what is written to a path is to go.
enum Place {
    /// There is no file yet.
    Free(PathBuf),
    /// There is one, to be replaced.
    Taken(PathBuf, Metadata),
    /// Into what is there.
    Straight,
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        // This follows a link, also one that leads to nothing, and so the system says whether it may be followed.
        let old = match fs::metadata(path) {
            Ok(old) => old,
            Err(error) if error.kind() == ErrorKind::NotFound => return end_of_links(path).map(Self::Free),
            Err(error) => return Err(error),
        };
        if old.is_dir() {
            return Err(ErrorKind::IsADirectory.into());
        }
        if !old.is_file() {
            return Ok(Self::Straight);
        }
        // The system says whether it may be written to.
        File::options().write(true).open(path)?;
        if !fs::symlink_metadata(path)?.is_symlink() {
            return Ok(Self::Taken(path.to_owned(), old));
        }
        // The links of /proc lead to files that have no name any more, or another one.
        let place = fs::canonicalize(path).ok().filter(|place| fs::metadata(place).is_ok_and(|at| is_same(&at, &old)));
        Ok(place.map_or(Self::Straight, |place| Self::Taken(place, old)))
    }
}

fn aside(place: &Path, old: Option<&Metadata>, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    // As a plain new file would have it: what the user's mask leaves of reading and writing for all.
    let mut file = Aside::begin(folder_of(place), 0o666)?;
    if let Some(old) = old {
        hand_down(old, place, file.file())?;
    }
    buffered(file.file(), write)?;
    file.take_name()?.persist(place).map_err(|error| error.error)?;
    Ok(())
}

/// Bytes that are written at a time.
const CHUNK: usize = 64 << 10;

fn buffered(file: &File, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let failed = Cell::new(None);
    let mut out = BufWriter::with_capacity(CHUNK, ErrorKeepingWriter { out: file, failed: &failed });
    let written = write(&mut out).and_then(|()| Ok(out.flush()?));
    // Not written once more.
    drop(out.into_parts());
    match failed.take() {
        Some(error) => Err(error.into()),
        None => written.and_then(|()| Ok(told_at_close(file)?)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;
    use crate::error::ImageError;

    fn save(path: &Path, text: &str) -> Result<()> {
        save_atomically(path, |out| Ok(out.write_all(text.as_bytes())?))
    }

    #[test]
    fn links_stay_links() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("real")).unwrap();
        fs::write(at("real/file"), "old").unwrap();
        symlink("real/file", at("near")).unwrap();
        symlink(at("near"), at("far")).unwrap();
        symlink("real/new", at("dangling")).unwrap();
        symlink("real", at("folder")).unwrap();
        for (name, place) in [("far", "real/file"), ("dangling", "real/new"), ("folder/third", "real/third")] {
            for text in ["new", "newer"] {
                save(&at(name), text).unwrap();
                assert_eq!(fs::read_to_string(at(place)).unwrap(), text, "{name}");
            }
        }
        for name in ["near", "far", "dangling", "folder"] {
            assert!(fs::symlink_metadata(at(name)).unwrap().is_symlink(), "{name}");
        }
        assert_eq!(fs::read_dir(at("real")).unwrap().count(), 3, "nothing is left aside");
    }

    #[test]
    fn links_that_lead_nowhere_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink("there", at("here")).unwrap();
        symlink("here", at("there")).unwrap();
        symlink("absent/file", at("lost")).unwrap();
        for name in ["here", "lost"] {
            assert!(matches!(save(&at(name), "new"), Err(ImageError::Io(_))), "{name}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn what_the_system_said_is_not_lost() {
        let failed = save_atomically(Path::new("/dev/full"), |out| {
            let text = vec![1; 3 * CHUNK];
            out.write_all(&text).map_err(|_| io::Error::other("cannot write").into())
        });
        match failed {
            Err(ImageError::Io(error)) => assert_eq!(error.kind(), ErrorKind::StorageFull),
            other => panic!("{other:?}"),
        }
        assert!(!fs::metadata("/dev/full").unwrap().is_file(), "the device is still one");
    }

    #[test]
    fn a_file_without_a_name_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "something older").unwrap();
        let open = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
        if !Path::new(&link).exists() {
            return; // no such file system here
        }
        save(Path::new(&link), "new").unwrap();
        assert_eq!(io::read_to_string(open).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn mode_and_owner_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        // Only the superuser can; for others the owner is their own anyway.
        let _ = std::os::unix::fs::chown(&path, Some(65534), Some(65534));
        // What has a program run as another user goes: that may be another one.
        fs::set_permissions(&path, Permissions::from_mode(0o7640)).unwrap();
        save(&path, "older").unwrap();
        let before = fs::metadata(&path).unwrap();
        save(&path, "new").unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!(before.mode() & 0o7777, 0o640);
        assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
        assert_ne!(after.ino(), before.ino(), "another file, renamed");
    }
}
