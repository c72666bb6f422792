//! The pile against a naive model: one list of operations drives the random tests, with `validate` after each step.

mod changed;

mod room;

use std::collections::HashMap;
use std::sync::Arc;

use gabion_blocks::LAST_GENERATION;
use gabion_blocks::os::Twin;
use proptest::prelude::*;

use crate::{Pile, PileError, PileOptions, Pointer, PointerFault, ReadBuf, View};

#[derive(Debug, Clone)]
enum Operation {
    Put { length: usize, reserve: usize },
    Replace { pick: usize, length: usize },
    Remove(usize),
    Pop(usize),
    View(usize),
    Drop(usize),
    Compact,
    Clear,
    Wear,
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => 0_usize..200,
        4 => 200_usize..1100,
        2 => 1000_usize..20_000,
        1 => 1_000_000_usize..1_100_000,
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let reserve = prop_oneof![6 => Just(0_usize), 1 => 1_usize..2000];
    prop_oneof![
        8 => (length(), reserve).prop_map(|(length, reserve)| Operation::Put { length, reserve }),
        10 => (any::<usize>(), length()).prop_map(|(pick, length)| Operation::Replace { pick, length }),
        4 => any::<usize>().prop_map(Operation::Remove),
        1 => any::<usize>().prop_map(Operation::Pop),
        2 => any::<usize>().prop_map(Operation::View),
        2 => any::<usize>().prop_map(Operation::Drop),
        1 => Just(Operation::Compact),
        1 => prop::bool::weighted(0.2).prop_map(|clear| if clear { Operation::Clear } else { Operation::Compact }),
        1 => prop::bool::weighted(0.1).prop_map(|wear| if wear { Operation::Wear } else { Operation::Compact }),
    ]
}

/// A dictionary, the pointers that must be refused, and views with what they must show.
struct Model {
    pile: Arc<Pile>,
    live: Vec<Pointer>,
    payloads: HashMap<Pointer, Vec<u8>>,
    dead: Vec<Pointer>,
    views: Vec<(View, Vec<u8>)>,
    stamp: u64,
    buf: ReadBuf,
}

impl Model {
    fn new(options: PileOptions) -> Self {
        let pile = Arc::new(Pile::with_options(options).unwrap());
        let (live, dead, views) = (Vec::new(), Vec::new(), Vec::new());
        Self { pile, live, payloads: HashMap::new(), dead, views, stamp: 0, buf: ReadBuf::new() }
    }

    fn payload(&mut self, length: usize) -> Vec<u8> {
        self.stamp = self.stamp.wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.stamp.to_le_bytes().iter().copied().cycle().take(length).collect()
    }

