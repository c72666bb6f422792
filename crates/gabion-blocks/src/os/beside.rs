//! Files that are written beside the ones that they replace.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// How many links are followed to a file that does not exist: as many as Linux follows.
const MOST_LINKS: usize = 40;

/// The folder that a file is in.
pub fn folder_of(place: &Path) -> &Path {
    place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path that links lead to, though nothing is there.
///
/// # Errors
/// [`ErrorKind::NotFound`] when there are more of them than the system follows.
pub fn end_of_links(path: &Path) -> io::Result<PathBuf> {
    let mut place = path.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&place) {
            Ok(to) => place = folder_of(&place).join(to),
            Err(_) => return Ok(place),
        }
    }
    Err(ErrorKind::NotFound.into())
}

/// Whether both are of one file.
pub fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Who may read, write and run a file. What is left out of its mode has a program run as the file's owner, who may be
/// another one now.
const RIGHTS: u32 = 0o777;

/// Gives a new file the rights of an old one, and its owner where this process may.
///
/// # Errors
/// What the system says where the rights cannot be given.
pub fn hand_down(old: &Metadata, file: &File) -> io::Result<()> {
    let new = file.metadata()?;
    // Only the superuser may give files to others; other users may give what they write to groups that they are in.
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) && fchown(file, Some(old.uid()), Some(old.gid())).is_err() {
        let _ = fchown(file, None, Some(old.gid()));
    }
    file.set_permissions(Permissions::from_mode(old.mode() & RIGHTS))
}
