"""Converters decode a record's bytes into values. There is one module per format, found by name.

    >>> from calving.converters.interface import converter
    >>> decoded = converter("json", {}, is_key=False).decode([b'{"id": 1}', b"{", b'{"id": 2}'], None)
    >>> [value for part in decoded.values for value in part.data], [bad.index for bad in decoded.bad]
    ([{'id': 1}, {'id': 2}], [1])

Each value comes back once: decoded, or as bad with its reason. The second argument is the projection, the fields that
tables need; None decodes everything. A converter may be faster for the whole block than for one value, in Rust or in
Arrow; its results are those of the exact path, which decodes one value at a time in Python.
"""

from calving.converters.interface import Converter, Decoded, stage
from calving.records.fields import Projection
from calving.records.values import RecordError, Values

__all__ = ["Converter", "Decoded", "Projection", "RecordError", "Values", "stage"]
