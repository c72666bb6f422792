//! `SlotBox`: owned values in slots.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt::Display;
use std::pin::Pin;
use std::rc::Rc;

use gabion_blocks::Pool;
use gabion_slots::{Affinity, SlotBox, Slots, unsize};

fn slots() -> Slots {
    Slots::new(Pool::global()).unwrap()
}

fn live(slots: &Slots) -> u64 {
    slots.flush();
    slots.stats().affinities.iter().map(|affinity| affinity.live_objects).sum()
}

/// Counts how often it is dropped.
struct Counted(Rc<Cell<u32>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn values_are_dropped_once_and_their_slots_freed() {
    let slots = slots();
    let nodes = slots.within(Affinity::NODES);
    let drops = Rc::new(Cell::new(0));
    let counted = || nodes.boxed(Counted(Rc::clone(&drops))).unwrap();
    drop(counted());
    assert_eq!((drops.get(), live(&slots)), (1, 0));
    let value = SlotBox::into_inner(counted());
    assert_eq!((drops.get(), live(&slots)), (1, 0));
    drop(value);
    let raw = SlotBox::into_raw(counted());
    assert_eq!((drops.get(), live(&slots)), (2, 1));
    // SAFETY: let go just above, and its one owner again.
    drop(unsafe { SlotBox::from_raw(&slots, raw) });
    assert_eq!((drops.get(), live(&slots)), (3, 0));
    SlotBox::leak(counted()).0.set(10);
    assert_eq!((drops.get(), live(&slots)), (10, 1));
}

#[test]
fn a_panic_in_a_drop_still_frees_the_slot() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("as planned");
        }
    }
    let slots = slots();
    let bomb = slots.within(Affinity::OBJECTS).boxed((Bomb, 1_u64)).unwrap();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(bomb))).is_err());
    assert_eq!(live(&slots), 0);
}

#[test]
fn a_tree_is_built_walked_and_dropped() {
    struct Node<'s> {
        children: Vec<SlotBox<'s, Node<'s>>>,
    }
    fn grow(slots: &Slots, levels: u32) -> SlotBox<'_, Node<'_>> {
        let children = (0..if levels == 0 { 0 } else { 4 }).map(|_| grow(slots, levels - 1)).collect();
        slots.within(Affinity::NODES).boxed(Node { children }).unwrap()
    }
    fn count(node: &Node<'_>) -> u64 {
        1 + node.children.iter().map(|child| count(child)).sum::<u64>()
    }
    let slots = slots();
    let root = grow(&slots, 7);
    assert_eq!((count(&root), live(&slots)), (21_845, 21_845));
    // Another thread may drop all of it.
    std::thread::scope(|scope| scope.spawn(|| drop(root)).join().unwrap());
    assert_eq!(live(&slots), 0);
    slots.validate().unwrap();
}

#[test]
fn unsized_values() {
    let slots = slots();
    let data = slots.within(Affinity::DATA);
    let text = data.boxed_str("a gabion is a cage filled with stones").unwrap();
    let numbers = data.boxed_slice(&[1_u16, 2, 3]).unwrap();
    let empty = data.boxed_slice::<u64>(&[]).unwrap();
    assert_eq!((&*text, &*numbers, empty.len()), ("a gabion is a cage filled with stones", &[1, 2, 3][..], 0));
    let raw = SlotBox::into_raw(data.boxed(42_u8).unwrap());
    let shown = std::ptr::NonNull::new(raw.as_ptr() as *mut dyn Display).unwrap();
    // SAFETY: let go just above; a `u8` may be looked at as what it implements.
    let shown = unsafe { SlotBox::from_raw(&slots, shown) };
    assert_eq!((shown.to_string(), live(&slots)), ("42".to_owned(), 3));
    drop((text, numbers, empty, shown));
    assert_eq!(live(&slots), 0);
}

