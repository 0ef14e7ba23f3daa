//! What Python sees. Arrays go there by Arrow's PyCapsule interface.

use std::slice;
use std::sync::{Mutex, PoisonError};

use arrow_data::ArrayData;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, Field};
use pyo3::exceptions::{PyLookupError, PyOverflowError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyList};

use crate::columns::{self, Null, Wanted};
use crate::json::Unknown;
use crate::librdkafka::Functions;
use crate::{consumer, decoder, guard, json, kinds, protobuf};

/// An array, for `pyarrow.array`.
#[pyclass(frozen)]
struct Column(ArrayData);

#[pymethods]
impl Column {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema; // the interface leaves it to the producer
        let field = Field::new("", self.0.data_type().clone(), false);
        let schema = FFI_ArrowSchema::try_from(&field).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let array = FFI_ArrowArray::new(&self.0);
        Ok((
            PyCapsule::new_with_value(py, schema, c"arrow_schema")?,
            PyCapsule::new_with_value(py, array, c"arrow_array")?,
        ))
    }
}

/// Reads records of one form into columns.
#[pyclass(frozen)]
struct Decoder(decoder::Decoder);

#[pymethods]
impl Decoder {
    /// Of objects of JSON.
    #[staticmethod]
    fn of_json(
        fields: Vec<Bound<'_, PyAny>>,
        closed: bool,
        fold: bool,
        nesting: usize,
        cells: usize,
    ) -> PyResult<Decoder> {
        let unknown = if closed { Unknown::Anything } else { Unknown::Null };
        Decoder::new(decoder::Form::Json(json::Rules { unknown, fold, nesting }), &fields, cells)
    }

    /// Of objects of JSON without other fields.
    #[staticmethod]
    fn of_whole_json(fields: Vec<Bound<'_, PyAny>>, nesting: usize, cells: usize) -> PyResult<Decoder> {
        let rules = json::Rules { unknown: Unknown::Refused, fold: false, nesting };
        Decoder::new(decoder::Form::Json(rules), &fields, cells)
    }

    /// Of records in Avro's binary form.
    #[staticmethod]
    fn of_avro(fields: Vec<Bound<'_, PyAny>>, cells: usize) -> PyResult<Decoder> {
        Decoder::new(decoder::Form::Avro, &fields, cells)
    }

    /// Of messages of Protobuf.
    #[staticmethod]
    fn of_protobuf(fields: Vec<Bound<'_, PyAny>>, message: Vec<Bound<'_, PyAny>>, cells: usize) -> PyResult<Decoder> {
        let parts = message.iter().map(part).collect::<PyResult<Vec<_>>>()?;
        if parts.len() != fields.len() {
            return Err(PyValueError::new_err("a message has as many columns as fields"));
        }
        Decoder::new(decoder::Form::Protobuf(protobuf::Message::new(parts)), &fields, cells)
    }

    /// Of a list of bytes, or a column of bytes without nulls.
    fn decode(
        &self,
        values: &Bound<'_, PyAny>,
        head: &[u8],
        tail: &[u8],
    ) -> PyResult<(Column, Vec<usize>, Vec<usize>)> {
        let decoded = self.read(values, head, tail)?;
        Ok((Column(decoded.rows), decoded.refused, decoded.others))
    }

    /// The same of whole values, with the shapes of the rows.
    fn decode_whole(&self, values: &Bound<'_, PyAny>) -> PyResult<(Column, Vec<usize>, Shapes)> {
        let decoded = self.read(values, b"", b"")?;
        let shapes = decoded.shapes.into_iter().map(|shape| Ok((shape.steps, Column(columns::places(shape.rows)?))));
        let shapes = shapes.collect::<Result<_, ArrowError>>().map_err(broken)?;
        Ok((Column(decoded.rows), decoded.refused, shapes))
    }
}

/// Their steps, and the numbers of their rows.
type Shapes = Vec<(Vec<i32>, Column)>;

