//! What went wrong in the intrusive allocator of `VulkanSceneGraph` (1.1.14), one test for each; the numbers are those
//! of `docs/slots.md`.

use std::ptr::NonNull;

use gabion_blocks::{BLOCK_BYTES, Pool};

use super::{MIB, aligned, drop_last, give, give_all, layout, on_twin, take};
use crate::{Affinity, AffinitySettings, FreeError, Slots, SlotsError};

const A: Affinity = Affinity::NODES;

/// Frees what may be refused.
fn try_free(slots: &Slots, at: NonNull<u8>) -> Result<(), FreeError> {
    // SAFETY: nobody uses what is there; that it may be free already is what is tested.
    unsafe { slots.free(at) }
}

#[test]
fn defect_1_all_of_a_block_is_used_whatever_the_alignment() {
    for alignment in [1, 4, 8, 16, 32, 64] {
        let (slots, _twin) = on_twin();
        slots.configure(A, AffinitySettings { alignment, max_blocks: Some(1) }).unwrap();
        let mut bytes = 0;
        while let Ok(_kept) = slots.alloc(A, layout(64)) {
            bytes += 64;
        }
        assert!(bytes * 100 >= BLOCK_BYTES * 98, "alignment {alignment}: {bytes} of {BLOCK_BYTES}");
        let mut bytes = 0;
        slots.configure(Affinity::DATA, AffinitySettings { alignment, max_blocks: Some(1) }).unwrap();
        while let Ok(_kept) = slots.alloc(Affinity::DATA, layout(10_000)) {
            bytes += 10_000;
        }
        assert!(bytes * 100 >= BLOCK_BYTES * 97, "alignment {alignment}: {bytes} of {BLOCK_BYTES}");
    }
}

#[test]
fn defect_2_empty_blocks_go_back_and_are_used_again() {
    let (slots, twin) = on_twin();
    let load =
        || -> Vec<NonNull<u8>> { (0..100_000).map(|n| take(&slots, A, [24, 48, 1000, 3000, 17][n % 5])).collect() };
    let first = load();
    let (full, before) = (twin.mapped(), slots.stats().total());
    give_all(&slots, first);
    let after = slots.stats().total().mapped_bytes;
    assert!(after < before.mapped_bytes / 2, "most goes back without being asked for: {after} of {before:?}");
    slots.trim();
    let total = slots.stats().total();
    assert_eq!((total.live_objects, total.mapped_bytes, total.blocks), (0, 0, 0));
    assert_eq!(twin.mapped(), 0, "blocks of slots and of chunks");
    let second = load();
    assert!(twin.mapped() <= full && slots.stats().total().blocks <= before.blocks);
    give_all(&slots, second);
}

#[test]
fn defect_3_a_double_free_is_found_after_neighbours_were_joined() {
    let (slots, _twin) = on_twin();
    for size in [40, 4000] {
        let places: Vec<_> = (0..64).map(|_| take(&slots, A, size)).collect();
        // Backwards and forwards, so that each is joined with the one before and the one behind.
        for &place in places[8..24].iter().chain(places[24..40].iter().rev()) {
            give(&slots, place);
        }
        for &place in &places[8..40] {
            assert_eq!(try_free(&slots, place), Err(FreeError::DoubleFree), "{size} bytes");
        }
        let again: Vec<_> = (0..100).map(|_| take(&slots, A, size)).collect();
        let kept: Vec<_> = places[..8].iter().chain(&places[40..]).copied().collect();
        assert!(again.iter().all(|at| !kept.contains(at)), "a live object was handed out again");
        slots.validate().unwrap();
    }
}

#[test]
fn defect_4_sizes_at_a_limit_take_no_more_than_their_neighbours() {
    for size in (131_050..=131_080).chain(MIB - 8..=MIB) {
        let (slots, _twin) = on_twin();
        for _ in 0..20 {
            take(&slots, A, size);
        }
        let nodes = slots.stats().affinities[2].clone();
        let per_block = (BLOCK_BYTES - 4096) / (size + size / 32 + 8);
        assert!(nodes.blocks <= 20_usize.div_ceil(per_block) as u64, "{size} bytes: {nodes:?}");
        assert_eq!(nodes.large_objects, 0);
    }
}

#[test]
fn defect_5_a_smaller_budget_serves_what_fits_and_holds_at_once() {
    let (slots, _twin) = on_twin();
    slots.configure(A, AffinitySettings { alignment: 8, max_blocks: Some(1) }).unwrap();
    let places: Vec<_> = (0..100).map(|_| take(&slots, A, 40_000)).collect();
    let nodes = slots.stats().affinities[2].clone();
    assert_eq!((nodes.blocks, nodes.large_objects, nodes.live_objects), (1, 0, 100));
    assert!(matches!(slots.alloc(A, layout(2 * MIB)), Err(SlotsError::Budget { .. })));
    assert!(matches!(slots.alloc(A, layout(24)), Err(SlotsError::Budget { affinity: A, .. })));
    slots.configure(A, AffinitySettings { alignment: 8, max_blocks: Some(2) }).unwrap();
    give(&slots, take(&slots, A, 24));
    slots.configure(A, AffinitySettings { alignment: 8, max_blocks: Some(0) }).unwrap();
    assert!(slots.alloc(A, layout(MIB)).is_err());
    give_all(&slots, places);
    slots.validate().unwrap();
}