#[test]
fn values_of_no_size_take_no_slot() {
    struct Marker;
    let slots = slots();
    let drops = Rc::new(Cell::new(0));
    let marker = slots.within(Affinity::OBJECTS).boxed(Marker).unwrap();
    assert_eq!(live(&slots), 0);
    drop(marker);
    drop(slots.within(Affinity::OBJECTS).boxed(Counted(Rc::clone(&drops))).unwrap());
    assert_eq!((drops.get(), live(&slots)), (1, 0));
}

#[test]
fn large_and_aligned_values() {
    #[repr(align(4096))]
    struct Aligned([u8; 5000]);
    let slots = slots();
    let aligned = slots.within(Affinity::PHYSICS).boxed(Aligned([7; 5000])).unwrap();
    assert_eq!((std::ptr::from_ref(&*aligned).addr() % 4096, aligned.0[4999]), (0, 7));
    let large = slots.within(Affinity::DATA).boxed_slice(&vec![3_u8; 3 << 20]).unwrap();
    assert!(large.iter().all(|&byte| byte == 3));
    drop((aligned, large));
    assert_eq!(live(&slots), 0);
}

#[test]
fn it_behaves_as_its_value() {
    let slots = slots();
    let data = slots.within(Affinity::DATA);
    let [one, two] = [1, 2].map(|n| data.boxed(n).unwrap());
    assert!(one < two && one != two && one == data.boxed(1).unwrap());
    assert_eq!(format!("{one} {one:?}"), "1 1");
    assert_ne!(format!("{one:p}"), format!("{two:p}"));
    #[expect(clippy::mutable_key_type, reason = "hash and order are the value's, whatever the slots do")]
    let set: HashSet<_> = [1, 2, 1].into_iter().map(|n| data.boxed(n).unwrap()).collect();
    assert_eq!((set.len(), set.contains(&2), set.contains(&3)), (2, true, false));
    let forever = Slots::global().within(Affinity::DATA);
    let mut pinned: Pin<SlotBox<'static, i32>> = SlotBox::into_pin(forever.boxed(4).unwrap());
    *pinned = 5;
    assert_eq!(*pinned, 5);
    assert!(std::ptr::eq(SlotBox::slots(&one), &raw const slots));
}

#[test]
fn it_goes_where_its_value_may_go() {
    fn sends<T: Send>() {}
    fn shares<T: Sync>() {}
    fn unpins<T: Unpin>() {}
    sends::<SlotBox<'_, Cell<u8>>>();
    shares::<SlotBox<'_, u8>>();
    unpins::<SlotBox<'_, std::marker::PhantomPinned>>();
}

#[test]
fn a_value_is_made_only_where_there_is_room_for_it() {
    let slots = slots();
    let made = Cell::new(0);
    let make = || {
        made.set(made.get() + 1);
        [7_u8; 100]
    };
    let nobodys = slots.within(Affinity::from_index(77));
    assert!(nobodys.boxed_with(make).is_err() && made.get() == 0);
    let within = slots.within(Affinity::DATA);
    let boxed = within.boxed_with(make).unwrap();
    assert_eq!((made.get(), *boxed, live(&slots)), (1, [7; 100], 1));
    drop(boxed);
    let panics = || within.boxed_with(|| -> u64 { panic!("on purpose") });
    assert!(std::panic::catch_unwind(panics).is_err());
    assert_eq!(live(&slots), 0);
    let nothing = within.boxed_with(|| ()).unwrap();
    assert_eq!((*nothing, live(&slots)), ((), 0));
}

