//! What went wrong with piles in files once, or nearly: files that were damaged by who let go of them, or refused by
//! who opens them.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use gabion_blocks::file::FileError;
use gabion_pile::{OpenOptions, Pile, Pointer, ReadBuf};

/// A path of this test's own, which is gone with the value.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gabion-{}-again-{name}.pile", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Self(path)
    }

    fn open(&self) -> Pile {
        open(&self.0).unwrap()
    }

    fn file(&self) -> std::fs::File {
        std::fs::OpenOptions::new().read(true).write(true).open(&self.0).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn open(path: &Path) -> Result<Pile, FileError> {
    Pile::open(path, &OpenOptions { shards: Some(1), ..OpenOptions::default() })
}

/// Opens a file that has just been let go. A child that another test starts may have it for a moment.
fn open_soon(path: &Path) -> Pile {
    let begun = std::time::Instant::now();
    loop {
        match open(path) {
            Ok(pile) => return pile,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(30), "not let go: {error}"),
        }
        std::thread::yield_now();
    }
}

/// Sets a flag in the end.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A view of what was removed has no pin where it is a run's, and its memory was taken from under it.
#[test]
fn a_view_of_what_is_gone_keeps_the_file() {
    let place = Place::new("view");
    let pile = Arc::new(place.open());
    let pointer = pile.put(&vec![7; 2 << 20]).unwrap();
    let view = pile.view(pointer).unwrap();
    pile.remove(pointer).unwrap();
    assert!(!pile.let_go().unwrap());
    assert_eq!(*view, vec![7; 2 << 20]);
    assert!(matches!(open(&place.0), Err(FileError::InUse)));
    drop(view);
    assert_eq!(place.open().len(), 0);
}

/// The head of the file was still mapped: a root that was set there was another process's.
#[test]
fn who_has_let_go_writes_no_more() {
    let place = Place::new("gone");
    let old = place.open();
    let pointer = old.put(b"stone").unwrap();
    old.set_root(Some(pointer)).unwrap();
    old.append(b"record").unwrap();
    assert!(old.let_go().unwrap());
    let new = place.open();
    let _ = old.set_root(None);
    assert!(old.append(b"another").is_err() && old.flush().is_err());
    assert_eq!((new.root(), new.log().unwrap()), (Some(pointer), b"record".to_vec()));
    assert_eq!((old.root(), old.log().unwrap()), (None, Vec::new()));
}

#[test]
fn a_log_that_ends_nowhere_is_told() {
    for (word, value) in [(1, u64::MAX - 7), (1, 65), (1, 1 << 40), (1, 8), (0, 0), (0, u64::MAX)] {
        let place = Place::new("log");
        let pile = place.open();
        pile.append(b"first").unwrap();
        drop(pile);
        place.file().write_all_at(&value.to_le_bytes(), (12 << 20) + 8 * word).unwrap();
        assert!(matches!(open(&place.0), Err(FileError::Damaged { .. })), "{value} in word {word}");
    }
}

/// They would have been taken for the beginning of the next block, which reads as zero.
#[test]
fn bytes_behind_the_last_block_are_told() {
    let place = Place::new("tail");
    drop(place.open());
    for bytes in [1, 3 << 20, (4 << 20) - 1] {
        place.file().set_len(12 << 20).unwrap();
        place.file().write_all_at(&vec![0xA5; bytes], 12 << 20).unwrap();
        assert!(matches!(open(&place.0), Err(FileError::Damaged { .. })), "{bytes} bytes");
    }
    place.file().write_all_at(&vec![0xA5; 4 << 20], 12 << 20).unwrap();
    assert!(
        matches!(open(&place.0), Err(FileError::Damaged { .. })),
        "a block that was never used has something in it"
    );
    // What is in a free block is nobody's concern.
    place.file().write_all_at(&0x0F_u64.to_le_bytes(), 4 << 20).unwrap();
    let pointer = place.open().put(b"stone").unwrap();
    let pile = place.open();
    assert_eq!(pile.read(pointer, &mut ReadBuf::new()).unwrap(), b"stone");
    pile.validate().unwrap();
}

/// Nobody could have removed it.
#[test]
fn an_object_of_no_generation_is_told() {
    let place = Place::new("generation");
    let pointer = place.open().put(&[3; 40]).unwrap();
    let (file, at) = (place.file(), (12 << 20) + (pointer.to_bits() >> 1 & ((1 << 19) - 1)) * 8);
    let mut word = [0; 8];
    file.read_exact_at(&mut word, at).unwrap();
    let forged = u64::from_le_bytes(word) | ((1 << 20) - 1) << 2;
    file.write_all_at(&forged.to_le_bytes(), at).unwrap();
    assert!(matches!(open(&place.0), Err(FileError::Damaged { .. })));
}

