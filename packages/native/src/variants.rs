//! Columns of variants, as Parquet specifies them: of each value a dictionary of all names inside it, and the value, which
//! refers to names by their places in it.

#![forbid(unsafe_code)]

use std::collections::HashMap;

use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field, Fields};

use crate::cursor::Cursor;
use crate::ends::{again, shortened};
use crate::keys::Key;
use crate::numbers::{self, Exact};
use crate::outcome::{Read, Refused};

const VERSION: u8 = 1;
const SORTED: u8 = 1 << 4;
const SHORT_STRING: u8 = 1;
const OBJECT: u8 = 2;
const ARRAY: u8 = 3;
const NULL: u8 = 0;
const TRUE: u8 = 1 << 2;
const FALSE: u8 = 2 << 2;
const INT8: u8 = 3 << 2;
const INT16: u8 = 4 << 2;
const INT32: u8 = 5 << 2;
const INT64: u8 = 6 << 2;
const DOUBLE: u8 = 7 << 2;
const DECIMAL4: u8 = 8 << 2;
const DECIMAL8: u8 = 9 << 2;
const DECIMAL16: u8 = 10 << 2;
const STRING: u8 = 16 << 2;
const SHORT: usize = 64;
const SMALL: usize = 256;
/// The names of a value, and the names that are kept for the next one, are at most so many.
const MOST_NAMES: usize = 4096;
const KEPT_NAMES: usize = MOST_NAMES / 2;

/// What the field of a column says that has variants.
pub fn meaning() -> HashMap<String, String> {
    [("ARROW:extension:name", "calving.variant"), ("ARROW:extension:metadata", "")]
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .into()
}

pub struct Variants {
    dictionaries: Parts,
    values: Parts,
    names: Names,
    /// The fields of the objects that are being read, those of the outer ones first.
    open: Vec<(usize, u32)>,
    /// The fields of the objects that have been read, with the offsets of their values.
    fields: Vec<(usize, u32)>,
    objects: Vec<Object>,
    ends: Vec<u32>,
    text: Vec<u8>,
}

struct Parts {
    ends: Vec<i32>,
    bytes: Vec<u8>,
}

/// An object whose ids and offsets are written when all names of the value are known.
struct Object {
    at: usize,
    first: usize,
    count: usize,
    id_width: usize,
    offset_width: usize,
}

impl Variants {
    pub fn new() -> Variants {
        Variants {
            dictionaries: Parts::new(),
            values: Parts::new(),
            names: Names::new(),
            open: vec![],
            fields: vec![],
            objects: vec![],
            ends: vec![],
            text: vec![],
        }
    }

    pub fn reserve(&mut self, rows: usize) {
        self.dictionaries.ends.reserve(rows);
        self.values.ends.reserve(rows);
    }

    pub fn expect(&mut self, rows: usize, more: usize) {
        self.dictionaries.expect(rows, more);
        self.values.expect(rows, more);
    }

    pub fn blank(&mut self) {
        again(&mut self.dictionaries.ends);
        again(&mut self.values.ends);
    }

    pub fn truncate(&mut self, len: usize) {
        self.dictionaries.truncate(len);
        self.values.truncate(len);
    }

    /// A struct of both parts.
    pub fn parts(self) -> Result<(DataType, Vec<ArrayData>), ArrowError> {
        let field = |name| Field::new(name, DataType::Binary, false);
        let kind = DataType::Struct(Fields::from(vec![field("metadata"), field("value")]));
        Ok((kind, vec![self.dictionaries.finish()?, self.values.finish()?]))
    }

    /// A value of JSON, within so many objects and arrays.
    pub fn read(&mut self, cursor: &mut Cursor, depth: usize, deepest: usize) -> Read<()> {
        self.names.begin();
        self.open.clear();
        self.fields.clear();
        self.objects.clear();
        self.ends.clear();
        let levels = deepest.saturating_sub(depth);
        self.value(cursor, ROOT, levels)?;
        self.names.end();
        for object in &self.objects {
            object.write(&mut self.fields, &self.names.ids, &mut self.values.bytes)?;
        }
        self.dictionaries.bytes.extend_from_slice(&self.names.dictionary);
        self.dictionaries.end()?;
        self.values.end()
    }

