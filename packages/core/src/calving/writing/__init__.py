"""Data files: layout, partitions, formats, statistics."""