#[test]
fn defect_6_a_large_object_that_came_first_can_be_freed() {
    let (slots, twin) = on_twin();
    let at = take(&slots, A, 20 * MIB);
    assert_eq!(slots.stats().total().large_objects, 1);
    give(&slots, at);
    assert_eq!(try_free(&slots, at), Err(FreeError::Foreign));
    assert_eq!((slots.stats().total().live_objects, twin.mapped()), (0, 0));
}

#[test]
fn defects_7_and_8_affinities_beyond_the_table_and_gaps_in_it_are_errors() {
    let (slots, _twin) = on_twin();
    for index in 4..=255 {
        for size in [24, 5000, 2 * MIB] {
            let refused = slots.alloc(Affinity::from_index(index), layout(size));
            assert_eq!(refused, Err(SlotsError::UnknownAffinity { index }));
        }
        assert!(slots.configure(Affinity::from_index(index), AffinitySettings::default()).is_err());
    }
    for index in 4..255 {
        let made = slots.affinity(&format!("own {index}"), AffinitySettings::default()).unwrap();
        assert_eq!(made.index(), index);
        give(&slots, take(&slots, made, 100));
    }
    assert!(matches!(slots.affinity("one more", AffinitySettings::default()), Err(SlotsError::Name { .. })));
    assert_eq!(slots.affinity("own 7", AffinitySettings::default()).unwrap().index(), 7);
    assert_eq!(slots.affinity("physics", AffinitySettings::default()), Ok(Affinity::PHYSICS));
    slots.validate().unwrap();
    slots.trim();
    assert_eq!(slots.stats().affinities.len(), 255);
    assert_eq!(slots.report().to_string().lines().count(), 2 + 251);
}

#[test]
fn defect_9_every_alignment_stays_inside_its_memory() {
    let (slots, _twin) = on_twin();
    for log in 0..=22 {
        for size in [0, 1, 3, 100, 1000, 1024, 1025, 70_000, MIB, MIB + 1] {
            let layout = aligned(size, 1 << log);
            let places: Vec<_> = (0..3).map(|_| slots.alloc(A, layout).unwrap()).collect();
            for &at in &places {
                assert_eq!(at.addr().get() % layout.align(), 0);
                // SAFETY: just allocated, with at least that many bytes.
                unsafe { at.write_bytes(0xEE, slots.usable_size(at)) };
            }
            slots.validate().unwrap();
            give_all(&slots, places);
        }
    }
    let refused = slots.alloc(A, aligned(8, 2 * BLOCK_BYTES));
    assert_eq!(refused, Err(SlotsError::Alignment { asked: 2 * BLOCK_BYTES }));
}

#[test]
fn defect_10_what_users_write_is_never_taken_for_books() {
    let (slots, _twin) = on_twin();
    let places: Vec<_> = (0..3000_usize).map(|n| (take(&slots, A, 16 + n % 3000), 16 + n % 3000)).collect();
    for byte in [0x00, 0x01, 0x80, 0xDD, 0xFF] {
        for &(at, size) in &places {
            // SAFETY: live, and so long.
            unsafe { at.write_bytes(byte, size) };
        }
        slots.validate().unwrap();
        assert_eq!(slots.stats().total().live_objects, 3000);
    }
}

#[test]
fn defect_11_nothing_is_left_when_slots_are_dropped() {
    let (slots, twin) = on_twin();
    for size in [24, 1000, 5000, 500_000, 3 * MIB, 9 * MIB] {
        take(&slots, A, size);
        take(&slots, Affinity::DATA, size);
    }
    assert!(twin.mapped() > 24 << 20);
    let other = slots.clone();
    drop(slots);
    give(&other, take(&other, A, 24));
    drop_last(other, twin);
}

#[test]
fn defect_12_a_destructor_gets_an_error_and_goes_on() {
    struct Careless(Slots, NonNull<u8>);
    impl Drop for Careless {
        fn drop(&mut self) {
            assert!(try_free(&self.0, self.1).is_err());
            let foreign = Box::into_raw(Box::new(7_u64));
            assert_eq!(try_free(&self.0, NonNull::new(foreign.cast()).unwrap()), Err(FreeError::Foreign));
            // SAFETY: made just above.
            drop(unsafe { Box::from_raw(foreign) });
        }
    }
    let slots = Slots::new(Pool::global()).unwrap();
    for size in [24, 5000, 3 * MIB] {
        let at = take(&slots, A, size);
        give(&slots, at);
        let _careless = Careless(slots.clone(), at);
    }
    // The slots of the process are never destroyed, so that destructors may run at exit.
    assert!(std::ptr::eq(Slots::global(), Slots::global()));
}
