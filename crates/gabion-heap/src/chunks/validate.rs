//! The check of all equations of chunks.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::{Invalid, WORDS_PER_PAGE, ensure};

use super::bins::bin_of;
use super::{Chunks, END, FIRST, KEPT, LEAST_WORDS, LEFT, LENGTH, PREVIOUS_FREE, USED};
use crate::descriptor::{Descriptor, Kind};
use crate::ground::Ground;

impl Chunks {
    /// Walks everything and checks the equations.
    ///
    /// # Errors
    /// The first equation that does not hold.
    pub fn validate(&self, ground: Ground<'_>) -> Result<(), Invalid> {
        let (mut free_words, mut free_chunks, mut kept, mut empty) = (0, 0, 0, 0);
        let (mut idle, mut charged_pages) = (0, 0);
        for (ordinal, entry) in self.blocks.iter().enumerate() {
            if entry.spare {
                continue;
            }
            let block = ground.blocks.block(entry.number).expect("a block of this heap");
            let kind = Descriptor::from_bits(Descriptor::of(block, 0).load(Relaxed)).kind();
            ensure(kind == Kind::Chunks, || format!("chunk block {ordinal} is described as {kind:?}"))?;
            let (mut at, mut previous_free, mut live) = (FIRST, false, 0);
            let emptied = ground.blocks.emptied(entry.number);
            let given_up = |word: usize| emptied >> (word / WORDS_PER_PAGE) & 1 == 1;
            while at < END {
                let tag = block.word(at).load(Relaxed);
                let (length, used) = ((tag & LENGTH) as usize, tag & USED != 0);
                ensure(length >= LEAST_WORDS && at + length <= END, || format!("chunk at {at}: length {length}"))?;
                ensure((tag & PREVIOUS_FREE != 0) == previous_free, || format!("chunk at {at}: wrong flag"))?;
                ensure(used || !previous_free, || format!("chunk at {at}: two free chunks touch"))?;
                let pages = at / WORDS_PER_PAGE..(at + length).div_ceil(WORDS_PER_PAGE);
                let charged = |page: usize| entry.charged >> page & 1 == 1;
                ensure(!used || pages.clone().all(charged), || {
                    format!("chunk at {at}: {length} words, of whose pages only {:x} are charged", entry.charged)
                })?;
                let first = if used { at..at + length } else { at..at + LEAST_WORDS - 1 };
                ensure(
                    !first.step_by(WORDS_PER_PAGE / 2).chain([at + LEAST_WORDS - 2, at + length - 1]).any(given_up),
                    || format!("chunk at {at}: some of it is in a page that was given up"),
                )?;
                if !used {
                    let inside = |page: &usize| {
                        page * WORDS_PER_PAGE >= at + LEAST_WORDS - 1 && (page + 1) * WORDS_PER_PAGE < at + length
                    };
                    idle += pages.filter(inside).filter(|&page| charged(page)).count() as u64;
                    free_words += length as u64;
                    free_chunks += 1;
                    ensure(block.word(at + length - 1).load(Relaxed) == length as u64, || {
                        format!("chunk at {at}: length at its end differs")
                    })?;
                }
                live += u32::from(used && tag & KEPT == 0);
                kept += usize::from(tag & KEPT != 0);
                previous_free = !used;
                at += length;
            }
            ensure(entry.charged & !entry.reached == 0, || {
                format!("block {ordinal}: pages are charged and not there")
            })?;
            charged_pages += u64::from(entry.charged.count_ones());
            ensure(at == END, || format!("block {ordinal}: the last chunk ends at {at}"))?;
            let counted = entry.live;
            ensure(counted == live, || format!("block {ordinal}: {live} chunks in use, {counted} counted"))?;
            empty += usize::from(live == 0);
        }
        ensure(empty == self.empty, || format!("{empty} empty blocks, {} counted", self.empty))?;
        ensure((charged_pages, idle) == (self.charged_pages, self.idle_pages), || {
            format!(
                "{charged_pages} pages charged, {idle} of them idle; {} and {} counted",
                self.charged_pages, self.idle_pages
            )
        })?;
        self.validate_tray(ground, kept)?;
        self.bins.validate(ground, free_chunks, free_words)
    }

    fn validate_tray(&self, ground: Ground<'_>, kept: usize) -> Result<(), Invalid> {
        let Some(tray) = &self.tray else {
            return ensure(kept == 0, || format!("{kept} chunks are kept without a tray"));
        };
        let mut words = 0;
        let mut seen = HashSet::new();
        for entry in tray.all() {
            let Some((bin, place)) = entry else { return Err(Invalid("the tray has a broken list".to_owned())) };
            let block = ground.blocks.block(place.number()).expect("a block of this heap");
            let tag = block.word(place.word() - 1).load(Relaxed);
            let length = (tag & LENGTH) as usize;
            let marked = tag & (USED | LEFT | KEPT) == USED | LEFT | KEPT;
            ensure(marked && bin_of(length) == bin, || format!("tray, bin {bin}: wrong chunk"))?;
            ensure(seen.insert(place), || format!("tray, bin {bin}: a chunk is there twice"))?;
            words += length;
        }
        let counted = tray.counts();
        ensure(seen.len() == kept && (kept, words) == counted, || {
            format!("{} chunks of {words} words on the tray; {kept} marked so, {counted:?} counted", seen.len())
        })
    }
}
