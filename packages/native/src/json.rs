//! Objects of JSON into columns, one record at a time.
//!
//! A record is taken only if each of its values becomes what the reference makes of it: Python's reader of JSON,
//! fractions with all their digits, and then the conversion to the column's type. All others are refused.

#![forbid(unsafe_code)]

use std::collections::HashMap;

use crate::columns::{Column, Null, Values, Wanted};
use crate::cursor::Cursor;
use crate::lanes;
use crate::outcome::{Cells, Read, Refused};
use crate::shapes::{END, NOTHING, Shape, Shapes};
use crate::{numbers, texts, times};

/// Objects and arrays in each other, whatever the sink allows: the stack has an end.
const DEEPEST: usize = 64;
/// The names of an object with more columns are in a table: to go through them takes long if a record has many fields.
const FEW: usize = 32;

/// How objects are read. `unknown`: what fields may be that are no columns. `fold`: a name is what it is in lower case,
/// as those of the columns are. `nesting`: levels of objects and arrays.
pub struct Rules {
    pub unknown: Unknown,
    pub fold: bool,
    pub nesting: usize,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Unknown {
    /// They mean nothing.
    Anything,
    Null,
    /// None at all: objects are read whole, and by their shapes.
    Refused,
}

pub struct Reader {
    unknown: Unknown,
    fold: bool,
    deepest: usize,
    /// Whether the reader tells what fields records lack.
    tracks: bool,
    /// Arrays and maps around a value.
    within: usize,
    /// Objects so far, refused ones among them.
    objects: u64,
    shapes: Shapes,
    /// By where the columns of an object are.
    tables: HashMap<usize, Table>,
}

/// The places of columns by their names, as they are and in lower case.
#[derive(Default)]
struct Table {
    exact: HashMap<Vec<u8>, usize>,
    folded: HashMap<Vec<u8>, usize>,
}

impl Table {
    fn new(columns: &[Column]) -> Table {
        let mut table = Table::default();
        for (place, column) in columns.iter().enumerate() {
            for name in column.names() {
                table.exact.entry(name.to_vec()).or_insert(place);
                table.folded.entry(name.to_ascii_lowercase()).or_insert(place);
            }
        }
        table
    }
}

impl Reader {
    pub fn new(rules: &Rules, fields: &[Wanted]) -> Reader {
        let deepest = rules.nesting.min(DEEPEST);
        Reader {
            unknown: rules.unknown,
            fold: rules.fold,
            deepest,
            tracks: fields.iter().any(Wanted::is_tracked),
            within: 0,
            objects: 0,
            shapes: Shapes::new(),
            tables: HashMap::new(),
        }
    }

    /// The record is this row.
    pub fn record(&mut self, text: &[u8], columns: &mut [Column], row: usize, cells: &Cells) -> Read<()> {
        if !lanes::is_long_ascii(text) && std::str::from_utf8(text).is_err() {
            return Err(Refused);
        }
        let cursor = &mut Cursor::new(text, cells);
        cursor.blanks();
        self.shapes.begin();
        self.within = 0;
        self.object(cursor, columns, 1)?;
        cursor.blanks();
        if cursor.at() < text.len() {
            return Err(Refused);
        }
        if self.is_whole() || self.tracks { self.shapes.end(row) } else { Ok(()) }
    }

    pub fn finish(self) -> Vec<Shape> {
        self.shapes.finish()
    }

    fn is_whole(&self) -> bool {
        self.unknown == Unknown::Refused
    }

    fn object(&mut self, cursor: &mut Cursor, columns: &mut [Column], depth: usize) -> Read<()> {
        cursor.expect(b'{')?;
        if depth > self.deepest {
            return Err(Refused);
        }
        self.objects += 1;
        let number = self.objects;
        let (mut found, mut next) = (0, 0);
        cursor.blanks();
        let mut more = !cursor.take(b'}');
        while more {
            cursor.expect(b'"')?;
            // Most records have their fields in the order of the columns.
            let place = match columns.get(next).and_then(|column| column.key.begins(cursor.rest())) {
                Some(len) => {
                    cursor.skip(len);
                    Some(next)
                }
                None => {
                    let name = cursor.simple()?;
                    cursor.blanks();
                    cursor.expect(b':')?;
                    self.place(columns, name)?
                }
            };
            cursor.blanks();
            if let Some(place) = place {
                let column = &mut columns[place];
                if column.seen_in == number {
                    return Err(Refused); // of several fields of one name the last counts
                }
                column.seen_in = number;
                if self.is_whole() {
                    self.shapes.step(i32::try_from(place).map_err(|_| Refused)?);
                }
                self.value(cursor, column, depth)?;
                (found, next) = (found + 1, place + 1);
            } else {
                match self.unknown {
                    Unknown::Anything => self.unwanted(cursor, depth)?,
                    Unknown::Null => cursor.word(b"null")?,
                    Unknown::Refused => return Err(Refused),
                }
            }
            more = cursor.goes_on(b'}')?;
        }
        if found < columns.len() {
            columns.iter_mut().filter(|column| column.seen_in != number).try_for_each(|column| self.missing(column))?;
        }
        Ok(())
    }

