"""Texts on which DuckDB's functions of JSON would overflow the stack, and end the process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from calving.records.leaves import leaves

MOST_LEVELS = 1_000
"""The most levels of JSON within a text. JSON of more levels is no JSON to calving's own reader either."""

_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{\]}]', re.DOTALL)
_OPENING = ("[", "{", "u005", "u007")
"""What opens a level. Within a string that a query may take out of its JSON, it may be escaped."""


def deep_rows(columns: Iterable[pa.Array]) -> set[int]:
    """The rows with a text, at any depth of objects and lists, whose JSON has more levels than a function may read, or
    has such JSON in a string.
    """
    return {row for column in columns for array, rows in leaves(column) for row in _deep(array, rows)}


def _deep(array: pa.Array, rows: pa.Array) -> Iterator[int]:
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        counts = reduce(pc.add, (pc.count_substring(array, opening) for opening in _OPENING))
        for place in pc.indices_nonzero(pc.fill_null(pc.greater(counts, MOST_LEVELS), False)).to_pylist():
            value = array[place].as_py()
            if _is_deep(value if isinstance(value, str) else value.decode("latin-1")):
                yield rows[place].as_py()


def _is_deep(text: str) -> bool:
    """Whether one of the JSON values in a text, or in a string of one, has too many levels. What is not closed is no
    JSON: functions refuse it.
    """
    texts = [text]
    while texts:
        level = most = 0
        for token in _TOKENS.finditer(texts.pop()):
            word = token[0]
            if word[0] == '"':
                if sum(map(word.count, _OPENING)) > MOST_LEVELS:
                    texts.append(_unescaped(word))
            elif word in "[{":
                level += 1
                most = max(most, level)
            else:
                level = max(level - 1, 0)
                if level == 0 and most > MOST_LEVELS:
                    return True
                most = 0 if level == 0 else most
    return False


def _unescaped(string: str) -> str:
    try:
        return str(json.loads(string, strict=False))
    except ValueError:  # functions refuse it, too
        return ""
