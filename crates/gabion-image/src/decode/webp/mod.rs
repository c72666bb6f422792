//! The first picture of a WebP file, as a whole.
//!
//! | module | what it holds |
//! |---|---|
//! | `chunks` | where the file has what |
//! | `groups` | how many tables of codes a lossless picture needs |
//! | `picture` | the picture, which libwebp decodes |

mod chunks;

mod groups;

mod picture;

pub use picture::WebP;
