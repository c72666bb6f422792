//! The system refuses memory at step *n*, for every *n*.

use std::ptr::NonNull;

use super::{MIB, drop_last, give, give_all, layout, on_twin};
use crate::{Affinity, SlotsError};

#[test]
fn a_refusal_at_any_step_leaves_everything_as_it_was() {
    let mut refused = 0;
    for step in 0..40 {
        let (slots, twin) = on_twin();
        // Some, because a request that is refused is made again once or twice with less that is kept.
        twin.refuse_some_after(step, 8);
        let mut live: Vec<NonNull<u8>> = Vec::new();
        for n in 0..3000_usize {
            let size = match n % 100 {
                0 => 3 * MIB,
                1..10 => 100_000,
                n => n * 10,
            };
            let affinity = Affinity::from_index((n % 3) as u8);
            match slots.alloc(affinity, layout(size)) {
                Ok(at) => live.push(at),
                Err(SlotsError::NoMemory(_)) => refused += 1,
                Err(other) => panic!("{other}"),
            }
            if n % 500 == 0 {
                slots.validate().unwrap();
                assert_eq!(slots.stats().total().live_objects, live.len() as u64);
            }
            if n % 3 == 0
                && let Some(at) = live.pop()
            {
                give(&slots, at);
            }
        }
        give_all(&slots, live);
        slots.validate().unwrap();
        slots.trim();
        assert_eq!(slots.stats().total().mapped_bytes, 0);
        drop_last(slots, twin);
    }
    assert!(refused >= 40, "{refused} refusals");
}
