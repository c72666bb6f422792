//! Room for a put that its own shard cannot give: bytes from other shards, and pages.
//!
//! Bytes that entries leave are free at once, pages only when nothing is left in them. So when there is no page for a
//! put, a page with few entries is emptied into the free slots of others. Where there are not enough of those, entries
//! are evicted first. So such a put costs about a page, however large the cache, and the same is so among entries of
//! more than 1 KiB, whose values lie in chunks: the pile moves those.

use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::{BlockError, PAGE_BYTES};
use gabion_pile::{Place, SLOT_PAYLOAD, SparsePage};

use super::core::Core;
use crate::budget::Ledger;
use crate::entry::{Entry, key_at};
use crate::key::Image;
use crate::shard::{Lack, Locked, Need, Reason};

/// What is known of the room for a put.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Outlook {
    #[default]
    Unknown,
    /// All shards together can make some.
    Sure,
    /// There is none to be had.
    Hopeless,
}

/// What a put has tried to find room.
#[derive(Default)]
pub(crate) struct Effort {
    pub outlook: Outlook,
    /// Bytes of entries that went so that pages come free.
    pub evicted: u64,
    /// Pages that were freed.
    pub pages: u64,
    /// What stood in the sparsest page was worth more than the page: the rest of long values lies elsewhere.
    pub heavy: bool,
    /// A place each of pages that were passed over: something has to stay there, or others have to go first.
    pub passed: Vec<Place>,
    /// The priority whose turn it was then.
    pub turn: Option<i8>,
    /// Pages that long values were moved out of since entries were evicted.
    pub cleared: u32,
    /// How often room was freed until nobody was found who could go for the put.
    pub nobody: Option<u64>,
    /// How often others were supposed to have freed some since.
    pub hopes: u32,
}

/// Entries that are evicted at one time when there are no pages, up to a page's worth: slots of the right class may be
/// among them.
const BATCH: usize = 16;
/// How many pages are cleared of long values for one put, before entries are evicted: one for its slot, and one for the
/// index.
const MOST_CLEARED: u32 = 2;
/// How many pages' worth of entries go for a long value before others are moved for it.
const MANY_PAGES: u64 = 16;
/// How often a put that nobody can go for is tried again because others have freed something: as they may do by moving
/// entries to and fro, for puts that nobody can go for either.
const MOST_HOPES: u32 = 64;
/// How many pages are passed over for one put.
const MOST_PASSED: usize = 16;
/// A page of which no more than that many hundredths are taken is emptied before entries of other kinds are evicted.
const MOST_MOVED: u32 = 75;

/// Whether pages that entries leave are what a put lacks. Where the system itself has no memory they are as good as its
/// own, for what lies in slots: long values may lack a whole block. Even so, evicting the whole cache would not be the
/// answer, since what the system refuses may be something else.
fn may_help(need: &Need<'_>, cause: &BlockError, effort: &Effort) -> bool {
    match cause {
        BlockError::Limit { .. } => true,
        BlockError::NoMemory { .. } | BlockError::Refused { .. } | BlockError::Exhausted { .. } => {
            is_short(need) && effort.evicted <= MANY_PAGES * PAGE_BYTES as u64
        }
        _ => false,
    }
}

/// Whether a put takes but slots and a unit of the index.
fn is_short(need: &Need<'_>) -> bool {
    need.rest.is_none_or(|rest| rest <= SLOT_PAYLOAD)
}

impl Core {
    /// Finds room for a put that had none, as far as there is some to be had, and notes the outlook. No lock is held.
    #[cold]
    pub fn make_way(&self, shard: usize, need: &Need<'_>, lack: &Lack, effort: &mut Effort) {
        match *lack {
            Lack::Unsure(bytes) => {
                effort.outlook = if self.could_hold(need, bytes) { Outlook::Sure } else { Outlook::Hopeless };
            }
            Lack::Elsewhere { priority, table_only } => {
                let only = table_only.then_some(need.record.id);
                if !self.evict_elsewhere(shard, priority, only) {
                    // What is charged there is just being put, or just gone.
                    std::thread::yield_now();
                }
                effort.outlook = Outlook::Unknown;
            }
            Lack::Pages(ref cause) => {
                if !self.make_pages(shard, need, cause, effort) {
                    effort.outlook = Outlook::Hopeless;
                }
            }
            Lack::Room => effort.outlook = Outlook::Hopeless,
        }
    }

