//! Everything at once: several `Slots`, threads that begin and end, objects of every size and alignment that change
//! hands, releases of an affinity, a budget and an alignment that change, trims, reports and forks.
//!
//! The seed is printed; `GABION_SEED` sets it, `GABION_SECONDS` how long it runs (two seconds by default;
//! `GABION_LONG=1` makes it an hour). Threads take turns as they like, so a seed gives the same numbers and not the
//! same run.

use std::alloc::Layout;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use gabion_blocks::{Pool, Settings, system};
use gabion_slots::{Affinity, AffinitySettings, FreeError, Slots, SlotsError};

const THREADS: u64 = 5;
const PLACES: usize = 300;
/// Made in each `Slots` beside the first four: one that is released again and again, and one with a budget.
const RELEASED: Affinity = Affinity::from_index(4);
const TIGHT: Affinity = Affinity::from_index(5);

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A small generator (Vigna 2016).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    fn pick(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    fn layout(&mut self) -> Layout {
        let size = match self.below(1000) {
            0 => 1_048_000 + self.below(6_000_000),
            1..4 => 60_000 + self.below(1_000_000),
            4..60 => 1000 + self.below(9_000),
            60..200 => self.below(1100),
            _ => self.below(130),
        };
        let align = match self.below(200) {
            0 => 1 << self.below(23),
            1..10 => 1 << self.below(13),
            10..60 => 1 << self.below(8),
            _ => 8,
        };
        Layout::from_size_align(size as usize, align).unwrap()
    }
}

/// A live object, full of what its key says.
struct Object {
    which: usize,
    at: NonNull<u8>,
    layout: Layout,
    affinity: Affinity,
    key: u64,
}

// SAFETY: an object is its holder's alone.
unsafe impl Send for Object {}

impl Object {
    /// Places that are written and checked: all of them, but of a large object some.
    fn places(&self) -> impl Iterator<Item = usize> {
        let bytes = self.layout.size();
        (0..bytes).step_by(if bytes > 65_536 { 509 } else { 1 })
    }

