//! What an encoding is of, without building it, and without Python.

use super::fields::plain_name;
use super::format::reader::leading_varint;
use super::format::tags;

/// What an encoding is of. Numbers are those of the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An object of a class of Python's own.
    Plain(&'static str),
    /// An instance of the class of a number, or what that class or function makes.
    Of(u32),
    /// The class or function of a number itself.
    Named(u32),
}

/// See [`Kind`]. What makes no sense is of no class.
pub fn kind_of(bytes: &[u8]) -> Kind {
    let known = plain_name(bytes).map(Kind::Plain).or_else(|| of_class(bytes.get(1..)?));
    known.unwrap_or(Kind::Plain("another object"))
}

fn of_class(value: &[u8]) -> Option<Kind> {
    let (&tag, rest) = value.split_first()?;
    let plain = match tag {
        tags::OBJECT_SHORT..=tags::OBJECT_SHORT_LAST => return Some(Kind::Of((tag - tags::OBJECT_SHORT).into())),
        tags::OBJECT..=tags::OBJECT_OPEN
        | tags::OBJECT_BY_DICT
        | tags::ENUM
        | tags::NAMED_TUPLE
        | tags::NAMED_TUPLE_AGAIN => return Some(Kind::Of(number(rest)?)),
        tags::GLOBAL => return Some(Kind::Named(number(rest)?)),
        tags::REDUCE..=tags::NEW_KEYWORDS => {
            // Behind the byte of parts comes what makes the object.
            let [_, tags::GLOBAL, maker @ ..] = rest else { return None };
            return Some(Kind::Of(number(maker)?));
        }
        tags::TRUE | tags::FALSE => "bool",
        tags::COMPLEX => "complex",
        tags::BYTES => "bytes",
        tags::BYTEARRAY => "bytearray",
        tags::ARRAY => "array.array",
        tags::SET => "set",
        tags::FROZENSET | tags::FROZENSET_AGAIN => "frozenset",
        tags::DATETIME..=tags::DATETIME_ZONE => "datetime.datetime",
        tags::DATE => "datetime.date",
        tags::TIME | tags::TIME_ZONE => "datetime.time",
        tags::TIMEDELTA => "datetime.timedelta",
        tags::UTC | tags::TIMEZONE => "datetime.timezone",
        tags::DECIMAL => "decimal.Decimal",
        tags::UUID => "uuid.UUID",
        tags::RANGE => "range",
        tags::SLICE => "slice",
        tags::ND_SCALAR => "numpy.generic",
        tags::TYPE_OF => "type",
        _ => return None,
    };
    Some(Kind::Plain(plain))
}

/// A number of the registry.
fn number(bytes: &[u8]) -> Option<u32> {
    u32::try_from(leading_varint(bytes)?.0).ok()
}
