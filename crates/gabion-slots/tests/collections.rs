//! Collections of others on slots: `allocator-api2`'s, and hashbrown's.

use allocator_api2::alloc::{Allocator, Layout};
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use gabion_blocks::Pool;
use gabion_slots::{Affinity, AffinitySettings, Slots, Within, WithinGlobal, WithinOwned};
use hashbrown::{DefaultHashBuilder, HashMap};

fn live(slots: &Slots) -> u64 {
    slots.flush();
    slots.stats().affinities.iter().map(|affinity| affinity.live_objects).sum()
}

#[test]
fn vectors_grow_and_shrink() {
    let slots = Slots::new(Pool::global()).unwrap();
    let mut values = Vec::new_in(slots.within(Affinity::DATA));
    for n in 0..300_000_u64 {
        values.push(n);
    }
    assert!(values.iter().enumerate().all(|(index, &n)| index as u64 == n));
    values.truncate(100);
    values.shrink_to_fit();
    assert_eq!((values.len(), values.iter().sum::<u64>()), (100, 4950));
    values.clear();
    values.shrink_to_fit();
    assert_eq!(live(&slots), 0);
    values.extend([1, 2, 3]);
    drop(values);
    assert_eq!(live(&slots), 0);
    slots.validate().unwrap();
}

