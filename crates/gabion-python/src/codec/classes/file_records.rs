//! What a file says of the numbers that its encodings refer to, and which of them a class of the program's is given
//! again.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;

use super::layout::Entry;
use super::record::Record;
use super::types::Types;
use crate::codec::object::Raise;
use crate::codec::room;
use crate::ffi::PyObject;

/// Records of the first numbers, and what may be built of them.
#[derive(Default)]
pub struct FileRecords {
    records: Vec<Arc<Record>>,
    /// Numbers by the names that they were stored with; from the first records on also those that were given since.
    numbers: HashMap<Box<[u8]>, Vec<u32>>,
    pub types: Arc<Types>,
}

impl FileRecords {
    /// Of a program that lets these be built.
    pub fn new(types: Types) -> FileRecords {
        FileRecords { types: Arc::new(types), ..FileRecords::default() }
    }

    /// Takes over the records of all numbers that were given so far.
    ///
    /// # Errors
    /// `MemoryError`; nothing is taken over.
    pub fn of(records: Vec<Arc<Record>>, types: Arc<Types>) -> Raise<FileRecords> {
        let mut all = FileRecords { records, numbers: HashMap::new(), types };
        for (id, record) in (0..).zip(&all.records) {
            if let Some(numbers) = all.numbers.get_mut(&record.path) {
                room::push(numbers, id)?;
            } else {
                let path = room::list(record.path.iter().copied())?.into_boxed_slice();
                let mut numbers = Vec::new();
                room::push(&mut numbers, id)?;
                room::insert(&mut all.numbers, path, numbers)?;
            }
        }
        Ok(all)
    }

    /// The record of a number that is from a file.
    pub fn record(&self, id: u32) -> Option<&Arc<Record>> {
        self.records.get(id as usize)
    }

    /// The number that an entry of this class has in the file, found by this name. Runs no code.
    pub fn number_of(&self, path: &[u8], class: *mut PyObject, entry: &Entry) -> Option<u32> {
        let by_own_name = self.types.lets(path, class).then_some(path);
        let others = self.types.paths_of(class).iter().map(|path| &**path);
        let mut numbers = by_own_name.into_iter().chain(others).filter_map(|path| self.numbers.get(path)).flatten();
        numbers.find(|&&id| self.record(id).is_some_and(|record| entry.is_described(record))).copied()
    }

    /// Notes that a number was given to a class of this name.
    pub fn note(&mut self, path: Vec<u8>, id: u32) {
        self.numbers.entry(path.into_boxed_slice()).or_default().push(id);
    }

    /// Numbers that classes and functions of this name have.
    pub fn numbers(&self, path: &[u8]) -> &[u32] {
        self.numbers.get(path).map_or(&[], Vec::as_slice)
    }

    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.types.visit(visit)
    }
}
