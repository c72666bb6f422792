//! What is said to wrong calls.

use std::alloc::Layout;
use std::error::Error;
use std::ptr::NonNull;

use super::{MIB, aligned, freed_elsewhere, give, give_all, layout, on_twin, resize, take};
use crate::checked::CHECKED;
use crate::{Affinity, AffinitySettings, FreeError, SlotsError};

#[test]
fn misplaced_addresses_are_refused() {
    let (slots, _twin) = on_twin();
    let slot = take(&slots, Affinity::NODES, 24);
    for offset in [1, 4, 8, 16, 23] {
        // SAFETY: inside the object; the checks do not touch it.
        let refused = unsafe { slots.free(slot.add(offset)) };
        assert_eq!(refused, Err(FreeError::NotASlot), "at {offset}");
    }
    // SAFETY: the next slot was never handed out.
    let refused = unsafe { slots.free(slot.add(24)) };
    assert_eq!(refused, Err(FreeError::DoubleFree));
    let mut outside = 5_u64;
    let foreign = NonNull::from(&mut outside).cast();
    // SAFETY: nothing is freed there.
    unsafe {
        assert_eq!(slots.free(foreign), Err(FreeError::Foreign));
        assert_eq!(slots.usable_size(foreign), 0);
        assert!(!slots.owns(foreign.as_ptr()) && !slots.owns(std::ptr::null()) && slots.owns(slot.as_ptr()));
        assert!(slots.realloc(Affinity::NODES, slot.add(8), layout(16), layout(500)).is_err());
        for (at, error) in [(slot.add(8), FreeError::NotASlot), (foreign, FreeError::Foreign)] {
            let refused = slots.realloc_unsized(Affinity::NODES, at, layout(500));
            assert_eq!(refused, Err(SlotsError::Free(error)));
        }
    }
    give(&slots, slot);
    slots.validate().unwrap();
    assert_eq!(slots.stats().total().live_objects, 0);
}

#[test]
fn owning_is_exact_for_every_address_of_a_large_object() {
    let (slots, _twin) = on_twin();
    let bytes = 9 * MIB + 12_345;
    let at = take(&slots, Affinity::DATA, bytes);
    // SAFETY: live, and nobody else uses it.
    let room = unsafe { slots.usable_size(at) };
    for offset in [0, 1, 4 * MIB - 1, 4 * MIB, 8 * MIB, bytes - 1, room - 1] {
        assert!(slots.owns(at.as_ptr().wrapping_add(offset)), "{offset}");
    }
    assert!(!slots.owns(at.as_ptr().wrapping_add(room)) && !slots.owns(at.as_ptr().wrapping_sub(1)));
    let less = take(&slots, Affinity::DATA, 3 * MIB / 2);
    // SAFETY: live, and nobody else uses it.
    let room = unsafe { slots.usable_size(less) };
    let behind = less.as_ptr().wrapping_add(room);
    assert!(room < 2 * MIB && !slots.owns(behind) && slots.owns(behind.wrapping_sub(1)));
    // SAFETY: refused before it is touched.
    assert_eq!(unsafe { slots.free(NonNull::new(behind).unwrap()) }, Err(FreeError::Foreign));
    give(&slots, less);
    give(&slots, at);
    assert!(!slots.owns(at.as_ptr()));
}

#[test]
fn the_end_of_a_page_is_no_slot() {
    let (slots, _twin) = on_twin();
    for size in [8, 16, 24, 40, 1000] {
        let at = take(&slots, Affinity::DATA, size);
        let page = at.as_ptr().map_addr(|address| address & !0xFFFF);
        let taken = 65_536 / size.next_multiple_of(16) * size.next_multiple_of(16);
        let beyond = NonNull::new(page.wrapping_add(taken.min(65_528))).unwrap();
        // SAFETY: nothing is freed there.
        assert!(unsafe { slots.free(beyond) }.is_err(), "size {size}");
        slots.validate().unwrap();
        give(&slots, at);
    }
}

