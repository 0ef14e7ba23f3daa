"""Reads configuration files: TOML, Kafka Connect's JSON, and .properties as java.util.Properties reads them; and looks
up ``${env:NAME}`` and ``${file:PATH:KEY}`` in their settings. Errors name the file and the remedy.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calving.errors import ConfigError
from calving.wording import meant

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


_AT_LINE = re.compile(r" \(at line (\d+), column (\d+)\)")
_KEY = re.compile(r"""\s*([\w-][\w.-]*|"[^"=:]*"|'[^'=:]*')\s*([=:])(?!=)""", re.ASCII)
"""A key, as it is written, and what stands after it."""
_BACKSLASH = re.compile(r"Unescaped '\\'|Invalid hex|escape", re.IGNORECASE)
_COMMENT = re.compile(r"^\s*(//|/\*|#)", re.MULTILINE)


def read(path: Path) -> dict[str, str]:
    """The flat keys of a file, unchecked, all values as text. :raises ConfigError: the file cannot be read."""
    kind = path.suffix.lower()
    if kind in (".yaml", ".yml"):
        raise ConfigError(f"{path}: YAML is not read: write TOML, Kafka Connect's JSON (.json) or .properties")
    if kind == ".json":
        return _of_json(path, read_json(path))
    text = _text(path)
    if text.lstrip().startswith("{"):
        raise ConfigError(f"{path} holds JSON: name it .json")
    with _naming(path):
        return read_properties(text) if kind == ".properties" else flat(_toml(text))


def read_json(path: Path) -> Any:
    """The JSON of a file. :raises ConfigError: the file cannot be read, or has a key twice."""
    text = _text(path)
    with _naming(path):
        try:
            return json.loads(text, object_pairs_hook=_once)
        except json.JSONDecodeError as error:
            raise ConfigError(_not_json(text, error)) from error


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_not_toml(text, str(error))) from error


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in errors of its content."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"{path}: {_too_much(error)}") from error


def _too_much(error: RecursionError | ValueError) -> str:
    if isinstance(error, RecursionError):
        return "its objects are nested too deep: a configuration is an object of keys"
    return "a number has thousands of digits: is it meant to be text, in quotes?"


def _text(path: Path) -> str:
    """The file's text. Some editors put a byte order mark before it.

    :raises ConfigError: it is no file of text.
    """
    try:
        return path.read_text("utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such file; `calving init {path.name}` writes one") from error
    except IsADirectoryError as error:
        raise ConfigError(f"{path}: it is a folder: name the configuration file in it") from error
    except OSError as error:
        raise ConfigError(f"{path}: it cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: it is not UTF-8 at byte {error.start}: save it as UTF-8") from error


def _not_toml(text: str, why: str) -> str:
    """Why a text is no TOML, and what to write. A value may be a secret, so it is not shown."""
    line, number = _line(text, why)
    where = f"line {number}" if number else "its end"
    if "overwrite" in why or "twice" in why or "mutate" in why:
        return _again(text, line, where)
    if _BACKSLASH.search(why):
        return f"{where}: a backslash in double quotes: write '...' in single quotes, or \\\\"
    if "Expected '=' after a key" in why:
        if (match := _KEY.match(line)) is not None and match[2] == ":":
            return f"{where}: '{match[1]}:' is YAML or JSON: write key = value"
        return f"{where}: a key has no value: write key = value, and text in quotes"
    key = _name(line)
    return f"{where}: {f'the value of {key}' if key else 'a value'} {_not_a_value(line, why)}"


def _not_a_value(line: str, why: str) -> str:
    """The end of a sentence about the value in a line."""
    if why.startswith("Invalid value"):
        return 'is neither a number nor in quotes: text stands in quotes, as in name = "orders"'
    if "nterminated" in why or "Illegal character" in why:
        return "has a quote that is not closed, or a line break in its text"
    if "after a statement" in why:
        at = _AT_LINE.search(why)
        after = line[int(at[2]) - 1 : int(at[2])] if at else ""
        if after in {",", ";"}:
            return f"is followed by '{after}': remove it"
        return "goes on after its end: put all of it in quotes, '...' if it has double quotes"
    return f"is no TOML ({_AT_LINE.sub('', why)}): write key = value, and text in quotes"


def _line(text: str, why: str) -> tuple[str, int]:
    """The line that an error names, and its number; 0 if the error is at the end."""
    lines = text.splitlines()
    match = _AT_LINE.search(why)
    number = int(match[1]) if match else 0
    line = lines[number - 1] if 0 < number <= len(lines) else next(filter(str.strip, reversed(lines)), "")
    return line, number


def _again(text: str, line: str, where: str) -> str:
    """Why a key or a section cannot stand there: it is there before, or goes on below another key."""
    before = text.splitlines()
    if line.lstrip().startswith("["):
        return f"{where}: the section {line.partition('#')[0].strip()} is there twice: join them"
    key = _name(line)
    if key and Counter(_name(each).strip("\"'") for each in before)[key.strip("\"'")] > 1:
        return f"{where}: the key {key} is there twice: leave one out"
    return (
        f"{where}: a key without quotes is a path, and {key or 'this one'} goes on below another key; quote such"
        ' keys, as in "iceberg.tables" = "db.t", or write them in a section'
    )


