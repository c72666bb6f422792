//! What the pool reports of itself, and the equations that must hold.

use std::collections::HashSet;

use super::addresses;
use super::emptied::bytes_of;
use super::shared::{Arena, Shared};
use super::size::piece_bytes;
use super::span::{Span, Use, records_of};
use super::stats::{ArenaStats, PoolStats};
use crate::BLOCK_BYTES;
use crate::inside;
use crate::invalid::Invalid;
use crate::sync::{AtomicU64, Ordering, lock};

impl Shared {
    /// The figures, gathered arena by arena.
    pub fn stats(&self) -> PoolStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // The vectors grow beside a held lock.
        let _inside = inside::enter();
        // Held to the end: what a cache tells an arena meanwhile, as when its thread ends, would be seen twice or not
        // at all, and so would pieces that go from one to the other.
        let list = lock(&self.caches);
        let caches = &list.all;
        // Looked up once: an arena opened from here on has no row.
        let arenas: Vec<_> = self.arenas().collect();
        let indices = arenas.iter().map(|arena| arena.index).chain(caches.iter().map(|cache| cache.arena()));
        let used = indices.max().map_or(0, |last| last + 1);
        let mut stats = PoolStats {
            peak: self.ledger.peak(),
            held: self.ledger.held(),
            held_idle: self.ledger.emptied(),
            fresh: read(&self.tallies.fresh),
            trimmed: read(&self.tallies.trimmed),
            refused: read(&self.tallies.refused),
            waited: read(&self.tallies.waited),
            retries: read(&self.tallies.retries),
            arenas: vec![ArenaStats::default(); used],
            ..PoolStats::default()
        };
        for arena in arenas {
            let counts = arena.lock().counts;
            stats.in_use += counts.out();
            stats.hits_cache += counts.hits_cache;
            stats.hits_piece += counts.hits_piece;
            stats.hits_block += counts.hits_block;
            stats.hits_run += counts.hits_run;
            stats.stolen += counts.stolen;
            stats.arenas[arena.index] = ArenaStats {
                rented: counts.rented,
                returned: counts.returned,
                stolen: counts.stolen,
                out: counts.out(),
                idle: counts.idle,
            };
        }
        for cache in caches {
            let (rented, returned) = cache.untold();
            stats.cached += cache.bytes() as u64;
            stats.hits_cache += rented;
            if let Some(arena) = stats.arenas.get_mut(cache.arena()) {
                arena.rented += rented;
                arena.returned += returned;
            }
        }
        stats.requests = stats.arenas.iter().map(|arena| arena.rented).sum();
        let returned: u64 = stats.arenas.iter().map(|arena| arena.returned).sum();
        stats.live = stats.requests.saturating_sub(returned);
        stats.in_use = stats.in_use.saturating_sub(stats.cached) + self.ledger.allowed();
        // Last: memory that was mapped meanwhile is idle rather than missing.
        stats.mapped = self.ledger.drawn().max(stats.in_use);
        stats.idle = stats.mapped - stats.in_use;
        stats
    }

    /// Checks every equation. While no other thread uses the pool, all of them hold.
    pub fn validate(&self) -> Result<(), Invalid> {
        // Sets grow beside held locks.
        let _inside = inside::enter();
        let spans = records_of(self.number);
        let cached = self.validate_caches()?;
        for arena in self.arenas() {
            validate_arena(arena, &spans, &cached)?;
        }
        let sum = |state: Use| bytes_in(&spans, state, None);
        let mapped = sum(Use::Idle) + sum(Use::Lent) + sum(Use::Cut);
        if (mapped, sum(Use::Held)) != (self.ledger.mapped(), self.ledger.held()) {
            return Err(Invalid(format!("{mapped} bytes mapped, the ledger says {:?}", self.ledger)));
        }
        let (emptied, gone) = given_up_in(&spans, None);
        if (emptied, gone) != (self.ledger.emptied(), self.ledger.gone()) {
            return Err(Invalid(format!("{emptied} bytes emptied and {gone} gone, the ledger says {:?}", self.ledger)));
        }
        let idle_or_held = |span: &&Span| span.state() == Use::Held || span.given_up.load(Ordering::Relaxed) == 0;
        if !spans.iter().copied().all(|span| idle_or_held(&span) && span.leaving.load(Ordering::Relaxed) == 0) {
            return Err("pages were given up of what is not held, or are leaving".into());
        }
        let taken = sum(Use::Lent) + sum(Use::Cut) + sum(Use::Held) - emptied - gone;
        if taken != self.taken() {
            return Err(Invalid(format!("{taken} bytes taken, the arenas say {}", self.taken())));
        }
        for span in &spans {
            for offset in (0..span.bytes()).step_by(BLOCK_BYTES).chain([span.bytes() - 1]) {
                let found = addresses::find(span.base().as_ptr().wrapping_add(offset));
                if !found.is_some_and(|found| std::ptr::eq(found, *span)) {
                    return Err(Invalid(format!("the address map does not know byte {offset} of {span:?}")));
                }
            }
        }
        Ok(())
    }

    /// Checks the caches. Returns the pieces in them.
    fn validate_caches(&self) -> Result<Pieces, Invalid> {
        let mut cached = Pieces::new();
        for cache in self.all_caches() {
            let open = cache.lock_unbiased();
            let mut bytes = 0;
            for piece in open.pieces() {
                bytes += piece_bytes(piece.span().piece_class());
                if !cached.insert((piece.address(), piece.span().piece_class())) {
                    return Err(Invalid(format!("a piece of {:?} is cached twice", piece.span())));
                }
            }
            if bytes != open.bytes() {
                return Err(Invalid(format!("{bytes} bytes in a cache, {} counted", open.bytes())));
            }
        }
        Ok(cached)
    }
}

