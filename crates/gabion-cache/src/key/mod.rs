//! What a key is to the cache: bytes of a table, and a hash that nobody outside can foresee.
//!
//! | module | what it holds |
//! |---|---|
//! | `image` | a key's image, as it stands before its value |
//! | `hash` | the keyed hash and its parts |

mod image;

mod hash;

pub(crate) use hash::{HOME_BITS, KEPT_BITS, KeyHash, KeyHasher, SEGMENT_BITS, TAG_BITS};
pub(crate) use image::{Image, LONGEST_KEY, parse_prefix};