def _name(line: str) -> str:
    """The key of a line, as it is written; empty if there is none."""
    match = _KEY.match(line)
    return match[1] if match else ""


def _not_json(text: str, error: json.JSONDecodeError) -> str:
    """Why a text is no JSON, and what to write."""
    where = f"line {error.lineno}"
    if not text.strip():
        return "it is empty: write an object of keys, or {name, config}"
    if _COMMENT.search(text):
        return f"{where}: JSON has no comments: remove them, or write TOML"
    if re.match(r"\s*[]}]", text[error.pos :]) or re.search(r",\s*$", text[: error.pos]):
        return f"{where}: a comma stands before a closing bracket: remove it"
    if "'" in text[error.pos : error.pos + 2]:
        return f"{where}: JSON has double quotes around keys and text"
    return f"{where}, column {error.colno}: it is no JSON ({error.msg}): is a quote, a comma or a bracket missing?"


def _of_json(path: Path, raw: Any) -> dict[str, str]:
    if isinstance(raw, dict) and isinstance(raw.get("config"), dict):
        raw = {"name": raw.get("name"), **raw["config"]} if raw.get("name") else raw["config"]
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: a JSON configuration is an object of keys, or {{name, config}}")
    return flat(raw)


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """:raises ConfigError: an object has a key twice, of which JSON's readers take one."""
    key, count = next(iter(Counter(name for name, _ in pairs).most_common(1)), ("", 0))
    if count > 1:
        raise ConfigError(f"the key {key} is there twice: leave one out")
    return dict(pairs)


def flat(raw: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as flat settings: one key for each value, its parts joined by dots, and all values as text."""
    out: dict[str, str] = {}
    for key, setting in raw.items():
        if isinstance(setting, Mapping):
            out |= flat(setting, f"{prefix}{key}.")
        elif isinstance(setting, list):
            out[prefix + key] = ",".join(_as_text(item) for item in setting)
        elif setting is not None:
            out[prefix + key] = _as_text(setting)
    return out


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_REFERENCE = re.compile(r"\$\{(env|file):([^}]+)\}")
_FOREIGN = re.compile(r"\$\{(?!(?:env|file):[^}]+\})(?P<name>[\w.-]+):[^}]*\}", re.ASCII)
_VARIABLE = re.compile(r"\A\$\{(?P<name>[A-Z_][A-Z0-9_]*)\}\Z", re.ASCII)
_SHELL = re.compile(r"\$\{\w+:[-?=+]", re.ASCII)


def mistaken(text: str) -> str | None:
    """What looks like a reference and is none, and what to write; None if there is none. A default is not shown."""
    if (match := _VARIABLE.search(text)) is not None:
        return f"nothing is known by the name {match[0]}: write ${{env:{match['name']}}}"
    if (match := _FOREIGN.search(text)) is None:
        return None
    name = match["name"]
    if _SHELL.match(match[0]):
        return f"'${{{name}:...}}' is a shell's form: write ${{env:{name}}}"
    if name.lower() in ("env", "file"):
        return f"'${{{name}:...}}' is no reference: write ${{env:NAME}} or ${{file:PATH:KEY}}"
    return f"'${{{name}:...}}' is from a provider that calving lacks: write ${{env:NAME}} or ${{file:PATH:KEY}}"


def has_reference(text: str) -> bool:
    # Without the end each beginning of a reference would be followed to the end of the text.
    return _REFERENCE.search(text, 0, text.rfind("}") + 1) is not None


def resolved(raw: Mapping[str, str]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The settings with what they refer to, and the values that were looked up, by key.

    :raises ConfigError: there is no such variable, file, or key in the file.
    """
    provided: dict[str, list[str]] = {}

    def resolve(key: str, value: str) -> str:
        def look_up(match: re.Match[str]) -> str:
            text = _look_up(key, *match.groups())
            provided.setdefault(key, []).append(text)
            return text

        if (why := mistaken(value)) is not None:
            raise ConfigError(f"{key}: {why}")
        return _REFERENCE.sub(look_up, value)

    return {key: resolve(key, value) for key, value in raw.items()}, provided


def _look_up(key: str, kind: str, rest: str) -> str:
    if kind == "env":
        if rest not in os.environ:
            raise ConfigError(f"{key}: the environment variable {rest} is not set: set it where calving starts")
        return os.environ[rest]
    path, _, name = rest.rpartition(":")
    if not path:
        raise ConfigError(f"{key}: ${{file:{rest}}} names no key of the file: write ${{file:PATH:KEY}}")
    try:
        entries = read_properties(_provided(Path(path)))
    except FileNotFoundError as error:
        raise ConfigError(f"{key}: {path}: there is no such file: create it, or correct ${{file:PATH:KEY}}") from error
    except OSError as error:
        raise ConfigError(f"{key}: {path}: it cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{key}: {path}: {error}") from error
    if name not in entries:
        raise ConfigError(f"{key}: {path} has no key '{name}'{meant(name, entries, 0.6) or ': add it there'}")
    return entries[name]


_MOST_BYTES = 1024 * 1024


def _provided(path: Path) -> str:
    """:raises ValueError: it is no file of text, or has more than 1 MiB. A device would be read without end."""
    if path.exists() and not path.is_file():
        raise ValueError("it is no file")
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
    return data.decode()