impl Decoder {
    fn read(&self, values: &Bound<'_, PyAny>, head: &[u8], tail: &[u8]) -> PyResult<decoder::Decoded> {
        if let Ok(values) = values.cast::<PyList>() {
            let values = values.iter().map(|value| Ok(value.cast_into::<PyBytes>()?)).collect::<PyResult<Vec<_>>>()?;
            return self.decoded(values.iter().map(|value| value.as_bytes()), head, tail);
        }
        let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) =
            values.call_method0("__arrow_c_array__")?.extract()?;
        let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
        let array = array.pointer_checked(Some(c"arrow_array"))?.cast::<FFI_ArrowArray>();
        // SAFETY: the capsules are named as Arrow's interface names them, so they point to its two structs. These live as long
        // as the capsules, and the buffers as long as the array.
        let (schema, array) = unsafe { (schema.as_ref(), array.as_ref()) };
        // SAFETY: the array has buffers, as its format says, and the first one has a bit for each row, or is null.
        if schema.format() != "z" || array.num_buffers() != 3 || unsafe { has_nulls(array) } {
            return Err(PyValueError::new_err("a column of bytes without nulls is wanted"));
        }
        if array.is_empty() {
            return self.decoded(std::iter::empty(), head, tail);
        }
        // SAFETY: of an array of bytes that is not empty, the second buffer has an end more than there are rows, from its offset
        // on, and the third one as many bytes as the last end says.
        let (ends, bytes) = unsafe {
            let ends = slice::from_raw_parts(array.buffer(1).cast::<i32>().add(array.offset()), array.len() + 1);
            (ends, slice::from_raw_parts(array.buffer(2), usize::try_from(ends[array.len()])?))
        };
        let places = ends.iter().map(|&end| usize::try_from(end)).collect::<Result<Vec<_>, _>>()?;
        self.decoded(places.windows(2).map(|at| bytes.get(at[0]..at[1]).unwrap_or_default()), head, tail)
    }

    fn new(form: decoder::Form, fields: &[Bound<'_, PyAny>], cells: usize) -> PyResult<Decoder> {
        Ok(Decoder(decoder::Decoder { form, fields: fields.iter().map(described).collect::<PyResult<_>>()?, cells }))
    }

    fn decoded<'a>(
        &self,
        records: impl ExactSizeIterator<Item = &'a [u8]>,
        head: &[u8],
        tail: &[u8],
    ) -> PyResult<decoder::Decoded> {
        caught("the decoder", || self.0.decode(records, head, tail))?.map_err(broken)
    }
}

/// The number of nulls may be unknown, where the buffers were made by somebody else.
///
/// # Safety
/// The first buffer of the array is null, or has a bit for each row.
unsafe fn has_nulls(array: &FFI_ArrowArray) -> bool {
    let valid = array.buffer(0);
    // SAFETY: the caller promises it.
    let is_null = |row: usize| unsafe { *valid.add(row / 8) } >> (row % 8) & 1 == 0;
    match array.null_count_opt() {
        _ if valid.is_null() => false,
        Some(count) => count > 0,
        None => (array.offset()..array.offset() + array.len()).any(is_null),
    }
}

/// Of one record.
type Headers<'py> = Vec<(String, Option<Bound<'py, PyBytes>>)>;

/// Records of one partition, as columns.
#[pyclass(frozen)]
struct Records(consumer::Records);

#[pymethods]
impl Records {
    fn values(&self) -> Column {
        Column(self.0.values.clone())
    }

    fn keys(&self) -> Column {
        Column(self.0.keys.clone())
    }

    fn offsets(&self) -> Column {
        Column(self.0.offsets.clone())
    }

    fn timestamps(&self) -> Column {
        Column(self.0.timestamps.clone())
    }

    /// None for a record with a name that is not UTF-8: confluent-kafka does not give such headers either.
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Vec<Option<Headers<'py>>>> {
        let named = |(name, value): consumer::Header| -> Option<_> {
            Some((String::from_utf8(name).ok()?, value.map(|value| PyBytes::new(py, &value))))
        };
        let headers = caught("the reader", || self.0.headers())?
            .ok_or_else(|| PyRuntimeError::new_err("the records were taken without their headers"))?;
        Ok(headers.into_iter().map(|headers| headers.into_iter().map(named).collect()).collect())
    }
}

type Arrived = (Option<String>, i32, i64, Option<Records>, Option<consumer::Fault>);

/// A consumer of the librdkafka that the process has loaded.
#[pyclass(frozen)]
struct Consumer(Mutex<Option<consumer::Consumer>>);

#[pymethods]
impl Consumer {
    #[new]
    fn new(library: &str, version: i32, properties: Vec<(String, String)>) -> PyResult<Consumer> {
        let api = Functions::of(library).ok_or_else(|| PyLookupError::new_err(format!("{library} is not loaded")))?;
        // SAFETY: it takes nothing, and returns a number.
        if unsafe { (api.rd_kafka_version)() } != version {
            return Err(PyLookupError::new_err(format!("{library} is of another version")));
        }
        let made = consumer::Consumer::new(api, &properties).map_err(PyValueError::new_err)?;
        Ok(Consumer(Mutex::new(Some(made))))
    }

