//! The classes and functions that an encoding refers to, without looking for any: for an error that tells of all that
//! are not allowed at once.

use std::collections::HashSet;

use super::leaf::Maker;
use super::walk::{self, Step};
use crate::codec::classes::layout::Entry;
use crate::codec::classes::record::Shape;
use crate::codec::classes::registry::Registry;
use crate::codec::format::reader::{Reader, damaged};
use crate::codec::format::tags;
use crate::codec::object::{Raise, Raised};
use crate::codec::room;
use crate::ffi;

impl Maker<'_, '_> {
    /// Numbers of the registry in the order in which an encoding refers to them, each once. Of bytes that make no
    /// sense, those up to there.
    #[cold]
    pub fn needed(&self, whole: &[u8]) -> Vec<u32> {
        let (left, found, seen) = (vec![Left::Values(1)], Vec::new(), HashSet::new());
        let mut walk = Walk { registry: self.registry, reader: Reader::new(whole, 1), left, found, seen };
        if let Err(Raised) = walk.run() {
            // SAFETY: attached, with an error set: whoever asks has one of their own to tell.
            unsafe { ffi::PyErr_Clear() };
        }
        walk.found
    }
}

/// What is still to be read of a value that holds others.
enum Left {
    Values(usize),
    /// Values up to the tag that ends them.
    Items,
}

struct Walk<'a> {
    registry: &'a Registry,
    reader: Reader<'a>,
    left: Vec<Left>,
    found: Vec<u32>,
    seen: HashSet<u32>,
}

impl Walk<'_> {
    fn run(&mut self) -> Raise<()> {
        while let Some(left) = self.left.last_mut() {
            match left {
                Left::Values(0) => {
                    self.left.pop();
                    continue;
                }
                Left::Values(values) => *values -= 1,
                Left::Items if self.reader.peek()? == tags::END => {
                    self.reader.at += 1;
                    self.left.pop();
                    continue;
                }
                Left::Items => {}
            }
            let inside = self.value()?;
            room::push(&mut self.left, Left::Values(inside))?;
        }
        Ok(())
    }

    /// Reads the head of a value. Returns how many values it holds.
    fn value(&mut self) -> Raise<usize> {
        let at = self.reader.at;
        let tag = self.reader.byte()?;
        Ok(match tag {
            tags::OBJECT_SHORT..=tags::OBJECT_SHORT_LAST => self.fields(u32::from(tag - tags::OBJECT_SHORT))?.0,
            tags::OBJECT | tags::NAMED_TUPLE => {
                let id = self.reader.id()?;
                self.fields(id)?.0
            }
            tags::NAMED_TUPLE_AGAIN => {
                let id = self.reader.id()?;
                self.fields(id)?.0.saturating_add(1)
            }
            tags::OBJECT_PARTIAL | tags::OBJECT_OPEN | tags::OBJECT_BY_DICT => self.partial(tag)?,
            tags::ENUM | tags::GLOBAL => {
                let id = self.reader.id()?;
                self.note(id)?;
                usize::from(tag == tags::ENUM)
            }
            tags::TUPLE_AGAIN | tags::FROZENSET_AGAIN => self.reader.varint()?.saturating_add(1),
            tags::REF => {
                self.reader.varint()?;
                0
            }
            tags::REDUCE | tags::NEW | tags::NEW_KEYWORDS => self.reduced(tag)?,
            _ => {
                self.reader.at = at;
                let step = walk::step(self.registry, &mut self.reader)?;
                let Step { bytes, inside } = step.ok_or_else(|| damaged("an unknown tag"))?;
                self.reader.take(bytes)?;
                inside
            }
        })
    }

    /// What a reducer took apart, of which the last part is put aside first.
    fn reduced(&mut self, tag: u8) -> Raise<usize> {
        let parts = self.reader.byte()?;
        let has = |part: u8| usize::from(parts & part != 0);
        room::push(&mut self.left, Left::Values(has(tags::PART_STATE) + has(tags::PART_SETTER)))?;
        for part in [tags::PART_DICT, tags::PART_LIST] {
            if parts & part != 0 {
                room::push(&mut self.left, Left::Items)?;
            }
        }
        Ok(2 + usize::from(tag == tags::NEW_KEYWORDS) + has(tags::PART_AGAIN))
    }

    /// An object with unset slots, or with attribute names inline.
    fn partial(&mut self, tag: u8) -> Raise<usize> {
        let id = self.reader.id()?;
        let (_, slots) = self.fields(id)?;
        let bits = self.reader.take(slots.div_ceil(8))?;
        let set = (0..slots).filter(|slot| bits[slot / 8] >> (slot % 8) & 1 != 0).count();
        let open = if tag == tags::OBJECT_OPEN { self.reader.varint()? } else { 0 };
        Ok(set.saturating_add(open.saturating_mul(2)).saturating_add(usize::from(tag == tags::OBJECT_BY_DICT)))
    }

    /// Notes the class of an instance. Returns how many fields its instances have, and how many of them are slots.
    fn fields(&mut self, id: u32) -> Raise<(usize, usize)> {
        self.note(id)?;
        // What a record says holds, whatever the class is by now.
        if let Some(record) = self.registry.record(id) {
            return match &record.shape {
                Shape::Object(fields) => Ok((fields.names.len(), fields.slots)),
                Shape::NamedTuple(names) => Ok((names.len(), 0)),
                Shape::Enum | Shape::Global => Err(damaged("an unknown class")),
            };
        }
        match self.registry.entry(id) {
            Some(Entry::Object(layout) | Entry::Stated(layout)) => Ok((layout.len(), layout.stored_slots())),
            Some(Entry::NamedTuple { len, .. }) => Ok((*len, 0)),
            _ => Err(damaged("an unknown class")),
        }
    }

    fn note(&mut self, id: u32) -> Raise<()> {
        self.seen.try_reserve(1).map_err(|_| room::no_memory())?;
        if self.seen.insert(id) { room::push(&mut self.found, id) } else { Ok(()) }
    }
}
