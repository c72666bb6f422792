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

#[test]
fn a_path_may_come_as_text() {
    let path = format!("{}/gabion-{}-text.pile", std::env::temp_dir().display(), std::process::id());
    let pile = Pile::new().unwrap();
    let pointer = pile.put(b"stone", 0).unwrap();
    pile.save(path.as_str()).unwrap();
    pile.begin_save(&path, None).unwrap().finish(b"").unwrap();
    assert_eq!(Pile::check(path.clone()).unwrap().objects, 1);
    assert!(Pile::open(&*path, &gabion::OpenOptions::default()).unwrap().contains(pointer));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn iteration_ends_and_goes_on_from_clones() {
    let pile = Pile::new().unwrap();
    let put: std::collections::HashSet<_> = (0..100_u32).map(|n| pile.put(&n.to_le_bytes(), 0).unwrap()).collect();
    assert!((&pile).into_iter().all(|pointer| put.contains(&pointer)));
    let mut cursor = Cursor::default();
    for _ in 0..40 {
        assert!(pile.next_pointer(&mut cursor).is_some());
    }
    let mut again = cursor.clone();
    for _ in 40..100 {
        let next = pile.next_pointer(&mut cursor);
        assert!(next.is_some() && next == pile.next_pointer(&mut again));
    }
    let mut pointers = pile.pointers();
    assert_eq!(pointers.by_ref().count(), 100);
    // It is fused.
    assert!((0..3).all(|_| pointers.next().is_none()));
}
