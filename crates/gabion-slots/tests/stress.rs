//! Threads that allocate, hand over, free each other's objects, end, and begin anew.
//!
//! The seed is printed; `GABION_SEED` sets it, `GABION_OPERATIONS` how many operations there are (ten million by
//! default; `GABION_LONG=1` makes it a thousand million). Every object says what it is, so that any mixture shows. Run
//! it in both builds: the checked one delivers every slot to its owner at once, the other one gathers them first.

use std::alloc::Layout;
use std::env;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::SystemTime;

use gabion_blocks::{Pool, Settings, system};
use gabion_slots::{Affinity, AffinitySettings, Slots};

/// A small generator (Marsaglia 2003): the same numbers for the same seed, everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

const THREADS: u64 = 4;
const PLACES: usize = 512;

/// A live object: its first and its last word are the stamp, which knows its size.
struct Object {
    at: NonNull<u8>,
    affinity: Affinity,
    size: usize,
    stamp: u64,
}

// SAFETY: an object is its holder's alone.
unsafe impl Send for Object {}

impl Object {
    fn layout(&self) -> Layout {
        Layout::from_size_align(self.size, 8).unwrap()
    }

    fn new(slots: &Slots, random: &mut Random) -> Self {
        let size = match random.below(1000) {
            0 => 1_048_577 + random.below(4_000_000),
            1..10 => 1100 + random.below(60_000),
            10..200 => 8 + random.below(1017),
            _ => 8 + random.below(120),
        } as usize;
        let affinity = Affinity::from_index(random.below(5) as u8);
        let stamp = random.below(1 << 40) << 24 | size as u64;
        let at = slots.alloc(affinity, Layout::from_size_align(size, 8).unwrap()).unwrap();
        let object = Self { at, affinity, size, stamp };
        object.write();
        object
    }

    fn write(&self) {
        // SAFETY: live, and at least a word long.
        unsafe {
            self.at.cast::<u64>().write_unaligned(self.stamp);
            self.at.add(self.size - 8).cast::<u64>().write_unaligned(self.stamp);
        }
    }

    fn check(&self) {
        // SAFETY: as above.
        let (first, last) = unsafe {
            (self.at.cast::<u64>().read_unaligned(), self.at.add(self.size - 8).cast::<u64>().read_unaligned())
        };
        let whole = first == self.stamp || self.size < 16;
        assert!(last == self.stamp && whole, "{:?}: {first:x} {last:x} for {:x}", self.at, self.stamp);
    }

    fn free(self, slots: &Slots, sized: bool) {
        self.check();
        // SAFETY: this object's alone, and given up here.
        let freed = unsafe {
            if sized { slots.free_sized(self.affinity, self.at, self.layout()) } else { slots.free(self.at) }
        };
        freed.unwrap();
    }
}

/// One thread's life: some thousand operations on its own objects and on those that it exchanges with others.
fn live(slots: &Slots, shared: &[Mutex<Option<Object>>], mut random: Random, operations: u64) {
    let mut own: Vec<Object> = Vec::new();
    for step in 0..operations {
        match random.below(10) {
            0..4 => own.push(Object::new(slots, &mut random)),
            4..7 if !own.is_empty() => {
                let place = random.below(own.len() as u64) as usize;
                own.swap_remove(place).free(slots, step % 2 == 0);
            }
            7 if !own.is_empty() => {
                let place = random.below(own.len() as u64) as usize;
                let object = &mut own[place];
                object.check();
                let size = 8 + random.below(3000) as usize;
                let new = Layout::from_size_align(size, 8).unwrap();
                // SAFETY: live, with this layout.
                object.at = unsafe { slots.realloc(object.affinity, object.at, object.layout(), new) }.unwrap();
                object.size = size;
                object.write();
            }
            _ => {
                // Hands one over, and frees or keeps what was there, which another thread has allocated.
                let fresh = own.pop();
                let place = &shared[random.below(shared.len() as u64) as usize];
                let found = std::mem::replace(&mut *place.lock().unwrap(), fresh);
                match found {
                    Some(object) if step % 3 > 0 => object.free(slots, step % 2 == 0),
                    Some(object) => own.push(object),
                    None => {}
                }
            }
        }
        if own.len() > 3000 {
            own.drain(..1500).for_each(|object| object.free(slots, true));
        }
        if random.below(200_000) == 0 {
            slots.trim();
        }
    }
    slots.validate().unwrap();
    // Half is freed here, half by whoever finds it.
    for (step, object) in own.into_iter().enumerate() {
        let left =
            if step % 2 == 0 { shared[step % shared.len()].lock().unwrap().replace(object) } else { Some(object) };
        if let Some(object) = left {
            object.free(slots, false);
        }
    }
}

