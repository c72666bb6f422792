//! An interpreter in this program, and the package in it: the sources of `python/`, and the extension as it was
//! compiled into this program. What lies in `tests/` and here can be imported, too.

use _native::_native as extension;
use pyo3::prelude::*;

/// Begins the interpreter, imports the package and does `work`. What fails ends the program.
pub fn with_package<T>(work: impl FnOnce(Python<'_>) -> PyResult<T>) -> T {
    pyo3::append_to_inittab!(extension);
    Python::initialize();
    Python::attach(|py| {
        import(py).and_then(|()| work(py)).unwrap_or_else(|error| {
            error.print(py);
            panic!("the interpreter is not ready");
        })
    })
}

fn import(py: Python<'_>) -> PyResult<()> {
    let sys = py.import("sys")?;
    for folder in ["../python", "../tests", "fuzz_targets"] {
        sys.getattr("path")?.call_method1("insert", (0, format!("{}/{folder}", env!("CARGO_MANIFEST_DIR"))))?;
    }
    // The package asks for it by this name.
    sys.getattr("modules")?.set_item("gabion._native", py.import("_native")?)?;
    py.import("gabion").map(drop)
}
