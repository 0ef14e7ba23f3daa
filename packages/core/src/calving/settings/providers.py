"""Looks up ``${env:NAME}`` and ``${file:PATH:KEY}`` in settings."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from calving.errors import ConfigError
from calving.settings.files import read_properties
from calving.wording import meant

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
        entries = read_properties(_text(Path(path)))
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


def _text(path: Path) -> str:
    """:raises ValueError: it is no file of text, or has more than 1 MiB. A device would be read without end."""
    if path.exists() and not path.is_file():
        raise ValueError("it is no file")
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
    return data.decode()