    fn byte(&self, place: usize) -> u8 {
        (self.key ^ (place as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u8
    }

    fn fill(&self) {
        for place in self.places() {
            // SAFETY: live, and inside its layout.
            unsafe { self.at.add(place).write(self.byte(place)) };
        }
    }

    fn check(&self, bytes: usize) {
        for place in self.places().take_while(|&place| place < bytes) {
            // SAFETY: as above.
            let seen = unsafe { self.at.add(place).read() };
            assert_eq!(seen, self.byte(place), "{:?} {:?} at {place}", self.at, self.layout);
        }
    }

    fn free(self, slots: &Slots, random: &mut Random) {
        self.check(self.layout.size());
        let freed = if random.below(2) == 0 {
            // SAFETY: live, and given up here.
            unsafe { slots.free_sized(self.affinity, self.at, self.layout) }
        } else {
            // SAFETY: as above.
            unsafe { slots.free(self.at) }
        };
        freed.unwrap_or_else(|error| panic!("{:?} {:?}: {error}", self.at, self.layout));
    }
}

struct World {
    slots: [Slots; 3],
    /// Objects on their way to another thread.
    post: Vec<Mutex<Option<Object>>>,
    /// How often `RELEASED` was released in each; held for reading while objects of it are used.
    releases: [RwLock<u64>; 3],
    refused: AtomicU64,
    end: Instant,
}

impl World {
    fn goes_on(&self) -> bool {
        Instant::now() < self.end
    }

    fn make(&self, which: usize, random: &mut Random, affinity: Affinity) -> Option<Object> {
        let (slots, layout, zero) = (&self.slots[which], random.layout(), random.below(8) == 0);
        let made = if zero { slots.alloc_zeroed(affinity, layout) } else { slots.alloc(affinity, layout) };
        let at = match made {
            Ok(at) => at,
            Err(SlotsError::Budget { .. }) => {
                self.refused.fetch_add(1, Relaxed);
                return None;
            }
            Err(error) => panic!("{layout:?}: {error}"),
        };
        let aligned = if layout.size().is_multiple_of(16) && layout.size() > 0 { 16 } else { 8 };
        assert!(at.addr().get().is_multiple_of(layout.align().max(aligned)), "{at:?} {layout:?}");
        // SAFETY: just allocated.
        assert!(unsafe { slots.usable_size(at) } >= layout.size() && slots.owns(at.as_ptr()));
        let object = Object { which, at, layout, affinity, key: random.next() };
        if zero {
            // SAFETY: live, and inside its layout.
            assert!(object.places().all(|place| unsafe { at.add(place).read() } == 0));
        }
        object.fill();
        Some(object)
    }

    fn free(&self, object: Object, random: &mut Random) {
        let slots = &self.slots[object.which];
        object.free(slots, random);
    }

    /// Puts an object where another thread finds it, and takes what was there.
    fn swap(&self, object: Option<Object>, random: &mut Random) -> Option<Object> {
        std::mem::replace(&mut *self.post[random.pick(PLACES)].lock().unwrap(), object)
    }
}

/// One thread's life.
struct Life<'a> {
    world: &'a World,
    random: Random,
    own: Vec<Object>,
    /// Of the affinity that is released, with the number of releases before.
    marked: Vec<(u64, Object)>,
}

impl Life<'_> {
    fn live(mut self) {
        for _ in 0..20_000 {
            if !self.world.goes_on() {
                break;
            }
            self.step();
        }
        for (made, object) in self.marked.drain(..) {
            let releases = self.world.releases[object.which].read().unwrap();
            if made == *releases {
                self.world.free(object, &mut self.random);
            }
        }
        for object in self.own.drain(..) {
            // Half is freed here, half by whoever finds it.
            let left =
                if self.random.below(2) == 0 { self.world.swap(Some(object), &mut self.random) } else { Some(object) };
            if let Some(object) = left {
                self.world.free(object, &mut self.random);
            }
        }
    }

    fn step(&mut self) {
        let which = self.random.pick(3);
        match self.random.below(40) {
            0..16 => {
                let affinity = [0, 1, 2, 3, 5][self.random.pick(5)];
                self.own.extend(self.world.make(which, &mut self.random, Affinity::from_index(affinity)));
            }
            16..26 => self.free_one(),
            26..29 => self.resize_one(),
            29..34 => {
                let fresh = self.own.pop();
                let found = self.world.swap(fresh, &mut self.random);
                match found {
                    Some(object) if self.random.below(3) == 0 => self.own.push(object),
                    Some(object) => self.world.free(object, &mut self.random),
                    None => {}
                }
            }
            34..37 => self.use_marked(which),
            37 => self.keep_house(&self.world.slots[which].clone()),
            38 if self.random.below(300) == 0 => leave_slots_behind(&mut self.random),
            _ => self.free_twice(which),
        }
        while self.own.len() > 600 {
            self.free_one();
        }
    }

    fn free_one(&mut self) {
        if !self.own.is_empty() {
            let place = self.random.pick(self.own.len());
            let object = self.own.swap_remove(place);
            self.world.free(object, &mut self.random);
        }
    }

    fn resize_one(&mut self) {
        if self.own.is_empty() {
            return;
        }
        let place = self.random.pick(self.own.len());
        let (object, new) = (&mut self.own[place], self.random.layout());
        object.check(object.layout.size());
        let slots = &self.world.slots[object.which];
        // SAFETY: live, with this layout.
        let resized = unsafe {
            match self.random.below(2) {
                0 => slots.realloc(object.affinity, object.at, object.layout, new),
                _ => slots.realloc_unsized(object.affinity, object.at, new),
            }
        };
        match resized {
            Ok(at) => {
                object.at = at;
                object.check(new.size());
                object.layout = new;
                object.fill();
            }
            Err(SlotsError::Budget { .. }) => object.check(object.layout.size()),
            Err(error) => panic!("{error}"),
        }
    }

