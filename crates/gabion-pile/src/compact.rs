//! Compaction: what has moved out comes home, long payloads move together, what is empty goes back.

use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::{PAGE_BYTES, make_room};
use gabion_heap::slots_in_page;

use crate::change::{Guest, Payload};
use crate::pile::Pile;
use crate::pointer::Pointer;
use crate::shard::{Inner, Shard};
use crate::slot::Slot;
use crate::word::{State, Word};

/// A compaction ends after that many pages one after the other that could not be cleared, or for which others were
/// taken.
const VAIN: u32 = 32;

impl Pile {
    /// Brings payloads that moved out of their slots back where they fit again, moves payloads of more than 1016 bytes
    /// into what is free between others, and gives all empty pages and blocks back to the system. Returns bytes given
    /// back: none of a pile in a file, which stays as long as it is. Pointers and views stay valid: a slot never moves,
    /// so a page with a live slot stays, and so does what a view looks at.
    ///
    /// Linear in the pile; locks one shard for one page at a time, and for the giving back.
    /// Copies as much as 256 KiB under a lock.
    pub fn compact(&self) -> u64 {
        let mut bytes = 0;
        for shard in self.shards() {
            let pages = Self::pages_to_look_at(&shard.lock());
            let mut payload = Vec::new();
            for (number, page, class) in pages {
                let mut locked = shard.lock();
                if locked.away > 0 {
                    self.compact_page(&mut locked, number, page, class, &mut payload);
                }
            }
            bytes += self.close_ranks(shard, &mut payload);
        }
        bytes
    }

    /// Moves long payloads closer together and gives all empty pages back to the system. Returns bytes.
    fn close_ranks(&self, shard: &Shard, payload: &mut Vec<u8>) -> u64 {
        let ground = self.ground();
        let before = shard.lock().heap.counts().chunk_pages;
        let (mut least, mut vain, mut beyond) = (before, 0, 0);
        // Writers may fill pages meanwhile: no more are looked at than there are now.
        for _ in 0..before {
            let mut locked = shard.lock();
            let Some(page) = locked.sparse_chunk_page(ground, beyond).filter(|_| vain < VAIN) else { break };
            // Where nothing that is charged has room, what is moved first takes a page that others may share.
            // Not after one that took pages in vain.
            let most_new = u32::from(locked.heap.counts().chunk_pages <= least);
            let emptied = (0..=most_new).any(|most_new| locked.empty_page(ground, &page, payload, most_new));
            if emptied {
                locked.heap.give_up(ground, &page);
            }
            let now = locked.heap.counts().chunk_pages;
            // What has no room elsewhere stays: on to what is in the way of others.
            beyond = if emptied { beyond } else { page.words };
            vain = if now < least { 0 } else { vain + 1 };
            least = least.min(now);
        }
        let mut locked = shard.lock();
        let bytes = locked.heap.trim(ground);
        // What was cleared is warm until now and counted, or went back at once where the pool keeps nothing.
        let cleared = before.saturating_sub(locked.heap.counts().chunk_pages);
        if ground.blocks.file().is_some() { 0 } else { bytes.max(cleared * PAGE_BYTES as u64) }
    }

    /// The pages of a shard that has payloads away. None where there is no memory for the list: what has moved out
    /// stays out, and what is empty goes back all the same, because nobody needs that more.
    fn pages_to_look_at(inner: &Inner) -> Vec<(u32, usize, usize)> {
        let mut pages = Vec::new();
        if inner.away > 0 && make_room(&mut pages, inner.heap.counts().slot_pages as usize).is_ok() {
            pages.extend(inner.heap.slot_pages());
        }
        pages
    }

    fn compact_page(&self, inner: &mut Inner, number: u32, page: usize, class: usize, payload: &mut Vec<u8>) {
        let block = self.blocks.block(number).expect("a block of this pile");
        for at in slots_in_page(class, page) {
            let word = Word(block.word(at).load(Relaxed));
            // Reserved room stays with its object, wherever it is.
            let State::Away { at: guest, reserved: false } = word.state() else { continue };
            let pointer = Pointer::new(gabion_heap::Loc::new(number, at), word.generation());
            let Ok(slot) = Slot::find(&self.blocks, pointer) else { return };
            if slot.within.class() != class {
                return;
            }
            if !inner.is_intact(self.ground(), &slot, word) {
                continue;
            }
            let host = Guest::find(self.ground(), guest);
            let length = host.length();
            if length > slot.capacity() || make_room(payload, slot.capacity()).is_err() {
                continue;
            }
            payload.resize(length, 0);
            host.block.read(host.header + 1, payload);
            if inner.come_home(self.ground(), &slot, word, Payload::whole(payload, None), true) {
                // What a file says otherwise stays taken.
                let _ = inner.free_guest(self.ground(), guest);
            }
        }
    }
}
