"""Where we mean to answer otherwise than Java's transforms. The manual's table holds each ``row``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Found(NamedTuple):
    """Two answers that differ: what was asked, the path in the answer, Java's answer and ours, and the record."""

    where: str
    path: str
    java: str
    ours: str
    record: str


@dataclass(frozen=True, slots=True)
class Difference:
    """Answers to ``where`` may differ like this: patterns that are found in the path, in Java's answer and in ours."""

    case: str
    java: str
    ours: str
    why: str
    where: str = ""
    path: str = ""
    in_java: str = ""
    in_ours: str = ""
    record: str = ""

    @property
    def row(self) -> str:
        return f"| {self.case} | {self.java} | {self.ours} | {self.why} |"

    def allows(self, found: Found) -> bool:
        patterns = (self.where, self.path, self.in_java, self.in_ours, self.record)
        return all(re.search(pattern, text) for pattern, text in zip(patterns, found, strict=True))


def unlisted(found: Iterable[Found], listed: Sequence[Difference]) -> list[str]:
    """Differences without an entry."""
    return [
        f"{f.path}: Java {f.java}, we {f.ours}, of {f.record}" for f in found if not any(d.allows(f) for d in listed)
    ]


def stale(listed: Iterable[Difference], found: Sequence[Found]) -> list[str]:
    """The entries that nothing compared needs."""
    return [d.case for d in listed if not any(d.allows(f) for f in found)]


_VALUE, _BAD = r'^{"topic"', r'^{"error": "transform'