    fn learn(&self, py: Python<'_>, topic: &str, timeout_ms: i32) -> PyResult<Option<consumer::Fault>> {
        self.with(py, |client| client.learn(topic, timeout_ms).err())
    }

    fn assign(&self, py: Python<'_>, partitions: Vec<(String, i32, i64)>) -> PyResult<Option<consumer::Fault>> {
        self.with(py, |client| client.assign(&partitions).err())
    }

    fn unassign(&self, py: Python<'_>, partitions: Vec<(String, i32, i64)>) -> PyResult<Option<consumer::Fault>> {
        self.with(py, |client| client.unassign(&partitions).err())
    }

    fn take(&self, py: Python<'_>, most: usize, timeout_ms: i32, headers: bool) -> PyResult<Vec<Arrived>> {
        let arrived = self.with(py, |client| client.take(most, timeout_ms, headers))?.map_err(broken)?;
        Ok(arrived
            .into_iter()
            .map(|each| match each.what {
                Ok(records) => (each.topic, each.partition, each.offset, Some(Records(records)), None),
                Err(fault) => (each.topic, each.partition, each.offset, None, Some(fault)),
            })
            .collect())
    }

    /// Safe to call twice.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| caught("the reader", || drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take())))
    }
}

impl Consumer {
    /// Without Python's lock: librdkafka may wait.
    fn with<T: Send>(&self, py: Python<'_>, run: impl FnOnce(&consumer::Consumer) -> T + Send) -> PyResult<T> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        py.detach(|| caught("the reader", || lock().as_ref().map(run)))?
            .ok_or_else(|| PyRuntimeError::new_err("the consumer is closed"))
    }
}

#[pyfunction]
fn logged() -> Vec<(i32, String)> {
    consumer::logged()
}

/// With too many cells together it is an OverflowError: with fewer records at once it may go.
fn broken(error: ArrowError) -> PyErr {
    match error {
        ArrowError::MemoryError(_) => PyOverflowError::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}

/// What panics is an error.
fn caught<T>(what: &str, run: impl FnOnce() -> T) -> PyResult<T> {
    guard::caught(run).map_err(|said| PyRuntimeError::new_err(format!("{what} broke: {said}")))
}

type Description<'py> = (Vec<String>, String, Vec<Bound<'py, PyAny>>, i64, i32);

/// Names, a kind, what is inside it, where null is (-2 a value, -1 nowhere, else the branch of a union), and the number
/// of a field whose absence is told; -1 of any other.
fn described(field: &Bound<'_, PyAny>) -> PyResult<Wanted> {
    let (names, kind, inner, null, tracked): Description = field.extract()?;
    let inner = inner.iter().map(described).collect::<PyResult<Vec<_>>>()?;
    let null = match null {
        -2 => Null::Plain,
        -1 => Null::Never,
        0 | 1 => Null::Branch(null),
        _ => return Err(PyValueError::new_err(format!("no null is {null}"))),
    };
    let tracked = (tracked >= 0).then_some(tracked);
    Ok(Wanted { names, kind: kinds::named(&kind, inner).ok_or_else(|| unknown(&kind))?, null, tracked })
}

type Part<'py> = (u32, String, String, Option<u32>, Vec<Bound<'py, PyAny>>, Vec<(i32, String)>);

/// Number, how often it comes, its form, the choice that it is of, fields inside it, and names of its numbers.
fn part(field: &Bound<'_, PyAny>) -> PyResult<protobuf::Field> {
    let (number, how, form, choice, inner, symbols): Part = field.extract()?;
    let inner = inner.iter().map(part).collect::<PyResult<Vec<_>>>()?;
    let how = protobuf::How::named(&how).ok_or_else(|| unknown(&how))?;
    let form = protobuf::Form::named(&form, inner, symbols).ok_or_else(|| unknown(&form))?;
    Ok(protobuf::Field { number, how, form, choice })
}

fn unknown(kind: &str) -> PyErr {
    PyValueError::new_err(format!("no column of kind {kind}"))
}

/// Changes with every change of a signature, so that calving never calls another build than its own.
const INTERFACE: u32 = 6;

#[pymodule]
fn calving_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<Decoder>()?;
    module.add_class::<Consumer>()?;
    module.add_function(wrap_pyfunction!(logged, module)?)
}
