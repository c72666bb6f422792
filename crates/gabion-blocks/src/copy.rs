//! Copies between plain bytes and words that other threads read or write at the same time.
//!
//! What a copy brings out beside a writer may be a mixture, of bytes even: the caller's acquire fence and second look
//! at the commit word decide what it is worth. What a copy brings in is published by a later release store of that
//! word.
//!
//! No compiler joins atomic accesses, so 64 bytes would be eight loads and eight stores that all wait for one line of
//! memory, and so many waiting instructions keep the processor from reaching the next object meanwhile. On x86-64 these
//! move 16 bytes each, and 32 of what is long. Tools that watch each access of memory do not see these: Miri gets the
//! loops that other processors have, and so does who builds with `--cfg portable` (see `make sanitize`).
//!
//! Code that knows early what it will read or write asks for it by [`prefetch`].

use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU64;

use crate::piece::Piece;

/// Asks for the cache line at an address ahead of its use. A hint; any address may be given. Does nothing but on
/// x86-64.
#[inline(always)]
pub fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect but on caches, and none at all where nothing is mapped.
        unsafe { _mm_prefetch(at.cast(), _MM_HINT_T0) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Copies words out.
///
/// # Panics
/// When `into` is not as long as `words`.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable))))]
#[inline(always)]
pub fn copy_out(words: &[AtomicU64], into: &mut [[u8; 8]]) {
    assert_eq!(words.len(), into.len(), "one word for each eight bytes");
    // SAFETY: both slices have that many words, and do not overlap, since one is exclusive.
    unsafe { copy_words(words.as_ptr().cast(), into.as_mut_ptr().cast(), words.len()) };
}

/// As [`copy_out`], to where nothing was yet.
///
/// # Panics
/// When `into` is not as long as `words`.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable))))]
pub(crate) fn copy_out_anew(words: &[AtomicU64], into: &mut [[MaybeUninit<u8>; 8]]) {
    assert_eq!(words.len(), into.len(), "one word for each eight bytes");
    // SAFETY: as in `copy_out`; what is only written need not be initialized.
    unsafe { copy_words(words.as_ptr().cast(), into.as_mut_ptr().cast(), words.len()) };
}

/// Copies words in.
///
/// # Panics
/// When `words` is not as long as `bytes`.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable))))]
#[inline]
pub(crate) fn copy_in(bytes: &[[u8; 8]], words: &[AtomicU64]) {
    assert_eq!(words.len(), bytes.len(), "one word for each eight bytes");
    // SAFETY: both slices have that many words. They do not overlap: plain bytes do not change while they are borrowed,
    // so they are not these words, which do. Atomics may be written through a shared reference.
    unsafe { copy_words(bytes.as_ptr().cast(), words.as_ptr().cast::<u8>().cast_mut(), words.len()) };
}

/// As [`copy_in`], of bytes that others may write to meanwhile.
///
/// # Panics
/// When `words` is not as long as `piece`.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable))))]
pub(crate) fn copy_piece_in(piece: Piece<'_>, words: &[AtomicU64]) {
    assert_eq!(8 * words.len(), piece.len(), "one word for each eight bytes");
    // SAFETY: as in `copy_in`: whoever passes the words has them to write to, and a piece is what somebody still has.
    unsafe { copy_words(piece.start(), words.as_ptr().cast::<u8>().cast_mut(), words.len()) };
}

/// Copies `count` words of 8 bytes.
///
/// # Safety
/// That many words can be read at `from` and written at `to`. Memory that others write to meanwhile is made of atomics,
/// or a piece's. The two do not overlap.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable))))]
#[inline(always)]
unsafe fn copy_words(from: *const u8, to: *mut u8, count: usize) {
    let bytes = 8 * count;
    // SAFETY: no piece begins before the first word or ends behind the last. Two pieces may have words in common, which
    // are copied twice: a reader finds any mixture either way.
    unsafe {
        match count {
            LONG.. if std::arch::is_x86_feature_detected!("avx") => copy_long(from, to, bytes),
            17.. => {
                let mut at = 0;
                while at + 64 < bytes {
                    copy_64(from.add(at), to.add(at));
                    at += 64;
                }
                copy_64(from.add(bytes - 64), to.add(bytes - 64));
            }
            9.. => {
                copy_64(from, to);
                copy_64(from.add(bytes - 64), to.add(bytes - 64));
            }
            8 => copy_64(from, to),
            5.. => {
                copy_16(from, to);
                copy_16(from.add(16), to.add(16));
                copy_16(from.add(bytes - 32), to.add(bytes - 32));
                copy_16(from.add(bytes - 16), to.add(bytes - 16));
            }
            3.. => {
                copy_16(from, to);
                copy_16(from.add(bytes - 16), to.add(bytes - 16));
            }
            2 => copy_16(from, to),
            1 => copy_8(from, to),
            0 => {}
        }
    }
}

/// Words from which on wider moves pay: for fewer, to call for them takes what they save.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable))))]
const LONG: usize = 512;

/// Copies `bytes` bytes, [`LONG`] words or more.
///
/// # Safety
/// As [`copy_words`]; and the processor has AVX.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable))))]
#[inline(never)]
#[target_feature(enable = "avx")]
unsafe fn copy_long(from: *const u8, to: *mut u8, bytes: usize) {
    let mut at = 0;
    // SAFETY: no piece begins before the first byte or ends behind the last (duty of the caller: there is one piece at
    // least).
    unsafe {
        while at + 128 < bytes {
            copy_128(from.add(at), to.add(at));
            at += 128;
        }
        copy_128(from.add(bytes - 128), to.add(bytes - 128));
    }
    // Code without AVX would be slow beside halves of registers that are in use.
    std::arch::x86_64::_mm256_zeroupper();
}

/// # Safety
/// As [`copy_words`], for sixteen words; and the processor has AVX.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable))))]
#[inline]
#[target_feature(enable = "avx")]
unsafe fn copy_128(from: *const u8, to: *mut u8) {
    // SAFETY: as in `copy_64`, for sixteen words.
    unsafe {
        std::arch::asm!(
            "vmovups {a}, [{from}]", "vmovups {b}, [{from} + 32]",
            "vmovups {c}, [{from} + 64]", "vmovups {d}, [{from} + 96]",
            "vmovups [{to}], {a}", "vmovups [{to} + 32], {b}",
            "vmovups [{to} + 64], {c}", "vmovups [{to} + 96], {d}",
            from = in(reg) from, to = in(reg) to,
            a = out(ymm_reg) _, b = out(ymm_reg) _, c = out(ymm_reg) _, d = out(ymm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// As [`copy_words`], for eight words.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable))))]
#[inline(always)]
unsafe fn copy_64(from: *const u8, to: *mut u8) {
    // SAFETY: eight words on both sides (duty of the caller). Assembly is outside of what the language says of races;
    // the processor moves what is there, and reorders neither loads with loads nor stores with stores.
    unsafe {
        std::arch::asm!(
            "movups {a}, [{from}]", "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]", "movups {d}, [{from} + 48]",
            "movups [{to}], {a}", "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}", "movups [{to} + 48], {d}",
            from = in(reg) from, to = in(reg) to,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// As [`copy_words`], for two words.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable))))]
#[inline(always)]
unsafe fn copy_16(from: *const u8, to: *mut u8) {
    // SAFETY: as in `copy_64`, for two words.
    unsafe {
        std::arch::asm!(
            "movups {a}, [{from}]", "movups [{to}], {a}",
            from = in(reg) from, to = in(reg) to, a = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// As [`copy_words`], for one word.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable))))]
#[inline(always)]
unsafe fn copy_8(from: *const u8, to: *mut u8) {
    // SAFETY: as in `copy_64`, for one word.
    unsafe {
        std::arch::asm!(
            "mov {a}, [{from}]", "mov [{to}], {a}",
            from = in(reg) from, to = in(reg) to, a = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies words out.
///
/// # Panics
/// When `into` is not as long as `words`.
#[cfg(not(all(target_arch = "x86_64", not(any(miri, portable)))))]
#[inline]
pub fn copy_out(words: &[AtomicU64], into: &mut [[u8; 8]]) {
    use std::sync::atomic::Ordering::Relaxed;
    assert_eq!(words.len(), into.len(), "one word for each eight bytes");
    for (word, bytes) in words.iter().zip(into) {
        // Relaxed: the caller's fence and second look decide what this is worth.
        *bytes = word.load(Relaxed).to_le_bytes();
    }
}

/// As [`copy_out`], to where nothing was yet.
///
/// # Panics
/// When `into` is not as long as `words`.
#[cfg(not(all(target_arch = "x86_64", not(any(miri, portable)))))]
pub(crate) fn copy_out_anew(words: &[AtomicU64], into: &mut [[MaybeUninit<u8>; 8]]) {
    use std::sync::atomic::Ordering::Relaxed;
    assert_eq!(words.len(), into.len(), "one word for each eight bytes");
    for (word, bytes) in words.iter().zip(into) {
        // Relaxed: as in `copy_out`.
        *bytes = word.load(Relaxed).to_le_bytes().map(MaybeUninit::new);
    }
}

/// Copies words in.
///
/// # Panics
/// When `words` is not as long as `bytes`.
#[cfg(not(all(target_arch = "x86_64", not(any(miri, portable)))))]
#[inline]
pub(crate) fn copy_in(bytes: &[[u8; 8]], words: &[AtomicU64]) {
    use std::sync::atomic::Ordering::Relaxed;
    assert_eq!(words.len(), bytes.len(), "one word for each eight bytes");
    for (word, bytes) in words.iter().zip(bytes) {
        // Relaxed: a later release store of the commit word publishes it.
        word.store(u64::from_le_bytes(*bytes), Relaxed);
    }
}

/// As [`copy_in`], of bytes that others may write to meanwhile.
///
/// # Panics
/// When `words` is not as long as `piece`.
#[cfg(not(all(target_arch = "x86_64", not(any(miri, portable)))))]
pub(crate) fn copy_piece_in(piece: Piece<'_>, words: &[AtomicU64]) {
    use std::sync::atomic::Ordering::Relaxed;
    assert_eq!(8 * words.len(), piece.len(), "one word for each eight bytes");
    let mut rest = piece;
    for word in words {
        let (first, behind) = rest.split_at(8);
        let mut bytes = [0; 8];
        first.copy_to(&mut bytes);
        // Relaxed: as in `copy_in`.
        word.store(u64::from_le_bytes(bytes), Relaxed);
        rest = behind;
    }
}

/// The bytes of `tail`, one to seven at the end of `bytes`, in a word that is zero above them.
#[inline]
pub(crate) fn low_bytes(bytes: &[u8], tail: &[u8]) -> u64 {
    match bytes.last_chunk::<8>() {
        // The last eight bytes at once, and the ones before the tail shifted out.
        Some(last) => u64::from_le_bytes(*last) >> (8 * (8 - tail.len())),
        None => tail.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn every_length_comes_back() {
        // Miri has one way for all lengths, and little time.
        let longest = if cfg!(miri) { 20 } else { 530_u64 };
        let plain: Vec<[u8; 8]> =
            (0..longest).map(|word| word.wrapping_mul(0x0102_0408_1020_4081).to_le_bytes()).collect();
        for length in 0..=plain.len() {
            let words: Vec<_> = (0..=length).map(|_| AtomicU64::new(7)).collect();
            copy_in(&plain[..length], &words[..length]);
            assert_eq!(words[length].load(Relaxed), 7);
            let mut out = vec![[9; 8]; length + 1];
            copy_out(&words[..length], &mut out[..length]);
            assert_eq!((&out[..length], out[length]), (&plain[..length], [9; 8]));
            let again: Vec<_> = (0..=length).map(|_| AtomicU64::new(7)).collect();
            copy_piece_in(plain[..length].as_flattened().into(), &again[..length]);
            assert!(again.iter().map(|word| word.load(Relaxed)).eq(words.iter().map(|word| word.load(Relaxed))));
            let mut anew = vec![[MaybeUninit::new(9_u8); 8]; length];
            copy_out_anew(&words[..length], &mut anew);
            // SAFETY: every byte was set, before and now.
            let anew = anew.iter().map(|bytes| bytes.map(|byte| unsafe { byte.assume_init() }));
            assert!(anew.eq(plain[..length].iter().copied()));
        }
    }

    #[test]
    fn a_tail_is_the_low_bytes_of_its_word() {
        for length in (1..24).filter(|length| length % 8 != 0) {
            let bytes: Vec<u8> = (1..=length).collect();
            let tail = &bytes[bytes.len() / 8 * 8..];
            let mut word = [0; 8];
            word[..tail.len()].copy_from_slice(tail);
            assert_eq!(low_bytes(&bytes, tail), u64::from_le_bytes(word));
        }
    }
}
