//! What a codec has learnt: a plan for each class it met, and the numbered entries that encodings refer to.
//!
//! Classes change while a program runs. Whether what was learnt of one still holds is told by
//! ```text
//!   version    of a plan       the class's own number at that time; the         looked at for each object that is put
//!                              interpreter changes it with the class or a base
//!   seen       of what was     no known name was bound anew since the name      for each object that is put or built
//!              found by name   was followed, and no class to any name;
//!                              before 3.12, no dict on the way was changed
//!   astray     of the same     a get followed the name, to nothing of use       when a class or function itself is put
//!   plain_at   of a layout     the version at which setting the attributes ran  when one is set, or read by `fields`
//!                              no code of the class's; of slots alone, at
//!                              which their names led to them
//!   reducers   of the registry the state of `copyreg` (`known`)                 once for each put
//!
//!   what happens               is told by   the next put                        the next get
//!   the class or a base gets   version      analyses the class; where it        sets what `plain_at` is too old for in
//!   another attribute                       writes the same fields, renews      the `__dict__`, past the class's code
//!                                           `plain_at`
//!   another class gets the     seen         refuses an instance of the one      hands the number over to the new class
//!   name: a cell of a notebook              before; analyses the new class      (`anew`), which is called where it has a
//!   or a module runs again                                                      `__new__` or a `__setstate__`, or refuses
//!                                                                               where that has no room for the fields
//!   the name is removed, or    seen         imports the module, then as above;  imports the module, then as above; builds
//!   its module                              refuses where there is no name      the class from before where there is no
//!                                                                               name, and notes astray
//!   the class gets another     version, or  finds it by the name that it has    goes by the name that it had when it
//!   module or name, and is     seen         now, and gives it another number    was stored, which may lead to another
//!   bound to that                                                               class by then
//!   another name of the same   seen,        follows the name, to the same as    as the put
//!   module is bound            before 3.12  before, and goes on
//!   `copyreg.pickle()`         reducers     analyses all classes again          nothing: the encoding says how to build
//! ```

use std::collections::HashMap;
#[cfg(Py_GIL_DISABLED)]
use std::marker::PhantomData;
use std::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gabion_blocks::Budget;
use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;

use super::found::Found;
use super::known::Known;
use super::layout::Entry;
use super::plan::{self, Plan};
use super::table::{Retired, Table};
use crate::codec::object::{Own, as_py};
use crate::ffi::{PyObject, PyTypeObject};

/// Entries by number, in chunks of 32, 64, 128 … that never move.
struct Entries {
    chunks: [AtomicPtr<AtomicPtr<Entry>>; 27],
    len: AtomicU32,
}

const FIRST_CHUNK: u32 = 32;

#[inline(always)]
fn place(id: u32) -> (usize, usize) {
    let number = u64::from(id) + u64::from(FIRST_CHUNK);
    let chunk = number.ilog2() - FIRST_CHUNK.ilog2();
    (chunk as usize, (number - (u64::from(FIRST_CHUNK) << chunk)) as usize)
}

#[derive(Default)]
struct Writer {
    // Boxed so that readers' pointers stay valid while the lists grow; nothing is removed before `clear`.
    /// All that were made for a class, by its address: it is held by each of them.
    #[allow(clippy::vec_box)]
    plans: HashMap<usize, Vec<Box<Plan>>>,
    #[allow(clippy::vec_box)]
    entries: Vec<Box<Entry>>,
    chunks: Vec<Box<[AtomicPtr<Entry>]>>,
    by_class: HashMap<usize, Vec<u32>>,
    /// What numbers that went over to another entry stand for and stood for, by the number and the address of the class or function.
    former: HashMap<(u32, usize), Vec<AtomicPtr<Entry>>>,
    retired_plans: Vec<Retired<Plan>>,
    retired_globals: Vec<Retired<Entry>>,
}

/// Readers take no lock. The writer's lock is never held while Python code may run or Python memory is allocated, so it
/// cannot deadlock with the interpreter.
pub struct Registry {
    /// What the owner stores encodings in, if it has a limit.
    room: Option<Arc<Budget>>,
    plans: Table<Plan>,
    globals: Table<Entry>,
    entries: Entries,
    /// [`Known::reducers`] when the plans were made.
    reducers: AtomicIsize,
    /// The class of the whole that had to be begun again last, because code ran within it; 0 for none. Compared only.
    exact: AtomicUsize,
    /// How many calls are in the midst of using entries, and whether these are to go with the last of them.
    #[cfg(not(Py_GIL_DISABLED))]
    users: AtomicUsize,
    writer: Mutex<Writer>,
}

