//! Whether names in dicts may have been bound anew since they were looked up: a comparison or two.
//!
//! From 3.12 on the interpreter tells who watches a dict when it changes. A name that is known here then moves on one
//! number, with which everything that was looked up is compared. Before, each dict has a number of its own, which moves
//! on with every change. What follows from it: see the tables at the head of `registry`.

pub use state::{Seen, changes, watch, watch_all};

#[cfg(Py_3_12)]
mod state {
    use std::ffi::c_int;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU64, Ordering};

    use crate::codec::object::Own;
    use crate::ffi::{self, PyObject};

    /// Moved on when a name that is known is about to be bound anew.
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    /// A bit for each name that is known, by its hash: changes of others cost no more than a look here.
    static NAMES: [AtomicU64; 1 << 10] = [const { AtomicU64::new(0) }; 1 << 10];
    static WATCHER: OnceLock<Option<c_int>> = OnceLock::new();
    /// The dict of which each change counts, whatever the name; null where nobody watches it.
    static ALL_OF: AtomicPtr<PyObject> = AtomicPtr::new(std::ptr::null_mut());
    /// Its changes so far.
    static CHANGES: AtomicIsize = AtomicIsize::new(0);

    /// The number that stood when names were looked up last; 0 for never.
    pub struct Seen(AtomicU64);

    /// The number, as it stands before names are looked up.
    pub struct Now(u64);

    impl Seen {
        /// Nothing seen yet, of these dicts.
        pub fn new<'a>(_dicts: impl ExactSizeIterator<Item = &'a Own>) -> Seen {
            Seen(AtomicU64::new(0))
        }

        /// Whether no name was bound anew.
        #[inline(always)]
        pub fn is_now(&self) -> bool {
            // Relaxed: a racing change is seen before or after, like a racing call of any method.
            self.0.load(Ordering::Relaxed) == NUMBER.load(Ordering::Relaxed)
        }

        pub fn now(&self) -> Now {
            Now(NUMBER.load(Ordering::Acquire)) // Acquire: the lookup comes after it.
        }

        /// Whether no name was bound anew in the first of the dicts. False where nobody knows.
        #[expect(clippy::unused_self, reason = "one number stands for all dicts")]
        pub fn has_same_modules(&self) -> bool {
            false
        }

        /// The names were looked up since `now`.
        pub fn set(&self, Now(number): Now) {
            // There are few watchers, and others may have taken them all: then names are looked up each time.
            if matches!(WATCHER.get(), Some(Some(_))) {
                self.0.store(number, Ordering::Relaxed); // Relaxed: see `is_now`.
            }
        }
    }

    fn watcher() -> Option<c_int> {
        // SAFETY: attached, as all of the codec; errors are dropped.
        *WATCHER.get_or_init(|| unsafe {
            let watcher = ffi::PyDict_AddWatcher(changed);
            if watcher < 0 {
                ffi::PyErr_Clear();
            }
            (watcher >= 0).then_some(watcher)
        })
    }

    /// Has all changes of one dict counted, which is never freed.
    pub fn watch_all(dict: &Own) {
        let Some(watcher) = watcher() else { return };
        // SAFETY: held; what is no dict is refused with an error, which is dropped.
        unsafe {
            if ffi::PyDict_Watch(watcher, dict.ptr()) < 0 {
                ffi::PyErr_Clear();
            } else {
                ALL_OF.store(dict.ptr(), Ordering::Relaxed); // Relaxed: compared only, and changes follow on this thread.
            }
        }
    }

    /// A number that moves on with each change of the dict of [`watch_all`]; where no watcher was free, its size.
    ///
    /// # Safety
    /// That dict, an exact one, live.
    #[inline(always)]
    pub unsafe fn changes(dict: *mut ffi::PyDictObject) -> isize {
        // Relaxed, both: a racing change is seen before or after, like a racing call of any method.
        if ALL_OF.load(Ordering::Relaxed) == dict.cast() {
            return CHANGES.load(Ordering::Relaxed);
        }
        // The size alone, without the function call of `PyDict_Size`.
        // SAFETY: live by the caller's word.
        unsafe { (*dict).ma_used }
    }

    /// Has changes of this name in this dict told.
    pub fn watch(dict: &Own, name: &Own) {
        let Some(watcher) = watcher() else { return };
        // SAFETY: a dict and a string, both held.
        unsafe {
            let (word, bit) = place(ffi::PyObject_Hash(name.ptr()) as u64);
            word.fetch_or(bit, Ordering::Relaxed); // Relaxed: the dict is looked at after it was marked.
            if ffi::PyDict_Watch(watcher, dict.ptr()) < 0 {
                ffi::PyErr_Clear();
            }
        }
    }

    fn place(hash: u64) -> (&'static AtomicU64, u64) {
        (&NAMES[(hash >> 6) as usize % NAMES.len()], 1 << (hash % 64))
    }

    /// Called by the interpreter before each change of a dict that is watched.
    unsafe extern "C" fn changed(_what: c_int, dict: *mut PyObject, key: *mut PyObject, new: *mut PyObject) -> c_int {
        // Relaxed, both: see `changes`.
        if dict == ALL_OF.load(Ordering::Relaxed) {
            CHANGES.fetch_add(1, Ordering::Relaxed);
            return 0;
        }
        // A class gets a name that nobody knows: it may have been given another one, and be found by that from now on.
        // SAFETY: a live value or null.
        let is_class = !new.is_null() && unsafe { ffi::PyType_Check(new) != 0 };
        // SAFETY: a live key or null; a string's hash runs no code.
        let may_be_ours = unsafe {
            is_class || key.is_null() || ffi::PyUnicode_CheckExact(key) == 0 || {
                let (word, bit) = place(ffi::PyObject_Hash(key) as u64);
                word.load(Ordering::Relaxed) & bit != 0 // Relaxed: see `watch`.
            }
        };
        if may_be_ours {
            // Release: whoever reads the number, and then waits for the dict, sees the change.
            NUMBER.fetch_add(1, Ordering::Release);
        }
        0
    }
}

