//! Sizes: classes of pieces and classes of whole spans.

use crate::{BLOCK_BYTES, SYSTEM_PAGE};

const MIB: usize = 1 << 20;

/// Requests up to this many bytes are served by pieces of a block.
pub(crate) const LARGEST_PIECE: usize = HALF;

/// Classes of pieces: 64, 128, 192, 256, then four steps a doubling (320, 384, 448, 512, 640, …) up to 1 MiB, and a
/// third and a half of a block. All are multiples of 64 bytes. Up to 1 MiB a piece is at most a quarter larger than
/// what was asked for, beyond that less than half.
pub(crate) const PIECE_CLASSES: usize = STEPPED + 2;

/// Classes up to 1 MiB.
const STEPPED: usize = 52;

/// A third of a block, in whole pages of the system.
const THIRD: usize = BLOCK_BYTES / 3 / SYSTEM_PAGE * SYSTEM_PAGE;
const HALF: usize = BLOCK_BYTES / 2;

/// The smallest class of pieces that holds `bytes`, at most [`LARGEST_PIECE`].
#[inline]
pub(crate) fn piece_class(bytes: usize) -> usize {
    debug_assert!(bytes <= LARGEST_PIECE);
    if bytes <= 256 {
        return bytes.max(1).div_ceil(64) - 1;
    }
    if bytes > MIB {
        return STEPPED + usize::from(bytes > THIRD);
    }
    let last = bytes - 1;
    let top = last.ilog2() as usize;
    4 + (top - 8) * 4 + (last >> (top - 2) & 3)
}

/// Bytes in a piece of each class.
const PIECE_BYTES: [u32; PIECE_CLASSES] = {
    let mut table = [0; PIECE_CLASSES];
    let mut class = 0;
    while class < PIECE_CLASSES {
        table[class] = match class {
            0..4 => (class as u32 + 1) * 64,
            4..STEPPED => (5 + (class as u32 - 4) % 4) << ((class - 4) / 4 + 6),
            STEPPED => THIRD as u32,
            _ => HALF as u32,
        };
        class += 1;
    }
    table
};

/// Bytes in a piece of a class.
#[inline]
pub(crate) const fn piece_bytes(class: usize) -> usize {
    PIECE_BYTES[class] as usize
}

/// Pieces in a block that is cut for a class.
#[inline]
pub(crate) const fn pieces_in_block(class: usize) -> usize {
    BLOCK_BYTES / piece_bytes(class)
}

/// ⌈2³² / (bytes / 64)⌉ for each class: a division turned into a multiplication.
const RECIPROCALS: [u64; PIECE_CLASSES] = {
    let mut table = [0; PIECE_CLASSES];
    let mut class = 0;
    while class < PIECE_CLASSES {
        table[class] = (1_u64 << 32).div_ceil(piece_bytes(class) as u64 / 64);
        class += 1;
    }
    table
};

/// Which piece of a cut block the byte at `offset` belongs to.
#[inline]
pub(crate) fn piece_at(class: usize, offset: usize) -> usize {
    debug_assert!(offset < BLOCK_BYTES);
    // Exact: the dividend is below 2¹⁶ and the reciprocal is wrong by less than 1, so the product is by less than 2¹⁶,
    // while the next quotient is 2³² / 2¹⁵ away.
    ((offset as u64 / 64 * RECIPROCALS[class]) >> 32) as usize
}

/// Classes of whole spans: 1 MiB, then 32 steps a doubling up to 64 GiB. What is larger is not pooled.
pub(crate) const SPAN_CLASSES: usize = 1 + 16 * 32;

/// The class of blocks.
pub(crate) const BLOCK_CLASS: usize = 64;

const _: () = assert!(span_bytes(BLOCK_CLASS) == BLOCK_BYTES);

/// The smallest class of spans that holds `bytes`, or `None` when there is none.
#[inline]
pub(crate) fn span_class(bytes: usize) -> Option<usize> {
    if bytes <= 1 << 20 {
        return Some(0);
    }
    let last = bytes - 1;
    let top = last.ilog2() as usize;
    let class = 1 + (top - 20) * 32 + (last >> (top - 5) & 31);
    (class < SPAN_CLASSES).then_some(class)
}

