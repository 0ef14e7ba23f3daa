//! Messages of Protobuf into columns.
//!
//! What may be written in several ways is refused in all but the usual one: a field that comes twice, a number of more
//! bits than its type, a group.

#![forbid(unsafe_code)]

use crate::columns::{Column, Values};
use crate::outcome::{Cells, Read, Refused};
use crate::times;

/// A message: its fields, each with a column at the same place.
pub struct Message {
    pub fields: Vec<Field>,
    /// Places by number.
    places: Vec<(u32, usize)>,
}

pub struct Field {
    pub number: u32,
    pub how: How,
    pub form: Form,
    /// Which choice it belongs to, of whose fields one may stand in a message.
    pub choice: Option<u32>,
}

#[derive(Clone, Copy, PartialEq)]
pub enum How {
    /// Null where it is missing.
    Optional,
    /// Zero, or empty, where it is missing.
    Plain,
    Repeated,
    /// A message of key and value.
    Map,
}

pub enum Form {
    Scalar(Scalar),
    /// A message of which one scalar counts.
    Wrapped(Scalar),
    Message(Message),
    Timestamp,
    Duration,
    Date,
    TimeOfDay,
}

pub enum Scalar {
    Bool,
    Varint,
    /// A varint of 32 bits, whose sign goes through all 64.
    Int32,
    Zigzag,
    Fixed32,
    Signed32,
    Fixed64,
    Float,
    Double,
    Bytes,
    Enum(Symbols),
}

/// The names of an enum's numbers.
pub struct Symbols {
    /// The one that stands for nothing.
    first: Option<String>,
    by_number: Vec<(i32, String)>,
}

impl Symbols {
    fn new(mut symbols: Vec<(i32, String)>) -> Symbols {
        let first = symbols.first().map(|symbol| symbol.1.clone());
        symbols.sort_unstable();
        Symbols { first, by_number: symbols }
    }

    fn name(&self, number: i32) -> Option<&str> {
        self.by_number.binary_search_by_key(&number, |symbol| symbol.0).ok().map(|at| self.by_number[at].1.as_str())
    }
}

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const COUNTED: u32 = 2;
const FIXED32: u32 = 5;

impl Message {
    pub fn new(fields: Vec<Field>) -> Message {
        let mut places: Vec<_> = fields.iter().enumerate().map(|(place, field)| (field.number, place)).collect();
        places.sort_unstable();
        Message { fields, places }
    }

    /// The place of a field; most messages have theirs in order.
    fn place(&self, number: u32, next: usize) -> Option<usize> {
        if self.fields.get(next).is_some_and(|field| field.number == number) {
            return Some(next);
        }
        self.places.binary_search_by_key(&number, |place| place.0).ok().map(|at| self.places[at].1)
    }
}

struct Cursor<'a> {
    rest: &'a [u8],
    cells: &'a Cells,
}

pub fn record(body: &[u8], message: &Message, columns: &mut [Column], cells: &Cells) -> Read<()> {
    read(&mut Cursor { rest: body, cells }, message, columns)
}

fn read(cursor: &mut Cursor, message: &Message, columns: &mut [Column]) -> Read<()> {
    let Some(rows) = columns.iter().map(Column::len).min() else { return Err(Refused) };
    let (mut next, mut chosen) = (0, 0_u64);
    while !cursor.rest.is_empty() {
        let (number, wire) = cursor.tag()?;
        let Some(place) = message.place(number, next) else {
            cursor.pass(wire)?;
            continue;
        };
        let (field, column) = (&message.fields[place], &mut columns[place]);
        if let Some(choice) = field.choice {
            let bit = 1_u64.checked_shl(choice).ok_or(Refused)?;
            if chosen & bit != 0 {
                return Err(Refused); // the last one of a choice counts
            }
            chosen |= bit;
        }
        let is_new = column.len() == rows;
        match (field.how, &mut column.values) {
            (How::Repeated, Values::List { items, .. }) => repeated(cursor, wire, &field.form, items)?,
            (How::Map, Values::Map { entries, .. }) => entry(cursor, wire, &field.form, entries)?,
            (How::Optional | How::Plain, _) if is_new => single(cursor, wire, &field.form, column)?,
            _ => return Err(Refused), // the last one counts, or all of them together
        }
        next = place + usize::from(field.how != How::Repeated && field.how != How::Map);
    }
    message.fields.iter().zip(columns).try_for_each(|(field, column)| finish(field, column, rows, cursor.cells))
}

