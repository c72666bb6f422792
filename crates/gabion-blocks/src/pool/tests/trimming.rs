//! What is idle goes back: by the policy, under pressure, on request; and nothing that is in use.

use std::fs;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::Duration;

use super::{MIB, PERIOD, close, eventually, look, pool, quiet, rent};
use crate::os::Twin;
use crate::pool::{Buffer, Change, Held, Pool};
use crate::sync::{Ordering, lock};

fn burst(pool: &Pool) {
    let live: Vec<Buffer> =
        (0..12).map(|index| rent(pool, [500, 100_000, MIB, 4 * MIB, 4 * MIB, 10 * MIB][index % 6])).collect();
    drop(live);
}

fn fill(buffers: &mut [Buffer], stamp: u8) {
    for buffer in buffers {
        buffer.as_mut_slice().fill(stamp);
    }
}

#[test]
fn idle_memory_is_gone_two_periods_after_the_load() {
    let (pool, twin) = pool();
    burst(&pool);
    let load = pool.stats().mapped;
    assert!(load > 40 << 20);
    for quarter in 1..7 {
        let needed = quarter <= 4;
        look(&pool, f64::from(quarter) / 4.0);
        assert!(!needed || pool.stats().mapped > 40 << 20, "this period or the last one needed it");
    }
    assert_eq!((pool.stats().mapped, twin.mapped()), (0, 0));
    assert!(pool.stats().trimmed >= 40 << 20);
    close(pool, twin);
}

#[test]
fn a_steady_load_keeps_its_memory() {
    let (pool, twin) = pool();
    burst(&pool);
    let fresh = pool.stats().fresh;
    for quarter in 1..40 {
        look(&pool, f64::from(quarter) / 4.0);
        burst(&pool);
    }
    assert_eq!(pool.stats().fresh, fresh, "warm memory was given back under a steady load");
    close(pool, twin);
}

#[test]
fn half_the_load_keeps_half_the_memory() {
    let (pool, twin) = pool();
    drop((0..10).map(|_| rent(&pool, 4 * MIB)).collect::<Vec<_>>());
    for quarter in 1..14 {
        look(&pool, f64::from(quarter) / 4.0);
        drop((0..5).map(|_| rent(&pool, 4 * MIB)).collect::<Vec<_>>());
    }
    assert_eq!(pool.stats().idle, 20 << 20);
    close(pool, twin);
}

#[test]
fn what_threads_take_at_one_time_adds_up() {
    let (pool, twin) = pool();
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let five: Vec<_> = (0..5).map(|_| rent(&pool, 4 * MIB)).collect();
                barrier.wait();
                drop(five);
            });
        }
    });
    assert_eq!((pool.shared().taken(), pool.shared().ledger.highest()), (0, 80 << 20));
    for quarter in 1..=4 {
        assert_eq!(look(&pool, f64::from(quarter) / 4.0), 0, "that many may be needed again");
    }
    // What one thread lends again and again is no new demand, however often it comes.
    (0..1000).for_each(|_| drop(rent(&pool, 4 * MIB)));
    look(&pool, 1.25);
    assert_eq!((pool.shared().ledger.highest(), pool.stats().idle), (4 << 20, 4 << 20));
    close(pool, twin);
}

#[test]
fn the_cold_end_goes_first() {
    let (pool, twin) = pool();
    let (cold, hot) = (rent(&pool, 4 * MIB), rent(&pool, 4 * MIB));
    let (at, kept) = (cold.as_ptr(), hot.as_ptr());
    drop(cold);
    drop(hot);
    assert_eq!(pool.shared().evict(1), 4 << 20);
    assert!(pool.owns(at).is_none());
    assert_eq!(rent(&pool, 4 * MIB).as_ptr(), kept);
    close(pool, twin);
}

#[test]
fn trimming_takes_all_that_is_idle_and_nothing_else() {
    let (pool, twin) = pool();
    let mut live: Vec<Buffer> = [300, 100_000, 3 * MIB, 9 * MIB].map(|bytes| rent(&pool, bytes)).into();
    fill(&mut live, 7);
    burst(&pool);
    let in_use = pool.stats().in_use;
    assert!(pool.trim(true) > 0);
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.cached), (in_use, 0));
    // Two blocks are cut for the live pieces; all else is gone.
    assert!(stats.idle <= 8 << 20, "{stats:?}");
    assert_eq!(pool.trim(true), 0, "once is enough");
    assert!(live.iter().all(|buffer| buffer.as_slice().iter().all(|&byte| byte == 7)));
    drop(live);
    pool.trim(true);
    assert_eq!(twin.mapped(), 0);
    close(pool, twin);
}

