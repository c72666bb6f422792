//! Memory in parts.

use super::buffer::Buffer;
use super::shared::Shared;
use super::size::{LARGEST_PIECE, exact_bytes};
use super::span::NO_CLASS;
use super::whole::{CLOSE, Plan};
use crate::BLOCK_BYTES;
use crate::error::BlockError;

/// Memory in parts, each contiguous: every part but the last has [`Group::part_bytes`] bytes, and no row is cut by the
/// end of a part.
///
/// ```text
/// │ row 0 │ row 1 │ row 2 │  part 0     part_bytes = rows in a part · row_bytes ≤ 4 MiB
/// │ row 3 │ row 4 │ row 5 │  part 1
/// │ row 6 │ row 7 │          the last part: as long as it must be
/// ```
///
/// A row longer than a block has a part, and a run, of its own.
#[derive(Debug)]
pub struct Group {
    parts: Vec<Buffer>,
    len: usize,
    row_bytes: usize,
    part_bytes: usize,
}

/// How long the parts are for rows of `row_bytes`: as many whole rows as fit a block, at least one.
fn part_bytes(row_bytes: usize) -> usize {
    (BLOCK_BYTES / row_bytes).max(1) * row_bytes
}

/// What a group of `bytes` bytes takes of a pool that has nothing else, at least.
pub(crate) fn least_bytes(bytes: usize, row_bytes: usize) -> u64 {
    exact_parts_bytes(bytes, part_bytes(row_bytes).min(bytes.max(1)))
}

/// What `bytes` bytes take in parts of `part`, each of its exact size.
fn exact_parts_bytes(bytes: usize, part: usize) -> u64 {
    let (whole, tail) = ((bytes / part) as u64, bytes % part);
    let tail = if tail > 0 { exact_bytes(tail) } else { 0 };
    whole.saturating_mul(exact_bytes(part) as u64).saturating_add(tail as u64)
}

impl Group {
    /// How many bytes were asked for: the sum of the parts' lengths.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when no byte was asked for.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The length of a row; 1 when none was given.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// The length of every part but the last.
    pub fn part_bytes(&self) -> usize {
        self.part_bytes
    }

    /// The parts in their order.
    pub fn parts(&self) -> &[Buffer] {
        &self.parts
    }

    /// The parts in their order, for writing.
    pub fn parts_mut(&mut self) -> &mut [Buffer] {
        &mut self.parts
    }

    /// The parts, each on its own from now on.
    pub fn into_parts(self) -> Vec<Buffer> {
        self.parts
    }

    /// How many rows there are; the last may be short.
    pub fn rows(&self) -> usize {
        self.len.div_ceil(self.row_bytes)
    }

    /// Row `y`, or `None` when there is none. Constant time.
    pub fn row(&self, y: usize) -> Option<&[u8]> {
        let (part, start, end) = self.place(y)?;
        self.parts.get(part)?.as_slice().get(start..end)
    }

    /// Row `y` for writing, or `None` when there is none. Constant time.
    pub fn row_mut(&mut self, y: usize) -> Option<&mut [u8]> {
        let (part, start, end) = self.place(y)?;
        self.parts.get_mut(part)?.as_mut_slice().get_mut(start..end)
    }

    fn place(&self, y: usize) -> Option<(usize, usize, usize)> {
        if y >= self.rows() {
            return None;
        }
        let rows_in_part = self.part_bytes / self.row_bytes;
        let part = y / rows_in_part;
        let start = y % rows_in_part * self.row_bytes;
        Some((part, start, (start + self.row_bytes).min(self.parts.get(part)?.len())))
    }
}

impl Shared {
    /// Lends `bytes` bytes in parts, as soon as there is room for all of them: warm memory as far as there is some,
    /// fresh memory for the rest. When it fails, whatever was taken is idle again.
    ///
    /// # Errors
    /// As [`Shared::lend`].
    pub fn lend_group(&'static self, bytes: usize, row_bytes: usize, clean: bool) -> Result<Group, BlockError> {
        let part = part_bytes(row_bytes);
        let parts = match self.parts(bytes, part, clean) {
            // Whole blocks do not fit, but what is really needed of them might.
            Err(BlockError::Total { .. }) => self.exact_parts(bytes, part)?,
            other => other?,
        };
        Ok(Group { parts, len: bytes, row_bytes, part_bytes: part })
    }