/// What a field is at the end of its message.
fn finish(field: &Field, column: &mut Column, rows: usize, cells: &Cells) -> Read<()> {
    let len = column.len();
    match &mut column.values {
        Values::List { ends, items } => ends.push(end(items)?),
        Values::Map { ends, entries } => {
            let start = usize::try_from(*ends.last().unwrap_or(&0)).map_err(|_| Refused)?;
            if entries[0].repeats(start) {
                return Err(Refused); // the last one of a key counts
            }
            ends.push(end(&entries[0])?);
        }
        _ if len > rows => return Ok(()),
        _ if field.how == How::Optional => {
            column.null();
            return Ok(());
        }
        _ => return absent(&field.form, column, cells),
    }
    column.present();
    Ok(())
}

fn end(items: &Column) -> Read<i32> {
    i32::try_from(items.len()).map_err(|_| Refused)
}

/// A value that is not there, where it is no null.
fn absent(form: &Form, column: &mut Column, cells: &Cells) -> Read<()> {
    match form {
        Form::Scalar(scalar) => nothing(scalar, &mut column.values)?,
        form => inside(&mut Cursor { rest: &[], cells }, form, &mut column.values)?,
    }
    column.present();
    Ok(())
}

fn single(cursor: &mut Cursor, wire: u32, form: &Form, column: &mut Column) -> Read<()> {
    match form {
        Form::Scalar(scalar) if wire == scalar.wire() => value(cursor, scalar, &mut column.values)?,
        Form::Scalar(_) => return Err(Refused),
        form => inside(&mut cursor.message(wire)?, form, &mut column.values)?,
    }
    column.present();
    Ok(())
}

/// One item, or several numbers that are packed.
fn repeated(cursor: &mut Cursor, wire: u32, form: &Form, items: &mut Column) -> Read<()> {
    match form {
        Form::Scalar(scalar) if wire == COUNTED && scalar.wire() != COUNTED => {
            let mut packed = cursor.message(wire)?;
            while !packed.rest.is_empty() {
                cursor.cells.take(items.cells)?;
                value(&mut packed, scalar, &mut items.values)?;
                items.present();
            }
            Ok(())
        }
        form => {
            cursor.cells.take(items.cells)?;
            single(cursor, wire, form, items)
        }
    }
}

fn entry(cursor: &mut Cursor, wire: u32, form: &Form, entries: &mut [Column; 2]) -> Read<()> {
    match form {
        Form::Message(entry) => {
            cursor.cells.take(entries[0].cells + entries[1].cells)?;
            read(&mut cursor.message(wire)?, entry, entries)
        }
        _ => Err(Refused),
    }
}

/// What a message holds.
fn inside(cursor: &mut Cursor, form: &Form, values: &mut Values) -> Read<()> {
    match (form, values) {
        (Form::Message(message), Values::Struct(columns)) => read(cursor, message, columns),
        (Form::Wrapped(scalar), values) => wrapped(cursor, scalar, values),
        (Form::Timestamp, Values::Whole { numbers, .. }) => {
            let [seconds, nanos] = cursor.numbers()?;
            let is_one = (0..1_000_000_000).contains(&nanos);
            let micros = seconds.checked_mul(1_000_000).ok_or(Refused)?;
            if !is_one || !times::is_instant(micros) {
                return Err(Refused);
            }
            numbers.push(micros + nanos / 1000);
            Ok(())
        }
        (Form::Duration, Values::Whole { numbers, .. }) => {
            let [seconds, nanos] = cursor.numbers()?;
            let millis = seconds.checked_mul(1000).and_then(|millis| millis.checked_add(narrow(nanos)? / 1_000_000));
            numbers.push(millis.ok_or(Refused)?);
            Ok(())
        }
        (Form::Date, Values::Whole { numbers, .. }) => {
            let [year, month, day] = cursor.numbers()?;
            numbers.push(times::civil(year, month, day).ok_or(Refused)?);
            Ok(())
        }
        (Form::TimeOfDay, Values::Whole { numbers, .. }) => {
            let [hours, minutes, seconds, nanos] = cursor.numbers()?;
            let is_one = [(hours, 24), (minutes, 60), (seconds, 60), (nanos, 1_000_000_000)];
            if !is_one.iter().all(|(part, most)| (0..*most).contains(part)) {
                return Err(Refused);
            }
            numbers.push((hours * 3600 + minutes * 60 + seconds) * 1_000_000 + nanos / 1000);
            Ok(())
        }
        _ => Err(Refused),
    }
}

