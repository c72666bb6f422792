//! What a killed process leaves: wherever it ends, between any two of its stores, the pile in its file opens, and
//! whatever it was at is done or is not.
//!
//! A run of operations is recorded, store by store. Then the file is built up again in the same order, and looked at on
//! the way: most often where an operation becomes true, which is its last stores. Some of these files are opened to be
//! written to, and what that changes is recorded and cut off in the same way.
//!
//! The seed is printed; `GABION_SEED` sets it, `GABION_KILLS` how many operations there are (30 by default).
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod trace;

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use gabion_blocks::file::FileError;
use gabion_blocks::os::Disk;
use gabion_pile::{OpenOptions, Pile, Pointer, ReadBuf};
use trace::Change;

/// Operations of one recording, at most.
const RECORDED: usize = 60;
/// Of each operation, so many of its last states are looked at, and so many others.
const LAST: usize = 24;
const OTHERS: usize = 12;
/// One of that many states is opened to write, and of what that changes that many states are looked at.
const WRITTEN_TO: u64 = 40;
const RECOVERIES: u64 = 6;

/// A small generator (Marsaglia 2003): the same numbers for the same seed, everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// A path of this test's own, which is gone with the value.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("gabion-{}-each-store-{name}.pile", std::process::id()));
        let _ = fs::remove_file(&path);
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn open(path: &Path, disk: Option<&'static dyn Disk>) -> Pile {
    let options = OpenOptions { shards: Some(1), disk, ..OpenOptions::default() };
    Pile::open(path, &options).unwrap()
}

/// What a pile holds, as far as a program can ask.
#[derive(Clone, Default, PartialEq)]
struct Contents {
    objects: BTreeMap<u64, Rc<[u8]>>,
    root: Option<Pointer>,
    log: Vec<u8>,
}

impl Contents {
    fn of(pile: &Pile) -> Self {
        let mut buf = ReadBuf::new();
        let objects = pile.pointers().map(|pointer| (pointer.to_bits(), pile.read(pointer, &mut buf).unwrap().into()));
        Self { objects: objects.collect(), root: pile.root(), log: pile.log().unwrap() }
    }

    /// Whether it is what `clear` leaves of `before` when it is cut off: some objects are gone.
    fn is_part_of(&self, before: &Self) -> bool {
        let same = |(pointer, bytes): (&u64, &Rc<[u8]>)| before.objects.get(pointer) == Some(bytes);
        self.objects.iter().all(same) && self.root == before.root && self.log == before.log
    }
}

/// An operation that was recorded.
struct Step {
    what: String,
    /// The first of its changes, and the first that is not.
    changes: std::ops::Range<usize>,
    before: Rc<Contents>,
    after: Rc<Contents>,
    /// It makes the file.
    makes: bool,
    /// It removes object after object.
    clears: bool,
}

impl Step {
    /// Checks that a pile is as it was before this, or as it is after it.
    fn check(&self, pile: &Pile) {
        pile.validate().unwrap();
        let found = Contents::of(pile);
        assert_eq!(pile.len(), found.objects.len() as u64);
        let cleared = self.clears && found.is_part_of(&self.before);
        assert!(found == *self.before || found == *self.after || cleared, "neither as before nor as after it");
        let gone = self.before.objects.keys().filter(|pointer| !found.objects.contains_key(pointer));
        assert!(gone.into_iter().all(|&pointer| !pile.contains(Pointer::from_bits(pointer).unwrap())));
    }
}

fn length(random: &mut Random) -> usize {
    let most = match random.below(40) {
        0..20 => 200,
        20..32 => 1200,
        32..37 => 6000,
        37..39 => 90_000,
        _ => return (1 << 20) - 200 + random.below(400) as usize,
    };
    random.below(most) as usize
}

fn payload(random: &mut Random) -> Vec<u8> {
    let (length, number) = (length(random), random.below(256) as usize);
    (0..length).map(|at| (at / 8 + number * 31 + at % 7) as u8).collect()
}

