//! A pile where malloc has nothing left: what it needs for its own lists is refused, and the process goes on.

use std::sync::Arc;

use gabion_blocks::file::FileError;
use gabion_blocks::os::Scarce;
use gabion_pile::{OpenOptions, Pile, PileError, PileOptions, Pointer, ReadBuf, Reading};

#[global_allocator]
static SCARCE: Scarce = Scarce;

/// A pile. What the pool makes once for the process, and once for each thread, is there then: the pool does not do
/// without.
fn pile() -> Pile {
    let first = Pile::new().unwrap();
    for length in [100, 5000, 2 << 20] {
        first.put(&vec![1; length]).unwrap();
    }
    first.clear();
    Pile::with_options(PileOptions { shards: Some(1), ..PileOptions::default() }).unwrap()
}

/// Puts until that is refused, which is soon, and looks at all that was put.
fn fill(pile: &Pile, payload: &[u8]) -> usize {
    let mut pointers: Vec<Pointer> = Vec::with_capacity(200_000);
    pile.put(payload).unwrap();
    let refused = Scarce::without_memory(|| {
        loop {
            match pile.put(payload) {
                Ok(pointer) if pointers.len() < pointers.capacity() => pointers.push(pointer),
                other => return other,
            }
        }
    });
    assert!(matches!(refused, Err(PileError::Memory { .. })), "{refused:?} after {}", pointers.len());
    pile.validate().unwrap();
    let mut buf = ReadBuf::new();
    assert!(pointers.iter().all(|&pointer| pile.read(pointer, &mut buf).unwrap() == payload));
    pile.put(payload).unwrap();
    pointers.len()
}

#[test]
fn a_pile_whose_lists_cannot_grow_refuses() {
    for length in [1000, 5000] {
        let (pile, payload) = (pile(), vec![7; length]);
        assert!((0..3).all(|_| fill(&pile, &payload) > 0));
    }
}

#[test]
fn compact_gives_back_what_is_empty_without_memory() {
    let (pile, small, large) = (pile(), [1; 40], [2; 900]);
    let pointers: Vec<_> = (0..20_000).map(|_| pile.put(&small).unwrap()).collect();
    for &pointer in &pointers[..100] {
        pile.replace(pointer, &large).unwrap();
        pile.replace(pointer, &[3; 60]).unwrap();
    }
    for &pointer in &pointers[100..] {
        pile.remove(pointer).unwrap();
    }
    let before = pile.stats().reserved_bytes;
    Scarce::without_memory(|| pile.compact());
    assert!(pile.stats().reserved_bytes < before);
    pile.validate().unwrap();
    let mut buf = ReadBuf::new();
    assert!(pointers[..100].iter().all(|&pointer| pile.read(pointer, &mut buf).unwrap() == [3; 60]));
}

#[test]
fn a_read_without_memory_is_refused_and_the_next_one_works() {
    let pile = pile();
    for length in [1, 1000, 5000, 100_000, 1 << 20] {
        let payload = vec![7; length];
        let (pointer, mut buf) = (pile.put(&payload).unwrap(), ReadBuf::new());
        let refused = |error: PileError| match error {
            PileError::Memory { payload, .. } => assert_eq!(payload, length as u64),
            other => panic!("{other}"),
        };
        Scarce::without_memory(|| {
            refused(pile.read(pointer, &mut buf).unwrap_err());
            assert!(buf.refusal().is_some() && buf.payload().is_empty() && buf.copied(0).is_empty());
            refused(pile.pop(pointer, &mut buf).unwrap_err());
            assert!(pile.read_or_find(pointer, &mut buf).is_err());
            assert!(pile.begins_with(pointer, &payload).unwrap() && !pile.begins_with(pointer, b"8").unwrap());
        });
        assert_eq!(pile.read(pointer, &mut buf).unwrap(), payload);
        assert!(buf.refusal().is_none());
        // It has the memory now.
        assert_eq!(Scarce::without_memory(|| pile.pop(pointer, &mut buf).map(<[u8]>::len)).unwrap(), length);
    }
    pile.validate().unwrap();
}

