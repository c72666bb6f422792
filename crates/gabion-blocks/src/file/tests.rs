//! Files of blocks, and what is no such file.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

use super::layout::{HEAD_BYTES, Use, offset_of, table_word};
use super::{BlockFile, Draft, FileError, FileOptions, Numbering};
use crate::inside::is_inside;
use crate::os::TwinDisk;
use crate::sync::Ordering::Relaxed;
use crate::{BLOCK_BYTES, BlockError, BlockSet, LARGEST_SYSTEM_PAGE, Piece, Pool, Run};

/// A path of this test's own, which is gone with the value.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gabion-blocks-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

const WRITE: FileOptions = FileOptions { shards: 2, create: true, read_only: false, disk: None };
const READ: FileOptions = FileOptions { shards: 2, create: false, read_only: true, disk: None };

fn set(place: &Place, options: &FileOptions) -> (Arc<BlockFile>, BlockSet) {
    let file = BlockFile::open(&place.0, options).unwrap();
    (Arc::clone(&file), BlockSet::in_file(Pool::global(), file).unwrap())
}

/// What it asks of an allocator that stands on gabion would wait for that one's locks.
#[test]
fn who_has_the_lock_of_a_file_is_inside() {
    let place = Place::new("inside");
    let file = BlockFile::open(&place.0, &WRITE).unwrap();
    assert!(!is_inside());
    let state = file.lock();
    assert!(is_inside() && file.try_lock().is_none());
    drop(state);
    assert!(!is_inside() && file.try_lock().is_some());
}

#[test]
fn blocks_are_found_again_under_their_numbers() {
    let place = Place::new("found");
    let (file, blocks) = set(&place, &WRITE);
    assert!(file.blocks() == 0 && file.is_shared() && file.shards() == 2 && blocks.is_empty());
    let numbers: Vec<u32> = (0..70).map(|_| blocks.map().unwrap().0).collect();
    for (at, &number) in numbers.iter().enumerate() {
        blocks.block(number).unwrap().word(1).store(1, Relaxed);
        blocks.block(number).unwrap().word(at * 1000).store(at as u64 + 7, Relaxed);
    }
    assert!(blocks.generation_floor(numbers[0]) == file.first_generation());
    drop((blocks, file));
    let (file, blocks) = set(&place, &FileOptions { shards: 8, ..WRITE });
    assert!(file.shards() == 2, "the file says how many shards there are");
    assert_eq!(blocks.numbers(), numbers);
    let word = |at: usize| blocks.block(numbers[at]).unwrap().word(at * 1000).load(Relaxed);
    assert!((0..70).all(|at| word(at) == at as u64 + 7));
    assert!(blocks.block(numbers[69].wrapping_add(1) % (1 << 20)).is_none());
}

#[test]
fn runs_stay_that_are_somebodys() {
    let place = Place::new("runs");
    let (file, _) = set(&place, &WRITE);
    let bytes: Vec<u8> = (0..9_000_000_u32).map(|at| (at * 7) as u8).collect();
    let kept = Run::in_file(&file, Piece::list(&[&bytes[..5], &bytes[5..]])).unwrap();
    kept.own(5);
    drop(Run::in_file(&file, Piece::list(&[&bytes])).unwrap());
    let begun = Run::in_file(&file, Piece::list(&[b"begun"])).unwrap();
    assert_eq!((file.summary().run_blocks, file.summary().free_blocks), (4, 2));
    let path = Place::new("runs-copy");
    fs::copy(&place.0, &path.0).unwrap();
    drop((kept, begun, file));
    for place in [&place, &path] {
        let file = BlockFile::open(&place.0, &WRITE).unwrap();
        let runs = file.runs().unwrap();
        let (room, owner) = runs[0];
        assert_eq!(owner, 5);
        // SAFETY: the first value that stands for it.
        assert!(unsafe { Run::found(&file, room) }.bytes() == bytes);
        // What nobody owns is for whoever looks through the runs to let go.
        assert!(runs[1..].iter().all(|&(_, owner)| owner == 0));
    }
}

