//! Giving back: everything of an affinity at once, and what is empty.

use std::alloc::Layout;
use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};

use gabion_blocks::os::out_of_cancels_reach;
use gabion_blocks::{BLOCK_BYTES, Held, PAGE_BYTES};
use gabion_heap::{Loc, shard_of};

use crate::affinity::Affinity;
use crate::arena::{Arena, Row};
use crate::chunks::push_remote_chunk;
use crate::error::SlotsError;
use crate::pages::pages_in_use;
use crate::record::{ALL_PAGES, Header, Page, link};
use crate::remote;
use crate::shared::{Large, Shared, State, epoch_of};
use crate::sync::{MutexGuard, Ordering, Ordering::Relaxed, lock, try_lock};

/// For how long a thread that would be refused looks again whether owners have done with their lists, all of them
/// together, and how long it rests between two looks: longer than a block takes to be mapped.
const PATIENCE: Duration = Duration::from_millis(20);
const NAP: Duration = Duration::from_micros(100);

/// Locks an arena's lists, unless its owner holds them. That one may be at work for long, or wait for the calling
/// thread: so it is looked for again `until` then, and not waited for.
fn lists_of(arena: &Arena, until: Option<Instant>) -> Option<MutexGuard<'_, ()>> {
    loop {
        let lists = try_lock(&arena.lists);
        if lists.is_some() || until.is_none_or(|until| Instant::now() >= until) {
            return lists;
        }
        out_of_cancels_reach(|| sleep(NAP));
    }
}

impl Shared {
    /// Delivers what an arena has freed of others', takes in what others have freed of its own, and gives back the
    /// empty blocks beyond those that are kept warm.
    pub fn flush_and_collect(&self, arena: &Arena) {
        self.flush(arena);
        let _lists = lock(&arena.lists);
        self.collect_remote_frees(arena);
        let names = self.affinity_count();
        {
            // Against a release of some affinity, which another thread may make at the same moment.
            let _collecting = lock(&arena.collecting);
            for index in 0..names {
                self.close_idle_pages(arena, Affinity::from_index(index as u8));
            }
        }
        self.return_queued(arena);
    }

    /// Takes in what others have freed of an arena's, and gives all its empty blocks back. Returns bytes.
    pub fn trim(&self, arena: &Arena) -> u64 {
        self.trim_rows(arena, 0..self.affinity_count())
    }

    /// As [`Shared::trim`], of one affinity.
    pub fn trim_row(&self, arena: &Arena, affinity: Affinity) -> u64 {
        let index = usize::from(affinity.index());
        self.trim_rows(arena, index..index + 1)
    }

    fn trim_rows(&self, arena: &Arena, indices: Range<usize>) -> u64 {
        self.flush(arena);
        let _lists = lock(&arena.lists);
        self.collect_remote_frees(arena);
        {
            // Against a release of some affinity, which another thread may make at the same moment.
            let _collecting = lock(&arena.collecting);
            for index in indices {
                let affinity = Affinity::from_index(index as u8);
                self.let_warm_go(arena, affinity);
                // SAFETY: the arena's own, and nothing below comes back here.
                if let Some(chunks) = unsafe { arena.row(affinity).chunks.get().as_mut() } {
                    self.queue_chunk_blocks(arena, chunks, affinity, true);
                }
            }
        }
        self.return_queued(arena)
    }

    /// Trims all arenas without an owner: each is adopted for the moment. Returns bytes.
    ///
    /// A thread that comes while others do so waits for them: what they are just giving back may be all that is
    /// missing.
    pub fn trim_ownerless(&self) -> u64 {
        let _ownerless = lock(&self.ownerless_lock);
        self.trim_each_ownerless(|_| true)
    }

    /// As [`Shared::trim_ownerless`], of those alone that have remote frees. Where others do so, nothing is done: who
    /// is refused for want of what they free waits for them in [`Shared::trim_ownerless`].
    pub fn try_trim_ownerless(&self) {
        if self.has_ownerless()
            && let Some(_ownerless) = try_lock(&self.ownerless_lock)
        {
            self.trim_each_ownerless(Arena::has_remote_frees);
        }
    }

