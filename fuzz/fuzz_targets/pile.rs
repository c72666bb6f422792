//! Operations on a pile beside a naive model: a map from pointer to payload. After each step the pile's equations hold,
//! every view shows what it showed, and every pointer that was removed is refused.

#![no_main]

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arbitrary::Arbitrary;
use gabion_blocks::os::Twin;
use gabion_pile::{OpenOptions, Pile, PileError, PileOptions, Pointer, ReadBuf, View};
use libfuzzer_sys::fuzz_target;

/// Lengths of the kinds that a pile treats differently, and the borders between them.
#[derive(Arbitrary, Debug, Clone, Copy)]
enum Length {
    Slot(u8),
    AnySlot(u16),
    Chunk(u16),
    Border(u8),
    Run(u8),
}

impl Length {
    fn bytes(self) -> usize {
        match self {
            Self::Slot(length) => length.into(),
            Self::AnySlot(length) => usize::from(length) % 1100,
            Self::Chunk(length) => 1000 + usize::from(length),
            Self::Border(step) => (1 << 20) - 128 + usize::from(step),
            Self::Run(length) => (1 << 20) + 4096 * usize::from(length),
        }
    }
}

#[derive(Arbitrary, Debug)]
enum Operation {
    Put { length: Length, reserve: u16 },
    PutMany { length: Length, count: u8 },
    Replace { pick: u16, length: Length },
    Remove(u16),
    RemoveMany { pick: u16, count: u8 },
    Pop(u16),
    Read(u16),
    View(u16),
    DropView(u16),
    Forged(u64),
    Altered { pick: u16, bit: u8 },
    Limit(u8),
    RefuseAfter(u8),
    Compact,
    Clear,
    Save { length: Length },
}

#[derive(Arbitrary, Debug)]
struct Input {
    /// Pages of 64 KiB that the pile may take; 0 stands for no limit.
    pages: u8,
    shards: u8,
    operations: Vec<Operation>,
}

struct Model {
    pile: Arc<Pile>,
    live: Vec<Pointer>,
    payloads: HashMap<Pointer, Vec<u8>>,
    dead: Vec<Pointer>,
    views: Vec<(View, Vec<u8>)>,
    stamp: u64,
    buf: ReadBuf,
}

fn only_memory<T>(result: Result<T, PileError>) -> Option<T> {
    result.inspect_err(|error| assert!(matches!(error, PileError::Memory { .. }), "{error}")).ok()
}

impl Model {
    fn payload(&mut self, length: usize) -> Vec<u8> {
        self.stamp = self.stamp.wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.stamp.to_le_bytes().iter().copied().cycle().take(length).collect()
    }

    fn pick(&self, pick: u16) -> Option<Pointer> {
        self.live.get(usize::from(pick) % self.live.len().max(1)).copied()
    }

    fn put(&mut self, length: usize, reserve: usize) {
        let payload = self.payload(length);
        if let Some(pointer) = only_memory(self.pile.put_with_reserve(&payload, reserve)) {
            assert!(self.payloads.insert(pointer, payload).is_none(), "{pointer:?} is given out twice");
            self.live.push(pointer);
        }
    }

    fn forget(&mut self, pointer: Pointer) {
        self.live.retain(|&other| other != pointer);
        self.payloads.remove(&pointer);
        self.dead.push(pointer);
    }

    fn remove(&mut self, pointer: Pointer) {
        self.pile.remove(pointer).expect("it is live");
        self.forget(pointer);
    }

    /// A made-up number is refused, unless it is a live pointer by chance.
    fn made_up(&mut self, number: u64) {
        let Some(pointer) = Pointer::from_bits(number) else { return };
        let read = self.pile.read(pointer, &mut self.buf).ok().map(<[u8]>::to_vec);
        assert_eq!(read.as_ref(), self.payloads.get(&pointer), "{pointer:?}");
        if read.is_none() {
            assert!(self.pile.replace(pointer, b"forged").is_err() && self.pile.remove(pointer).is_err());
            assert!(!self.pile.contains(pointer) && self.pile.view(pointer).is_err());
        }
    }

