"""The names that tables can have."""

from __future__ import annotations


def is_table_name(name: str) -> bool:
    """Whether this can be the name of a table: it needs a namespace and a name, and no part may be
    empty. Braces are what is left of a template.
    """
    parts = name.split(".")
    return len(parts) > 1 and all(map(_is_name, parts))


def is_table_name_of_record(name: str) -> bool:
    """Whether a record may name this table. Catalogs make locations of names: a name with a slash would be a place
    within another table, and other marks have meanings in URLs.
    """
    if len(name) > _LONGEST_NAME or not is_table_name(name) or _OF_URLS & {*name}:
        return False
    return all(len(part.encode()) <= _LONGEST_PART for part in name.split("."))


_LONGEST_NAME, _LONGEST_PART = 1_000, 255
"""In characters, and in bytes; file systems have no longer names."""
_OF_URLS = frozenset("/\\?#%")


def _is_name(part: str) -> bool:
    return bool(part) and part == part.strip() and part.isprintable() and not {*"{}"} & {*part}
