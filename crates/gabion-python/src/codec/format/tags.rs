//! The byte that starts every value, and the byte that starts every encoding. `docs/layouts.md` draws them.

/// First byte of an encoding: bit 0 says that references occur and that a table of their targets ends the encoding;
/// the other bits number the format.
pub const FORMAT: u8 = 0x00;
/// First byte of an encoding with references.
pub const FORMAT_WITH_REFS: u8 = FORMAT | HAS_REFS;
/// Bit 0 of the first byte: references occur.
pub const HAS_REFS: u8 = 0x01;

/// `0x00..=0x3F`: an ASCII string of that many characters.
pub const STR_SHORT_MAX: usize = 0x3F;
/// The tag of the longest.
pub const STR_SHORT_LAST: u8 = STR_SHORT_MAX as u8;
/// `0x40..=0x5F`: an object of the layout with that small number.
pub const OBJECT_SHORT: u8 = 0x40;
/// The last of them.
pub const OBJECT_SHORT_LAST: u8 = OBJECT_SHORT + OBJECT_SHORT_COUNT as u8 - 1;
/// Layout numbers below this one fit in the tag.
pub const OBJECT_SHORT_COUNT: u32 = 32;
/// `0x60..=0x7F`: the integers -1 to 30.
pub const INT_SMALL: u8 = 0x60;
/// Smallest integer in the tag.
pub const INT_SMALL_MIN: i64 = -1;
/// Largest integer in the tag.
pub const INT_SMALL_MAX: i64 = 30;
/// Its tag.
pub const INT_SMALL_LAST: u8 = INT_SMALL + (INT_SMALL_MAX - INT_SMALL_MIN) as u8;
/// `0x80..=0x8F`: a list of 0 to 15 values.
pub const LIST_SHORT: u8 = 0x80;
/// Longest list with its length in the tag.
pub const LIST_SHORT_MAX: usize = 15;
/// Its tag.
pub const LIST_SHORT_LAST: u8 = LIST_SHORT + LIST_SHORT_MAX as u8;
/// `0x90..=0x97`: a tuple of 0 to 7 values.
pub const TUPLE_SHORT: u8 = 0x90;
/// Longest tuple with its length in the tag.
pub const TUPLE_SHORT_MAX: usize = 7;
/// Its tag.
pub const TUPLE_SHORT_LAST: u8 = TUPLE_SHORT + TUPLE_SHORT_MAX as u8;
/// `0x98..=0x9F`: a dict of 0 to 7 pairs.
pub const DICT_SHORT: u8 = 0x98;
/// Largest dict with its length in the tag.
pub const DICT_SHORT_MAX: usize = 7;
/// Its tag.
pub const DICT_SHORT_LAST: u8 = DICT_SHORT + DICT_SHORT_MAX as u8;
/// `0xA0..=0xA7`: an integer of 1 to 8 bytes.
pub const INT: u8 = 0xA0;
/// An integer of 8 bytes.
pub const INT_LAST: u8 = INT + 7;

