//! Values that are half read: what waits on the decoder's stack.

use super::layout::Layout;
use super::object::{Own, Raise};
use super::reader::damaged;

/// A container whose values are being read.
pub enum Frame<'a> {
    List { list: Own, next: usize, len: usize },
    Tuple { tuple: Own, next: usize, len: usize, place: Place, again: bool },
    Dict { dict: Own, left: usize, key: Option<Own> },
    Set { set: Own, left: usize, place: Place, again: bool },
    Object { object: Own, layout: &'a Layout, next: usize },
    Odd(Box<Odd<'a>>),
    Gather { tag: u8, values: Vec<Own>, want: usize, packed: u64, bytes: [u8; 12], place: Place },
    Rebuild(Box<Rebuild>),
}

impl Frame<'_> {
    /// A reduced object of which nothing is read yet.
    pub fn rebuild(tag: u8, parts: u8, place: Place) -> Self {
        Frame::Rebuild(Box::new(Rebuild::new(tag, parts, place)))
    }
}

/// Where an object that references lead to is noted once it exists; [`NOWHERE`] when none do.
pub type Place = usize;
/// No reference leads there.
pub const NOWHERE: Place = usize::MAX;

/// An object that is being filled in an unusual way: unset slots, or attribute names inline.
pub struct Odd<'a> {
    pub object: Own,
    pub layout: &'a Layout,
    /// Index of the next slot.
    pub next: usize,
    /// A bit for each slot that has a value.
    pub bits: Vec<u8>,
    /// Attributes with inline names still to be read, and the name of the one that is.
    pub open: usize,
    pub name: Option<Own>,
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
pub struct Rebuild {
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
}

impl Rebuild {
    pub fn new(tag: u8, parts: u8, place: Place) -> Rebuild {
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
        }
    }

    pub fn object(&self) -> Raise<&Own> {
        self.object.as_ref().ok_or_else(|| damaged("a part before its object"))
    }
}
