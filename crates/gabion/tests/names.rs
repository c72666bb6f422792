//! What the public calls give and take can be named.

use gabion::{
    AffinitySettings, Cursor, Invalid, MOST_AFFINITIES, Pile, PileError, Pointer, ReadBuf, Reading, RunIdentity, Slots,
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
    let slots = Slots::new(gabion::Pool::global()).unwrap();
    let make = |n| slots.affinity(&format!("kind {n}"), AffinitySettings::default());
    // Those that are always there count, too.
    let (first, made) = (slots.affinity_count(), (0..1000).map(make).take_while(Result::is_ok).count());
    assert_eq!(first + made, MOST_AFFINITIES);
    let pile = Pile::new().unwrap();
    let pointer = pile.put(b"bytes").unwrap();
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
    let pile = Pile::new().unwrap();
    let full = |payload: usize| {
        let pointer = pile.put(&vec![7; payload]).unwrap();
        (pile.stats().large_objects, pile.remove(pointer).is_ok())
    };
    assert_eq!([gabion::pile::CHUNK_PAYLOAD, gabion::pile::CHUNK_PAYLOAD + 1].map(full), [(0, true), (1, true)]);
    let cache = gabion::Cache::new(64 << 20).unwrap();
    assert!(cache.put(b"key", b"value", &gabion::PutOptions::default()).is_stored());
    let mut buf = ReadBuf::new();
    assert!(matches!(cache.get_or_find(b"key", &mut buf), Some(gabion::cache::Reading::Whole(b"value"))));
}

#[test]
fn a_path_may_come_as_text() {
    let path = format!("{}/gabion-{}-text.pile", std::env::temp_dir().display(), std::process::id());
    let pile = Pile::new().unwrap();
    let pointer = pile.put(b"stone").unwrap();
    pile.save(path.as_str()).unwrap();
    pile.begin_save(&path, None).unwrap().finish(b"").unwrap();
    assert_eq!(Pile::check(path.clone()).unwrap().objects, 1);
    assert!(Pile::open(&*path, &gabion::OpenOptions::default()).unwrap().contains(pointer));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn iteration_ends_and_goes_on_from_clones() {
    let pile = Pile::new().unwrap();
    let put: std::collections::HashSet<_> = (0..100_u32).map(|n| pile.put(&n.to_le_bytes()).unwrap()).collect();
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
