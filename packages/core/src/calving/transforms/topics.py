"""Transforms of topics and headers, and the predicates."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from calving.errors import ConfigError
from calving.records.values import HEADERS, Records, objects
from calving.transforms.columns import (
    Fields,
    check_options,
    names,
    required,
    with_side,
)
from calving.transforms.dates import JavaDateFormat
from calving.transforms.interface import Predicate, Transform
from calving.transforms.sided import Sided
from calving.transforms.text import as_text


def java_regex(pattern: str, where: str) -> re.Pattern[str]:
    """A compiled regular expression of Java.

    :raises ConfigError: the pattern is not valid, or Python would interpret it differently from Java.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # Java has sets within sets, Python has not
            return re.compile(re.sub(r"\(\?<([A-Za-z]\w*)>", r"(?P<\1>", pattern), re.ASCII)
    except (re.error, FutureWarning) as error:
        raise ConfigError(f"{where}: '{pattern}' is not a regular expression that is supported: {error}") from error


_REFERENCE = re.compile(
    r"\\(?P<escaped>.)|\$(?:(?P<number>[0-9]+)|\{(?P<name>[A-Za-z][A-Za-z0-9]*)\})|(?P<wrong>[\\$])", re.S
)


class RegexRouter(Transform):
    """A topic that ``regex`` matches in full becomes ``replacement`` (``$1`` or ``${name}`` stands for a group)."""

    ordered = False

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("regex", "replacement"), "RegexRouter")
        self._regex = java_regex(required(options, "regex", "RegexRouter"), "transform RegexRouter")
        self._replacement = _REFERENCE.sub(self._reference, required(options, "replacement", "RegexRouter"))

    def _reference(self, match: re.Match[str]) -> str:
        """A reference to a group as Python writes it."""
        number, name = match.group("number"), match.group("name")
        if match.group("escaped"):
            return re.sub(r"\\", r"\\\\", match.group("escaped"))
        if number is not None:  # take as many digits as form the number of a group
            digits = next((n for n in range(len(number), 0, -1) if int(number[:n]) <= self._regex.groups), 0)
            if digits:
                return rf"\g<{number[:digits]}>{number[digits:]}"
        elif name in self._regex.groupindex:
            return rf"\g<{name}>"
        raise ConfigError(f"transform RegexRouter: the regex has no group for '{match.group()}' in the replacement")

    def apply(self, records: Records) -> Records:
        topics = {t: self._changed(t) for t in records.topic.unique().to_pylist()}
        if all(old == new for old, new in topics.items()):
            return records
        return replace(records, topic=pa.array([topics[t] for t in records.topic.to_pylist()], pa.string()))

    def _changed(self, topic: str) -> str:
        return self._regex.sub(self._replacement, topic, count=1) if self._regex.fullmatch(topic) else topic


class TimestampRouter(Transform):
    """The topic becomes ``topic.format`` (``${topic}-${timestamp}``), with the record's topic and timestamp."""

    ordered = False
    needs = frozenset({"timestamp"})

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("topic.format", "timestamp.format"), "TimestampRouter")
        self._topic = options.get("topic.format", "${topic}-${timestamp}")
        self._format = JavaDateFormat(options.get("timestamp.format", "yyyyMMdd"), time.time_ns() // 1_000_000)

    def apply(self, records: Records) -> Records:
        if records.timestamp.null_count:
            raise ValueError("the record has no timestamp")
        written: dict[int, str] = {}
        topics = []
        for topic, millis in zip(
            records.topic.to_pylist(), records.timestamp.cast(pa.int64()).to_pylist(), strict=True
        ):
            if millis not in written:
                written[millis] = self._format.format(millis)
            topics.append(self._topic.replace("${topic}", topic).replace("${timestamp}", written[millis]))
        return replace(records, topic=pa.array(topics, pa.string()))


class HeaderFrom(Sided):
    """``fields`` are copied or moved (``operation``) to ``headers``, as text."""

    needs = frozenset({"headers"})

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("fields", "headers", "operation", "replace.null.with.default"), "HeaderFrom")
        self._fields, self._headers = names(options, "fields"), names(options, "headers")
        if not self._fields or len(self._fields) != len(self._headers):
            raise ConfigError("transform HeaderFrom: as many fields as headers are wanted, and at least one")
        self._move = required(options, "operation", "HeaderFrom").lower() == "move"
        if not self._move and options["operation"].lower() != "copy":
            raise ConfigError("transform HeaderFrom: operation is copy or move")

    def on(self, records: Records, column: pa.Array) -> Records:
        fields = Fields(column)
        rows = _header_rows(records)
        for name, header in zip(self._fields, self._headers, strict=True):
            found = fields.require(name) if records.typed else fields.get(name)
            texts = [None] * len(records) if found is None else as_text(found).to_pylist()
            for row, text in zip(rows, texts, strict=True):
                row.append({"key": header, "value": None if text is None else text.encode()})
        if self._move:
            for name in self._fields:
                fields.drop(name)
        return replace(with_side(records, self.side, fields.column()), headers=pa.array(rows, HEADERS))


class InsertHeader(Transform):
    """Adds ``header`` with ``value.literal``."""

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


class TopicNameMatches(Predicate):
    """Topics that ``pattern`` matches in full."""

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("pattern",), "TopicNameMatches")
        self._regex = java_regex(required(options, "pattern", "TopicNameMatches"), "predicate TopicNameMatches")

    def test(self, records: Records) -> pa.Array:
        matching = [t for t in records.topic.unique().to_pylist() if self._regex.fullmatch(t)]
        return pc.is_in(records.topic, pa.array(matching, pa.string()))


class HasHeaderKey(Predicate):
    """Records with a header of this ``name``."""

    needs = frozenset({"headers"})

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("name",), "HasHeaderKey")
        self._name = required(options, "name", "HasHeaderKey")

    def test(self, records: Records) -> pa.Array:
        return pa.array([any(h["key"] == self._name for h in row) for row in _header_rows(records)], pa.bool_())


class RecordIsTombstone(Predicate):
    """Records whose value is null."""

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, (), "RecordIsTombstone")

    def test(self, records: Records) -> pa.Array:
        return records.value.is_null()
