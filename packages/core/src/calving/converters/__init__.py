"""Converters: from a record's bytes to values. One file per format, found by name."""

from calving.converters.interface import Converter, Decoded, stage
from calving.records.projection import Projection
from calving.records.values import RecordError, Values

__all__ = ["Converter", "Decoded", "Projection", "RecordError", "Values", "stage"]