#[test]
fn threads_come_and_go_and_nothing_is_lost() {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = number("GABION_SEED", time) | 1;
    let default = if number("GABION_LONG", 0) > 0 { 1_000_000_000 } else { 10_000_000 };
    let operations = number("GABION_OPERATIONS", default);
    println!("GABION_SEED={seed} GABION_OPERATIONS={operations}");
    let pool = Pool::new(system(), Settings::default()).unwrap();
    let slots = Slots::new(&pool).unwrap();
    let own = AffinitySettings { alignment: 64, max_blocks: None };
    assert_eq!(slots.affinity("own", own).unwrap().index(), 4);
    let shared: Vec<Mutex<Option<Object>>> = (0..PLACES).map(|_| Mutex::new(None)).collect();
    let done = AtomicU64::new(0);
    // Lives of different lengths, one after the other in each of four places. Joined one by one: a scope waits for what
    // its threads do, and not until they have ended.
    thread::scope(|scope| {
        let places: Vec<_> = (0..THREADS)
            .map(|place| {
                let (slots, shared, done) = (&slots, &shared, &done);
                scope.spawn(move || {
                    let mut random = Random(seed.wrapping_mul(2 * place + 3));
                    while done.load(Ordering::Relaxed) < operations {
                        let length = 20_000 + random.below(400_000);
                        let next = Random(random.below(u64::MAX) | 1);
                        thread::scope(|inner| inner.spawn(|| live(slots, shared, next, length)).join().unwrap());
                        done.fetch_add(length, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for place in places {
            place.join().unwrap();
        }
    });
    for place in shared {
        if let Some(object) = place.into_inner().unwrap() {
            object.free(&slots, true);
        }
    }
    slots.flush();
    slots.trim();
    slots.validate().unwrap();
    let total = slots.stats().total();
    assert_eq!((total.live_objects, total.live_bytes, total.mapped_bytes), (0, 0, 0), "{total:?}");
    assert_eq!(total.late_double_frees, 0);
    pool.validate().unwrap();
}

/// After two million replacements at random sizes, what is free or lost is a tenth of what is mapped at most.
#[test]
fn steady_churn_does_not_scatter() {
    let slots = Slots::new(Pool::global()).unwrap();
    let mut random = Random(number("GABION_SEED", 7) | 1);
    let take = |random: &mut Random| {
        let size = 8 + random.below(241) as usize;
        (slots.alloc(Affinity::NODES, Layout::from_size_align(size, 8).unwrap()).unwrap(), size)
    };
    let mut live: Vec<_> = (0..1_000_000).map(|_| take(&mut random)).collect();
    for _ in 0..2_000_000 {
        let place = random.below(live.len() as u64) as usize;
        // SAFETY: live, and replaced at once.
        unsafe { slots.free(live[place].0) }.unwrap();
        live[place] = take(&mut random);
    }
    let nodes = slots.stats().affinities[2].clone();
    let lost = nodes.mapped_bytes - nodes.live_bytes;
    println!("{} KiB live, {} KiB mapped", nodes.live_bytes >> 10, nodes.mapped_bytes >> 10);
    assert!(lost * 10 <= nodes.mapped_bytes, "{nodes:?}");
    let asked: u64 = live.iter().map(|&(_, size)| size as u64).sum();
    assert!(asked * 100 >= nodes.mapped_bytes * 85, "{asked} bytes asked for: {nodes:?}");
    slots.validate().unwrap();
}
