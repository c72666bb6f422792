//! Piles in files: what is there after the next opening.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use gabion_blocks::file::FileError;
use gabion_pile::{OpenOptions, Pile, PileError, Pointer, ReadBuf};

/// A path of this test's own, which is gone with the value.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gabion-{}-{name}.pile", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Self(path)
    }

    fn open(&self) -> Pile {
        Pile::open(&self.0, &one_shard()).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn one_shard() -> OpenOptions {
    OpenOptions { shards: Some(1), ..OpenOptions::default() }
}

fn payload(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 8 + number * 31 + at % 7) as u8).collect()
}

const LENGTHS: [usize; 14] = [0, 1, 7, 8, 40, 75, 247, 1015, 1016, 1017, 5000, 100_000, 1 << 20, (1 << 20) + 1];

fn check(pile: &Pile, live: &HashMap<Pointer, Vec<u8>>) {
    let mut buf = ReadBuf::new();
    for (&pointer, bytes) in live {
        assert!(pile.read(pointer, &mut buf).unwrap() == bytes, "{pointer:?}, {} bytes", bytes.len());
    }
    assert_eq!(pile.len(), live.len() as u64);
    pile.validate().unwrap();
}

#[test]
fn what_was_put_is_there_again_with_its_pointer() {
    let place = Place::new("again");
    let (pile, mut live) = (place.open(), HashMap::new());
    for (number, &length) in LENGTHS.iter().cycle().take(60).enumerate() {
        let bytes = payload(number, length);
        live.insert(pile.put(&bytes).unwrap(), bytes);
    }
    check(&pile, &live);
    let stats = pile.stats();
    drop(pile);
    for _ in 0..3 {
        let pile = place.open();
        check(&pile, &live);
        let again = pile.stats();
        assert_eq!(
            (again.objects, again.used_bytes, again.away_objects),
            (stats.objects, stats.used_bytes, stats.away_objects)
        );
        assert_eq!((again.large_objects, again.reserved_bytes), (stats.large_objects, stats.reserved_bytes));
    }
    assert_eq!(Pile::check(&place.0).unwrap().objects, live.len() as u64);
}

#[test]
fn pointers_of_removed_objects_are_refused_for_ever() {
    let place = Place::new("stale");
    let mut gone = Vec::new();
    for round in 0..5 {
        let pile = place.open();
        let fresh: Vec<_> = (0..200).map(|at| pile.put(&payload(at, at * 11 % 3000)).unwrap()).collect();
        for &pointer in &gone {
            assert!(matches!(pile.remove(pointer), Err(PileError::Pointer { .. })), "round {round}");
        }
        assert!(fresh.iter().all(|pointer| !gone.contains(pointer)));
        match round {
            1 => pile.clear(),
            _ => fresh.iter().for_each(|&pointer| pile.remove(pointer).unwrap()),
        }
        gone.extend(fresh);
        assert!(pile.is_empty());
        pile.validate().unwrap();
    }
}

/// Numbers below a bound, one after another.
fn chance(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |end| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % end
    }
}

