//! The smoke tests: programs in C and C++, plain, under valgrind, and with the sanitizers.

mod toolchain;

use std::path::{Path, PathBuf};
use std::process::Command;

use toolchain::{Language, Linked, compile, compile_alone, compile_library, compile_parts, crate_folder, has, run};

fn source(name: &str) -> PathBuf {
    crate_folder().join("tests").join(name)
}

fn runs_well(program: &Path) {
    assert_eq!(run(&mut Command::new(program)), "all well\n");
}

#[test]
fn a_program_in_c() {
    for name in ["smoke.c", "pile.c"] {
        for linked in [Linked::Shared, Linked::Static] {
            runs_well(&compile(Language::C, linked, &source(name), &[]));
        }
    }
}

#[test]
fn a_program_in_cpp() {
    if Language::Cpp.is_there() {
        for name in ["smoke.cpp", "pile.cpp", "typed.cpp"] {
            for linked in [Linked::Shared, Linked::Static] {
                runs_well(&compile(Language::Cpp, linked, &source(name), &[]));
            }
            runs_well(&compile(Language::Cpp, Linked::Static, &source(name), &["-O2", "-std=c++20"]));
        }
    }
}

#[test]
fn a_program_in_cpp_with_macros_of_other_libraries() {
    if Language::Cpp.is_there() {
        for standard in ["-std=c++17", "-std=c++20"] {
            runs_well(&compile(Language::Cpp, Linked::Static, &source("macros.cpp"), &[standard]));
        }
    }
}

#[test]
fn a_program_in_cpp_without_exceptions_and_types_at_run_time() {
    if Language::Cpp.is_there() {
        for standard in ["-std=c++17", "-std=c++20"] {
            let flags = ["-fno-exceptions", "-fno-rtti", standard];
            for name in ["smoke.cpp", "pile.cpp", "typed.cpp"] {
                runs_well(&compile(Language::Cpp, Linked::Static, &source(name), &flags));
            }
        }
    }
}

#[test]
fn under_valgrind() {
    for (language, name) in [(Language::C, "smoke.c"), (Language::C, "pile.c"), (Language::Cpp, "pile.cpp")] {
        if has("valgrind") && language.is_there() {
            let program = compile(language, Linked::Static, &source(name), &["-O1"]);
            let mut valgrind = Command::new("valgrind");
            valgrind.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
            valgrind.args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]);
            assert_eq!(run(valgrind.arg(program).arg("few")), "all well\n");
        }
    }
}

#[test]
fn with_the_sanitizers() {
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let (c, cpp) = (["smoke.c", "pile.c"].map(|name| (Language::C, name)), ["smoke.cpp", "pile.cpp"]);
    for (language, name) in c.into_iter().chain(cpp.map(|name| (Language::Cpp, name))) {
        if language.is_there() && sanitizes(language, &flags) {
            runs_well(&compile(language, Linked::Static, &source(name), &flags));
        }
    }
}

#[test]
fn the_system_in_place_of_slots_for_the_sanitizers() {
    let flags = ["-DGABION_SYSTEM", "-fsanitize=address"];
    if Language::Cpp.is_there() && sanitizes(Language::Cpp, &flags) {
        let program = compile(Language::Cpp, Linked::Static, &source("system.cpp"), &flags);
        runs_well(&program);
        for wrong in ["beyond", "after"] {
            let output = Command::new(&program).arg(wrong).output().unwrap();
            let said = toolchain::text(&output);
            assert!(!output.status.success() && said.contains("AddressSanitizer: heap-"), "{wrong}: {said}");
        }
    }
}

/// Whether the compiler has its sanitizers at hand; some packages come without.
fn sanitizes(language: Language, flags: &[&str]) -> bool {
    let folder = toolchain::folder(&format!("sanitizes-{language:?}"));
    let empty = folder.join(if language == Language::C { "empty.c" } else { "empty.cpp" });
    std::fs::write(&empty, "int main(void) { return 0; }\n").unwrap();
    let mut compiler = toolchain::compiler(language);
    let output = compiler.args(flags).arg(empty).arg("-o").arg(folder.join("empty")).output().unwrap();
    if !output.status.success() {
        eprintln!("skipped: {} has no sanitizers\n{}", language.compiler(), toolchain::text(&output));
    }
    output.status.success()
}