    /// A payload in pieces, cut where the stamp says; every other one in one piece.
    fn cut<'a>(&self, payload: &'a [u8]) -> Vec<&'a [u8]> {
        if self.stamp.is_multiple_of(2) {
            return vec![payload];
        }
        let (head, rest) = payload.split_at((self.stamp >> 8) as usize % (payload.len().min(40) + 1));
        let (middle, tail) = rest.split_at(rest.len() - (self.stamp >> 16) as usize % (rest.len().min(40) + 1));
        vec![head, &middle[..middle.len() / 3], &[], &middle[middle.len() / 3..], tail]
    }

    fn pick(&self, pick: usize) -> Option<Pointer> {
        (!self.live.is_empty()).then(|| self.live[pick % self.live.len()])
    }

    fn forget(&mut self, pointer: Pointer) {
        self.live.retain(|&other| other != pointer);
        self.payloads.remove(&pointer);
        self.dead.push(pointer);
    }

    fn step(&mut self, operation: &Operation) {
        match *operation {
            Operation::Put { length, reserve } => {
                let payload = self.payload(length);
                match self.pile.put_pieces(&self.cut(&payload)[..], reserve) {
                    Ok(pointer) => {
                        assert!(self.payloads.insert(pointer, payload).is_none(), "{pointer:?} given out twice");
                        self.live.push(pointer);
                    }
                    Err(error) => assert!(matches!(error, PileError::Memory { .. }), "{error}"),
                }
            }
            Operation::Replace { pick, length } => {
                let Some(pointer) = self.pick(pick) else { return };
                let payload = self.payload(length);
                match self.pile.replace_pieces(pointer, &self.cut(&payload)[..]) {
                    Ok(()) => drop(self.payloads.insert(pointer, payload)),
                    Err(error) => assert!(matches!(error, PileError::Memory { .. }), "{error}"),
                }
            }
            Operation::Remove(pick) => {
                let Some(pointer) = self.pick(pick) else { return };
                self.pile.remove(pointer).unwrap();
                self.forget(pointer);
            }
            Operation::Pop(pick) => {
                let Some(pointer) = self.pick(pick) else { return };
                assert_eq!(self.pile.pop(pointer, &mut self.buf).unwrap(), self.payloads[&pointer]);
                self.forget(pointer);
            }
            Operation::View(pick) => {
                let Some(pointer) = self.pick(pick) else { return };
                let view = self.pile.view(pointer).unwrap();
                self.views.push((view, self.payloads[&pointer].clone()));
            }
            Operation::Drop(pick) => {
                if !self.views.is_empty() {
                    let at = pick % self.views.len();
                    self.views.swap_remove(at);
                }
            }
            Operation::Compact => drop(self.pile.compact()),
            Operation::Clear => {
                self.pile.clear();
                self.payloads.clear();
                self.dead.append(&mut self.live);
            }
            Operation::Wear => wear_out(&self.pile),
        }
    }

    fn check(&mut self) {
        self.pile.validate().unwrap();
        for (view, expected) in &self.views {
            assert!(**view == **expected, "a view changed");
        }
        assert_eq!(self.pile.len(), self.live.len() as u64);
        for pointer in &self.dead {
            assert!(self.pile.read(*pointer, &mut self.buf).is_err(), "{pointer:?} came back");
        }
    }

    fn check_all(&mut self) {
        self.check();
        for (pointer, payload) in &self.payloads {
            assert!(self.pile.contains(*pointer));
            assert_eq!(self.pile.size_of(*pointer).unwrap(), payload.len());
            assert_eq!(self.pile.read(*pointer, &mut self.buf).unwrap(), payload);
        }
        let mut found: Vec<_> = self.pile.pointers().collect();
        found.sort_unstable();
        let mut expected = self.live.clone();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}

fn run(operations: &[Operation], options: PileOptions) {
    let mut model = Model::new(options);
    for operation in operations {
        model.step(operation);
        model.check();
    }
    model.check_all();
    model.views.clear();
    model.buf.let_go();
    for pointer in model.live {
        model.pile.remove(pointer).unwrap();
    }
    model.pile.compact();
    model.pile.validate().unwrap();
    assert_eq!(model.pile.stats().reserved_bytes, 0);
}

