"""Where we mean to answer otherwise than the Java classes. The manual's table holds each ``row``."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """Answers to ``where`` may differ like this: patterns that are found in the path, in Java's answer and in ours."""

    case: str
    java: str
    ours: str
    where: str = ""
    path: str = ""
    in_java: str = ""
    in_ours: str = ""
    record: str = ""

    @property
    def row(self) -> str:
        return f"| {self.case} | {self.java} | {self.ours} |"

    def allows(self, where: str, path: str, java: str, ours: str, record: str) -> bool:
        looked = (
            (self.where, where),
            (self.path, path),
            (self.in_java, java),
            (self.in_ours, ours),
            (self.record, record),
        )
        return all(re.search(pattern, text) for pattern, text in looked)


_VALUE, _BAD, _FAILS = r'^{"topic"', r'^{"error": "transform', r'^{"error"'

DIFFERENCES = [
    Difference(
        "a schemaless integer beyond 64 bits",
        "wraps around, silently",
        "keeps its value",
        path="^(value|key|headers)",
        record=r"[0-9]{20,}|9223372036854775808",
    ),
    Difference(
        "-0.0 in JSON",
        "becomes 0.0",
        "stays -0.0",
        path=r"(value|key|headers).*",
        in_java=r'^"0\.0"$',
        in_ours=r'^"-0\.0"$',
    ),
    Difference(
        "digits of floats as text",
        "before JDK 19 sometimes more than needed",
        "as few as read back, as JDK 19 and later",
        path="float$",
        in_java=r'^"-?[0-9]\.[0-9]+E[0-9]+"$',
        in_ours=r'^"-?[0-9]\.[0-9]+E[0-9]+"$',
    ),
    Difference(
        "Cast of a number that does not fit",
        "wraps around, or becomes infinite",
        "bad record: a number is never changed silently",
        r"\.Cast\$",
        r"^$",
        _VALUE,
        r"does not fit|not a number|cannot convert|integer",
    ),
    Difference(
        "Cast of a timestamp to string",
        "the value chooses the form: no date before 1970-01-02, no time at midnight",
        "the type does: yyyy-MM-dd'T'HH:mm:ss.SSS'Z', so that nothing is lost",
        r"\.Cast\$",
        r"value|key",
        r"^\"[-0-9:.TZ]+\"$",
        r"^\"[-0-9:.TZ]+\"$",
    ),
    Difference(
        "Cast of a whole date, time, timestamp or decimal",
        "the new schema keeps the old one's name",
        "the type that was asked for",
        r"\.Cast\$",
        r"^type$",
        r"date|time|timestamp|decimal",
        r"int|float|string|boolean",
    ),
    Difference(
        "tombstones and MaskField, HeaderFrom, ValueToKey",
        "the task fails",
        "they pass",
        r"MaskField|HeaderFrom|ValueToKey",
        r"^$",
        "found: null",
        r'^{"topic": "db.orders", ("key": .*)?"headers"',
    ),
    Difference(
        "SetSchemaMetadata without a schema",
        "the task fails",
        "no effect",
        "SetSchemaMetadata",
        "^$",
        "Schema required",
        _VALUE,
    ),
    Difference(
        "Flatten of a map with a schema", "the task fails", "the map stays", "Flatten", "^$", "support MAP", _VALUE
    ),
    Difference(
        "MaskField of bytes",
        "the task fails",
        "no bytes",
        "MaskField",
        "^$",
        "Cannot mask value of type: class",
        _VALUE,
    ),
    Difference(
        "TimestampConverter: a moment that does not fit its unit or type",
        "wraps around, or becomes the last there is",
        "bad record",
        "TimestampConverter",
        "^$",
        _VALUE,
        "out of range",
    ),
    Difference(
        "TimestampConverter: an integer beyond 64 bits",
        "wraps around",
        "bad record",
        "TimestampConverter",
        "^$",
        _VALUE,
        "is no timestamp",
        r"[0-9]{20,}|9223372036854775808",
    ),
    Difference(
        "TimestampConverter to Date or Time without a schema",
        "a new column is a timestamptz",
        "a date, a time",
        "TimestampConverter",
        r"value.(timestamp|date|time)$",
    ),
    Difference(
        "TimestampConverter: a null whose schema is no timestamp's",
        "the task fails",
        "stays null",
        "TimestampConverter",
        "^$",
        "does not correspond to a known timestamp type",
        r'^{"topic": "db.orders", "headers": \[\]}$|^{"topic": "db.orders", "value": {"object"',
    ),
    Difference(
        "a DMS event without schema or table name",
        "the text `null` as its name",
        "bad record",
        "DmsTransform",
        "^$",
        r'"source": "(null|.*\.null)',
        _BAD,
    ),
    Difference(
        "JsonToMapTransform: digits beyond a double, as text",
        "those of the double",
        "all of them",
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
        "MongoDebeziumTransform",
        "^$",
        "homogenous array|not the same type|BsonInvalidOperation|IndexOutOfBounds|not yet supported|not a valid field name",
        _VALUE,
    ),
    Difference(
        "MongoDebeziumTransform: an array of nulls",
        "loses its elements",
        "keeps them",
        "MongoDebeziumTransform",
        "value",
        r"^\[\]$",
        r"^\[(null(, )?)+\]$",
    ),
    Difference(
        "Cast to an integer of a fraction that no double holds",
        "the double's digits",
        "its own",
        r"\.Cast\$",
        "value",
        "^12345678901234568$",
        "^12345678901234567$",
    ),
]
