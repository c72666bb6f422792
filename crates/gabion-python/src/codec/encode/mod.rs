//! Objects to bytes.
//!
//! | module | what it writes |
//! |---|---|
//! | `memo` | nothing: it knows which objects were met, and where |
//! | `scratch` | nothing: it is what a thread keeps for the next encoding |
//! | `place` | nothing: it says where a value lies that cannot be stored |
//! | `encoder` | the walk, with its own stack |
//! | `quick`, `leaf` | values that hold no others: those that most fields are; all |
//! | `datetime` | the family of `datetime` |
//! | `container`, `array`, `instance` | lists, tuples, dicts, sets; arrays of NumPy; slots and `__dict__` |
//! | `made` | nothing: it follows reducers that make what others are asked for, without end |
//! | `reduce` | whatever has no form of its own, through `__reduce_ex__` |

mod memo;
pub mod scratch;
mod place;
pub mod encoder;
mod datetime;
pub mod quick;
mod leaf;
mod container;
mod array;
mod instance;
mod made;
mod reduce;

pub use encoder::encode;
