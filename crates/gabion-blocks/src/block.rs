//! A view of one block as 8-byte atomic words.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::copy::{copy_in, copy_out, copy_out_anew, copy_piece_in, low_bytes, prefetch};
use crate::piece::Piece;
use crate::{BLOCK_BYTES, PAGE_BYTES};

/// 8-byte words in a block.
pub const WORDS_PER_BLOCK: usize = BLOCK_BYTES / 8;

/// 8-byte words in a page.
pub const WORDS_PER_PAGE: usize = PAGE_BYTES / 8;

/// A block, borrowed from the [`BlockSet`](crate::BlockSet) that owns it.
///
/// All access is by atomic words, so that readers may run beside a writer: they can read a mixture, never undefined
/// behaviour. Whether a mixture was read is for the caller to find out.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    base: NonNull<AtomicU64>,
    number: u32,
    owner: PhantomData<&'a AtomicU64>,
}

// SAFETY: a block is a `&'a [AtomicU64]` of fixed length in a thin form; such references are Send and Sync.
unsafe impl Send for Block<'_> {}
// SAFETY: as above.
unsafe impl Sync for Block<'_> {}

impl<'a> Block<'a> {
    /// # Safety
    /// `base` is the start of a block that stays mapped, readable and writable for `'a`, and is accessed by atomic
    /// operations only.
    pub(crate) unsafe fn new(base: NonNull<u8>, number: u32) -> Self {
        Self { base: base.cast(), number, owner: PhantomData }
    }

    /// The block's number in the directory.
    #[inline]
    pub fn number(self) -> u32 {
        self.number
    }

    /// One word. `index` is taken modulo the block's length, so that no index is out of bounds.
    #[inline]
    pub fn word(self, index: usize) -> &'a AtomicU64 {
        // SAFETY: the masked index lies inside the block, which is mapped for 'a (duty of `new`), aligned to 4 MiB,
        // and only accessed atomically.
        unsafe { self.base.add(index & (WORDS_PER_BLOCK - 1)).as_ref() }
    }

    /// `count` words from word `at` on.
    ///
    /// # Panics
    /// When the range is not inside the block.
    #[inline]
    pub fn words(self, at: usize, count: usize) -> &'a [AtomicU64] {
        assert!(at <= WORDS_PER_BLOCK && count <= WORDS_PER_BLOCK - at, "words beyond the block");
        // SAFETY: the range was just checked to lie inside the block, for which `word` gives the reasons.
        unsafe { std::slice::from_raw_parts(self.base.add(at).as_ptr(), count) }
    }

    /// Copies `bytes` into the block from word `at` on; the last word is filled with zeros.
    ///
    /// # Panics
    /// When the bytes would not fit between `at` and the end of the block.
    #[inline]
    pub fn write(self, at: usize, bytes: &[u8]) {
        let (whole, tail) = bytes.as_chunks::<8>();
        let (words, last) = self.words(at, bytes.len().div_ceil(8)).split_at(whole.len());
        copy_in(whole, words);
        if let Some(word) = last.first() {
            // Relaxed: as in `copy_in`.
            word.store(low_bytes(bytes, tail), Ordering::Relaxed);
        }
    }

    /// As [`Block::write`], of bytes that others may write to meanwhile.
    ///
    /// # Panics
    /// When they are no whole words, or would not fit between `at` and the end of the block.
    pub fn write_piece(self, at: usize, piece: Piece<'_>) {
        copy_piece_in(piece, self.words(at, piece.len().div_ceil(8)));
    }

    /// Copies `into.len()` bytes out of the block from word `at` on. Beside a writer the result may be a mixture.
    ///
    /// # Panics
    /// When the range is not inside the block.
    #[inline]
    pub fn read(self, at: usize, into: &mut [u8]) {
        let words = self.words(at, into.len().div_ceil(8));
        let (whole, tail) = into.as_chunks_mut::<8>();
        let (whole_words, last) = words.split_at(whole.len());
        copy_out(whole_words, whole);
        if let Some(word) = last.first() {
            // Relaxed: as in `copy_out`.
            let last = word.load(Ordering::Relaxed).to_le_bytes();
            tail.copy_from_slice(&last[..tail.len()]);
        }
    }

    /// As [`Block::read`], from any byte of the block on, which need not be a word's first, to where nothing was yet.
    ///
    /// # Panics
    /// When the range is not inside the block.
    pub fn read_anew(self, at: usize, into: &mut [MaybeUninit<u8>]) {
        let (first, skipped) = (at / 8, at % 8);
        let words = self.words(first, (skipped + into.len()).div_ceil(8));
        // Relaxed, here and below: as in `copy_out`.
        let bytes_of = |word: &AtomicU64| word.load(Ordering::Relaxed).to_le_bytes().map(MaybeUninit::new);
        let (head, into) = into.split_at_mut(into.len().min((8 - skipped) % 8));
        let words = match words.split_first() {
            Some((word, words)) if skipped > 0 => {
                head.copy_from_slice(&bytes_of(word)[skipped..skipped + head.len()]);
                words
            }
            _ => words,
        };
        let (whole, tail) = into.as_chunks_mut::<8>();
        let (whole_words, last) = words.split_at(whole.len());
        copy_out_anew(whole_words, whole);
        if let Some(word) = last.first() {
            tail.copy_from_slice(&bytes_of(word)[..tail.len()]);
        }
    }

    /// The `N` words from word `at` on, or `None` when they do not all lie in the block.
    #[inline(always)]
    pub fn stretch<const N: usize>(self, at: usize) -> Option<&'a [AtomicU64; N]> {
        const { assert!(N <= WORDS_PER_BLOCK, "no block has that many words") };
        // SAFETY: the range was just checked to lie inside the block, for which `word` gives the reasons.
        (at <= WORDS_PER_BLOCK - N).then(|| unsafe { self.base.add(at).cast().as_ref() })
    }

    /// Asks for the cache line of a word ahead of its use. A hint; any index may be given.
    #[inline]
    pub fn prefetch(self, index: usize) {
        prefetch(self.word(index));
    }

    /// The bytes from word `at` on as a plain slice.
    ///
    /// # Safety
    /// Nobody writes to the range while the slice lives, and `len` bytes from `at` lie inside the block.
    pub unsafe fn bytes(self, at: usize, len: usize) -> &'a [u8] {
        debug_assert!(at * 8 + len <= BLOCK_BYTES);
        // SAFETY: inside the block, mapped for 'a, and not written meanwhile (caller's duty).
        unsafe { std::slice::from_raw_parts(self.base.add(at).as_ptr().cast(), len) }
    }
}