/// A vector takes a refusal to shrink for the end of all memory.
#[test]
fn vectors_shrink_where_there_is_no_memory_for_less() {
    let slots = Slots::new(Pool::global()).unwrap();
    for (blocks, len, count, left, rest) in [(1, 1_000_000, 4, 300_000, 0), (2, 3 << 20, 2, 5 << 18, 1 << 20)] {
        slots.configure(Affinity::DATA, AffinitySettings { max_blocks: Some(blocks), ..Default::default() }).unwrap();
        let data = slots.within(Affinity::DATA);
        let mut all: std::vec::Vec<_> =
            (0..count).map(|_| Vec::<u8, Within<'_>>::with_capacity_in(len, data)).collect();
        let rest = Vec::<u8, Within<'_>>::with_capacity_in(rest, data);
        for values in &mut all {
            values.extend((0..left).map(|n| n as u8));
            values.shrink_to_fit();
            assert!(values.capacity() >= left && values.iter().enumerate().all(|(n, &value)| value == n as u8));
        }
        slots.validate().unwrap();
        drop((all, rest));
        assert_eq!(live(&slots), 0);
        slots.trim();
        slots.validate().unwrap();
    }
}

/// A struct that owns its slots together with what lies in them, in any order of its fields.
#[test]
fn a_struct_owns_slots_and_what_lies_in_an_affinity_of_them() {
    struct Level {
        slots: Slots,
        names: HashMap<u32, Box<[u8], WithinOwned>, DefaultHashBuilder, WithinOwned>,
        edges: Vec<[u32; 2], WithinOwned>,
    }
    fn load() -> Level {
        let slots = Slots::new(Pool::global()).unwrap();
        let own = slots.affinity("level", AffinitySettings { max_blocks: Some(4), ..Default::default() }).unwrap();
        let within = slots.within_owned(own);
        let mut names = HashMap::new_in(within.clone());
        for n in 0..1000 {
            let mut bytes = Vec::new_in(within.clone());
            bytes.extend_from_slice(format!("node {n}").as_bytes());
            names.insert(n, bytes.into_boxed_slice());
        }
        Level { slots, names, edges: Vec::new_in(within) }
    }
    let mut level = load();
    level.edges.extend((0..1000).map(|n| [n, n + 1]));
    assert!(*level.names[&7] == *b"node 7" && level.edges[9] == [9, 10]);
    let own = level.edges.allocator().affinity();
    assert_eq!(level.edges.allocator().slots().stats().affinities[usize::from(own.index())].live_objects, 1002);
    level.edges = Vec::new_in(level.edges.allocator().clone());
    assert_eq!(live(&level.slots), 1001);
    let last = level.edges;
    drop((level.slots, level.names));
    assert_eq!(live(last.allocator().slots()), 0, "the vector alone keeps the slots");
}

#[test]
fn boxes_of_values_and_of_trait_objects() {
    let slots = Slots::new(Pool::global()).unwrap();
    let nodes = slots.within(Affinity::NODES);
    let text: Box<dyn std::fmt::Display, _> = allocator_api2::unsize_box!(Box::new_in(7_u128, nodes));
    let nothing = Box::new_in((), nodes);
    assert_eq!((text.to_string(), *nothing), ("7".to_owned(), ()));
    assert_eq!(live(&slots), 1);
    drop(text);
    assert_eq!(live(&slots), 0);
}

#[test]
fn hash_tables() {
    let slots = Slots::new(Pool::global()).unwrap();
    let mut table = HashMap::with_hasher_in(DefaultHashBuilder::default(), slots.within(Affinity::OBJECTS));
    for n in 0..50_000_u32 {
        table.insert(n, n.to_string());
    }
    table.retain(|n, _| n % 3 == 0);
    table.shrink_to_fit();
    assert!((0..50_000).all(|n| table.get(&n).is_some_and(|text| *text == n.to_string()) == (n % 3 == 0)));
    drop(table);
    assert_eq!(live(&slots), 0);
}

fn fill(at: std::ptr::NonNull<u8>, bytes: std::ops::Range<usize>) {
    for index in bytes {
        // SAFETY: the tests below fill only what they have allocated.
        unsafe { at.add(index).write(index as u8 ^ 0x5a) };
    }
}

fn holds(at: std::ptr::NonNull<u8>, bytes: std::ops::Range<usize>) -> bool {
    // SAFETY: the tests below look only at what they have filled.
    bytes.into_iter().all(|index| unsafe { at.add(index).read() } == index as u8 ^ 0x5a)
}

fn zero(at: std::ptr::NonNull<u8>, bytes: std::ops::Range<usize>) -> bool {
    // SAFETY: the tests below look only at what is allocated and promised to be zero.
    bytes.into_iter().all(|index| unsafe { at.add(index).read() } == 0)
}

/// Sizes on both sides of each border: slots, chunks, large.
const SIZES: [usize; 12] = [0, 1, 8, 24, 100, 1024, 1025, 5000, 70_000, 1 << 20, (1 << 20) + 1, 5 << 20];

#[test]
fn what_is_resized_keeps_its_bytes_and_what_is_new_reads_as_zero() {
    let slots = Slots::new(Pool::global()).unwrap();
    let data = slots.within(Affinity::DATA);
    for align in [1, 8, 16, 64, 4096] {
        for from in SIZES {
            for to in SIZES {
                let layout = |size| Layout::from_size_align(size, align).unwrap();
                let old = data.allocate_zeroed(layout(from)).unwrap().cast::<u8>();
                assert!(zero(old, 0..from));
                fill(old, 0..from);
                // SAFETY: allocated just above with that layout; `to` is on the side that each call asks for.
                let new = unsafe {
                    if to < from {
                        data.shrink(old, layout(from), layout(to))
                    } else {
                        data.grow_zeroed(old, layout(from), layout(to))
                    }
                };
                let new = new.unwrap().cast::<u8>();
                assert_eq!(new.addr().get() % align, 0);
                assert!(holds(new, 0..from.min(to)), "{from} -> {to} at {align}");
                assert!(zero(new, from.min(to)..to), "{from} -> {to} at {align}");
                // SAFETY: allocated above with that layout.
                unsafe { data.deallocate(new, layout(to)) };
            }
        }
    }
    assert_eq!(live(&slots), 0);
    slots.validate().unwrap();
}

#[test]
fn a_refusal_is_an_error_and_keeps_the_old() {
    let slots = Slots::new(Pool::global()).unwrap();
    let narrow = AffinitySettings { max_blocks: Some(0), ..AffinitySettings::default() };
    let tight = slots.affinity("tight", narrow).unwrap();
    assert!(slots.within(tight).allocate(Layout::new::<u64>()).is_err());
    let mut values = Vec::<u8, _>::new_in(slots.within(tight));
    assert!(values.try_reserve(10).is_err());
    let mut nothing = Vec::new_in(slots.within(tight));
    nothing.extend(std::iter::repeat_n((), 1000));
    assert_eq!(nothing.len(), 1000);
    assert!(slots.within(Affinity::DATA).allocate(Layout::from_size_align(8, 8 << 20).unwrap()).is_err());
}

#[test]
fn handles_are_allocators_that_keep_the_slots_alive() {
    let slots = Slots::new(Pool::global()).unwrap();
    let mut borrowed = Vec::new_in(&slots);
    let mut owning = Vec::new_in(slots.clone());
    for n in 0..10_000_u64 {
        borrowed.push(n);
        owning.push(n);
    }
    let objects = slots.stats().affinities[usize::from(Affinity::OBJECTS.index())].live_objects;
    assert_eq!((objects, live(&slots)), (2, 2), "both in OBJECTS");
    drop(borrowed);
    drop(slots);
    let mut owning = std::thread::spawn(move || {
        owning.extend(0..10_000);
        owning
    })
    .join()
    .unwrap();
    owning.truncate(10_000);
    owning.shrink_to_fit();
    assert_eq!(owning.iter().sum::<u64>(), 10_000 * 9_999 / 2);
    let slots = owning.allocator().clone();
    slots.validate().unwrap();
    drop(owning);
    assert_eq!(live(&slots), 0);
}

#[test]
fn another_thread_may_drop_it() {
    let slots = Slots::new(Pool::global()).unwrap();
    let lists: std::vec::Vec<Vec<u32, Within<'_>>> = (0..200)
        .map(|n| {
            let mut list = Vec::new_in(slots.within(Affinity::DATA));
            list.extend(0..n);
            list
        })
        .collect();
    std::thread::scope(|scope| {
        let dropping = scope.spawn(|| {
            assert!(lists.iter().enumerate().all(|(n, list)| list.len() == n));
            drop(lists);
        });
        // The end of a scope does not wait for what a thread does last: to send off what it freed.
        dropping.join().unwrap();
    });
    assert_eq!(live(&slots), 0);
}

#[test]
fn an_allocator_of_no_size_makes_boxes_of_one_word() {
    type InNodes = WithinGlobal<{ Affinity::NODES.index() }>;
    let own = Box::new_in([1_u64; 4], InNodes::default());
    assert_eq!((size_of_val(&own), own.iter().sum::<u64>()), (8, 4));
    assert!(Slots::global().owns(std::ptr::from_ref(&*own).cast()));
    let mut list = Vec::new_in(InNodes::default());
    list.extend(0..10_000_u32);
    list.truncate(3);
    list.shrink_to_fit();
    assert_eq!(list[..], [0, 1, 2]);
    drop((own, list));
    assert_eq!(Slots::global().stats().affinities[usize::from(Affinity::NODES.index())].live_objects, 0);
}
