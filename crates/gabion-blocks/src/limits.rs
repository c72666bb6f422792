//! How much memory this process may really use.
//!
//! The smallest of physical memory, every cgroup limit above this process and its own limits of address space and data
//! (`ulimit -v`, `-d`) counts: in a container, the machine's size is of no interest. Read on demand: limits may change
//! at run time. Where a file is not there, or cannot be opened for want of descriptors or memory, the system is asked
//! without one, and what a control group's said last holds on: a moment without descriptors is no reason for a pile
//! without a limit.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io, thread};

use crate::os::{machine_memory, out_of_cancels_reach, own_limit};

/// What the system says of memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Physical memory of the machine.
    pub physical: u64,
    /// The tightest cgroup limit above this process, if there is one.
    pub cgroup: Option<u64>,
    /// What the process itself may map, where that is limited (`RLIMIT_AS`, `RLIMIT_DATA`).
    pub process: Option<u64>,
}

impl MemoryLimits {
    /// What this process may use at most: `min(physical, cgroup, process)`.
    pub fn usable(&self) -> u64 {
        self.cgroup.into_iter().chain(self.process).fold(self.physical, u64::min)
    }
}

/// What the control groups said last: `u64::MAX` for "no limit".
static LAST_CGROUP: AtomicU64 = AtomicU64::new(u64::MAX);

/// Reads the limits of this process. Falls back to "no limit" where the system tells nothing in any way.
pub fn read() -> MemoryLimits {
    let (mut found, is_whole) = look(Path::new("/"));
    if found.physical == u64::MAX {
        found.physical = machine_memory().map_or(u64::MAX, |(physical, _)| physical);
    }
    found.process = found.process.or_else(own_limit);
    // Relaxed: the number is the whole message, here and below.
    if is_whole {
        LAST_CGROUP.store(found.cgroup.unwrap_or(u64::MAX), Ordering::Relaxed);
    } else {
        let last = Some(LAST_CGROUP.load(Ordering::Relaxed)).filter(|&last| last < u64::MAX);
        found.cgroup = found.cgroup.into_iter().chain(last).min();
    }
    found
}

/// Memory and swap of the machine in bytes: more than this can never be touched. `u64::MAX` where nothing is told.
pub(crate) fn memory_and_swap() -> u64 {
    let meminfo = text_of(Path::new("/proc/meminfo")).unwrap_or_default();
    let swap = meminfo_bytes(&meminfo, "SwapTotal:").unwrap_or(0);
    let told = meminfo_bytes(&meminfo, "MemTotal:").map(|physical| (physical, swap));
    told.or_else(machine_memory).map_or(u64::MAX, |(physical, swap)| physical.saturating_add(swap))
}

/// As [`read`], with another root in front of `/proc` and `/sys`, so that tests can bring their own system.
pub fn read_from(root: &Path) -> MemoryLimits {
    look(root).0
}

/// What the files below `root` say, and whether all could be read that are there.
fn look(root: &Path) -> (MemoryLimits, bool) {
    let is_whole = Cell::new(true);
    let text = |path: &Path| {
        text_of(path).unwrap_or_else(|error| {
            is_whole.set(is_whole.get() && !is_short(&error));
            String::new()
        })
    };
    let physical = meminfo_bytes(&text(&root.join("proc/meminfo")), "MemTotal:").unwrap_or(u64::MAX);
    let groups = memberships(&text(&root.join("proc/self/cgroup"))).into_iter();
    let limits = groups.filter_map(|group| match group.version {
        Version::Two => tightest(&root.join("sys/fs/cgroup"), &group.path, &["memory.max", "memory.high"], text),
        Version::One => tightest(&root.join("sys/fs/cgroup/memory"), &group.path, &["memory.limit_in_bytes"], text),
    });
    let cgroup = limits.min();
    let own = text(&root.join("proc/self/limits"));
    let process = ["Max address space", "Max data size"].iter().filter_map(|name| soft_limit(&own, name)).min();
    (MemoryLimits { physical, cgroup, process }, is_whole.get())
}

/// Whether a file could not be opened for want of descriptors or memory: it may be there.
fn is_short(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// How many threads of this process can run at one time.
pub fn processors() -> usize {
    // The standard library reads files of the cgroup for it.
    out_of_cancels_reach(thread::available_parallelism).map_or(1, usize::from)
}

/// What a file of the system says.
pub(crate) fn text_of(file: &Path) -> io::Result<String> {
    out_of_cancels_reach(|| fs::read_to_string(file))
}

/// The two kinds of cgroup hierarchies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// A cgroup that this process belongs to and that may limit its memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    pub version: Version,
    /// Below the hierarchy's top, without a slash in front.
    pub path: String,
}

