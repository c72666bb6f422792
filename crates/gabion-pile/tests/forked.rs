//! A forked child's piles. Told of a fork in a process of its own, since that counts for all piles of a process.

use gabion_pile::{Pile, PileOptions, Pointer};

#[test]
fn a_child_s_pointers_are_others_than_its_parent_s() {
    let pile = Pile::with_options(PileOptions { shards: Some(1), ..PileOptions::default() }).unwrap();
    let lengths = [3, 700, 5000, 2 << 20];
    let before: Vec<_> = lengths.iter().map(|&length| pile.put(&vec![1; length]).unwrap()).collect();
    // What the parent puts next, and a child would have without being told.
    let put = || -> Vec<_> { lengths.iter().map(|&length| pile.put(&vec![2; length]).unwrap()).collect() };
    // The highest bits of a pointer.
    let of = |pointer: &Pointer| pointer.to_bits() >> 40;
    let generation = |pointers: &[Pointer]| of(&pointers[0]);
    gabion_pile::forked();
    let first = put();
    assert!(generation(&first) > generation(&before));
    assert!(first.iter().all(|pointer| of(pointer) == of(&first[0])));
    assert!(before.iter().chain(&first).all(|&pointer| pile.contains(pointer)));
    pile.validate().unwrap();
    // From then on as ever: a slot's next object has the next generation.
    for _ in 0..10_000 {
        let pointer = pile.put(&[3; 1000]).unwrap();
        pile.remove(pointer).unwrap();
        assert!(!pile.contains(pointer));
    }
    pile.validate().unwrap();
    gabion_pile::forked();
    assert!(generation(&put()) > generation(&first));
    pile.clear();
    assert!(generation(&put()) > generation(&first));
    pile.validate().unwrap();
}
