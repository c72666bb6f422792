//! A sequence of calls against a naive model, with every equation checked after each.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::{MIB, close, pool_with};
use crate::error::BlockError;
use crate::os::Twin;
use crate::pool::{Allowance, Buffer, Change, Group, GroupRequest, Pool, Request};

#[derive(Debug, Clone)]
enum Operation {
    Rent { bytes: usize, clean: bool },
    Group { bytes: usize, row: Option<usize>, clean: bool },
    Allow(usize),
    Drop(usize),
    Raw(usize),
    Trim(bool),
    Look(u64),
    Check,
    Change(Change),
    Refuse { steps: i64, count: i64 },
    InThread(usize),
}

fn bytes() -> impl Strategy<Value = usize> {
    prop_oneof![
        3 => 0..300_usize,
        3 => 300..70_000_usize,
        2 => 70_000..=MIB,
        2 => MIB..=4 * MIB,
        2 => 4 * MIB..12 * MIB,
        1 => prop::sample::select(vec![0, 1, 64, 65, MIB, MIB + 1, 4 * MIB, 4 * MIB + 1, 8 * MIB]),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let limit = || prop::sample::select(vec![0, 3 * MIB, 9 * MIB, 20 * MIB, 50 * MIB, usize::MAX]);
    prop_oneof![
        2 => limit().prop_map(|bytes| Change { pool_bytes: Some(bytes as u64), ..Change::default() }),
        2 => limit().prop_map(|bytes| Change { total_limit: Some(bytes as u64), ..Change::default() }),
        1 => limit().prop_map(|bytes| Change { allocation_limit: Some(bytes as u64), ..Change::default() }),
        1 => (0..4_u32).prop_map(|exponent| Change { arenas: Some(1 << exponent), ..Change::default() }),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let row = prop::option::of(prop::sample::select(vec![1, 1000, 120_000, 3 * MIB, 4 * MIB, 5 * MIB]));
    prop_oneof![
        10 => (bytes(), any::<bool>()).prop_map(|(bytes, clean)| Operation::Rent { bytes, clean }),
        3 => (0..20 * MIB, row, any::<bool>()).prop_map(|(bytes, row, clean)| Operation::Group { bytes, row, clean }),
        1 => bytes().prop_map(Operation::Allow),
        10 => any::<usize>().prop_map(Operation::Drop),
        1 => any::<usize>().prop_map(Operation::Raw),
        1 => any::<bool>().prop_map(Operation::Trim),
        1 => (0..8000_u64).prop_map(Operation::Look),
        1 => Just(Operation::Check),
        2 => change().prop_map(Operation::Change),
        1 => (0..3_i64, 1..4_i64).prop_map(|(steps, count)| Operation::Refuse { steps, count }),
        1 => any::<usize>().prop_map(Operation::InThread),
    ]
}

struct Model {
    pool: Pool,
    twin: &'static Twin,
    live: Vec<(Buffer, u8)>,
    groups: Vec<Group>,
    allowed: Vec<Allowance>,
    now: u64,
    next: u8,
}

impl Model {
    fn stamp(&mut self, mut buffer: Buffer, clean: bool) {
        if clean {
            assert!(buffer.as_slice().iter().all(|&byte| byte == 0), "clean memory was not");
        }
        assert!(buffer.capacity() >= buffer.len());
        assert_eq!(self.pool.owns(buffer.as_ptr()), Some(buffer.capacity()));
        assert_eq!(self.pool.lent_at(buffer.as_ptr()), Some(buffer.capacity()));
        assert_eq!(buffer.as_ptr() as usize % 64, 0);
        self.next = self.next.wrapping_add(1).max(1);
        buffer.as_mut_slice().fill(self.next);
        self.live.push((buffer, self.next));
    }

    fn take(&mut self, pick: usize) -> Option<Buffer> {
        if self.live.is_empty() {
            return None;
        }
        let (buffer, stamp) = self.live.swap_remove(pick % self.live.len());
        assert!(buffer.as_slice().iter().all(|&byte| byte == stamp), "a buffer was overwritten");
        Some(buffer)
    }

    /// A refusal must be right, and must change nothing.
    fn refused(&self, error: BlockError, bytes: usize, in_use: u64) {
        let (stats, settings) = (self.pool.stats(), self.pool.settings());
        assert_eq!(stats.in_use, in_use, "a refusal took something");
        match error {
            BlockError::TooLarge { .. } => assert!(bytes as u64 > settings.allocation_limit),
            BlockError::Total { .. } => {
                let shelved: u64 = stats.arenas.iter().map(|arena| arena.idle).sum();
                let need = bytes.max(1).next_multiple_of(4096) as u64;
                assert!(stats.mapped - shelved + need > settings.total_limit, "{stats:?} had room for {bytes}");
            }
            // What a group gave back after it had failed halfway is idle or gone now, and was in use then.
            BlockError::NoMemory { in_use, idle, .. } => assert!(in_use + idle >= stats.mapped, "{stats:?}"),
            other => panic!("{other}"),
        }
    }

    fn step(&mut self, operation: &Operation) {
        let before = self.pool.stats();
        let lent = match *operation {
            Operation::Rent { bytes, clean } => match self.pool.rent(&Request { bytes, clean, timeout: None }) {
                Ok(buffer) => {
                    assert_eq!(buffer.len(), bytes);
                    self.stamp(buffer, clean);
                    true
                }
                Err(error) => {
                    self.refused(error, bytes, before.in_use);
                    false
                }
            },
            Operation::Group { bytes, row, clean } => {
                let request = GroupRequest { bytes, row_bytes: row, clean, timeout: None };
                match self.pool.rent_group(&request) {
                    Ok(group) => {
                        assert_eq!(group.parts().iter().map(Buffer::len).sum::<usize>(), bytes);
                        if clean {
                            assert!(group.parts().iter().all(|part| part.as_slice().iter().all(|&byte| byte == 0)));
                        }
                        self.groups.push(group);
                    }
                    Err(error) => self.refused(error, bytes, before.in_use),
                }
                false
            }
            Operation::Allow(bytes) => {
                match self.pool.allow(bytes) {
                    Ok(allowance) => self.allowed.push(allowance),
                    Err(error) => self.refused(error, bytes, before.in_use),
                }
                false
            }
            Operation::Drop(pick) if pick % 4 == 1 && !self.allowed.is_empty() => {
                self.allowed.swap_remove(pick / 4 % self.allowed.len());
                false
            }
            Operation::Drop(pick) if pick % 4 == 0 && !self.groups.is_empty() => {
                self.groups.swap_remove(pick / 4 % self.groups.len());
                false
            }
            Operation::Drop(pick) => {
                drop(self.take(pick));
                false
            }
            Operation::Raw(pick) => {
                if let Some(buffer) = self.take(pick) {
                    let at = buffer.into_raw();
                    assert!(self.pool.owns(at.as_ptr()).is_some());
                    // SAFETY: it was let go of just now.
                    unsafe { self.pool.return_raw(at) };
                }
                false
            }
            ref other => {
                self.step_of_the_pool(other);
                false
            }
        };
        self.check(lent && self.pool.stats().fresh > before.fresh);
    }

    fn step_of_the_pool(&mut self, operation: &Operation) {
        match *operation {
            Operation::Trim(all) => {
                self.pool.trim(all);
                assert!(!all || self.pool.stats().arenas.iter().all(|arena| arena.idle == 0));
            }
            Operation::Look(seconds) => {
                self.now += seconds;
                self.pool.shared().look(Duration::from_secs(self.now));
            }
            Operation::Check => {
                self.pool.look_soon();
            }
            Operation::Change(change) => self.pool.configure(&change).unwrap(),
            Operation::Refuse { steps, count } => self.twin.refuse_some_after(steps, count),
            Operation::InThread(pick) => {
                // Made here and dropped there; made there, and its thread ends.
                let (buffer, pool) = (self.take(pick), self.pool.clone());
                let thread = move || {
                    drop(buffer);
                    pool.rent(&Request::new(50_000)).ok()
                };
                if let Some(buffer) = std::thread::spawn(thread).join().unwrap() {
                    self.stamp(buffer, false);
                }
            }
            _ => unreachable!("not of the pool"),
        }
    }

    fn check(&self, freshly_lent: bool) {
        self.pool.validate().unwrap();
        let (stats, settings) = (self.pool.stats(), self.pool.settings());
        let allowed: u64 = self.allowed.iter().map(Allowance::bytes).sum();
        assert_eq!(stats.mapped, self.twin.mapped() + allowed);
        assert_eq!(stats.mapped, stats.in_use + stats.idle);
        let shelved: u64 = stats.arenas.iter().map(|arena| arena.idle).sum();
        assert!(
            self.twin.mapped() <= settings.pool_bytes || shelved == 0,
            "{stats:?} keeps more than {}",
            settings.pool_bytes
        );
        assert!(!freshly_lent || stats.mapped <= settings.total_limit, "{stats:?} over {}", settings.total_limit);
        let parts: usize = self.groups.iter().map(|group| group.parts().len()).sum();
        assert_eq!(stats.live, (self.live.len() + parts) as u64);
        let mut ends = BTreeMap::new();
        let parts = self.groups.iter().flat_map(Group::parts);
        for buffer in self.live.iter().map(|live| &live.0).chain(parts) {
            assert!(ends.insert(buffer.as_ptr() as usize, buffer.capacity()).is_none());
        }
        let mut end = 0;
        for (at, bytes) in ends {
            assert!(at >= end, "two live buffers overlap");
            end = at + bytes;
        }
    }
}

fn run(operations: &[Operation]) {
    let (pool, twin) = pool_with(|_| {});
    let (live, groups, allowed) = (Vec::new(), Vec::new(), Vec::new());
    let mut model = Model { pool, twin, live, groups, allowed, now: 0, next: 0 };
    for operation in operations {
        model.step(operation);
    }
    twin.refuse_after(i64::MAX);
    while model.take(0).is_some() {}
    model.groups.clear();
    model.allowed.clear();
    let Model { pool, .. } = model;
    assert_eq!((pool.stats().in_use, pool.stats().live), (0, 0));
    pool.trim(true);
    assert_eq!(pool.stats().mapped, 0);
    close(pool, twin);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_pool_does_what_the_model_does(operations in prop::collection::vec(operation(), 1..60)) {
        run(&operations);
    }
}
