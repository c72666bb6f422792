//! The one door to the operating system.
//!
//! Everything that maps, advises or gives back memory goes through [`Os`]. [`system`] is the real one; the twin
//! (feature `twin`) stands in its place in tests and refuses at a chosen step.
//!
//! | module | what it holds |
//! |---|---|
//! | `door`, `disk` | what is asked of a system, whichever it is: for memory, for files that are mapped |
//! | `fence` | fences of which one side costs nothing |
//! | `first` | whether the thread that a fork began with has ended |
//! | `stack` | what a thread's stack holds that nobody uses any more |
//! | `stock`, `unix`, `language` | address space in stock, and Unix; what stands for it in Miri |
//! | `mapped` | mapped files of the real system |
//! | `own_file` | a file that is open for long, by a descriptor that the program may close |
//! | [`beside`] | files that are written beside the ones that they replace |
//! | `once` | what is done once in a process, forks or not |
//! | `at_fork` | what is called around a fork, and what is held meanwhile |
//! | `calls` | the calls on the real one, for all of gabion |
//! | `twin`, `twin_disk`, `scarce` | a system, a disk and a malloc that refuse |

mod door;

mod disk;

mod fence;

mod first;

mod stack;

#[cfg(miri)]
mod language;

#[cfg_attr(miri, allow(dead_code, reason = "`language` stands for the system then"))]
mod stock;

#[cfg_attr(miri, allow(dead_code, reason = "as above"))]
mod unix;

mod mapped;

mod own_file;

pub mod beside;

mod once;

mod at_fork;

mod calls;

#[cfg(feature = "twin")]
mod twin;

#[cfg(feature = "twin")]
mod twin_disk;

#[cfg(feature = "twin")]
mod scarce;

pub use at_fork::{AcrossFork, AtFork};
pub(crate) use calls::{
    can_fence_heavily, heavy_fence, light_fence, machine_memory, own_limit, system_disk, thread_time,
    watch_first_thread,
};
pub use calls::{
    first_thread_has_ended, give_back_stack, nap, out_of_cancels_reach, out_of_signals_reach, steady_time,
    steady_time_roughly, system,
};
pub use disk::Disk;
pub use door::Os;
pub use once::ForkOnce;
pub(crate) use own_file::OwnFile;
#[cfg(feature = "twin")]
pub use scarce::Scarce;
#[cfg(feature = "twin")]
pub use twin::Twin;
#[cfg(feature = "twin")]
pub use twin_disk::TwinDisk;
