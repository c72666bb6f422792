//! What `scripts/install-c`, `scripts/build-c` and `make` put where. Stand-ins take the place of libraries and of
//! cargo: what is in them does not matter here.
#![cfg(unix)]

mod toolchain;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use toolchain::{crate_folder, folder, has, run, text};

/// What a user may have set, and cargo sets for its tests.
const SETTINGS: [&str; 9] = [
    "CARGO_BUILD_TARGET",
    "CARGO_TARGET_DIR",
    "CHECKED",
    "DESTDIR",
    "INCLUDEDIR",
    "LIBDIR",
    "MAKEFLAGS",
    "MFLAGS",
    "OBJCOPY",
];

/// A command without the settings of whoever runs these tests.
fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for setting in SETTINGS {
        command.env_remove(setting);
    }
    command
}

fn root() -> PathBuf {
    crate_folder().join("../..").canonicalize().unwrap()
}

/// One of our scripts. Where the sources come from a packed file, it is not executable.
fn ours(name: &str) -> Command {
    let mut command = command("bash");
    command.arg(root().join("scripts").join(name));
    command
}

/// `install-c`, which finds no `objcopy`: stand-ins are no archives.
fn install() -> Command {
    let mut command = ours("install-c");
    command.env("OBJCOPY", "no-objcopy");
    command
}

/// A folder as `build-c` makes it, with libraries for a system where the shared one ends like this.
fn built(name: &str, ending: &str) -> PathBuf {
    let folder = folder(name);
    for file in ["libgabion_c.a".to_owned(), format!("libgabion_c.{ending}")] {
        std::fs::write(folder.join(file), "a stand-in").unwrap();
    }
    folder
}

/// All paths below a folder, sorted.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(below(&entry.path()));
        }
        found.push(entry.path());
    }
    found.sort();
    found
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    below(folder).into_iter().filter(|path| !path.is_dir()).collect()
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn everyone_may_read_what_root_has_installed() {
    let (prefix, built) = (folder("modes"), built("modes-built", "so"));
    let shared_by_a_group = prefix.join("include");
    std::fs::create_dir(&shared_by_a_group).unwrap();
    set_mode(&shared_by_a_group, 0o775);
    set_mode(&prefix, 0o755);
    let mut shell = command("bash");
    shell.args(["-c", "umask 077 && bash \"$@\"", "bash"]).arg(root().join("scripts/install-c"));
    run(shell.env("OBJCOPY", "no-objcopy").args([&prefix, &built]));
    for path in below(&prefix) {
        let right = match path.file_name().unwrap().to_str().unwrap() {
            "include" => 0o775,
            "libgabion.so.0.1" => 0o755,
            _ if path.is_symlink() => continue,
            _ if path.is_dir() => 0o755,
            _ => 0o644,
        };
        assert_eq!(mode(&path), right, "{} has mode {:o}", path.display(), mode(&path));
    }
}

#[test]
fn licences_are_installed() {
    let prefix = folder("licences");
    run(install().arg(&prefix).arg(built("licences-built", "so")));
    // Some of them ask to be passed on with programs.
    for name in ["LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY-LICENSES.txt"] {
        let installed = std::fs::read(prefix.join("share/licenses/gabion").join(name)).unwrap();
        assert_eq!(installed, std::fs::read(root().join(name)).unwrap());
    }
}

