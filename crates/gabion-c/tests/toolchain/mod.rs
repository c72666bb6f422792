//! What the tests of this folder share: an installation, compilers, and running programs.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The crate's folder.
pub fn crate_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo puts the libraries that it builds for a test: beside the test's program.
fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// An empty folder; the last run's of the same test program and name is gone then.
pub fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// An installation made by `scripts/install-c` from the libraries that cargo has built for this test.
pub fn installation() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = folder("installation");
        let script = crate_folder().join("../../scripts/install-c");
        // By name, because sources from a package may have lost the right to be run.
        run(Command::new("bash").arg(script).arg(&prefix).arg(built()));
        prefix
    })
}

/// Runs a command to its end and returns what it printed; fails when it fails.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// All that a command printed.
pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Whether a tool can be started; tells the reader why a test is skipped when not.
pub fn has(tool: &str) -> bool {
    let there = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("skipped: there is no {tool} here");
    }
    there
}

/// How a program is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linked {
    Shared,
    Static,
}

/// The language of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    C,
    Cpp,
}

impl Language {
    /// The compiler to use.
    pub fn compiler(self) -> String {
        let (variable, name) = match self {
            Self::C => ("CC", "cc"),
            Self::Cpp => ("CXX", "c++"),
        };
        std::env::var(variable).unwrap_or_else(|_| name.to_owned())
    }

    /// Whether there is a compiler. One for C is required, one for C++ is not.
    pub fn is_there(self) -> bool {
        self == Self::C || has(&self.compiler())
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::C => &["-std=c99", "-D_POSIX_C_SOURCE=200809L"],
            Self::Cpp => &["-std=c++17"],
        }
    }
}

/// The compiler with strict warnings and the installed headers.
pub fn compiler(language: Language) -> Command {
    let mut command = Command::new(language.compiler());
    command.args(language.flags()).args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-g"]);
    command.arg("-I").arg(installation().join("include"));
    command
}

/// Compiles a program against the installation. Returns its path.
pub fn compile(language: Language, linked: Linked, source: &Path, flags: &[&str]) -> PathBuf {
    let name = source.file_stem().unwrap().to_str().unwrap();
    let program =
        folder(&format!("{name}-{language:?}-{linked:?}-{}", flags.concat().replace(['/', ','], "-"))).join(name);
    let libraries = installation().join("lib");
    let mut command = compiler(language);
    command.args(flags).arg(source).arg("-o").arg(&program);
    match linked {
        Linked::Static => command.args(static_library()),
        Linked::Shared => {
            let search = format!("-Wl,-rpath,{}", libraries.display());
            command.arg("-L").arg(&libraries).args(["-lgabion", "-pthread", &search])
        }
    };
    run(&mut command);
    program
}

/// What a link with the static library ends with.
fn static_library() -> impl IntoIterator<Item = PathBuf> {
    [installation().join("lib/libgabion.a"), "-pthread".into(), "-ldl".into(), "-lm".into()]
}

/// Compiles a program in C++ of parts, each of one source with flags of its own, which the linker sees in this order.
/// Returns its path.
pub fn compile_parts(name: &str, parts: &[(&Path, &[&str])]) -> PathBuf {
    let folder = folder(name);
    let mut link = compiler(Language::Cpp);
    for (index, (source, flags)) in parts.iter().enumerate() {
        let object = folder.join(format!("part{index}.o"));
        run(compiler(Language::Cpp).args(*flags).arg("-c").arg(source).arg("-o").arg(&object));
        link.arg(object);
    }
    let program = folder.join(name);
    run(link.arg("-o").arg(&program).args(static_library()));
    program
}

/// Compiles a shared library in C++ that contains the static one. Returns its path.
pub fn compile_library(source: &Path, flags: &[&str]) -> PathBuf {
    let name = source.file_stem().unwrap().to_str().unwrap();
    let library = folder(&format!("{name}-library{}", flags.concat())).join(format!("{name}.so"));
    let mut command = compiler(Language::Cpp);
    command.args(["-shared", "-fPIC", "-Wl,-z,nodelete"]).args(flags).arg(source).arg("-o").arg(&library);
    run(command.args(static_library()));
    library
}

/// Compiles a program in C that finds the library by itself, or does without. Returns its path.
pub fn compile_alone(source: &Path) -> PathBuf {
    let name = source.file_stem().unwrap().to_str().unwrap();
    let program = folder(&format!("{name}-alone")).join(name);
    run(compiler(Language::C).arg(source).arg("-o").arg(&program).args(["-pthread", "-ldl"]));
    program
}