    /// Objects of the affinity that another thread releases, as long as it does not.
    fn use_marked(&mut self, which: usize) {
        let releases = self.world.releases[which].read().unwrap();
        self.marked.retain(|(made, object)| object.which != which || *made == *releases);
        if self.marked.len() < 400 {
            let object = self.world.make(which, &mut self.random, RELEASED);
            self.marked.extend(object.map(|object| (*releases, object)));
        }
        if self.random.below(2) == 0
            && let Some(place) = self.marked.iter().position(|(_, object)| object.which == which)
        {
            let (_, object) = self.marked.swap_remove(place);
            self.world.free(object, &mut self.random);
        }
    }

    fn keep_house(&mut self, slots: &Slots) {
        match self.random.below(400) {
            0 => drop(slots.trim()),
            1..4 => slots.flush(),
            4 => slots.validate().unwrap(),
            5 => assert!(slots.report().to_string().lines().count() > 1),
            6 => {
                let alignment = 1 << self.random.below(7);
                let max_blocks = Some(self.random.pick(6));
                slots.configure(TIGHT, AffinitySettings { alignment, max_blocks }).unwrap();
            }
            _ => {}
        }
    }

    /// A second free at once, by the thread that allocated, is found in every build.
    fn free_twice(&mut self, which: usize) {
        let Some(object) = self.world.make(which, &mut self.random, Affinity::NODES) else { return };
        let (at, layout) = (object.at, object.layout);
        self.world.free(object, &mut self.random);
        if layout.size() <= 1 << 20 && layout.align() <= 1024 {
            // SAFETY: nobody uses it, and that it is free is what is tested.
            let again = unsafe { self.world.slots[which].free(at) };
            let found = matches!(again, Err(FreeError::DoubleFree | FreeError::Foreign | FreeError::NotASlot));
            assert!(found, "{again:?} {at:?} {layout:?}");
        }
    }
}

/// Slots that are dropped while objects are alive and others are on their way.
fn leave_slots_behind(random: &mut Random) {
    let slots = Slots::new(Pool::global()).unwrap();
    let mut made = Vec::new();
    for which in 0..200 {
        let layout = Layout::from_size_align(16 + which % 90 * 8, 8).unwrap();
        let at = slots.alloc(Affinity::NODES, layout).unwrap();
        made.push(Object { which, at, layout, affinity: Affinity::NODES, key: random.next() });
        made[which].fill();
    }
    let (freed, _kept): (Vec<_>, Vec<_>) = made.into_iter().partition(|object| object.which % 2 == 0);
    let mut random = Random(random.next() | 1);
    let free = || freed.into_iter().for_each(|object| object.free(&slots, &mut random));
    thread::scope(|scope| scope.spawn(free).join().unwrap());
}

/// What a forked child does with what it has inherited.
fn child(world: &World, seed: u64) {
    let mut random = Random(seed | 1);
    let slots = &world.slots[random.pick(3)];
    let mut own = Vec::new();
    for _ in 0..3000 {
        let layout = random.layout();
        own.push((slots.alloc(Affinity::NODES, layout).unwrap(), layout));
        if own.len() > 100 {
            let (at, layout) = own.swap_remove(random.pick(100));
            // SAFETY: live, with this layout, and given up here.
            unsafe { slots.free_sized(Affinity::NODES, at, layout) }.unwrap();
        }
    }
    for (at, _) in own {
        // SAFETY: as above.
        unsafe { slots.free(at) }.unwrap();
    }
    slots.trim();
    slots.validate().unwrap();
    assert!(slots.report().to_string().lines().count() > 1);
}

