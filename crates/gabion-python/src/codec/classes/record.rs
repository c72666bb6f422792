//! What another process is told of an entry: everything that encodings depend on, in bytes. `docs/layouts.md` draws
//! them.

use std::sync::Arc;

use crate::codec::object::{Own, Raise, Raised, intern_own, is_same_text, refuse};
use crate::codec::room;
use crate::ffi;

/// Kinds of records, which are also their versions: what is described in another way gets another number.
const OBJECT: u8 = 1;
const NAMED_TUPLE: u8 = 2;
const ENUM: u8 = 3;
const GLOBAL: u8 = 4;

/// Bits of an object's flags.
const LISTED: u8 = 1;
const HAS_DICT: u8 = 2;
const DECLARES: u8 = 4;

/// The description of an entry, as it was read.
pub struct Record {
    pub module: Own,
    pub name: Own,
    pub shape: Shape,
    /// Module and qualified name with a point between, in UTF-8.
    pub path: Box<[u8]>,
    /// Where the qualified name begins there.
    name_at: usize,
    /// The record itself.
    bytes: Box<[u8]>,
}

/// What an entry is, and how its instances lie in an encoding.
pub enum Shape {
    Object(Fields),
    /// Names of the items.
    NamedTuple(Vec<Own>),
    Enum,
    Global,
}

/// Fields of the instances of a class, as they were stored.
pub struct Fields {
    /// Names of the slots, then of the attributes, interned.
    pub names: Vec<Own>,
    pub slots: usize,
    pub listed: bool,
    pub has_dict: bool,
    pub declared: Declared,
}

/// Names of the fields that a dataclass declared when an instance was stored; `None` of other classes.
pub type Declared = Option<Arc<Vec<Own>>>;

/// The most characters of names, with 4 for each, that an entry is to be described by. A record has to fit in the log
/// of a file; so many names are no class's, but those of somebody who has a table in an object's attributes.
const MOST_NAMED: isize = 64 << 10;

/// Whether names are few and short enough for a record of them. They are strings.
pub fn may_be_described<'a>(names: impl IntoIterator<Item = &'a Own>) -> bool {
    let mut left = MOST_NAMED;
    names.into_iter().all(|name| {
        // SAFETY: held by the caller.
        left -= 4 + unsafe { ffi::PyUnicode_GetLength(name.ptr()) };
        left >= 0
    })
}

/// Whether both list the same names in the same order. Runs no code.
pub fn same_names(one: &[Own], other: &[Own]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same_text(one, other))
}

/// As [`same_names`], of what classes declared.
pub fn same_declared(one: &Declared, other: &Declared) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => same_names(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// Raises the error of records that make no sense.
#[cold]
fn unreadable(what: &str) -> Raised {
    refuse(&format!(
        "the stored list of classes is damaged: {what}; what was stored with it cannot be read back without it: take it from a \
         backup"
    ))
}

#[cold]
fn ends_early() -> Raised {
    unreadable("it ends too early")
}

impl Record {
    /// Reads the first of some records. Returns it and the rest.
    ///
    /// # Errors
    /// `CodecError` when the bytes make no sense; `MemoryError`. No more is allocated than the bytes are worth.
    pub fn read(bytes: &[u8]) -> Raise<(Record, &[u8])> {
        let mut reader = Reader(bytes);
        let kind = reader.byte()?;
        let len = reader.len()?;
        let mut body = Reader(reader.take(len)?);
        let bytes = &bytes[..bytes.len() - reader.0.len()];
        let (module, name) = (body.take_text()?, body.take_text()?);
        let mut path = room::list(module.iter().copied())?;
        room::make(&mut path, 1 + name.len())?;
        path.push(b'.');
        let name_at = path.len();
        path.extend_from_slice(name);
        let shape = match kind {
            OBJECT => Shape::Object(body.fields()?),
            NAMED_TUPLE => Shape::NamedTuple(body.names()?),
            ENUM => Shape::Enum,
            GLOBAL => Shape::Global,
            _ => {
                return Err(unreadable(
                    "a kind of class that this version does not know (a later one may have written it)",
                ));
            }
        };
        if !body.0.is_empty() {
            return Err(unreadable("bytes follow a class"));
        }
        let (module, name) = (intern_text(module)?, intern_text(name)?);
        let bytes = room::list(bytes.iter().copied())?.into_boxed_slice();
        Ok((Record { module, name, shape, path: path.into_boxed_slice(), name_at, bytes }, reader.0))
    }

    /// Appends the bytes that it was read from.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn append(&self, out: &mut Vec<u8>) -> Raise<()> {
        room::make(out, self.bytes.len())?;
        out.extend_from_slice(&self.bytes);
        Ok(())
    }

    /// Names of the fields, of a class whose instances have some.
    pub fn field_names(&self) -> Option<Vec<String>> {
        let names = match &self.shape {
            Shape::Object(fields) => &fields.names,
            Shape::NamedTuple(names) => names,
            Shape::Enum | Shape::Global => return None,
        };
        let text = |name| utf8(name).map(|text| String::from_utf8_lossy(&text).into_owned());
        Some(names.iter().map(|name| text(name).unwrap_or_else(|Raised| "?".to_owned())).collect())
    }

    /// How the class or function is called, for messages.
    pub fn title(&self) -> String {
        let key = self.key();
        let short = ["builtins.", "__main__."].iter().find_map(|module| key.strip_prefix(module));
        short.map_or(key.clone(), str::to_owned)
    }

    /// Module and qualified name, for messages.
    pub fn key(&self) -> String {
        shown(&self.path)
    }

    /// What lets it be built, as code for a list of `types`: the name by which it is reached, once its module is
    /// imported. A name that is no code, as that of a local class has one, stands beside what it is to be given.
    pub fn as_type(&self) -> String {
        let is_name = |part: &str| {
            part.chars().all(|c| c == '_' || c.is_alphanumeric()) && part.starts_with(|c: char| !c.is_numeric())
        };
        let key = self.key();
        if key.split('.').all(is_name) { self.title() } else { format!("{{\"{key}\": ...}}") }
    }

    /// The qualified name, in UTF-8, as it stands in the path.
    pub fn name_in_path(&self) -> &[u8] {
        &self.path[self.name_at..]
    }

    /// The last of the name's parts, for messages.
    pub fn short(&self) -> String {
        let key = self.key();
        key.rsplit('.').next().unwrap_or(&key).to_owned()
    }

    /// Values in the encoding of an object that has all fields; `None` of what is no class of such.
    pub fn len_of_object(&self) -> Option<usize> {
        if let Shape::Object(fields) = &self.shape { Some(fields.names.len()) } else { None }
    }

    /// As `len_of_object`, of named tuples.
    pub fn len_of_tuple(&self) -> Option<usize> {
        if let Shape::NamedTuple(names) = &self.shape { Some(names.len()) } else { None }
    }
}