    /// `parent`: the field that the value is in. `levels`: how many objects and arrays may be within each other.
    fn value(&mut self, cursor: &mut Cursor, parent: usize, levels: usize) -> Read<()> {
        match cursor.peek() {
            b'"' => {
                cursor.skip(1);
                let text = cursor.text(&mut self.text)?;
                return string(text, &mut self.values.bytes);
            }
            b'{' => return self.object(cursor, parent, levels.checked_sub(1).ok_or(Refused)?),
            b'[' => return self.array(cursor, parent, levels.checked_sub(1).ok_or(Refused)?),
            b't' => {
                cursor.word(b"true")?;
                self.values.bytes.push(TRUE);
            }
            b'f' => {
                cursor.word(b"false")?;
                self.values.bytes.push(FALSE);
            }
            b'n' => {
                cursor.word(b"null")?;
                self.values.bytes.push(NULL);
            }
            _ => number(numbers::exact(cursor)?, &mut self.values.bytes),
        }
        Ok(())
    }

    fn object(&mut self, cursor: &mut Cursor, parent: usize, levels: usize) -> Read<()> {
        cursor.skip(1);
        let (start, outer, inner) = (self.values.bytes.len(), self.open.len(), self.objects.len());
        // Most objects have as many fields as the last one in this place. Then their values need not be moved.
        let room = self.names.known[parent].head;
        self.values.bytes.resize(start + room, 0);
        let mut before = Before::Parent(parent);
        cursor.blanks();
        let mut more = !cursor.take(b'}');
        while more {
            cursor.expect(b'"')?;
            let name = self.names.read(cursor, before, &mut self.text)?;
            before = Before::Sibling(name);
            cursor.blanks();
            self.open.push((name, self.size(start + room)?));
            self.value(cursor, name, levels)?;
            more = cursor.goes_on(b'}')?;
        }
        let (count, first, size) = (self.open.len() - outer, self.fields.len(), self.size(start + room)?);
        self.fields.extend(self.open.drain(outer..));
        let (id_width, offset_width, large) = (self.names.width(), width(size), count >= SMALL);
        let sized = if large { 4 } else { 1 };
        let head = 1 + sized + count * id_width + (count + 1) * offset_width;
        self.make_room(start, room, head, inner);
        self.names.known[parent].head = head;
        let bytes = &mut self.values.bytes;
        let widths = (offset_width - 1) | (id_width - 1) << 2 | usize::from(large) << 4;
        bytes[start] = OBJECT | (widths as u8) << 2;
        put(bytes, start + 1, count as u32, sized);
        put(bytes, start + head - offset_width, size, offset_width);
        self.objects.push(Object { at: start + 1 + sized, first, count, id_width, offset_width });
        Ok(())
    }

    /// How many bytes have been written from there on.
    #[inline]
    fn size(&self, start: usize) -> Read<u32> {
        u32::try_from(self.values.bytes.len() - start).map_err(|_| Refused)
    }

    /// So many bytes at `start` instead of `room`; what is behind them moves, with all objects from `inner` on.
    #[inline]
    fn make_room(&mut self, start: usize, room: usize, wanted: usize, inner: usize) {
        if room == wanted {
            return;
        }
        let bytes = &mut self.values.bytes;
        let end = bytes.len();
        bytes.resize(bytes.len().max(end + wanted - room), 0);
        bytes.copy_within(start + room..end, start + wanted);
        bytes.truncate(end + wanted - room);
        self.objects[inner..].iter_mut().for_each(|object| object.at = object.at + wanted - room);
    }

    fn array(&mut self, cursor: &mut Cursor, parent: usize, levels: usize) -> Read<()> {
        cursor.skip(1);
        let (start, outer, inner) = (self.values.bytes.len(), self.ends.len(), self.objects.len());
        cursor.blanks();
        let mut more = !cursor.take(b']');
        while more {
            self.value(cursor, parent, levels)?;
            self.ends.push(self.size(start)?);
            more = cursor.goes_on(b']')?;
        }
        let count = self.ends.len() - outer;
        let width = width(self.ends[outer..].last().copied().unwrap_or(0));
        let large = count >= SMALL;
        let sized = if large { 4 } else { 1 };
        self.make_room(start, 0, 1 + sized + (count + 1) * width, inner);
        let bytes = &mut self.values.bytes;
        bytes[start] = ARRAY | (((width - 1) | usize::from(large) << 2) as u8) << 2;
        put(bytes, start + 1, count as u32, sized);
        put(bytes, start + 1 + sized, 0, width);
        for (place, end) in self.ends.drain(outer..).enumerate() {
            put(bytes, start + 1 + sized + (place + 1) * width, end, width);
        }
        Ok(())
    }
}

