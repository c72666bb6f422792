//! Tells the compiler which interpreter this is built for, so that `cfg(Py_3_12)` and the like work; and the linker to
//! put the guards of `src/guards.rs` before the interpreter's functions.

use std::{env, fs};

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
    println!("cargo:rustc-check-cfg=cfg(linker_guards)");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/guards.rs");
    // Elsewhere linkers have no such option. From 3.14 on no thread is ended in the midst of a call.
    let linux = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    if !linux || pyo3_build_config::get().version.minor >= 14 {
        return;
    }
    println!("cargo:rustc-cfg=linker_guards");
    let guards = fs::read_to_string("src/guards.rs").expect("the file is part of the crate");
    let names = guards.lines().filter_map(|line| line.strip_prefix("    fn ")?.split_once('('));
    for (name, _) in names {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
}