/// Leaves the slots of pages that are formed from now on, in the blocks that there are, two generations.
fn wear_out(pile: &Pile) {
    pile.blocks
        .numbers()
        .into_iter()
        .for_each(|number| pile.blocks.raise_generation_floor(number, LAST_GENERATION - 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn a_pile_does_what_a_dictionary_does(operations in prop::collection::vec(operation(), 1..150)) {
        run(&operations, PileOptions { shards: Some(1), ..PileOptions::default() });
    }

    #[test]
    fn a_full_pile_refuses_and_loses_nothing(operations in prop::collection::vec(operation(), 1..150), pages in 0_u64..30) {
        run(&operations, PileOptions { max_bytes: Some(pages << 16), shards: Some(2), os: None });
    }

    #[test]
    fn a_refusing_system_loses_nothing(operations in prop::collection::vec(operation(), 1..100), step in 0_i64..6) {
        let twin: &'static Twin = Box::leak(Box::default());
        twin.refuse_after(step);
        run(&operations, PileOptions { os: Some(twin), shards: Some(1), max_bytes: None });
        assert_eq!(twin.mapped(), 0, "memory was not given back");
    }
}

fn fault(pile: &Pile, bits: u64) -> Option<PointerFault> {
    match pile.read(Pointer::from_bits(bits).unwrap(), &mut ReadBuf::new()) {
        Ok(_) => None,
        Err(PileError::Pointer { fault, .. }) => Some(fault),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_pointer_is_refused_for_the_right_reason() {
    let (pile, other) = (Pile::new().unwrap(), Pile::new().unwrap());
    let pointer = pile.put(b"mine").unwrap();
    assert_eq!(Pointer::from_bits(0), None);
    assert_eq!(fault(&pile, 1), Some(PointerFault::Malformed));
    assert_eq!(fault(&pile, u64::MAX), Some(PointerFault::Malformed));
    assert_eq!(fault(&pile, pointer.to_bits() + 2), Some(PointerFault::Misaligned));
    assert_eq!(fault(&pile, pointer.to_bits() + 1), Some(PointerFault::Malformed));
    assert_eq!(fault(&other, pointer.to_bits()), Some(PointerFault::Elsewhere));
    assert_eq!(fault(&pile, pointer.to_bits() + (1 << 40)), Some(PointerFault::Stale));
    assert_eq!(fault(&pile, pointer.to_bits()), None);
    pile.remove(pointer).unwrap();
    assert_eq!(fault(&pile, pointer.to_bits()), Some(PointerFault::Stale));
    assert!(pile.remove(pointer).is_err() && pile.replace(pointer, b"x").is_err() && !pile.contains(pointer));
}

#[test]
fn a_pointer_that_was_rounded_is_refused() {
    let pile = Pile::new().unwrap();
    // Those of later blocks and generations are the larger ones.
    let pointers: Vec<_> = (0..20_000_u64).map(|at| pile.put(&at.to_le_bytes()).unwrap()).collect();
    let high = pointers.iter().map(|pointer| pointer.to_bits() | ((1 << 20) - 1) << 40);
    for bits in pointers.iter().map(|pointer| pointer.to_bits()).chain(high) {
        #[expect(clippy::cast_sign_loss, reason = "no pointer is negative")]
        let rounded = bits as f64 as u64;
        if rounded != bits {
            let error = pile.read(Pointer::from_bits(rounded).unwrap(), &mut ReadBuf::new()).unwrap_err();
            assert!(matches!(error, PileError::Pointer { fault: PointerFault::Malformed, .. }), "{error}");
            assert!(error.to_string().contains("rounded"), "{error}");
        }
    }
}

#[test]
fn block_numbers_are_reused_and_old_pointers_still_refused() {
    let mut old = Vec::new();
    for round in 0..50 {
        let pile = Pile::new().unwrap();
        let pointer = pile.put(&[round; 40]).unwrap();
        assert!(old.iter().all(|&stale| pile.read(stale, &mut ReadBuf::new()).is_err()));
        assert!(!old.contains(&pointer));
        old.push(pointer);
        pile.clear();
        let pointer = pile.put(&[round; 40]).unwrap();
        assert!(!old.contains(&pointer));
        old.push(pointer);
    }
}

/// How many payloads of a thousand bytes a page holds that is not the first of its block.
const KILOBYTES_IN_A_PAGE: usize = 63;

/// Uses up all slots of a page, one object after the other, and returns how many there were room for.
fn use_up_a_page(pile: &Pile, length: usize) -> usize {
    let put_and_remove = || {
        let pointer = pile.put(&vec![7; length]).unwrap();
        pile.remove(pointer).unwrap();
        pointer.place().number()
    };
    let (number, mut count) = (put_and_remove(), 1);
    while put_and_remove() == number {
        count += 1;
    }
    count
}

#[test]
fn a_page_of_which_all_slots_are_retired_is_given_back() {
    let pages = 4;
    let options = PileOptions { shards: Some(1), max_bytes: Some(pages << 16), os: None };
    let pile = Pile::with_options(options).unwrap();
    for round in 0..2 * pages as usize {
        // Something else stays in the block, so that its pages are formed with few generations left.
        let other = pile.put(&[1; 16]).unwrap();
        wear_out(&pile);
        assert_eq!(use_up_a_page(&pile, 1000), 2 * KILOBYTES_IN_A_PAGE);
        pile.validate().unwrap();
        pile.remove(other).unwrap();
        pile.compact();
        assert_eq!((pile.len(), pile.stats().reserved_bytes), (0, 0), "round {round}");
    }
}

#[test]
fn a_page_of_retired_slots_stays_as_long_as_one_of_them_has_a_guest() {
    let pile = Pile::with_options(PileOptions { shards: Some(1), ..PileOptions::default() }).unwrap();
    let other = pile.put(&[1; 16]).unwrap();
    wear_out(&pile);
    let pointers: Vec<_> = (0..KILOBYTES_IN_A_PAGE).map(|_| pile.put(&[2; 1000]).unwrap()).collect();
    // One leaves its body to the other object before it is removed for the last time.
    pile.remove(pointers[0]).unwrap();
    let last = pile.put(&[3; 1000]).unwrap();
    assert_eq!(last.place(), pointers[0].place());
    pile.replace(last, &[3; 5000]).unwrap();
    pile.replace(other, &[4; 990]).unwrap();
    pile.remove(last).unwrap();
    for &pointer in &pointers[1..] {
        pile.remove(pointer).unwrap();
    }
    use_up_a_page(&pile, 1000);
    pile.compact();
    pile.validate().unwrap();
    let mut buf = ReadBuf::new();
    assert_eq!(pile.read(other, &mut buf).unwrap(), [4; 990]);
    assert_eq!(pile.stats().reserved_bytes, 2 << 16, "the page of the object's slot, and that of its payload");
    pile.replace(other, &[5; 16]).unwrap();
    pile.validate().unwrap();
    assert_eq!(pile.read(other, &mut buf).unwrap(), [5; 16]);
    assert_eq!(pile.stats().reserved_bytes, 1 << 16);
}

#[test]
fn a_number_whose_generations_are_used_up_is_not_handed_out_again() {
    let pile = Pile::new().unwrap();
    let pointer = pile.put(&[1; 40]).unwrap();
    pile.blocks.raise_generation_floor(pointer.place().number(), LAST_GENERATION);
    drop(pile);
    let piles: Vec<_> = (0..20).map(|_| Pile::new().unwrap()).collect();
    for pile in &piles {
        assert!(pile.put(&[2; 40]).unwrap().place().number() != pointer.place().number());
        assert_eq!(pile.blocks.len(), 1, "a block that nothing can be stored in");
    }
}

#[test]
fn an_object_that_moved_out_comes_home() {
    // As an allocator's reallocation to the original size: 500 bytes, over 5000, 500 again.
    let pile = Pile::new().unwrap();
    let pointers: Vec<_> = (0..1000).map(|_| pile.put(&[1; 500]).unwrap()).collect();
    for length in [5000, 500] {
        for &pointer in &pointers {
            pile.replace(pointer, &vec![2; length]).unwrap();
        }
        pile.validate().unwrap();
        assert_eq!(pile.stats().away_objects, if length == 500 { 0 } else { 1000 });
        assert_eq!(pile.stats().used_bytes, 1000 * length as u64);
    }
    pile.compact();
    assert!(pile.stats().reserved_bytes < 700_000, "{:?}", pile.stats());
}

#[test]
fn two_full_shards_do_not_wait_for_each_other() {
    let pile = Pile::with_options(PileOptions { max_bytes: Some(1 << 20), shards: Some(2), os: None }).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50_000 {
                    let _ = pile.put(&[1; 100]);
                }
            });
        }
    });
    pile.validate().unwrap();
}