/// Does something to a pile, and to what is known of it. Returns what that was.
fn act(pile: &mut Pile, path: &Path, disk: &'static dyn Disk, known: &mut Contents, random: &mut Random) -> String {
    let some = known.objects.keys().nth(random.below(known.objects.len().max(1) as u64) as usize).copied();
    match (random.below(64), some) {
        (0..28, _) | (_, None) => {
            let (bytes, reserve) = (payload(random), random.below(2) as usize * 64);
            let pointer = pile.put_with_reserve(&bytes, reserve).unwrap().to_bits();
            let what = format!("put of {} bytes as {pointer:#x}", bytes.len());
            assert!(known.objects.insert(pointer, bytes.into()).is_none(), "the pointer is another object's");
            what
        }
        (28..44, Some(pointer)) => {
            let bytes = payload(random);
            pile.replace(Pointer::from_bits(pointer).unwrap(), &bytes).unwrap();
            let what = format!("replace of {pointer:#x} by {} bytes", bytes.len());
            known.objects.insert(pointer, bytes.into());
            what
        }
        (44..54, Some(pointer)) => {
            pile.remove(Pointer::from_bits(pointer).unwrap()).unwrap();
            known.objects.remove(&pointer);
            format!("remove of {pointer:#x}")
        }
        (54..56, Some(pointer)) => {
            let root = if random.below(4) > 0 { Pointer::from_bits(pointer) } else { None };
            pile.set_root(root).unwrap();
            known.root = root;
            format!("root {root:?}")
        }
        (56..58, _) => {
            let record = payload(random);
            pile.append(&record).unwrap();
            known.log.extend_from_slice(&record);
            format!("record of {} bytes", record.len())
        }
        (58..60, _) => format!("compact, {} bytes", pile.compact()),
        (60, _) => format!("page cleared: {}", pile.clear_page()),
        (61..63, _) => {
            // The file is locked as long as the first one has it.
            assert!(pile.let_go().unwrap());
            *pile = open(path, Some(disk));
            "opened again".into()
        }
        _ => {
            pile.clear();
            known.objects.clear();
            "clear".into()
        }
    }
}

/// Has a pile in a file do this and that, and returns all changes of the file, and what they were for.
fn recorded(path: &Path, known: &mut Rc<Contents>, random: &mut Random, count: usize) -> (Vec<Step>, Vec<Change>) {
    let (steps, changes) = trace::record(|disk| {
        let mut steps = Vec::new();
        let mut begun = 0;
        let mut step = |what: String, before: &Rc<Contents>, after: &Rc<Contents>| {
            let changes = begun..trace::so_far();
            begun = changes.end;
            let clears = what == "clear";
            let makes = changes.start == 0;
            steps.push(Step { what, changes, before: Rc::clone(before), after: Rc::clone(after), makes, clears });
        };
        let mut pile = open(path, Some(disk));
        step("opened".into(), known, known);
        for _ in 0..count {
            let mut after = Contents::clone(known);
            let what = act(&mut pile, path, disk, &mut after, random);
            let after = Rc::new(after);
            step(what, known, &after);
            *known = after;
        }
        drop(pile);
        step("closed".into(), known, known);
        steps
    });
    (steps, changes)
}

/// A file that is built up of changes.
struct Built {
    place: Place,
    file: File,
}

impl Built {
    fn new(name: &str) -> Self {
        let place = Place::new(name);
        let file = File::create_new(&place.0).unwrap();
        Self { place, file }
    }

    fn apply(&self, change: &Change) {
        match *change {
            Change::Store { at, len, bytes } => self.file.write_all_at(&bytes[..len], at).unwrap(),
            Change::Length(length) => self.file.set_len(length).unwrap(),
            Change::Zeros { from, bytes } => {
                self.file.write_all_at(&vec![0; bytes as usize], from).unwrap();
            }
        }
    }

