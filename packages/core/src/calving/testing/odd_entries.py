"""Entries that a control log may get from others, or from a sink of another version: damaged, foreign, or neither."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from calving.model.events import (
    CommitComplete,
    DataComplete,
    DataWritten,
    Event,
    PartitionProgress,
    StartCommit,
    TableReference,
)
from calving.model.files import DataFile
from calving.model.offsets import TopicPartition
from calving.wire.codec import MAGIC, Message, encode

_COMMIT = UUID(int=1)
_WRITTEN = DataWritten(_COMMIT, TableReference("c", ("db",), "t"), (DataFile("s3://b/f.parquet", "PARQUET", 1, 1),))
_COMPLETE = DataComplete(_COMMIT, (PartitionProgress(TopicPartition("source", 0), 10, 1),))
_COVERAGE = b'{"source":{"0":[[0,10]]}}'
_DEEP = b"[" * 100_000


class OddEntry(NamedTuple):
    """The value of an entry, and its two headers; None: it has no such header."""

    value: bytes
    coverage: bytes | None = None
    beside: bytes | None = None


def strange(group: str) -> Mapping[str, OddEntry]:
    """Entries that every cursor of ``group`` skips: those of another group, those of nobody, and those of the group
    itself that can have no files.
    """
    other = _event("another-group", _WRITTEN)
    values = {
        "an empty value": b"",
        "a value that is no event": b"zz",
        "a long value that is no event": MAGIC + b"\xff" * 400_000,
        "another group's event that is cut off": other[:-20],
        "an event that is cut off within its schema": _event(group, _WRITTEN)[:300],
        "another group's event of an unknown class": _unknown_class("another-group"),
        "an event with a schema that holds itself": _with_field(group, _RECURSIVE),
        "an event with a list of nothing": _with_field(group, {"type": "array", "items": "null"}),
        "a schema of deep lists": _framed(_DEEP[:60_000]),
    }
    headers = {
        "a header that is no JSON": (b"", b"{"),
        "a header that is no UTF-8": (b"", b"\xff"),
        "a header that is a list": (b"", b"[1]"),
        "a header that is a number": (b"", b"1"),
        "a long header": (b"", b'{"x":"' + b"x" * 300_000 + b'"}'),
        "a header of deep lists": (b"", _DEEP),
        "a header whose group is a number": (b"", b'{"group":5}'),
        "a header whose tables have no numbers": (b"", b'{"tables":[["t"]]}'),
        "source offsets that are no UTF-8": (b"\xff", None),
        "source offsets that are no JSON": (b"{", None),
        "source offsets of deep lists": (_DEEP, None),
        "source offsets of another group": (_COVERAGE, b'{"group":"another-group"}'),
    }
    own = _event(group, StartCommit(_COMMIT))
    return {
        **{name: OddEntry(value) for name, value in values.items()},
        **{name: OddEntry(b"zz", *both) for name, both in headers.items()},
        **{f"another group's event with {name}": OddEntry(other, *both) for name, both in headers.items()},
        "a start of the group with a header that is no JSON": OddEntry(own, None, b"{"),
        "a start of the group that is cut off": OddEntry(own[:-3], None, None),
    }


def own_with_files(group: str) -> Mapping[str, OddEntry]:
    """Entries of ``group`` that cannot be decoded, and that may have files, or source offsets of files."""
    beside = json.dumps({"group": group}).encode()
    written, complete, ended = (_event(group, event) for event in (_WRITTEN, _COMPLETE, CommitComplete(_COMMIT)))
    return {
        "files that are cut off, without headers": OddEntry(written[:-20]),
        "an answer that is cut off, without headers": OddEntry(complete[:-2]),
        "an answer with a branch that its union does not have": OddEntry(
            complete.replace(b"source\0\2", b"source\0\x63")
        ),
        "an event of an unknown class": OddEntry(_unknown_class(group)),
        "a value that is no event, with source offsets": OddEntry(b"zz", _COVERAGE, beside),
        "files with source offsets that are no JSON": OddEntry(written, b"{", beside),
        "files with source offsets that are fractions": OddEntry(written, b'{"source":{"0":[[0.5,2.5]]}}', beside),
        "files with source offsets of 30 digits": OddEntry(written, b'{"source":{"0":[[0,%d]]}}' % 10**30, beside),
        "files with source offsets in a wrong form": OddEntry(written, b'{"source":[0]}', beside),
        "files with a header that is no JSON": OddEntry(written, _COVERAGE, b"{"),
        "an answer whose number of parts is a text": OddEntry(complete, _COVERAGE, _with(beside, parts="2")),
        "an end of a cycle with parked commits in a wrong form": OddEntry(ended, None, _with(beside, parked=[1])),
        "an end of a cycle with tables in a wrong form": OddEntry(ended, None, _with(beside, tables=[["t", 1, "x"]])),
    }


def _event(group: str, event: Event) -> bytes:
    return encode(Message(uuid4(), 1, group, event))


def _with(beside: bytes, **more: object) -> bytes:
    return json.dumps({**json.loads(beside), **more}).encode()


def _framed(schema: bytes, datum: bytes = b"") -> bytes:
    return MAGIC + struct.pack(">H", len(schema)) + schema + datum


def _changed(group: str, change: Callable[[Any], None], code: int = 0) -> bytes:
    """An event of ``group`` with a schema and a number of its class that are not calving's."""
    value = _event(group, StartCommit(_COMMIT))
    (length,) = struct.unpack(">H", value[2:4])
    schema, datum = json.loads(value[4 : 4 + length]), value[4 + length :]
    change(schema)
    return _framed(json.dumps(schema).encode(), datum[:16] + bytes([2 * code]) + datum[17:] + b"\0" * 100)


def _unknown_class(group: str) -> bytes:
    def renamed(schema: Any) -> None:
        schema["fields"][-1]["type"]["name"] = "DataForgotten"

    return _changed(group, renamed, code=9)


_RECURSIVE = {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R", "field-id": 2}]}


def _with_field(group: str, kind: object) -> bytes:
    def longer(schema: Any) -> None:
        schema["fields"][-1]["type"]["fields"].append({"name": "more", "type": kind, "field-id": 1})

    return _changed(group, longer)
