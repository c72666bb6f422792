//! Whether huge pages pay on this machine.
//!
//! They make random access cheaper everywhere, but on some machines the first touch of a 2 MiB page costs several
//! times what the same bytes cost in 4 KiB pages. So the first touch is timed once per process, both ways.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::BLOCK_BYTES;
use crate::block::{Block, WORDS_PER_BLOCK};
use crate::os::Os;

/// Huge pages are taken when their first touch costs at most this many times that of small pages: what they save in
/// address translation is paid back within a few reads of each object.
const WORTH: u32 = 2;

static PAYS: OnceLock<bool> = OnceLock::new();

/// True when blocks should ask for huge pages. The first call measures (about a millisecond), later ones remember.
pub fn pays(os: &dyn Os) -> bool {
    if let Some(&pays) = PAYS.get() {
        return pays;
    }
    match (first_touch(os, false), first_touch(os, true)) {
        (Some(small), Some(huge)) => *PAYS.get_or_init(|| huge <= small * WORTH),
        // No memory to measure with: not now, and nothing is remembered.
        _ => false,
    }
}

/// The time to touch every 4 KiB of a fresh block.
fn first_touch(os: &dyn Os, huge: bool) -> Option<Duration> {
    let base = os.map(BLOCK_BYTES, BLOCK_BYTES).ok()?;
    if huge {
        // SAFETY: the block was just mapped and is ours.
        unsafe { os.advise_huge(base, BLOCK_BYTES) };
    }
    // SAFETY: mapped above, unmapped below after the last use of the view.
    let block = unsafe { Block::new(base, 0) };
    let start = Instant::now();
    for word in (0..WORDS_PER_BLOCK).step_by(512) {
        block.word(word).store(1, Ordering::Relaxed);
    }
    let took = start.elapsed();
    // SAFETY: the range of the map above; the view is not used again.
    unsafe { os.unmap(base, BLOCK_BYTES) };
    Some(took)
}
