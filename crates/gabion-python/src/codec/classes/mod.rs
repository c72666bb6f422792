//! What is known about classes: where they are found, how their instances are written, and the numbers that stand for
//! them.
//!
//! | module | what it holds |
//! |---|---|
//! | `table` | an address leads to what is known about it, without a lock |
//! | `inline` | where the interpreter keeps attributes |
//! | `seen`, `found` | whether names may have been bound anew; where a class or a function is found |
//! | `known`, `numpy` | objects of the interpreter and of NumPy that the codec recognises |
//! | `combined` | combinations of flags by the names of their parts |
//! | `record` | what another process is told of an entry, in bytes |
//! | `global` | classes and functions by reference |
//! | `inspect`, `changes` | what a class has; what became of it since its instances were stored |
//! | `layout`, `plan` | what the numbers stand for; how instances of a class are written |
//! | `entries` | entries by number, read without a lock |
//! | `natives` | classes that are not written in Python |
//! | `standard`, `types` | what a file may name without permission; what a program permits: its `types=` |
//! | `file_records` | what a file says of its numbers |
//! | `registry` | all that one codec has learnt |
//! | `analyse`, `shape` | which plan a class allows; which sets of attributes get a layout |
//! | `fit`, `anew` | entries for classes as they are now; classes and functions that were defined anew |
//! | `met` | numbers of a file, looked for when they are first asked for |

pub mod table;
pub mod inline;
pub mod seen;
pub mod known;
pub mod numpy;
pub mod found;
pub mod combined;
pub mod record;
pub mod global;
pub mod inspect;
pub mod changes;
pub mod layout;
pub mod entries;
pub mod plan;
pub mod natives;
pub mod standard;
pub mod types;
pub mod file_records;
pub mod registry;
pub mod analyse;
pub mod shape;
pub mod fit;
pub mod anew;
pub mod met;
