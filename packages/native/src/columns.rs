//! Columns that grow by one value at a time, and forget the values of a record that was refused halfway.

#![forbid(unsafe_code)]

use std::sync::Arc;

use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field, Fields, TimeUnit};

use crate::ends::{again, shortened};
use crate::keys::Key;
use crate::variants::{self, Variants};

/// A field of a record: what it is called, what it holds, and where its null is.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The first one is the column's own.
    pub names: Vec<String>,
    pub kind: Kind,
    pub null: Null,
    /// The number by which it is told that a record lacks the field, where that is not the same as null.
    pub tracked: Option<i32>,
}

impl Wanted {
    /// Whether it is told that a record lacks the field, or one inside it.
    pub fn is_tracked(&self) -> bool {
        self.tracked.is_some()
            || match &self.kind {
                Kind::Struct(fields) => fields.iter().any(Wanted::is_tracked),
                Kind::List(item) => item.is_tracked(),
                Kind::Map(entry) => entry.iter().any(Wanted::is_tracked),
                _ => false,
            }
    }
}

/// Whether a value may be null, and how that is written where it is not a value of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Null {
    Never,
    Plain,
    /// The branch of a union of two.
    Branch(i64),
}

/// What a column holds, and how that is read.
#[derive(Clone, Debug)]
pub enum Kind {
    Boolean,
    /// Of 64 bits, text taken as well.
    Long,
    /// Of the bits of its type, and from the least to the most.
    Whole {
        kind: DataType,
        least: i64,
        most: i64,
    },
    Float,
    Double,
    /// A double that is written as a fraction; `exact`: its shortest text is that number.
    Fraction {
        exact: bool,
    },
    Text,
    /// The text of one of these, of which a number tells.
    Choice(Arc<[String]>),
    /// In JSON as base64, `padded` to whole groups, or as it may be.
    Binary {
        padded: bool,
    },
    Fixed(usize),
    Uuid,
    /// Microseconds or nanoseconds since 1970, in UTC or of no zone. Numbers count so many units a second.
    Instant {
        nanos: bool,
        utc: bool,
        per_second: i64,
    },
    /// Days since 1970.
    Date,
    /// Microseconds of a day. Numbers count so many units a second.
    Time {
        per_second: i64,
    },
    /// Rounded to its scale.
    Decimal {
        precision: u8,
        scale: u8,
    },
    /// Never rounded; as bytes, or as so many of them.
    Unscaled {
        precision: u8,
        scale: u8,
        bytes: Option<usize>,
    },
    /// Any value.
    Variant,
    /// Of a type that is not read: nulls alone, which need no column.
    Other,
    Struct(Vec<Wanted>),
    List(Box<Wanted>),
    /// Keys, and values.
    Map(Box<[Wanted; 2]>),
}

pub enum Values {
    Boolean(Vec<bool>),
    Long(Vec<i64>),
    Whole { numbers: Vec<i64>, kind: DataType, least: i64, most: i64 },
    Float(Vec<f32>),
    Double(Vec<f64>),
    Fraction { numbers: Vec<f64>, exact: bool },
    Text { ends: Vec<i32>, bytes: Vec<u8> },
    Choice { ends: Vec<i32>, bytes: Vec<u8>, of: Arc<[String]> },
    Binary { ends: Vec<i32>, bytes: Vec<u8>, padded: bool },
    Fixed { bytes: Vec<u8>, size: usize },
    Uuid(Vec<u8>),
    Instant { numbers: Vec<i64>, nanos: bool, utc: bool, per_second: i64 },
    Date(Vec<i32>),
    Time { micros: Vec<i64>, per_second: i64 },
    Decimal { unscaled: Vec<i128>, precision: u8, scale: u8 },
    Unscaled { unscaled: Vec<i128>, precision: u8, scale: u8, bytes: Option<usize> },
    Variant(Box<Variants>),
    Other,
    Struct(Vec<Column>),
    List { ends: Vec<i32>, items: Box<Column> },
    Map { ends: Vec<i32>, entries: Box<[Column; 2]> },
}

const UUID_BYTES: usize = 16;
/// A cell is a place of so many bytes.
const CELL: usize = 8;

