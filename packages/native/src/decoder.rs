//! Records in a form into columns, one record at a time: each is taken whole, or refused.

#![forbid(unsafe_code)]

use arrow_data::ArrayData;
use arrow_schema::ArrowError;

use crate::columns::{self, Column, Wanted};
use crate::outcome::{Cells, Refused};
use crate::shapes::Shape;
use crate::{avro, json, protobuf};

pub enum Form {
    Json(json::Rules),
    Avro,
    Protobuf(protobuf::Message),
}

/// Reads records whose fields are columns.
pub struct Decoder {
    pub form: Form,
    pub fields: Vec<Wanted>,
    /// The most cells of a record. The records of one call may have `TOGETHER` times as many; with more of them the call
    /// fails.
    pub cells: usize,
}

/// Rows of the records that were taken, in order, and the places of the others: the refused ones, and those that are
/// not between the given head and tail. Where objects are read whole, or fields are tracked, the rows have shapes.
pub struct Decoded {
    pub rows: ArrayData,
    pub refused: Vec<usize>,
    pub others: Vec<usize>,
    pub shapes: Vec<Shape>,
}

/// The first records of a block, which tell how long its texts are.
const SAMPLE: usize = 256;
pub const TOGETHER: usize = 4;

impl Decoder {
    pub fn decode<'a>(
        &self,
        records: impl ExactSizeIterator<Item = &'a [u8]>,
        head: &[u8],
        tail: &[u8],
    ) -> Result<Decoded, ArrowError> {
        let mut columns: Vec<Column> = self.fields.iter().map(Column::new).collect();
        let own = columns.iter().fold(0, |sum: usize, column| sum.saturating_add(column.cells));
        let together = self.cells.saturating_mul(TOGETHER);
        let expected = records.len().min(together / own.max(1));
        columns.iter_mut().for_each(|column| column.reserve(expected));
        let mut json = match &self.form {
            Form::Json(rules) => Some(json::Reader::new(rules, &self.fields)),
            _ => None,
        };
        let count = records.len();
        // Most records stand alone, and even a comparison with nothing is a call for each record.
        let is_bare = head.is_empty() && tail.is_empty();
        let (mut rows, mut refused, mut others) = (0, vec![], vec![]);
        let (left, mut filled) = (Cells::default(), 0_usize);
        for (place, record) in records.enumerate() {
            if place == SAMPLE && rows > 0 {
                columns.iter_mut().for_each(|column| column.expect(rows, count - place));
            }
            let body = if is_bare { Some(record) } else { inside(record, head, tail) };
            let Some(body) = body else {
                others.push(place);
                continue;
            };
            let most = self.cells.saturating_sub(own);
            left.start(most);
            let read = match (&mut json, &self.form) {
                _ if own > self.cells => Err(Refused),
                (Some(reader), _) => reader.record(body, &mut columns, rows, &left),
                (None, Form::Protobuf(message)) => protobuf::record(body, message, &mut columns, &left),
                (None, _) => avro::record(body, &mut columns, &left),
            };
            if read.is_ok() {
                filled += own + most - left.left();
                if filled > together {
                    return Err(ArrowError::MemoryError("too many cells".into()));
                }
                rows += 1;
            } else {
                columns.iter_mut().for_each(|column| column.truncate(rows));
                refused.push(place);
            }
        }
        let shapes = json.map_or_else(Vec::new, json::Reader::finish);
        Ok(Decoded { rows: columns::rows(columns, rows)?, refused, others, shapes })
    }
}

/// What stands between head and tail.
fn inside<'a>(record: &'a [u8], head: &[u8], tail: &[u8]) -> Option<&'a [u8]> {
    record.strip_prefix(head).and_then(|rest| rest.strip_suffix(tail))
}