/// A name of a file for messages: all of it, unless that is too long to be shown.
pub fn shown(path: &[u8]) -> String {
    const MOST: usize = 200;
    let text = String::from_utf8_lossy(path);
    let mut shown: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    shown
}

/// Bytes that are left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Raise<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or_else(ends_early)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Raise<u8> {
        Ok(self.take(1)?[0])
    }

    fn len(&mut self) -> Raise<usize> {
        let (taken, rest) = self.0.split_first_chunk::<4>().ok_or_else(ends_early)?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*taken) as usize)
    }

    fn take_text(&mut self) -> Raise<&'a [u8]> {
        let len = self.len()?;
        self.take(len)
    }

    fn names(&mut self) -> Raise<Vec<Own>> {
        // Grows with what is there, and not with what is said to be.
        let mut names = Vec::new();
        for _ in 0..self.len()? {
            room::push(&mut names, intern_text(self.take_text()?)?)?;
        }
        Ok(names)
    }

    fn fields(&mut self) -> Raise<Fields> {
        let flags = self.byte()?;
        if flags & !(LISTED | HAS_DICT | DECLARES) != 0 {
            return Err(unreadable("unknown flags of a class"));
        }
        let slots = self.len()?;
        let names = self.names()?;
        if slots > names.len() {
            return Err(unreadable("more slots than fields"));
        }
        let declared = if flags & DECLARES != 0 { Some(Arc::new(self.names()?)) } else { None };
        Ok(Fields { names, slots, listed: flags & LISTED != 0, has_dict: flags & HAS_DICT != 0, declared })
    }
}

/// The one string of this text.
fn intern_text(text: &[u8]) -> Raise<Own> {
    // SAFETY: as many bytes as said, a C string; a new reference or null with an error, which is one of a class of the
    // interpreter's.
    unsafe {
        let made = ffi::PyUnicode_DecodeUTF8(text.as_ptr().cast(), text.len() as isize, c"surrogatepass".as_ptr());
        match Own::take(made) {
            Ok(made) => Ok(intern_own(made)),
            Err(Raised) if ffi::PyErr_ExceptionMatches(ffi::PyExc_UnicodeError) != 0 => {
                ffi::PyErr_Clear();
                Err(unreadable("a name is no text"))
            }
            Err(Raised) => Err(Raised),
        }
    }
}

