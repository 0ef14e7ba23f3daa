"""Entries that a control log may get from others, or from a sink of another version: damaged, foreign, or neither."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from calving.model.events import (
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Event,
    PartitionProgress,
    StartCommit,
    TableReference,
)
from calving.model.files import DataFile
from calving.model.forms import NEWEST
from calving.model.offsets import TopicPartition
from calving.wire.codec import MAGIC, Message, encode
from calving.wire.schema import resolve

_COMMIT = UUID(int=1)
_WRITTEN = DataWritten(
    _COMMIT,
    TableReference("c", ("db",), "t"),
    (DataFile("s3://b/f.parquet", "PARQUET", 1, 1, value_counts={1: 1}, lower_bounds={1: b"x"}),),
)
_COMPLETE = DataComplete(_COMMIT, (PartitionProgress(TopicPartition("source", 0), 10, 1),))
_COVERAGE = b'{"source":{"0":[[0,10]]}}'
_ANSWERS_ID = 10101
_DEEP = b"[" * 100_000


_ODD_FILES: Mapping[str, tuple[int, object, object]] = {
    "a file whose path is a number": (100, "long", 5),
    "a file whose path is null": (100, ["null", "string"], None),
    "a file whose path is empty": (100, "string", ""),
    "a file with a path of 100,000 letters": (100, "string", "x" * 100_000),
    "a file of an unknown format": (101, "string", "EXE"),
    "a file whose partition is a number": (102, "long", 5),
    "a file with less than no records": (103, "long", -1),
    "a file whose number of records is a text": (103, "string", "1"),
    "a file whose size is null": (104, ["null", "long"], None),
    "a file of a content that Iceberg does not know": (134, "int", 7),
    "a file of a spec below zero": (141, "int", -1),
    "a file whose counts are texts": (118, "string", "1"),
    "a file whose bound is null": (127, ["null", "bytes"], None),
    "files for a table without a name": (10603, "string", ""),
    "files for a table whose namespace is a text": (10601, "string", "db"),
    "files with a commit id of three bytes": (10300, {"type": "fixed", "name": "three", "size": 3}, b"abc"),
}
"""For each an id of a field, a type that it gets, and a value."""
_ODD_ANSWERS: Mapping[str, tuple[int, object, object]] = {
    "an answer for a topic that is null": (10700, ["null", "string"], None),
    "an answer for a topic whose name is a number": (10700, "long", 5),
    "an answer for a partition below zero": (10701, "int", -1),
    "an answer for a partition of 64 bits": (10701, "long", 2**40),
    "an answer with an offset below zero": (10702, ["null", "long"], -5),
    "an answer whose offset is a text": (10702, ["null", "string"], "5"),
    "an answer whose offset is a fraction": (10702, "double", 0.5),
    "an answer whose time is a text": (10703, ["null", "string"], "now"),
    "an answer whose list is a text": (10101, "string", "all"),
}


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
        "an event with records of nothing": _with_field(group, _doubled("null", 40)),
        "a schema of deep lists": _framed(_DEEP[:60_000]),
        "files of a group that is null": _typed(group, _WRITTEN, 10503, ["null", "string"], None),
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
        "an answer with a branch that counts from the end": OddEntry(complete.replace(b"source\0\2", b"source\0\1")),
        "an answer for a partition of more than 64 bits": OddEntry(
            complete.replace(b"source\0", b"source" + b"\x80" * 9 + b"\2")
        ),
        "an answer that is cut off before its partitions": OddEntry(complete[: complete.index(b"\2\2\x0csource")]),
        "files with a branch that counts from the end": OddEntry(_with_delete_files(written, b"\3")),
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
        **{name: OddEntry(_typed(group, _WRITTEN, *odd), _COVERAGE, beside) for name, odd in _ODD_FILES.items()},
        **{name: OddEntry(_typed(group, _COMPLETE, *odd), _COVERAGE, beside) for name, odd in _ODD_ANSWERS.items()},
    }


def newer(group: str, version: str) -> Mapping[str, OddEntry]:
    """Entries of ``group`` that cannot be decoded, in a form that only ``version`` and later ones know."""
    beside = json.dumps({"group": group, "form": [NEWEST.number + 1, version]}).encode()
    written, ended = _event(group, _WRITTEN), _event(group, CommitComplete(_COMMIT))
    return {
        "an event of an unknown class": OddEntry(_unknown_class(group), None, beside),
        "a value that is no event": OddEntry(b"zz", None, beside),
        "files with source offsets in a wrong form": OddEntry(written, b'{"source":[0]}', beside),
        "a start that is cut off": OddEntry(_event(group, StartCommit(_COMMIT))[:-3], None, beside),
        "an end of a cycle with parked commits in a wrong form": OddEntry(ended, None, _with(beside, parked=[1])),
    }


def extreme(group: str) -> Mapping[str, OddEntry]:
    """Entries of ``group`` that can be decoded, with values that no sink writes."""
    tp, last = TopicPartition("source", 0), 2**63 - 1
    answers = {
        "twice the same partition": (PartitionProgress(tp, 5, 1), PartitionProgress(tp, 4, 2)),
        "the last offset and time": (PartitionProgress(tp, last, last),),
        "the first time": (PartitionProgress(tp, 0, -last - 1),),
        "a partition that no topic has": (PartitionProgress(TopicPartition("x" * 1_000, 2**31 - 1), 1, 1),),
        "an offset without a time": (PartitionProgress(tp, 1, None),),
        "a time without an offset": (PartitionProgress(tp, None, 1),),
    }
    far = {"the last time": last, "the first time": -last - 1}
    table = TableReference("c", ("db",), "t")
    events: dict[str, Event] = {
        **{f"an answer with {name}": DataComplete(_COMMIT, progress) for name, progress in answers.items()},
        **{f"an end of a cycle with {name}": CommitComplete(_COMMIT, at) for name, at in far.items()},
        **{f"a commit of a table with {name}": CommitToTable(_COMMIT, table, last, at) for name, at in far.items()},
        "a file with a long path": DataWritten(_COMMIT, table, (DataFile("x" * 60_000, "PARQUET", last, last),)),
        "a file of a table that nobody has": DataWritten(
            _COMMIT, TableReference("c", ("x" * 1_000,) * 20, "\n"), _WRITTEN.data_files
        ),
    }
    return {name: OddEntry(_event(group, event)) for name, event in events.items()}


def _event(group: str, event: Event) -> bytes:
    return encode(Message(uuid4(), 1, group, event))


def _with_delete_files(written: bytes, branch: bytes) -> bytes:
    """An event of files whose last field, a union, has this branch instead of its list, which is empty."""
    return written.removesuffix(b"\2\0") + branch + b"\0"


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


def _typed(group: str, event: Event, field_id: int, kind: object, value: object) -> bytes:
    """An event of ``group`` in which a field has this type and this value."""
    data = _event(group, event)
    (length,) = struct.unpack(">H", data[2:4])
    text = data[4 : 4 + length].decode()
    written = resolve(text)
    body, rest = written.event.read(data[4 + length :])
    answers = written.assignments.read(rest).value if written.assignments else None
    schema = json.loads(text)
    for node in _nodes(schema):
        if node.get("field-id") == field_id:
            node["type"] = kind
    for node in _nodes([body, answers]):
        if f"f{field_id}" in node:
            node[f"f{field_id}"] = value
    answers = value if field_id == _ANSWERS_ID else answers
    changed = resolve(json.dumps(schema))
    datum = changed.event.write(body) + (changed.assignments.write(answers) if changed.assignments else b"")
    return _framed(json.dumps(schema).encode(), datum)


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """All objects within."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _nodes(part)


_RECURSIVE = {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R", "field-id": 2}]}


def _doubled(leaf: object, times: int) -> object:
    """A record with a record twice, and so on: values without bytes, and with two to the power of ``times`` leaves."""
    schema, before = leaf, leaf
    for n in range(times):
        fields = [{"name": "a", "type": schema, "field-id": 3}, {"name": "b", "type": before, "field-id": 4}]
        schema, before = {"type": "record", "name": f"R{n}", "fields": fields}, f"R{n}"
    return schema


def _with_field(group: str, kind: object) -> bytes:
    def longer(schema: Any) -> None:
        schema["fields"][-1]["type"]["fields"].append({"name": "more", "type": kind, "field-id": 1})

    return _changed(group, longer)
