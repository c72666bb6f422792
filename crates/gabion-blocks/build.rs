//! Refuses targets that gabion is not written for in one sentence, before anything is compiled. The compiler itself
//! goes on after a `compile_error!`, and finds a heap of what is missing there.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|said| said == value);
    let written_for = std::env::var_os("CARGO_CFG_UNIX").is_some()
        // Pointers and their words of 64 bits hold addresses.
        && is("CARGO_CFG_TARGET_POINTER_WIDTH", "64")
        // Blocks hold words, and files hold blocks: the bytes of a payload would stand in another order in each word.
        && is("CARGO_CFG_TARGET_ENDIAN", "little");
    if !written_for {
        let target = std::env::var("TARGET").unwrap_or_default();
        println!(
            "cargo::error=gabion is written for 64-bit, little-endian Unix, and tested on Linux. {target} is another"
        );
    }
}
