//! Tells the compiler which interpreter the codec is built for, as the extension's own build script does.

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
    println!("cargo:rustc-check-cfg=cfg(linker_guards)");
}