#[test]
fn what_is_no_file_of_ours_is_left_alone() {
    let place = Place::new("other");
    let contents: [&[u8]; 5] =
        [b"x", b"SQLite format 3\0 and so on", &[0; 100], &[0xFF; 5000], &vec![0; HEAD_BYTES + 5]];
    for content in contents {
        fs::write(&place.0, content).unwrap();
        assert!(matches!(BlockFile::open(&place.0, &WRITE), Err(FileError::NotOurs)), "{} bytes", content.len());
        assert!(fs::read(&place.0).unwrap() == content);
    }
    for options in [WRITE, READ] {
        let Err(FileError::System { error, .. }) = BlockFile::open(&std::env::temp_dir(), &options) else { panic!() };
        assert_eq!(error.kind(), std::io::ErrorKind::IsADirectory);
    }
    let missing = std::env::temp_dir().join("gabion-nowhere").join("x");
    for options in [WRITE, READ] {
        assert!(matches!(BlockFile::open(&missing, &options), Err(FileError::System { .. })));
    }
    fs::write(&place.0, b"").unwrap();
    assert!(matches!(BlockFile::open(&place.0, &READ), Err(FileError::NotOurs)));
    assert!(BlockFile::open(&place.0, &WRITE).unwrap().blocks() == 0, "an empty file is as good as none");
}

#[test]
fn a_file_that_was_cut_off_or_changed_is_refused() {
    let place = Place::new("damaged");
    let (file, blocks) = set(&place, &WRITE);
    for _ in 0..3 {
        let number = blocks.map().unwrap().0;
        blocks.block(number).unwrap().word(9).store(5, Relaxed);
    }
    let run = Run::in_file(&file, Piece::list(&[&vec![7; 5_000_000]])).unwrap();
    run.own(1);
    file.append(b"record").unwrap();
    drop((run, blocks, file));
    let whole = fs::read(&place.0).unwrap();
    let refused = |bytes: &[u8], why: &str| {
        fs::write(&place.0, bytes).unwrap();
        let said = BlockFile::open(&place.0, &READ).and_then(|file| file.log()).unwrap_err().to_string();
        assert!(said.contains(why), "{said}, not: {why}");
    };
    let no_pile = "the file is no pile of gabion's";
    let cut_off = [
        (40, no_pile),
        (4096, "the file ends within its table"),
        (HEAD_BYTES - 1, "the file ends within its table"),
        (HEAD_BYTES, "the file is shorter than its table says"),
        (HEAD_BYTES + BLOCK_BYTES, "the file is shorter than its table says"),
        (whole.len() - 1, "the file ends within a block"),
    ];
    for (length, why) in cut_off {
        refused(&whole[..length], why);
    }
    let changed = |at: usize, word: u64, why: &str| {
        let mut bytes = whole.clone();
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        refused(&bytes, why);
    };
    for (at, why) in [(0, no_pile), (1, "the file has format")] {
        changed(8 * at, u64::from_le_bytes(whole[8 * at..][..8].try_into().unwrap()) ^ 1 << 20, why);
    }
    for at in 2..5 {
        let word = u64::from_le_bytes(whole[8 * at..][..8].try_into().unwrap()) ^ 1 << 20;
        changed(8 * at, word, "the superblock does not add up");
    }
    let table = |position: u32| table_word(position) * 8;
    let too_long = "a run is longer than its blocks, or they are not there";
    changed(table(0), 9, "the table says what no version says");
    changed(table(0), Use::Untouched.word(), "the table says that a block was never used, and something is there");
    changed(table(0), Use::Run { blocks: 9 }.word(), too_long);
    changed(table(3), Use::Run { blocks: 1 }.word(), too_long);
    changed(offset_of(3) as usize, u64::MAX, too_long);
    changed(table(4), Use::Heap.word(), "a run is cut off");
    changed(table(77), Use::Heap.word(), "the file is shorter than its table says");
    // The log: where it ends, how long its record is, what it holds, which block it is.
    let log = offset_of(5) as usize;
    let changes = [
        (8, u64::MAX, "a block of the log makes no sense"),
        (8, 65, "a block of the log makes no sense"),
        (8, 1 << 20, "a record of the log does not add up"),
        (64, 1 << 30, "a record of the log is longer than the log"),
        (72, 7, "a record of the log does not add up"),
        (0, 2, "a block of the log is missing before this one"),
    ];
    for (at, word, why) in changes {
        changed(log + at, word, why);
    }
    fs::write(&place.0, &whole).unwrap();
    assert_eq!(BlockFile::open(&place.0, &READ).unwrap().log().unwrap(), b"record");
}