/// Declares the remaining tags, one number each.
macro_rules! tags {
    ($($name:ident = $value:literal, $doc:literal;)*) => {
        $(#[doc = $doc] pub const $name: u8 = $value;)*
    };
}

tags! {
    INT_BIG = 0xA8, "An integer: length, two's complement little-endian.";
    NONE = 0xA9, "`None`.";
    TRUE = 0xAA, "`True`.";
    FALSE = 0xAB, "`False`.";
    ELLIPSIS = 0xAC, "`...`.";
    NOT_IMPLEMENTED = 0xAD, "`NotImplemented`.";
    FLOAT = 0xAE, "A float: 8 bytes.";
    FLOAT_CENTS = 0xAF, "A float that is a 32-bit integer divided by 100: 4 bytes.";
    COMPLEX = 0xB0, "A complex number: 16 bytes.";
    STR_ASCII = 0xB1, "A string: length, one byte a character.";
    STR_LATIN1 = 0xB2, "A string: length, one byte a character.";
    STR_UCS2 = 0xB3, "A string: length, two bytes a character.";
    STR_UCS4 = 0xB4, "A string: length, four bytes a character.";
    BYTES = 0xB5, "`bytes`: length, bytes.";
    BYTEARRAY = 0xB6, "`bytearray`: length, bytes.";
    ARRAY = 0xB7, "`array.array`: format, length in bytes, padding, items.";
    TUPLE = 0xB8, "A tuple: count, values.";
    TUPLE_SHARED = 0xB9, "A tuple that may be referred to: count, values.";
    TUPLE_AGAIN = 0xBA, "As `TUPLE_SHARED`, but dropped in favour of the reference that follows the values.";
    LIST = 0xBB, "A list: count, values.";
    DICT = 0xBC, "A dict: count, key and value in turn.";
    SET = 0xBD, "A set: count, values.";
    FROZENSET = 0xBE, "A frozenset: count, values.";
    FROZENSET_AGAIN = 0xBF, "As `FROZENSET`, but dropped in favour of the reference that follows the values.";
    REF = 0xC0, "The value that starts the given distance before this tag.";
    DATETIME = 0xC1, "A naive datetime: 8 bytes.";
    DATETIME_SECONDS = 0xC2, "A naive datetime of whole seconds, fold 0: 5 bytes.";
    DATETIME_ZONE = 0xC3, "An aware datetime: 8 bytes, `tzinfo`.";
    DATE = 0xC4, "A date: 4 bytes.";
    TIME = 0xC5, "A naive time: 6 bytes and fold.";
    TIME_ZONE = 0xC6, "An aware time: 6 bytes, fold, `tzinfo`.";
    TIMEDELTA = 0xC7, "A timedelta: days, seconds, microseconds as 3 x 4 bytes.";
    UTC = 0xC8, "`datetime.timezone.utc`.";
    TIMEZONE = 0xC9, "A `datetime.timezone`: offset as 3 x 4 bytes, then its name or None.";
    DECIMAL = 0xCA, "A `decimal.Decimal`: length, text.";
    UUID = 0xCB, "A `uuid.UUID`: 16 bytes.";
    ENUM = 0xCC, "An enum member: class number, member name.";
    NAMED_TUPLE = 0xCD, "A named tuple: layout number, values.";
    RANGE = 0xCE, "A range: start, stop, step.";
    SLICE = 0xCF, "A slice: start, stop, step.";
    OBJECT = 0xD0, "An object: layout number, values.";
    OBJECT_PARTIAL = 0xD1, "An object with unset slots: layout number, a bit for each slot that is set, values.";
    OBJECT_OPEN = 0xD2, "An object: layout number, a bit for each slot, slot values, count, name and value in turn.";
    GLOBAL = 0xD3, "A class or function: its number.";
    TYPE_OF = 0xD4, "The class of the value that follows: None, Ellipsis, NotImplemented.";
    REDUCE = 0xD5, "A rebuilt object: parts, callable, arguments, then the parts named.";
    NEW = 0xD6, "As `REDUCE` through `cls.__new__(cls, *arguments)`.";
    NEW_KEYWORDS = 0xD7, "As `NEW`, with a dict of keywords after the arguments.";
    NAMED_TUPLE_AGAIN = 0xD9, "As `NAMED_TUPLE`, but dropped in favour of the reference that follows the values.";
    ND_ARRAY = 0xDA, "An array of NumPy: kind, count and lengths of its sides, length in bytes, padding, items.";
    OBJECT_BY_DICT = 0xDC, "An object: layout number, a bit for each slot, slot values, the dict of its attributes.";
    ND_SCALAR = 0xDB, "A single item of an array of NumPy: its type, length, value.";
    END = 0xD8, "Ends the items of a rebuilt object.";
}

/// Bits of an array's kind: the type of its items.
pub const ITEMS: u8 = 0x1F;
/// The first index is the one that changes from item to item.
pub const BY_COLUMNS: u8 = 0x20;
/// It may not be written to.
pub const READ_ONLY: u8 = 0x40;

/// Part bits of `REDUCE`, `NEW` and `NEW_KEYWORDS`: items for `extend`.
pub const PART_LIST: u8 = 1;
/// Pairs for `obj[key] = value`.
pub const PART_DICT: u8 = 2;
/// A state.
pub const PART_STATE: u8 = 4;
/// A callable that sets the state.
pub const PART_SETTER: u8 = 8;
/// A reference, right after the arguments, to the object that counts: nothing is called.
pub const PART_AGAIN: u8 = 16;

/// Whether a value is, or may be, made by a class or function that is found by its name: whatever that is by now.
pub const fn is_named(tag: u8) -> bool {
    matches!(
        tag,
        OBJECT_SHORT..=OBJECT_SHORT_LAST
            | OBJECT..=OBJECT_OPEN
            | OBJECT_BY_DICT
            | ENUM
            | NAMED_TUPLE
            | NAMED_TUPLE_AGAIN
            | GLOBAL
            | REDUCE..=NEW_KEYWORDS
            | REF
    )
}

/// Whether a value is a dict of any length.
pub const fn is_dict(tag: u8) -> bool {
    matches!(tag, DICT_SHORT..=DICT_SHORT_LAST | DICT)
}

/// Whether a value is a string of any kind.
pub const fn is_text(tag: u8) -> bool {
    matches!(tag, 0..=STR_SHORT_LAST | STR_ASCII..=STR_UCS4)
}
