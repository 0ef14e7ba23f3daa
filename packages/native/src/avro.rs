//! Records of Avro's binary form into columns. A record is taken only if nothing is left behind it.

#![forbid(unsafe_code)]

use crate::columns::{Column, Null, Values};
use crate::outcome::{Cells, Read, Refused};
use crate::{numbers, texts};

struct Cursor<'a> {
    rest: &'a [u8],
    cells: &'a Cells,
}

pub fn record(body: &[u8], columns: &mut [Column], cells: &Cells) -> Read<()> {
    let mut cursor = Cursor { rest: body, cells };
    fields(&mut cursor, columns)?;
    if cursor.rest.is_empty() { Ok(()) } else { Err(Refused) }
}

fn fields(cursor: &mut Cursor, columns: &mut [Column]) -> Read<()> {
    columns.iter_mut().try_for_each(|column| value(cursor, column))
}

fn value(cursor: &mut Cursor, column: &mut Column) -> Read<()> {
    if let Null::Branch(null) = column.null {
        let branch = cursor.long()?;
        if branch == null {
            column.null();
            return Ok(());
        }
        if branch != 1 - null {
            return Err(Refused);
        }
    }
    match &mut column.values {
        Values::Boolean(flags) => flags.push(match cursor.take(1)? {
            [0] => false,
            [1] => true,
            _ => return Err(Refused),
        }),
        Values::Whole { numbers, least, most, .. } => {
            let number = cursor.long()?;
            if !(*least..=*most).contains(&number) {
                return Err(Refused);
            }
            numbers.push(number);
        }
        Values::Float(numbers) => numbers.push(sure(f32::from_le_bytes(cursor.array()?), f32::is_nan)?),
        Values::Double(numbers) => numbers.push(sure(f64::from_le_bytes(cursor.array()?), f64::is_nan)?),
        Values::Text { ends, bytes } => {
            let text = cursor.counted()?;
            if std::str::from_utf8(text).is_err() {
                return Err(Refused);
            }
            append(ends, bytes, text)?;
        }
        Values::Choice { ends, bytes, of } => {
            let symbol = usize::try_from(cursor.long()?).ok().and_then(|place| of.get(place)).ok_or(Refused)?;
            append(ends, bytes, symbol.as_bytes())?;
        }
        Values::Binary { ends, bytes, .. } => append(ends, bytes, cursor.counted()?)?,
        Values::Fixed { bytes, size } => bytes.extend_from_slice(cursor.take(*size)?),
        Values::Uuid(bytes) => bytes.extend(texts::uuid(cursor.counted()?).ok_or(Refused)?),
        Values::Unscaled { unscaled, precision, bytes, .. } => {
            let raw = match bytes {
                Some(size) => cursor.take(*size)?,
                None => cursor.counted()?,
            };
            unscaled.push(numbers::unscaled(raw, *precision).ok_or(Refused)?);
        }
        Values::Struct(columns) => fields(cursor, columns)?,
        Values::List { ends, items } => {
            blocks(cursor, items.cells, |cursor| value(cursor, items))?;
            ends.push(i32::try_from(items.len()).map_err(|_| Refused)?);
        }
        Values::Map { ends, entries } => {
            let [keys, values] = &mut **entries;
            let start = keys.len();
            blocks(cursor, keys.cells + values.cells, |cursor| {
                value(cursor, keys)?;
                value(cursor, values)
            })?;
            if keys.repeats(start) {
                return Err(Refused); // the last one of a key counts
            }
            ends.push(i32::try_from(keys.len()).map_err(|_| Refused)?);
        }
        _ => return Err(Refused), // no type of Avro
    }
    column.present();
    Ok(())
}

/// Of what is not a number there are many forms of bytes.
fn sure<T: Copy>(number: T, is_odd: impl Fn(T) -> bool) -> Read<T> {
    if is_odd(number) { Err(Refused) } else { Ok(number) }
}

fn append(ends: &mut Vec<i32>, bytes: &mut Vec<u8>, text: &[u8]) -> Read<()> {
    bytes.extend_from_slice(text);
    ends.push(i32::try_from(bytes.len()).map_err(|_| Refused)?);
    Ok(())
}

/// Items of so many cells in blocks, each with its count; of a negative one the block's size stands behind it.
fn blocks(cursor: &mut Cursor, cells: usize, mut item: impl FnMut(&mut Cursor) -> Read<()>) -> Read<()> {
    loop {
        let mut count = cursor.long()?;
        if count == 0 {
            return Ok(());
        }
        if count < 0 {
            count = count.checked_neg().ok_or(Refused)?;
            cursor.long()?;
        }
        for _ in 0..count {
            let before = cursor.rest.len();
            cursor.cells.take(cells)?;
            item(cursor)?;
            if cursor.rest.len() == before {
                return Err(Refused); // a damaged count of what takes no bytes could fill the memory
            }
        }
    }
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Refused)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (&taken, rest) = self.rest.split_first_chunk().ok_or(Refused)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Bytes with their count in front.
    fn counted(&mut self) -> Read<&'a [u8]> {
        let count = usize::try_from(self.long()?).map_err(|_| Refused)?;
        self.take(count)
    }

    /// Seven bits in each byte, the lowest first; the lowest of all is the sign.
    #[inline]
    fn long(&mut self) -> Read<i64> {
        let (mut bits, mut shift) = (0_u64, 0);
        for (place, &byte) in self.rest.iter().enumerate() {
            if shift == 63 && byte > 1 {
                return Err(Refused); // more than 64 bits
            }
            bits |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                self.rest = &self.rest[place + 1..];
                return Ok((bits >> 1) as i64 ^ -((bits & 1) as i64));
            }
            shift += 7;
        }
        Err(Refused)
    }
}