fn wrapped(cursor: &mut Cursor, scalar: &Scalar, values: &mut Values) -> Read<()> {
    let mut found = false;
    while !cursor.rest.is_empty() {
        match cursor.tag()? {
            (1, wire) if !found && wire == scalar.wire() => {
                value(cursor, scalar, values)?;
                found = true;
            }
            (1, _) => return Err(Refused),
            (_, wire) => cursor.pass(wire)?,
        }
    }
    if found { Ok(()) } else { nothing(scalar, values) }
}

fn narrow(number: i64) -> Option<i64> {
    i32::try_from(number).ok().map(i64::from)
}

impl How {
    pub fn named(name: &str) -> Option<How> {
        Some(match name {
            "optional" => How::Optional,
            "plain" => How::Plain,
            "repeated" => How::Repeated,
            "map" => How::Map,
            _ => return None,
        })
    }
}

impl Form {
    /// The form of this name, with these fields or these symbols in it.
    pub fn named(name: &str, inner: Vec<Field>, symbols: Vec<(i32, String)>) -> Option<Form> {
        Some(match name {
            "message" => Form::Message(Message::new(inner)),
            "timestamp" => Form::Timestamp,
            "duration" => Form::Duration,
            "date" => Form::Date,
            "time_of_day" => Form::TimeOfDay,
            "enum" => Form::Scalar(Scalar::Enum(Symbols::new(symbols))),
            _ => match name.strip_prefix("wrapped ") {
                Some(name) => Form::Wrapped(Scalar::named(name)?),
                None => Form::Scalar(Scalar::named(name)?),
            },
        })
    }
}

impl Scalar {
    fn named(name: &str) -> Option<Scalar> {
        Some(match name {
            "bool" => Scalar::Bool,
            "varint" => Scalar::Varint,
            "int32" => Scalar::Int32,
            "zigzag" => Scalar::Zigzag,
            "fixed32" => Scalar::Fixed32,
            "signed32" => Scalar::Signed32,
            "fixed64" => Scalar::Fixed64,
            "float" => Scalar::Float,
            "double" => Scalar::Double,
            "bytes" => Scalar::Bytes,
            _ => return None,
        })
    }

    fn wire(&self) -> u32 {
        match self {
            Scalar::Bool | Scalar::Varint | Scalar::Int32 | Scalar::Zigzag | Scalar::Enum(_) => VARINT,
            Scalar::Fixed32 | Scalar::Signed32 | Scalar::Float => FIXED32,
            Scalar::Fixed64 | Scalar::Double => FIXED64,
            Scalar::Bytes => COUNTED,
        }
    }
}

#[inline]
fn value(cursor: &mut Cursor, scalar: &Scalar, values: &mut Values) -> Read<()> {
    match (scalar, values) {
        (Scalar::Bytes, Values::Text { ends, bytes }) => {
            let text = cursor.counted()?;
            std::str::from_utf8(text).map_err(|_| Refused)?;
            append(ends, bytes, text)
        }
        (Scalar::Bytes, Values::Binary { ends, bytes, .. }) => append(ends, bytes, cursor.counted()?),
        (Scalar::Enum(symbols), Values::Text { ends, bytes }) => {
            let number = i32::try_from(cursor.varint()? as i64).map_err(|_| Refused)?;
            append(ends, bytes, symbols.name(number).ok_or(Refused)?.as_bytes())
        }
        (Scalar::Bool, Values::Boolean(flags)) => {
            flags.push(match cursor.varint()? {
                0 => false,
                1 => true,
                _ => return Err(Refused),
            });
            Ok(())
        }
        (Scalar::Float, Values::Float(numbers)) => {
            numbers.push(sure(f32::from_le_bytes(cursor.array()?), f32::is_nan)?);
            Ok(())
        }
        (Scalar::Double, Values::Double(numbers)) => {
            numbers.push(sure(f64::from_le_bytes(cursor.array()?), f64::is_nan)?);
            Ok(())
        }
        (scalar, Values::Whole { numbers, least, most, .. }) => {
            let number = whole(cursor, scalar)?;
            if !(*least..=*most).contains(&number) {
                return Err(Refused);
            }
            numbers.push(number);
            Ok(())
        }
        _ => Err(Refused),
    }
}

