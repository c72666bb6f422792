//! Any sequence of calls against a plain model: what is live, where, and what was written there.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ptr::NonNull;

use proptest::prelude::*;

use super::{MIB, aligned, on_twin};
use crate::checked::CHECKED;
use crate::{Affinity, AffinitySettings, FreeError, Slots};

#[derive(Debug, Clone)]
enum Operation {
    Alloc { affinity: u8, size: usize, align: usize, zeroed: bool },
    Free { which: usize, sized: bool, elsewhere: bool },
    FreeTwice { which: usize },
    FreeInside { which: usize, offset: usize },
    Realloc { which: usize, size: usize, sized: bool },
    Release { affinity: u8 },
    Align { affinity: u8, log: u32 },
    Trim,
}

const AFFINITIES: u8 = 5;

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        12 => 0_usize..=256,
        6 => 0_usize..=1024,
        4 => 1025_usize..20_000,
        2 => 20_000_usize..=MIB,
        1 => MIB..6 * MIB,
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let align = prop_oneof![16 => Just(3_u32), 4 => 0_u32..=10, 1 => 11_u32..=22];
    prop_oneof![
        14 => (0..AFFINITIES, size(), align, any::<bool>()).prop_map(|(affinity, size, log, zeroed)| {
            Operation::Alloc { affinity, size, align: 1 << log, zeroed }
        }),
        10 => (any::<usize>(), any::<bool>(), prop::bool::weighted(0.2)).prop_map(|(which, sized, elsewhere)| {
            Operation::Free { which, sized, elsewhere }
        }),
        1 => any::<usize>().prop_map(|which| Operation::FreeTwice { which }),
        1 => (any::<usize>(), 1_usize..2000).prop_map(|(which, offset)| Operation::FreeInside { which, offset }),
        3 => (any::<usize>(), size(), any::<bool>()).prop_map(|(which, size, sized)| {
            Operation::Realloc { which, size, sized }
        }),
        1 => (0..AFFINITIES, 0_u32..=6).prop_map(|(affinity, log)| Operation::Align { affinity, log }),
        1 => Just(Operation::Trim),
        1 => (0..AFFINITIES).prop_map(|affinity| Operation::Release { affinity }),
    ]
}

#[derive(Debug, Clone, Copy)]
struct Object {
    affinity: Affinity,
    layout: Layout,
    stamp: u8,
}

/// What is live, by address.
struct Model {
    slots: Slots,
    live: BTreeMap<usize, (NonNull<u8>, Object)>,
    stamp: u8,
}

impl Model {
    fn pick(&self, which: usize) -> Option<(NonNull<u8>, Object)> {
        if self.live.is_empty() { None } else { self.live.values().nth(which % self.live.len()).copied() }
    }

    /// Writes a stamp over an object that overlaps no other, and remembers it.
    fn enter(&mut self, at: NonNull<u8>, affinity: Affinity, layout: Layout) {
        let start = at.addr().get();
        let end = start + layout.size();
        assert_eq!(start % layout.align(), 0, "{layout:?} at {at:?}");
        assert!(self.live.range(start..end.max(start + 1)).next().is_none(), "{layout:?} at {at:?} overlaps the next");
        if let Some((&before, (_, object))) = self.live.range(..start).next_back() {
            assert!(before + object.layout.size() <= start, "{layout:?} at {at:?} overlaps the one before");
        }
        // SAFETY: live, as asked for, and used by this test alone.
        unsafe {
            assert!(self.slots.usable_size(at) >= layout.size());
            at.write_bytes(self.stamp, layout.size());
        }
        assert!(self.slots.owns(at.as_ptr()));
        self.live.insert(start, (at, Object { affinity, layout, stamp: self.stamp }));
        self.stamp = self.stamp.wrapping_add(1);
    }

    fn check(at: NonNull<u8>, object: Object, bytes: usize) {
        // SAFETY: live, and at least so long.
        let bytes = unsafe { std::slice::from_raw_parts(at.as_ptr(), bytes) };
        assert!(bytes.iter().all(|&byte| byte == object.stamp), "{object:?} at {at:?} was written over");
    }

    fn free(&mut self, at: NonNull<u8>, object: Object, sized: bool, elsewhere: bool) -> Result<(), FreeError> {
        let (slots, at) = (self.slots.clone(), super::Shared(at));
        let act = move || {
            let at = at;
            // SAFETY: the model frees what is live, once; where it tries another free, the checked build finds it.
            let freed = unsafe {
                if sized { slots.free_sized(object.affinity, at.0, object.layout) } else { slots.free(at.0) }
            };
            slots.flush();
            freed
        };
        if elsewhere { std::thread::spawn(act).join().unwrap() } else { act() }
    }

