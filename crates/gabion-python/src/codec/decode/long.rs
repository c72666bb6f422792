//! Long payloads, built from where they lie: the first long value in each is copied once, to where it stays.

use std::mem::MaybeUninit;

use gabion_pile::Long;

use super::array::Head;
use super::decoder::decode_part;
use super::leaf::{Maker, Ready, ascii_of, bytes_of};
use super::walk::{Step, step};
use crate::codec::format::reader::Reader;
use crate::codec::format::tags;
use crate::codec::object::{Own, Raise, Raised};
use crate::ffi;

/// Values from that many bytes on are made beforehand.
const LEAST: usize = 4 << 10;

/// How many values are looked at for a long one.
const MOST_STEPS: usize = 64;

/// More bytes than the head of a value has.
const MOST_HEAD: usize = 32;

/// A long value without others in it.
struct Leaf {
    tag: u8,
    /// Position of its tag.
    at: usize,
    /// Position of what it consists of.
    content: usize,
    /// Bytes of that.
    len: usize,
}

/// The object that a payload encodes, if it is a `bytes`, text of ASCII characters or array, or one is among its first
/// values; `None` otherwise, and when the payload changed meanwhile.
pub fn decode_long(maker: Maker<'_, '_>, long: &Long<'_>) -> Raise<Option<Own>> {
    let found = find(&maker, long.beginning()).unwrap_or_else(|Raised| {
        // Whoever reads all of it tells what is wrong.
        // SAFETY: attached, as whoever has a maker is.
        unsafe { ffi::PyErr_Clear() };
        None
    });
    let Some(leaf) = found else { return Ok(None) };
    let Some(end) = leaf.content.checked_add(leaf.len).filter(|end| *end <= long.len()) else { return Ok(None) };
    let fill = |into: &mut [MaybeUninit<u8>]| long.copy(leaf.content, into);
    let value = match leaf.tag {
        tags::BYTES => bytes_of(leaf.len, fill),
        tags::STR_ASCII => ascii_of(leaf.len, fill),
        _ => maker.nd_array_of(&Head::read(&mut Reader::new(long.beginning(), leaf.at + 1))?, fill),
    };
    let Some(value) = value? else { return Ok(None) };
    if leaf.at == 1 && end == long.len() {
        return Ok(Some(value));
    }
    // All but what the leaf consists of. What follows stays where arrays want it: at its place among eight.
    let next = leaf.content + leaf.len % 8;
    let Some(rest) = without(long, leaf.content, next, end) else { return Ok(None) };
    let ready = Ready { at: leaf.at, next, value };
    decode_part(Maker { ready: Some(&ready), ..maker }, &rest, 1).map(Some)
}

/// The first long leaf among the first values. `None` when there is none, or they cannot be told without building them.
fn find(maker: &Maker<'_, '_>, beginning: &[u8]) -> Raise<Option<Leaf>> {
    let mut reader = Reader::new(beginning, 1);
    if beginning.first() != Some(&tags::FORMAT) {
        return Ok(None);
    }
    for _ in 0..MOST_STEPS {
        if reader.left() < MOST_HEAD {
            break;
        }
        let (at, tag) = (reader.at, reader.peek()?);
        let Some(Step { bytes, .. }) = step(maker.registry, &mut reader)? else { break };
        if bytes >= LEAST && matches!(tag, tags::BYTES | tags::STR_ASCII | tags::ND_ARRAY) {
            return Ok(Some(Leaf { tag, at, content: reader.at, len: bytes }));
        }
        if bytes > reader.left() {
            break;
        }
        reader.at += bytes;
    }
    Ok(None)
}

/// The payload without its bytes from `from` to `end`, but with its end at `next`; `None` when it changed meanwhile, or
/// there is no memory for it.
fn without(long: &Long<'_>, from: usize, next: usize, end: usize) -> Option<Vec<u8>> {
    let behind = long.len() - end;
    let mut rest = Vec::new();
    rest.try_reserve_exact(next + behind).ok()?;
    rest.extend_from_slice(&long.beginning()[..from]);
    rest.resize(next, 0);
    long.append(end, behind, &mut rest).then_some(rest)
}