#[test]
fn what_is_free_is_taken_from_the_first_block_on() {
    let place = Place::new("first-free");
    let (file, blocks) = set(&place, &WRITE);
    let mut runs: Vec<_> =
        (0..4).map(|_| Some(Run::in_file(&file, Piece::list(&[&vec![7; 5_000_000]])).unwrap())).collect();
    for (gone, taken) in [(2, 1), (0, 2), (3, 1), (1, 4)] {
        drop(runs[gone].take());
        (0..taken).for_each(|_| _ = blocks.map().unwrap());
    }
    assert_eq!((file.blocks(), file.summary().free_blocks, file.summary().heap_blocks), (8, 0, 8));
    blocks.map().unwrap();
    assert_eq!(file.blocks(), 9, "nothing was free any more");
}

/// Another program wrote to the table while the file was open, and blocks of others were free.
#[test]
fn a_run_gives_back_what_it_took() {
    let place = Place::new("changed-run");
    let (file, blocks) = set(&place, &WRITE);
    let run = Run::in_file(&file, Piece::list(&[&vec![7; 5_000_000]])).unwrap();
    let behind = Run::in_file(&file, Piece::list(&[&vec![8; 5_000_000]])).unwrap();
    let word = Use::Run { blocks: 3 }.word().to_le_bytes();
    fs::File::options().write(true).open(&place.0).unwrap().write_all_at(&word, table_word(0) as u64 * 8).unwrap();
    drop(run);
    assert_eq!((file.summary().run_blocks, file.summary().free_blocks), (2, 2));
    let other = Run::in_file(&file, Piece::list(&[&vec![9; 9_000_000]])).unwrap();
    assert!(behind.bytes().iter().all(|&byte| byte == 8) && other.bytes().iter().all(|&byte| byte == 9));
    drop(blocks);
}

/// Another program wrote to the log while the file was open, and the next record was a panic, or lay beyond the block.
#[test]
fn a_log_that_was_changed_takes_records_and_is_damaged() {
    for end in [u64::MAX - 7, u64::MAX, 65, 0, BLOCK_BYTES as u64 + 8] {
        let place = Place::new("changed-log");
        let file = BlockFile::open(&place.0, &WRITE).unwrap();
        file.append(b"first").unwrap();
        let at = offset_of(0) + 8;
        fs::File::options().write(true).open(&place.0).unwrap().write_all_at(&end.to_le_bytes(), at).unwrap();
        file.append(b"next").unwrap();
        let Err(FileError::Damaged { .. }) = file.log() else { panic!("{end}") };
    }
}

#[test]
fn a_full_disk_changes_nothing() {
    let disk: &'static TwinDisk = Box::leak(Box::default());
    let place = Place::new("full");
    let options = FileOptions { disk: Some(disk), ..WRITE };
    for steps in 0..3 {
        disk.refuse_after(steps, libc::ENOSPC);
        assert!(matches!(BlockFile::open(&place.0, &options), Err(FileError::System { .. })), "{steps}");
        // One that was made and got its lock, but not its room, is taken away; what was there before stays.
        assert_eq!(fs::exists(&place.0).unwrap(), steps != 1, "{steps}");
        drop(fs::remove_file(&place.0));
    }
    fs::write(&place.0, []).unwrap();
    disk.refuse_after(1, libc::ENOSPC);
    assert!(matches!(BlockFile::open(&place.0, &options), Err(FileError::System { .. })));
    assert_eq!(fs::metadata(&place.0).unwrap().len(), 0);
    disk.allow();
    let (file, blocks) = set(&place, &options);
    let number = blocks.map().unwrap().0;
    blocks.block(number).unwrap().word(9).store(5, Relaxed);
    disk.refuse_after(0, libc::ENOSPC);
    let refused = |error: BlockError| assert!(matches!(error, BlockError::Disk { errno: libc::ENOSPC, .. }), "{error}");
    let length = || fs::metadata(&place.0).unwrap().len();
    let before = length();
    for _ in 0..3 {
        refused(blocks.map().unwrap_err());
        refused(Run::in_file(&file, Piece::list(&[&vec![1; 5 << 20]])).unwrap_err());
        refused(file.append(b"record").unwrap_err());
        assert!(file.flush().is_err());
    }
    assert_eq!((blocks.len(), length()), (1, before));
    disk.allow();
    for steps in 1..8 {
        disk.refuse_after(steps, libc::ENOMEM);
        let mut before = length();
        while blocks.map().is_ok() {
            before = length();
        }
        assert_eq!(length(), before, "the disk keeps no room for what could not be mapped");
        disk.allow();
        blocks.map().unwrap();
        file.append(&vec![7; 1 << 20]).unwrap();
    }
    file.flush().unwrap();
    let count = blocks.len();
    drop((blocks, file));
    assert_eq!(disk.reserved(), 0);
    let (file, blocks) = set(&place, &READ);
    assert!(blocks.len() == count && blocks.block(number).unwrap().word(9).load(Relaxed) == 5);
    assert_eq!(file.log().unwrap(), vec![7; 7 << 20]);
    assert!(matches!(blocks.map(), Err(BlockError::Setting { .. })), "it is open for reading");
}

