"""Reads the text of .properties files as java.util.Properties does."""

from __future__ import annotations

import re
from collections.abc import Iterator

from calving.errors import ConfigError

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\n|\r")
_ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(text: str) -> dict[str, str]:
    """Keys and values, unescaped. The last value of a repeated key counts. Blanks at the end of a value are kept.

    :raises ConfigError: ``\\u`` without four hexadecimal digits, or half of a surrogate pair.
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _ENTRY.fullmatch(line)
        assert match is not None  # noqa: S101 - the pattern matches any text
        properties[_unescaped(match[1])] = _unescaped(match[2])
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Lines joined with their continuation lines, without comments and empty lines."""
    begun: str | None = None
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANKS)
        if begun is None and (not line or line[0] in "#!"):
            continue
        line = (begun or "") + line
        begun = None
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun = line[:-1]
        else:
            yield line
    if begun is not None:
        yield begun


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_character, text)
    try:
        return plain.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise ConfigError("a .properties file has half of a surrogate pair") from error


def _character(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    if escape == "u":
        raise ConfigError("a .properties file has \\u without four hexadecimal digits; a backslash is written \\\\")
    return _NAMED.get(escape, escape)
