"""Transforms of topics and headers, and of the place that a record has in Kafka; and the predicates."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from calving.errors import ConfigError
from calving.model.offsets import is_moment
from calving.records.regex import Regex
from calving.records.values import HEADERS, Records, objects
from calving.transforms.columns import (
    Fields,
    Sided,
    check_options,
    flag,
    names,
    required,
    struct_of,
    with_side,
)
from calving.transforms.dates import JavaDateFormat
from calving.transforms.interface import NO_FIELDS, Predicate, RefusedError, Transform
from calving.transforms.text import as_text


def java_regex(pattern: str, where: str) -> Regex:
    """A compiled regular expression of Java.

    :raises ConfigError: as ``Regex``.
    """
    try:
        return Regex(pattern)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


_REFERENCE = re.compile(
    r"\\(?P<escaped>.)|\$(?:(?P<number>[0-9]+)|\{(?P<name>[A-Za-z][A-Za-z0-9]*)\})|(?P<wrong>[\\$])", re.S
)


class RegexRouter(Transform):
    """A topic that ``regex`` matches in full becomes ``replacement`` (``$1`` or ``${name}`` stands for a group)."""

    null_types = NO_FIELDS
    keeps_names = keeps_paths = True
    ordered = False

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("regex", "replacement"), "RegexRouter")
        self._regex = java_regex(required(options, "regex", "RegexRouter"), "transform RegexRouter")
        self._replacement = [*self._template(required(options, "replacement", "RegexRouter"))]

    def _template(self, replacement: str) -> Iterator[str | int]:
        end = 0
        for match in _REFERENCE.finditer(replacement):
            yield replacement[end : match.start()]
            yield from self._reference(match)
            end = match.end()
        yield replacement[end:]

    def _reference(self, match: re.Match[str]) -> Iterator[str | int]:
        groups, number, name = {**self._regex.groups, "0": 0}, match.group("number"), match.group("name")
        if match.group("escaped"):
            yield match.group("escaped")
        elif number is not None and (digits := _of_a_group(number, groups)):
            yield int(number[:digits])
            yield number[digits:]
        elif name in groups:
            yield groups[name]
        else:
            what = f"'{match.group()}' in the replacement"
            raise ConfigError(f"transform RegexRouter: the regex has no group for {what}")

    def apply(self, records: Records) -> Records:
        topics = {t: self._changed(t) for t in records.topic.unique().to_pylist()}
        if all(old == new for old, new in topics.items()):
            return records
        return replace(records, topic=pa.array([topics[t] for t in records.topic.to_pylist()], pa.string()))

    def _changed(self, topic: str) -> str:
        written = self._regex.written(topic, self._replacement, first=True)
        return topic if written is None else written


def _of_a_group(number: str, groups: Mapping[str, int]) -> int:
    """How many of the digits form the number of a group, as many as possible."""
    return next((n for n in range(len(number), 0, -1) if str(int(number[:n])) in groups), 0)


class TimestampRouter(Transform):
    """The topic becomes ``topic.format`` (``${topic}-${timestamp}``), with the record's topic and timestamp."""

    null_types = NO_FIELDS
    keeps_names = keeps_paths = True
    ordered = False
    needs = frozenset({"timestamp"})

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("topic.format", "timestamp.format"), "TimestampRouter")
        self._topic = re.split(r"(\$\{[^}]*\}?)", options.get("topic.format", "${topic}-${timestamp}"))
        unknown = [part for part in self._topic[1::2] if part not in ("${topic}", "${timestamp}")]
        if unknown:
            where = "transform TimestampRouter: topic.format"
            raise ConfigError(
                f"{where} has '{unknown[0]}', which stands for nothing; there are: ${{topic}}, ${{timestamp}}"
            )
        self._format = JavaDateFormat(options.get("timestamp.format", "yyyyMMdd"), time.time_ns() // 1_000_000)
        if reason := self._format.unwritable():
            raise ConfigError(f"transform TimestampRouter: {reason}")

    def apply(self, records: Records) -> Records:
        times = records.timestamp.cast(pa.int64()).to_pylist()
        reasons = {millis: why for millis in {*times} if (why := _no_moment(millis)) is not None}
        if reasons:
            raise RefusedError({i: reasons[millis] for i, millis in enumerate(times) if millis in reasons})
        dates = {millis: self._format.format(millis) for millis in {*times}}
        parts = [*zip(records.topic.to_pylist(), map(dates.__getitem__, times), strict=True)]
        topics = {each: self._topic_of(*each) for each in {*parts}}
        return replace(records, topic=pa.array([topics[each] for each in parts], pa.string()))

    def _topic_of(self, topic: str, date: str) -> str:
        parts = {"${topic}": str(topic), "${timestamp}": date}
        return "".join([parts.get(part, part) for part in self._topic])


def _no_moment(millis: int | None) -> str | None:
    """Why there is no date for this timestamp; None if there is one."""
    if millis is None:
        return "the record has no timestamp"
    if is_moment(millis):
        return None
    return f"the record's timestamp {millis} is no number of milliseconds in the years 1970 to 9999"


class HeaderFrom(Sided):
    """``fields`` are copied or moved (``operation``) to ``headers``, as text."""

    keeps_names = True
    needs = frozenset({"headers"})

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("fields", "headers", "operation", "replace.null.with.default"), "HeaderFrom")
        self._fields, self._headers = names(options, "fields"), names(options, "headers")
        if not self._fields or len(self._fields) != len(self._headers):
            raise ConfigError("transform HeaderFrom: as many fields as headers are wanted, and at least one")
        self.required = frozenset(self._fields)
        self._move = required(options, "operation", "HeaderFrom").lower() == "move"
        if not self._move and options["operation"].lower() != "copy":
            raise ConfigError("transform HeaderFrom: operation is copy or move")

    def on(self, records: Records, column: pa.Array) -> Records:
        fields = Fields(column)
        rows = _header_rows(records)
        for name, header in zip(self._fields, self._headers, strict=True):
            topics_column = fields.require(name) if records.typed else fields.get(name)
            texts = [None] * len(records) if topics_column is None else as_text(topics_column).to_pylist()
            for row, text in zip(rows, texts, strict=True):
                row.append({"key": header, "value": None if text is None else text.encode()})
        if self._move:
            for name in self._fields:
                fields.drop(name)
        return replace(with_side(records, self.side, fields.column()), headers=pa.array(rows, HEADERS))


