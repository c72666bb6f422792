//! `gabion.h` is written by hand; this proves that it says what the library is.

mod toolchain;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::process::Command;

use gabion_c::pile::{OPENINGS, PileFigures};
use gabion_c::pool::{CLEAN, PoolFigures, SETTINGS};
use gabion_c::slots::{AFFINITIES, ALL_AFFINITIES, NO_LIMIT, SlotsFigures};
use gabion_c::status::Status;
use gabion_c::version::VERSION;
use gabion_c::walk::PileCursor;
use toolchain::{Language, Linked, compile, compiler, crate_folder, folder, run};

fn header() -> String {
    std::fs::read_to_string(crate_folder().join("include/gabion.h")).unwrap()
}

/// The prototypes of everything that the library exports, made from its sources.
fn prototypes() -> String {
    let names = [
        ("Status", "gabion_status"),
        ("SlotsHandle", "gabion_slots"),
        ("PileHandle", "gabion_pile"),
        ("SlotsFigures", "gabion_slots_figures"),
        ("PoolFigures", "gabion_pool_figures"),
        ("PileFigures", "gabion_pile_figures"),
        ("PileCursor", "gabion_pile_cursor"),
        ("ViewHandle", "gabion_view"),
    ];
    let mut config =
        cbindgen::Config { language: cbindgen::Language::C, style: cbindgen::Style::Type, ..Default::default() };
    config.no_includes = true;
    config.export.item_types = vec![cbindgen::ItemType::Functions];
    config.export.rename = names.iter().map(|(rust, c)| ((*rust).to_owned(), (*c).to_owned())).collect();
    let sources = ["status", "slots", "pool", "pile", "walk", "view", "version"];
    let builder = sources.iter().fold(cbindgen::Builder::new().with_config(config), |builder, name| {
        builder.with_src(crate_folder().join(format!("src/{name}.rs")))
    });
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

/// The names of all functions that a text in C declares.
fn functions(text: &str) -> Vec<String> {
    // Comments may mention any name.
    let bare: String = text.split("/*").map(|piece| piece.split_once("*/").map_or(piece, |(_, code)| code)).collect();
    let mut found: Vec<String> = bare
        .split('(')
        .filter_map(|piece| piece.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next())
        .filter(|name| name.starts_with("gabion_"))
        .map(String::from)
        .collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn every_function_has_the_same_type_in_both() {
    let generated = prototypes();
    assert_eq!(functions(&header()), functions(&generated), "\n{generated}");
    // A compiler refuses two declarations of one function that differ.
    let check = |name: &str, prototypes: &str| {
        let source = folder(name).join("agreement.c");
        std::fs::write(&source, format!("#include <gabion.h>\n{prototypes}\nint main(void) {{ return 0; }}\n"))
            .unwrap();
        compiler(Language::C).arg("-fsyntax-only").arg(&source).output().unwrap()
    };
    let output = check("same", &generated);
    assert!(output.status.success(), "{}", toolchain::text(&output));
    for (from, to) in [("uint32_t index", "uint64_t index"), ("bool gabion_slots_owns", "size_t gabion_slots_owns")] {
        assert!(generated.contains(from), "{generated}");
        assert!(!check("other", &generated.replacen(from, to, 1)).status.success(), "{to} passed");
    }
}

#[test]
fn the_shared_library_exports_what_the_header_declares_and_nothing_else() {
    let library = toolchain::installation().join("lib/libgabion.so");
    if !library.exists() || !toolchain::has("nm") {
        return;
    }
    let table = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let mut exported: Vec<&str> = table.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    exported.sort_unstable();
    // The language's own hooks are none of the interface.
    exported.retain(|name| !name.starts_with("rust_") && !name.starts_with('_'));
    assert_eq!(exported, functions(&header()));
}

/// What the header says, as a C compiler sees it: constants, sizes and offsets by name.
fn seen_by_c(expressions: &[String]) -> BTreeMap<String, i128> {
    let mut program = String::from("#include <gabion.h>\n#include <stdio.h>\nint main(void) {\n");
    for expression in expressions {
        // Numbers that do not fit a signed one are printed as unsigned.
        writeln!(program, "    if (({expression}) < 0) printf(\"%lld {expression}\\n\", (long long)({expression}));")
            .unwrap();
        writeln!(program, "    else printf(\"%llu {expression}\\n\", (unsigned long long)({expression}));").unwrap();
    }
    program.push_str("    return 0;\n}\n");
    let source = folder("numbers").join("numbers.c");
    std::fs::write(&source, program).unwrap();
    let flags = ["-Wno-type-limits", "-Wno-long-long"];
    let said = run(&mut Command::new(compile(Language::C, Linked::Static, &source, &flags)));
    let parse = |line: &str| line.split_once(' ').map(|(number, name)| (name.to_owned(), number.parse().unwrap()));
    said.lines().filter_map(parse).collect()
}

macro_rules! layout {
    ($table:ident, $rust:ident, $c:literal, $($field:ident)*) => {
        $table.push((format!("sizeof({})", $c), size_of::<$rust>() as i128));
        $($table.push((format!("offsetof({}, {})", $c, stringify!($field)), offset_of!($rust, $field) as i128));)*
    };
}

#[test]
fn numbers_and_layouts_are_the_same() {
    let mut table: Vec<(String, i128)> = Vec::new();
    table.extend(Status::ALL.iter().map(|(name, status)| ((*name).to_owned(), i128::from(status.0))));
    table.extend(AFFINITIES.iter().map(|(name, affinity)| ((*name).to_owned(), i128::from(affinity.index()))));
    table.extend(SETTINGS.iter().map(|(name, setting, _)| ((*name).to_owned(), i128::from(*setting))));
    table.push(("GABION_ALL_AFFINITIES".to_owned(), i128::from(ALL_AFFINITIES)));
    table.push(("GABION_NO_LIMIT".to_owned(), i128::from(NO_LIMIT)));
    table.push(("GABION_CLEAN".to_owned(), i128::from(CLEAN)));
    table.extend(OPENINGS.iter().map(|(name, flag)| ((*name).to_owned(), i128::from(*flag))));
    let constants = table.len();
    let mut parts = env!("CARGO_PKG_VERSION").split('.');
    for part in ["MAJOR", "MINOR", "PATCH"] {
        table.push((format!("GABION_VERSION_{part}"), parts.next().unwrap().parse().unwrap()));
    }
    layout!(table, Status, "gabion_status",);
    layout!(table, SlotsFigures, "gabion_slots_figures", live_objects live_bytes peak_bytes free_bytes wasted_bytes
        blocks large_objects large_bytes mapped_bytes late_double_frees);
    layout!(table, PoolFigures, "gabion_pool_figures", in_use idle mapped peak held live requests fresh trimmed refused);
    layout!(table, PileFigures, "gabion_pile_figures", objects used_bytes reserved_bytes overhead_bytes max_bytes
        blocks large_objects);
    layout!(table, PileCursor, "gabion_pile_cursor", state);
    let names: Vec<String> = table.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(seen_by_c(&names), table.iter().cloned().collect());

    // And the header has no constant that is not in the table.
    let header = header();
    let own = |line: &&str| line.trim_start().starts_with("GABION_") || line.starts_with("#define GABION_");
    let defined = header.lines().filter(own).filter(|line| line.contains(" = ") || line.matches(' ').count() > 1);
    let defined = defined.filter(|line| !line.contains("GABION_VERSION")).count();
    assert_eq!(defined, constants);
    assert!(header.contains(&format!("#define GABION_VERSION {VERSION:?}")));
}