/// The memberships that `/proc/self/cgroup` lists.
pub(crate) fn memberships(text: &str) -> Vec<Membership> {
    let of = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let version = if controllers.is_empty() {
            Version::Two
        } else if controllers.split(',').any(|name| name == "memory") {
            Version::One
        } else {
            return None;
        };
        Some(Membership { version, path: path.trim_start_matches('/').to_owned() })
    };
    text.lines().filter_map(of).collect()
}

/// `own` and every folder above it up to `top`.
pub(crate) fn ancestors(top: &Path, own: PathBuf) -> impl Iterator<Item = PathBuf> {
    let top = top.to_owned();
    std::iter::successors(
        Some(own),
        move |folder| {
            if *folder == top { None } else { folder.parent().map(Path::to_owned) }
        },
    )
}

/// The smallest of the named files' numbers in `top/path` and every folder above it up to `top`.
fn tightest(top: &Path, path: &str, names: &[&str], text: impl Fn(&Path) -> String) -> Option<u64> {
    // "max" does not parse: no limit at this level.
    let number = |file: PathBuf| text(&file).trim().parse::<u64>().ok();
    let folders = ancestors(top, top.join(path));
    folders.flat_map(|folder| names.iter().filter_map(move |name| number(folder.join(name)))).min()
}

/// The limit of that name that holds now, as `/proc/self/limits` tells it; `None` for "unlimited".
fn soft_limit(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

pub(crate) fn meminfo_bytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    let kib: u64 = line[key.len()..].trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("gabion-limits-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_tightest_level_of_a_v2_hierarchy_counts() {
        let root = system(
            "v2",
            &[
                ("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\n"),
                ("proc/self/cgroup", "0::/a/b\n"),
                ("sys/fs/cgroup/a/memory.max", "500000\n"),
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("sys/fs/cgroup/a/b/memory.high", "600000\n"),
            ],
        );
        let limits = read_from(&root);
        assert_eq!(limits, MemoryLimits { physical: 1_024_000, cgroup: Some(500_000), process: None });
        assert_eq!(limits.usable(), 500_000);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn v1_and_no_limit_at_all() {
        let root = system(
            "v1",
            &[
                ("proc/meminfo", "MemTotal: 1000 kB\n"),
                ("proc/self/cgroup", "5:cpu,memory:/x\n4:pids:/x\n"),
                ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "77"),
            ],
        );
        assert_eq!(read_from(&root).usable(), 77);
        fs::remove_dir_all(&root).unwrap();
        let nothing = read_from(Path::new("/nonexistent-root"));
        assert_eq!(nothing, MemoryLimits { physical: u64::MAX, cgroup: None, process: None });
    }

    #[test]
    fn what_the_process_itself_may_map_counts() {
        let head = "Limit                     Soft Limit           Hard Limit           Units\n";
        let line = |name: &str, soft: &str| format!("{name:<26}{soft:<21}unlimited            bytes\n");
        let limits = |space: &str, data: &str| {
            let own = [head, &line("Max data size", data), &line("Max address space", space)].concat();
            let root = system("own", &[("proc/meminfo", "MemTotal: 1000 kB\n"), ("proc/self/limits", &own)]);
            let found = read_from(&root);
            fs::remove_dir_all(&root).unwrap();
            (found.process, found.usable())
        };
        assert_eq!(limits("unlimited", "unlimited"), (None, 1_024_000));
        assert_eq!(limits("500000", "unlimited"), (Some(500_000), 500_000));
        assert_eq!(limits("2000000", "700000"), (Some(700_000), 700_000));
        assert_eq!(limits("9000000", "unlimited"), (Some(9_000_000), 1_024_000));
    }

    #[test]
    fn this_machine_answers() {
        assert!(read().usable() > 1 << 20);
    }

    #[test]
    fn this_machine_answers_without_a_file() {
        let meminfo = text_of(Path::new("/proc/meminfo")).unwrap();
        let told = |key| meminfo_bytes(&meminfo, key).unwrap();
        assert_eq!(machine_memory(), Some((told("MemTotal:"), told("SwapTotal:"))));
        let own = text_of(Path::new("/proc/self/limits")).unwrap();
        let names = ["Max address space", "Max data size"];
        assert_eq!(own_limit(), names.iter().filter_map(|name| soft_limit(&own, name)).min());
    }
}
