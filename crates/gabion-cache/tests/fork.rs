//! A forked child, in whose parent a factory runs.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;

use gabion_cache::{Cache, Deadlock, PutOptions, ReadBuf};

/// What a child ended with: 0 when `check` came to its end.
fn forked(check: impl FnOnce()) -> i32 {
    // SAFETY: the child uses only what is made to work after a fork, and leaves without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a child that waits for something for ever is ended.
        unsafe { libc::alarm(60) };
        let ran = catch_unwind(AssertUnwindSafe(check));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(ran.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

fn make(cache: &Cache, value: &[u8]) -> Result<Vec<u8>, Deadlock> {
    cache.get_or_put(b"key", &PutOptions::default(), || Ok::<_, Deadlock>(value.to_vec()))
}

/// It waited for ever: for a factory that only its parent ran.
#[test]
fn a_child_makes_what_another_thread_of_its_parent_was_making() {
    let cache = Cache::new(64 << 20).unwrap();
    let [begun, go] = [(); 2].map(|()| Barrier::new(2));
    thread::scope(|scope| {
        let parents = scope.spawn(|| {
            cache.get_or_put(b"key", &PutOptions::default(), || {
                begun.wait();
                go.wait();
                Ok::<_, Deadlock>(b"parent's".to_vec())
            })
        });
        begun.wait();
        let child = || {
            forked(|| {
                assert_eq!(make(&cache, b"child's").unwrap(), b"child's");
                assert_eq!(cache.get(b"key", &mut ReadBuf::new()), Some(&b"child's"[..]));
                cache.validate().unwrap();
            })
        };
        let ended = [child(), child()];
        go.wait();
        assert_eq!(ended, [0; 2]);
        assert_eq!(parents.join().unwrap().unwrap(), b"parent's");
    });
    assert_eq!(make(&cache, b"another").unwrap(), b"parent's");
}

/// The factory itself forks: in the child, too, it may not wait for its own end, and its value is kept.
#[test]
fn a_factory_that_forks_runs_on_in_both() {
    let cache = Cache::new(64 << 20).unwrap();
    let status = Cell::new(-1);
    let made = cache.get_or_put(b"key", &PutOptions::default(), || {
        status.set(forked(|| assert_eq!(make(&cache, b"again").err(), Some(Deadlock::Recursive))));
        Ok::<_, Deadlock>(b"made".to_vec())
    });
    assert_eq!((made.unwrap(), status.get()), (b"made".to_vec(), 0));
}