    /// Trims arenas without an owner, if they are `worthwhile`. Returns bytes. The caller holds the
    /// `ownerless_lock`.
    fn trim_each_ownerless(&self, worthwhile: impl Fn(&Arena) -> bool) -> u64 {
        let trim = |arena| {
            let bytes = self.trim(arena);
            self.abandon(arena);
            bytes
        };
        self.adopt_each(worthwhile).map(trim).sum()
    }

    /// Takes back the blocks of slots in other threads' arenas of which everything was freed: what others have freed
    /// there waits for its owner, who may have nothing to do for long. Of one affinity, if that is said; `warm` ones
    /// too, if that is: when a request would be refused without. Returns bytes. `mine` is the calling thread's arena.
    ///
    /// An owner who is just changing its lists is left alone. Before a refusal they are waited for, all together for 20
    /// milliseconds at most. The pages that an owner's allocations come from are its own whether they are empty or not,
    /// and so are its chunks.
    pub fn take_empty(&self, mine: Option<&Arena>, affinity: Option<Affinity>, warm: bool) -> u64 {
        // One at a time, as in `trim_ownerless`.
        let _taking = lock(&self.taking);
        let (mut bytes, names) = (0, self.affinity_count());
        let until = warm.then(|| Instant::now() + PATIENCE);
        for arena in (0..).map_while(|index| self.arena(index)) {
            // Relaxed: see `Arena::free`.
            if mine.is_some_and(|mine| mine.index == arena.index) || arena.orphaned.load(Relaxed) {
                continue;
            }
            let Some(lists) = lists_of(arena, until) else { continue };
            {
                // Against a release of some affinity, which another thread may make at the same moment.
                let _collecting = lock(&arena.collecting);
                self.take_freed_blocks(arena, affinity);
                let rows = affinity.map_or(0..names, |one| usize::from(one.index())..usize::from(one.index()) + 1);
                for index in rows.filter(|_| warm) {
                    self.queue_warm(arena, Affinity::from_index(index as u8));
                }
            }
            let struck = self.strike(arena);
            // Unmapping many takes long, and is nothing that the owner should wait for.
            drop(lists);
            bytes += self.give_back(struck);
        }
        bytes
    }

    /// Empties those blocks on an arena's stack of remote frees of which everything was freed. The rest stays there.
    /// The caller holds the locks of the lists and of who collects.
    fn take_freed_blocks(&self, arena: &Arena, affinity: Option<Affinity>) {
        self.filter_remote_frees(arena, |header| {
            let whose = Affinity::from_index(header.affinity.load(Relaxed));
            let freed = affinity.is_none_or(|one| one == whose) && pages_in_use(header).all(Page::is_all_freed);
            if freed {
                remote::take_pages(&header.remote.pages);
                for page in pages_in_use(header) {
                    self.close_all_freed(arena, page);
                }
            }
            !freed
        });
    }

    /// Whether a request that was refused may be served once memory was given back: not if it is for more than the
    /// affinity's budget or the machine ever has.
    pub fn may_pass(&self, layout: Layout, error: SlotsError) -> bool {
        match error {
            SlotsError::Budget { asked, limit, .. } => asked <= limit,
            SlotsError::NoMemory(_) => Held::can_be_had(&self.pool, layout.size()),
            _ => false,
        }
    }

    /// Takes in what was freed of threads that have ended: nobody else looks for it until more memory is needed.
    ///
    /// A thread that comes while others do so waits for them, since they may have passed the arena already that has
    /// what this thread has freed just now.
    pub fn collect_ownerless(&self) {
        if self.has_ownerless() {
            let _ownerless = lock(&self.ownerless_lock);
            self.collect_each_ownerless();
        }
    }

    /// As [`Shared::collect_ownerless`], unless others do so. For a thread that comes again: what it has freed where
    /// they had passed is found then.
    pub fn try_collect_ownerless(&self) {
        if self.has_ownerless()
            && let Some(_ownerless) = try_lock(&self.ownerless_lock)
        {
            self.collect_each_ownerless();
        }
    }

