//! JPEG.
//!
//! Two libraries, by measurement. `zune-jpeg` gives the planes as they are stored, strip by strip and without an
//! assembler: nothing is converted or upsampled but at the size that is wanted. `mozjpeg` scales within the cosine
//! transform, reads CMYK, and builds with a C compiler alone; where there is an assembler it is built with SIMD, and
//! then gives pictures of half the size faster than the planes, and pixels of the full size faster than they can be
//! made of them.
//!
//! | module | what it holds |
//! |---|---|
//! | `header` | what the markers tell before a library is asked |
//! | `restarts` | a file in whose rows of blocks the library of planes comes upon no restart too early |
//! | `planes` | the planes as they are stored, by `zune-jpeg` |
//! | `scaled` | pixels, scaled or not, by `mozjpeg` |
//! | `picture` | which of both, and at what size |

mod header;

mod restarts;

mod planes;

mod scaled;

mod picture;

pub use picture::Jpeg;