#[test]
fn an_empty_pile_has_room_for_anything_within_its_limit() {
    let options = PileOptions { max_bytes: Some(4 << 20), shards: Some(2), os: None };
    let pile = Pile::with_options(options).unwrap();
    for length in (0..64).map(|class| gabion_heap::slot_words(class) * 8 - 8).chain([50_000, 900_000, 3_000_000, 1000])
    {
        let pointers: Vec<_> = std::iter::from_fn(|| pile.put(&vec![1; length]).ok()).take(5000).collect();
        assert!(!pointers.is_empty(), "no room for {length} bytes: {:?}", pile.stats());
        for pointer in pointers {
            pile.remove(pointer).unwrap();
        }
    }
}

#[test]
fn a_run_that_a_view_holds_counts_in_the_limit() {
    let pile =
        Arc::new(Pile::with_options(PileOptions { max_bytes: Some(8 << 20), shards: Some(1), os: None }).unwrap());
    let pointer = pile.put(&vec![1; 5 << 20]).unwrap();
    let view = pile.view(pointer).unwrap();
    pile.remove(pointer).unwrap();
    assert!(pile.put(&vec![1; 5 << 20]).is_err());
    drop(view);
    assert!(pile.put(&vec![1; 5 << 20]).is_ok());
}

#[test]
fn a_reserve_is_room_that_a_full_pile_still_has() {
    let pile = Pile::with_options(PileOptions { max_bytes: Some(64 << 10), shards: Some(1), os: None }).unwrap();
    let pointer = pile.put_with_reserve(&[1; 10], 900).unwrap();
    pile.compact();
    while pile.put(&[0; 902]).is_ok() {}
    for length in [910, 0, 500, 910] {
        pile.replace(pointer, &vec![length as u8; length]).unwrap();
        assert_eq!(pile.size_of(pointer).unwrap(), length);
    }
    // Out of space must leave the object as it was.
    assert!(pile.replace(pointer, &[9; 5000]).is_err());
    assert_eq!(pile.read(pointer, &mut ReadBuf::new()).unwrap(), [910_usize as u8; 910]);
    pile.validate().unwrap();
}