    /// Takes in what was freed of threads that have ended. The caller holds the `ownerless_lock`.
    fn collect_each_ownerless(&self) {
        self.adopt_each(Arena::has_remote_frees).for_each(|arena| self.leave(arena));
    }

    /// Whether there are arenas without an owner. A hint: others may just adopt them.
    fn has_ownerless(&self) -> bool {
        self.ownerless_hint.load(Relaxed) != 0
    }

    /// Adopts arenas without an owner, if they are `worthwhile`, one after another: each is to be let go before the
    /// next is asked for, so that a thread that begins meanwhile finds the others. The caller holds the
    /// `ownerless_lock`.
    fn adopt_each(&self, worthwhile: impl Fn(&Arena) -> bool) -> impl Iterator<Item = &Arena> {
        (0..)
            .map_while(|index| self.arena(index))
            .filter(move |arena| self.has_ownerless() && worthwhile(arena) && self.adopt_if_ownerless(arena))
    }

    fn adopt_if_ownerless(&self, arena: &Arena) -> bool {
        let mut state = self.lock();
        let State { ownerless_cold, ownerless_warm, .. } = &mut *state;
        let found = [ownerless_warm, ownerless_cold].into_iter().any(|list| {
            let at = list.iter().position(|&index| index == arena.index);
            at.map(|at| list.remove(at)).is_some()
        });
        self.count_ownerless(&state);
        found
    }

    /// Frees everything of an affinity. Returns bytes. `mine` is the calling thread's arena, and keeps a block.
    ///
    /// # Safety
    /// Nobody uses anything of the affinity, or allocates from it or frees to it, until this returns.
    pub unsafe fn release(&self, mine: Option<&Arena>, affinity: Affinity) -> u64 {
        let (mut pages, mut chunks, mut bytes) = (0, 0, 0);
        {
            let mut state = self.lock();
            // What buffers still hold of this affinity is nobody's from now on.
            state.releases += 1;
            remote::advance_epoch(&self.books(affinity).epoch, epoch_of(state.releases, affinity));
            self.await_hazards(0);
            for arena in self.sound_arenas(&state) {
                let _collecting = lock(&arena.collecting);
                self.discard_remote_frees(arena, affinity);
                let keeps = mine.is_some_and(|mine| mine.index == arena.index);
                let kept;
                (pages, kept) = self.strike_row(arena.row(affinity), affinity, keeps, pages);
                bytes += kept;
                let before = self.books(affinity).budget.used();
                chunks = self.strike_chunks(arena.row(affinity), affinity, chunks);
                bytes += before.saturating_sub(self.books(affinity).budget.used());
            }
        }
        // What chunks took is counted by pages, and the blocks that they were in by those who look at the pool.
        self.give_chunk_blocks_back(chunks);
        bytes += self.give_back(pages);
        bytes + self.release_large(affinity)
    }

    /// Frees all large objects of an affinity, some at a time: a list of all would need memory. Returns bytes.
    fn release_large(&self, affinity: Affinity) -> u64 {
        let mut bytes = 0;
        loop {
            let some: [Option<Large>; 64] = {
                let mut state = self.lock();
                let mut own = state.large.extract_if(|_, large| large.affinity == affinity);
                std::array::from_fn(|_| {
                    own.next().map(|(base, large)| {
                        self.territory.strike(base, large.held.bytes());
                        large
                    })
                })
            };
            let is_last = some[63].is_none();
            // Unmapping takes its time: not under the lock.
            bytes += some.into_iter().flatten().map(|large| self.drop_large(large)).sum::<u64>();
            if is_last {
                return bytes;
            }
        }
    }

