//! What an allocation and its free cost together: called from Rust, from C with the static library, and from C with the
//! shared one. `cargo run --release -p gabion-c --example call_cost`; takes some seconds.

use std::alloc::Layout;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use gabion_slots::{Affinity, Slots};

// Short trials, of which the best counts, so that other programs do not.
const LIVE: usize = 1000;
const ROUNDS: usize = 20;
const TRIALS: usize = 500;

fn from_rust(sized: bool) -> f64 {
    let (slots, layout) = (Slots::global(), Layout::new::<[u64; 6]>());
    let mut objects = Vec::with_capacity(LIVE);
    let trials = (0..TRIALS).map(|_| {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            objects.extend((0..LIVE).map(|_| slots.alloc(Affinity::NODES, layout).expect("memory")));
            for at in objects.drain(..) {
                let freed = if sized {
                    // SAFETY: allocated just above with that layout, and used no more.
                    unsafe { slots.free_sized(Affinity::NODES, at, layout) }
                } else {
                    // SAFETY: as above.
                    unsafe { slots.free(at) }
                };
                freed.expect("a live object");
            }
        }
        start.elapsed().as_nanos() as f64 / (ROUNDS * LIVE) as f64
    });
    trials.fold(f64::INFINITY, f64::min)
}

/// Builds the program in C against a library, and runs it.
fn from_c(folder: &Path, library: &str, name: &str) -> String {
    let crate_folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join(name);
    let mut compiler = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    compiler.args(["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-O2", "-I"]).arg(crate_folder.join("include"));
    compiler.arg(crate_folder.join("examples/call_cost.c")).arg("-o").arg(&program);
    let built = compiler.arg(folder.join(library)).args(["-pthread", "-ldl", "-lm"]).status();
    assert!(built.expect("a C compiler").success(), "it does not compile");
    // The shared library is looked for under the name that it is installed by.
    let version = concat!("libgabion.so.", env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
    let search = folder.join("call_cost_libraries");
    std::fs::create_dir_all(&search).expect("a folder");
    std::fs::copy(folder.join("libgabion_c.so"), search.join(version)).expect("the shared library");
    let output = Command::new(program).env("LD_LIBRARY_PATH", search).output().expect("a program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn main() {
    let example = std::env::current_exe().expect("a path");
    // Beside the examples cargo puts what they are built with.
    let folder = example.ancestors().nth(2).expect("cargo's folder").join("deps");
    println!("1000 objects of 48 bytes allocated, then freed in order; each pair:");
    println!("Rust     free {:.2} ns, sized free {:.2} ns", from_rust(false), from_rust(true));
    println!("static   {}", from_c(&folder, "libgabion_c.a", "call_cost_static"));
    println!("shared   {}", from_c(&folder, "libgabion_c.so", "call_cost_shared"));
}