#[test]
fn the_limit_can_be_set() {
    let pile = Pile::with_options(PileOptions { max_bytes: Some(1 << 20), shards: Some(2), os: None }).unwrap();
    while pile.put(&[1; 900]).is_ok() {}
    pile.set_max_bytes(Some(2 << 20));
    let pointer = pile.put(&[2; 900]).unwrap();
    pile.set_max_bytes(Some(64 << 10));
    assert!(pile.stats().reserved_bytes > pile.max_bytes());
    assert!(pile.put(&vec![3; 100_000]).is_err());
    assert_eq!(pile.read(pointer, &mut ReadBuf::new()).unwrap(), [2; 900]);
    pile.validate().unwrap();
    pile.set_max_bytes(None);
    assert_eq!(pile.max_bytes(), Pile::new().unwrap().max_bytes());
    pile.put(&vec![3; 100_000]).unwrap();
    pile.validate().unwrap();
}

#[test]
fn a_reserve_moves_with_its_object_when_a_view_holds_the_old_place() {
    let options = PileOptions { max_bytes: Some(256 << 10), shards: Some(1), os: None };
    let pile = Arc::new(Pile::with_options(options).unwrap());
    for reserve in [900, 5000] {
        let pointer = pile.put_with_reserve(&[1; 10], reserve).unwrap();
        let view = pile.view(pointer).unwrap();
        pile.replace(pointer, &[2; 20]).unwrap();
        assert_eq!(*view, [1; 10]);
        drop(view);
        let fill: Vec<_> = std::iter::from_fn(|| pile.put(&[0; 900]).ok()).collect();
        pile.replace(pointer, &vec![3; reserve]).unwrap();
        pile.validate().unwrap();
        for pointer in fill.into_iter().chain([pointer]) {
            pile.remove(pointer).unwrap();
        }
    }
}

#[test]
fn a_payload_may_fill_its_chunk_to_the_last_byte() {
    // A chunk is rounded up, so a reserve of 1 MiB leaves room for a payload that would otherwise get a run.
    let pile = Pile::new().unwrap();
    let pointer = pile.put_with_reserve(&[1; 10], 1 << 20).unwrap();
    for length in [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (1 << 20) + 16_000, (1 << 20) + 40_000, 5] {
        pile.replace(pointer, &vec![7; length]).unwrap();
        assert_eq!(pile.read(pointer, &mut ReadBuf::new()).unwrap(), vec![7; length]);
        pile.validate().unwrap();
    }
}

#[test]
fn a_read_ends_beside_a_neighbour_that_never_rests() {
    let pile = Pile::with_options(PileOptions { shards: Some(1), ..PileOptions::default() }).unwrap();
    let hole = pile.put(&[1; 1200]).unwrap();
    let long = pile.put(&vec![2; 1_000_000]).unwrap();
    pile.remove(hole).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Each round frees something in the page where the long payload begins.
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let pointer = pile.put(&[3; 1200]).unwrap();
                pile.remove(pointer).unwrap();
            }
        });
        let mut buf = ReadBuf::new();
        for _ in 0..20 {
            assert_eq!(pile.read(long, &mut buf).unwrap().len(), 1_000_000);
        }
        assert_eq!(pile.pop(long, &mut buf).unwrap().len(), 1_000_000);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn replacing_at_random_sizes_does_not_grow_the_pile() {
    for by_remove in [false, true] {
        let pile = Pile::with_options(PileOptions { shards: Some(1), ..PileOptions::default() }).unwrap();
        let (count, bytes) = (100_000, vec![5_u8; 1000]);
        let mut seed = 42_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        let mut pointers: Vec<_> = (0..count).map(|_| pile.put(&bytes[..random(999) + 2]).unwrap()).collect();
        let start = pile.stats().reserved_bytes;
        for _ in 0..48 * count {
            let (pick, length) = (random(count), random(999) + 2);
            if by_remove {
                pile.remove(pointers[pick]).unwrap();
                pointers[pick] = pile.put(&bytes[..length]).unwrap();
            } else {
                pile.replace(pointers[pick], &bytes[..length]).unwrap();
            }
        }
        pile.validate().unwrap();
        let stats = pile.stats();
        assert!(stats.reserved_bytes * 100 <= start * 115, "{start} bytes grew: {stats:?}");
        assert!(stats.used_bytes * 100 >= stats.reserved_bytes * 85, "{stats:?}");
    }
}