    /// Takes the remote frees of one affinity out of an arena's stacks.
    fn discard_remote_frees(&self, arena: &Arena, affinity: Affinity) {
        self.filter_remote_frees(arena, |header| {
            let stays = header.affinity.load(Relaxed) != affinity.index();
            if !stays {
                header.remote.pages.store(0, Relaxed);
            }
            stays
        });
        // Acquire: pairs with the release in `push_remote_chunk`.
        let mut next = arena.remote.chunks.swap(0, Ordering::Acquire);
        while next != 0 {
            let chunk = Loc::from_bits(next - 1);
            let Some(block) = self.blocks.block(chunk.number()) else { break };
            next = block.word(chunk.word()).load(Relaxed);
            if shard_of(block) as u8 != affinity.index() {
                push_remote_chunk(arena, block, chunk);
            }
        }
    }

    /// Empties a row of its blocks of pages and strikes them off the map, but for one that it `keeps`: whoever releases
    /// again and again would have it mapped and touched anew each time. Returns the first of their list, which ends
    /// with `done`, and the bytes of the kept one, if something was in it.
    fn strike_row(&self, row: &Row, affinity: Affinity, keeps: bool, mut done: u32) -> (u32, u64) {
        for (shelf, lists) in row.shelves.iter().zip(&row.lists) {
            shelf.leave();
            for list in lists {
                list.set(0);
            }
        }
        row.room.set(0);
        row.warm.set(0);
        let mut next = row.blocks.replace(0);
        let mut kept: Option<&Header> = None;
        let mut strike = |header: &Header| {
            self.books(affinity).blocks.fetch_sub(1, Relaxed);
            self.territory.strike(header.base().addr().get(), BLOCK_BYTES);
            header.room_next.store(done, Relaxed);
            done = link(header.number.load(Relaxed));
        };
        while let Some(base) = next.checked_sub(1).and_then(|number| self.blocks.base(number)) {
            // SAFETY: a block of pages of the row.
            let header = unsafe { Header::of(base) };
            next = header.next.load(Relaxed);
            let pages = (ALL_PAGES & !header.free.load(Relaxed)).count_ones() as usize;
            self.books(affinity).book_out((pages * PAGE_BYTES) as u64);
            // The one that was touched most.
            let untouched = |header: &Header| header.zero.load(Relaxed).count_ones();
            if keeps && kept.is_none_or(|kept| untouched(header) < untouched(kept)) {
                kept.replace(header).map(&mut strike);
            } else {
                strike(header);
            }
        }
        let mut bytes = 0;
        if let Some(header) = kept {
            if header.free.load(Relaxed) != ALL_PAGES {
                bytes = BLOCK_BYTES as u64;
            }
            self.wipe(row, header, affinity);
        }
        (done, bytes)
    }

    /// Makes a block of a released row its only one, empty and warm.
    fn wipe(&self, row: &Row, header: &Header, affinity: Affinity) {
        for page in pages_in_use(header) {
            page.record().owner.store(0, Relaxed);
        }
        header.free.store(ALL_PAGES, Relaxed);
        header.has_room.store(0, Relaxed);
        header.next.store(0, Relaxed);
        header.previous.store(0, Relaxed);
        // What buffers still hold of it is of the epoch before. It is on no stack; see `strike_queued`.
        header.epoch.store(self.books(affinity).epoch.load(Relaxed), Relaxed);
        header.remote.pages.store(0, Relaxed);
        let name = link(header.number.load(Relaxed));
        row.blocks.set(name);
        row.warm.set(name);
    }

    /// Empties a row of its chunks and strikes their blocks off the map. Returns the first of their list, which ends
    /// with `done`.
    fn strike_chunks(&self, row: &Row, affinity: Affinity, mut done: u32) -> u32 {
        // SAFETY: nobody uses the affinity, which is the duty of `release`'s caller, but to trim it, and the arena's
        // lock keeps trims away.
        let Some(chunks) = (unsafe { row.chunks.get().as_mut() }) else { return done };
        chunks.take_off_all(self.ground(affinity), |number| done = self.strike_chunk_block(number, done));
        self.books(affinity).book_out(row.booked.replace(0));
        row.chunk_objects.store(0, Relaxed);
        row.chunk_bytes.store(0, Relaxed);
        row.remote_objects.store(0, Relaxed);
        row.remote_bytes.store(0, Relaxed);
        done
    }