    /// A field that an object lacks. Of a column of many values at once it cannot be told which ones lack it.
    fn missing(&mut self, column: &mut Column) -> Read<()> {
        let Some(number) = column.tracked else { return nothing(column) };
        if self.within > 0 {
            return Err(Refused);
        }
        self.shapes.step(number);
        column.null();
        Ok(())
    }

    /// The column of a field.
    fn place(&mut self, columns: &[Column], name: &[u8]) -> Read<Option<usize>> {
        if columns.len() > FEW {
            return self.place_in_table(columns, name);
        }
        let found = columns.iter().position(|column| column.names().any(|own| own == name));
        if found.is_some() || !self.fold {
            return Ok(found);
        }
        // What other letters are in lower case is not known here.
        if !name.is_ascii() {
            return Err(Refused);
        }
        Ok(columns.iter().position(|column| column.names().any(|own| own.eq_ignore_ascii_case(name))))
    }

    fn place_in_table(&mut self, columns: &[Column], name: &[u8]) -> Read<Option<usize>> {
        let table = self.tables.entry(columns.as_ptr() as usize).or_insert_with(|| Table::new(columns));
        let place = table.exact.get(name).copied();
        if place.is_some() || !self.fold {
            return Ok(place);
        }
        if name.is_ascii() { Ok(table.folded.get(&name.to_ascii_lowercase()).copied()) } else { Err(Refused) }
    }

    // As a call, it would hand the cursor over in memory for each field.
    #[inline(always)]
    fn value(&mut self, cursor: &mut Cursor, column: &mut Column, depth: usize) -> Read<()> {
        let first = cursor.peek();
        if first == b'n' {
            cursor.word(b"null")?;
            if self.is_whole() && column.values.has_objects() {
                self.shapes.step(NOTHING);
            }
            return nothing(column);
        }
        match &mut column.values {
            Values::Long(numbers) => numbers.push(long(cursor)?),
            Values::Whole { numbers, least, most, .. } => {
                let number = numbers::whole(cursor)?;
                if !(*least..=*most).contains(&number) {
                    return Err(Refused);
                }
                numbers.push(number);
            }
            Values::Float(numbers) => numbers.push(numbers::single(numbers::double(cursor)?).ok_or(Refused)?),
            Values::Double(numbers) => numbers.push(numbers::double(cursor)?),
            Values::Fraction { numbers, exact } => numbers.push(numbers::fraction(cursor, *exact)?),
            Values::Text { ends, bytes } => {
                cursor.expect(b'"')?;
                cursor.quoted(|part| bytes.extend_from_slice(part))?;
                ends.push(i32::try_from(bytes.len()).map_err(|_| Refused)?);
            }
            Values::Boolean(flags) => {
                cursor.word(if first == b't' { b"true" } else { b"false" })?;
                flags.push(first == b't');
            }
            Values::Instant { numbers, nanos, utc, per_second } => {
                numbers.push(instant(cursor, *nanos, *utc, *per_second)?)
            }
            Values::Date(days) => days.push(day(cursor)?),
            Values::Time { micros, per_second } => micros.push(time(cursor, *per_second)?),
            Values::Binary { ends, bytes, padded } => {
                cursor.expect(b'"')?;
                texts::base64(cursor.simple()?, *padded, bytes).ok_or(Refused)?;
                ends.push(i32::try_from(bytes.len()).map_err(|_| Refused)?);
            }
            Values::Fixed { bytes, size } => {
                let start = bytes.len();
                cursor.expect(b'"')?;
                texts::base64(cursor.simple()?, false, bytes).ok_or(Refused)?;
                if bytes.len() - start != *size {
                    return Err(Refused);
                }
            }
            Values::Uuid(bytes) => {
                cursor.expect(b'"')?;
                bytes.extend(texts::uuid(cursor.simple()?).ok_or(Refused)?);
            }
            Values::Decimal { unscaled, precision, scale } => {
                // As text it is the same number.
                let quoted = cursor.take(b'"');
                unscaled.push(numbers::decimal(cursor, (*precision).into(), (*scale).into(), true)?);
                if quoted {
                    cursor.expect(b'"')?;
                }
            }
            Values::Unscaled { unscaled, precision, scale, .. } => {
                if cursor.take(b'"') {
                    let mut bytes = vec![];
                    texts::base64(cursor.simple()?, true, &mut bytes).ok_or(Refused)?;
                    unscaled.push(numbers::unscaled(&bytes, *precision).ok_or(Refused)?);
                } else {
                    unscaled.push(numbers::decimal(cursor, (*precision).into(), (*scale).into(), false)?);
                }
            }
            Values::Variant(variants) => variants.read(cursor, depth, self.deepest)?,
            Values::Choice { .. } | Values::Other => return Err(Refused),
            Values::Struct(columns) => {
                self.object(cursor, columns, depth + 1)?;
                if self.is_whole() {
                    self.shapes.step(END);
                }
            }
            Values::List { ends, items } => {
                self.within += 1;
                self.list(cursor, items, depth + 1)?;
                self.within -= 1;
                ends.push(i32::try_from(items.len()).map_err(|_| Refused)?);
            }
            Values::Map { ends, entries } => {
                self.within += 1;
                self.map(cursor, entries, depth + 1)?;
                self.within -= 1;
                ends.push(i32::try_from(entries[0].len()).map_err(|_| Refused)?);
            }
        }
        column.present();
        Ok(())
    }

