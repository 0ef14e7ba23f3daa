"""Converters: a record's bytes to a table's rows. One file per format, found by name."""
