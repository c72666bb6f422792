//! Walks all pages of slots and checks what is known of them against what stands in them.

use std::sync::atomic::Ordering;

use gabion_blocks::{Invalid, PAGES_PER_BLOCK, ensure};

use super::Slots;
use crate::class::CLASSES;
use crate::descriptor::{Descriptor, Kind};
use crate::ground::Ground;
use crate::page::Page;
use crate::shelf::{ACTIVE, List, PageMeta, walk};

impl Slots {
    pub fn validate(&self, ground: Ground<'_>) -> Result<(), Invalid> {
        let mut used = 0;
        for (id, meta) in self.pages.iter().enumerate() {
            let entry = self.blocks[id / PAGES_PER_BLOCK];
            let index = id % PAGES_PER_BLOCK;
            let block = ground.blocks.block(entry.number).expect("a block of this heap");
            let descriptor = Descriptor::from_bits(Descriptor::of(block, index).load(Ordering::Relaxed));
            let Some(class) = meta.class else {
                ensure(descriptor.kind() == Kind::Free, || {
                    format!("page {id} is unused but described as {descriptor:?}")
                })?;
                continue;
            };
            used += 1;
            ensure(entry.free >> index & 1 == 0, || format!("page {id} is in use and listed as free"))?;
            ensure(descriptor.kind() == Kind::Slots && descriptor.class() == class as usize, || {
                format!("page {id} of class {class} is described as {descriptor:?}")
            })?;
            ensure(ground.blocks.emptied(entry.number) >> index & 1 == 0, || {
                format!("page {id} is in use and was given up")
            })?;
            self.validate_page(&Page::new(block, index, class as usize), id as u32, *meta)?;
        }
        let warm: u64 = self.blocks.iter().map(|entry| u64::from(entry.warm().count_ones())).sum();
        ensure(warm == self.warm_pages, || format!("{warm} free pages take memory, {} counted", self.warm_pages))?;
        ensure(used == self.used_pages, || format!("{used} pages in use, {} counted", self.used_pages))?;
        (0..CLASSES).try_for_each(|class| self.validate_shelf(class))
    }

    fn validate_page(&self, page: &Page<'_>, id: u32, meta: PageMeta) -> Result<(), Invalid> {
        let words = 0..page.shape.bitmap as usize;
        let whole: u32 = words.clone().map(|word| page.whole(word).count_ones()).sum();
        let annex: u32 = words.clone().map(|word| page.annexes(word).count_ones()).sum();
        ensure((whole, annex) == (meta.whole, meta.annex.into()), || {
            format!(
                "page {id}: bitmaps say {whole} whole and {annex} annexes, counted {} and {}",
                meta.whole, meta.annex
            )
        })?;
        let stray = words.into_iter().any(|word| (page.heads(word) | page.bodies(word)) & !page.shape.valid(word) != 0);
        ensure(!stray, || format!("page {id}: a bit beyond the last slot"))?;
        let active = self.shelves[meta.class.unwrap_or(0) as usize].active == id;
        ensure((meta.quarter.is_some()) == (!active && meta.whole > 0), || {
            format!("page {id}: listed wrongly: {meta:?}")
        })?;
        let until = match meta.quarter {
            _ if active => ACTIVE,
            None => 1,
            Some(quarter) => meta.listed_until(quarter.into(), page.shape.slots.into()),
        };
        ensure(meta.until == until && meta.whole < until.into(), || {
            format!("page {id}: not listed anew in time: {meta:?}")
        })?;
        ensure(!meta.is_done(page.shape.slots.into()), || {
            format!("page {id}: nothing is in it, and it was kept: {meta:?}")
        })?;
        ensure(meta.listed_annex == (meta.annex > 0), || format!("page {id}: annex list wrong: {meta:?}"))
    }

    fn validate_shelf(&self, class: usize) -> Result<(), Invalid> {
        let shelf = &self.shelves[class];
        let listed: Vec<u32> = shelf.quarters.iter().flat_map(|&first| walk(&self.pages, List::Whole, first)).collect();
        let annexes: Vec<u32> = walk(&self.pages, List::Annex, shelf.annexes).collect();
        let of_class = |meta: &PageMeta| meta.class == Some(class as u8);
        let expected = self.pages.iter().filter(|meta| of_class(meta) && meta.quarter.is_some()).count();
        ensure(listed.len() == expected, || {
            format!("class {class}: {} pages listed, {expected} expected", listed.len())
        })?;
        let expected = self.pages.iter().filter(|meta| of_class(meta) && meta.listed_annex).count();
        ensure(annexes.len() == expected, || {
            format!("class {class}: {} annex pages, {expected} expected", annexes.len())
        })?;
        let right = listed.iter().chain(&annexes).all(|&id| of_class(&self.pages[id as usize]));
        ensure(right, || format!("class {class}: a page of another class is listed"))
    }
}
