//! What the public calls give and take can be named.

use gabion::{
    Affinity, Cursor, Invalid, MOST_AFFINITIES, Pile, PileError, Pointer, ReadBuf, Reading, RunIdentity, Slots,
    with_read_buf,
};

fn validated(slots: &Slots) -> Result<(), Invalid> {
    slots.validate()
}

fn found<'a>(pile: &'a Pile, pointer: Pointer, buf: &'a mut ReadBuf) -> Result<Reading<'a>, PileError> {
    pile.read_or_find(pointer, buf)
}

fn run_of(buf: &mut ReadBuf) -> Option<RunIdentity> {
    buf.let_go_of_run()
}

#[test]
fn results_have_names() {
    assert!(validated(Slots::global()).is_ok());
    assert!(usize::from(Affinity::PHYSICS.index()) < MOST_AFFINITIES);
    let pile = Pile::new().unwrap();
    let pointer = pile.put(b"bytes", 0).unwrap();
    let mut cursor = Cursor::default();
    assert_eq!(pile.next_pointer(&mut cursor), Some(pointer));
    let mut buf = ReadBuf::new();
    assert!(matches!(found(&pile, pointer, &mut buf), Ok(Reading::Whole(b"bytes"))));
    assert!(run_of(&mut buf).is_none());
    assert_eq!(with_read_buf(|buf| pile.read(pointer, buf).map(<[u8]>::len)), Ok(5));
}

#[test]
fn every_room_has_a_name() {
    let _: fn() -> Result<gabion::pile::Pile, gabion::blocks::BlockError> = Pile::new;
    let _: fn() -> &'static gabion::slots::Slots = Slots::global;
    const { assert!(gabion::pile::SLOT_PAYLOAD < gabion::pile::CHUNK_PAYLOAD) };
    let _ = gabion::cache::Reading::Whole(b"");
}