/// A string in UTF-8, lone surrogates as pickle writes them.
///
/// # Errors
/// Those of the interpreter: no memory, or no string.
pub fn utf8(text: &Own) -> Raise<Vec<u8>> {
    // SAFETY: held by the caller; a new bytes object, or null with an error; its bytes are copied while it is held.
    unsafe {
        let bytes = ffi::PyUnicode_AsEncodedString(text.ptr(), c"utf-8".as_ptr(), c"surrogatepass".as_ptr());
        let bytes = Own::take(bytes)?;
        let (data, len) = (ffi::PyBytes_AsString(bytes.ptr()).cast::<u8>(), ffi::PyBytes_Size(bytes.ptr()) as usize);
        room::list(std::slice::from_raw_parts(data, len).iter().copied())
    }
}

/// Module and qualified name with a point between, as in [`Record::path`].
///
/// # Errors
/// As [`utf8`].
pub fn path(module: &Own, name: &Own) -> Raise<Vec<u8>> {
    let (mut path, name) = (utf8(module)?, utf8(name)?);
    room::make(&mut path, 1 + name.len())?;
    path.push(b'.');
    path.extend_from_slice(&name);
    Ok(path)
}

/// A record that is being written.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    /// Begins one, of a kind without anything else to say.
    ///
    /// # Errors
    /// As [`utf8`]; the caller drops what was written.
    fn begin(out: &'a mut Vec<u8>, kind: u8, module: &Own, name: &Own) -> Raise<Writer<'a>> {
        let start = out.len();
        room::make(out, 5)?;
        out.extend_from_slice(&[kind, 0, 0, 0, 0]);
        let mut writer = Writer { out, start };
        writer.text(module)?;
        writer.text(name)?;
        Ok(writer)
    }

    fn number(&mut self, number: usize) -> Raise<()> {
        let number = u32::try_from(number).map_err(|_| refuse("a class has more fields than can be described"))?;
        room::make(self.out, 4)?;
        self.out.extend_from_slice(&number.to_le_bytes());
        Ok(())
    }

    fn text(&mut self, text: &Own) -> Raise<()> {
        let bytes = utf8(text)?;
        self.number(bytes.len())?;
        room::make(self.out, bytes.len())?;
        self.out.extend_from_slice(&bytes);
        Ok(())
    }

    fn names(&mut self, names: &[Own]) -> Raise<()> {
        self.number(names.len())?;
        names.iter().try_for_each(|name| self.text(name))
    }

    fn end(self) -> Raise<()> {
        let at = self.start + 1;
        let len = u32::try_from(self.out.len() - at - 4);
        let len = len.map_err(|_| refuse("a class has longer names than can be described"))?;
        self.out[at..at + 4].copy_from_slice(&len.to_le_bytes());
        Ok(())
    }
}

/// Appends the record of an object's class.
///
/// # Errors
/// As [`utf8`].
pub fn write_object(out: &mut Vec<u8>, at: (&Own, &Own), fields: &FieldsOf<'_>) -> Raise<()> {
    let mut writer = Writer::begin(out, OBJECT, at.0, at.1)?;
    let flag = |set, bit| if set { bit } else { 0 };
    let flags =
        flag(fields.listed, LISTED) | flag(fields.has_dict, HAS_DICT) | flag(fields.declared.is_some(), DECLARES);
    room::push(writer.out, flags)?;
    writer.number(fields.slots)?;
    writer.names(fields.names)?;
    if let Some(declared) = fields.declared {
        writer.names(declared)?;
    }
    writer.end()
}

/// As [`Fields`], borrowed.
pub struct FieldsOf<'a> {
    pub names: &'a [Own],
    pub slots: usize,
    pub listed: bool,
    pub has_dict: bool,
    pub declared: &'a Declared,
}

impl FieldsOf<'_> {
    /// Whether an object of one lies in an encoding as one of the other does. Runs no code.
    pub fn is_equivalent(&self, other: &Fields) -> bool {
        (self.slots, self.listed, self.has_dict) == (other.slots, other.listed, other.has_dict)
            && same_names(self.names, &other.names)
            && same_declared(self.declared, &other.declared)
    }
}

/// Appends the record of a named tuple.
///
/// # Errors
/// As [`utf8`].
pub fn write_named_tuple(out: &mut Vec<u8>, at: (&Own, &Own), names: &[Own]) -> Raise<()> {
    let mut writer = Writer::begin(out, NAMED_TUPLE, at.0, at.1)?;
    writer.names(names)?;
    writer.end()
}

/// Appends the record of an enum.
///
/// # Errors
/// As [`utf8`].
pub fn write_enum(out: &mut Vec<u8>, at: (&Own, &Own)) -> Raise<()> {
    Writer::begin(out, ENUM, at.0, at.1)?.end()
}

/// Appends the record of a class or function by reference.
///
/// # Errors
/// As [`utf8`].
pub fn write_global(out: &mut Vec<u8>, at: (&Own, &Own)) -> Raise<()> {
    Writer::begin(out, GLOBAL, at.0, at.1)?.end()
}
