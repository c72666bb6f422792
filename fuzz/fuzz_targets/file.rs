//! The file of a pile with words changed, parts overwritten or its end cut off: it is refused, or all that is found in
//! it can be read, checked and changed.

#![no_main]

use std::fs::{File, OpenOptions as Open};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use arbitrary::Arbitrary;
use gabion_blocks::file::FileError;
use gabion_pile::{OpenOptions, Pile, ReadBuf};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Change {
    /// A word that is not zero, by its number among those.
    Word { at: u32, flip: u64 },
    /// Any word of the beginning of a page: headers, bitmaps, tags.
    Head { page: u16, word: u8, value: u64 },
    /// A copy of one part of the file over another.
    Copy { from: u32, to: u32, words: u8 },
}

#[derive(Arbitrary, Debug)]
struct Input {
    changes: Vec<Change>,
    cut: Option<u32>,
}

struct Template {
    path: PathBuf,
    file: File,
    bytes: Vec<u8>,
    words: Vec<u64>,
}

fn template() -> &'static Template {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("gabion-fuzz-{}.pile", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let pile = Pile::open(&path, &OpenOptions { shards: Some(2), ..OpenOptions::default() }).unwrap();
        let lengths = [0, 3, 8, 75, 247, 504, 1015, 1016, 1017, 5000, 100_000, (1 << 20) + 1];
        for (at, length) in lengths.into_iter().cycle().take(90).enumerate() {
            let pointer = pile.put_with_reserve(&vec![at as u8; length], at % 3 * 90).unwrap();
            match at % 5 {
                0 => pile.remove(pointer).unwrap(),
                1 => pile.replace(pointer, &vec![at as u8; 40 * at]).unwrap(),
                _ => {}
            }
        }
        pile.append(b"a record of the log").unwrap();
        drop(pile);
        let bytes = std::fs::read(&path).unwrap();
        let all = bytes.as_chunks::<8>().0.iter().enumerate();
        let words = all.filter(|(_, word)| **word != [0; 8]).map(|(at, _)| 8 * at as u64).collect();
        let file = Open::new().read(true).write(true).open(&path).unwrap();
        Template { path, file, bytes, words }
    })
}

impl Template {
    fn part(&self, at: u64, length: usize) -> &[u8] {
        let at = (at as usize % self.bytes.len()) & !7;
        &self.bytes[at..self.bytes.len().min(at + length)]
    }

    /// Applies a change, and returns which bytes it changed.
    fn apply(&self, change: &Change) -> (u64, usize) {
        let (at, new) = match *change {
            Change::Word { at, flip } => {
                let at = self.words[at as usize % self.words.len()];
                let word = u64::from_le_bytes(self.part(at, 8).try_into().unwrap()) ^ flip;
                (at, word.to_le_bytes().to_vec())
            }
            Change::Head { page, word, value } => {
                let pages = self.bytes.len() as u64 >> 16;
                (((u64::from(page) % pages) << 16) + u64::from(word) * 8, value.to_le_bytes().to_vec())
            }
            Change::Copy { from, to, words } => {
                let bytes = self.part(u64::from(from) * 8, 8 * usize::from(words)).to_vec();
                (u64::from(to) % ((self.bytes.len() - bytes.len()) / 8) as u64 * 8, bytes)
            }
        };
        self.file.write_all_at(&new, at).unwrap();
        (at, new.len())
    }

    /// Undoes all changes.
    fn restore(&self, changed: &[(u64, usize)]) {
        self.file.set_len(self.bytes.len() as u64).unwrap();
        for &(at, length) in changed {
            self.file.write_all_at(&self.bytes[at as usize..at as usize + length], at).unwrap();
        }
    }
}

fuzz_target!(|input: Input| {
    let template = template();
    let mut changed: Vec<_> = input.changes.iter().take(20).map(|change| template.apply(change)).collect();
    if let Some(cut) = input.cut {
        let cut = u64::from(cut) % template.bytes.len() as u64;
        template.file.set_len(cut).unwrap();
        changed.push((cut, template.bytes.len() - cut as usize));
    }
    let opened = Pile::open(&template.path, &OpenOptions { create: false, read_only: true, ..OpenOptions::default() });
    match opened {
        Err(FileError::Damaged { .. } | FileError::NotOurs | FileError::Format { .. }) => {}
        Err(error) => panic!("{error}"),
        Ok(pile) => {
            pile.validate().unwrap();
            let _ = pile.log();
            let (mut buf, mut count) = (ReadBuf::new(), 0);
            for pointer in pile.pointers() {
                pile.read(pointer, &mut buf).unwrap();
                count += 1;
            }
            assert_eq!(count, pile.len());
            for (at, pointer) in pile.pointers().collect::<Vec<_>>().into_iter().enumerate() {
                let _ = pile.replace(pointer, &vec![1; at * 37 % 3000]);
                let _ = pile.put(&vec![2; at * 71 % 3000]);
                pile.remove(pointer).unwrap();
            }
            pile.compact();
            pile.validate().unwrap();
        }
    }
    template.restore(&changed);
});
