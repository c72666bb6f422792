//! Checks that walk everything.

use std::collections::HashSet;

use gabion_blocks::{Invalid, ensure};
use gabion_pile::ReadBuf;

use super::core::Core;
use crate::budget::weight;
use crate::entry::{Entry, Layout, contents};
use crate::key::Image;
use crate::policy::Id;
use crate::shard::{Ground, Links, Shard, State, partition_of};

/// Every entry is found by its hash, hangs in one policy, hangs in the wheel if it has an end, and has a key; what is
/// charged is the sum of what entries weigh, and what shards have in hand.
pub(crate) fn validate(core: &Core) -> Result<(), Invalid> {
    let (ground, shards) = (core.ground(), core.shards());
    let mut sum = Sum::default();
    // All locks at one time, in their order: what expires is removed by a thread that nobody asks to wait.
    let states: Vec<_> = shards.iter().map(Shard::lock).collect();
    for (shard, state) in shards.iter().zip(&states) {
        check_shard(ground, shard, state, &mut sum)?;
    }
    let Sum { bytes, credit, ghosts, entries, objects, cohorts } = sum;
    ground.pile.validate()?;
    ensure(ground.pile.len() == objects, || format!("{} payloads, {objects} expected", ground.pile.len()))?;
    let used = ground.ledger.used.used();
    let charged = || format!("{used} bytes charged, entries weigh {bytes}, ghosts {ghosts}, {credit} in hand");
    ensure(used == bytes + credit + ghosts, charged)?;
    ensure(used <= core.limit(), || format!("{used} bytes of {} used", core.limit()))?;
    let counted = ground.ledger.priorities.cohorts();
    ensure(counted == cohorts, || format!("{counted} cohorts counted, {cohorts} have entries"))?;
    let records = core.records();
    let sum = |figure: fn(&crate::stats::CacheStats) -> u64| -> u64 {
        records.iter().map(|record| figure(&record.counters.read())).sum()
    };
    ensure(sum(|stats| stats.bytes) == bytes, || "the tables' bytes are not the cache's".to_owned())?;
    ensure(sum(|stats| stats.entries) == entries, || "the tables' entries are not the cache's".to_owned())?;
    for (record, own) in records.iter().filter_map(|record| Some((record, record.own.as_ref()?))) {
        ensure(own.used.used() <= own.used.limit(), || "a table is over its limit".to_owned())?;
        ensure(own.used.used() == record.counters.read().bytes, || "a table's bytes do not add up".to_owned())?;
    }
    let index: u64 = shards.iter().zip(&states).map(|(shard, state)| shard.index_bytes(state)).sum();
    let reserved = ground.pile.stats().reserved_bytes;
    ensure(reserved <= ground.memory.limit(), || format!("{reserved} bytes taken"))?;
    ensure(index + ground.fixed <= reserved, || "the index takes more than there is".to_owned())
}

/// What all shards have.
#[derive(Default)]
struct Sum {
    bytes: u64,
    credit: u64,
    /// Bytes that ghosts are charged.
    ghosts: u64,
    entries: u64,
    /// Objects in the pile.
    objects: u64,
    /// Cohorts with entries.
    cohorts: u64,
}

fn check_shard(ground: &Ground, shard: &Shard, state: &State, sum: &mut Sum) -> Result<(), Invalid> {
    let links = Links::new(shard, ground, state);
    let mut live = HashSet::new();
    shard.segments.validate(&state.stash, |place, kept| {
        let entry = Entry::at(&ground.pile, place.to_bits());
        ensure(ground.pile.glance(place).is_some(), || format!("a cell leads to {place:?}, where nothing is"))?;
        ensure(entry.kept() == kept, || format!("the hash at {place:?} is not its cell's"))?;
        ensure(live.insert(place.to_bits()), || format!("two cells lead to {place:?}"))
    })?;
    let mut listed = HashSet::new();
    for cohort in &state.cohorts {
        sum.cohorts += u64::from(cohort.queues.bytes() > 0);
        for id in cohort.queues.validate(&links)? {
            let partition = partition_of(ground, id);
            let fits = (Entry::at(&ground.pile, id).about().priority, partition) == (cohort.priority, cohort.partition);
            ensure(fits && listed.insert(id), || format!("entry {id} is in a wrong cohort"))?;
        }
    }
    ensure(listed == live, || "the policies' entries are not the segments'".to_owned())?;
    let hung: HashSet<Id> = state.wheel.validate(&links)?.into_iter().collect();
    for &id in &live {
        let entry = Entry::at(&ground.pile, id);
        ensure(entry.due().is_some() == hung.contains(&id), || format!("entry {id} has a wrong place in the wheel"))?;
        let (key, value) = contents(&ground.pile, id, &mut ReadBuf::new()).ok_or("an entry without contents")?;
        let (timed, times) = (entry.due().is_some(), entry.times());
        let layout = Layout::new(&Image::new(entry.prefix().1, &key), value.len(), timed, times);
        ensure(layout.stored == entry.stored(), || format!("entry {id} takes {}, not {layout:?}", entry.stored()))?;
        sum.bytes += weight(layout);
        sum.objects += 1 + u64::from(entry.rest().is_some());
    }
    sum.entries += live.len() as u64;
    sum.credit += state.credit;
    let Some(ghosts) = &state.ghosts else { return Ok(()) };
    sum.ghosts += ghosts.charged();
    ghosts.validate()
}
