//! Pages of slots that were there before: their lists and counts, made anew from what stands in the blocks.

use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::{PAGE_BYTES, PAGES_PER_BLOCK, make_room};

use super::{SlotBlock, Slots};
use crate::class::CLASSES;
use crate::descriptor::{Descriptor, Kind, ORDINAL_WORD};
use crate::error::Damage;
use crate::ground::{Ground, turn_page};
use crate::loc::Loc;
use crate::page::{Page, Taken, store_changed};
use crate::shelf::PageMeta;

/// What is marked as taken, page by page, until all of it is known. Bitmaps in the blocks that say the same are left
/// alone: of a file that is open for reading, each page that is written to becomes memory of this process's own.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Where the marks of each page begin, by its id; [`NO_MARKS`] for one without slots.
    starts: Vec<usize>,
    /// For each bitmap word of a page, heads and then bodies.
    words: Vec<[u64; 2]>,
}

const NO_MARKS: usize = usize::MAX;

impl Marks {
    fn add_page(&mut self, id: usize, page: Page<'_>) -> Result<(), Damage> {
        let (missing, bitmap) = ((id + 1).saturating_sub(self.starts.len()), page.shape.bitmap as usize);
        make_room(&mut self.starts, missing)?;
        make_room(&mut self.words, bitmap)?;
        self.starts.resize(id, NO_MARKS);
        self.starts.push(self.words.len());
        self.words.resize(self.words.len() + bitmap, [0; 2]);
        Ok(())
    }

    /// Marks parts of a slot; false when one of them is marked already.
    fn mark(&mut self, id: usize, index: usize, parts: Taken) -> bool {
        let [heads, bodies] = &mut self.words[self.starts[id] + index / 64];
        let bit = 1 << (index % 64);
        let (head, body) = (if parts.head { bit } else { 0 }, if parts.body { bit } else { 0 });
        let is_new = *heads & head == 0 && *bodies & body == 0;
        if is_new {
            *heads |= head;
            *bodies |= body;
        }
        is_new
    }

    /// The marks of a page, and of those behind it.
    fn of(&self, id: usize) -> &[[u64; 2]] {
        &self.words[self.starts[id]..]
    }
}

impl Slots {
    /// Takes over a block of slots that was this shard's before. Its slots count as free until they are marked.
    pub fn take_over(&mut self, ground: Ground<'_>, number: u32, marks: &mut Marks) -> Result<(), Damage> {
        make_room(&mut self.blocks, 1)?;
        make_room(&mut self.pages, PAGES_PER_BLOCK)?;
        let block = ground.blocks.block(number).expect("a block of this owner");
        let ordinal = self.blocks.len();
        // Relaxed, here and below: nobody else knows of the block yet.
        store_changed(block.word(ORDINAL_WORD), ordinal as u64);
        let mut entry = SlotBlock { number, free: 0, unkept: 0, header_only: false };
        for index in 0..PAGES_PER_BLOCK {
            let descriptor = Descriptor::from_bits(Descriptor::of(block, index).load(Relaxed));
            let mut meta = PageMeta::UNUSED;
            match descriptor.kind() {
                Kind::Free => entry.free |= 1 << index,
                // All chunks of the block were just being given up, the first page first. What is lost by that is
                // missed elsewhere.
                Kind::Chunks if entry.free & 1 == 1 => {
                    turn_page(ground, block, index, Kind::Free, 0);
                    entry.free |= 1 << index;
                }
                Kind::Slots if descriptor.class() < CLASSES => {
                    let class = descriptor.class();
                    marks.add_page(self.pages.len(), Page::new(block, index, class))?;
                    meta.class = Some(class as u8);
                    self.shelves[class].grown = true;
                    self.used_pages += 1;
                    ground.budget.charge(PAGE_BYTES as u64);
                }
                _ => return Err(Damage::at(Loc::new(number, index), "the header describes a page that is none")),
            }
            self.pages.push(meta);
        }
        self.free_pages += u64::from(entry.free.count_ones());
        self.warm_pages += u64::from(entry.warm().count_ones());
        self.blocks.push(entry);
        Ok(())
    }

    /// Marks parts of a slot as taken; `retired`: its head, for good. False when one of them is taken already, or when
    /// there is no such slot.
    pub fn mark(&mut self, ground: Ground<'_>, slot: Loc, parts: Taken, retired: bool, marks: &mut Marks) -> bool {
        let Ok((id, _, index)) = self.find(ground, slot) else { return false };
        if !marks.mark(id as usize, index, parts) {
            return false;
        }
        self.pages[id as usize].retired += u16::from(retired);
        true
    }

    /// Counts and lists all pages, after all that is taken was marked. Those in which nothing is taken are free.
    pub fn finish_recovery(&mut self, ground: Ground<'_>, marks: &Marks) {
        for id in 0..self.pages.len() as u32 {
            let Some(class) = self.pages[id as usize].class else { continue };
            let class = class as usize;
            let (page, _) = self.page(ground, id, class);
            let words = 0..page.shape.bitmap as usize;
            page.set_bitmaps(marks.of(id as usize));
            let meta = &mut self.pages[id as usize];
            meta.whole = words.clone().map(|word| page.whole(word).count_ones()).sum();
            meta.annex = words.map(|word| page.annexes(word).count_ones()).sum::<u32>() as u16;
            meta.until = 1;
            let listed = meta.whole > 0 || meta.is_done(page.shape.slots.into());
            self.relist_annex(id, class);
            if listed {
                self.relist_whole(ground, id, class);
            }
        }
    }
}
