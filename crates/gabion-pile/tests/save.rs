//! Piles that are saved: what is in the file, what else stays as it was.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gabion_blocks::BLOCK_BYTES;
use gabion_blocks::file::FileError;
use gabion_blocks::os::TwinDisk;
use gabion_pile::{OpenOptions, Pile, PileOptions, Pointer, ReadBuf};

/// A folder of this test's own, which is gone with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gabion-{}-save-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

type Live = HashMap<Pointer, Vec<u8>>;

/// Has writers end, however this thread comes to its end.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn in_memory(shards: usize) -> Pile {
    Pile::with_options(PileOptions { shards: Some(shards), ..PileOptions::default() }).unwrap()
}

fn open(path: &Path) -> Pile {
    Pile::open(path, &OpenOptions { create: false, ..OpenOptions::default() }).unwrap()
}

fn payload(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 8 + number * 31 + at % 7) as u8).collect()
}

/// Puts, replaces and removes objects of all kinds. Returns what is there, and pointers of what is not any more.
fn fill(pile: &Pile, rounds: usize) -> (Live, Vec<Pointer>) {
    const LENGTHS: [usize; 13] =
        [0, 1, 7, 8, 75, 247, 1015, 1016, 1017, 5000, 100_000, 1 << 20, (1 << 20) + BLOCK_BYTES];
    let (mut live, mut gone) = (Live::new(), Vec::new());
    let mut random = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    for number in 0..rounds {
        // Few long ones.
        let most = if next(20) == 0 { LENGTHS.len() } else { LENGTHS.len() - 4 };
        let bytes = payload(number, LENGTHS[next(most)]);
        let known = live.keys().nth(next(live.len().max(1)).min(40)).copied();
        match (next(4), known) {
            (0, Some(pointer)) => {
                pile.replace(pointer, &bytes).unwrap();
                live.insert(pointer, bytes);
            }
            (1, Some(pointer)) => {
                pile.remove(pointer).unwrap();
                live.remove(&pointer);
                gone.push(pointer);
            }
            _ => {
                live.insert(pile.put_with_reserve(&bytes, next(2) * next(300)).unwrap(), bytes);
            }
        }
    }
    (live, gone)
}

fn check(pile: &Pile, live: &Live, gone: &[Pointer]) {
    let mut buf = ReadBuf::new();
    for (&pointer, bytes) in live {
        assert!(pile.read(pointer, &mut buf).unwrap() == bytes, "{pointer:?}, {} bytes", bytes.len());
    }
    assert!(gone.iter().all(|&pointer| !pile.contains(pointer)));
    assert_eq!(pile.len(), live.len() as u64);
    pile.validate().unwrap();
}

#[test]
fn what_is_in_memory_is_in_the_file_with_its_pointers() {
    let folder = Folder::new("memory");
    for (shards, rounds) in [(1, 0), (1, 1), (1, 3000), (4, 3000)] {
        let (pile, path) = (in_memory(shards), folder.at("saved"));
        // Numbers of blocks between its own are others'.
        let other = in_memory(1);
        let (mut live, mut gone) = fill(&pile, rounds);
        let foreign = other.put(&[1; 5000]).unwrap();
        let (more, freed) = fill(&pile, rounds);
        live.extend(more);
        gone.extend(freed);
        gone.retain(|pointer| !live.contains_key(pointer));
        let root = live.keys().next().copied();
        pile.set_root(root).unwrap();
        pile.save(&path).unwrap();
        check(&pile, &live, &gone);
        // Also after it was opened and closed: what is made anew then is another thing.
        for _ in 0..2 {
            let saved = open(&path);
            check(&saved, &live, &gone);
            assert_eq!(saved.root(), root);
            assert!(!saved.contains(foreign) || live.contains_key(&foreign));
        }
        // And it is a pile as any other.
        let saved = open(&path);
        let (more, freed) = fill(&saved, 2000);
        let mut all = live.clone();
        all.extend(more);
        gone.extend(freed);
        gone.retain(|pointer| !all.contains_key(pointer));
        check(&saved, &all, &gone);
        drop(saved);
        check(&open(&path), &all, &gone);
        check(&pile, &live, &[]);
    }
    assert_eq!(folder.names(), ["saved"]);
}

/// A run has a number, which is below that of the file's blocks: in memory, it need not be.
#[test]
fn the_last_of_many_runs_is_saved() {
    let (folder, pile) = (Folder::new("last"), in_memory(1));
    let mut runs: Vec<_> = (0..40).map(|number| pile.put(&payload(number, 3 << 19)).unwrap()).collect();
    let last = runs.pop().unwrap();
    for &run in &runs {
        pile.remove(run).unwrap();
    }
    pile.save(folder.at("saved")).unwrap();
    check(&open(&folder.at("saved")), &Live::from([(last, payload(39, 3 << 19))]), &runs);
}