impl Values {
    fn new(kind: &Kind) -> Values {
        let columns = |wanted: &[Wanted]| wanted.iter().map(Column::new).collect();
        match kind.clone() {
            Kind::Boolean => Values::Boolean(vec![]),
            Kind::Long => Values::Long(vec![]),
            Kind::Whole { kind, least, most } => Values::Whole { numbers: vec![], kind, least, most },
            Kind::Float => Values::Float(vec![]),
            Kind::Double => Values::Double(vec![]),
            Kind::Fraction { exact } => Values::Fraction { numbers: vec![], exact },
            Kind::Text => Values::Text { ends: vec![0], bytes: vec![] },
            Kind::Choice(of) => Values::Choice { ends: vec![0], bytes: vec![], of },
            Kind::Binary { padded } => Values::Binary { ends: vec![0], bytes: vec![], padded },
            Kind::Fixed(size) => Values::Fixed { bytes: vec![], size },
            Kind::Uuid => Values::Uuid(vec![]),
            Kind::Instant { nanos, utc, per_second } => Values::Instant { numbers: vec![], nanos, utc, per_second },
            Kind::Date => Values::Date(vec![]),
            Kind::Time { per_second } => Values::Time { micros: vec![], per_second },
            Kind::Decimal { precision, scale } => Values::Decimal { unscaled: vec![], precision, scale },
            Kind::Unscaled { precision, scale, bytes } => {
                Values::Unscaled { unscaled: vec![], precision, scale, bytes }
            }
            Kind::Variant => Values::Variant(Box::new(Variants::new())),
            Kind::Other => Values::Other,
            Kind::Struct(fields) => Values::Struct(columns(&fields)),
            Kind::List(item) => Values::List { ends: vec![0], items: Box::new(Column::new(&item)) },
            Kind::Map(entry) => Values::Map { ends: vec![0], entries: Box::new(entry.each_ref().map(Column::new)) },
        }
    }

    /// Cells of one value, without those of what its lists and maps hold.
    fn cells(&self) -> usize {
        match self {
            Values::Decimal { .. } | Values::Unscaled { .. } | Values::Uuid(_) | Values::Variant(_) => {
                UUID_BYTES / CELL
            }
            Values::Fixed { size, .. } => size.div_ceil(CELL).max(1),
            Values::Struct(columns) => columns.iter().fold(0, |sum: usize, each| sum.saturating_add(each.cells)).max(1),
            _ => 1,
        }
    }

    fn reserve(&mut self, rows: usize) {
        match self {
            Values::Boolean(flags) => flags.reserve(rows),
            Values::Long(numbers) | Values::Time { micros: numbers, .. } => numbers.reserve(rows),
            Values::Whole { numbers, .. } | Values::Instant { numbers, .. } => numbers.reserve(rows),
            Values::Float(numbers) => numbers.reserve(rows),
            Values::Double(numbers) | Values::Fraction { numbers, .. } => numbers.reserve(rows),
            Values::Date(days) => days.reserve(rows),
            Values::Decimal { unscaled, .. } | Values::Unscaled { unscaled, .. } => unscaled.reserve(rows),
            Values::Text { ends, .. } | Values::Choice { ends, .. } | Values::Binary { ends, .. } => ends.reserve(rows),
            Values::List { ends, .. } | Values::Map { ends, .. } => ends.reserve(rows),
            Values::Struct(columns) => columns.iter_mut().for_each(|column| column.reserve(rows)),
            Values::Variant(variants) => variants.reserve(rows),
            Values::Fixed { .. } | Values::Uuid(_) | Values::Other => (),
        }
    }

    /// Room for the bytes of texts in so many more rows that are like the first ones.
    fn expect(&mut self, rows: usize, more: usize) {
        match self {
            Values::Text { bytes, .. } | Values::Choice { bytes, .. } | Values::Binary { bytes, .. } => {
                // A sixteenth more than the first ones suggest, because growing later copies everything.
                bytes.reserve(bytes.len() * 17 / 16 / rows * more + more);
            }
            Values::Variant(variants) => variants.expect(rows, more),
            Values::Struct(columns) => columns.iter_mut().for_each(|column| column.expect(rows, more)),
            _ => (),
        }
    }

    /// Whether there are objects in it, or in what it lists.
    pub fn has_objects(&self) -> bool {
        match self {
            Values::Struct(_) => true,
            Values::List { items, .. } => items.values.has_objects(),
            _ => false,
        }
    }

    /// What stands where a null is.
    fn blank(&mut self) {
        match self {
            Values::Boolean(flags) => flags.push(false),
            Values::Long(numbers) | Values::Time { micros: numbers, .. } => numbers.push(0),
            Values::Whole { numbers, .. } | Values::Instant { numbers, .. } => numbers.push(0),
            Values::Float(numbers) => numbers.push(0.0),
            Values::Double(numbers) | Values::Fraction { numbers, .. } => numbers.push(0.0),
            Values::Date(days) => days.push(0),
            Values::Decimal { unscaled, .. } | Values::Unscaled { unscaled, .. } => unscaled.push(0),
            Values::Fixed { bytes, size } => bytes.resize(bytes.len() + *size, 0),
            Values::Uuid(bytes) => bytes.resize(bytes.len() + UUID_BYTES, 0),
            Values::Text { ends, .. } | Values::Choice { ends, .. } | Values::Binary { ends, .. } => again(ends),
            Values::List { ends, .. } | Values::Map { ends, .. } => again(ends),
            Values::Variant(variants) => variants.blank(),
            Values::Struct(columns) => columns.iter_mut().for_each(Column::null),
            Values::Other => (),
        }
    }

