//! A forked child's piles, in a process of their own, since a fork counts for all piles of a process.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gabion_pile::{Pile, PileOptions, Pointer};

const LENGTHS: [usize; 4] = [3, 700, 5000, 2 << 20];

/// Fails when `act` does not come to its end in a child.
fn in_child(act: impl FnOnce()) {
    // SAFETY: the child uses only what is made to work after a fork, and leaves without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a child that waits for something for ever is ended.
        unsafe { libc::alarm(60) };
        let ran = catch_unwind(AssertUnwindSafe(act));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(ran.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

fn put(pile: &Pile, byte: u8) -> Vec<Pointer> {
    LENGTHS.iter().map(|&length| pile.put(&vec![byte; length]).unwrap()).collect()
}

/// A generation, from the highest bits of its pointer. All of `pointers` have the same.
fn generation(pointers: &[Pointer]) -> u64 {
    let of = |pointer: &Pointer| pointer.to_bits() >> 40;
    assert!(pointers.iter().all(|pointer| of(pointer) == of(&pointers[0])));
    of(&pointers[0])
}

#[test]
fn a_child_s_pointers_are_others_than_its_parent_s() {
    let pile = Pile::with_options(PileOptions { shards: Some(1), ..PileOptions::default() }).unwrap();
    let before = put(&pile, 1);
    in_child(|| {
        let first = put(&pile, 2);
        assert!(generation(&first) > generation(&before));
        assert!(before.iter().chain(&first).all(|&pointer| pile.contains(pointer)));
        pile.validate().unwrap();
        // From then on as ever: a slot's next object has the next generation.
        for _ in 0..10_000 {
            let pointer = pile.put(&[3; 1000]).unwrap();
            pile.remove(pointer).unwrap();
            assert!(!pile.contains(pointer));
        }
        pile.validate().unwrap();
        in_child(|| {
            assert!(generation(&put(&pile, 2)) > generation(&first));
            pile.clear();
            assert!(generation(&put(&pile, 2)) > generation(&first));
            pile.validate().unwrap();
        });
        assert_eq!(generation(&put(&pile, 2)), generation(&first));
    });
    // The parent goes on as if nothing had been.
    assert_eq!(generation(&put(&pile, 2)), generation(&before));
}

/// One block whose generations were used up by half took the others' with it: a parent and its child gave the same
/// pointers to different objects.
#[test]
fn a_child_s_pointers_are_others_though_a_block_is_worn() {
    let pile = Pile::with_options(PileOptions { shards: Some(1), ..PileOptions::default() }).unwrap();
    // Each ends a generation of the one block.
    for _ in 0..1 << 19 {
        pile.put(b"").unwrap();
        pile.clear();
    }
    let before = pile.put(b"").unwrap().to_bits() >> 40;
    // Blocks that were never used up: what is put there has pointers of its own.
    let fill = |count: usize| (0..count).map(|_| pile.put(&[1; 1000]).unwrap()).last().unwrap();
    fill(5000);
    in_child(|| {
        let own = fill(5000).to_bits() >> 40;
        assert!(own < before, "another block");
        in_child(|| assert!(fill(5000).to_bits() >> 40 > own));
    });
}