#[test]
fn a_file_is_let_go_beside_all_who_use_it() {
    for round in 0..12 {
        let place = Place::new("beside");
        let pile = Arc::new(place.open());
        let all: Vec<_> = (0..40_usize).map(|at| pile.put(&vec![7; at * 700]).unwrap()).collect();
        let (long, stop) = (pile.put(&vec![7; 2 << 20]).unwrap(), AtomicBool::new(false));
        let (pile, all, stop) = (&pile, &all, &stop);
        std::thread::scope(|scope| {
            // Also where something goes wrong: the others are waited for.
            let end = Ending(stop);
            for thread in 0..3 {
                scope.spawn(move || {
                    let (mut buf, mut turn) = (ReadBuf::new(), 0);
                    while !stop.load(Relaxed) {
                        turn += 1;
                        let sevens = |bytes: &[u8]| assert!(bytes.iter().all(|&byte| byte == 7));
                        match thread {
                            0 => {
                                let _ = pile.read(all[turn % 40], &mut buf).map(sevens);
                                let _ = pile.view(long).map(|view| sevens(&view));
                            }
                            1 => {
                                let Ok(pointer) = pile.put(&vec![7; turn % 3000]) else { continue };
                                let _ = pile.replace(pointer, &[7; 90]);
                                let _ = pile.remove(pointer);
                            }
                            _ => {
                                let Ok(pointer) = pile.put(&vec![7; (1 << 20) + 9]) else { continue };
                                let view = pile.view(pointer);
                                let _ = pile.remove(pointer);
                                let _ = view.map(|view| sevens(&view));
                            }
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(3 + round));
            // Once: whoever was in the way goes on with it.
            pile.let_go().unwrap();
            drop(open_soon(&place.0));
            drop(end);
        });
        let again = open_soon(&place.0);
        again.validate().unwrap();
        assert!(all.iter().all(|&pointer| again.contains(pointer)));
    }
}

/// Runs that a call had taken out of the pile, and was just unmapping, were taken for somebody's who reads: the file
/// stayed locked.
#[test]
fn a_file_that_is_let_go_beside_calls_is_let_go_by_the_last_of_them() {
    let place = Place::new("calls");
    let large = vec![7; (1 << 20) + 9];
    for round in 0..60 {
        let pile = open_soon(&place.0);
        let pointers: Vec<_> = (0..8).map(|_| pile.put(&large).unwrap()).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| match round % 4 {
                0 => pile.clear(),
                // Each is refused from some moment on.
                1 => pointers.iter().for_each(|&pointer| _ = pile.remove(pointer)),
                2 => pointers.iter().for_each(|&pointer| _ = pile.replace(pointer, b"short")),
                _ => pointers.iter().for_each(|&pointer| _ = pile.begins_with(pointer, &large[..100])),
            });
            std::thread::sleep(Duration::from_micros(round * 50));
            pile.let_go().unwrap();
        });
        drop(open_soon(&place.0));
    }
}

/// A put for which the limit left no page made the file longer by a block.
#[test]
fn a_put_that_is_refused_leaves_the_file_as_long_as_it_was() {
    let place = Place::new("refused");
    let options = OpenOptions { shards: Some(1), max_bytes: Some(64 << 10), ..OpenOptions::default() };
    let pile = Pile::open(&place.0, &options).unwrap();
    pile.put(b"all that there is room for").unwrap();
    let before = (pile.stats().blocks, place.file().metadata().unwrap().len());
    assert!(pile.put(&[7; 5000]).is_err());
    assert_eq!((pile.stats().blocks, place.file().metadata().unwrap().len()), before);
    pile.validate().unwrap();
}

/// It counted pages that had become free in the file, which stays as long as it is.
#[test]
fn a_file_gives_nothing_back_when_it_is_made_compact() {
    let place = Place::new("compact");
    let pile = place.open();
    for length in [100, 5000] {
        let pointers: Vec<_> = (0..2000).map(|_| pile.put(&vec![7; length]).unwrap()).collect();
        for pointer in pointers {
            pile.remove(pointer).unwrap();
        }
        assert_eq!(pile.compact(), 0, "{length}");
    }
}

const CHILD: &str = "GABION_CLEARED_CHILD";

#[test]
fn the_child_that_clears() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let pile = open(Path::new(&path)).unwrap();
    println!("\nclearing");
    std::io::stdout().flush().unwrap();
    pile.clear();
    println!("\ncleared");
    std::thread::sleep(Duration::from_secs(60));
}

/// Pages went one by one, and with them payloads whose objects were still there: no such file was ever opened again.
#[test]
fn who_is_killed_while_it_clears_leaves_each_object_or_not() {
    let (mut partly, mut seed) = (0, 0x9E37_79B9_7F4A_7C15_u64);
    for round in 0..12_u64 {
        let place = Place::new("cleared");
        let pile = place.open();
        let large: Vec<_> = (0..2000).map(|_| pile.put(&[1; 1000]).unwrap()).collect();
        // Their payloads move into what others have left.
        let moved: Vec<_> = (0..2000).map(|_| pile.put(&[2; 20]).unwrap()).collect();
        for &pointer in &moved {
            pile.replace(pointer, &[3; 990]).unwrap();
        }
        let long: Vec<_> = (0..3).map(|_| pile.put(&vec![4; 2 << 20]).unwrap()).collect();
        drop(pile);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_child_that_clears", "--nocapture"])
            .env(CHILD, &place.0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line == "clearing"));
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
        std::thread::sleep(Duration::from_micros((seed >> 32) % 1500));
        child.kill().unwrap();
        child.wait().unwrap();
        let pile = place.open();
        pile.validate().unwrap();
        let (mut buf, mut left) = (ReadBuf::new(), 0);
        let mut look = |pointers: &[Pointer], wanted: &[u8]| {
            for &pointer in pointers {
                if let Ok(found) = pile.read(pointer, &mut buf) {
                    assert!(found == wanted);
                    left += 1;
                }
            }
        };
        look(&large, &[1; 1000]);
        look(&moved, &[3; 990]);
        look(&long, &vec![4; 2 << 20]);
        assert_eq!(left, pile.len());
        partly += u32::from(left > 0 && left < 4003);
        pile.clear();
        assert!(pile.is_empty());
        pile.validate().unwrap();
    }
    println!("{partly} of 12 were killed in the midst of it");
}