    fn list(&mut self, cursor: &mut Cursor, items: &mut Column, depth: usize) -> Read<()> {
        cursor.expect(b'[')?;
        if depth > self.deepest {
            return Err(Refused);
        }
        cursor.blanks();
        if cursor.take(b']') {
            if self.is_whole() && items.values.has_objects() {
                self.shapes.step(NOTHING);
            }
            return Ok(());
        }
        let start = self.shapes.here();
        cursor.cells.take(items.cells)?;
        self.value(cursor, items, depth)?;
        let end = self.shapes.here();
        while cursor.goes_on(b']')? {
            self.shapes.back(start);
            cursor.cells.take(items.cells)?;
            self.value(cursor, items, depth)?;
            if self.shapes.here() != end {
                return Err(Refused); // items of several shapes are no list of one type
            }
        }
        Ok(())
    }

    /// An object whose names are keys: texts, or what stands in them.
    fn map(&mut self, cursor: &mut Cursor, entries: &mut [Column; 2], depth: usize) -> Read<()> {
        cursor.expect(b'{')?;
        if depth > self.deepest {
            return Err(Refused);
        }
        let [keys, values] = entries;
        let start = keys.len();
        cursor.blanks();
        let mut more = !cursor.take(b'}');
        while more {
            if cursor.peek() != b'"' {
                return Err(Refused);
            }
            cursor.cells.take(keys.cells + values.cells)?;
            self.value(cursor, keys, depth)?;
            cursor.blanks();
            cursor.expect(b':')?;
            cursor.blanks();
            self.value(cursor, values, depth)?;
            more = cursor.goes_on(b'}')?;
        }
        if keys.repeats(start) { Err(Refused) } else { Ok(()) }
    }

    /// A value that nobody wants. It has to be JSON all the same.
    fn unwanted(&self, cursor: &mut Cursor, depth: usize) -> Read<()> {
        match cursor.peek() {
            b'"' => {
                cursor.skip(1);
                cursor.quoted(|_| ())
            }
            open @ (b'{' | b'[') => {
                cursor.skip(1);
                self.unwanted_inside(cursor, open == b'{', depth + 1)
            }
            b't' => cursor.word(b"true"),
            b'f' => cursor.word(b"false"),
            b'n' => cursor.word(b"null"),
            _ => numbers::double(cursor).map(|_| ()),
        }
    }

    fn unwanted_inside(&self, cursor: &mut Cursor, named: bool, depth: usize) -> Read<()> {
        if depth > self.deepest {
            return Err(Refused);
        }
        let close = if named { b'}' } else { b']' };
        cursor.blanks();
        let mut more = !cursor.take(close);
        while more {
            if named {
                cursor.expect(b'"')?;
                cursor.quoted(|_| ())?;
                cursor.blanks();
                cursor.expect(b':')?;
                cursor.blanks();
            }
            self.unwanted(cursor, depth)?;
            more = cursor.goes_on(close)?;
        }
        Ok(())
    }
}

/// A whole number, or a text that is one, which may have a plus sign and zeros in front.
fn long(cursor: &mut Cursor) -> Read<i64> {
    if !cursor.take(b'"') {
        return numbers::whole(cursor);
    }
    let text = cursor.simple()?;
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Refused)
}

/// A null, or a field that is missing.
fn nothing(column: &mut Column) -> Read<()> {
    if column.null == Null::Never {
        return Err(Refused);
    }
    column.null();
    Ok(())
}

/// A text in ISO form, or so many units a second.
fn instant(cursor: &mut Cursor, nanos: bool, utc: bool, per_second: i64) -> Read<i64> {
    if cursor.take(b'"') {
        return times::instant(cursor.simple()?, nanos, utc).ok_or(Refused);
    }
    let wanted = if nanos { times::NANOS } else { times::MICROS };
    let found = times::counted(numbers::whole(cursor)?, per_second, wanted).ok_or(Refused)?;
    if nanos || times::is_instant(found) { Ok(found) } else { Err(Refused) }
}

/// A text in ISO form, or days.
fn day(cursor: &mut Cursor) -> Read<i32> {
    let days = if cursor.take(b'"') { times::day(cursor.simple()?).ok_or(Refused)? } else { numbers::whole(cursor)? };
    if times::is_day(days) { i32::try_from(days).map_err(|_| Refused) } else { Err(Refused) }
}

/// Microseconds, of a text in ISO form or of so many units a second.
fn time(cursor: &mut Cursor, per_second: i64) -> Read<i64> {
    if cursor.take(b'"') {
        return times::time(cursor.simple()?).ok_or(Refused);
    }
    let micros = times::counted(numbers::whole(cursor)?, per_second, times::MICROS).ok_or(Refused)?;
    if times::is_micros_of_day(micros) { Ok(micros) } else { Err(Refused) }
}