/// The bit of `users` that says that what was learnt is not needed any more.
#[cfg(not(Py_GIL_DISABLED))]
const ENDING: usize = 1 << (usize::BITS - 1);

/// A call that uses entries: they stay as long as it lives.
pub struct User<'a>(#[cfg(not(Py_GIL_DISABLED))] &'a Registry, #[cfg(Py_GIL_DISABLED)] PhantomData<&'a Registry>);

#[cfg(not(Py_GIL_DISABLED))]
impl Drop for User<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Relaxed, and in two steps: attached, as in `begin_use`.
        let left = self.0.users.load(Ordering::Relaxed) - 1;
        self.0.users.store(left, Ordering::Relaxed);
        if left == ENDING {
            self.0.clear();
        }
    }
}

impl Registry {
    pub fn new(room: Option<Arc<Budget>>) -> Registry {
        Registry {
            room,
            plans: Table::new(),
            globals: Table::new(),
            entries: Entries {
                chunks: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
                len: AtomicU32::new(0),
            },
            reducers: AtomicIsize::new(-1),
            exact: AtomicUsize::new(0),
            #[cfg(not(Py_GIL_DISABLED))]
            users: AtomicUsize::new(0),
            writer: Mutex::new(Writer::default()),
        }
    }

    /// The longest encoding that the owner has room for, now.
    #[inline]
    pub fn most(&self) -> u64 {
        self.room.as_ref().map_or(u64::MAX, |room| room.limit())
    }

    /// Begins a call that uses entries. Whoever begins one is attached, and ends it attached.
    #[inline(always)]
    pub fn begin_use(&self) -> User<'_> {
        #[cfg(not(Py_GIL_DISABLED))]
        {
            // Relaxed, and in two steps: under the interpreter's lock, which no thread lets go of between them.
            self.users.store(self.users.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            User(self)
        }
        #[cfg(Py_GIL_DISABLED)]
        User(PhantomData)
    }

