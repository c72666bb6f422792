//! Status codes, the thread's last error, and the border.

use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use gabion_blocks::ending::Noted;
use gabion_blocks::file::FileError;
use gabion_blocks::os::out_of_cancels_reach;
use gabion_blocks::{BlockError, try_box};
use gabion_pile::{PileError, PointerFault};
use gabion_slots::{FreeError, SlotsError};

/// What became of a call: 0 is success. A plain number, because C may pass any.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub i32);

macro_rules! statuses {
    ($($number:literal $name:ident = $c_name:literal, $text:literal;)*) => {
        impl Status {
            $(#[doc = $text] pub const $name: Self = Self($number);)*

            /// Every code by its name in C.
            pub const ALL: &[(&str, Self)] = &[$(($c_name, Self::$name)),*];

            /// What it means in general.
            pub fn text(self) -> &'static CStr {
                match self.0 {
                    // The literals hold no zero byte but the one that is added.
                    $($number => const { match CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
                        Ok(text) => text,
                        Err(_) => panic!("a zero byte inside a text"),
                    } },)*
                    _ => c"not a status of this library",
                }
            }
        }
    };
}

statuses! {
    0 OK = "GABION_OK", "done";
    1 NO_MEMORY = "GABION_NO_MEMORY", "the system has no memory left";
    2 LIMIT = "GABION_LIMIT", "a limit or budget forbids it";
    3 TIMED_OUT = "GABION_TIMED_OUT", "no room came free in time";
    4 BAD_ARGUMENT = "GABION_BAD_ARGUMENT", "an argument makes no sense";
    5 BAD_HANDLE = "GABION_BAD_HANDLE", "the handle is null, deleted, or of another kind";
    6 BAD_POINTER = "GABION_BAD_POINTER", "nothing live begins at this pointer";
    7 FOREIGN = "GABION_FOREIGN", "the memory does not belong here";
    8 DOUBLE_FREE = "GABION_DOUBLE_FREE", "it is free already";
    9 WRONG_AFFINITY = "GABION_WRONG_AFFINITY", "it has another affinity";
    10 WRONG_SIZE = "GABION_WRONG_SIZE", "it has another size or alignment";
    11 TOO_SMALL = "GABION_TOO_SMALL", "the buffer is too small; the needed size was told";
    12 INVALID = "GABION_INVALID", "the books are broken: memory was overwritten";
    13 INTERNAL = "GABION_INTERNAL", "a fault of the library itself";
    14 FILE = "GABION_FILE", "the file cannot be opened, read or written";
    15 IN_USE = "GABION_IN_USE", "the file is open elsewhere";
    16 DAMAGED = "GABION_DAMAGED", "the file is damaged, or is no file of this library";
    17 FORMAT = "GABION_FORMAT", "the file is in a format that this version does not know";
}

/// Room for the longest text that is kept, its end included.
const TEXT_BYTES: usize = 512;

/// A text of bounded length that ends in a zero byte. In C's order: it begins with its bytes.
#[repr(C)]
struct Text {
    bytes: [u8; TEXT_BYTES],
    length: usize,
}

impl Write for Text {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let room = TEXT_BYTES - 1 - self.length;
        let length = boundary(piece, room);
        self.bytes[self.length..self.length + length].copy_from_slice(&piece.as_bytes()[..length]);
        self.length += length;
        self.bytes[self.length] = 0;
        Ok(())
    }
}

