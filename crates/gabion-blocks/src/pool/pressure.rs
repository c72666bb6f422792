//! Whether the system is short of memory: what it tells, and the verdict on it.
//!
//! The cgroup of this process speaks first, since its limit is what would kill us; the machine is asked where the
//! cgroup says nothing of stalls. Page cache that the kernel can drop at once does not count as used.

use std::path::Path;

use crate::limits;

/// What the system tells of memory. Sizes are bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Readings {
    /// Share of the last ten seconds, in percent, in which some task of our cgroup, or of the nearest above it that
    /// says so, stalled for want of memory.
    pub cgroup_stall: Option<f64>,
    /// The same for the machine.
    pub machine_stall: Option<f64>,
    /// Use and limit of each cgroup above this process that has a limit.
    pub levels: Vec<Level>,
    /// What the machine could give without stalling, and what it has.
    pub available: Option<(u64, u64)>,
}

/// One cgroup's use and limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level {
    pub used: u64,
    pub limit: u64,
}

/// Stalls from which on memory is short, in percent of time.
const STALL: f64 = 10.0;

impl Readings {
    /// True when memory is short.
    pub fn tight(&self) -> bool {
        // A twentieth left, of a cgroup's limit or of the machine.
        let narrow = |left: u64, all: u64| left < all / 20;
        let stalled = |stall: Option<f64>| stall.is_some_and(|percent| percent >= STALL);
        self.levels.iter().any(|level| narrow(level.limit.saturating_sub(level.used), level.limit))
            || match (self.cgroup_stall, self.machine_stall) {
                (Some(_), _) => stalled(self.cgroup_stall),
                (None, Some(_)) => stalled(self.machine_stall),
                (None, None) => self.available.is_some_and(|(left, all)| narrow(left, all)),
            }
    }

    /// True when a cgroup's limit is so near that memory may be short before the policy looks again: a quarter of it is
    /// left, or less.
    pub fn near(&self) -> bool {
        self.levels.iter().any(|level| level.limit.saturating_sub(level.used) < level.limit / 4)
    }

    /// Reads what the system under `root` tells; what it does not tell stays empty.
    pub fn read(root: &Path) -> Self {
        let text = |path: &Path| limits::text_of(path).unwrap_or_default();
        let mut readings = Self { machine_stall: stall(&text(&root.join("proc/pressure/memory"))), ..Self::default() };
        let meminfo = text(&root.join("proc/meminfo"));
        let line = |key| limits::meminfo_bytes(&meminfo, key);
        let physical = line("MemTotal:").unwrap_or(u64::MAX);
        readings.available = line("MemAvailable:").zip(line("MemTotal:"));
        for group in limits::memberships(&text(&root.join("proc/self/cgroup"))) {
            let (top, files) = match group.version {
                limits::Version::One => (root.join("sys/fs/cgroup/memory"), &V1),
                limits::Version::Two => (root.join("sys/fs/cgroup"), &V2),
            };
            let own = top.join(group.path);
            // In a container our own cgroup may be the top of all that is seen, and a folder may have no such file of
            // its own.
            readings.cgroup_stall = readings.cgroup_stall.or_else(|| {
                limits::ancestors(&top, own.clone()).find_map(|folder| stall(&text(&folder.join("memory.pressure"))))
            });
            readings.levels.extend(limits::ancestors(&top, own).filter_map(|folder| files.level(&folder, physical)));
        }
        readings
    }
}

/// The names of a cgroup version's files.
struct Files {
    used: &'static str,
    limits: &'static [&'static str],
    droppable: &'static str,
}

const V1: Files =
    Files { used: "memory.usage_in_bytes", limits: &["memory.limit_in_bytes"], droppable: "total_inactive_file " };
const V2: Files = Files { used: "memory.current", limits: &["memory.high", "memory.max"], droppable: "inactive_file " };

impl Files {
    /// One folder's level, when it has a limit that could ever be met.
    fn level(&self, folder: &Path, physical: u64) -> Option<Level> {
        let number = |name: &str| limits::text_of(&folder.join(name)).ok()?.trim().parse::<u64>().ok();
        let limit = self.limits.iter().filter_map(|name| number(name)).min()?;
        if limit >= physical {
            return None;
        }
        let stat = limits::text_of(&folder.join("memory.stat")).unwrap_or_default();
        let droppable = stat.lines().find_map(|line| line.strip_prefix(self.droppable)?.trim().parse::<u64>().ok());
        Some(Level { used: number(self.used)?.saturating_sub(droppable.unwrap_or(0)), limit })
    }
}