impl Object {
    /// Fields are in the order of their names, and their values in that of the text.
    fn write(&self, fields: &mut [(usize, u32)], ids: &[u32], bytes: &mut [u8]) -> Read<()> {
        let fields = &mut fields[self.first..self.first + self.count];
        fields.sort_unstable_by_key(|field| ids[field.0]);
        if fields.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(Refused); // of several fields of one name the last counts
        }
        let offsets = self.at + self.count * self.id_width;
        for (place, &(name, offset)) in fields.iter().enumerate() {
            if width(ids[name]) > self.id_width {
                return Err(Refused);
            }
            put(bytes, self.at + place * self.id_width, ids[name], self.id_width);
            put(bytes, offsets + place * self.offset_width, offset, self.offset_width);
        }
        Ok(())
    }
}

impl Parts {
    fn new() -> Parts {
        Parts { ends: vec![0], bytes: vec![] }
    }

    fn expect(&mut self, rows: usize, more: usize) {
        self.bytes.reserve(self.bytes.len() * 17 / 16 / rows * more + more);
    }

    fn truncate(&mut self, len: usize) {
        self.bytes.truncate(shortened(&mut self.ends, len));
    }

    fn end(&mut self) -> Read<()> {
        self.ends.push(i32::try_from(self.bytes.len()).map_err(|_| Refused)?);
        Ok(())
    }

    fn finish(self) -> Result<ArrayData, ArrowError> {
        let len = self.ends.len() - 1;
        let buffers = vec![Buffer::from_vec(self.ends), Buffer::from_vec(self.bytes)];
        ArrayData::builder(DataType::Binary).len(len).buffers(buffers).build()
    }
}

/// The number of no name: the parent of a value that is in no object.
const ROOT: usize = 0;

/// Where a name stands: behind the name of another field, or as the first in an object that is the value of a field.
#[derive(Clone, Copy)]
enum Before {
    Sibling(usize),
    Parent(usize),
}

/// Names by numbers, which they keep from value to value, and the dictionary of the last value.
struct Names {
    numbers: HashMap<Box<[u8]>, usize>,
    known: Vec<Name>,
    value: u64,
    /// The names of the value, in the order in which they stand there first.
    used: Vec<usize>,
    /// The same of the value that the dictionary is of.
    sorted: Vec<usize>,
    ids: Vec<u32>,
    dictionary: Vec<u8>,
}

struct Name {
    key: Key,
    /// The names that came last behind it, and first in it: most objects have their fields in the same order.
    next: usize,
    inner: usize,
    /// The bytes before the first value of the object that was last in it.
    head: usize,
    /// The value that has used it last.
    value: u64,
}

impl Names {
    fn new() -> Names {
        let mut names = Names {
            numbers: HashMap::new(),
            known: vec![],
            value: 0,
            used: vec![],
            sorted: vec![],
            ids: vec![],
            dictionary: vec![],
        };
        names.forget();
        names
    }

    fn forget(&mut self) {
        self.numbers.clear();
        self.known.clear();
        self.known.push(Name { key: Key::new(""), next: ROOT, inner: ROOT, head: 0, value: 0 });
        self.used.clear();
        self.make();
    }

    /// A value begins.
    fn begin(&mut self) {
        if self.known.len() > KEPT_NAMES {
            self.forget();
        }
        self.value += 1;
        self.used.clear();
    }

    /// A name behind its opening quote, and the colon behind it.
    #[inline]
    fn read(&mut self, cursor: &mut Cursor, before: Before, text: &mut Vec<u8>) -> Read<usize> {
        let guess = match before {
            Before::Sibling(name) => self.known[name].next,
            Before::Parent(name) => self.known[name].inner,
        };
        let begun = if guess == ROOT { None } else { self.known[guess].key.begins(cursor.rest()) };
        let number = match begun {
            Some(len) => {
                cursor.skip(len);
                guess
            }
            None => self.look_up(cursor, before, text)?,
        };
        let name = &mut self.known[number];
        if name.value != self.value {
            name.value = self.value;
            self.used.push(number);
        }
        Ok(number)
    }

    fn look_up(&mut self, cursor: &mut Cursor, before: Before, text: &mut Vec<u8>) -> Read<usize> {
        let name = cursor.text(text)?;
        let number = match self.numbers.get(name) {
            Some(&number) => number,
            None if self.known.len() > MOST_NAMES => return Err(Refused),
            None => {
                let number = self.known.len();
                let key = Key::new(std::str::from_utf8(name).map_err(|_| Refused)?);
                self.known.push(Name { key, next: ROOT, inner: ROOT, head: 0, value: 0 });
                self.numbers.insert(name.into(), number);
                number
            }
        };
        match before {
            Before::Sibling(name) => self.known[name].next = number,
            Before::Parent(name) => self.known[name].inner = number,
        }
        cursor.blanks();
        cursor.expect(b':')?;
        Ok(number)
    }

