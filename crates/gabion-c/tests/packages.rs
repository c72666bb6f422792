//! A stranger's program finds the installation: by pkg-config, and by `CMake`.

mod toolchain;

use std::path::{Path, PathBuf};
use std::process::Command;

use toolchain::{Language, folder, has, installation, run};

const PROGRAM: &str = "#include <gabion.h>
#include <stdio.h>
int main(void) {
    void *node = NULL;
    if (gabion_slots_alloc(gabion_slots_global(), GABION_NODES, 48, 0, &node) != GABION_OK) return 1;
    if (gabion_slots_free(gabion_slots_global(), node) != GABION_OK) return 1;
    puts(gabion_version());
    return 0;
}
";

/// A stranger's folder with one program in it.
fn project(name: &str) -> PathBuf {
    let folder = folder(name);
    std::fs::write(folder.join("program.c"), PROGRAM).unwrap();
    folder
}

fn prints_the_version(program: &Path) {
    let said = run(Command::new(program).env("LD_LIBRARY_PATH", installation().join("lib")));
    assert_eq!(said, format!("{}\n", env!("CARGO_PKG_VERSION")));
}

fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", installation().join("lib/pkgconfig")).args(arguments).arg("gabion");
    run(&mut command).split_whitespace().map(String::from).collect()
}