#[test]
fn folders_may_be_absolute() {
    let built = built("absolute-built", "so");
    for prefix in ["/usr", "/usr/", "//usr/."] {
        let stage = folder("absolute");
        let variables = [("LIBDIR", "/usr/lib64"), ("INCLUDEDIR", "/usr/include//gabion/")];
        run(install().env("DESTDIR", &stage).envs(variables).arg(prefix).arg(&built));
        assert!(stage.join("usr/lib64/libgabion.so.0.1").exists());
        assert!(stage.join("usr/include/gabion/gabion.h").exists());
        let package = std::fs::read_to_string(stage.join("usr/lib64/pkgconfig/gabion.pc")).unwrap();
        for line in ["prefix=/usr", "libdir=${prefix}/lib64", "includedir=${prefix}/include/gabion"] {
            assert!(package.lines().any(|is| is == line), "{package}");
        }
        let package = std::fs::read_to_string(stage.join("usr/lib64/cmake/gabion/gabion-config.cmake")).unwrap();
        assert!(package.contains("\"${_gabion_prefix}/include/gabion\""), "{package}");
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_written() {
    let (stage, built, empty) = (folder("refused"), built("refused-built", "so"), folder("refused-empty"));
    let refused = |variables: &[(&str, &str)], prefix: &str, built: &Path, because: &str| {
        let output = install()
            .env("DESTDIR", &stage)
            .envs(variables.iter().copied())
            .arg(prefix)
            .arg(built)
            .current_dir(&stage)
            .output()
            .unwrap();
        let said = text(&output);
        assert!(!output.status.success() && said.contains(because), "{variables:?} {prefix}: {said}");
        assert_eq!(below(&stage), [] as [PathBuf; 0], "{variables:?} {prefix}");
    };
    refused(&[("LIBDIR", "/opt/lib")], "/usr", &built, "LIBDIR=/opt/lib is not below /usr");
    refused(&[("LIBDIR", "/usrlib")], "/usr", &built, "LIBDIR=/usrlib is not below /usr");
    refused(&[("INCLUDEDIR", "/include")], "/usr", &built, "INCLUDEDIR=/include is not below /usr");
    for strange in ["../lib", ".", "/usr/", "lib/../../x", "a b", "a#b"] {
        refused(&[("LIBDIR", strange)], "/usr", &built, &format!("LIBDIR={strange} "));
    }
    refused(&[], "usr", &built, "PREFIX has to be absolute");
    refused(&[], "/usr", &empty, "libgabion_c.a is not there");
    refused(&[("CHECKED", "1")], "/usr", &built, "checked/libgabion_c.a is not there");
    refused(&[], "--help", &built, "Usage:");
}

#[test]
fn uninstalling_leaves_what_is_of_others() {
    let (stage, built) = (folder("uninstall"), built("uninstall-built", "so"));
    std::fs::create_dir(built.join("checked")).unwrap();
    for file in ["libgabion_c.a", "libgabion_c.so"] {
        std::fs::copy(built.join(file), built.join("checked").join(file)).unwrap();
    }
    let variables = [("LIBDIR", "lib/there"), ("INCLUDEDIR", "include/gabion")];
    let stranger = stage.join("opt/lib/there/libother.so");
    std::fs::create_dir_all(stranger.parent().unwrap()).unwrap();
    std::fs::write(&stranger, "").unwrap();
    run(install().env("DESTDIR", &stage).envs(variables).env("CHECKED", "1").arg("/opt").arg(&built));
    assert!(stage.join("opt/lib/there/libgabion-checked.a").exists());
    run(install().env("DESTDIR", &stage).envs(variables).args(["--uninstall", "/opt"]));
    assert_eq!(files_below(&stage), [stranger]);
    assert!(!stage.join("opt/lib/there/cmake/gabion").exists() && !stage.join("opt/share/licenses/gabion").exists());
}

/// A shared library of another system's, and a tool for it.
#[test]
fn an_installation_may_be_for_another_system() {
    let (prefix, built, tools) = (folder("foreign"), built("foreign-built", "dylib"), folder("foreign-tools"));
    let tool = script(&tools.join("its-objcopy"), "printf '%s\\n' \"$@\" >\"$0.told\"");
    run(install().env("OBJCOPY", &tool).arg(&prefix).arg(built));
    assert!(prefix.join("lib/libgabion.0.1.dylib").exists() && prefix.join("lib/libgabion.dylib").is_symlink());
    let package = std::fs::read_to_string(prefix.join("lib/cmake/gabion/gabion-config.cmake")).unwrap();
    assert!(package.contains("lib${_gabion_name}.0.1.dylib"), "{package}");
    let told = std::fs::read_to_string(tools.join("its-objcopy.told")).unwrap();
    assert!(told.contains(".llvmbc") && told.contains("lib/libgabion.a"), "{told}");
}

/// Writes a program for the shell.
fn script(at: &Path, lines: &str) -> PathBuf {
    std::fs::write(at, format!("#!/usr/bin/env bash\nset -euo pipefail\n{lines}\n")).unwrap();
    set_mode(at, 0o755);
    at.to_owned()
}

/// A folder with a stand-in for cargo, which puts libraries where it likes and says so in cargo's form.
fn cargo(name: &str, libraries: &[&str]) -> PathBuf {
    let tools = folder(name);
    let places: Vec<_> = libraries.iter().map(|library| tools.join(library)).collect();
    let in_json: Vec<_> = places.iter().map(|place| format!("{:?}", place.to_str().unwrap())).collect();
    std::fs::write(
        tools.join("messages"),
        format!(
            "{{\"reason\":\"compiler-artifact\",\"target\":{{\"name\":\"libc\"}},\"filenames\":[\"/x/liblibc.rlib\"]}}\n\
             {{\"reason\":\"build-script-executed\",\"out_dir\":\"/x/libgabion_c.a\"}}\n\
             {{\"reason\":\"compiler-artifact\",\"target\":{{\"name\":\"gabion_c\",\"src_path\":\"/x/lib.rs\"}},\
             \"filenames\":[{}],\"executable\":null,\"fresh\":true}}\n\
             {{\"reason\":\"build-finished\",\"success\":true}}\n",
            in_json.join(",")
        ),
    )
    .unwrap();
    let mut lines = vec![String::from("here=$(dirname \"$0\")\necho \"$*\" >>\"$here/calls\"")];
    for place in places {
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        lines.push(format!("printf '%s' \"$*\" >'{}'", place.display()));
    }
    lines.push("cat \"$here/messages\"".to_owned());
    script(&tools.join("cargo"), &lines.join("\n"));
    tools
}

/// What is found first here, and then what this process finds.
fn path(first: &Path) -> String {
    format!("{}:{}", first.display(), std::env::var("PATH").unwrap())
}

#[test]
fn libraries_are_taken_from_where_cargo_says() {
    let built = folder("told");
    let build = |tools: &Path| {
        let mut command = ours("build-c");
        command.env("PATH", path(tools)).arg(&built);
        command
    };
    // As for another target, in a folder with a strange name; and as for another system.
    for (ending, other) in [("so", "dylib"), ("dylib", "so")] {
        let (archive, shared) =
            ("a \"b\\c\"/release/libgabion_c.a", format!("a \"b\\c\"/release/libgabion_c.{ending}"));
        let tools = cargo("told-cargo", &[&shared, archive, "a \"b\\c\"/release/libgabion_c.rlib"]);
        run(&mut build(&tools));
        let made = std::fs::read_to_string(built.join("libgabion_c.a")).unwrap();
        assert!(made.contains("build") && made.contains("--release") && made.contains("--locked"), "{made}");
        assert!(built.join(format!("libgabion_c.{ending}")).exists());
        assert!(!built.join(format!("libgabion_c.{other}")).exists(), "one that was built before is still there");
    }
    let tools = cargo("told-both", &["libgabion_c.so", "libgabion_c.a"]);
    run(build(&tools).env("CHECKED", "1"));
    assert!(std::fs::read_to_string(built.join("checked/libgabion_c.a")).unwrap().contains("--features checked"));
    run(&mut build(&tools));
    assert!(!built.join("checked/libgabion_c.a").exists(), "one that was built before is still there");

    for (name, libraries, because) in [
        ("told-static", &["libgabion_c.a"][..], "no shared library"),
        (
            "told-two",
            &["x/libgabion_c.a", "x/libgabion_c.so", "y/libgabion_c.a", "y/libgabion_c.so"],
            "name one target",
        ),
    ] {
        let output = build(&cargo(name, libraries)).output().unwrap();
        assert!(!output.status.success() && text(&output).contains(because), "{}", text(&output));
    }
}

/// Who installs as root need not build as root, or have what that takes.
#[test]
fn make_installs_what_was_built_before() {
    if !has("make") {
        return;
    }
    let (target, prefix) = (folder("make-target"), folder("make-prefix"));
    let tools = cargo("make-cargo", &["libgabion_c.so", "libgabion_c.a"]);
    let make = |goal: &str, prefix: &Path| {
        let mut command = command("make");
        command.arg("-C").arg(root()).arg(goal).arg(format!("CARGO_TARGET_DIR={}", target.display()));
        command.arg(format!("PREFIX={}", prefix.display())).env("PATH", path(&tools)).env("OBJCOPY", "no-objcopy");
        command
    };
    let calls = || std::fs::read_to_string(tools.join("calls")).unwrap_or_default().lines().count();
    let unsaid = make("install-c", Path::new("")).output().unwrap();
    assert!(!unsaid.status.success() && text(&unsaid).contains("make install-c PREFIX="), "{}", text(&unsaid));
    assert_eq!(calls(), 0, "built before it was said where to install");

    run(make("build-c", &prefix).env("CHECKED", "1"));
    assert_eq!(calls(), 2);
    run(make("install-c", &prefix).env("CHECKED", "1"));
    assert!(prefix.join("lib/libgabion.a").exists() && prefix.join("lib/libgabion-checked.a").exists());
    assert_eq!(calls(), 2, "what was built was built once more");
    // Another target's libraries are others.
    run(make("install-c", &prefix).env("CARGO_BUILD_TARGET", "a-target"));
    assert_eq!(calls(), 3);
    run(&mut make("uninstall-c", &prefix));
    assert_eq!(files_below(&prefix), [] as [PathBuf; 0]);
}

/// What is in folders that compilers search by themselves needs no word to them.
#[test]
fn pkg_config_names_no_folder_of_the_system() {
    if !has("pkg-config") {
        return;
    }
    let (stage, built) = (folder("system"), built("system-built", "so"));
    let flags = |prefix: &str, libdir: &str| {
        run(install().env("DESTDIR", &stage).env("LIBDIR", libdir).arg(prefix).arg(&built));
        let at = format!("{}{prefix}/{libdir}/pkgconfig", stage.display());
        let mut command = command("pkg-config");
        command.env("PKG_CONFIG_PATH", at).env_remove("PKG_CONFIG_SYSROOT_DIR");
        command.env("PKG_CONFIG_SYSTEM_INCLUDE_PATH", "/usr/include");
        command.env("PKG_CONFIG_SYSTEM_LIBRARY_PATH", "/usr/lib:/usr/lib/machine");
        run(command.args(["--cflags", "--libs", "gabion"])).trim().to_owned()
    };
    assert_eq!(flags("/usr", "lib"), "-lgabion");
    assert_eq!(flags("/usr", "lib/machine"), "-lgabion");
    assert_eq!(flags("/usr/local", "lib"), "-I/usr/local/include -L/usr/local/lib -lgabion");
    // Any other may be moved: see packages.rs.
    let elsewhere = flags("/opt/gabion", "lib");
    assert!(elsewhere.contains(&format!("-L{}/opt/gabion/lib/", stage.display())), "{elsewhere}");
}

/// Which versions will do is asked without a language, which takes `CMake` no time.
#[test]
fn cmake_finds_the_versions_that_will_do() {
    if !has("cmake") {
        return;
    }
    let project = folder("versions");
    let lists = "cmake_minimum_required(VERSION 3.19)
project(stranger NONE)
set(CMAKE_SIZEOF_VOID_P ${POINTERS})
foreach(asked IN LISTS ASKED)
  set(gabion_FOUND)
  set(gabion_DIR gabion_DIR-NOTFOUND)
  find_package(gabion ${asked} QUIET NO_DEFAULT_PATH PATHS ${PREFIX})
  message(STATUS \"asked ${asked}: ${gabion_FOUND}\")
endforeach()
";
    std::fs::write(project.join("CMakeLists.txt"), lists).unwrap();
    let prefix = folder("versions-prefix");
    run(install().arg(&prefix).arg(built("versions-built", "so")));
    let answers = |asked: &[&str], pointers: &str| {
        let mut cmake = command("cmake");
        cmake.arg("-S").arg(&project).arg("-B").arg(project.join("build"));
        cmake.arg(format!("-DPREFIX={}", prefix.display())).arg(format!("-DASKED={}", asked.join(";")));
        let said = run(cmake.arg(format!("-DPOINTERS={pointers}")));
        asked.iter().map(|asked| said.contains(&format!("asked {asked}: 1\n"))).collect::<Vec<_>>()
    };
    let will_do =
        ["", "0", "0.1", "0.1.0", "0.1.0.0", "0.0...0.5", "0...<1", "0.1...0.1", "0.1.0...0.1.0", "0.1...<0.2"];
    // Another series may have another interface.
    let will_not = ["0.0", "0.0.9", "0.2", "0.1.1", "0.10", "1", "0.0...<0.1", "0.2...0.5", "0...0.0.9"];
    for pointers in ["", "8"] {
        assert_eq!(answers(&will_do, pointers), [true; 10], "{will_do:?}");
        assert_eq!(answers(&will_not, pointers), [false; 9], "{will_not:?}");
    }
    assert_eq!(answers(&will_do, "4"), [false; 10], "for 32 bits");
}
