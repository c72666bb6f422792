//! Moving over values without building them.

use super::array::Head;
use crate::codec::classes::layout::Entry;
use crate::codec::classes::registry::Registry;
use crate::codec::format::reader::Reader;
use crate::codec::format::tags;
use crate::codec::object::Raise;

/// What follows the head of a value.
pub struct Step {
    /// Bytes of its own.
    pub bytes: usize,
    /// Values that it holds.
    pub inside: usize,
}

/// Moves over one value and all that it holds. False when that takes building it.
pub fn skip(registry: &Registry, reader: &mut Reader<'_>) -> Raise<bool> {
    let mut left = 1usize;
    while left > 0 {
        let Some(Step { bytes, inside }) = step(registry, reader)? else { return Ok(false) };
        reader.take(bytes)?;
        left = (left - 1).saturating_add(inside);
    }
    Ok(true)
}

/// Moves over the head of a value: its tag, and what says how much follows. `None` when that takes building it.
pub fn step(registry: &Registry, reader: &mut Reader<'_>) -> Raise<Option<Step>> {
    let tag = reader.byte()?;
    let bytes = match tag {
        0..=tags::STR_SHORT_LAST => tag as usize,
        tags::INT_SMALL..=tags::INT_SMALL_LAST | tags::NONE..=tags::NOT_IMPLEMENTED | tags::UTC => 0,
        tags::INT..=tags::INT_LAST => (tag - tags::INT) as usize + 1,
        tags::FLOAT | tags::DATETIME => 8,
        tags::FLOAT_CENTS | tags::DATE => 4,
        tags::COMPLEX | tags::UUID => 16,
        tags::DATETIME_SECONDS => 5,
        tags::TIME => 7,
        tags::TIMEDELTA => 12,
        tags::TYPE_OF => 1,
        tags::INT_BIG | tags::STR_ASCII | tags::STR_LATIN1 | tags::BYTES | tags::BYTEARRAY | tags::DECIMAL => {
            reader.varint()?
        }
        tags::STR_UCS2 => reader.varint()?.saturating_mul(2),
        tags::STR_UCS4 => reader.varint()?.saturating_mul(4),
        tags::GLOBAL => {
            reader.varint()?;
            0
        }
        tags::ND_SCALAR => {
            reader.byte()?;
            usize::from(reader.byte()?)
        }
        tags::ND_ARRAY => Head::read(reader)?.len,
        tags::ARRAY => {
            reader.byte()?;
            let len = reader.varint()?;
            (reader.at.next_multiple_of(8) - reader.at).saturating_add(len)
        }
        _ => return Ok(inside(registry, tag, reader)?.map(|inside| Step { bytes: 0, inside })),
    };
    Ok(Some(Step { bytes, inside: 0 }))
}

/// How many values follow this tag; `None` when it cannot be skipped.
fn inside(registry: &Registry, tag: u8, reader: &mut Reader<'_>) -> Raise<Option<usize>> {
    Ok(Some(match tag {
        tags::OBJECT_SHORT..=tags::OBJECT_SHORT_LAST | tags::OBJECT => {
            let id = if tag == tags::OBJECT { reader.id()? } else { u32::from(tag - tags::OBJECT_SHORT) };
            match registry.entry(id) {
                Some(Entry::Object(layout) | Entry::Stated(layout)) => layout.len(),
                Some(Entry::Unmet(record)) => return Ok(record.len_of_object()),
                _ => return Ok(None),
            }
        }
        tags::LIST_SHORT..=tags::LIST_SHORT_LAST => (tag - tags::LIST_SHORT) as usize,
        tags::TUPLE_SHORT..=tags::TUPLE_SHORT_LAST => (tag - tags::TUPLE_SHORT) as usize,
        tags::DICT_SHORT..=tags::DICT_SHORT_LAST => 2 * (tag - tags::DICT_SHORT) as usize,
        tags::LIST | tags::TUPLE | tags::TUPLE_SHARED | tags::SET | tags::FROZENSET => reader.varint()?,
        tags::DICT => reader.varint()?.saturating_mul(2),
        tags::RANGE | tags::SLICE => 3,
        tags::ENUM => {
            reader.varint()?;
            1
        }
        tags::NAMED_TUPLE => match registry.entry(reader.id()?) {
            Some(Entry::NamedTuple { len, .. }) => *len,
            Some(Entry::Unmet(record)) => return Ok(record.len_of_tuple()),
            _ => return Ok(None),
        },
        tags::DATETIME_ZONE => {
            reader.take(8)?;
            1
        }
        tags::TIME_ZONE => {
            reader.take(7)?;
            1
        }
        tags::TIMEZONE => {
            reader.take(12)?;
            1
        }
        _ => return Ok(None),
    }))
}