/// What a buffer had been filled with was forgotten, and its length was not.
#[test]
fn a_buffer_that_has_let_go_is_empty() {
    let pile = Pile::new().unwrap();
    let [large, small] = [vec![1; 3 << 20], vec![2; 100]].map(|payload| pile.put(&payload).unwrap());
    let mut buf = ReadBuf::new();
    assert_eq!(pile.read(large, &mut buf).unwrap().len(), 3 << 20);
    assert_eq!(buf.copied(0), b"");
    buf.let_go();
    assert_eq!((buf.payload(), buf.copied(0)), (&b""[..], &b""[..]));
    assert!(!pile.remove_unchanged(small, &buf).unwrap_or(false));
    pile.read(large, &mut buf).unwrap();
    pile.remove(large).unwrap();
    assert!(pile.read(large, &mut buf).is_err());
    assert_eq!(buf.payload(), b"");
    assert_eq!(pile.read(small, &mut buf).unwrap(), [2; 100]);
}

/// It read the payload's beginning and compared that with all of it, for ever.
#[test]
fn a_long_payload_is_popped_by_a_buffer_that_leaves_long_ones() {
    let pile = Pile::new().unwrap();
    for length in [1000, 5000, 8 << 10, 100_000, 1 << 20, 2 << 20] {
        let (pointer, mut buf) = (pile.put(&vec![5; length]).unwrap(), ReadBuf::new());
        let popped = buf.leaving(|buf| pile.pop(pointer, buf).map(<[u8]>::len)).unwrap();
        assert_eq!((popped, pile.contains(pointer)), (length, false));
        assert_eq!(buf.payload(), vec![5; length]);
    }
}

#[test]
fn what_a_read_left_where_it_lies_is_removed_if_it_is_still_that() {
    let pile = Pile::with_options(PileOptions { shards: Some(1), ..Default::default() }).unwrap();
    let [first, second] = [0, 1].map(|_| pile.put(&vec![5; 100_000]).unwrap());
    let mut buf = ReadBuf::new();
    buf.leaving(|buf| pile.read(first, buf).map(drop)).unwrap();
    assert!(!pile.remove_unchanged(second, &buf).unwrap(), "it is another object");
    pile.replace(first, &vec![6; 100_000]).unwrap();
    assert!(!pile.remove_unchanged(first, &buf).unwrap(), "it was replaced in place");
    buf.leaving(|buf| pile.read(first, buf).map(drop)).unwrap();
    assert!(pile.remove_unchanged(first, &buf).unwrap());
    assert!(!pile.contains(first) && pile.contains(second));
    pile.validate().unwrap();
}

/// A run was mapped and charged for it, and dropped.
#[test]
fn a_payload_with_a_run_of_its_own_is_not_written_into_the_chunk() {
    let pile = Pile::new().unwrap();
    let (pointer, mut buf) = (pile.put(&vec![1; 1 << 20]).unwrap(), ReadBuf::new());
    let longer = vec![2; (1 << 20) + 1];
    pile.replace(pointer, &longer).unwrap();
    assert_eq!((pile.stats().large_objects, pile.read(pointer, &mut buf).unwrap()), (1, &longer[..]));
    pile.replace(pointer, &vec![3; 1 << 20]).unwrap();
    assert_eq!((pile.stats().large_objects, pile.read(pointer, &mut buf).unwrap()), (0, &vec![3; 1 << 20][..]));
    pile.validate().unwrap();
}