/// The ten-second average of the `some` line of a pressure file.
fn stall(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_whitespace().find_map(|field| field.strip_prefix("avg10=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const CALM: &str = "some avg10=0.50 avg60=99.00 avg300=0.00 total=1\nfull avg10=90.00 avg60=0 avg300=0 total=1\n";
    const STALLED: &str = "some avg10=12.34 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0 avg300=0 total=1\n";
    const MEMINFO: &str = "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:   500 kB\n";

    fn verdict(name: &str, files: &[(&str, &str)]) -> bool {
        let root = std::env::temp_dir().join(format!("gabion-pressure-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let readings = Readings::read(&root);
        fs::remove_dir_all(&root).unwrap();
        readings.tight()
    }

    #[test]
    fn version_two_by_stall_and_by_limit() {
        let group = ("proc/self/cgroup", "0::/a/b\n");
        let (pressure, machine) = ("sys/fs/cgroup/a/b/memory.pressure", ("proc/pressure/memory", STALLED));
        assert!(verdict("v2-stall", &[group, (pressure, STALLED)]));
        assert!(!verdict("v2-calm", &[group, (pressure, CALM), machine]), "a neighbour's stall is not ours");
        let level = |current, limit| {
            [
                group,
                (pressure, CALM),
                ("proc/meminfo", MEMINFO),
                ("sys/fs/cgroup/a/memory.current", current),
                ("sys/fs/cgroup/a/memory.high", "max\n"),
                ("sys/fs/cgroup/a/memory.max", limit),
                ("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 90000\n"),
            ]
        };
        assert!(!verdict("v2-room", &level("500000", "600000")));
        assert!(!verdict("v2-cache", &level("599000", "600000")), "cache that can be dropped is not pressure");
        assert!(verdict("v2-full", &level("670000", "600000")));
        assert!(!verdict("v2-unlimited", &level("670000", "max")));
        assert!(!verdict("v2-beyond", &level("670000000", "600000000")), "a limit beyond the machine's memory");
    }

    #[test]
    fn a_container_that_sees_its_own_cgroup_as_the_top() {
        let (group, machine) = (("proc/self/cgroup", "0::/\n"), "proc/pressure/memory");
        let top = "sys/fs/cgroup/memory.pressure";
        assert!(!verdict("top-calm", &[group, (top, CALM), (machine, STALLED)]), "a neighbour's stall is not ours");
        assert!(verdict("top-stall", &[group, (top, STALLED), (machine, CALM)]));
        // A folder that this process does not see, or that has no such file: the nearest above it speaks.
        let group = ("proc/self/cgroup", "0::/a/b/c\n");
        assert!(!verdict("unseen-calm", &[group, (top, CALM), (machine, STALLED)]));
        let above = ("sys/fs/cgroup/a/b/memory.pressure", STALLED);
        assert!(verdict("above-stall", &[group, above, (top, CALM), (machine, CALM)]));
    }

    #[test]
    fn version_one_by_usage() {
        let level = |usage| {
            [
                ("proc/meminfo", MEMINFO),
                ("proc/self/cgroup", "5:cpu,memory:/x\n4:pids:/x\n"),
                ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "100000"),
                ("sys/fs/cgroup/memory/x/memory.usage_in_bytes", usage),
                ("sys/fs/cgroup/memory/x/memory.stat", "inactive_file 99999\ntotal_inactive_file 1000\n"),
            ]
        };
        assert!(!verdict("v1-room", &level("50000")));
        assert!(verdict("v1-full", &level("97000")));
    }

    #[test]
    fn without_a_cgroup_the_machine_is_asked() {
        assert!(verdict("psi", &[("proc/pressure/memory", STALLED), ("proc/meminfo", MEMINFO)]));
        assert!(!verdict("psi-calm", &[("proc/pressure/memory", CALM), ("proc/meminfo", MEMINFO)]));
        assert!(!verdict("available", &[("proc/meminfo", MEMINFO)]));
        assert!(verdict("none-left", &[("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 49 kB\n")]));
        assert!(!verdict("nothing", &[("elsewhere", "")]));
        assert!(!verdict("nonsense", &[("proc/pressure/memory", "some avg10=x"), ("proc/meminfo", "MemTotal: y")]));
    }
}
