//! Pages of slots that were there before: their lists and counts, made anew from what stands in the blocks.

use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::{PAGE_BYTES, PAGES_PER_BLOCK, make_room};

use super::{SlotBlock, Slots};
use crate::class::CLASSES;
use crate::descriptor::{Descriptor, Kind, ORDINAL_WORD};
use crate::error::Damage;
use crate::ground::{Ground, turn_page};
use crate::loc::Loc;
use crate::page::{Page, Taken};
use crate::shelf::PageMeta;

impl Slots {
    /// Takes over a block of slots that was this shard's before. Its slots count as free until they are marked.
    pub fn take_over(&mut self, ground: Ground<'_>, number: u32) -> Result<(), Damage> {
        make_room(&mut self.blocks, 1)?;
        make_room(&mut self.pages, PAGES_PER_BLOCK)?;
        let block = ground.blocks.block(number).expect("a block of this owner");
        let ordinal = self.blocks.len();
        // Relaxed, here and below: nobody else knows of the block yet.
        block.word(ORDINAL_WORD).store(ordinal as u64, Relaxed);
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
                    Page::new(block, index, class).unmark_all();
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
    pub fn mark(&mut self, ground: Ground<'_>, slot: Loc, parts: Taken, retired: bool) -> bool {
        let Ok((id, page, index)) = self.find(ground, slot) else { return false };
        let before = page.taken(index);
        if (parts.head && before.head) || (parts.body && before.body) {
            return false;
        }
        page.mark(index, Taken { head: before.head || parts.head, body: before.body || parts.body });
        self.pages[id as usize].retired += u16::from(retired);
        true
    }

    /// Counts and lists all pages, after all that is taken was marked. Those in which nothing is taken are free.
    pub fn settle_all(&mut self, ground: Ground<'_>) {
        for id in 0..self.pages.len() as u32 {
            let Some(class) = self.pages[id as usize].class else { continue };
            let class = class as usize;
            let (page, _) = self.page(ground, id, class);
            let words = 0..page.shape.bitmap as usize;
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