    fn truncate(&mut self, len: usize) {
        match self {
            Values::Boolean(flags) => flags.truncate(len),
            Values::Long(numbers) | Values::Time { micros: numbers, .. } => numbers.truncate(len),
            Values::Whole { numbers, .. } | Values::Instant { numbers, .. } => numbers.truncate(len),
            Values::Float(numbers) => numbers.truncate(len),
            Values::Double(numbers) | Values::Fraction { numbers, .. } => numbers.truncate(len),
            Values::Date(days) => days.truncate(len),
            Values::Decimal { unscaled, .. } | Values::Unscaled { unscaled, .. } => unscaled.truncate(len),
            Values::Fixed { bytes, size } => bytes.truncate(len * *size),
            Values::Uuid(bytes) => bytes.truncate(len * UUID_BYTES),
            Values::Text { ends, bytes } | Values::Choice { ends, bytes, .. } | Values::Binary { ends, bytes, .. } => {
                bytes.truncate(shortened(ends, len));
            }
            Values::List { ends, items } => items.truncate(shortened(ends, len)),
            Values::Map { ends, entries } => {
                let end = shortened(ends, len);
                entries.iter_mut().for_each(|column| column.truncate(end));
            }
            Values::Variant(variants) => variants.truncate(len),
            Values::Struct(columns) => columns.iter_mut().for_each(|column| column.truncate(len)),
            Values::Other => (),
        }
    }

    /// Type, buffers and children.
    fn parts(self) -> Result<Parts, ArrowError> {
        let moment = |unit, utc: bool| DataType::Timestamp(unit, utc.then(|| "UTC".into()));
        let decimal = |precision, scale: u8| DataType::Decimal128(precision, scale as i8);
        let (kind, buffers) = match self {
            Values::Boolean(flags) => (DataType::Boolean, vec![BooleanBuffer::from(flags).into_inner()]),
            Values::Long(numbers) => (DataType::Int64, vec![Buffer::from_vec(numbers)]),
            Values::Whole { numbers, kind, .. } => {
                let buffer = narrowed(numbers, kind.primitive_width());
                (kind, vec![buffer])
            }
            Values::Float(numbers) => (DataType::Float32, vec![Buffer::from_vec(numbers)]),
            Values::Double(numbers) | Values::Fraction { numbers, .. } => {
                (DataType::Float64, vec![Buffer::from_vec(numbers)])
            }
            Values::Date(days) => (DataType::Date32, vec![Buffer::from_vec(days)]),
            Values::Time { micros, .. } => (DataType::Time64(TimeUnit::Microsecond), vec![Buffer::from_vec(micros)]),
            Values::Instant { numbers, nanos, utc, .. } => {
                let unit = if nanos { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
                (moment(unit, utc), vec![Buffer::from_vec(numbers)])
            }
            Values::Decimal { unscaled, precision, scale } | Values::Unscaled { unscaled, precision, scale, .. } => {
                (decimal(precision, scale), vec![Buffer::from_vec(unscaled)])
            }
            Values::Fixed { bytes, size } => {
                let size = i32::try_from(size).map_err(|error| ArrowError::InvalidArgumentError(error.to_string()))?;
                (DataType::FixedSizeBinary(size), vec![Buffer::from_vec(bytes)])
            }
            Values::Uuid(bytes) => (DataType::FixedSizeBinary(UUID_BYTES as i32), vec![Buffer::from_vec(bytes)]),
            Values::Text { ends, bytes } | Values::Choice { ends, bytes, .. } => {
                (DataType::Utf8, vec![Buffer::from_vec(ends), Buffer::from_vec(bytes)])
            }
            Values::Binary { ends, bytes, .. } => {
                (DataType::Binary, vec![Buffer::from_vec(ends), Buffer::from_vec(bytes)])
            }
            Values::Variant(variants) => {
                let (kind, children) = variants.parts()?;
                return Ok((kind, vec![], children));
            }
            Values::Other => (DataType::Null, vec![]),
            Values::Struct(columns) => {
                let (fields, children) = finished(columns)?;
                return Ok((DataType::Struct(fields), vec![], children));
            }
            Values::List { ends, items } => {
                let (field, child) = items.finish()?;
                return Ok((DataType::List(Arc::new(field)), vec![Buffer::from_vec(ends)], vec![child]));
            }
            Values::Map { ends, entries } => {
                let [keys, values] = *entries;
                let count = keys.len();
                let ((key, keys), (value, values)) = (keys.finish()?, values.finish()?);
                let kind = DataType::Struct(Fields::from(vec![key.with_nullable(false), value]));
                let entries = ArrayData::builder(kind.clone()).len(count).child_data(vec![keys, values]).build()?;
                let field = Arc::new(Field::new("entries", kind, false));
                return Ok((DataType::Map(field, false), vec![Buffer::from_vec(ends)], vec![entries]));
            }
        };
        Ok((kind, buffers, vec![]))
    }
}

/// Numbers of so many bytes each, which they are known to fit.
fn narrowed(numbers: Vec<i64>, width: Option<usize>) -> Buffer {
    match width {
        Some(1) => Buffer::from_vec(numbers.into_iter().map(|number| number as i8).collect::<Vec<_>>()),
        Some(2) => Buffer::from_vec(numbers.into_iter().map(|number| number as i16).collect::<Vec<_>>()),
        Some(4) => Buffer::from_vec(numbers.into_iter().map(|number| number as i32).collect::<Vec<_>>()),
        _ => Buffer::from_vec(numbers),
    }
}

pub struct Column {
    /// As it stands in an object, with quote and colon behind it.
    pub key: Key,
    /// Other names of it.
    pub aliases: Vec<Box<[u8]>>,
    pub null: Null,
    pub tracked: Option<i32>,
    pub values: Values,
    /// Cells of each of its values, without those of what lists and maps hold.
    pub cells: usize,
    /// The object that this column has had a value of last, by number.
    pub seen_in: u64,
    len: usize,
    /// Empty as long as there is no null.
    valid: Vec<bool>,
}

type Parts = (DataType, Vec<Buffer>, Vec<ArrayData>);

impl Column {
    pub fn new(wanted: &Wanted) -> Column {
        let (name, others) = wanted.names.split_first().map_or(("", &[][..]), |(name, others)| (name, others));
        let values = Values::new(&wanted.kind);
        Column {
            key: Key::new(name),
            aliases: others.iter().map(|name| name.as_bytes().into()).collect(),
            null: wanted.null,
            tracked: wanted.tracked,
            cells: values.cells(),
            values,
            seen_in: 0,
            len: 0,
            valid: vec![],
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// What the column may be called; its own name comes first.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.key.name()).chain(self.aliases.iter().map(|name| name.as_ref()))
    }

    /// Room for as many values.
    pub fn reserve(&mut self, rows: usize) {
        self.values.reserve(rows);
    }

    /// Room for what so many more values need beyond that, if they are like these first ones.
    pub fn expect(&mut self, rows: usize, more: usize) {
        self.values.expect(rows, more);
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
        self.values.blank();
    }

    /// Keep the first `len` values. Without `present` or `null` after it, a push is forgotten as well.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.valid.truncate(len);
        self.values.truncate(len);
    }