fn seed() -> u64 {
    let seed = std::env::var("GABION_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("GABION_SEED={seed}");
    (seed * 2 + 1_u64).wrapping_mul(0x9E37_79B9_97F4_A7C1)
}

#[test]
fn whatever_is_done_between_two_openings_is_there() {
    let (place, mut below) = (Place::new("model"), chance(seed()));
    let (mut live, mut gone) = (HashMap::<Pointer, Vec<u8>>::new(), Vec::new());
    let mut number = 0;
    for _ in 0..12 {
        let pile = Arc::new(place.open());
        check(&pile, &live);
        let mut views = Vec::new();
        for _ in 0..400 {
            number += 1;
            let length = match below(8) {
                0..4 => below(300),
                4 | 5 => below(2000),
                6 => below(30_000),
                _ => below(20) * 100_000,
            };
            let bytes = payload(number, length as usize);
            let some = live.keys().copied().nth(below(live.len().max(1) as u64) as usize);
            match (below(9), some) {
                (0..4, _) | (_, None) => {
                    let reserve = below(3) * below(500);
                    live.insert(pile.put_with_reserve(&bytes, reserve as usize).unwrap(), bytes);
                }
                (4 | 5, Some(pointer)) => {
                    pile.replace(pointer, &bytes).unwrap();
                    live.insert(pointer, bytes);
                }
                (6, Some(pointer)) => views.push((pile.view(pointer).unwrap(), live[&pointer].clone())),
                (_, Some(pointer)) => {
                    pile.remove(pointer).unwrap();
                    live.remove(&pointer);
                    gone.push(pointer);
                }
            }
        }
        assert!(views.iter().all(|(view, bytes)| **view == **bytes));
        if below(4) == 0 {
            pile.compact();
        }
        check(&pile, &live);
        assert!(gone.iter().all(|&pointer| !pile.contains(pointer)));
        // What views look at is pinned in the file, and is let go when it is opened again.
        if !views.is_empty() {
            let copy = Place::new("copy");
            std::fs::copy(&place.0, &copy.0).unwrap();
            check(&copy.open(), &live);
        }
    }
}

#[test]
fn a_file_is_open_once() {
    let place = Place::new("once");
    let pile = Arc::new(place.open());
    let pointer = pile.put(b"stone").unwrap();
    assert!(matches!(Pile::open(&place.0, &one_shard()), Err(FileError::InUse)));
    assert!(matches!(Pile::check(&place.0), Err(FileError::InUse)));
    let long = pile.put(&vec![7; 2 << 20]).unwrap();
    let views = [pointer, long].map(|pointer| pile.view(pointer).unwrap());
    assert!(!pile.let_go().unwrap(), "views look at it");
    for view in views {
        assert!(matches!(Pile::open(&place.0, &one_shard()), Err(FileError::InUse)));
        drop(view);
    }
    let again = place.open();
    assert_eq!(*again.read(pointer, &mut ReadBuf::new()).unwrap(), *b"stone");
    // The one that was let go refuses everything.
    assert!(!pile.contains(pointer) && pile.put(b"more").is_err() && pile.remove(pointer).is_err());
    assert_eq!(pile.len(), 0);
    pile.clear();
    pile.compact();
    drop(pile);
    check(&again, &HashMap::from([(pointer, b"stone".to_vec()), (long, vec![7; 2 << 20])]));
}

#[test]
fn many_may_read_at_one_time_and_change_nothing() {
    let place = Place::new("read");
    let pile = place.open();
    let live: HashMap<_, _> =
        (0..40).map(|at| (pile.put(&payload(at, at * 997)).unwrap(), payload(at, at * 997))).collect();
    drop(pile);
    let before = std::fs::read(&place.0).unwrap();
    let reading = OpenOptions { read_only: true, ..one_shard() };
    let readers: Vec<_> = (0..3).map(|_| Pile::open(&place.0, &reading).unwrap()).collect();
    assert!(matches!(Pile::open(&place.0, &one_shard()), Err(FileError::InUse)));
    for reader in &readers {
        check(reader, &live);
        let own = reader.put(b"mine").unwrap();
        for &pointer in live.keys() {
            reader.remove(pointer).unwrap();
        }
        assert_eq!(reader.pop(own, &mut ReadBuf::new()).unwrap(), b"mine");
        reader.flush().unwrap();
        assert!(reader.append(b"record").is_err());
    }
    drop(readers);
    assert!(std::fs::read(&place.0).unwrap() == before, "the file has changed");
    check(&place.open(), &live);
}

#[test]
fn a_root_is_where_the_next_process_begins() {
    let place = Place::new("root");
    for round in 0..3 {
        let pile = place.open();
        let before = pile.root();
        assert_eq!(before.is_some(), round > 0);
        if let Some(pointer) = before {
            assert_eq!(pile.read(pointer, &mut ReadBuf::new()).unwrap(), [round - 1; 9]);
            pile.remove(pointer).unwrap();
            assert!(pile.set_root(before).is_err(), "it is gone");
        }
        pile.set_root(Some(pile.put(&[round; 9]).unwrap())).unwrap();
    }
    let pile = place.open();
    pile.set_root(None).unwrap();
    assert!(pile.root().is_none());
    let memory = Pile::new().unwrap();
    let pointer = memory.put(b"stone").unwrap();
    assert!(memory.root().is_none() && memory.set_root(Some(pointer)).is_ok() && memory.root() == Some(pointer));
}

#[test]
fn a_log_is_as_it_was_written() {
    let place = Place::new("log");
    let mut all = Vec::new();
    for round in 0..4 {
        let pile = place.open();
        assert!(pile.log().unwrap() == all);
        for at in 0..30 {
            let record = payload(at + round, at * at * 700);
            pile.append(&record).unwrap();
            all.extend_from_slice(&record);
        }
        assert!(pile.log().unwrap() == all);
        assert!(pile.append(&vec![0; 4 << 20]).is_err());
        pile.put(b"stone").unwrap();
    }
    assert_eq!(place.open().summary().unwrap().log_blocks, 6);
}

#[test]
fn a_word_of_the_table_that_was_changed_is_told() {
    use std::os::unix::fs::FileExt;
    const TABLE: u64 = 4 << 20;
    let place = Place::new("table");
    let pile = place.open();
    let mut live = HashMap::new();
    for len in [9, 40_000, 3 << 20, 9 << 20] {
        live.insert(pile.put(&payload(len, len)).unwrap(), payload(len, len));
    }
    pile.append(b"record").unwrap();
    let gone = pile.put(&payload(1, 5 << 20)).unwrap();
    pile.remove(gone).unwrap();
    let blocks = pile.summary().unwrap();
    drop(pile);
    assert!(blocks.free_blocks > 0, "{blocks:?}");
    let end = blocks.heap_blocks + blocks.run_blocks + blocks.log_blocks + blocks.free_blocks;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&place.0).unwrap();
    for position in 0..end {
        let (at, mut word) = (TABLE + 8 * position, [0; 8]);
        file.read_exact_at(&mut word, at).unwrap();
        let was = u64::from_le_bytes(word);
        for changed in (0..64).map(|bit| was ^ 1 << bit).chain([0]) {
            file.write_all_at(&changed.to_le_bytes(), at).unwrap();
            match Pile::open(&place.0, &OpenOptions { read_only: true, ..one_shard() }) {
                Err(FileError::Damaged { .. }) => {}
                // What was never used is as good as what is free.
                Ok(pile) => assert!(changed == 0 && pile.len() == 4, "block {position}: {was:x} to {changed:x}"),
                Err(error) => panic!("block {position}: {was:x} to {changed:x}: {error}"),
            }
        }
        file.write_all_at(&word, at).unwrap();
    }
    check(&place.open(), &live);
}

