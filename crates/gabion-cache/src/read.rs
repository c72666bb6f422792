//! Reading an entry where it lies, beside writers.

use std::sync::atomic::Ordering::Relaxed;

use gabion_pile::{BriefGlance, Glance, IndexedPile, Pile, Place, ReadBuf};

use crate::entry::{DUE, Entry, Flags};
use crate::index::Cell;
use crate::key::Image;
use crate::time::Due;

/// What was read at a place.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    /// Where the value begins in what was read.
    pub offset: usize,
    /// Its end, or [`Due::NONE`].
    pub due: Due,
}

/// An entry changed while it was looked at, or there was no memory to copy it to, as [`ReadBuf::refusal`] tells.
pub(crate) struct Changed;

/// Reads the value of a key if it lies at a cell's place in one piece, and `buf` need not grow for it.
#[inline(always)]
pub(crate) fn read_brief(pile: &IndexedPile, image: &Image<'_>, cell: Cell<'_>, buf: &mut ReadBuf) -> Option<Found> {
    let glance = pile.brief_glance(cell.place())?;
    // Relaxed, here and below: `holds` decides what it is worth.
    let flags = Flags::of(glance.word(0).load(Relaxed));
    // Nearly all entries have nothing else, or an end. Twice the same, but that there the numbers are known beforehand.
    if flags == Flags::PLAIN {
        let offset = read_behind(const { Flags::PLAIN.image_at() }, glance, image, cell, buf)?;
        return Some(Found { offset, due: Due::NONE });
    }
    if flags.is_split() {
        return None;
    }
    let due = if flags.timed() { Due::from_bits(glance.word(DUE).load(Relaxed)) } else { Due::NONE };
    let offset = read_behind(flags.image_at(), glance, image, cell, buf)?;
    Some(Found { offset, due })
}

/// Copies the value whose key's image begins with word `at`: where it begins in what was copied.
#[inline(always)]
fn read_behind(
    at: usize,
    glance: BriefGlance<'_>,
    image: &Image<'_>,
    cell: Cell<'_>,
    buf: &mut ReadBuf,
) -> Option<usize> {
    let length = image.len();
    // Relaxed: `holds` decides what it is worth.
    if glance.len() < 8 * at + length || !image.matches(length, |index| glance.word(at + index).load(Relaxed)) {
        return None;
    }
    (glance.copy(at + length / 8, buf) && glance.holds(|| cell.stands())).then_some(length % 8)
}

/// Reads the value of a key at a place into `buf`, unless only its being there matters. `Ok(None)`: another key's entry
/// lies there. `linked` says whether the index still leads there.
#[inline(always)]
pub(crate) fn read_at(
    pile: &IndexedPile,
    image: &Image<'_>,
    place: Place,
    buf: &mut ReadBuf,
    copy: bool,
    linked: impl Fn() -> bool + Copy,
) -> Result<Option<Found>, Changed> {
    let glance = pile.glance(place).ok_or(Changed)?;
    // Relaxed throughout: `holds` decides what all this is worth.
    let word = |index| glance.body().word(index).load(Relaxed);
    let flags = Flags::of(word(0));
    let at = flags.image_at();
    let length = image.len();
    if flags.is_split() || glance.len() < 8 * at + length {
        // Copies: what is only ever copied stays in registers.
        return read_split(pile, glance, flags, *image, buf, copy, linked);
    }
    if !image.matches(length, |index| word(at + index)) {
        return if glance.holds(linked) { Ok(None) } else { Err(Changed) };
    }
    if copy && !glance.copy(at + length / 8, buf) {
        return Err(Changed);
    }
    let due = if flags.timed() { Entry::new(glance.body()).end() } else { Due::NONE };
    if !glance.holds(linked) {
        return Err(Changed);
    }
    Ok(Some(Found { offset: length % 8, due }))
}

/// Reads the value of an entry that lies in two objects.
#[cold]
#[inline(never)]
fn read_split(
    pile: &Pile,
    glance: Glance<'_>,
    flags: Flags,
    image: Image<'_>,
    buf: &mut ReadBuf,
    copy: bool,
    linked: impl Fn() -> bool,
) -> Result<Option<Found>, Changed> {
    let entry = Entry::new(glance.body());
    let inline = if flags.is_split() { entry.begins_with(&image) } else { None };
    let (rest, due) = (entry.rest(), entry.end());
    if !glance.holds(linked) {
        return Err(Changed);
    }
    let (Some(inline), Some((pointer, _))) = (inline, rest) else { return Ok(None) };
    let offset = image.len() - inline;
    if !copy && offset == 0 {
        return Ok(Some(Found { offset, due }));
    }
    if !copy {
        let own = pile.begins_with(pointer, image.key).map_err(|_| Changed)?;
        return Ok(own.then_some(Found { offset, due }));
    }
    // What of the key lies there is looked at, and has to be there.
    if offset > ReadBuf::MOST_BEFORE {
        buf.leave_nothing();
    }
    // The second object never changes, and is removed after the first, or while that still leads to it: if it is still
    // there, it was the value when the index was looked at again.
    let payload = pile.read(pointer, buf).map_err(|_| Changed)?;
    Ok((offset == 0 || payload.starts_with(image.key)).then_some(Found { offset, due }))
}
