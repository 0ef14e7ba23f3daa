"""Iceberg through pyiceberg 0.12: catalogs, tables, and the one way in which calving commits."""
