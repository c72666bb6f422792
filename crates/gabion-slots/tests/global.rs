//! A whole program, this one, on slots: its threads, its collections, its end.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use gabion_blocks::{Pool, Request, inside};
use gabion_slots::{AffinitySettings, Backing, Global, Slots};

#[global_allocator]
static ALLOCATOR: Global = Global::new();

/// What serves is the whole process's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    Global::switch(Backing::Slots);
    guard
}

fn on_slots<T>(value: &T) -> bool {
    Slots::global().owns(std::ptr::from_ref(value).cast())
}

/// Strings, vectors, trees and tables, all checked; returns something that depends on all of it.
fn churn(seed: u64, rounds: usize) -> u64 {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let (mut strings, mut queue) = (Vec::<String>::new(), VecDeque::new());
    let (mut table, mut tree) = (HashMap::new(), BTreeMap::new());
    for _ in 0..rounds {
        let number = next();
        let text = number.to_string().repeat(1 + (number % 40) as usize);
        match number % 6 {
            0 => strings.push(text),
            1 => drop(strings.pop()),
            2 => drop(table.insert(number % 512, text)),
            3 => drop(tree.insert(number % 512, vec![number; (number % 700) as usize])),
            4 => queue.push_back(vec![number as u8; (number % 9000) as usize]),
            _ => drop(queue.pop_front()),
        }
    }
    assert!(table.values().chain(&strings).all(|text| text.bytes().all(|byte| byte.is_ascii_digit())));
    assert!(tree.values().all(|list| list.iter().all(|n| *n == list[0])));
    assert!(queue.iter().all(|bytes| bytes.iter().all(|byte| *byte == bytes[0])));
    table.values().chain(&strings).map(|text| text.len() as u64).sum()
}

#[test]
fn threads_churn_and_hand_over() {
    let _alone = alone();
    let (give, take) = mpsc::channel::<Vec<String>>();
    let seed = 0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id());
    println!("seed {seed:#x}");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let give = give.clone();
            scope.spawn(move || {
                for round in 0..20 {
                    churn(seed ^ (thread << 32 | round), 3000);
                    give.send((0..200).map(|n| format!("{thread} {round} {n}")).collect()).unwrap();
                }
            });
        }
        drop(give);
        let texts: usize = take.iter().map(|list| list.len()).sum();
        assert_eq!(texts, 4 * 20 * 200);
    });
    Slots::global().flush();
}

#[test]
fn what_is_live_when_another_serves_goes_back_to_where_it_came_from() {
    let _alone = alone();
    let mut old: Vec<String> = (0..5000).map(|n| format!("before {n}")).collect();
    assert!(old.iter().all(|text| on_slots(&text.as_bytes()[0])));
    Global::switch(Backing::System);
    assert_eq!(Global::current(), Backing::System);
    let new: Vec<String> = (0..5000).map(|n| format!("after {n}")).collect();
    assert!(!new.iter().any(|text| on_slots(&text.as_bytes()[0])));
    for (n, text) in old.iter_mut().enumerate() {
        text.push_str(" and grown beyond its slot");
        assert_eq!(*text, format!("before {n} and grown beyond its slot"));
        assert!(!on_slots(&text.as_bytes()[0]));
    }
    Global::switch(Backing::Slots);
    drop((old, new));
    assert!(on_slots(&*Box::new(1_u64)));
}

#[test]
fn it_may_be_swapped_at_any_moment() {
    let _alone = alone();
    let stop = AtomicBool::new(false);
    let (give, take) = mpsc::channel::<Vec<String>>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                for backing in [Backing::System, Backing::Slots] {
                    Global::switch(backing);
                    std::thread::yield_now();
                }
            }
        });
        let churners: Vec<_> = (0..3_u64)
            .map(|thread| {
                let give = give.clone();
                scope.spawn(move || {
                    for round in 0..40 {
                        churn(thread << 32 | round, 2000);
                        give.send((0..100).map(|n| format!("{thread} {round} {n}")).collect()).unwrap();
                    }
                })
            })
            .collect();
        drop(give);
        let texts: usize = take.iter().map(|texts| texts.len()).sum();
        let ended: Vec<_> = churners.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Relaxed);
        assert!(ended.iter().all(Result::is_ok));
        assert_eq!(texts, 3 * 40 * 100);
    });
    Global::switch(Backing::Slots);
    Slots::global().validate().unwrap();
}