#[test]
fn by_pkg_config() {
    if !has("pkg-config") {
        return;
    }
    assert_eq!(pkg_config(&["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    let project = project("pkg-config");
    let compile = |flags: &[String], name: &str| {
        let program = project.join(name);
        let mut compiler = Command::new(Language::C.compiler());
        run(compiler.arg(project.join("program.c")).arg("-o").arg(&program).args(flags));
        program
    };
    prints_the_version(&compile(&pkg_config(&["--cflags", "--libs"]), "shared"));
    let mut flags = pkg_config(&["--cflags", "--libs", "--static"]);
    let library = flags.iter().position(|flag| flag == "-lgabion").unwrap();
    flags[library] = "-l:libgabion.a".to_owned();
    let program = compile(&flags, "static");
    assert_eq!(run(&mut Command::new(program)), format!("{}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn by_cmake() {
    if !has("cmake") {
        return;
    }
    let project = project("cmake");
    let lists = "cmake_minimum_required(VERSION 3.13)
project(stranger C)
find_package(gabion 0.1 REQUIRED)
foreach(kind gabion static)
  add_executable(${kind} program.c)
  target_link_libraries(${kind} gabion::${kind})
endforeach()
";
    std::fs::write(project.join("CMakeLists.txt"), lists).unwrap();
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(&project).arg("-B").arg(project.join("build"));
    run(cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", installation().display())));
    run(Command::new("cmake").arg("--build").arg(project.join("build")));
    for kind in ["gabion", "static"] {
        prints_the_version(&project.join("build").join(kind));
    }
}

/// C++ gets the standard that the headers need, whatever the project asks for; `by_cmake` has C alone.
#[test]
fn cmake_has_cpp_compiled_as_the_headers_need_it() {
    if !has("cmake") || !Language::Cpp.is_there() {
        return;
    }
    let project = folder("standard");
    std::fs::write(project.join("program.cpp"), PROGRAM.replace("gabion.h>", "gabion.hpp>")).unwrap();
    let lists = "cmake_minimum_required(VERSION 3.13)
project(stranger CXX)
set(CMAKE_CXX_STANDARD 11)
find_package(gabion 0.1 REQUIRED)
add_executable(program program.cpp)
target_link_libraries(program gabion::gabion)
";
    std::fs::write(project.join("CMakeLists.txt"), lists).unwrap();
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(&project).arg("-B").arg(project.join("build"));
    run(cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", installation().display())));
    run(Command::new("cmake").arg("--build").arg(project.join("build")));
    prints_the_version(&project.join("build/program"));
}

/// Installs once more below `prefix`.
fn install_in(prefix: &Path, built: &Path, variables: &[(&str, &Path)]) {
    let libraries = installation().join("lib");
    // The libraries under the names that cargo gives them.
    for (from, to) in [("libgabion.a", "libgabion_c.a"), ("libgabion.so", "libgabion_c.so")] {
        std::fs::copy(libraries.join(from), built.join(to)).unwrap();
    }
    let mut command = Command::new("bash");
    command.arg(toolchain::crate_folder().join("../../scripts/install-c")).envs(variables.iter().copied());
    run(command.arg(prefix).arg(built));
}

/// As where `/lib` is a link to `/usr/lib`.
#[test]
#[cfg(unix)]
fn an_installation_is_found_by_way_of_a_link() {
    if !has("cmake") {
        return;
    }
    let (root, project) = (folder("merged"), project("merged-project"));
    install_in(&root.join("usr"), &folder("merged-built"), &[]);
    std::os::unix::fs::symlink("usr/lib", root.join("lib")).unwrap();
    let lists = "cmake_minimum_required(VERSION 3.13)
project(stranger C)
find_package(gabion 0.1 REQUIRED)
message(STATUS \"found by ${gabion_DIR}\")
add_executable(program program.c)
target_link_libraries(program gabion::gabion)
";
    std::fs::write(project.join("CMakeLists.txt"), lists).unwrap();
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(&project).arg("-B").arg(project.join("build"));
    let said = run(cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", root.display())));
    assert!(said.contains(&format!("found by {}", root.join("lib/cmake/gabion").display())), "{said}");
    run(Command::new("cmake").arg("--build").arg(project.join("build")));
    prints_the_version(&project.join("build/program"));
}

#[test]
fn an_installation_may_be_staged_and_have_another_folder() {
    let stage = folder("stage");
    let variables = [("DESTDIR", stage.as_path()), ("LIBDIR", Path::new("lib/there"))];
    install_in(Path::new("/opt/gabion"), &folder("built"), &variables);
    let prefix = stage.join("opt/gabion");
    for header in std::fs::read_dir(toolchain::crate_folder().join("include")).unwrap() {
        assert!(prefix.join("include").join(header.unwrap().file_name()).exists());
    }
    assert!(prefix.join("lib/there/libgabion.so").exists());
    if has("pkg-config") {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", prefix.join("lib/there/pkgconfig")).args(["--variable=libdir", "gabion"]);
        let libdir = PathBuf::from(run(&mut command).trim()).canonicalize().unwrap();
        assert_eq!(libdir, prefix.join("lib/there").canonicalize().unwrap());
    }
}

#[test]
#[cfg(target_os = "linux")]
fn the_checked_library_is_installed_beside_the_other() {
    let (prefix, built) = (folder("with-checked"), folder("with-checked-built"));
    std::fs::create_dir(built.join("checked")).unwrap();
    for (from, to) in [("libgabion.a", "libgabion_c.a"), ("libgabion.so", "libgabion_c.so")] {
        std::fs::copy(installation().join("lib").join(from), built.join("checked").join(to)).unwrap();
    }
    install_in(&prefix, &built, &[("CHECKED", Path::new("1"))]);
    if has("pkg-config") {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(["--libs", "gabion-checked"]);
        assert!(run(&mut command).contains("-lgabion-checked"));
    }
    if has("cmake") {
        let project = project("with-checked-project");
        let lists = "cmake_minimum_required(VERSION 3.13)
project(stranger C)
find_package(gabion 0.1 REQUIRED)
foreach(kind gabion checked checked_static)
  add_executable(${kind} program.c)
  target_link_libraries(${kind} gabion::${kind})
endforeach()
";
        std::fs::write(project.join("CMakeLists.txt"), lists).unwrap();
        let mut cmake = Command::new("cmake");
        cmake.arg("-S").arg(&project).arg("-B").arg(project.join("build"));
        run(cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())));
        run(Command::new("cmake").arg("--build").arg(project.join("build")));
        for kind in ["gabion", "checked", "checked_static"] {
            prints_the_version(&project.join("build").join(kind));
        }
    }
}

/// Parts of Rust's library hold a form of their code that clang's `-flto` takes for its own, and cannot read.
#[test]
fn the_static_library_holds_nothing_but_code_for_the_linker() {
    if !has("objcopy") {
        return;
    }
    let library = std::fs::read(installation().join("lib/libgabion.a")).unwrap();
    for section in [&b".llvmbc"[..], b".llvmcmd"] {
        assert!(!library.windows(section.len()).any(|bytes| bytes == section));
    }
}