    /// The bytes of an id of a value's dictionary, if names that are still to come do not need more.
    fn width(&self) -> usize {
        width(self.known.len() as u32)
    }

    /// All names of the value are known.
    fn end(&mut self) {
        if self.used != self.sorted {
            self.make();
        }
    }

    fn make(&mut self) {
        self.sorted.clone_from(&self.used);
        let mut order = self.used.clone();
        order.sort_unstable_by(|&a, &b| self.known[a].key.name().cmp(self.known[b].key.name()));
        self.ids.resize(self.known.len(), 0);
        let mut ends = vec![0_u32];
        for (id, &number) in order.iter().enumerate() {
            self.ids[number] = id as u32;
            ends.push(ends[id] + self.known[number].key.name().len() as u32);
        }
        let width = width(ends[order.len()].max(order.len() as u32));
        self.dictionary.clear();
        self.dictionary.push(VERSION | SORTED | (width as u8 - 1) << 6);
        for number in std::iter::once(order.len() as u32).chain(ends) {
            self.dictionary.extend_from_slice(&number.to_le_bytes()[..width]);
        }
        for &number in &order {
            self.dictionary.extend_from_slice(self.known[number].key.name());
        }
    }
}

/// The bytes that an unsigned number takes.
#[inline]
fn width(number: u32) -> usize {
    (4 - number.leading_zeros() as usize / 8).max(1)
}

/// A number in so many bytes, each width in its own way: to copy a few bytes by a call takes longer than all the rest.
#[inline]
fn put(bytes: &mut [u8], at: usize, number: u32, width: usize) {
    let number = number.to_le_bytes();
    let bytes = &mut bytes[at..at + width];
    match width {
        1 => bytes[0] = number[0],
        2 => bytes.copy_from_slice(&number[..2]),
        3 => bytes.copy_from_slice(&number[..3]),
        _ => bytes.copy_from_slice(&number),
    }
}

fn string(text: &[u8], bytes: &mut Vec<u8>) -> Read<()> {
    if text.len() < SHORT {
        bytes.push(SHORT_STRING | (text.len() as u8) << 2);
    } else {
        bytes.push(STRING);
        bytes.extend_from_slice(&u32::try_from(text.len()).map_err(|_| Refused)?.to_le_bytes());
    }
    bytes.extend_from_slice(text);
    Ok(())
}

fn number(number: Exact, bytes: &mut Vec<u8>) {
    match number {
        Exact::Whole(number) => match i64::try_from(number) {
            Ok(whole) => integer(whole, bytes),
            Err(_) => decimal(number, 0, bytes),
        },
        Exact::Decimal { unscaled, scale } => decimal(unscaled, scale, bytes),
        Exact::NegativeZero => {
            bytes.push(DOUBLE);
            bytes.extend_from_slice(&(-0.0_f64).to_le_bytes());
        }
    }
}

fn integer(number: i64, bytes: &mut Vec<u8>) {
    if let Ok(number) = i8::try_from(number) {
        bytes.extend_from_slice(&[INT8, number as u8]);
    } else if let Ok(number) = i16::try_from(number) {
        let [a, b] = number.to_le_bytes();
        bytes.extend_from_slice(&[INT16, a, b]);
    } else if let Ok(number) = i32::try_from(number) {
        bytes.push(INT32);
        bytes.extend_from_slice(&number.to_le_bytes());
    } else {
        bytes.push(INT64);
        bytes.extend_from_slice(&number.to_le_bytes());
    }
}

fn decimal(unscaled: i128, scale: u8, bytes: &mut Vec<u8>) {
    // A scale is at most the digits of the width: Spark and DuckDB read no larger one.
    let digits = unscaled.unsigned_abs();
    if digits < 1_000_000_000 && scale <= 9 {
        bytes.extend_from_slice(&[DECIMAL4, scale]);
        bytes.extend_from_slice(&(unscaled as i32).to_le_bytes());
    } else if digits < 1_000_000_000_000_000_000 && scale <= 18 {
        bytes.extend_from_slice(&[DECIMAL8, scale]);
        bytes.extend_from_slice(&(unscaled as i64).to_le_bytes());
    } else {
        bytes.extend_from_slice(&[DECIMAL16, scale]);
        bytes.extend_from_slice(&unscaled.to_le_bytes());
    }
}
