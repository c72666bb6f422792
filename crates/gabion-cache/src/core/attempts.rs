//! A put until its end: tried, given room, and tried again.

use super::core::Core;
use super::room::{Effort, Outlook};
use crate::key::{Image, KeyHash};
use crate::options::PutResult;
use crate::policy::Id;
use crate::shard::{Lack, Locked, Need, Progress, Reason, Request, Step, When};
use crate::stats::Figure;

impl Core {
    /// Stores a value, if the request's [`When`] says so; otherwise `None`. Counts how that ended.
    #[inline]
    pub(super) fn carry_out(&self, request: &Request<'_>) -> Option<PutResult> {
        let (mut locked, mut progress) = (self.lock(self.shard(request.hash)), Progress::default());
        // Nearly always the key's own shard can make room at once.
        let step = self.attempt(&mut locked, request, &mut progress, Outlook::Unknown);
        let Some((result, figure)) = step.told() else {
            return self.finish_and_count(request, progress, locked, step);
        };
        request.record.counters.count(figure);
        self.unlock(locked);
        Some(result)
    }

    /// Tries a put once, unless there is no hope. One to a dropped table lacks room, too: what it stored would be found
    /// by nobody.
    #[inline]
    pub(super) fn attempt(
        &self,
        locked: &mut Locked<'_>,
        request: &Request<'_>,
        progress: &mut Progress,
        outlook: Outlook,
    ) -> Step {
        self.introduce(locked, request.record);
        if outlook == Outlook::Hopeless || request.record.is_dropped() {
            return Step::Lacks(Lack::Room);
        }
        locked.put(request, progress, outlook == Outlook::Sure)
    }

    /// Goes on with a put that did not come to its end at the first try, and counts how it ended.
    #[cold]
    fn finish_and_count(
        &self,
        request: &Request<'_>,
        mut progress: Progress,
        locked: Locked<'_>,
        step: Step,
    ) -> Option<PutResult> {
        let told = self.finish(request, &mut progress, locked, step);
        progress.count(request.record, told.map(|(_, figure)| figure));
        told.map(|(result, _)| result)
    }

    /// Goes on with a put after a first `step`, until it is stored or refused. `None`: it is not to be done.
    pub(super) fn finish<'a>(
        &'a self,
        request: &Request<'_>,
        progress: &mut Progress,
        locked: Locked<'a>,
        step: Step,
    ) -> Option<(PutResult, Figure)> {
        let mut first = Some(step);
        self.retry(locked, self.shard(request.hash), |locked, effort| {
            let mut step = first.take().unwrap_or_else(|| self.attempt(locked, request, progress, effort.outlook));
            while let Step::Lacks(Lack::Room) = step {
                if !self.wants(locked, request) {
                    return Ok(None);
                }
                // Its old value is not what the caller wants to be found. It also leaves room for another try.
                let removed = self.remove_locked(locked, request.image, request.hash);
                if removed == Some(true) && std::mem::replace(&mut progress.taken, true) {
                    // That of another, who has put it since.
                    request.record.counters.count(Figure::Removed);
                }
                if removed.is_none() || request.record.is_dropped() {
                    return Ok(Some((PutResult::Rejected, Figure::Rejected)));
                }
                progress.met = false;
                *effort = Effort::default();
                step = self.attempt(locked, request, progress, effort.outlook);
            }
            match step {
                Step::Lacks(lack) => Err((Need::new(request.record, request.image, request), lack)),
                step => Ok(step.told()),
            }
        })
    }

    /// Calls `attempt` with the shard locked until it comes to an end, and has room made for what it lacks in between,
    /// while no lock is held. The effort says what came of that.
    pub(super) fn retry<'a, 'n, R>(
        &'a self,
        mut locked: Locked<'a>,
        shard: usize,
        mut attempt: impl FnMut(&mut Locked<'a>, &mut Effort) -> Result<R, (Need<'n>, Lack)>,
    ) -> R {
        let mut effort = Effort::default();
        loop {
            let tried = attempt(&mut locked, &mut effort);
            self.unlock(locked);
            match tried {
                Ok(end) => return end,
                Err((need, lack)) => self.make_way(shard, &need, &lack, &mut effort),
            }
            locked = self.lock(shard);
        }
    }

    /// Whether a put is still to be done: others may have put meanwhile, and theirs is to stay.
    fn wants(&self, locked: &Locked<'_>, request: &Request<'_>) -> bool {
        match request.when {
            When::Always | When::Touched => true,
            When::Absent => {
                let found = locked.find(request.image, request.hash);
                found.is_none_or(|id| self.is_over(locked, id))
            }
            When::Leased(number) => locked.state.leases.holds(request.hash.0, number),
        }
    }

    /// Removes a key's entry; `None` when there is none, `Some(false)` when its time was over.
    pub(super) fn remove_locked(&self, locked: &mut Locked<'_>, image: &Image<'_>, hash: KeyHash) -> Option<bool> {
        let id = locked.find(image, hash)?;
        let over = self.is_over(locked, id);
        locked.remove_entry(id, over.then_some(Reason::Expired));
        Some(!over)
    }

    pub(super) fn is_over(&self, locked: &Locked<'_>, id: Id) -> bool {
        // The time is asked for only when it matters.
        locked.entry(id).is_over(|| self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cache, CacheOptions, PutOptions, TableOptions};

    /// What was found to have no room removed the value that another had put in the meantime.
    #[test]
    fn a_refused_put_leaves_what_others_have_put_meanwhile() {
        let cache = Cache::with_options(&CacheOptions { max_bytes: 1 << 20, ..CacheOptions::default() }).unwrap();
        let core = cache.core();
        let record = core.table("", TableOptions::default()).unwrap();
        let (image, options) = (Image::new(record.id, b"k"), PutOptions::default());
        let hash = core.hash(&image);
        let (value, (_, lease)) = (vec![0; 2 << 20], core.lease(&record, b"k"));
        for (when, left) in [(When::Absent, true), (When::Leased(lease), true), (When::Always, false)] {
            cache.put(b"k", b"another's", &options);
            let request = core.request(&record, &image, hash, (&value).into(), &options, when);
            let (locked, refused) = (core.lock(core.shard(hash)), Step::Lacks(Lack::Room));
            let result = core.finish_and_count(&request, Progress::default(), locked, refused);
            assert_eq!((result.is_none(), cache.contains(b"k")), (left, left), "{when:?}");
            cache.validate().unwrap();
        }
    }
}