/// A file that was saved, or copied without what is zero, has holes in its table. A store to one of them ended the
/// process where the disk was full.
#[test]
fn the_disk_keeps_room_for_the_table_of_a_file_that_was_not_grown() {
    let place = Place::new("table");
    let mut draft = Draft::begin(&place.0, Numbering::From { first: 0, shards: 1 }, None).unwrap();
    draft.reach(3).unwrap();
    draft.finish(0, &[]).unwrap();
    let taken = || 512 * fs::metadata(&place.0).unwrap().blocks();
    let kept = 2 * LARGEST_SYSTEM_PAGE as u64;
    assert!(taken() < kept);
    let file = BlockFile::open(&place.0, &WRITE).unwrap();
    assert!(taken() >= kept, "superblock and table");
    assert_eq!(file.summary().free_blocks, 3);
}

/// A file of a few KiB that says that all of it is used had the disk keep room for that.
#[test]
fn blocks_without_anything_in_them_are_free_for_who_opens_the_file_next() {
    let place = Place::new("hollow");
    let (file, blocks) = set(&place, &WRITE);
    let numbers = [(); 4].map(|()| blocks.map().unwrap().0);
    blocks.block(numbers[2]).unwrap().word(9).store(5, Relaxed);
    drop((blocks, file));
    let (file, blocks) = set(&place, &READ);
    assert_eq!((blocks.numbers(), file.summary().free_blocks), (numbers.to_vec(), 0), "nothing is changed to read");
    drop((blocks, file));
    let (file, blocks) = set(&place, &WRITE);
    assert_eq!((blocks.numbers(), file.summary().free_blocks), (vec![numbers[2]], 3));
    assert_eq!(blocks.block(numbers[2]).unwrap().word(9).load(Relaxed), 5);
}

#[test]
fn a_disk_without_room_for_a_copy_is_not_filled_by_a_part_of_it() {
    let disk: &'static TwinDisk = Box::leak(Box::default());
    let place = Place::new("copied");
    let options = FileOptions { disk: Some(disk), ..WRITE };
    let (file, blocks) = set(&place, &options);
    for _ in 0..5 {
        let number = blocks.map().unwrap().0;
        blocks.block(number).unwrap().word(9).store(5, Relaxed);
    }
    drop((blocks, file));
    // What was not written has no room in the copy.
    let (whole, copy) = (fs::read(&place.0).unwrap(), Place::new("copy"));
    let sparse = fs::File::create(&copy.0).unwrap();
    sparse.set_len(whole.len() as u64).unwrap();
    for (at, piece) in (0..).step_by(4096).zip(whole.chunks(4096)) {
        if piece.iter().any(|&byte| byte != 0) {
            sparse.write_all_at(piece, at).unwrap();
        }
    }
    let taken = || 512 * fs::metadata(&copy.0).unwrap().blocks();
    let before = taken();
    disk.say_room(5 * BLOCK_BYTES as u64 - 1);
    let refused = BlockFile::open(&copy.0, &options).err().unwrap();
    assert!(matches!(&refused, FileError::System { error, .. } if error.raw_os_error() == Some(libc::ENOSPC)));
    assert!(taken() < before + BLOCK_BYTES as u64, "no block was kept");
    disk.say_room(5 * BLOCK_BYTES as u64);
    let (file, blocks) = set(&copy, &options);
    assert_eq!((blocks.len(), file.summary().free_blocks), (5, 0));
}

