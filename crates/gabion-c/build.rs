//! Names the shared library as the loader will look for it: `scripts/install-c` puts it in place under that name. And
//! has the loader keep it.

fn main() {
    let [major, minor] = ["CARGO_PKG_VERSION_MAJOR", "CARGO_PKG_VERSION_MINOR"]
        .map(|name| std::env::var(name).expect("cargo sets the version"));
    // Before 1.0 a new minor version may change the interface.
    let series = if major == "0" { format!("0.{minor}") } else { major };
    // Both may be installed in one folder.
    let name = if std::env::var_os("CARGO_FEATURE_CHECKED").is_some() { "gabion-checked" } else { "gabion" };
    match std::env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("macos" | "ios") => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-install_name,@rpath/lib{name}.{series}.dylib");
        }
        Ok("windows") => {}
        _ => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,lib{name}.so.{series}");
            // Whoever closes it cannot know whether the pool's thread still runs in it.
            println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
        }
    }
    println!("cargo:rerun-if-changed=build.rs");
}
