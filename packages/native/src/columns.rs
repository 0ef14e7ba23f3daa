//! Columns that grow by one value at a time, and forget the values of a record that was refused halfway.

#![forbid(unsafe_code)]

use std::sync::Arc;

use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field, Fields, TimeUnit};

/// What a column holds, and what makes a new one.
#[derive(Clone, Debug)]
pub enum Kind {
    Boolean,
    Long,
    Double,
    Text,
    /// Microseconds since 1970, in UTC or of no zone.
    Instant {
        utc: bool,
    },
    /// Days since 1970.
    Date,
    Decimal {
        precision: u8,
        scale: u8,
    },
    /// Of a type that is not read: nulls alone, which need no column.
    Other,
    Struct(Vec<(String, Kind)>),
    List(Box<Kind>),
}

pub enum Values {
    Boolean(Vec<bool>),
    Long(Vec<i64>),
    Double(Vec<f64>),
    Text { ends: Vec<i32>, bytes: Vec<u8> },
    Instant { micros: Vec<i64>, utc: bool },
    Date(Vec<i32>),
    Decimal { unscaled: Vec<i128>, precision: u8, scale: u8 },
    Other,
    Struct(Vec<Column>),
    List { ends: Vec<i32>, items: Box<Column> },
}

pub struct Column {
    /// As it stands in an object, with the quote behind it.
    pub key: Key,
    pub values: Values,
    /// The object that this column has had a value of last, by number.
    pub seen_in: u64,
    len: usize,
    /// Empty as long as there is no null.
    valid: Vec<bool>,
}

/// A name and the quote behind it, whose first eight bytes are compared at once.
pub struct Key {
    quoted: Box<[u8]>,
    word: u64,
    mask: u64,
}

impl Key {
    fn new(name: &str) -> Key {
        let quoted = [name.as_bytes(), b"\""].concat();
        let (mut word, mut mask) = ([0; 8], [0; 8]);
        for (place, &byte) in quoted.iter().take(8).enumerate() {
            (word[place], mask[place]) = (byte, u8::MAX);
        }
        Key { quoted: quoted.into(), word: u64::from_le_bytes(word), mask: u64::from_le_bytes(mask) }
    }

    pub fn name(&self) -> &[u8] {
        &self.quoted[..self.quoted.len() - 1]
    }

    /// The length of the key, if the text begins with it.
    #[inline]
    pub fn begins(&self, text: &[u8]) -> Option<usize> {
        let len = self.quoted.len();
        let equal = match text.first_chunk() {
            Some(&first) if u64::from_le_bytes(first) & self.mask != self.word => false,
            Some(_) if len <= 8 => true,
            _ => text.starts_with(&self.quoted),
        };
        equal.then_some(len)
    }
}

impl Column {
    pub fn new(name: &str, kind: &Kind) -> Column {
        let values = match kind {
            Kind::Boolean => Values::Boolean(vec![]),
            Kind::Long => Values::Long(vec![]),
            Kind::Double => Values::Double(vec![]),
            Kind::Text => Values::Text { ends: vec![0], bytes: vec![] },
            Kind::Instant { utc } => Values::Instant { micros: vec![], utc: *utc },
            Kind::Date => Values::Date(vec![]),
            Kind::Decimal { precision, scale } => {
                Values::Decimal { unscaled: vec![], precision: *precision, scale: *scale }
            }
            Kind::Other => Values::Other,
            Kind::Struct(fields) => Values::Struct(fields.iter().map(|(n, k)| Column::new(n, k)).collect()),
            Kind::List(kind) => Values::List { ends: vec![0], items: Box::new(Column::new("item", kind)) },
        };
        Column { key: Key::new(name), values, seen_in: 0, len: 0, valid: vec![] }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Room for as many values.
    pub fn reserve(&mut self, rows: usize) {
        match &mut self.values {
            Values::Boolean(flags) => flags.reserve(rows),
            Values::Long(numbers) => numbers.reserve(rows),
            Values::Double(numbers) => numbers.reserve(rows),
            Values::Instant { micros, .. } => micros.reserve(rows),
            Values::Date(days) => days.reserve(rows),
            Values::Decimal { unscaled, .. } => unscaled.reserve(rows),
            Values::Other => (),
            Values::Text { ends, .. } | Values::List { ends, .. } => ends.reserve(rows),
            Values::Struct(columns) => columns.iter_mut().for_each(|column| column.reserve(rows)),
        }
    }

    /// The value that was just pushed counts.
    #[inline]
    pub fn present(&mut self) {
        self.len += 1;
        if !self.valid.is_empty() {
            self.valid.push(true);
        }
    }

    pub fn null(&mut self) {
        if self.valid.is_empty() {
            self.valid.resize(self.len, true);
        }
        self.valid.push(false);
        self.len += 1;
        match &mut self.values {
            Values::Boolean(flags) => flags.push(false),
            Values::Long(numbers) => numbers.push(0),
            Values::Double(numbers) => numbers.push(0.0),
            Values::Instant { micros, .. } => micros.push(0),
            Values::Date(days) => days.push(0),
            Values::Decimal { unscaled, .. } => unscaled.push(0),
            Values::Other => (),
            Values::Text { ends, .. } | Values::List { ends, .. } => ends.push(*ends.last().unwrap_or(&0)),
            Values::Struct(columns) => columns.iter_mut().for_each(Column::null),
        }
    }

    /// Keep the first `len` values. Without `present` or `null` after it, a push is forgotten as well.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.valid.truncate(len);
        match &mut self.values {
            Values::Boolean(flags) => flags.truncate(len),
            Values::Long(numbers) => numbers.truncate(len),
            Values::Double(numbers) => numbers.truncate(len),
            Values::Instant { micros, .. } => micros.truncate(len),
            Values::Date(days) => days.truncate(len),
            Values::Decimal { unscaled, .. } => unscaled.truncate(len),
            Values::Other => (),
            Values::Struct(columns) => columns.iter_mut().for_each(|column| column.truncate(len)),
            Values::Text { ends, bytes } => {
                ends.truncate(len + 1);
                bytes.truncate(ends[len] as usize);
            }
            Values::List { ends, items } => {
                ends.truncate(len + 1);
                items.truncate(ends[len] as usize);
            }
        }
    }