EVERYWHERE = [
    Difference(
        "a schemaless integer beyond 64 bits",
        "wraps around, silently",
        "keeps its value",
        "a number is never changed silently",
        path=".",
        record=r"[0-9]{20,}|9223372036854775808",
    ),
    Difference(
        "-0.0 in JSON",
        "becomes 0.0",
        "stays -0.0",
        "a number is never changed silently",
        path=".",
        in_java=r'^"0\.0"$',
        in_ours=r'^"-0\.0"$',
    ),
    Difference(
        "digits of floats as text",
        "before JDK 19 sometimes more than needed",
        "as few as read back, as JDK 19 and later",
        "the text does not depend on the version of Java",
        path="float$",
        in_java=r'^"-?[0-9]\.[0-9]+E[0-9]+"$',
        in_ours=r'^"-?[0-9]\.[0-9]+E[0-9]+"$',
    ),
]
TRANSFORMS = [
    Difference(
        "Cast of a number that does not fit",
        "wraps around, or becomes infinite",
        "bad record",
        "a number is never changed silently",
        r"\.Cast\$",
        r"^$",
        _VALUE,
        r"does not fit|not a number|cannot convert|integer",
    ),
    Difference(
        "Cast of a timestamp to string",
        "the value chooses the form: no date before 1970-01-02, no time at midnight",
        "the type does: yyyy-MM-dd'T'HH:mm:ss.SSS'Z'",
        "a column has one form, and no part of a moment is lost",
        r"\.Cast\$",
        r"value|key",
        r"^\"[-0-9:.TZ]+\"$",
        r"^\"[-0-9:.TZ]+\"$",
    ),
    Difference(
        "Cast of a whole date, time, timestamp or decimal",
        "the new schema keeps the old one's name",
        "the type that was asked for",
        "the schema says what the new values are",
        r"\.Cast\$",
        r"^type$",
        r"date|time|timestamp|decimal",
        r"int|float|string|boolean",
    ),
    Difference(
        "tombstones and MaskField, HeaderFrom, ValueToKey",
        "the task fails",
        "they pass",
        "a tombstone has no fields to hide, move or copy",
        r"MaskField|HeaderFrom|ValueToKey",
        r"^$",
        "found: null",
        r'^{"topic": "db.orders", ("key": .*)?"headers"',
    ),
    Difference(
        "SetSchemaMetadata without a schema",
        "the task fails",
        "no effect",
        "a record without a schema has no name to set",
        "SetSchemaMetadata",
        "^$",
        "Schema required",
        _VALUE,
    ),
    Difference(
        "Flatten of a map with a schema",
        "the task fails",
        "the map stays",
        "a map's keys are data, not columns",
        "Flatten",
        "^$",
        "support MAP",
        _VALUE,
    ),
    Difference(
        "MaskField of bytes",
        "the task fails",
        "no bytes",
        "bytes have an empty value, as text has",
        "MaskField",
        "^$",
        "Cannot mask value of type: class",
        _VALUE,
    ),
    Difference(
        "TimestampConverter: a moment that does not fit its unit or type",
        "wraps around, or becomes the last there is",
        "bad record",
        "a moment is never changed silently",
        "TimestampConverter",
        "^$",
        _VALUE,
        "out of range",
    ),
    Difference(
        "TimestampConverter: an integer beyond 64 bits",
        "wraps around",
        "bad record",
        "a number is never changed silently",
        "TimestampConverter",
        "^$",
        _VALUE,
        "is no timestamp",
        r"[0-9]{20,}|9223372036854775808",
    ),
    Difference(
        "TimestampConverter: a part of a second (`ss.SSS`) that has not three digits",
        "its digits count milliseconds",
        "bad record",
        "a moment is never changed silently",
        "TimestampConverter",
        "^$",
        _VALUE,
        "which have three digits",
    ),
    Difference(
        "TimestampConverter: a pattern that writes a part of a second with more or fewer than three digits",
        "844 ms as 000844",
        "an error",
        "a moment is never changed silently",
        "TimestampConverter",
        "^$",
        "",
        '^{"error": "ConfigError.*write SSS',
    ),
    Difference(
        "TimestampConverter to Date or Time without a schema",
        "a new column is a timestamptz",
        "a date, a time",
        "the column has the type that was asked for",
        "TimestampConverter",
        r"value.(timestamp|date|time)$",
    ),
    Difference(
        "TimestampConverter: a null whose schema is no timestamp's",
        "the task fails",
        "stays null",
        "a null has nothing to convert",
        "TimestampConverter",
        "^$",
        "does not correspond to a known timestamp type",
        r'^{"topic": "db.orders", "headers": \[\]}$|^{"topic": "db.orders", "value": {"object"',
    ),
    Difference(
        "a Debezium event without a row (except heartbeats, messages and truncates), a DMS event without data (except "
        "control records)",
        "dropped; with a schema the task fails",
        "bad record",
        "data is never dropped silently",
        r"\.(Debezium|Dms)Transform",
        "^$",
        '^{"dropped": true}$',
        _BAD,
    ),
    Difference(
        "a column `_cdc` of the source, with `schema-case-insensitive` also `_CDC`, DebeziumTransform and DmsTransform",
        "replaced; with a schema the task fails",
        "bad record",
        "a value is never dropped silently",
        r"\.(Debezium|Dms)Transform",
        "^$",
        _VALUE,
        "a column '_cdc' of its own",
    ),
    Difference(
        "a DMS event without schema or table name",
        "the text `null` as its name",
        "bad record",
        "the origin of a row is never made up",
        "DmsTransform",
        "^$",
        r'"source": "(null|.*\.null)',
        _BAD,
    ),
    Difference(
        "JsonToMapTransform: digits beyond a double, as text",
        "those of the double",
        "all of them",
        "a number is never changed silently",
        "JsonToMapTransform",
        "value",
        "1.2345678901234568E16",
        "12345678901234567.25",
    ),
    Difference(
        "MongoDebeziumTransform: arrays of dates, of nulls, with nulls between, of empty arrays, of documents whose "
        "fields are text of several kinds",
        "the task fails, or drops the nulls",
        "taken",
        "a row is worth more than a failed task",
        "MongoDebeziumTransform",
        "^$",
        "homogenous array|not the same type|BsonInvalidOperation|IndexOutOfBounds|not yet supported|not a valid field name",
        _VALUE,
    ),
    Difference(
        "MongoDebeziumTransform: an array of nulls",
        "loses its elements",
        "keeps them",
        "a value is never dropped silently",
        "MongoDebeziumTransform",
        "value",
        r"^\[\]$",
        r"^\[(null(, )?)+\]$",
    ),
    Difference(
        "MongoDebeziumTransform: a null, an empty array",
        "text, an array of text",
        "have no type until there is a value",
        "a null does not decide the type of a column",
        "MongoDebeziumTransform",
        "type",
    ),
    Difference(
        "MongoDebeziumTransform: symbols, the least and the greatest key, pointers",
        "dropped",
        "text; a pointer is a struct",
        "a value is never dropped silently",
        "MongoDebeziumTransform",
        r"^(value|type)",
        record=r"symbol|minKey",
    ),
    Difference(
        "MongoDebeziumTransform: a delete without before",
        "the task fails",
        "before has the `_id` of the key",
        "a delete needs no more than its key",
        "MongoDebeziumTransform",
        "^$",
        "malformed record",
        _VALUE,
    ),
    Difference(
        "Cast to an integer of a fraction that no double holds",
        "the double's digits",
        "its own",
        "a number is never changed silently",
        r"\.Cast\$",
        "value",
        "^12345678901234568$",
        "^12345678901234567$",
    ),
]