#[test]
fn a_word_that_was_changed_is_told_or_does_no_harm() {
    use std::os::unix::fs::FileExt;
    let (place, mut below) = (Place::new("changed"), chance(seed()));
    let pile = place.open();
    let all: Vec<_> =
        (0..150).map(|at| pile.put_with_reserve(&payload(at, LENGTHS[at % 12] + at), at % 3 * 90).unwrap()).collect();
    pile.put(&payload(1, 3 << 20)).unwrap();
    pile.append(b"record").unwrap();
    for (at, &pointer) in all.iter().enumerate() {
        match at % 5 {
            0 => pile.remove(pointer).unwrap(),
            1 => pile.replace(pointer, &payload(at, 40 * at)).unwrap(),
            _ => {}
        }
    }
    let live = pile.len();
    drop(pile);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&place.0).unwrap();
    let bytes = std::fs::read(&place.0).unwrap();
    let words: Vec<usize> =
        bytes.as_chunks::<8>().0.iter().enumerate().filter(|(_, word)| **word != [0; 8]).map(|(at, _)| at).collect();
    let (mut told, mut harmless) = (0, 0);
    for round in 0..400 {
        // Headers, bitmaps and tags are few among the words: from the beginning of something, every other time.
        let at = match round % 3 {
            0 => words[below(words.len() as u64) as usize],
            1 => words[below(90) as usize],
            _ => {
                let page = below(bytes.len() as u64 / (64 << 10)) as usize;
                page * 8192 + below(200) as usize
            }
        };
        let was = u64::from_le_bytes(bytes[8 * at..][..8].try_into().unwrap());
        let changed = match below(4) {
            0 => 0,
            1 => was ^ below(1 << 53) << 11 ^ below(1 << 12),
            _ => was ^ 1 << below(64),
        };
        file.write_all_at(&changed.to_le_bytes(), 8 * at as u64).unwrap();
        let reading = OpenOptions { read_only: true, ..one_shard() };
        match Pile::open(&place.0, &reading) {
            Err(FileError::Damaged { .. } | FileError::NotOurs | FileError::Format { .. }) => told += 1,
            Err(error) => panic!("word {at}: {was:x} to {changed:x}: {error}"),
            Ok(pile) => {
                harmless += 1;
                pile.validate().unwrap_or_else(|wrong| panic!("word {at}: {was:x} to {changed:x}: {wrong}"));
                let (mut buf, mut count) = (ReadBuf::new(), 0);
                for pointer in pile.pointers() {
                    pile.read(pointer, &mut buf).unwrap();
                    count += 1;
                }
                assert!(count == pile.len() && count.abs_diff(live) <= 1, "word {at}: {count} of {live}");
                let _ = pile.log();
                // What is there can be changed.
                for pointer in pile.pointers().collect::<Vec<_>>() {
                    let _ = pile.replace(pointer, b"other");
                    pile.remove(pointer).unwrap();
                }
                pile.validate().unwrap();
            }
        }
        file.write_all_at(&was.to_le_bytes(), 8 * at as u64).unwrap();
    }
    println!("{told} told, {harmless} harmless");
    assert_eq!(place.open().len(), live);
}