/// Addresses and classes of pieces.
type Pieces = HashSet<(std::ptr::NonNull<u8>, usize)>;

/// Those spans of an arena, or of all.
fn at_home<'a>(spans: &'a [&'static Span], home: Option<usize>) -> impl Iterator<Item = &'a &'static Span> {
    spans.iter().filter(move |span| home.is_none_or(|home| span.home() == home))
}

/// Bytes of the spans that are in a state.
fn bytes_in(spans: &[&'static Span], state: Use, home: Option<usize>) -> u64 {
    at_home(spans, home).filter(|span| span.state() == state).map(|span| span.bytes() as u64).sum()
}

/// Bytes of pages that are emptied, and gone.
fn given_up_in(spans: &[&'static Span], home: Option<usize>) -> (u64, u64) {
    let read = |mask: &std::sync::atomic::AtomicU64| mask.load(Ordering::Relaxed);
    let masks = at_home(spans, home).map(|span| (read(&span.emptied), read(&span.given_up) & !read(&span.emptied)));
    masks.fold((0, 0), |sum, (emptied, gone)| (sum.0 + bytes_of(emptied), sum.1 + bytes_of(gone)))
}

/// Checks an arena's lists and counts against the records of all spans.
fn validate_arena(arena: &Arena, spans: &[&'static Span], cached: &Pieces) -> Result<(), Invalid> {
    let home = arena.index;
    let shelves = arena.lock();
    shelves.check(home)?;
    let counts = shelves.counts;
    for (span, cut) in shelves.cut_blocks() {
        if (0..cut.pieces).any(|index| cut.is_free(index) && cached.contains(&at(span, index))) {
            return Err(Invalid(format!("a piece of {span:?} is free and cached")));
        }
    }
    let sum = |state: Use| bytes_in(spans, state, Some(home));
    let found = (sum(Use::Lent), sum(Use::Held), sum(Use::Cut));
    if found != (counts.lent, counts.held, counts.cut) || sum(Use::Idle) != counts.idle {
        return Err(Invalid(format!("arena {home}: found {found:?}, counted {counts:?}")));
    }
    let found = given_up_in(spans, Some(home));
    if found != (counts.emptied, counts.gone) {
        return Err(Invalid(format!("arena {home}: found {found:?} emptied and gone, counted {counts:?}")));
    }
    Ok(())
}

fn at(span: &'static Span, index: usize) -> (std::ptr::NonNull<u8>, usize) {
    (super::cache::Piece::new(span, index, false).address(), span.piece_class())
}
