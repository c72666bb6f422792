//! Tells the benchmark which snmalloc it is built with: unlike the others, it has no call for its version.

fn main() {
    println!("cargo::rerun-if-changed=../../../Cargo.lock");
    let lock = std::fs::read_to_string("../../../Cargo.lock").unwrap_or_default();
    let version = lock
        .split("[[package]]")
        .find(|package| package.contains("name = \"snmalloc-sys\""))
        .and_then(|package| package.split("version = \"").nth(1)?.split('"').next())
        .unwrap_or("of unknown version");
    println!("cargo::rustc-env=GABION_SNMALLOC={version}");
}