    /// Whether two values from this place on are the same, or may be.
    pub fn repeats(&self, start: usize) -> bool {
        match &self.values {
            _ if self.len < start + 2 => false,
            Values::Text { ends, bytes } => {
                let text = |end: &[i32]| bytes.get(end[0] as usize..end[1] as usize);
                has_twice(ends[start..].windows(2).map(text).collect())
            }
            Values::Long(numbers) | Values::Whole { numbers, .. } => has_twice(numbers[start..].to_vec()),
            Values::Boolean(flags) => has_twice(flags[start..].to_vec()),
            Values::Date(days) => has_twice(days[start..].to_vec()),
            Values::Uuid(bytes) => has_twice(bytes[start * UUID_BYTES..].chunks(UUID_BYTES).collect()),
            _ => true,
        }
    }

    pub fn finish(self) -> Result<(Field, ArrayData), ArrowError> {
        let len = self.len();
        let meaning = matches!(self.values, Values::Variant(_)).then(variants::meaning);
        let (kind, buffers, children) = self.values.parts()?;
        let nulls = if self.valid.contains(&false) { Some(NullBuffer::from(self.valid)) } else { None };
        let mut builder = ArrayData::builder(kind.clone()).len(len).buffers(buffers).child_data(children);
        builder = builder.nulls(nulls);
        let name = String::from_utf8_lossy(self.key.name()).into_owned();
        Ok((Field::new(name, kind, true).with_metadata(meaning.unwrap_or_default()), builder.build()?))
    }
}

fn has_twice<T: Ord>(mut values: Vec<T>) -> bool {
    values.sort_unstable();
    values.windows(2).any(|pair| pair[0] == pair[1])
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

/// Numbers of rows.
pub fn places(rows: Vec<i32>) -> Result<ArrayData, ArrowError> {
    ArrayData::builder(DataType::Int32).len(rows.len()).add_buffer(Buffer::from_vec(rows)).build()
}