#[test]
fn values_of_many_kinds_are_dropped_as_what_they_are() {
    trait Named {
        fn name(&self) -> &'static str;
    }
    impl Named for Counted {
        fn name(&self) -> &'static str {
            "counted"
        }
    }
    impl Named for [u64; 40] {
        fn name(&self) -> &'static str {
            "numbers"
        }
    }
    let (slots, drops) = (slots(), Rc::new(Cell::new(0)));
    let nodes = slots.within(Affinity::NODES);
    let kinds: [SlotBox<'_, dyn Named>; 2] = [
        unsize!(nodes.boxed(Counted(Rc::clone(&drops))).unwrap() => dyn Named),
        unsize!(nodes.boxed([7_u64; 40]).unwrap() => dyn Named),
    ];
    assert_eq!((kinds.each_ref().map(|kind| kind.name()), live(&slots)), (["counted", "numbers"], 2));
    drop(kinds);
    assert_eq!((drops.get(), live(&slots)), (1, 0));
    let numbers: SlotBox<'_, [u64]> = unsize!(nodes.boxed([1, 2, 3]).unwrap() => [u64]);
    assert_eq!((numbers.iter().sum::<u64>(), numbers.len()), (6, 3));
    drop(numbers);
    assert_eq!(live(&slots), 0);
}

#[test]
fn a_box_is_the_iterator_future_error_or_type_that_its_value_is() {
    let slots = slots();
    let within = slots.within(Affinity::OBJECTS);
    let mut numbers: SlotBox<'_, dyn DoubleEndedIterator<Item = u32>> =
        unsize!(within.boxed(0..10_u32).unwrap() => dyn DoubleEndedIterator<Item = u32>);
    assert_eq!(
        (numbers.next(), numbers.next_back(), numbers.nth(1), numbers.size_hint().0),
        (Some(0), Some(9), Some(2), 6)
    );
    assert_eq!(numbers.map(|n| n * 2).sum::<u32>(), 66);
    assert_eq!(within.boxed([1, 2, 3].into_iter()).unwrap().len(), 3);

    let ready = unsize!(within.boxed(std::future::ready(7)).unwrap() => dyn Future<Output = i32> + Unpin);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut polled =
        |mut future: SlotBox<'_, dyn Future<Output = i32> + Unpin>| Pin::new(&mut future).poll(&mut context);
    assert_eq!(polled(ready), std::task::Poll::Ready(7));

    let error: SlotBox<'_, dyn std::error::Error> =
        unsize!(within.boxed(std::fmt::Error).unwrap() => dyn std::error::Error);
    let shown: &dyn std::error::Error = &error;
    assert_eq!(shown.to_string(), std::fmt::Error.to_string());

    let part = unsize!(within.boxed(String::from("part")).unwrap() => dyn std::any::Any + Send);
    let part = SlotBox::<dyn std::any::Any + Send>::downcast::<u32>(part).unwrap_err();
    let part = SlotBox::<dyn std::any::Any + Send>::downcast::<String>(part).unwrap();
    assert_eq!((part.as_str(), live(&slots)), ("part", 1));
    drop((part, error));
    assert_eq!(live(&slots), 0);
}

#[test]
fn values_are_made_in_their_place() {
    let slots = slots();
    let data = slots.within(Affinity::DATA);
    let zeros = data.boxed_zeroed::<[u64; 1 << 20]>().unwrap();
    // SAFETY: numbers may be zero.
    let zeros = unsafe { SlotBox::assume_init(zeros) };
    assert!(zeros.iter().all(|&number| number == 0));
    let mut room = data.boxed_uninit::<[u8; 100]>().unwrap();
    room.write([7; 100]);
    // SAFETY: just written.
    assert_eq!(*unsafe { SlotBox::assume_init(room) }, [7; 100]);
    data.boxed_zeroed::<()>().unwrap();

    let drops = Rc::new(Cell::new(0));
    let make = |index| {
        assert!(index < 20, "on purpose");
        Counted(Rc::clone(&drops))
    };
    let all = data.boxed_slice_with(20, make).unwrap();
    assert_eq!((all.len(), drops.get()), (20, 0));
    drop(all);
    assert_eq!(drops.get(), 20);
    let panics = || data.boxed_slice_with(30, make).is_ok();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    assert_eq!(drops.get(), 40);
    assert_eq!(data.boxed_slice_with(0, make).unwrap().len(), 0);
    drop(zeros);
    assert_eq!(live(&slots), 0);
}
