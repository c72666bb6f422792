//! Figures: what the calls named `stats` return.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::result;

/// A figure that Python sees as an int.
#[derive(Clone, Copy, Hash)]
pub(crate) struct Figure(pub u64);

impl<'py> IntoPyObject<'py> for Figure {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        result::number(py, self.0)
    }
}

impl<'py> IntoPyObject<'py> for &Figure {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        (*self).into_pyobject(py)
    }
}

impl<'py> FromPyObject<'_, 'py> for Figure {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        object.extract().map(Self)
    }
}

/// A class of figures, made from a struct of Rust that has fields of the same names, and from what else is named after
/// them; or a class of what else alone. Each name stands here once; `figures` gives those of the struct in their order.
macro_rules! figures {
    (
        $(#[$about:meta])*
        $seen:vis struct $class:ident {
            $($(#[$meaning:meta])* $name:ident: $type:ty,)+
        }
    ) => {
        $(#[$about])*
        $seen struct $class {
            $($(#[$meaning])* $name: $type,)+
        }

        impl $class {
            /// Everything by its name, as pickle stores it.
            fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                let state = $crate::result::dict(py)?;
                $(state.set_item($crate::result::text(py, stringify!($name))?, &self.$name)?;)+
                Ok(state.into_any())
            }

            fn from_state(state: &Bound<'_, PyAny>) -> PyResult<Self> {
                Ok(Self { $($name: $crate::figures::part(state, stringify!($name))?.extract()?,)+ })
            }

            fn hashed(&self) -> u64 {
                $crate::figures::hash(($(&self.$name,)+))
            }
        }
    };
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

            /// Everything by its name, as pickle stores it.
            fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                let state = $crate::figures::as_dict(py, self.figures())?;
                $($(state.set_item($crate::result::text(py, stringify!($other))?, &self.$other)?;)+)?
                Ok(state)
            }

            fn from_state(state: &Bound<'_, PyAny>) -> PyResult<Self> {
                Ok(Self {
                    $($name: $crate::figures::part(state, stringify!($name))?.extract()?,)+
                    $($($other: $crate::figures::part(state, stringify!($other))?.extract::<$type>()?,)+)?
                })
            }

            fn figures(&self) -> impl AsRef<[(&'static str, $crate::figures::Figure)]> + use<> {
                [$((stringify!($name), self.$name)),+]
            }

            fn hashed(&self) -> u64 {
                $crate::figures::hash([$(self.$name),+])
            }
        }
    };
}
pub(crate) use figures;

/// The methods of a class of figures: its own, and what lets it be shown, pickled, copied and compared.
macro_rules! figure_methods {
    ($class:ident { $($own:tt)* }) => {
        #[pymethods]
        impl $class {
            $($own)*

            fn __repr__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                $crate::figures::shown(slf.as_any(), &slf.get().state(slf.py())?)
            }

            /// What pickle and copy make it anew from.
            fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                $crate::figures::reduced(slf.as_any(), slf.get().state(slf.py())?)
            }

            #[staticmethod]
            fn _of(state: &Bound<'_, PyAny>) -> PyResult<Self> {
                Self::from_state(state)
            }

            fn __eq__(&self, py: Python<'_>, other: PyRef<'_, Self>) -> PyResult<bool> {
                self.state(py)?.eq(other.state(py)?)
            }

            fn __hash__(&self) -> u64 {
                self.hashed()
            }
        }
    };
}
pub(crate) use figure_methods;

/// What a state says of one name.
pub(crate) fn part<'py>(state: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    state.get_item(result::text(state.py(), name)?)
}

/// What `__reduce__` returns: the class's `_of`, and the state for it.
pub(crate) fn reduced<'py>(figures: &Bound<'py, PyAny>, state: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = figures.py();
    let of = figures.get_type().getattr(result::text(py, "_of")?)?;
    let arguments = result::tuple(py, [state].into_iter())?;
    Ok(result::pair(of, arguments.into_any())?.into_any())
}

/// Equal for equal figures.
pub(crate) fn hash(figures: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    figures.hash(&mut hasher);
    hasher.finish()
}

/// Figures as a dict, in their order.
pub(crate) fn as_dict(py: Python<'_>, figures: impl AsRef<[(&'static str, Figure)]>) -> PyResult<Bound<'_, PyAny>> {
    let dict = result::dict(py)?;
    for &(name, value) in figures.as_ref() {
        dict.set_item(result::text(py, name)?, value)?;
    }
    Ok(dict.into_any())
}

/// Figures as `repr` shows them: the name of their class, and all of their state.
pub(crate) fn shown<'py>(figures: &Bound<'py, PyAny>, state: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let class = figures.get_type().name()?;
    let fields: PyResult<Vec<_>> =
        state.cast::<PyDict>()?.iter().map(|(name, value)| Ok(format!("{name}={}", value.repr()?))).collect();
    Ok(result::text(figures.py(), &format!("{class}({})", fields?.join(", ")))?.into_any())
}
