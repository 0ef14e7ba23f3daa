"""Additions to pyiceberg's catalogs."""