/// Another file that has got the number of a file's descriptor, which the program closed.
struct Stranger {
    place: Place,
    file: fs::File,
    number: i32,
}

const STRANGERS: &[u8] = &[7; 5000];

impl Stranger {
    fn in_place_of(file: &BlockFile, name: &str) -> Self {
        let place = Place::new(name);
        fs::write(&place.0, STRANGERS).unwrap();
        let number = file.own().unwrap().as_raw_fd();
        let file = fs::File::options().read(true).write(true).open(&place.0).unwrap();
        // SAFETY: two open descriptors; the file looks whose the number is before it uses it.
        assert!(unsafe { libc::dup2(file.as_raw_fd(), number) == number && libc::flock(number, libc::LOCK_EX) == 0 });
        Self { place, file, number }
    }

    /// Nothing was done to it, and its number still leads to it.
    fn is_left_alone(&self) -> bool {
        let again = fs::File::open(&self.place.0).unwrap();
        // SAFETY: numbers, and an open file.
        let locked = unsafe { libc::flock(again.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) != 0 };
        // SAFETY: a number, open or not.
        let open = unsafe { libc::fcntl(self.number, libc::F_GETFD) >= 0 };
        locked && open && fs::read(&self.place.0).unwrap() == STRANGERS && self.file.metadata().unwrap().len() == 5000
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // SAFETY: its own, and open.
        unsafe { libc::close(self.number) };
    }
}

/// A program that closed all descriptors had its next file lengthened and written to, unlocked and closed.
#[test]
fn another_file_that_got_the_descriptors_number_is_left_alone() {
    let place = Place::new("descriptor");
    let (file, blocks) = set(&place, &WRITE);
    let number = blocks.map().unwrap().0;
    blocks.block(number).unwrap().word(1).store(1, Relaxed);
    blocks.block(number).unwrap().word(9).store(77, Relaxed);
    let run = Run::in_file(&file, Piece::list(&[b"of no use"])).unwrap();
    let stranger = Stranger::in_place_of(&file, "stranger");
    assert_eq!(blocks.map().unwrap_err(), BlockError::DescriptorLost);
    assert_eq!(Run::in_file(&file, Piece::list(&[b"more"])).unwrap_err(), BlockError::DescriptorLost);
    drop(run);
    assert!(matches!(file.flush(), Err(FileError::DescriptorLost)));
    assert!(stranger.is_left_alone());
    assert_eq!(blocks.block(number).unwrap().word(9).load(Relaxed), 77, "what is mapped stays");
    // SAFETY: nobody has a slice of it.
    assert!(matches!(unsafe { file.let_go() }, Err(FileError::DescriptorLost)));
    drop((file, blocks));
    assert!(stranger.is_left_alone());
    let (_, blocks) = set(&place, &WRITE);
    assert_eq!(blocks.block(number).unwrap().word(9).load(Relaxed), 77);
}

/// A file that was let go stayed open as long as its value lived.
#[test]
fn a_file_that_was_let_go_has_no_descriptor() {
    let place = Place::new("let-go");
    let (file, blocks) = set(&place, &WRITE);
    let about = fs::metadata(&place.0).unwrap();
    let is_open = || {
        let open = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::metadata(entry.ok()?.path()).ok());
        open.into_iter().any(|found| (found.dev(), found.ino()) == (about.dev(), about.ino()))
    };
    assert!(is_open());
    for _ in 0..2 {
        // SAFETY: nobody has a slice of it.
        unsafe { file.let_go() }.unwrap();
        assert!(!is_open());
    }
    assert!(file.flush().is_err() && blocks.map().is_err());
    drop((file, blocks));
}
