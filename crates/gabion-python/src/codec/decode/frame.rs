//! Values that are half read: what waits on the decoder's stack.

use std::mem::ManuallyDrop;

use crate::codec::classes::changes::Arranged;
use crate::codec::classes::layout::Layout;
use crate::codec::format::reader::damaged;
use crate::codec::format::tags;
use crate::codec::object::{Own, Raise};
use crate::codec::room;
use crate::ffi;

/// A container whose values are being read.
pub enum Frame<'a> {
    List {
        list: Own,
        next: usize,
        len: usize,
    },
    Tuple {
        tuple: Unfilled,
        next: usize,
        len: usize,
        place: Place,
        again: bool,
    },
    Dict {
        dict: Own,
        left: usize,
        key: Option<Own>,
    },
    Set {
        set: Own,
        left: usize,
        place: Place,
        again: bool,
    },
    Object {
        object: Own,
        layout: &'a Layout,
        next: usize,
    },
    PartialObject(Box<PartialObject<'a>>),
    /// `named` says of the first value what [`tags::is_named`] does.
    Gather {
        tag: u8,
        values: Vec<Own>,
        want: usize,
        packed: u64,
        bytes: [u8; 12],
        place: Place,
        named: bool,
    },
    Rebuild(Box<Rebuild<'a>>),
}

impl<'a> Frame<'a> {
    /// A reduced object of which nothing is read yet.
    pub fn rebuild(tag: u8, parts: u8, place: Place) -> Raise<Self> {
        room::boxed(Rebuild::new(tag, parts, place)).map(Frame::Rebuild)
    }

    /// An object that its class makes of a tuple, of which nothing is read yet, or of what the tuple is `arranged` to
    /// be. With `again`, a reference to the one that counts follows the tuple, and nothing is made.
    pub fn call(class: &Own, arranged: Option<&'a Arranged>, place: Place, again: bool) -> Raise<Self> {
        let parts = if again { tags::PART_AGAIN } else { 0 };
        let mut rebuild = Rebuild::new(tags::NEW, parts, place);
        (rebuild.callable, rebuild.stage) = (Some(class.clone()), Stage::Arguments);
        rebuild.arranged = arranged;
        room::boxed(rebuild).map(Frame::Rebuild)
    }
}

/// A tuple with places that hold nothing yet, perhaps of a class that was made at run time. Where they are never filled
/// it goes as one of the interpreter's own: the class's `__del__` would run on it, and read what is not there.
pub struct Unfilled(Own);

impl Unfilled {
    /// # Safety
    /// A new tuple, which no code has seen, and does until it is whole; or one of a subclass without anything of its
    /// own.
    pub unsafe fn new(tuple: Own) -> Unfilled {
        Unfilled(tuple)
    }

    /// The tuple, for its places to be filled.
    #[inline(always)]
    pub fn places(&self) -> &Own {
        &self.0
    }

    /// The tuple, all of whose places are filled.
    #[inline(always)]
    pub fn into_filled(self) -> Own {
        let this = ManuallyDrop::new(self);
        // SAFETY: moved out of what is not dropped.
        unsafe { std::ptr::read(&raw const this.0) }
    }
}

impl Drop for Unfilled {
    fn drop(&mut self) {
        let tuple = self.0.ptr();
        // SAFETY: held by this value alone, by the word of whoever made it; such a subclass adds nothing to a tuple, so
        // what was allocated for it is one. An instance holds its class, if that was made at run time: that reference
        // is let go, last.
        unsafe {
            let class = ffi::Py_TYPE(tuple);
            if class != &raw mut ffi::PyTuple_Type {
                (*tuple).ob_type = &raw mut ffi::PyTuple_Type;
                ffi::Py_DECREF(class.cast());
            }
        }
    }
}

/// Where an object that references lead to is noted once it exists; [`NOWHERE`] when none do.
pub type Place = usize;
/// No reference leads there.
pub const NOWHERE: Place = usize::MAX;

/// An object that is being filled in an unusual way: unset slots, attribute names inline, or all of it as the state
/// that its class is given.
pub struct PartialObject<'a> {
    pub object: Own,
    pub layout: &'a Layout,
    /// Index of the next field, and of the end of those whose names the layout has.
    pub next: usize,
    pub end: usize,
    /// A bit for each of them that has a value.
    pub bits: Vec<u8>,
    /// Attributes with inline names still to be read, and the name of the one that is.
    pub open: usize,
    pub name: Option<Own>,
    /// A dict of attributes is the last that is to be read.
    pub by_dict: bool,
    pub state: Option<State>,
}

/// Objects that were read before all of the dict that they have their attributes of, because they are in it. They have
/// what was in it by then, if their class is not told.
pub struct Late<'a> {
    pub dict: Own,
    pub objects: Vec<PartialObject<'a>>,
    /// Those of them that a reducer took apart, with the dict as their state.
    pub rebuilt: Vec<Own>,
}

impl Late<'_> {
    pub fn of(dict: Own) -> Self {
        Late { dict, objects: Vec::new(), rebuilt: Vec::new() }
    }
}

/// Names and values of the fields that a state consists of.
#[derive(Default)]
pub struct State {
    pub attributes: Vec<(Own, Own)>,
    pub slots: Vec<(Own, Own)>,
}

/// What is expected next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Callable,
    Arguments,
    Keywords,
    Again,
    Items,
    Key,
    Value,
    State,
    Setter,
}

/// A reduced object that is being rebuilt.
pub struct Rebuild<'a> {
    pub tag: u8,
    pub parts: u8,
    pub place: Place,
    pub stage: Stage,
    pub callable: Option<Own>,
    pub arguments: Option<Own>,
    pub object: Option<Own>,
    pub items: Vec<Own>,
    /// A key, then a state.
    pub kept: Option<Own>,
    /// The dict that the state is, or begins with, if not all of its entries are there yet.
    pub unfinished: Option<Own>,
    /// What the arguments are to be, where a class has other items than those that were stored.
    pub arranged: Option<&'a Arranged>,
}

impl Rebuild<'_> {
    pub fn new(tag: u8, parts: u8, place: Place) -> Self {
        Rebuild {
            tag,
            parts,
            place,
            stage: Stage::Callable,
            callable: None,
            arguments: None,
            object: None,
            items: Vec::new(),
            kept: None,
            unfinished: None,
            arranged: None,
        }
    }

    pub fn object(&self) -> Raise<&Own> {
        self.object.as_ref().ok_or_else(|| damaged("a part before its object"))
    }
}
