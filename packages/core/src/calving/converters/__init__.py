"""Converters: from a record's bytes to values. One file per format, found by name."""

from calving.converters.interface import Converter, Decoded

__all__ = ["Converter", "Decoded"]