    /// Makes a forked child's stacks of remote frees whole again: arenas of threads that it does not have are orphans,
    /// and what those threads were just freeing in the others' blocks goes onto the stacks. `mine` is the forking
    /// thread's arena. Nobody else is there.
    pub fn rebuild_remote_frees(&self, state: &State, mine: Option<&Arena>) {
        for arena in self.sound_arenas(state) {
            // The thread that was freeing something somewhere is gone.
            arena.remote_buffer.hazard.clear();
            let ended = state.ownerless_cold.contains(&arena.index) || state.ownerless_warm.contains(&arena.index);
            if !ended && mine.is_none_or(|mine| mine.index != arena.index) {
                // Relaxed: other threads come later.
                arena.orphaned.store(true, Relaxed);
                continue;
            }
            // A thread may have marked a block, and not got to push it.
            arena.remote.slots.take_all();
            for affinity in 0..state.names.len() {
                let mut next = arena.row(Affinity::from_index(affinity as u8)).blocks.get();
                while let Some(base) = next.checked_sub(1).and_then(|number| self.blocks.base(number)) {
                    // SAFETY: a block of pages of the row.
                    let header = unsafe { Header::of(base) };
                    if header.remote.pages.load(Relaxed) != 0 {
                        arena.remote.slots.push(next, &header.remote.next);
                    }
                    next = header.next.load(Relaxed);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Barrier};
    use std::thread;
    use std::time::Duration;

    use crate::sync::lock;
    use crate::tests::{Shared, give, on_twin, take};
    use crate::{Affinity, Slots};

    /// Threads that allocate at the same time, so that each has an arena of its own, and have ended.
    fn ended(slots: &Slots, count: usize) {
        let start = Arc::new(Barrier::new(count));
        let spawn = |_| {
            let (slots, start) = (slots.clone(), Arc::clone(&start));
            thread::spawn(move || {
                take(&slots, Affinity::NODES, 40);
                start.wait();
            })
        };
        let threads: Vec<_> = (0..count).map(spawn).collect();
        // Joined, and not scoped: a scope ends before the threads have let their arenas go.
        for thread in threads {
            thread.join().unwrap();
        }
    }

    #[test]
    fn while_one_arena_is_tidied_a_new_thread_finds_the_others() {
        let (slots, _twin) = on_twin();
        ended(&slots, 4);
        let mut met = 0;
        for arena in slots.shared.adopt_each(|_| true) {
            met += 1;
            assert_eq!(slots.stats().ownerless_arenas, 3);
            ended(&slots, 1);
            assert_eq!(slots.stats().ownerless_arenas, 3, "it has made no other");
            slots.shared.abandon(arena);
        }
        assert_eq!((met, slots.stats().ownerless_arenas), (4, 4));
    }

    /// An allocation that only wanted another block, and a free, waited until another thread had given back all that
    /// ended ones had kept.
    #[test]
    fn who_is_not_refused_waits_for_nobody_who_trims() {
        let (slots, _twin) = on_twin();
        let (ready, wait) = channel();
        let (go, begin) = channel::<()>();
        let (done, finished) = channel();
        let places: Vec<_> = (0..5000).map(|_| Shared(take(&slots, Affinity::NODES, 40))).collect();
        let busy = {
            let slots = slots.clone();
            thread::spawn(move || {
                // In an arena of its own, so that it adopts none.
                take(&slots, Affinity::DATA, 40);
                ready.send(()).unwrap();
                begin.recv().unwrap();
                take(&slots, Affinity::NODES, 40);
                take(&slots, Affinity::NODES, 4000);
                // More than a buffer holds.
                for place in places {
                    give(&slots, place.0);
                }
                done.send(()).unwrap();
            })
        };
        wait.recv().unwrap();
        ended(&slots, 1);
        assert_eq!(slots.stats().ownerless_arenas, 1);
        let ownerless = lock(&slots.shared.ownerless_lock);
        go.send(()).unwrap();
        let in_time = finished.recv_timeout(Duration::from_secs(20));
        drop(ownerless);
        busy.join().unwrap();
        assert!(in_time.is_ok(), "it waited");
        slots.validate().unwrap();
    }
}
