//! What Python sees. Arrays go there by Arrow's PyCapsule interface.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_data::ArrayData;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::Field;
use arrow_schema::ffi::FFI_ArrowSchema;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyList};

use crate::columns::Kind;
use crate::json::Decoder;

/// A struct array, for `pyarrow.array`.
#[pyclass(frozen)]
struct Rows(ArrayData);

#[pymethods]
impl Rows {
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

    fn decode(&self, values: &Bound<'_, PyList>) -> PyResult<(Rows, Vec<usize>)> {
        let values = values.iter().map(|value| Ok(value.cast_into::<PyBytes>()?)).collect::<PyResult<Vec<_>>>()?;
        let records = values.iter().map(|value| value.as_bytes());
        let decoded = catch_unwind(AssertUnwindSafe(|| self.0.decode(records)))
            .map_err(|_| PyRuntimeError::new_err("the decoder broke"))?
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok((Rows(decoded.rows), decoded.refused))
    }
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
    module.add_class::<JsonDecoder>()
}
