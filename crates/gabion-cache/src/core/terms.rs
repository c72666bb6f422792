//! Entries with all that the cache knows of them, by the time of day.

use std::time::Duration;

use gabion_pile::{ReadBuf, Value};

use super::calls::Standing;
use super::core::Core;
use crate::entry::Times;
use crate::options::{PutResult, Span, Terms};
use crate::record::Record;
use crate::shard::{Sought, When};
use crate::stats::Figure;
use crate::time::{Due, NEVER};

/// Milliseconds, rounded up.
fn millis(span: Duration) -> u64 {
    Span::Of(span).millis(None).unwrap_or(NEVER)
}

/// A moment by the cache's clock, and the same one by the time of day, in milliseconds.
#[derive(Clone, Copy)]
struct Moment {
    now: u64,
    wall: u64,
}

impl Moment {
    fn of_day(self, deadline: u64) -> Option<Duration> {
        let left = deadline.saturating_sub(self.now);
        (deadline < NEVER).then(|| Duration::from_millis(self.wall.saturating_add(left)))
    }

    /// `None` when it is over.
    fn deadline(self, of_day: Duration) -> Option<u64> {
        let left = millis(of_day).checked_sub(self.wall).filter(|&left| left > 0)?;
        Some(self.now.saturating_add(left).min(NEVER))
    }
}

impl Core {
    fn moment(&self) -> Moment {
        Moment { now: self.now(), wall: millis(self.clock().wall()) }
    }

    /// Reads a value into `buf`: where it begins there, and its terms. Neither counted nor seen by the policy.
    pub fn peek_with_terms(&self, record: &Record, key: &[u8], buf: &mut ReadBuf) -> Option<(usize, Terms)> {
        buf.let_go();
        let (image, hash, shard) = self.sought_alive(record, key)?;
        let locked = self.lock_only(shard);
        let (cell, found) =
            locked.shard.read_under_lock(&locked.state, Sought { ground: self.ground(), image: &image, hash }, buf)?;
        let Standing { due, times, priority } = Standing::of(&locked, cell.place().to_bits());
        drop(locked);
        let moment = self.moment();
        if due.is_some_and(|due| due.is_over(moment.now)) {
            return None;
        }
        let idle = due.and_then(Due::idle);
        let ends_at = due.and_then(|due| moment.of_day(due.deadline()));
        let expires_at = if idle.is_some() { times.end.and_then(|end| moment.of_day(end)) } else { ends_at };
        let touch = match times.ttl {
            None => Span::Table,
            Some(NEVER) => Span::Never,
            Some(own) => Span::Of(Duration::from_millis(own)),
        };
        Some((found.offset, Terms { ends_at, expires_at, idle: idle.map(Duration::from_millis), touch, priority }))
    }

    /// Stores a value with its terms where the key has none. `None`: it has one, or the time of this one is over.
    pub fn add_with_terms(&self, record: &Record, key: &[u8], value: Value<'_>, terms: &Terms) -> Option<PutResult> {
        if let Some(whole) = value.joined() {
            return self.add_with_terms(record, key, Value::Whole(&whole), terms);
        }
        let moment = self.moment();
        let deadline = terms.ends_at.map_or(Some(NEVER), |at| moment.deadline(at))?;
        let end = terms.expires_at.map_or(Some(NEVER), |at| moment.deadline(at))?;
        let idle = terms.idle.map(millis);
        let ttl = match terms.touch {
            Span::Table => None,
            Span::Never => Some(NEVER),
            Span::Of(own) => Some(millis(own).min(NEVER - 1)),
        };
        let timed = idle.is_some() || deadline < NEVER || matches!(terms.touch, Span::Of(_));
        let due = timed.then(|| Due::new(deadline, idle));
        let times = Times { end: Some(end).filter(|&end| idle.is_some() && end < NEVER), ttl };
        let Some((image, hash, _)) = self.sought(record, key) else {
            record.counters.count(Figure::Rejected);
            return Some(PutResult::Rejected);
        };
        let standing = Standing { due, times, priority: terms.priority };
        self.carry_out(&self.stepped(record, (&image, hash), value, &standing, When::Absent))
    }
}