#[test]
fn large_free_pieces_go_back_while_their_block_is_in_use() {
    let (pool, twin) = pool();
    let mut live: Vec<Buffer> = (0..16).map(|_| rent(&pool, 256 << 10)).collect();
    fill(&mut live, 1);
    live.truncate(1);
    assert_eq!(pool.trim(true), 15 * (256 << 10));
    assert_eq!(twin.decommitted(), 15 * (256 << 10));
    assert_eq!(twin.advised_small(), 4 << 20, "the block that one of them is left in");
    pool.validate().unwrap();
    // They are zero now, so a clean one is not cleared.
    let clean = rent(&pool, 256 << 10);
    assert!(clean.as_slice().iter().all(|&byte| byte == 0));
    // By the policy too, when a block's pieces were not used for a whole period.
    live.extend((0..15).map(|_| rent(&pool, 256 << 10)));
    fill(&mut live, 1);
    live.truncate(1);
    for periods in [1.1, 2.2, 3.3, 4.4] {
        look(&pool, periods);
    }
    assert!(twin.decommitted() >= 2 * 14 * (256 << 10), "{}", twin.decommitted());
    drop((live, clean));
    pool.shared().flush_caches();
    assert_eq!(twin.mapped(), 0, "a block with cold parts, advised to keep to small pages, is not what a pool keeps");
    close(pool, twin);
}

/// Those of a block went 32 in a period.
#[test]
fn large_free_pieces_are_gone_two_periods_after_the_load_however_many() {
    let (pool, twin) = pool();
    let mut live: Vec<Buffer> = (0..256).map(|_| rent(&pool, 16 << 10)).collect();
    fill(&mut live, 1);
    live.truncate(1);
    for quarter in 1..=8 {
        look(&pool, f64::from(quarter) / 4.0);
        assert!(quarter > 4 || twin.decommitted() == 0, "not before they were left alone for a period");
    }
    assert_eq!(twin.decommitted(), 255 * (16 << 10));
    drop(live);
    close(pool, twin);
}

#[test]
fn caches_that_are_not_used_are_emptied() {
    let (pool, twin) = pool();
    drop((0..10).map(|_| rent(&pool, 2000)).collect::<Vec<_>>());
    assert!(pool.stats().cached > 0);
    look(&pool, 0.1);
    assert!(pool.stats().cached > 0, "used since the last look");
    look(&pool, 0.2);
    assert_eq!(pool.stats().cached, 0);
    close(pool, twin);
}

#[test]
fn a_collection_nudges_the_trimmer_at_most_once_a_second() {
    let (pool, twin) = pool();
    let shared = pool.shared();
    let (start, nudges) = (shared.tick(), || *lock(&shared.trimmer.nudges));
    for milliseconds in [0, 1, 999, 1000, 1500, 1999, 2000] {
        shared.look_soon(Duration::from_millis(milliseconds));
    }
    assert_eq!((nudges(), shared.tick() - start), (3, 0), "the caller looks at nothing itself");
    close(pool, twin);
}

/// As in the child of a fork, which has all that its parent's piles hold.
#[test]
fn a_collection_finds_what_is_idle_beside_more_that_is_held() {
    let (pool, twin) = pool();
    let (shared, held) = (pool.shared(), Held::take(&pool, 64 * MIB, false).unwrap().0);
    shared.trimmer.duty.vacate();
    shared.look_soon(Duration::from_secs(1));
    assert!(shared.trimmer.duty.vacant(), "nothing is idle");
    let buffer = rent(&pool, 10 * MIB);
    assert!(shared.trimmer.duty.take());
    drop(buffer);
    shared.trimmer.duty.vacate();
    shared.look_soon(Duration::from_secs(2));
    assert!(!shared.trimmer.duty.vacant(), "a run is idle");
    drop(held);
    close(pool, twin);
}

/// Long before its time; also when what is idle has lost its trimmer, as in the child of a fork.
#[test]
fn a_trimmer_that_is_nudged_looks_at_once() {
    let system = System::new("nudged");
    system.write("proc/pressure/memory", "some avg10=99.00\n");
    let (pool, twin) = system.pool();
    let shared = pool.shared();
    for vacant in [true, false] {
        burst(&pool);
        assert!(pool.stats().idle > 0);
        if vacant {
            shared.trimmer.duty.vacate();
        }
        let looked = || {
            // As if a second had passed each time.
            shared.trimmer.next_call.store(0, Ordering::Relaxed);
            pool.look_soon();
            pool.stats().idle == 0
        };
        assert!(eventually(looked), "{:?}", pool.stats());
    }
    close(pool, twin);
}

// --- pressure ------------------------------------------------------------------------------------

struct System(PathBuf);

