//! The bins: free chunks by size, thirty-two bins per doubling, and a bitmap that finds the first good one (TLSF:
//! Masmano, Ripoll, Crespo, Real 2004).
//!
//! A bin's chunks are a list, whose links lie in the two words behind each tag. Others may walk a block meanwhile; they
//! read tags alone.

use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::{Block, Invalid, ensure};

use super::{LENGTH, USED};
use crate::ground::Ground;
use crate::loc::Loc;

const STEPS: usize = 32;
pub(super) const BINS: usize = (Loc::WORD_BITS as usize + 1) * STEPS;
/// End of a bin's list, in the form of a [`Loc`]'s bits plus one.
const NOWHERE: u64 = 0;
/// Where the links lie, from the tag on.
const NEXT: usize = 1;
const PREVIOUS: usize = 2;

/// The bin that a free chunk of `words` stands in: `words` is at least the bin's least size.
pub(super) fn bin_of(words: usize) -> usize {
    let log = words.ilog2() as usize;
    log * STEPS + ((words * STEPS) >> log) - STEPS
}

/// The least size of a bin that is at least `words`. Chunks are taken in these sizes, so that one that is freed is
/// found again for the next thing of its size; it wastes 1.5 % on average.
pub(super) fn whole_bin(words: usize) -> usize {
    let step = (1_usize << words.ilog2()) / STEPS;
    words.next_multiple_of(step.max(2))
}

/// The greatest of those sizes that is no more than `words`.
pub(super) fn least_of_bin(words: usize) -> usize {
    let step = (1_usize << words.ilog2()) / STEPS;
    words - words % step.max(2)
}

/// The block and the word that a link leads to.
fn led_to(ground: Ground<'_>, link: u64) -> (Block<'_>, usize) {
    let place = Loc::from_bits(link - 1);
    (ground.blocks.block(place.number()).expect("a block of this heap"), place.word())
}

/// Free chunks by size.
pub(super) struct Bins {
    /// A link to each bin's first chunk.
    first: [u64; BINS],
    /// A bit for each bin that has one.
    filled: [u64; BINS.div_ceil(64)],
    /// Words of all chunks that are here.
    words: u64,
}

impl Bins {
    pub fn new() -> Self {
        Self { first: [NOWHERE; BINS], filled: [0; BINS.div_ceil(64)], words: 0 }
    }

    /// Words of all chunks that are here.
    pub fn words(&self) -> u64 {
        self.words
    }

    /// The first chunk of the first bin whose chunks all have at least `search` words, which is a bin's least size.
    pub fn first_fit(&self, search: usize) -> Option<Loc> {
        self.first_of(self.first_filled(bin_of(search))?)
    }

    /// The first chunk of a bin: what came last.
    pub fn first_of(&self, bin: usize) -> Option<Loc> {
        self.first[bin].checked_sub(1).map(Loc::from_bits)
    }

    /// The chunks of a bin and of all behind it, with their lengths.
    pub fn from<'a>(&'a self, ground: Ground<'a>, bin: usize) -> impl Iterator<Item = (Loc, usize)> + 'a {
        let next_bin = move |bin: &usize| self.first_filled(*bin + 1);
        std::iter::successors(self.first_filled(bin), next_bin).flat_map(move |bin| self.chunks_of(ground, bin))
    }

    /// All chunks with their lengths, those of the longest sizes first.
    pub fn longest<'a>(&'a self, ground: Ground<'a>) -> impl Iterator<Item = (Loc, usize)> + 'a {
        let filled = |bin: &usize| self.filled[bin / 64] >> (bin % 64) & 1 == 1;
        (0..BINS).rev().filter(filled).flat_map(move |bin| self.chunks_of(ground, bin))
    }