    fn step(&mut self, operation: &Operation) {
        match *operation {
            Operation::Put { length, reserve } => self.put(length.bytes(), reserve.into()),
            Operation::PutMany { length, count } => {
                for _ in 0..if length.bytes() < 5000 { count } else { 1 } {
                    self.put(length.bytes(), 0);
                }
            }
            Operation::Replace { pick, length } => {
                let Some(pointer) = self.pick(pick) else { return };
                let payload = self.payload(length.bytes());
                if only_memory(self.pile.replace(pointer, &payload)).is_some() {
                    self.payloads.insert(pointer, payload);
                }
            }
            Operation::Remove(pick) => self.pick(pick).into_iter().for_each(|pointer| self.remove(pointer)),
            Operation::RemoveMany { pick, count } => {
                for step in 0..u16::from(count) {
                    let Some(pointer) = self.pick(pick.wrapping_add(step)) else { return };
                    self.remove(pointer);
                }
            }
            Operation::Pop(pick) => {
                let Some(pointer) = self.pick(pick) else { return };
                assert_eq!(self.pile.pop(pointer, &mut self.buf).expect("it is live"), self.payloads[&pointer]);
                self.forget(pointer);
            }
            Operation::Read(pick) => {
                let Some(pointer) = self.pick(pick) else { return };
                assert_eq!(self.pile.read(pointer, &mut self.buf).expect("it is live"), self.payloads[&pointer]);
                assert_eq!(self.pile.size_of(pointer).expect("it is live"), self.payloads[&pointer].len());
            }
            Operation::View(pick) => {
                let Some(pointer) = self.pick(pick) else { return };
                let view = self.pile.view(pointer).expect("it is live");
                self.views.push((view, self.payloads[&pointer].clone()));
            }
            Operation::DropView(pick) => {
                if !self.views.is_empty() {
                    let at = usize::from(pick) % self.views.len();
                    self.views.swap_remove(at);
                }
            }
            Operation::Forged(bits) => self.made_up(bits),
            Operation::Altered { pick, bit } => {
                let Some(pointer) = self.pick(pick) else { return };
                self.made_up(pointer.to_bits() ^ 1 << (bit % 64));
            }
            Operation::Limit(pages) => self.pile.set_max_bytes(Some(u64::from(pages) << 18)),
            Operation::RefuseAfter(steps) => twin().refuse_after(steps.into()),
            Operation::Compact => drop(self.pile.compact()),
            Operation::Clear => {
                self.pile.clear();
                self.payloads.clear();
                self.dead.append(&mut self.live);
            }
            Operation::Save { length } => self.save(&vec![7; length.bytes()]),
        }
    }

    /// What is saved is what is there, and no pointer that was ever given out is given out again in the file.
    fn save(&mut self, later: &[u8]) {
        let path = std::env::temp_dir().join(format!("gabion-fuzz-{}-saved.pile", std::process::id()));
        self.pile.save(&path).expect("there is room on the disk");
        let saved = Pile::open(&path, &OpenOptions::default()).expect("what was saved is whole");
        saved.validate().expect("every equation holds");
        assert_eq!((saved.len(), saved.stats().used_bytes), (self.pile.len(), self.pile.stats().used_bytes));
        for (&pointer, payload) in &self.payloads {
            assert_eq!(saved.read(pointer, &mut self.buf).expect("it is live"), payload);
        }
        assert!(self.dead.iter().all(|&pointer| !saved.contains(pointer)));
        for _ in 0..if later.len() < 5000 { 100 } else { 1 } {
            let pointer = saved.put(later).expect("there is room on the disk");
            assert!(
                !self.payloads.contains_key(&pointer) && !self.dead.contains(&pointer),
                "{pointer:?} is given out twice"
            );
        }
        saved.validate().expect("every equation holds");
        drop(saved);
        std::fs::remove_file(&path).expect("it is there");
    }

    fn check(&mut self) {
        self.pile.validate().expect("every equation holds");
        assert_eq!(self.pile.len(), self.live.len() as u64);
        assert_eq!(self.pile.stats().used_bytes, self.payloads.values().map(|payload| payload.len() as u64).sum());
        for (view, expected) in &self.views {
            assert!(**view == **expected, "a view changed");
        }
        for &pointer in self.dead.iter().rev().take(500) {
            assert!(self.pile.read(pointer, &mut self.buf).is_err(), "{pointer:?} came back");
        }
    }

    fn check_all(&mut self) {
        self.check();
        for (&pointer, payload) in &self.payloads {
            assert_eq!(self.pile.read(pointer, &mut self.buf).expect("it is live"), payload);
        }
        let mut found: Vec<_> = self.pile.pointers().collect();
        found.sort_unstable();
        self.live.sort_unstable();
        assert_eq!(found, self.live);
    }
}

/// One for all runs: a pile's memory comes through it, and has gone back through it when the pile is dropped.
fn twin() -> &'static Twin {
    static TWIN: OnceLock<Twin> = OnceLock::new();
    TWIN.get_or_init(Twin::new)
}

fuzz_target!(|input: Input| {
    twin().refuse_after(i64::MAX);
    let max_bytes = (input.pages > 0).then_some(u64::from(input.pages) << 16);
    let options = PileOptions { max_bytes, shards: Some(usize::from(input.shards % 3) + 1), os: Some(twin()) };
    let pile = Arc::new(Pile::with_options(options).expect("a number is left"));
    let (live, dead, views) = (Vec::new(), Vec::new(), Vec::new());
    let mut model = Model { pile, live, payloads: HashMap::new(), dead, views, stamp: 0, buf: ReadBuf::new() };
    for operation in input.operations.iter().take(200) {
        model.step(operation);
        model.check();
    }
    model.check_all();
    model.views.clear();
    model.buf.let_go();
    model.pile.clear();
    model.pile.validate().expect("every equation holds");
    assert_eq!(model.pile.stats().reserved_bytes, 0);
    drop(model);
    assert_eq!(twin().mapped(), 0, "memory was not given back");
});
