//! Many bytes of text at once.

#![forbid(unsafe_code)]

use wide::u8x16;

pub const LANE: usize = 16;
const CHUNK: usize = 64;

/// Whether text in JSON ends here, or goes on otherwise: a quote, a backslash or a control character.
#[inline]
pub fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// The place of the first special byte.
#[inline]
pub fn special(lane: &[u8; LANE]) -> Option<usize> {
    let bytes = u8x16::new(*lane);
    let is = |byte| bytes.cmp_eq(u8x16::splat(byte));
    let is_control = bytes.min(u8x16::splat(0x1f)).cmp_eq(bytes);
    let marks = (is(b'"') | is(b'\\') | is_control).move_mask();
    (marks != 0).then(|| marks.trailing_zeros() as usize)
}

/// Whether it is ASCII. Of text that is shorter than a chunk, this says no.
#[inline]
pub fn is_long_ascii(text: &[u8]) -> bool {
    let is_ascii = |chunk: &[u8; CHUNK]| chunk.iter().fold(0, |found, byte| found | byte) < 0x80;
    // The last chunk has bytes of the one before, too.
    text.last_chunk().is_some_and(is_ascii) && text.as_chunks().0.iter().all(is_ascii)
}