/// The number, or its bits where it is one of 64 bits without a sign.
fn whole(cursor: &mut Cursor, scalar: &Scalar) -> Read<i64> {
    Ok(match scalar {
        Scalar::Varint => cursor.varint()? as i64,
        Scalar::Int32 => narrow(cursor.varint()? as i64).ok_or(Refused)?,
        Scalar::Zigzag => {
            let bits = cursor.varint()?;
            (bits >> 1) as i64 ^ -((bits & 1) as i64)
        }
        Scalar::Fixed32 => u32::from_le_bytes(cursor.array()?).into(),
        Scalar::Signed32 => i32::from_le_bytes(cursor.array()?).into(),
        Scalar::Fixed64 => i64::from_le_bytes(cursor.array()?),
        _ => return Err(Refused),
    })
}

/// Zero, or an empty text.
fn nothing(scalar: &Scalar, values: &mut Values) -> Read<()> {
    match (scalar, values) {
        (Scalar::Enum(symbols), Values::Text { ends, bytes }) => {
            append(ends, bytes, symbols.first.as_ref().ok_or(Refused)?.as_bytes())
        }
        (_, Values::Text { ends, bytes } | Values::Binary { ends, bytes, .. }) => append(ends, bytes, b""),
        (_, Values::Boolean(flags)) => {
            flags.push(false);
            Ok(())
        }
        (_, Values::Float(numbers)) => {
            numbers.push(0.0);
            Ok(())
        }
        (_, Values::Double(numbers)) => {
            numbers.push(0.0);
            Ok(())
        }
        (_, Values::Whole { numbers, .. }) => {
            numbers.push(0);
            Ok(())
        }
        _ => Err(Refused),
    }
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

impl<'a> Cursor<'a> {
    /// Number and wire type of the next field.
    #[inline]
    fn tag(&mut self) -> Read<(u32, u32)> {
        let tag = self.short()?;
        if tag < 8 { Err(Refused) } else { Ok((tag >> 3, tag & 7)) }
    }

    /// A varint of at most 32 bits, in at most five bytes.
    #[inline]
    fn short(&mut self) -> Read<u32> {
        let before = self.rest.len();
        let number = u32::try_from(self.varint()?).map_err(|_| Refused)?;
        if before - self.rest.len() > 5 { Err(Refused) } else { Ok(number) }
    }

    /// Seven bits in each byte, the lowest first.
    #[inline]
    fn varint(&mut self) -> Read<u64> {
        let (mut bits, mut shift) = (0_u64, 0);
        for (place, &byte) in self.rest.iter().enumerate() {
            if shift == 63 && byte > 1 {
                return Err(Refused); // more than 64 bits
            }
            bits |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                self.rest = &self.rest[place + 1..];
                return Ok(bits);
            }
            shift += 7;
        }
        Err(Refused)
    }

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

    fn counted(&mut self) -> Read<&'a [u8]> {
        let count = usize::try_from(self.short()?).map_err(|_| Refused)?;
        self.take(count)
    }

    fn message(&mut self, wire: u32) -> Read<Cursor<'a>> {
        if wire != COUNTED {
            return Err(Refused);
        }
        let cells = self.cells;
        Ok(Cursor { rest: self.counted()?, cells })
    }

    /// Over a field that is not known.
    fn pass(&mut self, wire: u32) -> Read<()> {
        match wire {
            VARINT => self.varint().map(|_| ()),
            FIXED64 => self.take(8).map(|_| ()),
            COUNTED => self.counted().map(|_| ()),
            FIXED32 => self.take(4).map(|_| ()),
            _ => Err(Refused),
        }
    }

    /// A message of whole numbers, whose fields have the numbers from one on.
    fn numbers<const N: usize>(&mut self) -> Read<[i64; N]> {
        let (mut found, mut seen) = ([0; N], [false; N]);
        while !self.rest.is_empty() {
            let (number, wire) = self.tag()?;
            let place = number as usize - 1;
            if place >= N {
                self.pass(wire)?;
                continue;
            }
            if wire != VARINT || seen[place] {
                return Err(Refused);
            }
            (found[place], seen[place]) = (self.varint()? as i64, true);
        }
        Ok(found)
    }
}