#[test]
fn a_pile_in_a_file_is_saved_to_another() {
    let folder = Folder::new("file");
    let (path, copy) = (folder.at("own"), folder.at("copy"));
    let pile = Pile::open(&path, &OpenOptions { shards: Some(2), ..OpenOptions::default() }).unwrap();
    pile.append(b"a record").unwrap();
    let (mut live, mut gone) = fill(&pile, 3000);
    pile.append(&vec![7; 5 << 19]).unwrap();
    pile.append(&vec![8; 5 << 19]).unwrap();
    pile.save(&copy).unwrap();
    {
        let saved = open(&copy);
        check(&saved, &live, &gone);
        assert!(saved.log().unwrap() == pile.log().unwrap() && pile.log().unwrap().len() == 8 + (5 << 20));
        assert_eq!(saved.summary().unwrap().id, pile.summary().unwrap().id);
    }
    // Over the one before, of which others still read.
    let reader = Pile::open(&copy, &OpenOptions { read_only: true, ..OpenOptions::default() }).unwrap();
    let before = live.clone();
    for (&pointer, bytes) in &mut live {
        *bytes = payload(bytes.len(), 90);
        pile.replace(pointer, bytes).unwrap();
    }
    pile.save(&copy).unwrap();
    check(&reader, &before, &gone);
    check(&open(&copy), &live, &gone);
    // Out of one that is open for reading only, and as this process has changed it.
    let (pointer, bytes) = before.iter().find(|(_, bytes)| bytes.len() > 8).unwrap();
    reader.remove(*pointer).unwrap();
    drop(pile);
    reader.save(&path).unwrap();
    let mut left = before.clone();
    assert_eq!(left.remove(pointer).as_ref(), Some(bytes));
    gone.push(*pointer);
    check(&open(&path), &left, &gone);
    assert_eq!(folder.names(), ["copy", "own"]);
}

#[test]
fn what_is_no_pile_or_in_use_stays() {
    let folder = Folder::new("refused");
    let pile = in_memory(1);
    let pointer = pile.put(b"stone").unwrap();
    let text = folder.at("notes.txt");
    fs::write(&text, "notes").unwrap();
    assert!(matches!(pile.save(&text), Err(FileError::NotOurs)));
    assert_eq!(fs::read(&text).unwrap(), b"notes");
    assert!(matches!(pile.save("/dev/null"), Err(FileError::NotOurs)));
    let gone = [folder.0.clone(), folder.at("no/such"), text.join("below")];
    assert!(gone.iter().all(|path| matches!(pile.save(path), Err(FileError::System { .. }))));
    let own = folder.at("own");
    let in_file = Pile::open(&own, &OpenOptions::default()).unwrap();
    let kept = in_file.put(b"kept").unwrap();
    assert!(matches!(in_file.save(&own), Err(FileError::InUse)));
    assert!(matches!(pile.save(&own), Err(FileError::InUse)));
    assert!(in_file.contains(kept));
    // One that was let go has nothing left.
    assert!(in_file.let_go().unwrap());
    assert!(in_file.save(folder.at("late")).is_err());
    assert!(open(&own).contains(kept));
    // A damaged one may be replaced, an empty one, and what a link leads to.
    let (damaged, empty, link) = (folder.at("damaged"), folder.at("empty"), folder.at("link"));
    pile.save(&damaged).unwrap();
    fs::OpenOptions::new().write(true).open(&damaged).unwrap().set_len(5000).unwrap();
    fs::write(&empty, "").unwrap();
    std::os::unix::fs::symlink("empty", &link).unwrap();
    let dangling = folder.at("dangling");
    std::os::unix::fs::symlink("made", &dangling).unwrap();
    for path in [&damaged, &link, &empty, &dangling] {
        pile.save(path).unwrap();
        assert!(open(path).contains(pointer));
    }
    assert!([&link, &dangling].iter().all(|path| fs::symlink_metadata(path).unwrap().is_symlink()));
    assert_eq!(folder.names(), ["damaged", "dangling", "empty", "link", "made", "notes.txt", "own"]);
}

