//! Tells the crate whether `mozjpeg` was built with SIMD, which takes NASM on x86-64: the library's own configuration
//! says so. With `GABION_JPEG_SIMD=off` the crate does as if not, so that tests can go that way on any machine.

use std::{env, fs};

fn main() {
    println!("cargo:rustc-check-cfg=cfg(jpeg_simd)");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=GABION_JPEG_SIMD");
    let wanted = env::var("GABION_JPEG_SIMD").map_or(true, |said| said != "off");
    // What `mozjpeg-sys` says to the crates that depend on it: the folders of its headers.
    let folders = env::var_os("DEP_JPEG_INCLUDE").expect("mozjpeg-sys names its headers");
    for configuration in env::split_paths(&folders).map(|folder| folder.join("jconfig.h")).filter(|path| path.exists())
    {
        println!("cargo:rerun-if-changed={}", configuration.display());
        let text = fs::read_to_string(configuration).expect("the header can be read");
        if wanted && text.lines().any(|line| line.trim() == "#define WITH_SIMD 1") {
            println!("cargo:rustc-cfg=jpeg_simd");
        }
    }
}