#[test]
fn a_long_payload_has_its_beginning_read_and_is_appended_where_there_is_memory() {
    let (pile, mut buf) = (pile(), ReadBuf::new());
    let pointer = pile.put(&vec![7; 100_000]).unwrap();
    let Reading::Long(long) = pile.read_or_find(pointer, &mut buf).unwrap() else { panic!("it is long") };
    let mut copied = Vec::new();
    assert!(!Scarce::without_memory(|| long.append(0, 100_000, &mut copied)) && copied.is_empty());
    assert!(long.append(0, 100_000, &mut copied) && copied == vec![7; 100_000]);
}

#[test]
fn pointers_are_listed_without_memory() {
    let pile = pile();
    let mut put: Vec<_> = (0..70_000).map(|n| pile.put(&vec![1; n % 1000]).unwrap()).collect();
    put.extend((0..5000).map(|_| pile.put(b"").unwrap()));
    let mut found = Vec::with_capacity(put.len());
    Scarce::without_memory(|| found.extend(pile.pointers()));
    put.sort_unstable_by_key(|pointer| pointer.to_bits());
    found.sort_unstable_by_key(|pointer| pointer.to_bits());
    assert_eq!(found, put);
}

#[test]
fn views_are_refused_where_they_cannot_be_noted_and_a_pile_is_cleared_beside_them() {
    let pile = Arc::new(pile());
    let lengths = (0..5000).map(|n| [40, 5000][n % 2]).chain([2 << 20; 3]);
    let pointers: Vec<_> = lengths.map(|length| pile.put(&vec![7; length]).unwrap()).collect();
    let mut views = Vec::with_capacity(pointers.len());
    let refused = Scarce::without_memory(|| {
        pointers.iter().find_map(|&pointer| match pile.view(pointer) {
            Ok(view) => {
                views.push(view);
                None
            }
            Err(error) => Some(error),
        })
    });
    assert!(matches!(refused, Some(PileError::Memory { payload: 40, .. })), "{refused:?}");
    pile.validate().unwrap();
    views.push(pile.view(pointers[1]).unwrap());
    Scarce::without_memory(|| pile.clear());
    pile.validate().unwrap();
    assert_eq!((pile.len(), &views[0][..]), (0, &[7; 5000][..]));
}

#[test]
fn what_lists_runs_cannot_grow_and_the_run_is_given_back() {
    let (pile, payload) = (pile(), vec![7; (1 << 20) + 1]);
    let mut pointers = Vec::with_capacity(200);
    // What slots and runs themselves need is there, or little.
    let first = pile.put(&payload).unwrap();
    pile.remove(first).unwrap();
    let refused = Scarce::with_less_than(400, || {
        loop {
            match pile.put(&payload) {
                Ok(pointer) if pointers.len() < pointers.capacity() => pointers.push(pointer),
                other => return other,
            }
        }
    });
    assert!(matches!(refused, Err(PileError::Memory { .. })) && pointers.len() > 9, "{refused:?}, {pointers:?}");
    pile.validate().unwrap();
    assert_eq!(pile.stats().large_objects, pointers.len() as u64);
    Scarce::without_memory(|| {
        for &pointer in &pointers {
            pile.remove(pointer).unwrap();
        }
    });
    assert_eq!((pile.len(), pile.stats().used_bytes), (0, 0));
    pile.put(&payload).unwrap();
}

#[test]
fn a_pile_that_there_is_no_memory_for_is_not_made() {
    let options = PileOptions { shards: Some(16), ..PileOptions::default() };
    drop(pile());
    assert!(Scarce::with_less_than(1000, || Pile::with_options(options)).is_err());
}

/// It ended the process.
#[test]
fn a_file_is_let_go_later_where_there_is_no_memory_for_that() {
    let path = std::env::temp_dir().join(format!("gabion-{}-no-memory.pile", std::process::id()));
    let pile = Pile::open(&path, &OpenOptions::default()).unwrap();
    let pointer = pile.put(b"stone").unwrap();
    assert!(matches!(Scarce::without_memory(|| pile.let_go()), Err(FileError::Blocks(_))));
    assert_eq!(pile.read(pointer, &mut ReadBuf::new()).unwrap(), b"stone");
    assert!(pile.let_go().unwrap() && pile.read(pointer, &mut ReadBuf::new()).is_err());
    std::fs::remove_file(&path).unwrap();
}
