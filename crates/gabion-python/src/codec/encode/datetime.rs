//! Dates, times, durations and zones.

use super::encoder::Encoder;
use crate::codec::classes::plan::Kind;
use crate::codec::datetime::pack;
use crate::codec::format::{tags, writer};
use crate::codec::object::{Own, Raise};
use crate::ffi::{self, PyObject};

impl Encoder<'_, '_> {
    /// Dates, times, durations and zones; a naive datetime is a leaf.
    ///
    /// # Safety
    /// `obj` is an instance of the class that `kind` is for, held by the stack or by the caller of `encode`.
    pub unsafe fn date_or_time(&mut self, obj: *mut PyObject, kind: &Kind) -> Raise<()> {
        // SAFETY: exact classes, immutable, held; a zone is held by its object while it goes onto the stack.
        unsafe {
            match kind {
                Kind::DateTime => {
                    let value = obj.cast::<ffi::PyDateTime_DateTime>();
                    let packed = pack(&(*value).data, (*value).fold);
                    writer::tagged(self.out, tags::DATETIME_ZONE, packed, 8)?;
                    self.postpone(std::iter::once((*value).tzinfo))?;
                }
                Kind::Date => {
                    writer::byte(self.out, tags::DATE)?;
                    writer::bytes(self.out, &(*obj.cast::<ffi::PyDateTime_Date>()).data)?;
                }
                Kind::Time => {
                    let value = obj.cast::<ffi::PyDateTime_Time>();
                    let aware = (*value).hastzinfo != 0;
                    writer::byte(self.out, if aware { tags::TIME_ZONE } else { tags::TIME })?;
                    writer::bytes(self.out, &(*value).data)?;
                    writer::byte(self.out, (*value).fold)?;
                    if aware {
                        self.postpone(std::iter::once((*value).tzinfo))?;
                    }
                }
                Kind::TimeDelta => {
                    writer::byte(self.out, tags::TIMEDELTA)?;
                    self.delta(obj)?;
                }
                _ => return self.zone(obj),
            }
        }
        Ok(())
    }

    unsafe fn delta(&mut self, obj: *mut PyObject) -> Raise<()> {
        // SAFETY: an exact timedelta, held.
        unsafe {
            let parts = [
                ffi::PyDateTime_DELTA_GET_DAYS(obj),
                ffi::PyDateTime_DELTA_GET_SECONDS(obj),
                ffi::PyDateTime_DELTA_GET_MICROSECONDS(obj),
            ];
            for part in parts {
                writer::bytes(self.out, &part.to_le_bytes())?;
            }
        }
        Ok(())
    }

    unsafe fn zone(&mut self, obj: *mut PyObject) -> Raise<()> {
        // SAFETY: a timezone, held; its constructor's arguments are held by the tuple.
        unsafe {
            if obj == (*ffi::PyDateTimeAPI()).TimeZone_UTC {
                writer::byte(self.out, tags::UTC)?;
                return Ok(());
            }
            let args = Own::take(ffi::call_method(obj, c"__getinitargs__"))?;
            writer::byte(self.out, tags::TIMEZONE)?;
            self.delta(ffi::PyTuple_GetItem(args.ptr(), 0))?;
            let name =
                if ffi::PyTuple_Size(args.ptr()) > 1 { ffi::PyTuple_GetItem(args.ptr(), 1) } else { ffi::Py_None() };
            self.postpone(std::iter::once(name))?;
        }
        Ok(())
    }
}
