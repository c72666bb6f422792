//! What a check of equations found.

use std::fmt;

/// An equation that does not hold: what `validate` found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid(pub String);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

impl From<&str> for Invalid {
    fn from(what: &str) -> Self {
        Self(what.to_owned())
    }
}

/// Fails with a message unless `holds`.
///
/// # Errors
/// What does not hold.
pub fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), Invalid> {
    if holds { Ok(()) } else { Err(Invalid(what())) }
}
