//! Files that are written beside the ones that they replace.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use tempfile::{Builder, TempPath};

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

/// Gives a new file the rights of an old one, which is at `place`, and its owner and group where this process may.
///
/// Where the new file's group is another one, it may do only what all others may. So it is where the old file has a
/// list of who may (an ACL), which is not handed down: the rights of its group are then the most that anybody on the
/// list may.
///
/// # Errors
/// What the system says where the rights cannot be given.
pub fn hand_down(old: &Metadata, place: &Path, file: &File) -> io::Result<()> {
    let new = file.metadata()?;
    // Only the superuser may give files to others; other users may give what they write to groups that they are in.
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) && fchown(file, Some(old.uid()), Some(old.gid())).is_err() {
        let _ = fchown(file, None, Some(old.gid()));
    }
    let rights = old.mode() & RIGHTS;
    let same_group = file.metadata()?.gid() == old.gid() && !may_have_list(place);
    let rights = if same_group { rights } else { rights & (0o707 | (rights & 0o007) << 3) };
    file.set_permissions(Permissions::from_mode(rights))
}

/// Whether a file may have a list of who may read and write it beside its owner and its group.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn may_have_list(place: &Path) -> bool {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    let Ok(path) = CString::new(place.as_os_str().as_bytes()) else { return true };
    // SAFETY: two texts that end with a zero, and live over the call, which is to write nothing.
    let found = unsafe { libc::getxattr(path.as_ptr(), c"system.posix_acl_access".as_ptr(), std::ptr::null_mut(), 0) };
    // Where it has none, and where the disk or the system knows no such lists.
    let none = [libc::ENODATA, libc::EOPNOTSUPP, libc::ENOSYS];
    found >= 0 || !io::Error::last_os_error().raw_os_error().is_some_and(|number| none.contains(&number))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn may_have_list(_: &Path) -> bool {
    false
}

/// Closes a file as far as the system is to tell how that went, and leaves it open: disks of other machines (NFS, CIFS)
/// and of programs (FUSE) may tell only then that they are full, and what closes a [`File`] passes over it.
///
/// # Errors
/// The system's, also where there is no descriptor left to ask with.
pub fn told_at_close(file: &File) -> io::Result<()> {
    loop {
        let copy = file.try_clone()?.into_raw_fd();
        // SAFETY: a descriptor of this function's own, which nobody else has seen.
        if unsafe { libc::close(copy) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // The descriptor is gone then, too, and the file may not have been written whole.
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A file that is written beside the one that it will replace. It has no name until it is whole, where the disk knows
/// such files: nothing of it is left then, however this process ends.
#[derive(Debug)]
pub struct Aside {
    file: File,
    folder: PathBuf,
    name: Option<TempPath>,
}

impl Aside {
    /// Makes a file in a folder, with what the user's mask leaves of these rights.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(folder: &Path, mode: u32) -> io::Result<Self> {
        let folder = folder.to_owned();
        if let Some(file) = nameless(&folder, mode) {
            return Ok(Self { file, folder, name: None });
        }
        // Opened here, so that the system's own errors come back.
        let open = |part: &Path| File::options().read(true).write(true).create_new(true).mode(mode).open(part);
        let (file, name) = for_a_while().make_in(&folder, open)?.into_parts();
        Ok(Self { file, folder, name: Some(name) })
    }

    /// What is written to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// A name that it has from now on, and that goes with what is returned: to be renamed.
    ///
    /// # Errors
    /// The system's.
    pub fn take_name(&mut self) -> io::Result<TempPath> {
        match self.name.take() {
            Some(name) => Ok(name),
            None => Ok(for_a_while().make_in(&self.folder, |path| give_name(&self.file, path))?.into_temp_path()),
        }
    }
}

/// How files are called that have no name of their own yet.
fn for_a_while() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(".gabion-").suffix(".part");
    builder
}

/// A file without a name, which can be given one later; `None` where the system or the disk knows none.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn nameless(folder: &Path, mode: u32) -> Option<File> {
    let file = File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(mode).open(folder).ok()?;
    // It is named by this path, and so nothing but a name in the folder would do where there is no such path.
    let found = fs::metadata(path_of(&file)).ok()?;
    is_same(&found, &file.metadata().ok()?).then_some(file)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn nameless(_: &Path, _: u32) -> Option<File> {
    None
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn path_of(file: &File) -> String {
    format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn give_name(file: &File, path: &Path) -> io::Result<()> {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    let (from, to) = (CString::new(path_of(file))?, CString::new(path.as_os_str().as_bytes())?);
    // SAFETY: two paths that end with a zero, and live over the call.
    let answer =
        unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// There are no files without a name here.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn give_name(_: &File, _: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}
