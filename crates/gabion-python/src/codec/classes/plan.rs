//! How instances of a class are encoded: found once per class, again when the class is modified. What tells that, and
//! what follows from it: see the tables at the head of `registry`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::found::Found;
use super::layout::Layout;
use crate::codec::object::{Own, in_class};
use crate::ffi::{self, PyTypeObject};

/// A plan that holds whatever happens to the class.
pub const ANY_VERSION: u32 = u32::MAX;

/// A plan that holds no more, until it is renewed. No class has this version, nor the one above.
pub const NO_VERSION: u32 = u32::MAX - 1;

/// Sets of attribute names remembered per class; further ones are stored with their names inline.
const MAX_SHAPES: usize = 16;

/// How to encode the instances of `class`, as long as its version is `version`.
pub struct Plan {
    pub class: Own,
    pub version: AtomicU32,
    pub kind: Kind,
    /// Where the class is found, if instances refer to it by name.
    pub found: Found,
}

impl Plan {
    pub fn new(class: Own, version: u32, kind: Kind, found: Found) -> Plan {
        Plan { class, version: AtomicU32::new(version), kind, found }
    }

    /// Whether the class still has the name that it was found by, and the name leads to it, where names may have been
    /// bound anew. (With another module it has another version.)
    #[cold]
    pub fn revalidate(&self) -> bool {
        // SAFETY: a class, held.
        unsafe { self.found.is_name_of(self.class.ptr().cast()) && self.found.revalidate() }
    }

    /// Whether two plans of one class say the same, perhaps of different versions of it.
    pub fn is_equivalent(&self, other: &Plan) -> bool {
        self.kind.is_equivalent(&other.kind) && self.found.is_equivalent(&other.found)
    }

