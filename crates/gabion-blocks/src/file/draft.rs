//! A file that is written whole, beside the one that it replaces, and given its name when it is complete.

use std::fs::{self, File, Metadata};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::error::FileError;
use super::layout::{
    LOG_END, LOG_HEAD, LOG_SEQUENCE, ROOT, RUN_HEAD, RUN_LENGTH, RUN_OWNER, Superblock, TABLE, Use, blocks_for,
    offset_of, sum_of_bytes,
};
use super::log::LONGEST_RECORD;
use super::mapped::BlockFile;
use super::opening::{ATTEMPTS, How, is_begun, not_locked, open_file, read_whole};
use crate::directory::BLOCK_NUMBERS;
use crate::error::BlockError;
use crate::fallible::make_room;
use crate::os::beside::{Aside, end_of_links, folder_of, hand_down, is_same};
use crate::os::{Disk, system_disk};
use crate::unique::unique_number;
use crate::{BLOCK_BYTES, PAGE_BYTES, SYSTEM_PAGE};

/// Which numbers the blocks of a new file have.
#[derive(Debug, Clone, Copy)]
pub enum Numbering<'a> {
    /// Those that they have in another file: pointers of the one are good for the other.
    Of(&'a BlockFile),
    /// Numbers of this process, none of them below `first`.
    From {
        /// The lowest number.
        first: u32,
        /// Shards of the owner: a power of two.
        shards: usize,
    },
}

/// The file that has the name so far, locked: nobody opens it, to write, who would then write to what has no name.
struct Old {
    file: File,
    about: Metadata,
    disk: &'static dyn Disk,
}

