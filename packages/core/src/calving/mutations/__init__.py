"""Finds the keys of changed rows in data files, and encodes the deletes of mutation tables."""
