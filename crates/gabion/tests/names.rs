//! What the public calls give and take can be named.

use gabion::{Affinity, Cursor, Invalid, MOST_AFFINITIES, Pile, Slots};

fn validated(slots: &Slots) -> Result<(), Invalid> {
    slots.validate()
}

#[test]
fn results_have_names() {
    assert!(validated(Slots::global()).is_ok());
    assert!(usize::from(Affinity::PHYSICS.index()) < MOST_AFFINITIES);
    let pile = Pile::new().unwrap();
    let pointer = pile.put(b"bytes", 0).unwrap();
    let mut cursor = Cursor::default();
    assert_eq!(pile.next_pointer(&mut cursor), Some(pointer));
}
