//! What Python sees. Arrays go there by Arrow's PyCapsule interface.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::{Mutex, PoisonError};

use arrow_data::ArrayData;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::Field;
use arrow_schema::ffi::FFI_ArrowSchema;
use pyo3::exceptions::{PyLookupError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyList};

use crate::columns::Kind;
use crate::consumer;
use crate::json::Decoder;
use crate::librdkafka::Functions;

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

/// Reads objects of schemaless JSON into columns.
#[pyclass(frozen)]
struct JsonDecoder(Decoder);

#[pymethods]
impl JsonDecoder {
    #[new]
    fn new(fields: Vec<Bound<'_, PyAny>>, closed: bool, nesting: usize) -> PyResult<JsonDecoder> {
        Ok(JsonDecoder(Decoder { fields: fields.iter().map(field).collect::<PyResult<_>>()?, closed, nesting }))
    }

    fn decode(&self, values: &Bound<'_, PyList>) -> PyResult<(Column, Vec<usize>)> {
        let values = values.iter().map(|value| Ok(value.cast_into::<PyBytes>()?)).collect::<PyResult<Vec<_>>>()?;
        self.decoded(values.iter().map(|value| value.as_bytes()))
    }

    /// Of a column of bytes without nulls.
    fn decode_column(&self, values: &Bound<'_, PyAny>) -> PyResult<(Column, Vec<usize>)> {
        let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) =
            values.call_method0("__arrow_c_array__")?.extract()?;
        let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
        let array = array.pointer_checked(Some(c"arrow_array"))?.cast::<FFI_ArrowArray>();
        // What the capsules point to lives as long as they do, and the buffers as long as the array.
        let (schema, array) = unsafe { (schema.as_ref(), array.as_ref()) };
        let has_nulls = || !array.buffer(0).is_null() && array.null_count_opt() != Some(0);
        if schema.format() != "z" || array.num_buffers() != 3 || has_nulls() {
            return Err(PyValueError::new_err("a column of bytes without nulls is wanted"));
        }
        if array.len() == 0 {
            return self.decoded(std::iter::empty());
        }
        let (ends, bytes) = unsafe {
            let ends = slice::from_raw_parts(array.buffer(1).cast::<i32>().add(array.offset()), array.len() + 1);
            (ends, slice::from_raw_parts(array.buffer(2), usize::try_from(ends[array.len()])?))
        };
        let places = ends.iter().map(|&end| usize::try_from(end)).collect::<Result<Vec<_>, _>>()?;
        self.decoded(places.windows(2).map(|at| bytes.get(at[0]..at[1]).unwrap_or_default()))
    }
}

impl JsonDecoder {
    fn decoded<'a>(&self, records: impl ExactSizeIterator<Item = &'a [u8]>) -> PyResult<(Column, Vec<usize>)> {
        let decoded = catch_unwind(AssertUnwindSafe(|| self.0.decode(records)))
            .map_err(|_| PyRuntimeError::new_err("the decoder broke"))?
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok((Column(decoded.rows), decoded.refused))
    }
}

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

    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Vec<Vec<(String, Option<Bound<'py, PyBytes>>)>>> {
        let named = |(name, value): consumer::Header| -> PyResult<_> {
            Ok((String::from_utf8(name)?, value.map(|value| PyBytes::new(py, &value))))
        };
        self.0.headers().into_iter().map(|headers| headers.into_iter().map(named).collect()).collect()
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

    fn take(&self, py: Python<'_>, most: usize, timeout_ms: i32) -> PyResult<Vec<Arrived>> {
        let arrived = self
            .with(py, |client| catch_unwind(AssertUnwindSafe(|| client.take(most, timeout_ms))))?
            .map_err(|_| PyRuntimeError::new_err("the reader broke"))?
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok(arrived
            .into_iter()
            .map(|each| match each.what {
                Ok(records) => (each.topic, each.partition, each.offset, Some(Records(records)), None),
                Err(fault) => (each.topic, each.partition, each.offset, None, Some(fault)),
            })
            .collect())
    }

    /// Safe to call twice.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }
}

impl Consumer {
    /// Without Python's lock: librdkafka may wait.
    fn with<T: Send>(&self, py: Python<'_>, run: impl FnOnce(&consumer::Consumer) -> T + Send) -> PyResult<T> {
        py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(run))
            .ok_or_else(|| PyRuntimeError::new_err("the consumer is closed"))
    }
}

#[pyfunction]
fn logged() -> Vec<(i32, String)> {
    consumer::logged()
}

/// A name, a kind, and the fields of a struct or the element of a list.
fn field(described: &Bound<'_, PyAny>) -> PyResult<(String, Kind)> {
    let (name, kind, inner): (String, String, Vec<Bound<'_, PyAny>>) = described.extract()?;
    let mut inner = inner.iter().map(field).collect::<PyResult<Vec<_>>>()?;
    let kind = match (kind.as_str(), inner.len()) {
        ("boolean", 0) => Kind::Boolean,
        ("long", 0) => Kind::Long,
        ("double", 0) => Kind::Double,
        ("string", 0) => Kind::Text,
        ("timestamp", 0) => Kind::Instant { utc: false },
        ("timestamptz", 0) => Kind::Instant { utc: true },
        ("date", 0) => Kind::Date,
        ("other", 0) => Kind::Other,
        ("struct", _) => Kind::Struct(inner),
        ("list", 1) => Kind::List(Box::new(inner.remove(0).1)),
        (kind, 0) => decimal(kind).ok_or_else(|| unknown(kind))?,
        (kind, _) => return Err(unknown(kind)),
    };
    Ok((name, kind))
}

/// `decimal(precision,scale)`
fn decimal(kind: &str) -> Option<Kind> {
    let (precision, scale) = kind.strip_prefix("decimal(")?.strip_suffix(')')?.split_once(',')?;
    let (precision, scale) = (precision.parse().ok()?, scale.parse().ok()?);
    (precision <= 38 && scale <= precision).then_some(Kind::Decimal { precision, scale })
}

fn unknown(kind: &str) -> PyErr {
    PyValueError::new_err(format!("no column of kind {kind}"))
}

#[pymodule]
fn calving_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<JsonDecoder>()?;
    module.add_class::<Consumer>()?;
    module.add_function(wrap_pyfunction!(logged, module)?)
}
