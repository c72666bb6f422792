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
//!
//! Numbers may be from a file, restored before anything else:
//! ```text
//!   record ──restore──► unmet ──the first get that refers to it finds what may be built (`met`)──► an entry like any other
//!                         └────a put of what the record describes, under the same name (`find_or_add`)──►┘
//! ```
//! Each of these hands the number over as above, so whoever is using an entry may go on. What a record says of a number
//! stays, whatever it is handed over to.

use std::collections::HashMap;
#[cfg(Py_GIL_DISABLED)]
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gabion_blocks::Budget;
use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;

use super::entries::{Chunk, Entries};
use super::file_records::FileRecords;
use super::found::Found;
use super::known::Known;
use super::layout::Entry;
use super::plan::{self, Plan};
use super::record::{self, Record};
use super::table::{Retired, Table};
use super::types::Types;
use crate::codec::object::{Own, Raise, as_py, refuse};
use crate::codec::room;
use crate::ffi::{self, PyObject, PyTypeObject};

#[derive(Default)]
struct Writer {
    // Boxed so that readers' pointers stay valid while the lists grow; nothing is removed before `clear`.
    /// All that were made for a class, by its address: it is held by each of them.
    #[allow(clippy::vec_box)]
    plans: HashMap<usize, Vec<Box<Plan>>>,
    #[allow(clippy::vec_box)]
    entries: Vec<Box<Entry>>,
    chunks: Vec<Chunk>,
    by_class: HashMap<usize, Vec<u32>>,
    /// What numbers that went over to another entry stand for and stood for, by the number and the address of the class
    /// or function.
    former: HashMap<(u32, usize), Vec<AtomicPtr<Entry>>>,
    retired_plans: Vec<Retired<Plan>>,
    retired_globals: Vec<Retired<Entry>>,
    /// What the numbers stand for that are from a file.
    records: FileRecords,
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
    /// Numbers are from a file. Relaxed: they are restored before the owner lets others at the codec.
    restored: AtomicBool,
    /// So are they, and the program lets no more be built than it says. Relaxed: as above.
    guarded: AtomicBool,
    /// A number stands for an object that cannot be called, and is no class: one that pickle finds by a name. Relaxed:
    /// it is set before anybody gets the object.
    names_objects: AtomicBool,
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
    /// With what may be built of the classes that a file names, if there is one.
    pub fn new(room: Option<Arc<Budget>>, types: Types) -> Registry {
        Registry {
            room,
            plans: Table::new(),
            globals: Table::new(),
            entries: Entries::new(),
            reducers: AtomicIsize::new(-1),
            exact: AtomicUsize::new(0),
            restored: AtomicBool::new(false),
            guarded: AtomicBool::new(false),
            names_objects: AtomicBool::new(false),
            #[cfg(not(Py_GIL_DISABLED))]
            users: AtomicUsize::new(0),
            writer: Mutex::new(Writer { records: FileRecords::new(types), ..Writer::default() }),
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

    /// Drops what was learnt, now or with the last call that is in the midst of using it. Without the interpreter's
    /// lock, the calls are not counted, as all threads would write to one number: there it goes with the registry.
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
        // They stay, and are renewed by what says the same: a program may register a reducer and take it back again and
        // again.
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
        let holds = || version == unsafe { plan::version(class) } && (plan.found.is_as_seen() || plan.revalidate());
        (version == plan::ANY_VERSION || holds()).then_some(plan)
    }

    /// The last plan for instances of `class`, whether it holds or not. Where slots and attributes lie does not change.
    pub fn last_plan(&self, class: *mut PyTypeObject) -> Option<&Plan> {
        // SAFETY: plans are freed with the registry only.
        unsafe { self.plans.get(class as usize).as_ref() }
    }

    /// Keeps a plan, in place of the one before. Where an earlier one was the same, it is that one which holds from now
    /// on: a class that is modified again and again, by a counter of its instances say, takes no more memory each time.
    pub fn add_plan(&self, class: *mut PyTypeObject, plan: Plan) -> &Plan {
        let key = class as usize;
        let same = self.lock().plans.get(&key).and_then(|plans| {
            let same = plans.iter().find(|before| before.is_equivalent(&plan));
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
        self.entries.get(id)
    }

    /// Has a number stand for another entry: for an earlier one of its that says the same, if there is one. So a name
    /// that goes to and fro takes no more memory each time. Whoever is using the one before may go on.
    pub fn replace(&self, id: u32, entry: Entry) -> &Entry {
        let entry = Box::new(entry);
        let (raw, spare) = self.put(&mut self.lock(), id, entry);
        // What it holds may run code when it goes: not under the lock.
        drop(spare);
        // SAFETY: boxed and kept by the writer as long as the registry lives.
        unsafe { &*raw }
    }

    /// As [`Registry::replace`], under the lock. Returns what is not needed as well.
    fn put(&self, writer: &mut Writer, id: u32, mut entry: Box<Entry>) -> (*const Entry, Option<Box<Entry>>) {
        let class = |entry: &Entry| entry.about().map(|(class, _)| class.ptr() as usize);
        let before = self.entries.at(id);
        // SAFETY: boxed and kept by the writer as long as the registry lives; so below.
        if let Some(class) = class(unsafe { &*before }) {
            let former = writer.former.entry((id, class)).or_default();
            // Relaxed: under the lock.
            if former.iter().all(|raw| raw.load(Ordering::Relaxed) != before) {
                former.push(AtomicPtr::new(before));
            }
        }
        let Some(class) = class(&entry) else { return (before, Some(entry)) };
        let former = writer.former.entry((id, class)).or_default();
        // Relaxed: under the lock.
        // SAFETY: as above.
        let earlier =
            former.iter().map(|raw| raw.load(Ordering::Relaxed)).find(|&raw| unsafe { (*raw).is_equivalent(&entry) });
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
        // SAFETY: as above.
        if !unsafe { (*before).is_filled_sooner(&*raw) } {
            self.entries.put(id, raw);
        }
        (raw, spare)
    }

    /// Finds an entry of this class, found by the same name, that `same` accepts, or adds the one that `make` builds
    /// for the next number: for its old one, if a file has one for the like.
    pub fn find_or_add(
        &self,
        class: *mut PyObject,
        found: &Found,
        same: impl Fn(&Entry) -> bool,
        make: impl FnOnce(u32) -> Entry,
    ) -> &Entry {
        // Before the lock: it takes memory of Python's.
        let path = self.path_in_file(found);
        let mut guard = self.lock();
        let writer = &mut *guard;
        let fits = |entry: &&Entry| {
            let named = |(object, at): (&Own, &Found)| object.ptr() == class && at.is_named_as(found);
            entry.about().is_some_and(named) && same(entry)
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
        let id = self.entries.len();
        let mut entry = Box::new(make(id));
        let again = path.as_deref().and_then(|path| writer.records.number_of(path, class, &entry));
        let raw = if let Some(id) = again {
            entry.set_id(id);
            let (raw, spare) = self.put(writer, id, entry);
            drop(guard);
            // As in `replace`.
            drop(spare);
            raw
        } else {
            let raw: *mut Entry = &raw mut *entry;
            writer.entries.push(entry);
            writer.by_class.entry(class as usize).or_default().push(id);
            if let Some(path) = path {
                writer.records.note(path, id);
            }
            self.entries.push(raw, &mut writer.chunks);
            raw
        };
        // SAFETY: boxed and kept by the writer as long as the registry lives.
        unsafe { &*raw }
    }

    /// The name of what was found there, as files have it; `None` where there is no file, or no such name.
    fn path_in_file(&self, found: &Found) -> Option<Vec<u8>> {
        if !self.restored.load(Ordering::Relaxed) {
            return None;
        }
        let (module, name) = found.names()?;
        let path = record::path(module, name);
        if path.is_err() {
            // SAFETY: attached, with an error set. Without a name it gets a new number, which is as good.
            unsafe { crate::ffi::PyErr_Clear() };
        }
        path.ok()
    }

    /// Takes numbers over from a file, of which nothing is asked for yet.
    ///
    /// # Errors
    /// `CodecError` where there are numbers already; `MemoryError`.
    pub fn restore(&self, records: Vec<Arc<Record>>) -> Raise<()> {
        let types = Arc::clone(&self.lock().records.types);
        let entries = room::list(records.iter().map(|record| Box::new(Entry::Unmet(Arc::clone(record)))))?;
        let records = FileRecords::of(records, types)?;
        let mut guard = self.lock();
        let writer = &mut *guard;
        if self.entries.len() > 0 {
            drop(guard);
            return Err(refuse("classes are restored before anything else is stored, and once"));
        }
        for mut entry in entries {
            let raw: *mut Entry = &raw mut *entry;
            writer.entries.push(entry);
            self.entries.push(raw, &mut writer.chunks);
        }
        self.guarded.store(!records.types.everything, Ordering::Relaxed); // Relaxed: see the field.
        writer.records = records;
        self.restored.store(true, Ordering::Relaxed); // Relaxed: see the field.
        Ok(())
    }

    /// Whether encodings may be anybody's.
    #[inline(always)]
    pub fn is_guarded(&self) -> bool {
        self.guarded.load(Ordering::Relaxed) // Relaxed: see the field.
    }

    /// Whether a number stands for this object, or has stood for it.
    ///
    /// # Safety
    /// A live object.
    pub unsafe fn is_named(&self, object: *mut PyObject) -> bool {
        // Nearly all that have a number can be called, and few of those that are asked for.
        // SAFETY: live by the caller's word. Relaxed: see the field.
        let may_be = unsafe { ffi::PyCallable_Check(object) != 0 } || self.names_objects.load(Ordering::Relaxed);
        may_be && self.lock().by_class.contains_key(&(object as usize))
    }

    /// Notes that a number is to stand for an object.
    fn note_named(&self, object: &Own) {
        // SAFETY: held by the caller.
        if unsafe { ffi::PyCallable_Check(object.ptr()) == 0 } {
            self.names_objects.store(true, Ordering::Relaxed); // Relaxed: see the field.
        }
    }

    /// The record of a number that is from a file.
    pub fn record(&self, id: u32) -> Option<Arc<Record>> {
        if !self.restored.load(Ordering::Relaxed) {
            return None;
        }
        self.lock().records.record(id).map(Arc::clone)
    }

    /// What may be built of what a file names.
    pub fn types(&self) -> Arc<Types> {
        Arc::clone(&self.lock().records.types)
    }

    /// A class or function of this name that the program has stored an object of, or that the file's name led to
    /// before.
    pub fn own(&self, path: &[u8]) -> Option<(Own, Found)> {
        let ids = self.lock().records.numbers(path).to_vec();
        let mut known = ids.into_iter().filter_map(|id| self.entry(id)?.about());
        known.find(|(_, found)| found.names().is_some()).map(|(object, found)| (object.clone(), found.clone()))
    }

    /// Has a number of a file stand for what was found for it, unless another thread was faster, or it was stored
    /// meanwhile.
    pub fn meet(&self, id: u32, entry: Entry) -> &Entry {
        if let Some((object, _)) = entry.about() {
            self.note_named(object);
        }
        let entry = Box::new(entry);
        let mut writer = self.lock();
        let current = self.entries.at(id);
        // SAFETY: boxed and kept by the writer as long as the registry lives; so below.
        let met = unsafe { (*current).about().is_some() };
        let (raw, spare) = if met { (current.cast_const(), Some(entry)) } else { self.put(&mut writer, id, entry) };
        drop(writer);
        // As in `replace`.
        drop(spare);
        // SAFETY: as above.
        unsafe { &*raw }
    }

    /// Appends the records of all numbers from one on, up to the first with which it has appended more than `most`
    /// bytes. Returns the number behind the last.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn describe(&self, from: u32, most: usize, out: &mut Vec<u8>) -> Raise<u32> {
        let (start, end) = (out.len(), self.entries.len().max(from));
        for id in from..end {
            if out.len() - start > most {
                return Ok(id);
            }
            match (self.record(id), self.entry(id)) {
                (Some(record), _) => record.append(out)?,
                (None, Some(entry)) => entry.describe(out)?,
                (None, None) => {}
            }
        }
        Ok(end)
    }

    /// The entry that a class or function was given, or null.
    #[inline(always)]
    pub fn global(&self, object: *mut PyObject) -> Option<&Entry> {
        // SAFETY: entries live as long as the registry.
        unsafe { self.globals.get(object as usize).as_ref() }
    }

    /// Gives a class or function that was found there a number.
    pub fn add_global(&self, object: &Own, found: Found) -> &Entry {
        self.note_named(object);
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
        self.entries.len() as usize
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let writer = self.lock();
        writer.plans.values().flatten().try_for_each(|plan| {
            visit.call(as_py(&plan.class))?;
            plan.found.visit(visit)
        })?;
        writer.records.visit(visit)?;
        writer.entries.iter().try_for_each(|entry| entry.visit(visit))
    }

    /// Drops all references to Python objects: nobody may be encoding or decoding.
    #[cold]
    #[inline(never)]
    pub fn clear(&self) {
        let mut writer = self.lock();
        self.entries.forget();
        let tables = (self.plans.clear(), self.globals.clear());
        let dropped = std::mem::take(&mut *writer);
        drop(writer);
        drop((tables, dropped));
    }
}