/// Where a text may be cut to have at most that many bytes, and whole characters.
pub(crate) fn boundary(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// What a thread's last failure was. The text is behind a pointer, because a library that is loaded later has little
/// room for what each thread has.
struct Last {
    /// Made by the first failure; null before, and when the thread's variables are gone.
    text: Cell<*mut Text>,
    /// Of a failure whose text had no place.
    status: Cell<Option<Status>>,
}

/// Frees the text when the thread ends.
struct Keep;

impl Drop for Keep {
    fn drop(&mut self) {
        LAST.with(|last| {
            let text = last.text.replace(ptr::null_mut());
            if !text.is_null() {
                // SAFETY: from `Box::into_raw`, and this was the only pointer that is followed.
                drop(unsafe { Box::from_raw(text) });
            }
        });
    }
}

thread_local! {
    /// Without a destructor, so that it works until the thread's last instruction.
    static LAST: Last = const { Last { text: Cell::new(ptr::null_mut()), status: Cell::new(None) } };
    static KEEP: Keep = const { Keep };
    static NOTED: Noted = const { Noted::new() };
}

impl Last {
    /// Writes a text, if it has a place: not where there is no memory for one, or the thread is ending.
    fn note(&self, status: Status, text: fmt::Arguments<'_>) {
        // Taken while it is written, so that a failure within is none of this thread's texts.
        let mut place = self.text.replace(ptr::null_mut());
        if place.is_null() && NOTED.with(Noted::can_be_noted) && KEEP.try_with(|_| ()).is_ok() {
            place = try_box(Text { bytes: [0; TEXT_BYTES], length: 0 }).map_or(ptr::null_mut(), Box::into_raw);
        }
        // SAFETY: null, or made here, and used by nobody else meanwhile.
        match unsafe { place.as_mut() } {
            None => self.status.set(Some(status)),
            Some(last) => {
                self.status.set(None);
                last.length = 0;
                last.bytes[0] = 0;
                // A text that fails to write itself is cut off there.
                let _ = last.write_fmt(text);
                self.text.set(place);
            }
        }
    }
}

/// Why a call failed; the thread's last error says it in particular.
#[derive(Debug, Clone, Copy)]
pub struct Failure(Status);

impl Failure {
    /// Notes the text and carries the status.
    #[cold]
    pub fn new(status: Status, text: fmt::Arguments<'_>) -> Self {
        LAST.with(|last| last.note(status, text));
        Self(status)
    }

    /// A size that was asked for and told: nothing is wrong, so the last error stays what it was.
    pub(crate) const fn size_was_asked() -> Self {
        Self(Status::TOO_SMALL)
    }

    /// An argument that makes no sense.
    #[cold]
    pub fn argument(text: &str) -> Self {
        Self::new(Status::BAD_ARGUMENT, format_args!("{text}"))
    }

    /// A number that no pile gives out.
    #[cold]
    pub fn no_pointer(number: u64) -> Self {
        Self::new(
            Status::BAD_POINTER,
            format_args!("{number} is not a pointer: pass what gabion_pile_put gave in *out"),
        )
    }
}

impl From<BlockError> for Failure {
    fn from(error: BlockError) -> Self {
        let status = match error {
            BlockError::Limit { .. }
            | BlockError::TooLarge { .. }
            | BlockError::Machine { .. }
            | BlockError::Total { .. } => Status::LIMIT,
            BlockError::TimedOut { .. } | BlockError::Interrupted => Status::TIMED_OUT,
            BlockError::Setting { .. } => Status::BAD_ARGUMENT,
            BlockError::Disk { .. } | BlockError::DescriptorLost => Status::FILE,
            _ => Status::NO_MEMORY,
        };
        Self::new(status, format_args!("{error}"))
    }
}

impl From<SlotsError> for Failure {
    fn from(error: SlotsError) -> Self {
        let status = match error {
            SlotsError::NoMemory(cause) => return cause.into(),
            SlotsError::Free(cause) => return cause.into(),
            SlotsError::Budget { .. } => Status::LIMIT,
            // By the name that it has in C.
            SlotsError::UnknownAffinity { index } => {
                return Self::new(
                    Status::BAD_ARGUMENT,
                    format_args!("there is no affinity {index}: make it with gabion_slots_affinity first"),
                );
            }
            _ => Status::BAD_ARGUMENT,
        };
        Self::new(status, format_args!("{error}"))
    }
}

impl From<FreeError> for Failure {
    fn from(error: FreeError) -> Self {
        let status = match error {
            FreeError::DoubleFree => Status::DOUBLE_FREE,
            FreeError::WrongAffinity => Status::WRONG_AFFINITY,
            FreeError::WrongSize => Status::WRONG_SIZE,
            FreeError::Foreign => Status::FOREIGN,
            FreeError::NoMemory => Status::NO_MEMORY,
            _ => Status::BAD_POINTER,
        };
        Self::new(status, format_args!("{error}"))
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        let status = match error {
            FileError::Blocks(cause) => return cause.into(),
            FileError::InUse => Status::IN_USE,
            FileError::NotOurs | FileError::Damaged { .. } => Status::DAMAGED,
            FileError::Format { .. } => Status::FORMAT,
            _ => Status::FILE,
        };
        Self::new(status, format_args!("{error}"))
    }
}

impl From<PileError> for Failure {
    fn from(error: PileError) -> Self {
        let status = match error {
            PileError::Pointer { pointer, fault: PointerFault::Malformed } => {
                return Self::no_pointer(pointer.to_bits());
            }
            PileError::Pointer { .. } => Status::BAD_POINTER,
            PileError::Damaged { .. } => Status::DAMAGED,
            PileError::Memory { cause, .. } => Self::from(cause).0,
            PileError::Blocks(cause) => return cause.into(),
            _ => Status::INTERNAL,
        };
        Self::new(status, format_args!("{error}"))
    }
}

/// The border: runs the body of a function that C calls. A panic in it becomes a status.
#[inline]
pub fn call(body: impl FnOnce() -> Result<(), Failure>) -> Status {
    match answer(body) {
        Ok(()) => Status::OK,
        Err(Failure(status)) => status,
    }
}

/// As [`call`], of a body that opens, writes or closes files: no thread is ended within by `pthread_cancel`, as C
/// libraries do in such calls.
pub fn call_on_file(body: impl FnOnce() -> Result<(), Failure>) -> Status {
    call(|| out_of_cancels_reach(body))
}

/// The border of functions that return what was asked for, or `otherwise`.
#[inline]
pub fn value<T>(otherwise: T, body: impl FnOnce() -> Result<T, Failure>) -> T {
    answer(body).unwrap_or(otherwise)
}

#[inline]
fn answer<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // What the body has half done is behind the library's own locks and guards, which are whole at every instant.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        Err(Failure::new(Status::INTERNAL, format_args!("a fault of gabion itself; its text is on the error stream")))
    })
}

