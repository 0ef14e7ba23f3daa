//! A place in a text of JSON, and the tokens that are read there.

#![forbid(unsafe_code)]

use crate::lanes::{self, LANE};
use crate::outcome::{Cells, Read, Refused};

/// A place in a record. Beyond its end stand zeros, which no JSON has outside of text.
pub struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
    pub cells: &'a Cells,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a [u8], cells: &'a Cells) -> Cursor<'a> {
        Cursor { text, at: 0, cells }
    }

    #[inline]
    pub fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    #[inline]
    pub fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Whether this byte comes next; the place is behind it then.
    ///
    /// It is a branch, because the processor predicts branches. If the place were computed from the byte, whatever is read
    /// after it would have to wait for that byte, and reading would take a sixth longer.
    #[inline]
    pub fn take(&mut self, byte: u8) -> bool {
        if self.peek() != byte {
            return false;
        }
        self.at += 1;
        true
    }

    #[inline]
    pub fn expect(&mut self, byte: u8) -> Read<()> {
        if self.take(byte) { Ok(()) } else { Err(Refused) }
    }

    #[inline]
    pub fn blanks(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }

    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or(&[])
    }

    pub fn word(&mut self, word: &[u8]) -> Read<()> {
        if !self.rest().starts_with(word) {
            return Err(Refused);
        }
        self.at += word.len();
        Ok(())
    }

    #[inline]
    pub fn since(&self, start: usize) -> &'a [u8] {
        self.text.get(start..self.at).unwrap_or(&[])
    }

    pub fn text_since(&self, start: usize) -> Read<&'a str> {
        std::str::from_utf8(self.since(start)).map_err(|_| Refused)
    }

    /// A comma, or the bracket that ends what has begun; whether it goes on.
    #[inline]
    pub fn goes_on(&mut self, close: u8) -> Read<bool> {
        self.blanks();
        if self.take(b',') {
            self.blanks();
            return Ok(true);
        }
        self.expect(close).map(|()| false)
    }

    /// Text up to a quote, a backslash or a control character.
    #[inline]
    pub fn plain(&mut self) -> &'a [u8] {
        let start = self.at;
        while let Some(lane) = self.rest().first_chunk() {
            match lanes::special(lane) {
                Some(place) => {
                    self.at += place;
                    return self.since(start);
                }
                None => self.at += LANE,
            }
        }
        while self.text.get(self.at).is_some_and(|&byte| !lanes::is_special(byte)) {
            self.at += 1;
        }
        self.since(start)
    }

    /// Text without escapes, behind its opening quote.
    #[inline]
    pub fn simple(&mut self) -> Read<&'a [u8]> {
        let text = self.plain();
        self.expect(b'"').map(|()| text)
    }

    /// Any text, behind its opening quote; `room` takes it if there are escapes.
    #[inline]
    pub fn text<'b>(&mut self, room: &'b mut Vec<u8>) -> Read<&'b [u8]>
    where
        'a: 'b,
    {
        let start = self.at;
        let plain = self.plain();
        if self.take(b'"') {
            return Ok(plain);
        }
        self.at = start;
        room.clear();
        self.quoted(|part| room.extend_from_slice(part))?;
        Ok(room)
    }

    /// Any text, behind its opening quote.
    #[inline]
    pub fn quoted(&mut self, mut push: impl FnMut(&[u8])) -> Read<()> {
        loop {
            push(self.plain());
            if self.take(b'"') {
                return Ok(());
            }
            self.expect(b'\\')?;
            push(self.escape()?.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }

    pub fn escape(&mut self) -> Read<char> {
        let letter = self.peek();
        self.skip(1);
        Ok(match letter {
            b'"' | b'\\' | b'/' => letter as char,
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.code(),
            _ => return Err(Refused),
        })
    }

    /// A code point, of which two escapes may be halves.
    pub fn code(&mut self) -> Read<char> {
        let high = self.hex()?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high).ok_or(Refused);
        }
        self.word(b"\\u")?;
        let low = self.hex()?;
        if !(0xdc00..0xe000).contains(&low) {
            return Err(Refused);
        }
        char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)).ok_or(Refused)
    }

    pub fn hex(&mut self) -> Read<u32> {
        (0..4).try_fold(0, |code, _| {
            let digit = char::from(self.peek()).to_digit(16).ok_or(Refused)?;
            self.skip(1);
            Ok(code * 16 + digit)
        })
    }
}
