"""Converts values to Iceberg columns: whole columns if Arrow converts them exactly, otherwise value by value."""