    /// Takes what another file holds. Of what both have, only what differs is written: most of it is nothing.
    fn copy(&self, other: &Self) {
        let length = other.file.metadata().unwrap().len();
        self.file.set_len(length).unwrap();
        let (mut from, mut to) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        for at in (0..length).step_by(1 << 16) {
            let part = (length - at).min(1 << 16) as usize;
            other.file.read_exact_at(&mut from[..part], at).unwrap();
            self.file.read_exact_at(&mut to[..part], at).unwrap();
            if from != to {
                self.file.write_all_at(&from[..part], at).unwrap();
            }
        }
    }

    /// Opens it to read; false where that takes a file that was made, and the one who makes it has only begun.
    fn look(&self, step: &Step) -> bool {
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        match Pile::open(&self.place.0, &options) {
            Ok(pile) => step.check(&pile),
            Err(FileError::NotOurs) if step.makes => return false,
            Err(error) => panic!("{error}"),
        }
        true
    }
}

/// The files that are built, and how often one was looked at.
struct Bench {
    built: Built,
    written_to: Built,
    recovered: Built,
    looks: usize,
    recoveries: usize,
}

impl Bench {
    fn new() -> Self {
        let [built, written_to, recovered] = ["built", "written-to", "recovered"].map(Built::new);
        Self { built, written_to, recovered, looks: 0, recoveries: 0 }
    }

    /// Looks at the file as it would be if the process had been killed now.
    fn look(&mut self, step: &Step, random: &mut Random) {
        self.looks += 1;
        let read = self.built.look(step);
        if read && random.below(WRITTEN_TO) > 0 {
            return;
        }
        self.written_to.copy(&self.built);
        let path = &self.written_to.place.0;
        let ((), changes) = trace::record(|disk| step.check(&open(path, Some(disk))));
        // A recovery is killed, too.
        self.recovered.copy(&self.built);
        for (at, change) in changes.iter().enumerate() {
            self.recovered.apply(change);
            if at + 1 == changes.len() || random.below(changes.len() as u64) < RECOVERIES {
                self.recoveries += 1;
                self.recovered.look(step);
            }
        }
        // And the pile goes on.
        let pile = open(path, None);
        let before = Contents::of(&pile);
        let pointer = pile.put(&payload(random)).unwrap();
        assert!(!before.objects.contains_key(&pointer.to_bits()));
        pile.remove(pointer).unwrap();
        pile.validate().unwrap();
        assert!(Contents::of(&pile) == before);
    }
}

/// The states of an operation that are looked at: after so many of its changes.
fn looked_at(step: &Step, random: &mut Random) -> Vec<usize> {
    let (from, to) = (step.changes.start, step.changes.end);
    let mut all: Vec<usize> = (to.saturating_sub(LAST).max(from) + 1..=to).collect();
    all.extend((0..OTHERS.min(to - from)).map(|_| from + 1 + random.below((to - from) as u64) as usize));
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn a_process_may_end_between_any_two_stores() {
    let number = |name, default| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let seed: u64 = number("GABION_SEED", 7);
    println!("GABION_SEED={seed}");
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let (real, mut known, mut bench) = (Place::new("real"), Rc::new(Contents::default()), Bench::new());
    let (mut operations, mut stores, asked) = (0, 0, number("GABION_KILLS", 30) as usize);
    while operations < asked {
        let count = RECORDED.min(asked - operations);
        let (steps, changes) = recorded(&real.0, &mut known, &mut random, count);
        operations += count;
        stores += changes.len();
        for step in &steps {
            let mut looked_at = looked_at(step, &mut random).into_iter().peekable();
            for at in step.changes.clone() {
                bench.built.apply(&changes[at]);
                if looked_at.next_if_eq(&(at + 1)).is_some() {
                    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.look(step, &mut random)));
                    assert!(told.is_ok(), "{}: killed after {} of {:?}", step.what, at + 1, step.changes);
                }
            }
        }
        assert!(fs::read(&real.0).unwrap() == fs::read(&bench.built.place.0).unwrap(), "a store was not recorded");
    }
    println!("{operations} operations, {stores} changes, {} states, {} in recoveries", bench.looks, bench.recoveries);
}
