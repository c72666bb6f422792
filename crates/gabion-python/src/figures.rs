//! Figures: what the calls named `stats` return.

use pyo3::prelude::*;

use crate::result;

/// A figure that Python sees as an int.
#[derive(Clone, Copy)]
pub(crate) struct Figure(pub u64);

impl<'py> IntoPyObject<'py> for Figure {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        result::number(py, self.0)
    }
}

/// A class of figures, made from a struct of Rust that has fields of the same names, and from what else is named after
/// them. Each name stands here once; `figures` gives those of the struct in their order.
macro_rules! figures {
    (
        $(#[$about:meta])*
        $seen:vis struct $class:ident from $source:ty {
            $($(#[$meaning:meta])* $name:ident,)+
        } $(and {
            $($(#[$other_meaning:meta])* $other:ident: $type:ty,)+
        })?
    ) => {
        $(#[$about])*
        $seen struct $class {
            $($(#[$meaning])* $name: $crate::figures::Figure,)+
            $($($(#[$other_meaning])* $other: $type,)+)?
        }

        impl $class {
            $seen fn new(stats: &$source $($(, $other: $type)+)?) -> Self {
                Self { $($name: $crate::figures::Figure(stats.$name),)+ $($($other,)+)? }
            }

            fn figures(&self) -> impl AsRef<[(&'static str, $crate::figures::Figure)]> + use<> {
                [$((stringify!($name), self.$name)),+]
            }
        }
    };
}
pub(crate) use figures;

/// Figures as a dict, in their order.
pub(crate) fn as_dict(py: Python<'_>, figures: impl AsRef<[(&'static str, Figure)]>) -> PyResult<Bound<'_, PyAny>> {
    let dict = result::dict(py)?;
    for &(name, value) in figures.as_ref() {
        dict.set_item(result::text(py, name)?, value)?;
    }
    Ok(dict)
}

/// Figures as a `repr` shows them: `name=value`, with commas.
pub(crate) fn listed(figures: impl AsRef<[(&'static str, Figure)]>) -> String {
    let fields: Vec<_> = figures.as_ref().iter().map(|(name, value)| format!("{name}={}", value.0)).collect();
    fields.join(", ")
}