impl Old {
    /// Opens and locks what stands in a place; refuses what is no pile's, or is open to write.
    fn open(place: &Path, disk: &'static dyn Disk) -> Result<Self, FileError> {
        // One that may not be written to is not to be replaced, though the rights of its folder would do.
        let (file, _) = open_file(place, How { create: false, write: true })?;
        disk.lock(&file, false).map_err(not_locked)?;
        let about = file.metadata().map_err(FileError::system("look at the file"))?;
        let (length, old) = (about.len(), Self { file, about, disk });
        match if length == 0 { Ok(true) } else { is_begun(&old.file, length) } {
            Ok(_) | Err(FileError::Damaged { .. }) => Ok(old),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Old {
    fn drop(&mut self) {
        // By itself it goes with the last who shares the opening, such as a forked child.
        self.disk.unlock(&self.file);
    }
}

/// What a pile's file is to be. Nobody sees it before [`Draft::finish`], and it is gone if it is dropped before.
pub struct Draft {
    file: Aside,
    place: PathBuf,
    old: Option<Old>,
    disk: &'static dyn Disk,
    superblock: Superblock,
    /// What each block is used for.
    table: Vec<Use>,
    /// What was read to be compared.
    seen: Vec<u8>,
}

impl Draft {
    /// Begins a file that is to have a name. What has that name must be a pile's file that nobody has open to write, or
    /// be empty, or not there. It stays as it is until [`Draft::finish`]; links lead to the file that is replaced.
    ///
    /// # Errors
    /// [`FileError::NotOurs`], [`FileError::InUse`], [`FileError::System`], [`FileError::Blocks`].
    pub fn begin(path: &Path, numbering: Numbering<'_>, disk: Option<&'static dyn Disk>) -> Result<Self, FileError> {
        let disk = disk.unwrap_or_else(system_disk);
        let (place, old) = standing(&place_of(path)?, disk)?;
        let file = Aside::begin(folder_of(&place), 0o600).map_err(FileError::system("make the file"))?;
        let superblock = match numbering {
            Numbering::Of(file) => file.superblock(),
            Numbering::From { first, shards } => Superblock::numbered(unique_number(), shards as u32, first),
        };
        let mut seen = Vec::new();
        make_room(&mut seen, PAGE_BYTES)?;
        seen.resize(PAGE_BYTES, 0);
        Ok(Self { file, place, old, disk, superblock, table: Vec::new(), seen })
    }

    /// Says that there is a block of a heap under this number. It reads as zero where nothing is written.
    ///
    /// # Errors
    /// [`FileError::Blocks`].
    pub fn add_heap_block(&mut self, number: u32) -> Result<(), FileError> {
        let position = self.superblock.position_of(number);
        // Between blocks of one owner may be numbers of others: they are used for nothing.
        self.reach(position + 1)?;
        self.table[position as usize] = Use::Heap;
        Ok(())
    }

    /// Writes a part of a block of a heap, a page at most. `again`: something may have been written there before.
    ///
    /// # Errors
    /// [`FileError::System`].
    ///
    /// # Panics
    /// When it is no part of a block, or longer than a page.
    pub fn write(&mut self, number: u32, at: usize, bytes: &[u8], again: bool) -> Result<(), FileError> {
        assert!(at <= BLOCK_BYTES && bytes.len() <= BLOCK_BYTES - at, "bytes beyond a block");
        let from = offset_of(self.superblock.position_of(number)) + at as u64;
        if again {
            self.see(from, bytes.len())?;
        }
        // Rows of what stands there otherwise; nothing stands there at first. What is zero takes nothing of the disk.
        let end_of = |piece: usize| bytes.len().min(piece + SYSTEM_PAGE);
        let stands = |piece: usize| {
            let (wanted, seen) = (&bytes[piece..end_of(piece)], &self.seen[piece..end_of(piece)]);
            if again { wanted == seen } else { is_zero(wanted) }
        };
        let mut at = 0;
        while at < bytes.len() {
            let mut end = at;
            while end < bytes.len() && !stands(end) {
                end = end_of(end);
            }
            if end > at {
                self.put(&bytes[at..end], from + at as u64)?;
            }
            at = end_of(end);
        }
        Ok(())
    }

    /// Adds a run of bytes. `owner` is whose it is, and not 0: its owner says what that means.
    ///
    /// # Errors
    /// [`FileError::System`]; [`FileError::Blocks`] when there is no memory, or no number, for its blocks.
    pub fn add_run(&mut self, owner: u64, bytes: &[u8]) -> Result<(), FileError> {
        let blocks = blocks_for(bytes.len()).ok_or(NO_NUMBER)?;
        let position = self.add(Use::Run { blocks }, blocks)?;
        let mut head = [0; RUN_HEAD];
        set_word(&mut head, RUN_LENGTH, bytes.len() as u64);
        set_word(&mut head, RUN_OWNER, owner);
        self.put(&head, offset_of(position))?;
        self.put(bytes, offset_of(position) + RUN_HEAD as u64)
    }

    /// Has the file be as long as that many blocks at least. Those that nothing was said of are free, and take nothing
    /// of the disk.
    ///
    /// # Errors
    /// [`FileError::Blocks`].
    pub fn reach(&mut self, blocks: u32) -> Result<(), FileError> {
        let end = self.table.len().max(blocks as usize);
        let more = end - self.table.len();
        make_room(&mut self.table, more)?;
        self.table.resize(end, Use::Nothing);
        Ok(())
    }

    /// Completes the file, with these records and this root, waits until it is on the disk, and gives it its name.
    ///
    /// # Errors
    /// As [`Draft::add_run`]; what had the name has it still, unless the disk failed after the new file got it.
    pub fn finish(mut self, root: u64, records: &[u8]) -> Result<(), FileError> {
        records.chunks(LONGEST_RECORD).enumerate().try_for_each(|(at, piece)| self.add_log(at as u64 + 1, piece))?;
        let mut words = Vec::new();
        make_room(&mut words, self.table.len() * 8)?;
        words.extend(self.table.iter().flat_map(|what| what.word().to_le_bytes()));
        self.put(&words, TABLE as u64)?;
        let mut head = [0; 8 * (ROOT + 1)];
        self.superblock.words().into_iter().enumerate().for_each(|(at, word)| set_word(&mut head, at, word));
        set_word(&mut head, ROOT, root);
        self.put(&head, 0)?;
        self.take_after_old()?;
        let (file, doing) = (self.file.file(), "write the file to the disk");
        file.set_len(offset_of(self.table.len() as u32)).map_err(FileError::system("write the file"))?;
        file.sync_all().map_err(FileError::system(doing))?;
        let place = self.give_name()?;
        // The name is on the disk with its folder. One that may not be read, or cannot be waited for, is left to the
        // system.
        match File::open(folder_of(&place)).and_then(|folder| folder.sync_all()) {
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Err(FileError::system(doing)(error)),
            _ => Ok(()),
        }
    }

    /// Gives the file its name, in the place of what was looked at. What came there since is looked at first.
    fn give_name(mut self) -> Result<PathBuf, FileError> {
        let refused = |error| FileError::system("name the file")(error);
        let mut file = self.file.take_name().map_err(refused)?;
        for attempt in 1.. {
            // What comes between this look and the new name goes with the old file.
            let named = match &self.old {
                Some(old) if attempt == ATTEMPTS || leads_to(&self.place, &old.about) => file.persist(&self.place),
                Some(_) => {
                    self.look_again()?;
                    continue;
                }
                None => file.persist_noclobber(&self.place),
            };
            let error;
            (error, file) = match named {
                Ok(()) => return Ok(self.place),
                Err(refused) => (refused.error, refused.path),
            };
            if self.old.is_some() || attempt == ATTEMPTS {
                return Err(refused(error));
            }
            if error.kind() == ErrorKind::AlreadyExists {
                self.look_again()?;
                continue;
            }
            // Not every disk can give a name only where there is none.
            return match file.persist(&self.place) {
                Ok(()) => Ok(self.place),
                Err(error) => Err(refused(error.error)),
            };
        }
        unreachable!("attempts end")
    }

    /// Looks at what has the name by now.
    fn look_again(&mut self) -> Result<(), FileError> {
        (self.place, self.old) = standing(&self.place, self.disk)?;
        self.take_after_old()
    }

    /// Gives the file the mode of the one that has the name so far, and its owner where this process may.
    fn take_after_old(&self) -> Result<(), FileError> {
        let Some(Old { about, .. }) = &self.old else { return Ok(()) };
        hand_down(about, &self.place, self.file.file()).map_err(FileError::system("make the file"))
    }

    /// Adds a block of the log with one record.
    fn add_log(&mut self, sequence: u64, record: &[u8]) -> Result<(), FileError> {
        let end = LOG_HEAD + 8 + record.len().next_multiple_of(8);
        let mut block = Vec::new();
        make_room(&mut block, end)?;
        block.resize(end, 0);
        set_word(&mut block, LOG_SEQUENCE, sequence);
        set_word(&mut block, LOG_END, end as u64);
        set_word(&mut block, LOG_HEAD / 8, record.len() as u64 | sum_of_bytes(record) << 32);
        block[LOG_HEAD + 8..][..record.len()].copy_from_slice(record);
        let position = self.add(Use::Log, 1)?;
        self.put(&block, offset_of(position))
    }

    /// Adds blocks behind all others. Returns the position of the first.
    fn add(&mut self, what: Use, blocks: u32) -> Result<u32, FileError> {
        let position = self.table.len() as u32;
        let end = position.checked_add(blocks).filter(|&end| end <= BLOCK_NUMBERS).ok_or(NO_NUMBER)?;
        self.reach(end)?;
        self.table[position as usize] = what;
        self.table[position as usize + 1..].fill(Use::Rest);
        Ok(position)
    }

    fn put(&self, bytes: &[u8], at: u64) -> Result<(), FileError> {
        self.disk.write(self.file.file(), bytes, at).map_err(FileError::number("write the file"))
    }

    /// Reads what stands at a place, into `seen`.
    fn see(&mut self, from: u64, bytes: usize) -> Result<(), FileError> {
        let seen = &mut self.seen[..bytes];
        let read = read_whole(self.file.file(), seen, from)?;
        // Behind the end are zeros.
        seen[read..].fill(0);
        Ok(())
    }
}

const NO_NUMBER: BlockError = BlockError::Exhausted { what: "blocks of a file" };

fn set_word(bytes: &mut [u8], index: usize, word: u64) {
    bytes[8 * index..][..8].copy_from_slice(&word.to_le_bytes());
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<64>();
    words.iter().all(|word| word == &[0; 64]) && rest.iter().all(|&byte| byte == 0)
}

/// A path from the root on, so that it leads to the same place when the process has gone to another folder.
fn place_of(path: &Path) -> Result<PathBuf, FileError> {
    let refused = |errno| FileError::number("open the file")(errno);
    match path.as_os_str().as_bytes().last() {
        None => Err(refused(libc::ENOENT)),
        Some(b'/') => Err(refused(libc::EISDIR)),
        Some(b'.') if path.as_os_str().as_bytes().ends_with(b"/.") => Err(refused(libc::EISDIR)),
        Some(_) => std::path::absolute(path).map_err(FileError::system("open the file")),
    }
}

/// Where a file is to be, and what stands there.
fn standing(path: &Path, disk: &'static dyn Disk) -> Result<(PathBuf, Option<Old>), FileError> {
    let is_gone =
        |error: &FileError| matches!(error, FileError::System { error, .. } if error.kind() == ErrorKind::NotFound);
    for attempt in 1.. {
        // The system follows a link first, and refuses some, as another user's in `/tmp`: to resolve a path follows
        // none.
        if let Err(error) = fs::metadata(path)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(FileError::system("open the file")(error));
        }
        let place = match fs::canonicalize(path) {
            Ok(place) => place,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok((end_of_links(path).map_err(FileError::system("open the file"))?, None));
            }
            Err(error) => return Err(FileError::system("open the file")(error)),
        };
        match Old::open(&place, disk) {
            // It was removed between two looks.
            Err(error) if is_gone(&error) && attempt < ATTEMPTS => {}
            old => return Ok((place, Some(old?))),
        }
    }
    unreachable!("attempts end")
}

/// Whether a name leads to a file.
fn leads_to(place: &Path, file: &Metadata) -> bool {
    fs::symlink_metadata(place).is_ok_and(|found| is_same(&found, file))
}

impl std::fmt::Debug for Draft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Draft")
            .field("place", &self.place)
            .field("superblock", &self.superblock)
            .finish_non_exhaustive()
    }
}
