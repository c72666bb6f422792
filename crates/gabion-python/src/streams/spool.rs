//! What a Rust writer gives, gathered on the pool without the interpreter, and then written to a Python file.
//!
//! In two steps, so that no Python code runs while the writer has what it reads locked.

use std::io::{self, ErrorKind, Write};

use gabion_blocks::BlockError;
use gabion_blocks::pool::{self, Pool, Request};
use pyo3::prelude::*;

use super::chunk::Window;
use super::file::{Sink, Wrote};
use super::refusal;
use crate::memory;

/// Bytes of a part.
const PART: usize = 256 << 10;

/// Equation: all parts but the last are full, the last has `filled` bytes.
#[derive(Default)]
pub(crate) struct Spool {
    parts: Vec<pool::Buffer>,
    filled: usize,
    refused: Option<BlockError>,
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.parts.is_empty() || self.filled == PART {
            match Pool::global().rent(&Request::new(PART)) {
                Ok(part) => self.parts.push(part),
                Err(error) => {
                    self.refused = Some(error);
                    return Err(ErrorKind::OutOfMemory.into());
                }
            }
            self.filled = 0;
        }
        let count = bytes.len().min(PART - self.filled);
        if let Some(part) = self.parts.last_mut() {
            part.as_mut_slice()[self.filled..][..count].copy_from_slice(&bytes[..count]);
        }
        self.filled += count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Spool {
    /// Why the pool did not give a part, which the writer may have told as another error.
    pub(crate) fn refusal(&self, py: Python<'_>) -> Option<PyErr> {
        self.refused.as_ref().map(|error| memory::refused(py, error))
    }

    /// Writes all of it to a file.
    ///
    /// # Errors
    /// What the file raises; BlockingIOError when it takes nothing now.
    pub(crate) fn pour(self, py: Python<'_>, sink: &Sink) -> PyResult<()> {
        let last = self.parts.len().saturating_sub(1);
        for (number, part) in self.parts.into_iter().enumerate() {
            py.check_signals()?;
            let to = if number == last { self.filled } else { PART };
            let (window, mut done) = (Window::of(py, part)?, 0);
            if let Wrote::NotNow = sink.write(py, &window, &mut done, to)? {
                let done = number * PART + done;
                let text = format!("the file takes nothing now; {done} bytes were written: make it blocking");
                return Err(refusal::would_block(py, &text, done as u64));
            }
        }
        Ok(())
    }
}