    fn chunks_of<'a>(&self, ground: Ground<'a>, bin: usize) -> impl Iterator<Item = (Loc, usize)> + use<'a> {
        let place = |link: u64| link.checked_sub(1).map(Loc::from_bits);
        let next = move |at: &Loc| {
            let (block, word) = led_to(ground, at.bits() + 1);
            place(block.word(word + NEXT).load(Relaxed))
        };
        let with_length = move |at: Loc| {
            let (block, word) = led_to(ground, at.bits() + 1);
            (at, (block.word(word).load(Relaxed) & LENGTH) as usize)
        };
        std::iter::successors(place(self.first[bin]), next).map(with_length)
    }

    fn first_filled(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.filled.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.filled.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// Puts a chunk of `length` words into its bin. Constant time.
    pub fn insert(&mut self, ground: Ground<'_>, block: Block<'_>, at: Loc, length: usize) {
        let bin = bin_of(length);
        let first = self.first[bin];
        block.word(at.word() + NEXT).store(first, Relaxed);
        block.word(at.word() + PREVIOUS).store(NOWHERE, Relaxed);
        let link = at.bits() + 1;
        if first != NOWHERE {
            let (other, word) = led_to(ground, first);
            other.word(word + PREVIOUS).store(link, Relaxed);
        }
        self.first[bin] = link;
        self.filled[bin / 64] |= 1 << (bin % 64);
        self.words += length as u64;
    }

    /// Takes a chunk of `length` words out of its bin. Constant time.
    pub fn remove(&mut self, ground: Ground<'_>, at: Loc, length: usize) {
        let block = ground.blocks.block(at.number()).expect("a block of this heap");
        let next = block.word(at.word() + NEXT).load(Relaxed);
        let previous = block.word(at.word() + PREVIOUS).load(Relaxed);
        let bin = bin_of(length);
        if next != NOWHERE {
            let (other, word) = led_to(ground, next);
            other.word(word + PREVIOUS).store(previous, Relaxed);
        }
        if previous == NOWHERE {
            self.first[bin] = next;
            if next == NOWHERE {
                self.filled[bin / 64] &= !(1 << (bin % 64));
            }
        } else {
            let (other, word) = led_to(ground, previous);
            other.word(word + NEXT).store(next, Relaxed);
        }
        self.words -= length as u64;
    }

    /// Whether a chunk of `length` words stands in its bin, as far as it and its neighbours there say.
    pub fn has(&self, ground: Ground<'_>, at: Loc, length: usize) -> bool {
        let own = at.bits() + 1;
        let word = |link: u64, index: usize| {
            let place = Loc::from_bits(link.checked_sub(1)?);
            Some(ground.blocks.block(place.number())?.word(place.word() + index).load(Relaxed))
        };
        let (Some(next), Some(previous)) = (word(own, NEXT), word(own, PREVIOUS)) else { return false };
        let leads_here = if previous == NOWHERE { Some(self.first[bin_of(length)]) } else { word(previous, NEXT) };
        leads_here == Some(own) && (next == NOWHERE || word(next, PREVIOUS) == Some(own))
    }

    /// Checks the equations, and that `chunks` chunks of `words` words are here.
    pub fn validate(&self, ground: Ground<'_>, chunks: usize, words: u64) -> Result<(), Invalid> {
        ensure(words == self.words, || format!("{words} free words, {} counted", self.words))?;
        let mut binned = 0;
        for (bin, &first) in self.first.iter().enumerate() {
            let marked = self.filled[bin / 64] >> (bin % 64) & 1 == 1;
            ensure(marked == (first != NOWHERE), || format!("bin {bin}: its mark is wrong"))?;
            let (mut next, mut before) = (first, NOWHERE);
            while next != NOWHERE {
                binned += 1;
                ensure(binned <= chunks, || "the bins hold more chunks than there are".to_owned())?;
                let (block, word) = led_to(ground, next);
                let tag = block.word(word).load(Relaxed);
                let own = tag & USED == 0 && bin_of((tag & LENGTH) as usize) == bin;
                ensure(own, || format!("bin {bin}: wrong chunk"))?;
                ensure(block.word(word + PREVIOUS).load(Relaxed) == before, || format!("bin {bin}: broken list"))?;
                before = next;
                next = block.word(word + NEXT).load(Relaxed);
            }
        }
        ensure(binned == chunks, || format!("{binned} chunks in bins, {chunks} free"))
    }
}