    /// Whether room could be made for that many bytes by entries that the put may evict, wherever they are.
    fn could_hold(&self, need: &Need<'_>, bytes: u64) -> bool {
        // All locks at one time, in their order: what is charged is an entry's then, or in hand, or nobody's.
        let mut shards: Vec<Locked<'_>> = (0..self.shard_count()).map(|shard| self.lock_only(shard)).collect();
        shards[self.shard(need.hash)].spare(need.image, need.hash);
        // What shards have in hand is nobody's from here on: where nobody may go for the put, it would get no other
        // way.
        for locked in &mut shards {
            locked.return_credit();
        }
        let sum = |figure: &dyn Fn(&Locked<'_>) -> u64| shards.iter().map(figure).sum::<u64>();
        let free = |ledger: &Ledger| ledger.used.limit().saturating_sub(ledger.used.used());
        let all = sum(&|locked| locked.ghost_bytes() + locked.evictable(need.priority, None));
        let own = sum(&|locked| locked.evictable(need.priority, Some(need.record.id)));
        let own_holds = |ledger: &Ledger| free(ledger).saturating_add(own) >= bytes;
        free(self.ledger()).saturating_add(all) >= bytes && need.record.own.as_ref().is_none_or(own_holds)
    }

    /// Has another shard give up bytes: what it does not use, or else an entry of a priority.
    fn evict_elsewhere(&self, own: usize, priority: i8, only: Option<u16>) -> bool {
        // Relaxed: any shard is as good as another.
        let (start, count) = (self.next.fetch_add(1, Relaxed), self.shard_count());
        let others = (0..count).map(|step| (start + step) % count);
        others.filter(|&other| other != own).any(|other| {
            let mut locked = self.lock(other);
            let gave = locked.return_credit() > 0 || locked.evict(priority, only) || only.is_none() && locked.forget();
            locked.return_credit();
            self.unlock(locked);
            gave
        })
    }

    /// Frees pages, or slots of the class that a put needs, by evicting and by moving entries.
    fn make_pages(&self, shard: usize, need: &Need<'_>, cause: &BlockError, effort: &mut Effort) -> bool {
        if !self.ground().may_hold(need.rest) || !may_help(need, cause, effort) {
            return false;
        }
        // What other pages have room for costs no entry.
        if self.move_sparse(effort) || self.clear_page(need, effort) {
            return true;
        }
        // A page's worth of evictions for each page, and as much as the put itself takes.
        let enough = effort.evicted >= (effort.pages + 1) * PAGE_BYTES as u64 + need.fresh;
        // Where the order is exact, no entry goes because of where it lies.
        if enough && !self.ground().policy.is_exact() && self.evict_page(need, effort) {
            return true;
        }
        let before = effort.evicted;
        self.evict_some(shard, need, effort);
        effort.evicted > before || self.shrink_index() > 0 || self.others_may_have_freed(effort)
    }

    /// Whether others may have freed what a put lacks since it was last tried, where nobody is left who could go for
    /// it. That it was not tried since is supposed at first.
    fn others_may_have_freed(&self, effort: &mut Effort) -> bool {
        let freed = self.ground().freed();
        effort.hopes += 1;
        effort.nobody.replace(freed) != Some(freed) && effort.hopes <= MOST_HOPES
    }

    /// Empties the sparsest page that only those are evicted from whose turn it is by their priority. False when there
    /// is none, or its entries are worth more than a page.
    fn evict_page(&self, need: &Need<'_>, effort: &mut Effort) -> bool {
        let turn = self.ledger().priorities.lowest(need.priority);
        if effort.turn != turn {
            (effort.turn, effort.passed) = (turn, Vec::new());
        }
        while !effort.heavy && effort.passed.len() < MOST_PASSED {
            let Some(sparse) = self.pile().sparse_page(false, &effort.passed) else { return false };
            let places = self.pile().places_in(&sparse);
            // It serves another class by now.
            let Some(&first) = places.first() else { return false };
            let mut gone = 0;
            if self.empty_page(&sparse, &places, Some((need, &mut gone))) {
                effort.pages += 1;
                return true;
            }
            effort.heavy = gone > 0;
            effort.passed.push(first);
        }
        false
    }

    /// Has the pile move long values out of a page, for a put that takes but slots and a unit of the index. Room for a
    /// long value is left by those that go, unless many have gone and none of them left enough in one piece.
    fn clear_page(&self, need: &Need<'_>, effort: &mut Effort) -> bool {
        let in_vain = effort.evicted > MANY_PAGES * PAGE_BYTES as u64 + need.fresh;
        (is_short(need) || in_vain) && self.clear_any_page(effort)
    }

    /// Has the pile move long values out of a page, a few times between evictions.
    pub(super) fn clear_any_page(&self, effort: &mut Effort) -> bool {
        let clears = effort.cleared < MOST_CLEARED && self.pile().clear_page();
        if clears {
            effort.cleared += 1;
            self.ground().note_freed();
        }
        clears
    }

    /// Gives back what the index keeps for keys that are not there. Returns how many parts and ghosts that is.
    pub(super) fn shrink_index(&self) -> u64 {
        let shrink = |shard: usize| {
            let locked = self.lock_only(shard);
            locked.shard.sketches.shrink(locked.state.stash.entries)
        };
        (0..self.shard_count()).map(shrink).sum::<u64>() + self.forget_ghosts()
    }

    /// Forgets all ghosts. Returns how many.
    pub fn forget_ghosts(&self) -> u64 {
        let each = |shard: usize| {
            let mut locked = self.lock_only(shard);
            let forgot = std::iter::repeat_with(|| locked.forget()).take_while(|&forgot| forgot).count() as u64;
            self.unlock(locked);
            forgot
        };
        (0..self.shard_count()).map(each).sum()
    }

    /// Empties a page that is sparse enough, if other pages have room for what is in it.
    pub(super) fn move_sparse(&self, effort: &mut Effort) -> bool {
        let sparse = self.pile().sparse_page(true, &[]).filter(|sparse| sparse.percent() <= MOST_MOVED);
        let moved = sparse.is_some_and(|sparse| self.empty_page(&sparse, &self.pile().places_in(&sparse), None));
        effort.pages += u64::from(moved);
        moved
    }

    fn evict_some(&self, own: usize, need: &Need<'_>, effort: &mut Effort) {
        let (count, priority) = (self.shard_count(), need.priority);
        for shard in (0..count).map(|step| (own + step) % count) {
            let Some(lowest) = self.ledger().priorities.lowest(priority) else { return };
            let mut locked = self.lock(shard);
            if shard == own {
                locked.spare(need.image, need.hash);
            }
            let before = locked.evictable(priority, None);
            let mut gone = 0;
            for _ in 0..BATCH {
                if gone >= PAGE_BYTES as u64 || !locked.evict(lowest, None) {
                    break;
                }
                gone = before - locked.evictable(priority, None);
            }
            effort.evicted += gone;
            effort.cleared = 0;
            self.unlock(locked);
            if gone > 0 {
                return;
            }
        }
    }

    /// Moves the entries of a page, which lie at `places`, to other pages; where there is no room for one, it is
    /// evicted if a put is given and it is its turn by its priority, up to what the put and the page weigh: all values
    /// that are not short may have their heads in one page. Counts what has gone. False when something stays.
    fn empty_page(&self, page: &SparsePage, places: &[Place], mut evicts: Option<(&Need<'_>, &mut u64)>) -> bool {
        let goes_first = evicts.as_ref().map(|(of, _)| {
            let mut locked = self.lock_only(self.shard(of.hash));
            locked.spare(of.image, of.hash);
            (self.ledger().priorities.lowest(of.priority), locked.spared)
        });
        // Read without a lock, and a guess. Those who may not go come first: where one of them has to stay, nobody goes
        // in vain.
        let may_go = |&&place: &&Place| {
            let priority = Some(self.priority_at(place));
            goes_first.is_some_and(|(lowest, own)| priority == lowest && own != Some(place.to_bits()))
        };
        let (last, first): (Vec<&Place>, Vec<&Place>) = places.iter().partition(may_go);
        let mut moves = |&place: &Place| self.move_entry(page, place, &mut evicts);
        !places.is_empty() && first.into_iter().chain(last).all(&mut moves)
    }

    /// The priority of the entry at a place of the pile, if there is one.
    fn priority_at(&self, place: Place) -> i8 {
        Entry::at(self.pile(), place.to_bits()).about().priority
    }

    /// Moves the entry at a place out of a page, or evicts it and counts what has gone; false when something else lies
    /// there, or it has to stay.
    fn move_entry(&self, page: &SparsePage, place: Place, evicts: &mut Option<(&Need<'_>, &mut u64)>) -> bool {
        // Whose it is, is told by its key, which says the shard. What was read without a lock is a guess.
        let Some(glance) = self.pile().glance(place) else { return false };
        let Some((table, key)) = key_at(self.pile(), &glance) else { return false };
        if !glance.holds(|| true) {
            return false;
        }
        let image = Image::new(table, &key);
        let hash = self.hash(&image);
        let mut locked = self.lock_only(self.shard(hash));
        let id = place.to_bits();
        if locked.find(&image, hash) != Some(id) {
            return false;
        }
        let mut goes = locked.move_out(id, |to| !page.has(to));
        if !goes && let Some((of, gone)) = evicts {
            let is_own = (of.record.id, of.image.key) == (table, &*key);
            // Of the priorities that there are now: the last of a lower one may just have gone.
            let next = self.ledger().priorities.lowest(of.priority) == Some(locked.entry(id).about().priority);
            goes = next && !is_own && **gone <= of.fresh + PAGE_BYTES as u64;
            if goes {
                **gone += locked.entry(id).stored();
                locked.remove_entry(id, Some(Reason::Evicted));
            }
        }
        self.unlock(locked);
        goes
    }
}
