//! Which library this is.

use std::ffi::{CStr, c_char};

/// The version, as `GABION_VERSION` in the header.
pub const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no zero byte"),
};

/// The version of the library that is loaded.
#[unsafe(no_mangle)]
pub extern "C" fn gabion_version() -> *const c_char {
    VERSION.as_ptr()
}