/// Bytes in a span of a class.
#[inline]
pub(crate) const fn span_bytes(class: usize) -> usize {
    if class == 0 { 1 << 20 } else { (33 + (class - 1) % 32) << ((class - 1) / 32 + 15) }
}

/// What memory of its own for `bytes` bytes takes at least. Even no bytes have a page.
pub(crate) fn exact_bytes(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(SYSTEM_PAGE)
}

/// How far the starts of runs may lie apart: large arrays whose starts share one offset within 2 MiB disturb each
/// other in caches and memory banks.
const MOST_STAGGER: usize = 2 << 20;

/// How much of a run of `bytes` is kept for its staggered start: at most 1/32, so that with the class's rounding and
/// the next larger class no run wastes more than 1/8.
#[inline]
pub(crate) fn stagger_room(bytes: usize) -> usize {
    (bytes / 32).min(MOST_STAGGER) & !(SYSTEM_PAGE - 1)
}

/// Where a span's user begins, when `slack` bytes are not needed. Whole pages, so that pages stay whole; the multiplier
/// is odd, so that neighbours in turn lie far apart.
#[inline]
pub(crate) fn stagger(colour: u32, slack: usize) -> usize {
    let pages = slack.min(MOST_STAGGER) / SYSTEM_PAGE;
    (colour as usize * 37) % (pages + 1) * SYSTEM_PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        for bytes in 0..=LARGEST_PIECE {
            let class = piece_class(bytes);
            assert!(piece_bytes(class) >= bytes && (class == 0 || piece_bytes(class - 1) < bytes), "{bytes}");
        }
        assert_eq!(piece_class(LARGEST_PIECE), PIECE_CLASSES - 1);
        for class in 0..PIECE_CLASSES {
            assert_eq!(piece_bytes(class) % 64, 0);
            assert!(!(4..STEPPED).contains(&class) || piece_bytes(class) * 4 <= piece_bytes(class - 1) * 5);
        }
        assert_eq!([STEPPED - 1, STEPPED, STEPPED + 1].map(piece_bytes), [MIB, THIRD, HALF]);
        assert_eq!([STEPPED - 1, STEPPED, STEPPED + 1].map(pieces_in_block), [4, 3, 2]);
    }

    #[test]
    fn every_offset_finds_its_piece() {
        for class in 0..PIECE_CLASSES {
            let bytes = piece_bytes(class);
            for piece in 0..pieces_in_block(class) {
                assert_eq!(piece_at(class, piece * bytes), piece);
                assert_eq!(piece_at(class, piece * bytes + bytes - 1), piece);
            }
        }
    }

    #[test]
    fn spans_waste_little() {
        for class in 1..SPAN_CLASSES {
            let bytes = span_bytes(class);
            assert_eq!((span_class(bytes), span_class(bytes - 1)), (Some(class), Some(class)));
            assert_eq!(span_class(span_bytes(class - 1) + 1), Some(class));
            assert!(bytes - span_bytes(class - 1) <= bytes / 32);
        }
        assert_eq!(span_class(span_bytes(SPAN_CLASSES - 1) + 1), None);
        for bytes in (5 << 20..1 << 30).step_by(999_983) {
            let class = span_class(bytes + stagger_room(bytes)).unwrap();
            assert!(span_bytes(class + 1) - bytes <= bytes / 8, "{bytes}");
        }
    }

    #[test]
    fn starts_are_staggered_within_the_slack() {
        let slack = stagger_room(256 << 20);
        assert_eq!(slack, MOST_STAGGER);
        let mut starts: Vec<usize> = (0..64).map(|colour| stagger(colour, slack)).collect();
        assert!(starts.iter().all(|start| start % SYSTEM_PAGE == 0 && *start <= slack));
        starts.sort_unstable();
        starts.dedup();
        assert_eq!(starts.len(), 64);
        assert_eq!(stagger(7, 100), 0);
    }
}
