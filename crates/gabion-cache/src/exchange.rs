//! A step from one value to the next, taken only while the former is still there.

use std::cell::Cell;

use gabion_pile::ReadBuf;

use crate::core::Core;
use crate::entry::{Layout, contents};
use crate::key::{Image, LONGEST_KEY};
use crate::options::PutResult;
use crate::record::Record;
use crate::request::{Request, Step, When};
use crate::room::Effort;
use crate::stats::Figure;
use crate::value::Value;

impl Core {
    /// Replaces a key's value while it is `old`; its end, idle time and priority stay. `None`: it is another by now, or
    /// there is none, and nothing is changed. [`PutResult::Rejected`]: there was no room, and the key holds nothing now.
    pub fn replace_if(&self, record: &Record, key: &[u8], old: &[u8], new: Value<'_>) -> Option<PutResult> {
        if let Some(whole) = new.joined() {
            return self.replace_if(record, key, old, Value::Whole(&whole));
        }
        if key.len() > LONGEST_KEY {
            return None;
        }
        let image = Image::new(record.id, key);
        let hash = self.hash(&image);
        let shard = self.shard(hash);
        let (mut effort, mut refused, mut buf) = (Effort::default(), false, ReadBuf::new());
        loop {
            let mut locked = self.lock(shard);
            self.introduce(&mut locked, record);
            let found = locked.shard.find(&mut locked.state, self.parts().0, &image, hash);
            let found = found.filter(|&id| {
                let over = locked.entry(id).due().is_some_and(|due| due.deadline() <= self.now());
                !over && !record.is_dropped()
            });
            let Some(id) = found else {
                self.unlock(locked);
                return None;
            };
            if contents(self.pile(), id, &mut buf).is_none_or(|(_, value)| *value != *old) {
                self.unlock(locked);
                return None;
            }
            let entry = locked.entry(id);
            let (due, times, priority) = (entry.due(), entry.times(), entry.about().priority);
            let layout = Layout::new(&image, new.len(), due.is_some(), times);
            let (image, clock) = (&image, self.clock());
            let (when, spare, met) = (When::Always, true, Cell::new(false));
            let request =
                Request { record, image, hash, value: new, layout, due, times, priority, when, spare, clock, met };
            let mut step = if refused { Step::Refused } else { locked.put(&request, effort.sure) };
            if let Step::Refused = step {
                // The old value must not be taken for the new one. It also leaves room for another try. It may be gone: its end
                // may have come since it was looked at.
                if let Some(id) = locked.shard.find(&mut locked.state, locked.ground, image, hash) {
                    locked.remove_entry(id, None);
                    record.counters.count(Figure::Removed);
                    request.met.set(false);
                }
                if let Step::Inserted = locked.put(&request, false) {
                    step = Step::Inserted;
                }
            }
            self.unlock(locked);
            if let Some((_, figure)) = step.told() {
                record.counters.count(figure);
                return Some(PutResult::Replaced);
            }
            match step {
                Step::Refused => {
                    record.counters.count(Figure::Rejected);
                    return Some(PutResult::Rejected);
                }
                Step::Unwanted => return None,
                lack => refused = !self.make_way(shard, &request, &lack, &mut effort),
            }
        }
    }
}
