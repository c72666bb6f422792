//! Checks that walk everything.

use std::collections::HashSet;

use gabion_pile::ReadBuf;

use crate::core::Core;
use crate::key;
use crate::shard::{Ground, Shard, no_pointer};

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// Every entry is found by its hash, hangs in one policy, hangs in the wheel if it has an end, and its payload is its
/// own; what is charged is the sum of what entries weigh.
pub(crate) fn validate(core: &Core) -> Result<(), String> {
    let (ground, shards) = core.parts();
    let (mut bytes, mut entries) = (0, 0);
    for shard in shards {
        let (more_bytes, more_entries) = check_shard(ground, shard)?;
        (bytes, entries) = (bytes + more_bytes, entries + more_entries);
    }
    ground.pile.validate().map_err(|wrong| wrong.to_string())?;
    ensure(ground.pile.len() == entries, || format!("{} payloads, {entries} entries", ground.pile.len()))?;
    let used = ground.ledger.used.used();
    ensure(used == bytes, || format!("{used} bytes charged, entries weigh {bytes}"))?;
    ensure(used <= core.limit(), || format!("{used} bytes of {} used", core.limit()))?;
    let classes = ground.ledger.classes.up_to(i8::MAX);
    ensure(classes == bytes, || format!("{classes} bytes by priority, entries weigh {bytes}"))?;
    let records = core.records();
    let sum = |figure: fn(&crate::stats::CacheStats) -> u64| -> u64 {
        records.iter().map(|record| figure(&record.stats(0))).sum()
    };
    ensure(sum(|stats| stats.bytes) == bytes, || "the tables' bytes are not the cache's".to_owned())?;
    ensure(sum(|stats| stats.entries) == entries, || "the tables' entries are not the cache's".to_owned())?;
    for own in records.iter().filter_map(|record| record.own.as_ref()) {
        ensure(own.used.used() <= own.used.limit(), || "a table is over its limit".to_owned())?;
        ensure(own.used.used() == own.classes.up_to(i8::MAX), || "a table's priorities do not add up".to_owned())?;
    }
    let index = core.stats().index_bytes;
    let reserved = ground.pile.stats().reserved_bytes;
    ensure(reserved <= ground.memory.limit(), || format!("{reserved} bytes taken"))?;
    ensure(index <= reserved, || "the index takes more than there is".to_owned())
}

fn check_shard(ground: &Ground, shard: &Shard) -> Result<(u64, u64), String> {
    let state = shard.lock();
    let live: HashSet<u32> = shard.entries.live(&state.ids).collect();
    ensure(live.len() + state.ids.free as usize == state.ids.end as usize, || format!("{:?} of ids", state.ids))?;
    ensure(live.len() as u64 == state.stash.entries, || "the segments count other entries".to_owned())?;
    let mut found = HashSet::new();
    shard.segments.validate(&state.stash, |id| {
        ensure(live.contains(&id), || format!("a cell names entry {id}, which is free"))?;
        found.insert(id);
        Ok(shard.entries.at(id).kept())
    })?;
    ensure(found == live, || "there are entries without a cell".to_owned())?;
    let mut listed = HashSet::new();
    for group in &state.groups {
        for id in group.policy.validate(&shard.links())? {
            let about = shard.entries.at(id).about();
            let fits = (about.priority, about.partition()) == (group.priority, group.partition);
            ensure(fits && listed.insert(id), || format!("entry {id} is in a wrong group"))?;
        }
    }
    ensure(listed == live, || "there are entries without a policy".to_owned())?;
    let hung: HashSet<u32> = state.wheel.validate(&shard.dues)?.into_iter().collect();
    let mut bytes = 0;
    let mut buf = ReadBuf::new();
    for &id in &live {
        let entry = shard.entries.at(id);
        ensure(entry.pointer() != no_pointer(), || format!("entry {id} names nothing"))?;
        ensure(entry.about().timed == hung.contains(&id), || format!("entry {id} has a wrong place in the wheel"))?;
        let payload = ground.pile.read(entry.pointer(), &mut buf).map_err(|error| error.to_string())?;
        let weight = crate::budget::weight(payload.len(), entry.about().timed);
        ensure(weight == entry.weight(), || format!("entry {id} weighs {weight}, not {}", entry.weight()))?;
        let table = key::parse(payload).map(|payload| payload.table);
        ensure(table == Some(entry.about().table), || format!("entry {id} is in another table"))?;
        bytes += weight;
    }
    Ok((bytes, live.len() as u64))
}
