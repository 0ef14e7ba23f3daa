//! Names of fields as they stand in an object of JSON.

#![forbid(unsafe_code)]

/// A name with the quote and the colon behind it, whose first 16 bytes are compared at once.
pub struct Key {
    quoted: Box<[u8]>,
    /// Whether the name stands in JSON as it is.
    is_plain: bool,
    word: u128,
    mask: u128,
}

const BEHIND: &[u8] = b"\":";
const WORD: usize = 16;

impl Key {
    pub fn new(name: &str) -> Key {
        let quoted = [name.as_bytes(), BEHIND].concat();
        let is_plain = name.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\');
        let (mut word, mut mask) = ([0; WORD], [0; WORD]);
        for (place, &byte) in quoted.iter().take(WORD).enumerate() {
            (word[place], mask[place]) = (byte, u8::MAX);
        }
        Key { quoted: quoted.into(), is_plain, word: u128::from_le_bytes(word), mask: u128::from_le_bytes(mask) }
    }

    pub fn name(&self) -> &[u8] {
        &self.quoted[..self.quoted.len() - BEHIND.len()]
    }

    /// The length of the key, if the text begins with it.
    #[inline]
    pub fn begins(&self, text: &[u8]) -> Option<usize> {
        let len = self.quoted.len();
        let equal = match text.first_chunk() {
            Some(&first) if u128::from_le_bytes(first) & self.mask != self.word => false,
            Some(_) if len <= WORD => true,
            _ => text.starts_with(&self.quoted),
        };
        (equal && self.is_plain).then_some(len)
    }
}
