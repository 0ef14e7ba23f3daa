"""Iceberg through pyiceberg 0.12: catalogs, tables, and calving's commits."""
