"""Converters decode a record's bytes into values. There is one module per format, found by name."""

from calving.converters.interface import Converter, Decoded, stage
from calving.records.fields import Projection
from calving.records.values import RecordError, Values

__all__ = ["Converter", "Decoded", "Projection", "RecordError", "Values", "stage"]