#[test]
fn the_checked_build_compares_what_is_said() {
    if !CHECKED {
        return;
    }
    let (slots, _twin) = on_twin();
    let free = |at, affinity, layout| {
        // SAFETY: live; that the rest is wrong is what is tested.
        unsafe { slots.free_sized(affinity, at, layout) }
    };
    for (size, wrong) in [(24, 40), (24, 5000), (24, 2 * MIB), (5000, 24), (5000, 9000), (5000, 3 * MIB), (2 * MIB, 24)]
    {
        let at = take(&slots, Affinity::NODES, size);
        assert_eq!(free(at, Affinity::DATA, layout(size)), Err(FreeError::WrongAffinity), "{size}");
        assert_eq!(free(at, Affinity::NODES, layout(wrong)), Err(FreeError::WrongSize), "{size} as {wrong}");
        assert_eq!(free(at, Affinity::NODES, layout(size)), Ok(()));
        let again = free(at, Affinity::NODES, layout(size));
        assert!(matches!(again, Err(FreeError::DoubleFree | FreeError::Foreign)), "{size}: {again:?}");
    }
}

#[test]
fn the_checked_build_fills_what_is_freed() {
    if !CHECKED {
        return;
    }
    let (slots, _twin) = on_twin();
    let _neighbour = take(&slots, Affinity::NODES, 100);
    let at = take(&slots, Affinity::NODES, 100);
    give(&slots, at);
    // SAFETY: the page is still there, because of the neighbour.
    let bytes = unsafe { std::slice::from_raw_parts(at.as_ptr(), 100) };
    assert!(bytes.iter().all(|&byte| byte == 0xDD));
}

#[test]
fn every_error_says_what_to_do() {
    use FreeError::{DoubleFree, Foreign, NoMemory, NotASlot, WrongAffinity, WrongSize};
    let (slots, twin) = on_twin();
    slots.configure(Affinity::DATA, AffinitySettings { alignment: 8, max_blocks: Some(1) }).unwrap();
    twin.refuse_after(0);
    let none = slots.alloc(Affinity::NODES, layout(24)).unwrap_err();
    twin.refuse_after(i64::MAX);
    let errors = [
        none,
        slots.alloc(Affinity::DATA, layout(5 * MIB)).unwrap_err(),
        slots.alloc(Affinity::DATA, aligned(1, 8 * MIB)).unwrap_err(),
        slots.alloc(Affinity::from_index(77), layout(1)).unwrap_err(),
        slots.affinity("", AffinitySettings::default()).unwrap_err(),
        slots.affinity("odd", AffinitySettings { alignment: 24, max_blocks: None }).unwrap_err(),
        slots.configure(Affinity::DATA, AffinitySettings { alignment: 128, max_blocks: None }).unwrap_err(),
        SlotsError::Free(FreeError::DoubleFree),
    ];
    for error in errors {
        let text = error.to_string();
        assert!(text.len() > 20 && !text.contains("Error"), "{text}");
    }
    // The causes' own texts are all that these say, so a chain of causes must not say them again.
    assert!(errors.iter().all(|error| error.source().is_none()));
    assert_eq!(errors.last().unwrap().to_string(), DoubleFree.to_string());
    assert!(matches!(errors[0], SlotsError::NoMemory(_)) && matches!(errors[1], SlotsError::Budget { .. }));
    for error in [DoubleFree, Foreign, NotASlot, WrongAffinity, WrongSize, NoMemory] {
        assert!(error.to_string().contains(": "), "{error}");
    }
}

#[test]
fn more_than_any_machine_has_is_refused() {
    let (slots, twin) = on_twin();
    // The system would promise it.
    for bytes in [1 << 46, 1 << 47, isize::MAX as usize - 7] {
        assert!(matches!(slots.alloc(Affinity::DATA, layout(bytes)), Err(SlotsError::NoMemory(_))), "{bytes}");
        assert!(matches!(slots.alloc_zeroed(Affinity::DATA, layout(bytes)), Err(SlotsError::NoMemory(_))), "{bytes}");
    }
    assert_eq!((slots.stats().total().mapped_bytes, twin.mapped()), (0, 0));
}

