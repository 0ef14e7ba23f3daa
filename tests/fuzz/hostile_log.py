"""Hostile entries of the control log, with their headers, and hostile files of parked commits.

Each is one that the sink has written, with something else in one or more places: bytes, or values of JSON that are of
another type, deep, long, or beyond a number's range; or it says little and would be much when it is decompressed.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from calving.backend.entries import Entries
from calving.errors import DataLossError, TableTroubleError
from calving.iceberg.parking import Parking
from calving.model.events import Parked, TableId
from tests.fuzz.hostile import avro, body, most

Json = Any
_GOLDENS = Path(__file__).parents[1] / "goldens"
_TABLE: TableId = ("db", "t")


def case(chance: Random) -> Callable[[], object]:
    return chance.choice((_event, _entry, _parked))(chance)


def _event(chance: Random) -> Callable[[], object]:
    """An event of the Java sink, damaged, or with another schema in front."""
    records = json.loads((_GOLDENS / "control-topic.json").read_text())["records"]
    value = b64decode(chance.choice(records)["value_b64"])
    if chance.random() < 0.5:
        return _reading(chance, _damaged(chance, value), None, None)
    schema = json.dumps(avro(chance)).encode()[:65_535]
    return _reading(chance, value[:2] + len(schema).to_bytes(2, "big") + schema + body(chance), None, None)


def _entry(chance: Random) -> Callable[[], object]:
    """An entry of this sink whose headers are not what it wrote."""
    entries = json.loads((_GOLDENS / "stored-0.2.json").read_text())["control_log"]
    said = chance.choice([*entries.values()])
    spans, beside = (_twisted_text(chance, said[name]) for name in ("spans", "beside"))
    return _reading(chance, b64decode(chance.choice(said["events"])), spans, beside)


def _reading(chance: Random, value: bytes, spans: bytes | None, beside: bytes | None) -> Callable[[], object]:
    strict = chance.random() < 0.5
    refusals = (DataLossError,) if strict else ()

    def run() -> None:
        entries = Entries("connect-orders", "log", strict=strict)
        with suppress(*refusals):
            entries.envelope(0, 7, b"m", value, spans, beside)

    return run


def _parked(chance: Random) -> Callable[[], object]:
    text = chance.choice([*json.loads((_GOLDENS / "stored-0.2.json").read_text())["parked"].values()])
    match chance.randrange(4):
        case 0:
            data = _damaged(chance, zlib.compress(text.encode()))
        case 1:
            data = zlib.compress(chance.choice((b" ", b"[", b'{"a":', b"[0,", b'"')) * most(chance, 400_000_000))
        case _:
            data = zlib.compress(_twisted_text(chance, text) or b"")
    location = "s3://b/t/data/calving-parked-n0.json.z"
    files = Parking(_Files({location: data}), lambda: "n1")

    def run() -> None:
        with suppress(TableTroubleError):
            list(files.commits(_TABLE, Parked(location, 1, {})))

    return run


class _Files:
    def __init__(self, found: Mapping[str, bytes]) -> None:
        self._found = found

    def write(self, table: TableId, location: str, data: bytes) -> None:
        raise AssertionError

    def read(self, table: TableId, location: str) -> bytes:
        if location not in self._found:
            raise TableTroubleError(f"{location} does not exist")
        return self._found[location]

    def delete(self, table: TableId, location: str) -> None:
        raise AssertionError


def _damaged(chance: Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(found) + 1)
        found[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
    return bytes(found)


def _twisted_text(chance: Random, text: str | None) -> bytes | None:
    """JSON as UTF-8, with other values in some places, or damaged."""
    if not text or chance.random() < 0.1:
        return chance.choice((None, b"", b"[" * most(chance, 100_000), b'{"a":' * most(chance, 100_000)))
    if chance.random() < 0.2:
        return _damaged(chance, text.encode())
    said = json.loads(text)
    for _ in range(chance.randint(1, 3)):
        said = _twisted(chance, said)
    return json.dumps(said).encode()


def _twisted(chance: Random, value: Json) -> Json:
    if isinstance(value, dict) and value and chance.random() < 0.8:
        name = chance.choice([*value])
        return {**value, name: _twisted(chance, value[name])}
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        return [*value[:at], _twisted(chance, value[at]), *value[at + 1 :]]
    if isinstance(value, str) and value[:1] in ("{", "[") and chance.random() < 0.8:
        return json.dumps(_twisted(chance, json.loads(value)))
    n = most(chance, 100_000)
    deep: Json = []
    for _ in range(min(n, 900)):
        deep = [deep]
    return chance.choice(
        (None, True, -1, 0, 2**31, 2**63, 10**400, 1e308, "", "x" * n, "\x1b[2J", [], [0] * n, {}, deep)
    )