class InsertHeader(Transform):
    """Adds ``header`` with ``value.literal``."""

    null_types = NO_FIELDS
    keeps_names = keeps_paths = True
    ordered = False
    needs = frozenset({"headers"})

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("header", "value.literal"), "InsertHeader")
        self._header = required(options, "header", "InsertHeader")
        self._value = required(options, "value.literal", "InsertHeader").encode()

    def apply(self, records: Records) -> Records:
        rows = [[*row, {"key": self._header, "value": self._value}] for row in _header_rows(records)]
        return replace(records, headers=pa.array(rows, HEADERS))


class DropHeaders(Transform):
    """Removes ``headers``."""

    null_types = NO_FIELDS
    keeps_names = keeps_paths = True
    ordered = False
    needs = frozenset({"headers"})

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("headers",), "DropHeaders")
        self._headers = set(names(options, "headers"))

    def apply(self, records: Records) -> Records:
        rows = [[h for h in row if h["key"] not in self._headers] for row in _header_rows(records)]
        return replace(records, headers=pa.array(rows, HEADERS))


def _header_rows(records: Records) -> list[list[dict[str, object]]]:
    return [row or [] for row in objects(records.headers)]


_TOPIC_NAME = "predicate TopicNameMatches"


class TopicNameMatches(Predicate):
    """Topics that ``pattern`` matches in full."""

    null_types = NO_FIELDS

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("pattern",), _TOPIC_NAME)
        self._regex = java_regex(required(options, "pattern", _TOPIC_NAME), _TOPIC_NAME)

    def test(self, records: Records) -> pa.Array:
        matching = self._regex.matching(records.topic.unique().to_pylist())
        return pc.is_in(records.topic, pa.array(matching, pa.string()))


class HasHeaderKey(Predicate):
    """Records with a header of this ``name``."""

    null_types = NO_FIELDS
    needs = frozenset({"headers"})

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("name",), "predicate HasHeaderKey")
        self._name = required(options, "name", "predicate HasHeaderKey")

    def test(self, records: Records) -> pa.Array:
        return pa.array([any(h["key"] == self._name for h in row) for row in _header_rows(records)], pa.bool_())


class RecordIsTombstone(Predicate):
    """Records whose value is null."""

    null_types = NO_FIELDS

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, (), "predicate RecordIsTombstone")

    def test(self, records: Records) -> pa.Array:
        return records.value.is_null()


_OWN_FIELDS = ("topic", "partition", "offset", "timestamp")


class KafkaMetadataTransform(Transform):
    """Adds topic, partition, offset, timestamp (milliseconds) and a constant (``external_field`` = key,value).

    If ``nested``, they are one struct named ``field_name``. Otherwise they are fields ``<field_name>_topic`` and so on.
    """

    null_types = NO_FIELDS
    keeps_names = keeps_paths = True
    ordered = False
    needs = frozenset({"offset", "timestamp"})
    tombstones = False

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("field_name", "nested", "external_field"), "KafkaMetadataTransform")
        self._name = options.get("field_name") or "_kafka_metadata"
        self._nested = flag(options, "nested", "KafkaMetadataTransform")
        external = options.get("external_field")
        self._external = None if external is None else tuple(external.split(","))
        if self._external is not None and len(self._external) != 2:
            raise ConfigError(f"transform KafkaMetadataTransform: external_field is key,value, not '{external}'")
        if self._external is not None and self._external[0] in _OWN_FIELDS:
            raise ConfigError(
                f"transform KafkaMetadataTransform: external_field = '{external}': the transform itself writes"
                f" '{self._external[0]}', so choose another key"
            )

    def apply(self, records: Records) -> Records:
        fields = Fields(records.value)
        count = len(records)
        columns = {
            "topic": records.topic,
            "partition": pa.repeat(pa.scalar(records.partition, pa.int32()), count),
            "offset": records.offset,
            "timestamp": records.timestamp.cast(pa.int64()),
        }
        if self._external is not None:
            columns[self._external[0]] = pa.repeat(self._external[1], count)
        if self._nested:
            fields.add(self._name, struct_of(columns, None, count), records.typed)
        else:
            for name, column in columns.items():
                fields.add(f"{self._name}_{name}", column, records.typed)
        return records.with_value(fields.column())