fn fork_now(world: &World, seed: u64) {
    // SAFETY: the child uses only what is made to work after a fork, and leaves without unwinding.
    let process = unsafe { libc::fork() };
    if process == 0 {
        // SAFETY: a child that waits for something for ever is ended.
        unsafe { libc::alarm(300) };
        let ran = catch_unwind(AssertUnwindSafe(|| child(world, seed)));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(ran.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child above.
    assert_eq!(unsafe { libc::waitpid(process, &raw mut status, 0) }, process);
    assert_eq!(status, 0, "a child has failed");
}

fn release_again_and_again(world: &World, mut random: Random) {
    while world.goes_on() {
        thread::sleep(Duration::from_millis(3 + random.below(20)));
        let which = random.pick(3);
        let mut releases = world.releases[which].write().unwrap();
        // SAFETY: whoever uses the affinity holds the lock for reading meanwhile.
        unsafe { world.slots[which].release(RELEASED) };
        let stats = world.slots[which].stats().affinities[usize::from(RELEASED.index())].clone();
        assert_eq!((stats.live_objects, stats.large_objects), (0, 0), "{stats:?}");
        *releases += 1;
    }
}

fn look_on(world: &World) {
    while world.goes_on() {
        for slots in &world.slots {
            let total = slots.stats().total();
            assert!(total.wasted_bytes < 1 << 40 && total.live_bytes < 1 << 40, "{total:?}");
            assert_eq!(total.late_double_frees, 0);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn fresh_slots(pool: &Pool) -> Slots {
    let slots = Slots::new(pool).unwrap();
    assert_eq!(slots.affinity("released", AffinitySettings::default()).unwrap(), RELEASED);
    let tight = AffinitySettings { alignment: 32, max_blocks: Some(3) };
    assert_eq!(slots.affinity("tight", tight).unwrap(), TIGHT);
    slots
}

#[test]
fn everything_at_once() {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = number("GABION_SEED", time);
    let seconds = number("GABION_SECONDS", if number("GABION_LONG", 0) > 0 { 3600 } else { 2 });
    println!("GABION_SEED={seed} GABION_SECONDS={seconds}");
    let mut settings = Settings::unpooled();
    settings.pool_bytes = 256 << 20;
    let small = Pool::new(system(), settings).unwrap();
    let world = &World {
        slots: [&small, Pool::global(), Pool::global()].map(fresh_slots),
        post: (0..PLACES).map(|_| Mutex::new(None)).collect(),
        releases: [0; 3].map(RwLock::new),
        refused: AtomicU64::new(0),
        end: Instant::now() + Duration::from_secs(seconds),
    };
    let part = |number: u64| Random(seed.wrapping_mul(31).wrapping_add(number.wrapping_mul(1_000_003)) | 1);
    // Joined one by one: a scope waits for what its threads do, and not until they have ended.
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for place in 0..THREADS {
            threads.push(scope.spawn(move || {
                let mut random = part(place);
                while world.goes_on() {
                    // A thread of its own for each life, so that arenas are left and adopted.
                    let life = Life { world, random: Random(random.next() | 1), own: Vec::new(), marked: Vec::new() };
                    thread::scope(|inner| inner.spawn(|| life.live()).join().unwrap());
                }
            }));
        }
        threads.push(scope.spawn(move || release_again_and_again(world, part(THREADS))));
        threads.push(scope.spawn(move || look_on(world)));
        threads.push(scope.spawn(move || {
            let mut random = part(THREADS + 1);
            while world.goes_on() {
                thread::sleep(Duration::from_millis(60));
                fork_now(world, random.next());
            }
        }));
        for one in threads {
            one.join().unwrap();
        }
    });
    let mut random = part(THREADS + 2);
    for place in &world.post {
        let left = place.lock().unwrap().take();
        if let Some(object) = left {
            world.free(object, &mut random);
        }
    }
    for slots in &world.slots {
        // SAFETY: nobody uses the affinity any more.
        unsafe { slots.release(RELEASED) };
        slots.trim();
        // SAFETY: all other threads have ended.
        unsafe { slots.validate_all() }.unwrap();
        let total = slots.stats().total();
        assert_eq!((total.live_objects, total.live_bytes, total.mapped_bytes), (0, 0, 0), "{total:?}");
        assert_eq!(total.late_double_frees, 0);
    }
}