#[test]
fn reallocating_what_is_free_is_refused() {
    let (slots, _twin) = on_twin();
    let a = Affinity::DATA;
    for size in [0, 1, 24, 1024, 1025, 3000, 100_000, MIB] {
        for new in [size, 1, size + 8, size * 2, 6000, 2 * MIB] {
            let refused = Err(SlotsError::Free(FreeError::DoubleFree));
            // So that pages and blocks stay.
            let (before, at, behind) = (take(&slots, a, size), take(&slots, a, size), take(&slots, a, size));
            give(&slots, at);
            for told in [true, false] {
                assert_eq!(resize(&slots, a, at, (size, new), told), refused, "{size} to {new}");
            }
            let elsewhere = take(&slots, a, size);
            let (end, thread) = freed_elsewhere(&slots, elsewhere, move |_| {});
            for told in [true, false] {
                let found = CHECKED || size > 1024;
                assert!(!found || resize(&slots, a, elsewhere, (size, new), told) == refused, "{size} to {new}");
            }
            end.send(()).unwrap();
            thread.join().unwrap();
            // By now it has reached its owner in any build.
            for told in [true, false] {
                assert_eq!(resize(&slots, a, elsewhere, (size, new), told), refused, "{size} to {new}");
            }
            give_all(&slots, vec![before, behind]);
            slots.validate().unwrap();
            assert_eq!(slots.stats().total().live_objects, 0);
        }
    }
}

#[test]
fn reallocating_what_this_thread_has_freed_of_another_is_refused() {
    let (slots, _twin) = on_twin();
    for size in [1, 1000, 3000] {
        let at = take(&slots, Affinity::DATA, size);
        let address = at.as_ptr().expose_provenance();
        let (end, thread) = freed_elsewhere(&slots, at, move |slots| {
            let at = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).unwrap();
            for told in [true, false] {
                let refused = resize(slots, Affinity::DATA, at, (size, size), told);
                assert_eq!(refused, Err(SlotsError::Free(FreeError::DoubleFree)), "{size}");
            }
        });
        end.send(()).unwrap();
        thread.join().unwrap();
    }
}

#[test]
fn reallocating_keeps_what_fits() {
    let (slots, _twin) = on_twin();
    let a = Affinity::OBJECTS;
    for told in [true, false] {
        let (mut at, mut old) = (take(&slots, a, 20), 20);
        for new in [24, 23, 100, 104, 2000, 1990, 1200, 900_000, 3 * MIB, 3 * MIB + 1, 7 * MIB / 2, MIB, 10] {
            let to = resize(&slots, a, at, (old, new), told).unwrap();
            // SAFETY: live, and at least ten bytes long.
            assert_eq!(unsafe { to.cast::<[u8; 10]>().read() }, [0xA5; 10]);
            let stays = [(24, 23), (2000, 1990), (1990, 1200), (3 * MIB + 1, 7 * MIB / 2)].contains(&(old, new));
            assert!(to == at || !stays, "{old} to {new}");
            (at, old) = (to, new);
            slots.validate().unwrap();
            let stats = slots.stats();
            assert_eq!((stats.affinities[a.index() as usize].live_objects, stats.total().live_objects), (1, 1));
        }
        // SAFETY: live, with this layout: memory of the kind that it leads to.
        unsafe { slots.free_sized(a, at, layout(old)) }.unwrap();
    }
}

#[test]
fn what_moves_serves_its_new_layout() {
    let (slots, _twin) = on_twin();
    let a = Affinity::OBJECTS;
    let layouts: Vec<_> = [1, 90, 1024, 1025, 600_000, MIB, MIB + 1, 3 * MIB / 2]
        .iter()
        .flat_map(|&size| [1, 16, 2048, MIB].map(|align| Layout::from_size_align(size, align).unwrap()))
        .collect();
    for &old in &layouts {
        for &new in &layouts {
            let at = slots.alloc(a, old).unwrap();
            // SAFETY: live, and of this layout; freed with the one that it has then.
            unsafe {
                at.write(7);
                let moved = slots.realloc_unsized(a, at, new).unwrap();
                assert!(moved.read() == 7 && moved.addr().get().is_multiple_of(new.align()), "{old:?} to {new:?}");
                assert!(slots.usable_size(moved) >= new.size(), "{old:?} to {new:?}");
                slots.free_sized(a, moved, new).unwrap();
            }
        }
    }
    slots.validate().unwrap();
    assert_eq!(slots.stats().total().live_objects, 0);
}

