//! Full decoding to planes, by `zune-jpeg`: no colour conversion and no upsampling but at the size that is wanted.

use std::io::Cursor;

use gabion_blocks::os::give_back_stack;
use gabion_blocks::{Buffer, Pool, Request};
use zune_jpeg::errors::DecodeErrors;
use zune_jpeg::zune_core::options::DecoderOptions;
use zune_jpeg::{JpegDecoder, RawImcuRowStatus};

use crate::assembly::Assembly;
use crate::decode::guarded;
use crate::error::{ImageError, Result};
use crate::format::Format;

/// Has the library read the header of a picture of `size`, as far as its first scan.
fn begin(bytes: &[u8], size: (u32, u32)) -> Result<JpegDecoder<Cursor<&[u8]>>> {
    // No larger than what the limits allowed: the library reads the header again, and takes memory for what it finds.
    let options = DecoderOptions::default().set_max_width(size.0 as usize).set_max_height(size.1 as usize);
    let mut decoder = JpegDecoder::new_with_options(Cursor::new(bytes), options.set_strict_mode(false));
    decoder.decode_headers().map_err(fault)?;
    Ok(decoder)
}

/// Whether the library takes the header. It refuses segments that others pass over, such as a profile's part 0 of 0.
pub fn takes_header(bytes: &[u8], size: (u32, u32)) -> bool {
    guarded(Format::Jpeg, || begin(bytes, size)).is_ok()
}

fn fault(error: DecodeErrors) -> ImageError {
    ImageError::corrupt(Format::Jpeg, error)
}

/// Pixels of a picture that takes so long that giving back some pages, and taking them again, does not show.
const LONG: u64 = 1 << 20;

/// Hands the rows of up to three planes of a picture on, strip by strip.
pub fn rows(bytes: &[u8], size: (u32, u32), count: usize, pool: &Pool, assembly: &mut Assembly) -> Result<()> {
    let done = strips(bytes, size, count, pool, assembly);
    // The library's frames take some hundred KiB, which each thread of a service would keep.
    if u64::from(size.0) * u64::from(size.1) >= LONG {
        give_back_stack();
    }
    done
}

#[inline(never)]
fn strips(bytes: &[u8], size: (u32, u32), count: usize, pool: &Pool, assembly: &mut Assembly) -> Result<()> {
    let mut decoder = begin(bytes, size)?;
    let mut raw = decoder.raw_output();
    let (Some(layout), Some(found)) = (raw.layout(), raw.num_components()) else {
        return Err(ImageError::corrupt(Format::Jpeg, "its planes have no size"));
    };
    if found != count {
        return Err(ImageError::corrupt(Format::Jpeg, "its headers contradict each other"));
    }
    let layout = &layout[..count];
    let strides: Vec<usize> = layout.iter().map(|plane| plane.stride).collect();
    let mut strips: Vec<Buffer> = layout
        .iter()
        .map(|plane| pool.rent(&Request::new(plane.stride * plane.vertical_sampling_factor * 8)))
        .collect::<std::result::Result<_, _>>()?;
    loop {
        // Nothing is allocated from strip to strip.
        let mut planes: [&mut [u8]; 3] = Default::default();
        planes.iter_mut().zip(&mut strips).for_each(|(plane, strip)| *plane = strip.as_mut_slice());
        match raw.decode_next_imcu_row(&mut planes[..count], &strides).map_err(fault)? {
            RawImcuRowStatus::RowReady { rows_written } => {
                for (layer, (strip, plane)) in strips.iter().zip(layout).enumerate() {
                    for row in strip.as_slice().chunks_exact(plane.stride).take(rows_written[layer]) {
                        assembly.push_row(layer, &row[..plane.width])?;
                    }
                }
            }
            RawImcuRowStatus::Complete => return Ok(()),
            _ => return Err(ImageError::truncated(Format::Jpeg)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::SaveOptions;
    use crate::image::Image;
    use crate::mode::Mode;
    use crate::resample::Resampling;
    use crate::sides::{Layers, Sides};

    #[test]
    fn a_picture_is_no_larger_than_what_was_checked() {
        let (pool, mut file) = (Pool::global(), Vec::new());
        let options = SaveOptions { progressive: true, ..SaveOptions::default() };
        Image::blank(pool, Mode::L, 64, 48).unwrap().encode(Format::Jpeg, &options, &mut file).unwrap();
        let layers = Layers::Pixels(Mode::L, Sides::covered(64, 48));
        let open = |size| {
            let mut assembly = Assembly::new(pool, &layers, (64, 48), Mode::L, Resampling::default())?;
            rows(&file, size, 1, pool, &mut assembly)
        };
        assert!(open((64, 48)).is_ok());
        for small in [(63, 48), (64, 47)] {
            let error = open(small).unwrap_err().to_string();
            assert!(error.contains("greater than"), "{error}");
        }
    }
}