    /// Lets a plan hold for the version of a newer one that says the same. May run code of the class's.
    pub fn renew(&self, newer: &Plan) {
        if let Kind::Attributes(attributes) = &self.kind {
            attributes.shapes().for_each(look_for_setters);
        }
        // Relaxed: see `Registry::plan`.
        self.version.store(newer.version.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Ways to encode.
pub enum Kind {
    List,
    Tuple,
    Dict,
    Set,
    FrozenSet,
    Bytes,
    ByteArray,
    Complex,
    Range,
    Slice,
    DateTime,
    Date,
    Time,
    TimeDelta,
    TimeZone,
    PickleBuffer,
    Array,
    NdArray,
    /// By the number of its type.
    NdScalar(u8),
    Decimal,
    Uuid(Uuid),
    /// A class or a function: by reference.
    Global,
    /// A function of a module that is not written in Python, as `Global`; a method with its object by its reducer.
    Native,
    Enum(u32),
    NamedTuple {
        id: u32,
        len: usize,
    },
    /// Slots only.
    Slots(*const Layout),
    /// A `__dict__`, and perhaps slots.
    Attributes(Attributes),
    /// `__reduce_ex__`; `user_code` when Python code takes part, or native code that nobody here knows: it may show
    /// objects that were met before.
    Reduce {
        user_code: bool,
    },
}

impl Kind {
    /// Whether both ways are one.
    fn is_equivalent(&self, other: &Kind) -> bool {
        match (self, other) {
            (Kind::Uuid(one), Kind::Uuid(other)) => one == other,
            (Kind::NdScalar(one), Kind::NdScalar(other)) => one == other,
            (Kind::Enum(one), Kind::Enum(other))
            | (Kind::NamedTuple { id: one, .. }, Kind::NamedTuple { id: other, .. }) => one == other,
            (Kind::Slots(one), Kind::Slots(other)) => std::ptr::eq(*one, *other),
            (Kind::Attributes(one), Kind::Attributes(other)) => {
                std::ptr::eq(one.base, other.base) && one.inline == other.inline
            }
            (Kind::Reduce { user_code: one }, Kind::Reduce { user_code: other }) => one == other,
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }
}

/// Where a UUID keeps its parts.
#[derive(PartialEq, Eq)]
pub struct Uuid {
    pub int: isize,
    pub is_safe: isize,
}

/// Sets of attribute names that instances of one class were seen with.
pub struct Attributes {
    /// The layout without attributes.
    pub base: *const Layout,
    /// Whether `inline::view` may be asked.
    pub inline: bool,
    shapes: [AtomicPtr<Layout>; MAX_SHAPES],
    count: AtomicU32,
    adding: Mutex<()>,
}

// SAFETY: the layouts belong to the registry, which outlives its plans; everything mutable is atomic.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

impl Attributes {
    pub fn new(base: *const Layout, inline: bool) -> Attributes {
        Attributes {
            base,
            inline,
            shapes: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            count: AtomicU32::new(0),
            adding: Mutex::new(()),
        }
    }

    /// The layouts known, oldest first.
    #[inline(always)]
    pub fn shapes(&self) -> impl Iterator<Item = &Layout> {
        // Acquire: pairs with the Release in `add`.
        let count = self.count.load(Ordering::Acquire) as usize;
        // SAFETY: the first `count` pointers are set, to layouts of the registry.
        self.shapes[..count].iter().map(|shape| unsafe { &*shape.load(Ordering::Relaxed) })
    }

    /// Whether there is room for another layout.
    pub fn has_room(&self) -> bool {
        // Acquire: as in `shapes`.
        (self.count.load(Ordering::Acquire) as usize) < MAX_SHAPES
    }

    /// Remembers a layout, while there is room.
    pub fn add(&self, layout: &Layout) {
        let _guard = self.adding.lock();
        let count = self.count.load(Ordering::Relaxed); // Relaxed: under the lock.
        if (count as usize) < MAX_SHAPES && self.shapes().all(|shape| !std::ptr::eq(shape, layout)) {
            self.shapes[count as usize].store(std::ptr::from_ref(layout).cast_mut(), Ordering::Relaxed);
            self.count.store(count + 1, Ordering::Release); // Release: the pointer before the count.
        }
    }
}

/// The version of a class, which changes when the class or a base of it is modified; 0 when it has none just now.
///
/// # Safety
/// A live class.
#[inline(always)]
pub unsafe fn version(class: *mut PyTypeObject) -> u32 {
    // SAFETY: live by the caller's word. A racing modification is seen before or after, like a racing
    // call of any method.
    unsafe { (&raw const (*class).tp_version_tag).read_volatile() }
}

/// Whether setting and getting the attributes of a layout runs no user code, and its slots are where its names lead, as
/// far as is known of the class as it is now.
#[inline(always)]
pub fn is_plain(layout: &Layout) -> bool {
    let plain_at = layout.plain_at.load(Ordering::Relaxed);
    // SAFETY: the layout holds its class.
    plain_at != 0 && plain_at == unsafe { version(layout.class.ptr().cast()) }
}

/// Finds out for [`is_plain`]. May run code of the class's.
#[expect(unpredictable_function_pointer_comparisons, reason = "the interpreter's functions have one address")]
pub fn look_for_setters(layout: &Layout) {
    let class: *mut PyTypeObject = layout.class.ptr().cast();
    let names = &layout.names[layout.slots()..];
    // SAFETY: the layout holds the class; what is looked up is held.
    let plain_at = unsafe {
        let ordinary = (*class).tp_setattro == Some(pyo3::ffi::PyObject_GenericSetAttr)
            && (*class).tp_getattro == Some(ffi::PyObject_GenericGetAttr as ffi::getattrofunc);
        let descriptor = |name: &Own| {
            in_class(class, name.ptr()).is_some_and(|found| (*ffi::Py_TYPE(found.ptr())).tp_descr_set.is_some())
        };
        // The first lookup numbers the class's present state; one that changes meanwhile has another number afterwards.
        let before = names.first().map_or(0, |name| {
            descriptor(name);
            version(class)
        });
        if ordinary && !names.iter().any(descriptor) { before } else { 0 }
    };
    layout.plain_at.store(plain_at, Ordering::Relaxed);
}