#[test]
fn a_scene_graph_s_allocator() {
    if Language::Cpp.is_there() {
        let example = crate_folder().join("examples/vsg_adapter.cpp");
        let said = run(&mut Command::new(compile(Language::Cpp, Linked::Static, &example, &["-O1"])));
        assert!(said.ends_with("all well\n"), "{said}");
    }
}

#[test]
fn a_library_that_is_closed_stays() {
    let program = compile_alone(&source("closing.c"));
    let library = toolchain::installation().join("lib").join(format!("libgabion.{}", std::env::consts::DLL_EXTENSION));
    assert_eq!(run(Command::new(program).arg(library)), "all well\n");
}

#[test]
#[cfg(target_os = "linux")]
fn libraries_with_a_copy_each() {
    if Language::Cpp.is_there() {
        let program = compile_alone(&source("copies.c"));
        for flags in [&["-O0"][..], &["-O2", "-std=c++20"]] {
            let one = compile_library(&source("copy.cpp"), flags);
            let two = one.with_file_name("other.so");
            std::fs::copy(&one, &two).unwrap();
            assert_eq!(run(Command::new(&program).arg(one).arg(two)), "all well\n");
        }
    }
}

#[test]
fn parts_with_and_without_exceptions_in_one_program() {
    if Language::Cpp.is_there() {
        let source = source("parts.cpp");
        let (with, without): (&[&str], &[&str]) = (&["-O0"], &["-O0", "-fno-exceptions", "-fno-rtti"]);
        for (name, flags) in [("parts-without-first", [without, with]), ("parts-with-first", [with, without])] {
            runs_well(&compile_parts(name, &flags.map(|flags| (source.as_path(), flags))));
        }
    }
}

#[test]
#[cfg(target_os = "linux")] // Others let a process have more than they were told.
fn a_program_without_memory() {
    assert_eq!(run(&mut Command::new(compile(Language::C, Linked::Static, &source("short.c"), &[]))), "all well\n");
}

#[test]
#[cfg(target_os = "linux")] // As above, and what a process has in memory is read as Linux says it.
fn a_program_of_which_malloc_has_nothing_left() {
    assert_eq!(run(&mut Command::new(compile(Language::C, Linked::Shared, &source("lack.c"), &[]))), "all well\n");
}

#[test]
#[cfg(target_os = "linux")]
fn threads_with_little() {
    runs_well(&compile(Language::C, Linked::Shared, &source("threads.c"), &[]));
}

#[test]
#[cfg(target_os = "linux")]
fn threads_that_were_asked_to_end() {
    for linked in [Linked::Shared, Linked::Static] {
        runs_well(&compile(Language::C, linked, &source("cancel.c"), &[]));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_first_use_in_cpp() {
    if Language::Cpp.is_there() {
        for flags in [&["-pthread"][..], &["-pthread", "-O2", "-std=c++20"]] {
            runs_well(&compile(Language::Cpp, Linked::Shared, &source("first.cpp"), flags));
        }
    }
}

#[test]
fn the_examples_of_the_documentation() {
    let page = std::fs::read_to_string(crate_folder().join("../../docs/c.md")).unwrap();
    let folder = toolchain::folder("documentation");
    let mut found = 0;
    for (fence, language, ending) in [("```c\n", Language::C, "c"), ("```cpp\n", Language::Cpp, "cpp")] {
        for (index, block) in page.split(fence).skip(1).enumerate() {
            let code = block.split("```").next().unwrap();
            let source = folder.join(format!("example{index}.{ending}"));
            std::fs::write(&source, code).unwrap();
            found += 1;
            if language.is_there() {
                // In a folder of their own: some make files.
                run(Command::new(compile(language, Linked::Shared, &source, &[])).current_dir(&folder));
            }
        }
    }
    assert!(found >= 8, "the page has lost its examples");
}