/// A text that came while the pile was saved, and a pile that was opened there, were overwritten without a word.
#[test]
fn what_comes_meanwhile_is_looked_at() {
    let (folder, pile) = (Folder::new("meanwhile"), in_memory(1));
    let pointer = pile.put(b"stone").unwrap();
    let path = folder.at("saved");
    let begin = || pile.begin_save(&path, None).unwrap();
    let text = || fs::write(&path, "a text").unwrap();
    for before in [false, true] {
        // Where nothing was, and where there was a file before.
        let prepare = || {
            let _ = fs::remove_file(&path);
            if before {
                pile.save(&path).unwrap();
            }
            let saving = begin();
            let _ = fs::rename(&path, folder.at("away"));
            saving
        };
        let saving = prepare();
        text();
        assert!(matches!(saving.finish(&[]), Err(FileError::NotOurs)));
        assert_eq!(fs::read(&path).unwrap(), b"a text");
        let saving = prepare();
        let own = Pile::open(&path, &OpenOptions::default()).unwrap();
        let kept = own.put(b"kept").unwrap();
        assert!(matches!(saving.finish(&[]), Err(FileError::InUse)));
        drop(own);
        assert!(open(&path).contains(kept));
        // One that nobody has open is replaced as it is at the beginning, and what is gone is no hindrance.
        for there in [true, false] {
            let saving = prepare();
            if there {
                drop(Pile::open(&path, &OpenOptions::default()).unwrap());
            }
            saving.finish(&[]).unwrap();
            assert!(open(&path).contains(pointer));
        }
    }
    let _ = fs::remove_file(folder.at("away"));
    assert_eq!(folder.names(), ["saved"]);
}

/// Between its opening and its lock, a file lost its name to a saved one: what was put into it was nobody's.
#[test]
fn who_opens_a_file_has_the_one_of_that_name() {
    let (folder, pile) = (Folder::new("opened"), Arc::new(in_memory(1)));
    let pointer = pile.put(b"stone").unwrap();
    let path = folder.at("saved");
    let disk: &TwinDisk = Box::leak(Box::new(TwinDisk::new()));
    for before in [false, true] {
        for read_only in [false, true] {
            let _ = fs::remove_file(&path);
            if before || read_only {
                in_memory(1).save(&path).unwrap();
            }
            let (saver, place) = (Arc::clone(&pile), path.clone());
            disk.before_lock(move || saver.save(&place).unwrap());
            let own =
                Pile::open(&path, &OpenOptions { read_only, disk: Some(disk), ..OpenOptions::default() }).unwrap();
            assert!(own.contains(pointer), "before: {before}, read only: {read_only}");
            let id = *fs::read(&path).unwrap()[16..].first_chunk().unwrap();
            assert_eq!(own.summary().unwrap().id, u64::from_le_bytes(id));
        }
    }
}

/// Blocks that were added to a saved file had the numbers of other piles' and their generations, and so their pointers.
#[test]
fn pointers_of_neighbours_are_refused_whatever_comes_later() {
    let folder = Folder::new("neighbours");
    let (pile, other, dropped) = (in_memory(1), in_memory(1), in_memory(1));
    let mut foreign = Vec::new();
    for round in 0..6000 {
        foreign.extend([other.put(&[2; 1000]).unwrap(), dropped.put(&[3; 1000]).unwrap()]);
        // Some of its numbers were another's before, others are chunks'.
        pile.put(&vec![1; 1000 + round % 2 * 900]).unwrap();
    }
    drop(dropped);
    for _ in 0..6000 {
        pile.put(&[1; 1900]).unwrap();
    }
    let mut gone: Vec<_> = (0..6000).map(|_| pile.put(&[1; 1000]).unwrap()).collect();
    for &pointer in &gone {
        pile.remove(pointer).unwrap();
    }
    gone.extend(pile.pointers());
    pile.save(folder.at("before")).unwrap();
    pile.clear();
    pile.put(&[1; 1900]).unwrap();
    for name in ["before", "after"] {
        let path = folder.at(name);
        if name == "after" {
            pile.save(&path).unwrap();
        }
        let saved = open(&path);
        saved.clear();
        let put: std::collections::HashSet<_> = (0..30_000).map(|_| saved.put(&[4; 1000]).unwrap()).collect();
        assert_eq!(put.len(), 30_000);
        assert!(!foreign.iter().chain(&gone).any(|pointer| put.contains(pointer)), "{name}");
        saved.validate().unwrap();
    }
}

