//! The clock of one-thread work: CPU time of the thread, the system's part in it included. On an idle machine that is
//! the time that passes; on a busy one it leaves out the turns of others.

use gabion_bench_allocators::process::cpu_seconds_of_thread;

/// Started once, read once.
pub struct Clock(f64);

impl Clock {
    /// Starts.
    pub fn start() -> Self {
        Self(cpu_seconds_of_thread())
    }

    /// Seconds since the start. The thread is the same.
    pub fn seconds(&self) -> f64 {
        cpu_seconds_of_thread() - self.0
    }

    /// So many in that time, per second.
    pub fn rate(&self, count: u64) -> f64 {
        count as f64 / self.seconds()
    }
}
