//! A process that writes to a pile's file is killed, at any moment and again and again: whatever it had said to be done
//! is there, and what it was at is done or is not.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use gabion_pile::{OpenOptions, Pile, Pointer, ReadBuf};

const THREADS: usize = 2;
const CHILD: &str = "GABION_KILLED_CHILD";

fn seed() -> u64 {
    let seed = std::env::var("GABION_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("GABION_SEED={seed}");
    seed
}

/// Numbers below a bound, one after another.
fn chance(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(2).wrapping_add(1).wrapping_mul(0x9E37_79B9_97F4_A7C1);
    move |end| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % end
    }
}

fn payload(number: u64, length: usize) -> Vec<u8> {
    let head = number.to_le_bytes().into_iter().chain((length as u64).to_le_bytes());
    head.chain((0..).map(|at| (at / 8 + 31 * (number as usize % 256)) as u8)).take(length.max(16)).collect()
}

fn open(path: &Path) -> Pile {
    Pile::open(path, &OpenOptions { shards: Some(THREADS), ..OpenOptions::default() }).unwrap()
}

/// What is done to one object.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Put { number: u64, length: usize },
    Replace { pointer: u64, number: u64, length: usize },
    Remove { pointer: u64 },
}

/// The process that is killed: says what it is about to do, does it, and says that it is done.
fn work(path: &Path, seed: u64) {
    let (pile, out) = (open(path), Mutex::new(std::io::stdout()));
    let say = |line: String| {
        let mut out = out.lock().unwrap();
        out.write_all(line.as_bytes()).and_then(|()| out.flush()).unwrap_or_else(|_| std::process::exit(0));
    };
    let all: Vec<u64> = pile.pointers().map(Pointer::to_bits).collect();
    let (pile, say) = (&pile, &say);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            // Each thread has objects of its own.
            let own = all.iter().copied().filter(move |pointer| (pointer >> 3) as usize % THREADS == thread);
            let mut own: Vec<u64> = own.collect();
            let mut below = chance(seed.wrapping_mul(THREADS as u64).wrapping_add(thread as u64));
            scope.spawn(move || {
                for step in 0.. {
                    let number = seed << 32 | (thread as u64) << 24 | step;
                    let length = match below(16) {
                        0..9 => below(300),
                        9..14 => below(3000),
                        14 => below(40_000),
                        _ => below(1_500_000),
                    } as usize;
                    let some = own.len().checked_sub(1).map(|last| below(last as u64 + 1) as usize);
                    match (below(8), some) {
                        (0..3, _) | (_, None) => {
                            say(format!("\n{thread} put {number} {length} 0"));
                            let pointer =
                                pile.put_with_reserve(&payload(number, length), below(2) as usize * 100).unwrap();
                            say(format!("\n{thread} done {} 0 0", pointer.to_bits()));
                            own.push(pointer.to_bits());
                        }
                        (3..6, Some(at)) => {
                            say(format!("\n{thread} replace {number} {length} {}", own[at]));
                            pile.replace(Pointer::from_bits(own[at]).unwrap(), &payload(number, length)).unwrap();
                            say(format!("\n{thread} done 0 0 0"));
                        }
                        (_, Some(at)) => {
                            let pointer = own.swap_remove(at);
                            say(format!("\n{thread} remove 0 0 {pointer}"));
                            pile.remove(Pointer::from_bits(pointer).unwrap()).unwrap();
                            say(format!("\n{thread} done 0 0 0"));
                        }
                    }
                    if below(200) == 0 {
                        pile.compact();
                    }
                }
            });
        }
    });
}

/// What is known of the pile from outside.
#[derive(Default)]
struct Model {
    live: HashMap<u64, Vec<u8>>,
    gone: HashSet<u64>,
}

impl Model {
    fn apply(&mut self, step: Step, pointer: u64) {
        match step {
            Step::Put { number, length } => drop(self.live.insert(pointer, payload(number, length))),
            Step::Replace { pointer, number, length } => drop(self.live.insert(pointer, payload(number, length))),
            Step::Remove { pointer } => {
                self.live.remove(&pointer);
                self.gone.insert(pointer);
            }
        }
    }