#[test]
fn what_cannot_grow_is_as_it_was() {
    let (slots, _twin) = on_twin();
    let tight = slots.affinity("tight", AffinitySettings { max_blocks: Some(1), ..Default::default() }).unwrap();
    for (size, new) in [(100, 5 * MIB), (3000, 5 * MIB), (3 * MIB, 5 * MIB)] {
        let at = take(&slots, tight, size);
        for told in [true, false] {
            let refused = resize(&slots, tight, at, (size, new), told);
            assert!(matches!(refused, Err(SlotsError::Budget { .. })), "{refused:?}");
            // SAFETY: live, and of that size.
            let kept = unsafe { std::slice::from_raw_parts(at.as_ptr(), size) };
            assert!(kept.iter().all(|&byte| byte == 0xA5), "{size} bytes");
            // SAFETY: live; no alignment is that large.
            let refused = unsafe { slots.realloc_unsized(tight, at, Layout::from_size_align(size, 8 * MIB).unwrap()) };
            assert_eq!(refused, Err(SlotsError::Alignment { asked: 8 * MIB }));
            slots.validate().unwrap();
            assert_eq!(slots.stats().total().live_objects, 1);
        }
        give(&slots, at);
        slots.trim();
    }
}

#[test]
fn what_gets_smaller_without_memory_stays_where_its_kind_does() {
    let (slots, _twin) = on_twin();
    let tight = slots.affinity("tight", AffinitySettings { max_blocks: Some(1), ..Default::default() }).unwrap();
    for (size, less, stays) in [
        (4 * MIB, 3 * MIB / 2, true),
        (MIB, 1100, true),
        (MIB, 1000, false),
        (4 * MIB, 5000, false),
        (4 * MIB, 8, false),
    ] {
        let at = take(&slots, tight, size);
        // What the budget has left.
        while slots.alloc(tight, layout(1100)).is_ok() {}
        for told in [true, false] {
            let done = resize(&slots, tight, at, (size, less), told);
            let refused = matches!(done, Err(SlotsError::Budget { .. }));
            assert!(if stays { done == Ok(at) } else { refused }, "{size} to {less}: {done:?}");
        }
        slots.validate().unwrap();
        // SAFETY: nobody uses anything of it any more.
        unsafe { slots.release(tight) };
    }
}

#[test]
fn affinities_are_counted_and_named() {
    let (slots, _twin) = on_twin();
    assert_eq!(slots.affinity_count(), 4);
    let edges = slots.affinity("edges", AffinitySettings::default()).unwrap();
    assert_eq!((slots.affinity_count(), slots.affinity_name(edges).as_deref()), (5, Some("edges")));
    assert_eq!(slots.affinity_name(Affinity::PHYSICS).as_deref(), Some("physics"));
    assert_eq!(slots.affinity_name(Affinity::from_index(5)), None);
    // Settings are those of whoever made it, until it is configured.
    let others = AffinitySettings { alignment: 64, max_blocks: Some(3) };
    assert_eq!(slots.affinity("edges", others).unwrap(), edges);
    assert_eq!(slots.settings(edges), Ok(AffinitySettings::default()));
    slots.configure(edges, others).unwrap();
    assert_eq!(slots.settings(edges), Ok(others));
    assert_eq!(slots.settings(Affinity::DATA), Ok(AffinitySettings { alignment: 16, max_blocks: None }));
    assert_eq!(slots.settings(Affinity::from_index(5)), Err(SlotsError::UnknownAffinity { index: 5 }));
    take(&slots, edges, 8);
    assert!(slots.report().to_string().lines().nth(1).unwrap().ends_with("       3       0"));
}

#[test]
fn a_report_has_a_line_for_each_affinity_and_not_for_each_object() {
    let (slots, _twin) = on_twin();
    for n in 0..10_000 {
        take(&slots, Affinity::from_index(n as u8 % 3), 8 + n % 3000);
    }
    let report = slots.report().to_string();
    assert_eq!(report.lines().count(), 5, "{report}");
    assert!(report.contains("nodes") && report.contains("total") && !report.contains("physics"));
}
