"""Our own answers, in the words of ``Reference.java``, and where two answers differ."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.schema import Schema

from calving.casting.table import TableConverter
from calving.casting.texts import java_double
from calving.converters.interface import converter
from calving.errors import ConfigError
from calving.model.record_path import Evolution, TransformSpec
from calving.records.arrays import JSON
from calving.records.jsontext import load_json
from calving.records.shapes import by_shape
from calving.records.values import HEADERS, Records, Values, objects
from calving.transforms.chain import Chain
from tests.java.reference import Answer, Message


def transformed(kind: str, options: Mapping[str, str], messages: Sequence[Message]) -> list[Answer]:
    """Our answers to ``Java.transform``; messages of one type go through the chain together."""
    try:
        chain = Chain([TransformSpec("x", kind, options)])
    except ConfigError as error:
        return [{"error": f"ConfigError: {error}"}] * len(messages)
    answers: list[Answer] = [{"dropped": True}] * len(messages)
    for places, records in _records(messages, answers):
        done = chain.apply(records)
        for bad in done.bad:
            answers[places[bad.index]] = {"error": bad.reason}
        for part in done.records:
            if part.content == "truncate":  # no table gets anything of it
                continue
            index = part.index.to_pylist()
            described = type_of(part.value.type) if part.typed else None
            for i, topic, key, value, headers in zip(
                index,
                part.topic.to_pylist(),
                rendered(part.key),
                rendered(part.value),
                objects(part.headers),
                strict=True,
            ):
                answers[places[i]] = {
                    "topic": topic,
                    "key": key,
                    "value": value,
                    "type": described if value is not None else None,
                    "headers": [[h["key"], None if h["value"] is None else h["value"].decode()] for h in headers],
                }
    return answers


def converted(messages: Sequence[Message]) -> list[Answer]:
    """Our answers to ``Java.convert``."""
    answers: list[Answer] = [None] * len(messages)
    for places, records in _records(messages, answers):
        described = type_of(records.value.type) if records.typed else None
        for i, value in zip(places, rendered(records.value), strict=True):
            answers[i] = {"value": value, "type": described}
    return answers


def written(schema: Schema, messages: Sequence[Message]) -> list[Answer]:
    """Our answers to ``Java.write``, in a table of this schema that does not change."""
    answers: list[Answer] = [None] * len(messages)
    for places, records in _records(messages, answers):
        done = TableConverter("db.t", schema, Evolution(), {}).convert(Values(records.value, records.typed))
        for bad in done.bad:
            answers[places[bad.index]] = {"error": bad.reason}
        if done.rows is not None:
            rows = done.index
            for i, row in zip(rows, rendered(done.rows.to_struct_array()), strict=True):
                answers[places[i]] = _as_iceberg(row)
    return answers


def _as_iceberg(value: Answer) -> Answer:
    """Moments as numbers: days, microseconds."""
    match value:
        case {"timestamp": number, **others} | {"time": number, **others} if not others:
            return number
        case {"date": millis, **others} if not others:
            return millis // 86_400_000
        case dict():
            return {name: _as_iceberg(item) for name, item in value.items()}
        case list():
            return [_as_iceberg(item) for item in value]
    return value


def records_of(messages: Sequence[Message]) -> list[Records]:
    """Messages of one type together, without those that cannot be decoded."""
    return [records for _, records in _records(messages, [None] * len(messages))]


def _records(messages: Sequence[Message], answers: list[Answer]) -> Iterator[tuple[list[int], Records]]:
    """Messages of one type together, each group with its places; those that cannot be decoded are answered."""
    values, keys = _decoded(messages, "value", answers), _decoded(messages, "key", answers)
    groups: dict[Any, list[int]] = {}
    for place, message in enumerate(messages):
        if place in values and place in keys:
            kinds = (message.typed, values[place].type, keys[place].type, values[place].null_count)
            groups.setdefault(kinds, []).append(place)
    for (typed, *_), places in groups.items():
        chosen = [messages[i] for i in places]
        yield (
            places,
            Records(
                pa.array(range(len(places)), pa.int32()),
                pa.array([m.topic for m in chosen]),
                chosen[0].partition,
                pa.array([m.offset for m in chosen], pa.int64()),
                pa.array([m.timestamp for m in chosen], pa.timestamp("ms", "UTC")),
                pa.concat_arrays([keys[i] for i in places]),
                pa.concat_arrays([values[i] for i in places]),
                pa.array([[] for _ in chosen], HEADERS),
                typed,
            ),
        )


def _decoded(messages: Sequence[Message], side: str, answers: list[Answer]) -> dict[int, pa.Array]:
    """Each value as a column of its own, by place."""
    found: dict[int, pa.Array] = {}
    envelopes: list[int] = []
    for place, message in enumerate(messages):
        text = getattr(message, side)
        if text is None:
            found[place] = pa.nulls(1)
        elif message.typed:
            envelopes.append(place)
        else:
            try:
                ((_, found[place]),) = by_shape([load_json(text)], decimals=True)
            except ValueError as error:
                answers[place] = {"error": f"decode: {error}"}
    decoded = converter("json", {"schemas.enable": "true"}, is_key=False).decode(
        [getattr(messages[i], side).encode() for i in envelopes], None
    )
    for bad in decoded.bad:
        answers[envelopes[bad.index]] = {"error": f"decode: {bad.reason}"}
    for part in decoded.values:
        inner = part.index if part.index is not None else range(len(envelopes))
        assert not isinstance(part.data, list)
        for row, i in enumerate(inner):
            found[envelopes[i]] = part.data.slice(row, 1)
    return found


def _inner(column: pa.Array) -> Iterator[Any]:
    """The items of each list or map; None where it is null."""
    for item in column:
        assert isinstance(item, pa.ListScalar)
        yield item.values if item.is_valid else None


def rendered(column: pa.Array) -> list[Any]:
    """Values in the words of ``Reference.java``."""
    kind, t = column.type, pa.types
    if isinstance(column, pa.StructArray):
        children = {f.name: rendered(child) for f, child in zip(column.type, column.flatten(), strict=True)}
        rows = [{"object": {name: items[i] for name, items in children.items()}} for i in range(len(column))]
        return [row if valid else None for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)]
    if t.is_list(kind):
        return [None if items is None else rendered(items) for items in _inner(column)]
    if t.is_map(kind):
        return [
            None
            if pairs is None
            else {"map": [list(pair) for pair in zip(*map(rendered, pairs.flatten()), strict=True)]}
            for pairs in _inner(column)
        ]
    if t.is_temporal(kind):
        numbers = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
        name = "timestamp" if t.is_timestamp(kind) else "date" if t.is_date(kind) else "time"
        return [None if n is None else {name: n * 86_400_000 if name == "date" else n} for n in numbers]
    if t.is_float32(kind):
        texts = column.cast(pa.string()).to_pylist()
        return [None if text is None else {"float": java_double(float(text))} for text in texts]
    return [None if value is None else _primitive(value, kind) for value in objects(column)]


def _primitive(value: Any, kind: pa.DataType) -> Any:
    if kind == JSON:
        return _json(value)
    if pa.types.is_float64(kind):
        return {"double": java_double(value)}
    if pa.types.is_decimal(kind):
        return {"decimal": format(value, "f")}
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    return value


def _json(value: Any) -> Any:
    """A schemaless value as Connect has it."""
    if isinstance(value, dict):
        return {"object": {name: _json(item) for name, item in value.items()}}
    if isinstance(value, list):
        return [_json(item) for item in value]
    return {"double": java_double(float(value))} if isinstance(value, Decimal | float) else value


def type_of(kind: pa.DataType) -> Any:
    """An Arrow type in the words of Connect."""
    t = pa.types
    if t.is_struct(kind):
        return {f.name: type_of(f.type) for f in kind}
    if t.is_list(kind):
        return [type_of(kind.value_type)]
    if t.is_map(kind):
        return [type_of(kind.key_type), type_of(kind.item_type)]
    if t.is_decimal(kind):
        return f"decimal{kind.scale}"
    names = {pa.bool_(): "boolean", pa.float32(): "float32", pa.float64(): "float64", pa.binary(): "bytes", JSON: None}
    if kind in names:
        return names[kind]
    for test, name in ((t.is_timestamp, "timestamp"), (t.is_date, "date"), (t.is_time, "time"), (t.is_null, None)):
        if test(kind):
            return name
    return str(kind)


def lean(answer: Answer) -> Answer:
    """Comparable: fields that are null are like missing ones, the order of maps means nothing."""
    if isinstance(answer, dict) and set(answer) == {"decimal"}:
        return {"decimal": format(Decimal(answer["decimal"]).normalize(), "f")}
    if isinstance(answer, dict) and set(answer) == {"map"}:
        return {"map": sorted((lean(pair) for pair in answer["map"]), key=json.dumps)}
    if isinstance(answer, dict) and "headers" in answer:
        kind = None if answer["value"] is None else answer["type"]  # of a null nobody sees it
        answer = {**answer, "type": kind, "headers": [[name, _header(value)] for name, value in answer["headers"]]}
    if isinstance(answer, dict):
        return {name: lean(item) for name, item in answer.items() if item is not None}
    if isinstance(answer, list):
        return [lean(item) for item in answer]
    if isinstance(answer, str) and answer[:1] in ("{", "["):
        return _sorted(answer)
    return answer


def _sorted(text: str) -> str:
    """JSON text with its names in order, and its numbers as they are written."""
    try:
        return json.dumps(json.loads(text, parse_float=str), sort_keys=True)
    except ValueError:
        return text


def _header(value: Any) -> Any:
    """Headers are text; what text an object has is not compared."""
    if isinstance(value, dict | list):
        found = value if isinstance(value, dict) else {}
        return found.get("double", found.get("float", found.get("decimal", found.get("bytes", "..."))))
    if isinstance(value, bool):
        return str(value).lower()
    text = None if value is None else str(value)
    vague = text is not None and (text[:1] in ("[", "{") or re.fullmatch("[0-9T:.-]+Z|[0-9]+-[0-9]{2}-[0-9]{2}", text))
    return "..." if vague else text


def differences(mine: Answer, java: Answer, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Where two answers differ: the path, Java's answer and ours."""
    if isinstance(mine, dict) and isinstance(java, dict) and not ({"error", "dropped"} & (set(mine) | set(java))):
        for name in dict.fromkeys([*java, *mine]):
            yield from differences(mine.get(name), java.get(name), f"{path}.{name}" if path else name)
    elif isinstance(mine, list) and isinstance(java, list) and len(mine) == len(java):
        for place, (a, b) in enumerate(zip(mine, java, strict=True)):
            yield from differences(a, b, f"{path}[{place}]")
    elif mine != java and not (_failed(mine) and _failed(java)):
        yield path, json.dumps(java), json.dumps(mine)


def _failed(answer: Answer) -> bool:
    return isinstance(answer, dict) and "error" in answer