    fn apply(&mut self, operation: &Operation) {
        match *operation {
            Operation::Alloc { affinity, size, align, zeroed } => {
                let (affinity, layout) = (Affinity::from_index(affinity), aligned(size, align));
                let at = if zeroed {
                    let at = self.slots.alloc_zeroed(affinity, layout).unwrap();
                    Self::check(at, Object { affinity, layout, stamp: 0 }, size);
                    at
                } else {
                    self.slots.alloc(affinity, layout).unwrap()
                };
                self.enter(at, affinity, layout);
            }
            Operation::Free { which, sized, elsewhere } => {
                let Some((at, object)) = self.pick(which) else { return };
                Self::check(at, object, object.layout.size());
                self.live.remove(&at.addr().get());
                self.free(at, object, sized, elsewhere).unwrap();
            }
            // Only the checked build finds all of these.
            Operation::FreeTwice { .. } | Operation::FreeInside { .. } if !CHECKED => {}
            Operation::FreeTwice { which } => {
                let Some((at, object)) = self.pick(which) else { return };
                self.live.remove(&at.addr().get());
                self.free(at, object, false, which % 2 == 0).unwrap();
                let again = self.free(at, object, false, which % 3 == 0);
                assert!(matches!(again, Err(FreeError::DoubleFree | FreeError::Foreign | FreeError::NotASlot)));
                let again = self.free(at, object, true, which % 5 == 0);
                assert!(again.is_err());
            }
            Operation::FreeInside { which, offset } => {
                let Some((at, object)) = self.pick(which) else { return };
                let inside = at.as_ptr().wrapping_add(1 + offset % object.layout.size().max(2));
                if inside.addr() < at.addr().get() + object.layout.size() {
                    let error = self.free(NonNull::new(inside).unwrap(), object, false, false).unwrap_err();
                    assert_eq!(error, FreeError::NotASlot, "{object:?}");
                }
            }
            Operation::Realloc { which, size, sized } => self.realloc(which, size, sized),
            Operation::Release { affinity } => {
                let affinity = Affinity::from_index(affinity);
                self.live.retain(|_, (_, object)| object.affinity != affinity);
                // SAFETY: the model has just forgotten all of them.
                unsafe { self.slots.release(affinity) };
                assert_eq!(self.slots.stats().affinities[affinity.index() as usize].live_objects, 0);
            }
            Operation::Align { affinity, log } => {
                let settings = AffinitySettings { alignment: 1 << log, max_blocks: None };
                self.slots.configure(Affinity::from_index(affinity), settings).unwrap();
            }
            Operation::Trim => {
                self.slots.trim();
            }
        }
    }

    fn realloc(&mut self, which: usize, size: usize, sized: bool) {
        let Some((at, object)) = self.pick(which) else { return };
        let new = aligned(size, object.layout.align());
        // SAFETY: live, with this layout.
        let moved = unsafe {
            if sized {
                self.slots.realloc(object.affinity, at, object.layout, new)
            } else {
                self.slots.realloc_unsized(object.affinity, at, new)
            }
        };
        let moved = moved.unwrap();
        Self::check(moved, object, size.min(object.layout.size()));
        self.live.remove(&at.addr().get());
        self.enter(moved, object.affinity, new);
    }

    fn validate(&self) {
        self.slots.validate().unwrap();
        let stats = self.slots.stats();
        assert_eq!(stats.total().live_objects, self.live.len() as u64);
        for (index, one) in stats.affinities.iter().enumerate() {
            let mine = self.live.values().filter(|(_, object)| object.affinity.index() as usize == index);
            let bytes: u64 = mine.map(|(_, object)| object.layout.size() as u64).sum();
            assert!(one.live_bytes >= bytes && one.peak_bytes >= one.live_bytes, "{one:?}: {bytes}");
            assert_eq!(one.mapped_bytes, one.live_bytes + one.free_bytes + one.wasted_bytes, "{one:?}");
            assert_eq!(one.late_double_frees, 0);
        }
    }
}

proptest! {
    #[test]
    fn slots_do_what_the_model_does(operations in prop::collection::vec(operation(), 1..200)) {
        let (slots, twin) = on_twin();
        slots.affinity("own", AffinitySettings { alignment: 32, max_blocks: None }).unwrap();
        let mut model = Model { slots, live: BTreeMap::new(), stamp: 1 };
        for operation in &operations {
            model.apply(operation);
            model.validate();
        }
        for (at, object) in std::mem::take(&mut model.live).into_values() {
            Model::check(at, object, object.layout.size());
            model.free(at, object, true, false).unwrap();
        }
        model.validate();
        model.slots.trim();
        let total = model.slots.stats().total();
        prop_assert_eq!((total.live_objects, total.large_objects), (0, 0));
        drop(model);
        prop_assert_eq!(twin.mapped(), 0);
    }
}