impl System {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("gabion-trimming-{}-{name}", std::process::id())))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn pool(&self) -> (Pool, &'static Twin) {
        let twin: &'static Twin = Box::leak(Box::default());
        let pool = Pool::with_root(twin, quiet(), self.0.clone()).unwrap();
        assert!(pool.shared().trimmer.duty.take());
        (pool, twin)
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The policy looks four times a period, and a process that grew fast met its limit in between, with idle memory.
#[test]
fn near_its_limit_a_control_group_is_watched() {
    let system = System::new("near");
    let usage = "sys/fs/cgroup/memory/x/memory.usage_in_bytes";
    system.write("proc/meminfo", "MemTotal: 1000 kB\n");
    system.write("proc/self/cgroup", "4:memory:/x\n");
    system.write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "100000");
    system.write(usage, "80000");
    let twin: &'static Twin = Box::leak(Box::default());
    let mut settings = quiet();
    settings.trim_period = Duration::from_secs(4000);
    let pool = Pool::with_root(twin, settings, system.0.clone()).unwrap();
    burst(&pool);
    // The trimmer, which began at the first return, sees that the limit is near.
    pool.shared().nudge_trimmer();
    assert!(eventually(|| pool.shared().trimmer.near.load(Ordering::Relaxed)));
    assert!(pool.stats().idle > 40 << 20);
    system.write(usage, "97000");
    assert!(eventually(|| pool.stats().idle == 0), "nobody watches");
    close(pool, twin);
}

#[test]
fn under_pressure_everything_idle_goes() {
    type File = (&'static str, &'static str);
    let cases: [(&str, &[File], File); 3] = [
        (
            "v1",
            &[
                ("proc/meminfo", "MemTotal: 1000 kB\n"),
                ("proc/self/cgroup", "4:memory:/x\n"),
                ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "100000"),
                ("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "1000"),
            ],
            ("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "99000"),
        ),
        (
            "v2",
            &[("proc/self/cgroup", "0::/x\n"), ("sys/fs/cgroup/x/memory.pressure", "some avg10=0.00\n")],
            ("sys/fs/cgroup/x/memory.pressure", "some avg10=55.00\n"),
        ),
        ("machine", &[("proc/pressure/memory", "some avg10=0.00\n")], ("proc/pressure/memory", "some avg10=10.00\n")),
    ];
    for (name, calm, tight) in cases {
        let system = System::new(name);
        for (path, text) in calm {
            system.write(path, text);
        }
        let (pool, twin) = system.pool();
        let mut kept = rent(&pool, 5000);
        kept.as_mut_slice().fill(3);
        burst(&pool);
        pool.note_malloc();
        look(&pool, 0.1);
        assert!(pool.stats().idle > 40 << 20, "{name}: calm");
        assert_eq!(twin.malloc_trims(), 0, "{name}: calm");
        system.write(tight.0, tight.1);
        assert!(look(&pool, 0.2) > 0);
        assert_eq!(twin.malloc_trims(), 1, "{name}");
        let stats = pool.stats();
        assert_eq!((stats.cached, stats.arenas.iter().map(|arena| arena.idle).sum::<u64>()), (0, 0), "{name}");
        assert!(kept.as_slice().iter().all(|&byte| byte == 3));
        drop(kept);
        close(pool, twin);
    }
}

#[test]
fn the_trimmer_works_by_itself_and_ends() {
    let twin: &'static Twin = Box::leak(Box::default());
    let mut settings = quiet();
    settings.trim_period = PERIOD;
    let pool = Pool::with_root(twin, settings, "/nonexistent-root".into()).unwrap();
    let running = || !pool.shared().trimmer.duty.vacant();
    let set_period = |period| pool.configure(&Change { trim_period: Some(period), ..Change::default() }).unwrap();
    assert!(!running(), "nothing is idle yet");
    for _ in 0..2 {
        set_period(PERIOD);
        burst(&pool);
        assert!(running());
        set_period(Duration::from_millis(40));
        assert!(eventually(|| !running()), "{:?}", pool.stats());
        assert_eq!((pool.stats().idle, twin.mapped()), (0, 0));
    }
    // A longer period is taken up at once, and so is the end of the pool.
    set_period(PERIOD);
    burst(&pool);
    close(pool, twin);
}

/// It began after the pool was closed, missed the nudge, and slept for a quarter of the period.
#[test]
fn a_trimmer_that_begins_late_hears_of_the_end() {
    let twin: &'static Twin = Box::leak(Box::default());
    for _ in 0..20 {
        let mut settings = quiet();
        settings.trim_period = Duration::from_secs(3600);
        let pool = Pool::with_root(twin, settings, "/nonexistent-root".into()).unwrap();
        let shared = pool.shared();
        burst(&pool);
        drop(pool);
        assert!(eventually(|| shared.trimmer.duty.vacant()), "the trimmer sleeps on");
    }
}