    /// Compares the pile with what is known, and learns what became of what was under way.
    fn compare(&mut self, pile: &Pile, under_way: &[Step]) {
        let mut buf = ReadBuf::new();
        for &step in under_way {
            match step {
                Step::Put { number, length } => {
                    let wanted = payload(number, length);
                    let new = |&pointer: &Pointer| !self.live.contains_key(&pointer.to_bits());
                    let is = |&pointer: &Pointer| pile.read(pointer, &mut ReadBuf::new()).unwrap() == wanted;
                    let found: Vec<_> = pile.pointers().filter(new).filter(is).collect();
                    assert!(found.len() <= 1);
                    for pointer in found {
                        self.live.insert(pointer.to_bits(), wanted.clone());
                    }
                }
                Step::Replace { pointer, number, length } => {
                    let found = pile.read(Pointer::from_bits(pointer).unwrap(), &mut buf).unwrap();
                    let wanted = payload(number, length);
                    assert!(found == wanted || found == self.live[&pointer], "{step:?}: neither the old nor the new");
                    self.live.insert(pointer, found.to_vec());
                }
                Step::Remove { pointer } => {
                    if !pile.contains(Pointer::from_bits(pointer).unwrap()) {
                        self.apply(step, 0);
                    }
                }
            }
        }
        for (&pointer, bytes) in &self.live {
            assert!(pile.read(Pointer::from_bits(pointer).unwrap(), &mut buf).unwrap() == bytes, "{pointer}");
        }
        assert!(
            self.gone.iter().all(|&pointer| !pile.contains(Pointer::from_bits(pointer).unwrap())),
            "a removed object is back"
        );
        assert_eq!(pile.len(), self.live.len() as u64, "something that nobody knows is there");
        pile.validate().unwrap();
    }
}

/// Has a child work for a while and kills it. Returns what it had begun and not said to be done.
fn round(path: &Path, seed: u64, time: Duration, model: &mut Model) -> Vec<Step> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_child", "--nocapture"])
        .env(CHILD, path)
        .env("GABION_SEED", seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).collect::<Vec<_>>());
    std::thread::sleep(time);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut under_way: HashMap<usize, Step> = HashMap::new();
    for line in reader.join().unwrap() {
        let words: Vec<_> = line.split(' ').collect();
        // The test's own words, and what was cut off.
        let [thread, what, rest @ ..] = &words[..] else { continue };
        let (Ok(thread), Ok(rest)) =
            (thread.parse(), rest.iter().map(|word| word.parse()).collect::<Result<Vec<u64>, _>>())
        else {
            continue;
        };
        let &[first, second, third] = &rest[..] else { continue };
        let step = match *what {
            "put" => Step::Put { number: first, length: second as usize },
            "replace" => Step::Replace { pointer: third, number: first, length: second as usize },
            "remove" => Step::Remove { pointer: third },
            _ => {
                let step = under_way.remove(&thread).unwrap();
                model.apply(step, first);
                continue;
            }
        };
        under_way.insert(thread, step);
    }
    under_way.into_values().collect()
}

#[test]
fn the_child() {
    let Ok(path) = std::env::var(CHILD) else { return };
    work(Path::new(&path), seed());
}

#[test]
fn nothing_that_was_done_is_lost_when_the_process_is_killed() {
    let rounds = std::env::var("GABION_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(40);
    let seed = seed();
    let mut below = chance(seed);
    let path: PathBuf = std::env::temp_dir().join(format!("gabion-{}-killed.pile", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let (mut model, mut steps) = (Model::default(), 0);
    for number in 0..rounds {
        let time = Duration::from_micros(3_000 + below(60_000));
        let before = model.live.len() + model.gone.len();
        let under_way = round(&path, seed.wrapping_mul(1000).wrapping_add(number), time, &mut model);
        steps += model.live.len() + model.gone.len() - before;
        if path.exists() {
            model.compare(&open(&path), &under_way);
        }
    }
    println!("{rounds} times killed, {steps} objects put, {} live", model.live.len());
    assert!(steps as u64 > rounds, "the children came to nothing");
    std::fs::remove_file(&path).unwrap();
}
