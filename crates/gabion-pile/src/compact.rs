//! Compaction: what has moved out comes home, what is empty goes back.

use std::sync::atomic::Ordering::Relaxed;

use gabion_heap::slots_in_page;

use crate::change::Guest;
use crate::pile::Pile;
use crate::pointer::Pointer;
use crate::shard::Inner;
use crate::slot::Slot;
use crate::word::{State, Word};

impl Pile {
    /// Brings payloads that moved out of their slots back where they fit again, and gives all empty pages and blocks
    /// back to the system. Returns bytes given back. Pointers stay valid: a slot never moves, so a page with a live
    /// slot stays.
    ///
    /// Linear in the pile; locks one shard for one page at a time, and for the giving back.
    pub fn compact(&self) -> u64 {
        let mut bytes = 0;
        for shard in self.shards() {
            let pages: Vec<_> = shard.lock().heap.slot_pages().collect();
            let mut payload = Vec::new();
            for (number, page, class) in pages {
                let mut locked = shard.lock();
                if locked.moved > 0 {
                    self.compact_page(&mut locked, number, page, class, &mut payload);
                }
            }
            bytes += shard.lock().heap.trim(self.ground());
        }
        bytes
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
            let host = Guest::find(self.ground(), guest);
            let length = host.read_header().length();
            if length > slot.capacity() {
                continue;
            }
            payload.resize(length, 0);
            host.block.read(host.header + 1, payload);
            if inner.come_home(self.ground(), &slot, word, payload, true) {
                inner.free_guest(self.ground(), guest);
            }
        }
    }
}
