//! Pages for other uses, out of what is free here and there between long payloads.
//!
//! A long payload may lie anywhere, because its slot says where. So where many are freed and none of them leaves a
//! whole page empty, a page is cleared: the few payloads that stand in its way move into what is free elsewhere.

use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::{Block, PAGE_BYTES, make_room};
use gabion_heap::{ChunkPage, Ground, Heap, Kind, Loc};

use crate::change::{Guest, publish};
use crate::pile::Pile;
use crate::protocol::reuse;
use crate::shard::Inner;
use crate::slot::guest_header;
use crate::word::{GuestHeader, State, Word};

impl Pile {
    /// Gives a page of 64 KiB or more back to the budget, if moving a few long payloads clears one. Pointers and views
    /// stay valid. Locks one shard after the other; looks through 16 blocks of each and copies 256 KiB at most.
    pub fn clear_page(&self) -> bool {
        let mut payload = Vec::new();
        self.shards().iter().any(|shard| shard.lock().clear_page(self.ground(), &mut payload) > 0)
    }
}

impl Inner {
    /// Gives up a page of chunks by moving what stands in its way into pages that are charged. Returns bytes: nothing
    /// when there is no such page, or no room for all of what stands there. `payload` is where a copy is kept
    /// meanwhile.
    pub fn clear_page(&mut self, ground: Ground<'_>, payload: &mut Vec<u8>) -> u64 {
        if self.crowded {
            return 0;
        }
        let before = self.heap.counts().chunk_pages;
        if let Some(page) = self.sparse_chunk_page(ground, 0) {
            // What lacks memory for a copy may be moved at another time.
            if make_room(payload, (page.words * 8).saturating_sub(payload.len())).is_err() {
                return 0;
            }
            self.empty_page(ground, &page, payload, 0);
        }
        self.heap.release_idle_chunks(ground);
        let given = before - self.heap.counts().chunk_pages;
        self.crowded = given == 0;
        given * PAGE_BYTES as u64
    }

    /// The page of chunks in whose way least words stand, but more than `beyond`.
    pub fn sparse_chunk_page(&self, ground: Ground<'_>, beyond: usize) -> Option<ChunkPage> {
        let movable = |block: Block<'_>, chunk: Loc| !Guest::of_chunk(block, chunk).read_header().is_pinned();
        self.heap.sparse_chunk_page(ground, beyond, movable)
    }

    /// Moves what stands in the way of giving up a page, into pages that are charged or `most_new` others each. False
    /// when there is not room for all.
    pub fn empty_page(&mut self, ground: Ground<'_>, page: &ChunkPage, payload: &mut Vec<u8>, most_new: u32) -> bool {
        let mut chunk = Heap::next_in_way(ground, page, None);
        while let Some(moves) = chunk {
            if !self.move_chunk(ground, moves, (page, most_new), payload) {
                return false;
            }
            chunk = Heap::next_in_way(ground, page, Some(moves));
        }
        true
    }