/// What was removed stood in the file, in slots and chunks that were free, and beside what was shorter than what it
/// replaced.
#[test]
fn nothing_of_what_was_removed_is_in_the_file() {
    let (folder, pile) = (Folder::new("removed"), in_memory(1));
    let secret = |length: usize| b"secret! ".iter().copied().cycle().take(length).collect::<Vec<_>>();
    let lengths = [40, 200, 900, 3000, 70_000, 600_000];
    let pointers: Vec<_> =
        (0..300).map(|number| pile.put_with_reserve(&secret(lengths[number % 6]), number % 2 * 100).unwrap()).collect();
    for (number, &pointer) in pointers.iter().enumerate() {
        match number % 11 {
            0 => pile.replace(pointer, b"short").unwrap(),
            1 => pile.replace(pointer, &[0; 1500]).unwrap(),
            2 => pile.replace(pointer, &[0; 2500]).unwrap(),
            _ => pile.remove(pointer).unwrap(),
        }
    }
    // What views look at is their own affair, and so is what stood behind slots of another size.
    let pile = Arc::new(pile);
    let viewed: Vec<_> = lengths.iter().map(|&length| pile.put(&secret(length)).unwrap()).collect();
    let views: Vec<_> = viewed.iter().map(|&pointer| pile.view(pointer).unwrap()).collect();
    for (number, &pointer) in viewed.iter().enumerate() {
        if number % 2 == 0 { pile.remove(pointer).unwrap() } else { pile.replace(pointer, &[0; 2000]).unwrap() }
    }
    let crowd: Vec<_> = (0..3000).map(|number| pile.put(&secret(100 + number % 900)).unwrap()).collect();
    for pointer in crowd {
        pile.remove(pointer).unwrap();
    }
    (0..1000).for_each(|number| assert!(pile.put(&vec![0; 8 * (number % 120)]).is_ok()));
    let path = folder.at("saved");
    pile.save(&path).unwrap();
    assert!(views.iter().zip(lengths).all(|(view, length)| **view == *secret(length)));
    let bytes = fs::read(&path).unwrap();
    let found = bytes.windows(6).position(|window| window == b"secret");
    assert_eq!(found, None);
    let taken = std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&path).unwrap()) * 512;
    assert!(taken < 6 << 20, "{taken} bytes of the disk");
    open(&path).validate().unwrap();
}

#[test]
fn a_disk_that_is_full_leaves_the_file_before() {
    let folder = Folder::new("full");
    let (pile, path) = (in_memory(1), folder.at("saved"));
    let (live, gone) = fill(&pile, 400);
    pile.save(&path).unwrap();
    pile.put(b"new").unwrap();
    let disk: &TwinDisk = Box::leak(Box::new(TwinDisk::new()));
    let mut steps = 0;
    loop {
        disk.refuse_after(steps, libc::ENOSPC);
        let saved = pile.begin_save(&path, Some(disk)).and_then(|saving| saving.finish(b"a record"));
        match saved {
            Ok(()) => break,
            Err(FileError::System { error, .. }) => assert_eq!(error.raw_os_error(), Some(libc::ENOSPC)),
            Err(other) => panic!("step {steps}: {other:?}"),
        }
        assert_eq!(folder.names(), ["saved"], "step {steps}");
        if steps % 16 == 0 {
            check(&open(&path), &live, &gone);
        }
        steps += 1;
    }
    assert!(steps > 20);
    let saved = open(&path);
    assert_eq!((saved.len(), saved.log().unwrap()), (live.len() as u64 + 1, b"a record".to_vec()));
    drop(saved);
    drop(pile.begin_save(&path, None).unwrap());
    assert_eq!(folder.names(), ["saved"], "what is not finished is gone");
}

/// Each writer counts its first object up, then its second: at no moment do they differ by more than one. Others put,
/// replace and remove what is in chunks and runs.
#[test]
fn what_is_saved_is_the_pile_at_one_moment() {
    const WRITERS: usize = 3;
    let folder = Folder::new("moment");
    for pile in [in_memory(4), Pile::open(folder.at("own"), &OpenOptions::default()).unwrap()] {
        let number = |number: u64, length: usize| [&number.to_le_bytes()[..], &vec![number as u8; length]].concat();
        let pairs: Vec<[Pointer; 2]> =
            (0..WRITERS).map(|_| [0, 1].map(|_| pile.put(&number(0, 40)).unwrap())).collect();
        let (done, path) = (AtomicBool::new(false), folder.at("saved"));
        std::thread::scope(|scope| {
            for (writer, pair) in pairs.iter().enumerate() {
                let (pile, done) = (&pile, &done);
                scope.spawn(move || {
                    let mut others = Vec::new();
                    for count in 1.. {
                        let length = [40, 200, 3000, 1 << 20][if count % 500 == 0 { 3 } else { count as usize % 3 }];
                        for &pointer in pair {
                            pile.replace(pointer, &number(count, length)).unwrap();
                        }
                        others.push(pile.put(&number(count, 77 * writer)).unwrap());
                        if others.len() > 2000 {
                            others.drain(..1500).for_each(|other| pile.remove(other).unwrap());
                        }
                        if done.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                });
            }
            let _stop = Stop(&done);
            for _ in 0..12 {
                pile.save(&path).unwrap();
                let (saved, mut buf) = (open(&path), ReadBuf::new());
                saved.validate().unwrap();
                for pair in &pairs {
                    let counts = pair.map(|pointer| {
                        let bytes = saved.read(pointer, &mut buf).unwrap();
                        assert!(bytes[8..].iter().all(|byte| *byte == bytes[0]), "of one piece");
                        u64::from_le_bytes(*bytes.first_chunk().unwrap())
                    });
                    assert!((counts[1]..=counts[1] + 1).contains(&counts[0]), "two moments: {counts:?}");
                }
            }
        });
        pile.validate().unwrap();
    }
}