    pub fn finish(self) -> Result<(Field, ArrayData), ArrowError> {
        let len = self.len();
        let (kind, buffers, children) = parts(self.values)?;
        let nulls = if self.valid.contains(&false) { Some(NullBuffer::from(self.valid)) } else { None };
        let mut builder = ArrayData::builder(kind.clone()).len(len).buffers(buffers).child_data(children);
        builder = builder.nulls(nulls);
        let name = String::from_utf8_lossy(self.key.name()).into_owned();
        Ok((Field::new(name, kind, true), builder.build()?))
    }
}

type Parts = (DataType, Vec<Buffer>, Vec<ArrayData>);

fn parts(values: Values) -> Result<Parts, ArrowError> {
    Ok(match values {
        Values::Boolean(flags) => (DataType::Boolean, vec![BooleanBuffer::from(flags).into_inner()], vec![]),
        Values::Long(numbers) => (DataType::Int64, vec![Buffer::from_vec(numbers)], vec![]),
        Values::Double(numbers) => (DataType::Float64, vec![Buffer::from_vec(numbers)], vec![]),
        Values::Date(days) => (DataType::Date32, vec![Buffer::from_vec(days)], vec![]),
        Values::Decimal { unscaled, precision, scale } => {
            (DataType::Decimal128(precision, scale as i8), vec![Buffer::from_vec(unscaled)], vec![])
        }
        Values::Other => (DataType::Null, vec![], vec![]),
        Values::Instant { micros, utc } => {
            let zone = if utc { Some("UTC".into()) } else { None };
            (DataType::Timestamp(TimeUnit::Microsecond, zone), vec![Buffer::from_vec(micros)], vec![])
        }
        Values::Text { ends, bytes } => (DataType::Utf8, vec![Buffer::from_vec(ends), Buffer::from_vec(bytes)], vec![]),
        Values::Struct(columns) => {
            let (fields, children) = finished(columns)?;
            (DataType::Struct(fields), vec![], children)
        }
        Values::List { ends, items } => {
            let (field, child) = items.finish()?;
            (DataType::List(Arc::new(field)), vec![Buffer::from_vec(ends)], vec![child])
        }
    })
}

fn finished(columns: Vec<Column>) -> Result<(Fields, Vec<ArrayData>), ArrowError> {
    let wanted = columns.into_iter().filter(|column| !matches!(column.values, Values::Other));
    let done = wanted.map(Column::finish).collect::<Result<Vec<_>, _>>()?;
    let (fields, children): (Vec<Field>, Vec<ArrayData>) = done.into_iter().unzip();
    Ok((Fields::from(fields), children))
}

/// Columns of `rows` values each as one array.
pub fn rows(columns: Vec<Column>, rows: usize) -> Result<ArrayData, ArrowError> {
    let (fields, children) = finished(columns)?;
    ArrayData::builder(DataType::Struct(fields)).len(rows).child_data(children).build()
}