    /// Takes the parts of a group, warm ones first; whole blocks, except for a short last one.
    fn parts(&'static self, bytes: usize, part: usize, clean: bool) -> Result<Vec<Buffer>, BlockError> {
        let (whole, tail) = (bytes / part, bytes % part);
        let mut parts = self.room_for_parts(bytes, whole + 1)?;
        let plan = Plan::of(if whole > 0 { part } else { 1 });
        self.precheck(bytes, whole, plan, tail)?;
        while parts.len() < whole
            && let Some(span) = self.rent_warm(plan, CLOSE)
        {
            parts.push(self.buffer_of(span, part, clean));
        }
        self.add_fresh(&mut parts, whole, plan, part, bytes)?;
        if tail > 0 {
            parts.push(self.lend(tail, clean)?);
        }
        Ok(parts)
    }

    /// Maps the parts of a group in memory of their exact sizes, drawn on the ledger in one step.
    #[cold]
    fn exact_parts(&'static self, bytes: usize, part: usize) -> Result<Vec<Buffer>, BlockError> {
        // One part serves all, however long rows would be.
        let part = part.min(bytes.max(1));
        let asked = bytes as u64;
        let mut drawn = exact_parts_bytes(bytes, part);
        self.reserve(asked, drawn)?;
        let undraw = |drawn: u64| {
            self.ledger.give(drawn);
            self.admission.room_made();
        };
        let mut parts = self.room_for_parts(bytes, bytes.div_ceil(part)).inspect_err(|_| undraw(drawn))?;
        for length in (0..bytes).step_by(part).map(|start| part.min(bytes - start)) {
            let exact = exact_bytes(length);
            drawn -= exact as u64;
            let span = self.map_reserved(asked, exact, NO_CLASS).inspect_err(|_| undraw(drawn))?;
            parts.push(self.buffer_of(self.lend_fresh(span, length), length, false));
        }
        Ok(parts)
    }

    fn room_for_parts(&self, bytes: usize, count: usize) -> Result<Vec<Buffer>, BlockError> {
        let mut parts = Vec::new();
        match parts.try_reserve_exact(count) {
            Ok(()) => Ok(parts),
            Err(_) => Err(self.no_memory(bytes as u64, libc::ENOMEM)),
        }
    }

    /// Refuses before anything is touched what would not fit even if nothing were idle.
    fn precheck(&self, bytes: usize, whole: usize, plan: Plan, tail: usize) -> Result<(), BlockError> {
        let limit = self.total_limit();
        // Pieces of the tail may come from a block that is cut already.
        let need = (whole as u64).saturating_mul(plan.exact as u64).saturating_add(if tail > LARGEST_PIECE {
            tail as u64
        } else {
            0
        });
        let fits = |shared: &Self| {
            // In this order, as in `reserve`: what is unmapped meanwhile is taken for room rather than for used.
            let within_reach = shared.idle() + shared.ledger.leaving();
            shared.ledger.drawn().saturating_sub(within_reach).saturating_add(need) <= limit
        };
        if limit == u64::MAX || fits(self) || (self.flush_caches() > 0 && fits(self)) {
            return Ok(());
        }
        let (used, idle) = self.used();
        Err(BlockError::Total { asked: bytes as u64, used, idle, limit })
    }

    /// Adds parts of fresh memory until there are `whole`. What they take is drawn on the ledger in one step.
    fn add_fresh(
        &'static self,
        parts: &mut Vec<Buffer>,
        whole: usize,
        plan: Plan,
        part: usize,
        asked: usize,
    ) -> Result<(), BlockError> {
        let asked = asked as u64;
        let missing = whole - parts.len();
        if missing == 0 {
            return Ok(());
        }
        let roomy = self.reserve(asked, (missing * plan.bytes) as u64).is_ok();
        let (bytes, class) = if roomy { (plan.bytes, plan.class) } else { (plan.exact, NO_CLASS) };
        if !roomy {
            self.reserve(asked, (missing * bytes) as u64)?;
        }
        for left in (0..missing).rev() {
            let span = self.map_reserved(asked, bytes, class).inspect_err(|_| {
                self.ledger.give((left * bytes) as u64);
                self.admission.room_made();
            })?;
            parts.push(self.buffer_of(self.lend_fresh(span, part), part, false));
        }
        Ok(())
    }
}