#[test]
fn large_and_aligned_requests() {
    #[repr(align(4096))]
    struct Page(#[expect(dead_code, reason = "only its place counts")] [u8; 4096]);
    let beyond_all = Layout::from_size_align(100, 8 << 20).unwrap();
    let _alone = alone();
    let page = Box::new(Page([1; 4096]));
    assert_eq!(std::ptr::from_ref(&*page).addr() % 4096, 0);
    let large = vec![7_u8; 40 << 20];
    assert!(on_slots(&large[0]) && on_slots(&*page));
    // SAFETY: not zero bytes, and freed below with the same layout.
    let beyond = unsafe { std::alloc::alloc(beyond_all) };
    // No slot has such an alignment; the system helps out.
    assert!(!beyond.is_null() && beyond.addr().is_multiple_of(8 << 20) && !Slots::global().owns(beyond));
    // SAFETY: as above.
    unsafe { std::alloc::dealloc(beyond, beyond_all) };
    let zeros = vec![0_u8; 3 << 20];
    assert!(zeros.iter().all(|&byte| byte == 0));
}

#[test]
fn a_budget_is_kept() {
    let _alone = alone();
    let one_block = AffinitySettings { max_blocks: Some(1), ..AffinitySettings::default() };
    let tight = Global::of_affinity(Slots::global().affinity("tight", one_block).unwrap());
    let (small, large) = (Layout::new::<[u64; 10]>(), Layout::new::<[u64; 2_000_000]>());
    // SAFETY: sizes above 0; what is allocated is filled, resized with its own layout, and freed once.
    unsafe {
        assert!(tight.alloc(large).is_null() && tight.alloc_zeroed(large).is_null());
        let at = tight.alloc_zeroed(small);
        assert!(!at.is_null());
        at.write(7);
        assert!(tight.realloc(at, small, large.size()).is_null());
        assert_eq!((at.read(), at.add(1).read()), (7, 0));
        let at = tight.realloc(at, small, 500);
        assert!(!at.is_null());
        assert_eq!((at.read(), at.add(1).read()), (7, 0));
        tight.dealloc(at, Layout::from_size_align_unchecked(500, small.align()));
    }
}

#[test]
fn what_gets_smaller_is_not_refused_for_a_budget_s_sake() {
    let _alone = alone();
    let one_block = AffinitySettings { max_blocks: Some(1), ..AffinitySettings::default() };
    let narrow = Slots::global().affinity("narrow", one_block).unwrap();
    let tight = Global::of_affinity(narrow);
    let live = || Slots::global().stats().affinities[usize::from(narrow.index())].live_objects;
    let of = |size| Layout::from_size_align(size, 8).unwrap();
    // A slot needs a block of pages beside that of chunks; a chunk or a slot one beside what is as large as a block.
    for (from, to) in [(2000, 500), (1 << 20, 8), (4 << 20, 2000), (4 << 20, 24)] {
        // SAFETY: sizes above 0; what is allocated is filled, resized with its own layout, and freed once.
        unsafe {
            let at = tight.alloc(of(from));
            assert!(!at.is_null() && Slots::global().owns(at));
            at.write_bytes(7, from);
            let at = tight.realloc(at, of(from), to);
            assert!(!at.is_null() && !Slots::global().owns(at), "{from} to {to}");
            assert!((0..to).all(|offset| at.add(offset).read() == 7));
            assert_eq!(live(), 0, "its room is free again");
            tight.dealloc(at, of(to));
        }
    }
}

#[test]
fn what_gabion_asks_for_itself_comes_from_the_system() {
    let _alone = alone();
    let outside = vec![1_u8; 100];
    let guard = inside::enter();
    let nested = vec![2_u8; 100];
    assert!(on_slots(&outside[0]) && !on_slots(&nested[0]));
    let at = std::ptr::from_ref(&outside[0]);
    // The slot cannot go back now; it does with the next one.
    drop(outside);
    drop(guard);
    drop((std::hint::black_box(Box::new(0_u8)), nested));
    Slots::global().validate().unwrap();
    let again: Vec<Vec<u8>> = (0..4000).map(|_| vec![3_u8; 100]).collect();
    assert!(again.iter().any(|bytes| std::ptr::eq(&raw const bytes[0], at)), "the slot was lost");
}

#[test]
fn the_pool_beside_it() {
    let _alone = alone();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            scope.spawn(move || {
                let mut kept = Vec::new();
                for round in 0..300 {
                    let bytes = [100, 5000, 70_000, 1 << 20, 3 << 20, 9 << 20][(round + thread as usize) % 6];
                    kept.push(Pool::global().rent(&Request::new(bytes)).unwrap());
                    if round % 7 == 0 {
                        kept.drain(..kept.len() / 2);
                    }
                    churn(thread << 40 | round as u64, 30);
                    if round % 50 == 0 {
                        Pool::global().trim(true);
                    }
                }
            });
        }
    });
    Pool::global().stats();
}

