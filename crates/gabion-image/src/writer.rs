//! Writers for libraries that report errors as any other, or go on after one.

use std::cell::Cell;
use std::io::{self, ErrorKind, Write};

/// A writer that remembers its first error: libraries wrap what it says, or tell no more than that there was one.
/// Interruptions are not remembered, because what was interrupted is written once more.
pub struct ErrorKeepingWriter<'a, W> {
    pub out: W,
    pub failed: &'a Cell<Option<io::Error>>,
}

impl<W> ErrorKeepingWriter<'_, W> {
    fn keep<T>(&self, done: io::Result<T>) -> io::Result<T> {
        match done {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                let kind = error.kind();
                self.failed.set(self.failed.take().or(Some(error)));
                Err(kind.into())
            }
            done => done,
        }
    }
}

impl<W: Write> Write for ErrorKeepingWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let done = self.out.write(bytes);
        self.keep(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        let done = self.out.flush();
        self.keep(done)
    }
}

/// A writer that has its target take nothing more after a failure, or after the target's own code has panicked: the PNG
/// library ends the file when it is dropped, and a second panic would end the process.
pub struct FusedWriter<'a> {
    out: &'a mut dyn Write,
    broken: bool,
}

impl<'a> FusedWriter<'a> {
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self { out, broken: false }
    }

    fn guarded<T>(&mut self, step: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> io::Result<T> {
        if self.broken {
            return Err(io::Error::other("the target has failed before"));
        }
        self.broken = true;
        let result = step(self.out);
        self.broken = result.as_ref().is_err_and(|error| error.kind() != ErrorKind::Interrupted);
        result
    }
}

impl Write for FusedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.guarded(|out| out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.guarded(|out| out.flush())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Is interrupted, then fails in more than one way.
    struct Failing(u8);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            self.0 += 1;
            Err([ErrorKind::Interrupted, ErrorKind::StorageFull, ErrorKind::Other][usize::from(self.0) - 1].into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_first_error_is_kept() {
        let failed = Cell::new(None);
        let mut out = ErrorKeepingWriter { out: Failing(0), failed: &failed };
        assert!(out.write(&[0]).is_err() && failed.take().is_none(), "it was interrupted");
        assert!(out.write_all(&[0]).is_err() && out.write_all(&[0]).is_err() && out.flush().is_ok());
        assert_eq!(failed.take().map(|error| error.kind()), Some(ErrorKind::StorageFull));
    }

    #[test]
    fn nothing_is_written_after_a_failure() {
        let mut target = Failing(0);
        let mut out = FusedWriter::new(&mut target);
        assert_eq!(out.write(&[0]).map_err(|error| error.kind()), Err(ErrorKind::Interrupted));
        assert_eq!(out.write(&[0]).map_err(|error| error.kind()), Err(ErrorKind::StorageFull));
        assert!(out.write(&[0]).is_err() && out.flush().is_err());
        assert_eq!(target.0, 2);
    }
}