    /// Moves a payload into another chunk, out of a page's way; false when there is no room for it.
    fn move_chunk(
        &mut self,
        ground: Ground<'_>,
        chunk: Loc,
        (page, most_new): (&ChunkPage, u32),
        payload: &mut Vec<u8>,
    ) -> bool {
        let guest = Guest::find(ground, chunk);
        let (length, owner) = (guest.length(), guest.read_header().owner());
        // A payload that is away is its slot's, unless another program has written to the file: what makes no sense
        // there stays where it is.
        let Some(slot) = ground.blocks.block(owner.number()) else { return false };
        let word = Word(slot.word(owner.word()).load(Relaxed));
        let State::Away { at, reserved } = word.state() else { return false };
        if at != chunk || !self.has_guest(ground, &guest) {
            return false;
        }
        // A reserve moves with its object; which may have grown into the remainder of its chunk.
        let (least, asked) = (1 + length.div_ceil(8), Heap::requested_words(guest.block, chunk));
        let words = if reserved { asked.max(least) } else { least };
        if make_room(payload, length.saturating_sub(payload.len())).is_err() {
            return false;
        }
        let room = self.heap.take_chunk_beside(ground, words, page, most_new);
        let Some((block, at)) = room else { return false };
        debug_assert!(least <= Heap::chunk_words(block, at), "{length} bytes do not fit where they move to");
        payload.resize(length, 0);
        guest.block.read(guest.header + 1, payload);
        let header = guest_header(Kind::Chunks, at);
        reuse((&block, header + 1), payload, (&block, header, GuestHeader::new(length, owner).0));
        publish(&slot, owner.word(), Word::away(word.generation(), at, reserved).0);
        self.free_body(ground, guest.pinned()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

    use crate::{Pile, PileOptions, Pointer, ReadBuf};

    /// What a payload of this number holds: 2 to 60 KB.
    fn payload(number: usize) -> Vec<u8> {
        let length = 2000 + number * 7919 % 58_000;
        (0..length).map(|at| (at / 8 + number) as u8).collect()
    }

    /// Numbers below a bound, one after another.
    fn chance(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |end| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % end
        }
    }

    fn pile(max_bytes: u64) -> Arc<Pile> {
        let options = PileOptions { shards: Some(1), max_bytes: Some(max_bytes), ..PileOptions::default() };
        Arc::new(Pile::with_options(options).unwrap())
    }

    fn check(pile: &Pile, live: &[(usize, Pointer)]) {
        let mut buf = ReadBuf::new();
        for &(number, pointer) in live {
            assert_eq!(pile.read(pointer, &mut buf).unwrap(), payload(number), "number {number}");
        }
        pile.validate().unwrap();
    }

    fn fill(pile: &Pile) -> Vec<(usize, Pointer)> {
        (0..).map_while(|number| Some((number, pile.put(&payload(number)).ok()?))).collect()
    }

    /// A pile that was full of long payloads had no page for a short one, however many of them were removed here and
    /// there.
    #[test]
    fn a_short_payload_finds_a_page_among_long_ones() {
        let pile = pile(16 << 20);
        let mut live = fill(&pile);
        assert!(pile.put(&[7; 40]).is_err(), "the pile is full");
        for short in [40, 100, 300, 700, 1000] {
            for _ in 0..8 {
                let (_, pointer) = live.remove(short * 31 % live.len());
                pile.remove(pointer).unwrap();
            }
            let pointer = pile.put(&vec![7; short]).unwrap();
            assert_eq!(pile.size_of(pointer).unwrap(), short);
            check(&pile, &live);
        }
        assert!(pile.stats().reserved_bytes <= 16 << 20);
    }

    #[test]
    fn what_a_view_looks_at_and_what_was_reserved_stays() {
        let pile = pile(16 << 20);
        let mut live = fill(&pile);
        let views: Vec<_> = live.iter().step_by(9).map(|&(number, at)| (number, pile.view(at).unwrap())).collect();
        let removed = live.iter().filter(|(number, _)| number % 3 > 0);
        removed.for_each(|&(_, pointer)| pile.remove(pointer).unwrap());
        live.retain(|(number, _)| number % 3 == 0);
        let reserves: Vec<_> = (0..20).map(|_| pile.put_with_reserve(b"short", 30_000).unwrap()).collect();
        pile.compact();
        check(&pile, &live);
        assert!(views.iter().all(|(number, view)| **view == payload(*number)));
        drop(views);
        pile.compact();
        check(&pile, &live);
        let stats = pile.stats();
        let taken = stats.used_bytes + 20 * 30_000;
        assert!(stats.reserved_bytes * 2 < taken * 3, "{stats:?}");
        let before = pile.stats().reserved_bytes;
        let filled = vec![9; 30_000];
        for pointer in reserves {
            pile.replace(pointer, &filled).unwrap();
        }
        assert_eq!(pile.stats().reserved_bytes, before);
        check(&pile, &live);
    }

    /// It ended at the first block that was emptied whole, and counted no page that went back at once.
    #[test]
    fn a_compaction_goes_through_all_blocks() {
        let pile = pile(64 << 20);
        let live = fill(&pile);
        // Blocks of views only, which have longest gaps, must not hide the others.
        let views: Vec<_> = live[..60].iter().step_by(20).map(|&(_, pointer)| pile.view(pointer).unwrap()).collect();
        let (stays, goes): (Vec<_>, Vec<_>) = live.into_iter().partition(|(number, _)| number * 7919 % 100 < 15);
        for (_, pointer) in goes {
            pile.remove(pointer).unwrap();
        }
        let before = pile.stats();
        let given = pile.compact();
        let after = pile.stats();
        check(&pile, &stays);
        assert!(given >= before.reserved_bytes - after.reserved_bytes, "{given} given, {before:?} to {after:?}");
        assert!(after.reserved_bytes * 2 < after.used_bytes * 3, "{after:?}");
        drop(views);
    }

    #[test]
    fn a_longer_payload_replaces_a_short_one_where_a_page_can_be_cleared() {
        let pile = pile(16 << 20);
        let live = fill(&pile);
        let short = {
            let (_, last) = live[live.len() - 1];
            pile.remove(last).unwrap();
            (0..).map_while(|_| pile.put(&[1; 40]).ok()).last().unwrap()
        };
        assert!(pile.replace(short, &[2; 500]).is_err(), "the pile is full");
        for &(_, pointer) in live[..live.len() - 1].iter().step_by(20) {
            pile.remove(pointer).unwrap();
        }
        pile.replace(short, &[2; 500]).unwrap();
        assert_eq!(pile.size_of(short).unwrap(), 500);
        pile.validate().unwrap();
    }

    /// Puts payloads of that many words, tag and header counted in, which lie one behind the other in a fresh pile.
    /// Each word of them could be a used chunk's tag, and the place of its slot.
    fn put_in_a_row(pile: &Pile, words: &[usize]) -> Vec<Pointer> {
        let payload = |words: &usize| 0xFFFF_FFFF_FE10_0006_u64.to_le_bytes().repeat(words - 2);
        words.iter().map(|words| pile.put(&payload(words)).unwrap()).collect()
    }

    /// What moved first joined what was free in front of it; what moved next was written over its tag, and what it held
    /// was taken for tags.
    #[test]
    fn what_moves_may_be_written_over_where_others_stood() {
        let pile = pile(64 << 20);
        let words = [1024, 2048, 6144, 3072, 3072, 4096, 131_072, 131_072, 131_072, 98_304, 8192, 4864];
        let all = put_in_a_row(&pile, &words);
        for gone in [1, 4, 10] {
            pile.remove(all[gone]).unwrap();
        }
        pile.compact();
        pile.validate().unwrap();
        let mut buf = ReadBuf::new();
        for (at, pointer) in all.into_iter().enumerate().filter(|(at, _)| ![1, 4, 10].contains(at)) {
            assert_eq!(pile.read(pointer, &mut buf).unwrap().len(), (words[at] - 2) * 8);
            assert!(buf.payload().chunks(8).all(|word| word == 0xFFFF_FFFF_FE10_0006_u64.to_le_bytes()));
        }
    }

    /// A chunk may be longer than asked for, by less than another one would need. What grew into that was moved to a
    /// chunk without it, and was written beyond its end.
    #[test]
    fn a_reserve_moves_with_what_it_has_grown_to() {
        let pile = pile(64 << 20);
        let put = |length: usize, capacity| pile.put_with_reserve(&vec![3; length], capacity).unwrap();
        // In a second block, a place of 1024 words between two that stay, in pages that are charged.
        let (filler, short, long, guard) = (put(80_000, 0), put(1104, 0), put(7152, 0), put(3000, 0));
        pile.remove(short).unwrap();
        pile.remove(long).unwrap();
        let grown = put(100, 8076);
        pile.replace(grown, &[2; 8272]).unwrap();
        let places: Vec<_> = (0..1200).map(|_| put(8176, 0)).collect();
        let stays: Vec<_> = places.iter().copied().skip(1).step_by(2).collect();
        places.iter().step_by(2).for_each(|&pointer| pile.remove(pointer).unwrap());
        for gone in [filler, guard] {
            pile.remove(gone).unwrap();
        }
        pile.compact();
        pile.validate().unwrap();
        let mut buf = ReadBuf::new();
        assert_eq!(pile.read(grown, &mut buf).unwrap(), [2; 8272]);
        for pointer in stays {
            assert_eq!(pile.read(pointer, &mut buf).unwrap(), [3; 8176]);
        }
    }

    /// While views looked at all of them, none could be moved; and then none was tried.
    #[test]
    fn what_views_let_go_of_moves_again() {
        let pile = pile(16 << 20);
        let mut live = fill(&pile);
        let gone: Vec<_> = live.iter().step_by(5).map(|&(_, pointer)| pointer).collect();
        live.retain(|(_, pointer)| !gone.contains(pointer));
        let views: Vec<_> = live.iter().map(|&(_, pointer)| pile.view(pointer).unwrap()).collect();
        for pointer in gone {
            pile.remove(pointer).unwrap();
        }
        assert!(pile.put(&[7; 40]).is_err(), "nothing can move");
        drop(views);
        pile.put(&[7; 40]).unwrap();
        check(&pile, &live);
    }

    /// Whatever lies where, grows into what was reserved for it, is looked at, and goes.
    #[test]
    fn whatever_moves_is_whole_and_so_is_what_it_moves_between() {
        let seed = std::env::var("GABION_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7_u64);
        println!("GABION_SEED={seed}");
        let mut below = chance((seed * 2 + 1).wrapping_mul(0x9E37_79B9_97F4_A7C1));
        // Words that could be tags of chunks in use or free, of many lengths, each payload's own.
        let bytes = |stamp: u64, length: usize| {
            let word = |at: usize| 0xFFFF_FFFF_FE00_0000 | (stamp & 1) << 20 | ((stamp * 2 + at as u64 % 4 * 2) % 4096);
            (0..length.div_ceil(8)).flat_map(|at| word(at).to_le_bytes()).take(length).collect::<Vec<u8>>()
        };
        for round in 0..3 {
            let (pile, mut stamp) = (pile(16 << 20), 0);
            let (mut live, mut views) = (Vec::<(Pointer, u64, usize)>::new(), Vec::new());
            for step in 0..1500 {
                let length = match below(4) {
                    0 => below(1100),
                    1 => 1100 + below(3000),
                    2 => 4000 + below(30_000),
                    _ => 1100 + below(140_000),
                } as usize;
                stamp += 1;
                match below(16) {
                    0..11 => {
                        let capacity = if below(3) == 0 { length + below(9000) as usize } else { 0 };
                        let put = pile.put_with_reserve(&bytes(stamp, length), capacity);
                        live.extend(put.ok().map(|pointer| (pointer, stamp, length)));
                    }
                    11 | 12 if !live.is_empty() => {
                        let at = below(live.len() as u64) as usize;
                        let grown = live[at].2 + below(2000) as usize;
                        if pile.replace(live[at].0, &bytes(stamp, grown)).is_ok() {
                            live[at] = (live[at].0, stamp, grown);
                        }
                    }
                    13 if !live.is_empty() => {
                        let (pointer, stamp, length) = live[below(live.len() as u64) as usize];
                        views.push((pile.view(pointer).unwrap(), bytes(stamp, length)));
                        views.drain(..views.len().saturating_sub(12));
                    }
                    _ if !live.is_empty() => {
                        let gone = live.swap_remove(below(live.len() as u64) as usize);
                        pile.remove(gone.0).unwrap();
                    }
                    _ => {}
                }
                if step % 100 == 99 {
                    // Many at once leave what a compaction has work with.
                    for _ in 0..live.len() / 3 * (step / 100 % 2) {
                        let gone = live.swap_remove(below(live.len() as u64) as usize);
                        pile.remove(gone.0).unwrap();
                    }
                    pile.compact();
                    pile.validate().unwrap();
                    let mut buf = ReadBuf::new();
                    for &(pointer, stamp, length) in &live {
                        assert!(pile.read(pointer, &mut buf).unwrap() == bytes(stamp, length), "{round}, {step}");
                    }
                    assert!(views.iter().all(|(view, bytes)| **view == **bytes), "{round}, {step}");
                }
            }
        }
    }

    #[test]
    fn what_is_left_of_many_is_packed() {
        let mut below = chance(88_172_645_463_325_252);
        for (least, more) in [(1100, 2900), (30_000, 1), (2000, 58_000), (100_000, 300_000)] {
            let pile = pile(1 << 30);
            let mut length = || least + below(more) as usize;
            let count = (50 << 20) / (least + more as usize / 2);
            let mut all: Vec<_> = (0..count).flat_map(|_| put_in_a_row(&pile, &[2 + length() / 8])).collect();
            while all.len() > count / 4 {
                let pointer = all.swap_remove(below(all.len() as u64) as usize);
                pile.remove(pointer).unwrap();
            }
            pile.compact();
            let stats = pile.stats();
            assert!(stats.reserved_bytes * 10 < stats.used_bytes * 14, "{least}: {stats:?}");
            pile.validate().unwrap();
        }
    }

    #[test]
    fn readers_see_whole_payloads_while_they_move() {
        let pile = pile(32 << 20);
        let mut live = fill(&pile);
        let (stays, goes) = live.split_at(live.len() / 2);
        let (stays, done) = (stays.to_vec(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Relaxed) {
                        let mut buf = ReadBuf::new();
                        for &(number, pointer) in stays.iter().step_by(7) {
                            assert!(pile.read(pointer, &mut buf).unwrap() == payload(number), "number {number}");
                        }
                    }
                });
            }
            let mut goes = goes.to_vec();
            for round in 0..40 {
                for _ in 0..goes.len() / 2 {
                    let (_, pointer) = goes.swap_remove(round * 37 % goes.len());
                    pile.remove(pointer).unwrap();
                }
                pile.compact();
                goes.extend((0..).map_while(|at| Some((at, pile.put(&payload(at + round)).ok()?))));
            }
            done.store(true, Relaxed);
        });
        live.truncate(stays.len());
        check(&pile, &live);
    }
}
