//! gabion for C and C++: the library behind `include/gabion.h`.
//!
//! The header is the documentation: meaning, ownership, thread-safety, status codes and cost of each function stand
//! there. `tests/agreement.rs` proves that header and library say the same. Built as a shared and a static library;
//! `scripts/install-c` puts both, the headers, and the files for pkg-config and `CMake` in place.
//!
//! Every function keeps three promises: no panic crosses the border, an argument that makes no sense is answered by a
//! status, and what a status says in general the thread's last error says in particular.
//!
//! The modules, lowest first:
//!
//! | module | what it holds |
//! |---|---|
//! | [`status`] | status codes, the thread's last error, the border that no panic crosses |
//! | [`handle`] | what a caller holds: never followed before it is looked at |
//! | [`text`] | strings in, texts out |
//! | [`slots`], [`pool`], [`pile`], [`walk`], [`view`] | the functions |
//! | [`version`] | which library this is |

pub mod status;

pub mod handle;

pub mod text;

pub mod slots;

pub mod pool;

pub mod pile;

pub mod walk;

pub mod view;

pub mod version;
