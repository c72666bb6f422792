//! Tells the compiler which interpreter this is built for, so that `cfg(Py_3_12)` and the like work.

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