/// What a status means, in general.
#[unsafe(no_mangle)]
pub extern "C" fn gabion_status_text(status: Status) -> *const c_char {
    status.text().as_ptr()
}

/// What the last call of this thread that failed has to say.
#[unsafe(no_mangle)]
pub extern "C" fn gabion_last_error() -> *const c_char {
    LAST.with(|last| match (last.status.get(), last.text.get()) {
        (Some(status), _) => status.text().as_ptr(),
        (None, text) if text.is_null() => c"".as_ptr(),
        // A `Text` begins with its bytes.
        (None, text) => text.cast_const().cast(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: ends in a zero byte, and this thread does not fail meanwhile.
        unsafe { CStr::from_ptr(gabion_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_stops_at_the_border() {
        assert_eq!(call(|| panic!("as planned")), Status::INTERNAL);
        assert!(last().contains("gabion itself"));
        assert_eq!(value(7, || panic!("as planned")), 7);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "ä".repeat(1000);
        assert_eq!(call(|| Err(Failure::argument(&long))), Status::BAD_ARGUMENT);
        assert_eq!(last(), "ä".repeat(255));
        assert_eq!(call(|| Err(Failure::argument("short"))), Status::BAD_ARGUMENT);
        assert_eq!(last(), "short");
        std::thread::spawn(|| assert_eq!(last(), "")).join().unwrap();
    }

    #[test]
    fn each_reason_not_to_free_has_its_status() {
        for (error, status) in [
            (FreeError::DoubleFree, Status::DOUBLE_FREE),
            (FreeError::NotASlot, Status::BAD_POINTER),
            (FreeError::WrongAffinity, Status::WRONG_AFFINITY),
            (FreeError::WrongSize, Status::WRONG_SIZE),
            (FreeError::Foreign, Status::FOREIGN),
            (FreeError::NoMemory, Status::NO_MEMORY),
        ] {
            assert_eq!((call(|| Err(error.into())), last()), (status, error.to_string()));
        }
    }

    #[test]
    fn a_thread_that_is_ending_has_the_status_s_text() {
        struct Late;
        impl Drop for Late {
            fn drop(&mut self) {
                // What it had is gone.
                assert_eq!(last(), "");
                assert_eq!(call(|| Err(Failure::argument("late"))), Status::BAD_ARGUMENT);
                assert_eq!(last().as_bytes(), Status::BAD_ARGUMENT.text().to_bytes());
            }
        }
        thread_local! {
            static LATE: Late = const { Late };
        }
        let thread = std::thread::spawn(|| {
            LATE.with(|_| ());
            assert_eq!(call(|| Err(Failure::argument("early"))), Status::BAD_ARGUMENT);
            assert_eq!(last(), "early");
        });
        thread.join().unwrap();
    }

    #[test]
    fn any_number_has_a_text() {
        for number in [-1, 0, 5, 16, 17, i32::MIN, i32::MAX] {
            assert!(!Status(number).text().is_empty());
        }
    }
}