    /// Drops what was learnt, now or with the last call that is in the midst of using it. Without the interpreter's lock, the
    /// calls are not counted, as all threads would write to one number: there it goes with the registry.
    pub fn end(&self) {
        #[cfg(not(Py_GIL_DISABLED))]
        {
            let users = self.users.load(Ordering::Relaxed); // Relaxed: as in `begin_use`.
            self.users.store(users | ENDING, Ordering::Relaxed);
            if users & !ENDING == 0 {
                self.clear();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a whole of this class is better begun exactly at once.
    #[inline(always)]
    pub fn begins_exact(&self, class: *mut PyTypeObject) -> bool {
        // Relaxed: a hint; both ways give the same encoding.
        self.exact.load(Ordering::Relaxed) == class as usize
    }

    /// Notes the class of a whole that had to be begun again; null: one that was begun exactly for nothing.
    #[cold]
    pub fn begin_exact(&self, class: *mut PyTypeObject) {
        self.exact.store(class as usize, Ordering::Relaxed); // Relaxed: as above.
    }

    /// Has no plan hold any more when a reducer was registered with `copyreg` since they were made.
    #[inline(always)]
    pub fn check_reducers(&self, known: &Known) {
        let reducers = known.reducers();
        // Relaxed: a hint; whoever registered the reducer did so before on this thread or gets no promise.
        if self.reducers.load(Ordering::Relaxed) != reducers {
            self.forget_plans(reducers);
        }
    }

    #[cold]
    fn forget_plans(&self, reducers: isize) {
        // They stay, and are renewed by what says the same: a program may register a reducer and take it back again and again.
        for plan in self.lock().plans.values().flatten() {
            plan.version.store(plan::NO_VERSION, Ordering::Relaxed); // Relaxed: see `plan`.
        }
        self.reducers.store(reducers, Ordering::Relaxed); // Relaxed: as in `check_reducers`.
    }

    /// The plan for instances of `class`, if it holds for the class as it is now, and the class's name leads to it.
    ///
    /// # Safety
    /// `class` is a live class.
    #[inline(always)]
    pub unsafe fn plan(&self, class: *mut PyTypeObject) -> Option<&Plan> {
        // SAFETY: plans are freed with the registry only.
        let plan = unsafe { self.plans.get(class as usize).as_ref()? };
        // Relaxed: what the number stands for lies in the class, and the plan is whole.
        let version = plan.version.load(Ordering::Relaxed);
        // SAFETY: live by the caller's word.
        let holds = || version == unsafe { plan::version(class) } && (plan.found.is_as_seen() || plan.look());
        (version == plan::ANY_VERSION || holds()).then_some(plan)
    }

    /// Keeps a plan, in place of the one before. Where an earlier one was the same, it is that one which holds from now on: a class
    /// that is modified again and again, by a counter of its instances say, takes no more memory each time.
    pub fn add_plan(&self, class: *mut PyTypeObject, plan: Plan) -> &Plan {
        let key = class as usize;
        let same = self.lock().plans.get(&key).and_then(|plans| {
            let same = plans.iter().find(|before| before.is(&plan));
            same.map(|before| std::ptr::from_ref(&**before))
        });
        let raw = if let Some(before) = same {
            // SAFETY: boxed and kept by the writer as long as the registry lives. Not under its lock, as code may run.
            unsafe { (*before).renew(&plan) };
            before
        } else {
            let plan = Box::new(plan);
            let raw = std::ptr::from_ref(&*plan);
            self.lock().plans.entry(key).or_default().push(plan);
            raw
        };
        if self.plans.get(key).cast_const() != raw {
            let mut writer = self.lock();
            let retired = self.plans.insert(key, raw.cast_mut());
            writer.retired_plans.extend(retired);
        }
        // SAFETY: as above, so it stays where it is.
        unsafe { &*raw }
    }

    /// The entry of a number, if there is one. O(1).
    #[inline(always)]
    pub fn entry(&self, id: u32) -> Option<&Entry> {
        // Acquire: pairs with the Release in `add`; the entry is written before the length.
        if id >= self.entries.len.load(Ordering::Acquire) {
            return None;
        }
        let (chunk, index) = place(id);
        // Relaxed: ordered by the length above.
        let chunk = self.entries.chunks[chunk].load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `replace`.
        // SAFETY: numbers below the length have their chunk and cell filled; entries live as long as the registry.
        unsafe { Some(&*(*chunk.add(index)).load(Ordering::Acquire)) }
    }

    /// Has a number stand for another entry: for an earlier one of its that says the same, if there is one. So a name that goes to
    /// and fro takes no more memory each time. Whoever is using the one before may go on.
    pub fn replace(&self, id: u32, entry: Entry) -> &Entry {
        let (class, mut entry) = (entry.about().0.ptr() as usize, Box::new(entry));
        let (chunk, index) = place(id);
        let mut guard = self.lock();
        let writer = &mut *guard;
        let cells = self.entries.chunks[chunk].load(Ordering::Relaxed); // Relaxed: under the lock.
        // SAFETY: a number that was given has its chunk and cell.
        let cell = unsafe { &*cells.add(index) };
        let before = cell.load(Ordering::Relaxed); // Relaxed: under the lock.
        // SAFETY: boxed and kept by the writer as long as the registry lives; so below.
        let class_before = unsafe { (*before).about().0.ptr() as usize };
        let former = writer.former.entry((id, class_before)).or_default();
        // Relaxed: under the lock.
        if former.iter().all(|raw| raw.load(Ordering::Relaxed) != before) {
            former.push(AtomicPtr::new(before));
        }
        let former = writer.former.entry((id, class)).or_default();
        // Relaxed: under the lock.
        // SAFETY: as above.
        let earlier = former.iter().map(|raw| raw.load(Ordering::Relaxed)).find(|&raw| unsafe { (*raw).is(&entry) });
        let (raw, spare) = if let Some(raw) = earlier {
            // SAFETY: as above.
            unsafe { (*raw).renew(&entry) };
            (raw, Some(entry))
        } else {
            let raw: *mut Entry = &raw mut *entry;
            writer.entries.push(entry);
            former.push(AtomicPtr::new(raw));
            let ids = writer.by_class.entry(class).or_default();
            if !ids.contains(&id) {
                ids.push(id);
            }
            (raw, None)
        };
        // Release: the entry before its address.
        cell.store(raw, Ordering::Release);
        drop(guard);
        // What it holds may run code when it goes.
        drop(spare);
        // SAFETY: as above.
        unsafe { &*raw }
    }

    /// Finds an entry of this class, found by the same name, that `same` accepts, or adds the one that `make` builds for the next
    /// number.
    pub fn find_or_add(
        &self,
        class: *mut PyObject,
        found: &Found,
        same: impl Fn(&Entry) -> bool,
        make: impl FnOnce(u32) -> Entry,
    ) -> &Entry {
        let mut writer = self.lock();
        let fits = |entry: &&Entry| {
            let (object, at) = entry.about();
            object.ptr() == class && at.is_named_as(found) && same(entry)
        };
        for &id in writer.by_class.get(&(class as usize)).into_iter().flatten() {
            let former = writer.former.get(&(id, class as usize)).into_iter().flatten();
            // Relaxed: under the lock.
            // SAFETY: boxed and kept by the writer as long as the registry lives.
            let former = former.map(|raw| unsafe { &*raw.load(Ordering::Relaxed) });
            // A number may have gone over to another class, and comes back with the name.
            if let Some(entry) = self.entry(id).into_iter().chain(former).find(fits) {
                return entry;
            }
        }
        let id = self.entries.len.load(Ordering::Relaxed); // Relaxed: under the lock.
        let mut entry = Box::new(make(id));
        let raw: *mut Entry = &raw mut *entry;
        writer.entries.push(entry);
        writer.by_class.entry(class as usize).or_default().push(id);
        let (chunk, index) = place(id);
        if index == 0 {
            let cells: Box<[AtomicPtr<Entry>]> =
                (0..FIRST_CHUNK << chunk).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
            writer.chunks.push(cells);
            if let Some(cells) = writer.chunks.last_mut() {
                self.entries.chunks[chunk].store(cells.as_mut_ptr(), Ordering::Relaxed); // Relaxed: before the length.
            }
        }
        let cells = self.entries.chunks[chunk].load(Ordering::Relaxed); // Relaxed: under the lock.
        // SAFETY: the chunk exists and has a cell of that index.
        unsafe { (*cells.add(index)).store(raw, Ordering::Relaxed) };
        // Release: the entry, its cell and its chunk before the length.
        self.entries.len.store(id + 1, Ordering::Release);
        // SAFETY: boxed and kept by the writer as long as the registry lives.
        unsafe { &*raw }
    }

    /// The entry that a class or function was given, or null.
    #[inline(always)]
    pub fn global(&self, object: *mut PyObject) -> Option<&Entry> {
        // SAFETY: entries live as long as the registry.
        unsafe { self.globals.get(object as usize).as_ref() }
    }

    /// Gives a class or function that was found there a number.
    pub fn add_global(&self, object: &Own, found: Found) -> &Entry {
        let mut entry = self.find_or_add(
            object.ptr(),
            &found,
            |entry| matches!(entry, Entry::Global { .. }),
            |id| Entry::Global { id, object: object.clone(), found: found.clone() },
        );
        if let Entry::Global { id, found: before, .. } = entry
            && !before.leads_here()
        {
            entry = self.replace(*id, Entry::Global { id: *id, object: object.clone(), found });
        }
        let mut writer = self.lock();
        let retired = self.globals.insert(object.ptr() as usize, std::ptr::from_ref(entry).cast_mut());
        writer.retired_globals.extend(retired);
        entry
    }

    /// Numbers given so far: layouts, classes and functions.
    pub fn len(&self) -> usize {
        self.entries.len.load(Ordering::Acquire) as usize // Acquire: as in `entry`.
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let writer = self.lock();
        writer.plans.values().flatten().try_for_each(|plan| {
            visit.call(as_py(&plan.class))?;
            plan.found.visit(visit)
        })?;
        writer.entries.iter().try_for_each(|entry| entry.visit(visit))
    }

    /// Drops all references to Python objects: nobody may be encoding or decoding.
    #[cold]
    #[inline(never)]
    pub fn clear(&self) {
        let mut writer = self.lock();
        self.entries.len.store(0, Ordering::Release); // Release: no number is valid before anything is dropped.
        let tables = (self.plans.clear(), self.globals.clear());
        let dropped = std::mem::take(&mut *writer);
        drop(writer);
        drop((tables, dropped));
    }
}