/// Takes and frees memory when its thread ends.
struct AtTheEnd(Vec<String>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        self.0.push(format!("one more than {}", self.0.len()));
        assert_eq!(churn(5, 500), churn(5, 500));
    }
}

thread_local!(static LATE: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) });

#[test]
fn threads_that_end_take_and_free_to_the_last() {
    let _alone = alone();
    let live = || {
        let affinities = Slots::global().stats().affinities;
        affinities.iter().map(|affinity| affinity.live_objects).sum::<u64>()
    };
    let before = live();
    for _ in 0..50 {
        let thread = std::thread::spawn(|| {
            // First, so that its destructor runs after those of what the first request brings.
            LATE.with(|late| *late.borrow_mut() = Some(AtTheEnd(Vec::new())));
            let texts: Vec<String> = (0..100).map(|n| n.to_string()).collect();
            LATE.with(|late| late.borrow_mut().as_mut().unwrap().0 = texts);
        });
        thread.join().unwrap();
    }
    // Of a hundred texts that each thread leaves to its destructors.
    let left = live().saturating_sub(before);
    assert!(left < 500, "{left} objects of ended threads were lost");
}

/// Runs `body` in a forked child; fails when it panics there, or hangs.
fn in_child(body: impl FnOnce()) {
    // SAFETY: the child uses only what is safe after a fork: gabion, and malloc, which the C library prepares for it.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no fork");
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: ends the child at once, without the parent's destructors.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let (start, mut status) = (Instant::now(), 0);
    // SAFETY: waits for the child just made.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if start.elapsed() > Duration::from_secs(300) {
            // SAFETY: the child is ours and has not been waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(status, 0, "the child failed");
}

#[test]
fn forked_children_live_on() {
    let _alone = alone();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    churn(thread, 200);
                }
            });
        }
        let parents: Vec<String> = (0..2000).map(|n| n.to_string()).collect();
        for round in 0..10 {
            in_child(|| {
                assert!(parents.iter().enumerate().all(|(n, text)| *text == n.to_string()));
                churn(round, 3000);
                std::thread::scope(|scope| drop(scope.spawn(|| churn(7, 2000))));
                // SAFETY: the child's copy, dropped once.
                drop(unsafe { std::ptr::read(&raw const parents) });
            });
        }
        stop.store(true, Relaxed);
    });
}

extern "C" fn at_exit() {
    drop((0..1000).map(|n| n.to_string()).collect::<Vec<_>>());
    println!("still there");
}

/// What the test below runs in a process of its own.
#[test]
#[ignore = "run by another test"]
fn child_tells_what_serves() {
    println!("serving {:?}", Global::current());
    assert_eq!(on_slots(&*Box::new(1_u64)), Global::current() == Backing::Slots);
    // SAFETY: the function lives as long as the program.
    unsafe { libc::atexit(at_exit) };
}

#[test]
fn the_environment_chooses() {
    for (value, serving) in
        [(None, "Slots"), (Some("slots"), "Slots"), (Some("system"), "System"), (Some("sytem"), "Slots")]
    {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--nocapture", "child_tells_what_serves"]).env_remove("GABION_ALLOCATOR");
        if let Some(value) = value {
            command.env("GABION_ALLOCATOR", value);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains(&format!("serving {serving}")) && said.contains("still there"), "{said}");
    }
}