#[cfg(not(Py_3_12))]
mod state {
    use std::sync::atomic::{AtomicU64, Ordering};

    use crate::codec::object::Own;
    use crate::ffi;

    /// How many dicts are compared: with a class inside a class, three.
    const MOST: usize = 3;
    static NO_DICT: u64 = 0;
    /// A sum that no dicts have.
    const NEVER: u64 = u64::MAX;

    /// What the numbers of dicts came to when names were looked up in them last. No number ever gets smaller, so none
    /// has changed when the sum is the same.
    pub struct Seen {
        /// Where the dicts have their numbers. Whoever has the `Seen` holds the dicts.
        numbers: [*const u64; MOST],
        sum: AtomicU64,
        /// The number of the first.
        first: AtomicU64,
        /// There are more dicts than are compared, so names are looked up each time.
        too_many: bool,
    }

    /// The sum as it stands before names are looked up.
    pub struct Now {
        sum: u64,
        first: u64,
    }

    impl Seen {
        /// Nothing seen yet, of these dicts.
        pub fn new<'a>(dicts: impl ExactSizeIterator<Item = &'a Own>) -> Seen {
            let (too_many, mut numbers) = (dicts.len() > MOST, [&raw const NO_DICT; MOST]);
            for (number, dict) in numbers.iter_mut().zip(dicts) {
                // SAFETY: a dict, held.
                *number = unsafe { &raw const (*dict.ptr().cast::<ffi::PyDictObject>()).ma_version_tag };
            }
            Seen { numbers, sum: AtomicU64::new(NEVER), first: AtomicU64::new(NEVER), too_many }
        }

        /// Whether no name was bound anew.
        #[inline(always)]
        pub fn is_now(&self) -> bool {
            self.now().sum == self.sum.load(Ordering::Relaxed) // Relaxed: the interpreter's lock orders everything.
        }

        #[inline(always)]
        pub fn now(&self) -> Now {
            let [one, two, three] = self.numbers;
            // SAFETY: the dicts are held; the interpreter's lock keeps others from changing them.
            unsafe { Now { sum: (*one).wrapping_add(*two).wrapping_add(*three), first: *one } }
        }

        /// The names were looked up since `now`.
        pub fn set(&self, now: Now) {
            // Relaxed, both: see `is_now`.
            self.first.store(now.first, Ordering::Relaxed);
            if !self.too_many {
                self.sum.store(now.sum, Ordering::Relaxed);
            }
        }

        /// Whether no name was bound anew in the first of the dicts.
        pub fn has_same_modules(&self) -> bool {
            self.now().first == self.first.load(Ordering::Relaxed) // Relaxed: see `is_now`.
        }
    }

    /// Each dict has its number anyway.
    pub fn watch(_dict: &Own, _name: &Own) {}

    /// As `watch`.
    pub fn watch_all(_dict: &Own) {}

    /// A number that is another one after each change of a dict.
    ///
    /// # Safety
    /// An exact dict, live.
    #[inline(always)]
    pub unsafe fn changes(dict: *mut ffi::PyDictObject) -> isize {
        // SAFETY: live by the caller's word.
        unsafe { (*dict).ma_version_tag as isize }
    }
}
