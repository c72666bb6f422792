//! One error for all calls of a pile, and chains of causes that tell each cause once.

use std::error::Error;
use std::path::Path;

use gabion::{
    Affinity, BlockError, FileError, FreeError, OpenOptions, Pile, PileError, PileOptions, Pointer, ReadBuf, SlotsError,
};

/// What every call that fills and saves a pile may fail with.
fn saved(path: &Path, payload: &[u8]) -> Result<Pointer, FileError> {
    let pile = Pile::new()?;
    let pointer = pile.put(payload)?;
    pile.save(path)?;
    Ok(pointer)
}

fn stored(payload: &[u8]) -> Result<usize, PileError> {
    let pile = Pile::new()?;
    let pointer = pile.put(payload)?;
    pile.size_of(pointer)
}

fn removed_twice(pile: &Pile) -> Result<(), FileError> {
    let pointer = pile.put(b"stone")?;
    pile.remove(pointer)?;
    Ok(pile.remove(pointer)?)
}

fn recorded(pile: &Pile) -> Result<(), PileError> {
    Ok(pile.append(b"record")?)
}

#[test]
fn one_error_serves_all_calls_of_a_pile() {
    assert_eq!(stored(b"stone").unwrap(), 5);
    let path = std::env::temp_dir().join(format!("gabion-{}-errors.pile", std::process::id()));
    let pointer = saved(&path, b"stone").unwrap();
    let pile = Pile::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(pile.read(pointer, &mut ReadBuf::new()).unwrap(), b"stone");
    drop(pile);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn what_another_error_is_made_of_is_still_there() {
    let pile = Pile::new().unwrap();
    let Err(FileError::Refused(cause)) = removed_twice(&pile) else { panic!("a pointer is refused when it is gone") };
    let inside = cause.downcast_ref::<PileError>();
    assert!(matches!(inside, Some(PileError::Pointer { .. })), "{inside:?}");
    assert_eq!(FileError::from(*inside.unwrap()).to_string(), inside.unwrap().to_string());

    let none = Pile::with_options(PileOptions { max_bytes: Some(0), ..PileOptions::default() }).unwrap();
    let full = none.put(b"stone").unwrap_err();
    assert_eq!(FileError::from(full).to_string(), full.to_string());

    let Err(PileError::Blocks(no_log)) = recorded(&pile) else { panic!("a pile without a file has no log") };
    assert!(matches!(no_log, BlockError::Setting { .. }));
    assert_eq!(PileError::from(no_log).to_string(), no_log.to_string());
    assert!(matches!(FileError::from(PileError::Blocks(no_log)), FileError::Blocks(cause) if cause == no_log));
}

/// The texts of an error and of all its causes.
fn told(error: &dyn Error) -> Vec<String> {
    std::iter::successors(Some(error), |&error| error.source()).map(ToString::to_string).collect()
}

#[test]
fn no_chain_of_causes_tells_one_twice() {
    let memory = BlockError::out_of_memory(4096);
    let pile = Pile::new().unwrap();
    let gone = pile.put(b"stone").unwrap();
    pile.remove(gone).unwrap();
    let pointer = pile.remove(gone).unwrap_err();
    let full = PileError::Memory { payload: 40, cause: memory };
    let own = std::io::Error::other(std::io::Error::other("no door"));
    let errors: [Box<dyn Error>; 12] = [
        Box::new(memory),
        Box::new(pointer),
        Box::new(full),
        Box::new(PileError::Blocks(memory)),
        Box::new(FileError::from(pointer)),
        Box::new(FileError::from(full)),
        Box::new(FileError::Blocks(memory)),
        Box::new(FileError::System { doing: "open the file", error: std::io::Error::from_raw_os_error(2) }),
        Box::new(FileError::System { doing: "open the file", error: own }),
        Box::new(SlotsError::NoMemory(memory)),
        Box::new(SlotsError::Free(FreeError::DoubleFree)),
        Box::new(SlotsError::UnknownAffinity { index: Affinity::NODES.index() }),
    ];
    for error in errors {
        let texts = told(error.as_ref());
        let again = texts.windows(2).find(|pair| pair[0].contains(&pair[1]));
        assert_eq!(again, None, "{error:?}");
    }
}
