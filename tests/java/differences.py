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


_VALUE, _BAD = r'^{"topic"', r'^{"error": "transform'

DIFFERENCES = [
    Difference(
        "a schemaless integer beyond 64 bits",
        "wraps around, silently",
        "keeps its value",
        path=".",
        record=r"[0-9]{20,}|9223372036854775808",
    ),
    Difference(
        "-0.0 in JSON",
        "becomes 0.0",
        "stays -0.0",
        path=".",
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

_BOTH = DIFFERENCES[:3]
CONVERTERS = [
    *_BOTH,
    Difference("an empty value", "null", "bad record", in_java="^{}$", in_ours="Expecting value", record=r"^ ?$"),
    Difference(
        "JSON with something behind it, or a number that begins with 0",
        "what comes first is taken",
        "bad record",
        in_java='^{"value"',
        in_ours="Extra data",
    ),
    Difference(
        "a JSON number beyond a double", "Infinity", "bad record", in_java="Infinity", in_ours="that a double holds"
    ),
    Difference(
        "half of a surrogate pair", "a question mark", "bad record", in_java=r'"\?"', in_ours="surrogates not allowed"
    ),
    Difference(
        "a payload of another kind than its schema says",
        "0, false or null, silently",
        "bad record",
        in_java=r'^{"(value|type)"',
        in_ours="is not (text|a boolean|a number|a whole number)",
    ),
    Difference(
        "a date, time or timestamp that is written 1.0",
        "bad record",
        "taken",
        in_java="underlying representation should be integ",
        in_ours=r'"(date|time|timestamp)": ',
    ),
]
CONVERSION = [
    *_BOTH,
    Difference(
        "text that is neither true nor false into boolean",
        "false",
        "bad record",
        "boolean",
        "",
        "false",
        "neither true",
    ),
    Difference(
        "a number that does not fit its column, 1.9 into an integer",
        "wraps around, becomes infinite, is cut",
        "bad record, or a wider column",
        "int|long|float|double|decimal|date|time",
        "^$",
        '"object"',
        "does not fit|not a whole number|not a time of day|DivisionImpossible",
    ),
    Difference(
        "a fraction that no double holds, into a decimal",
        "the double's digits",
        "its own",
        "decimal",
        "decimal$",
        "12345678901234568",
        "12345678901234567.25",
    ),
    Difference("-0.0 as text", "0.0", "-0.0", "string", r"\.v$", r'^"0\.0"$', r'^"-0\.0"$'),
    Difference("a decimal within an object as text", "base64", "its digits", "string", r"\.v$", "==", "[0-9]"),
    Difference(
        "doubles of a list with a schema, as text", "1.0E10", "10000000000.0", "string", r"\.v$", "E10", "10000000000.0"
    ),
    Difference("text like 1-2-3-4-5 into uuid", "a uuid", "bad record", "uuid", "^$", '"object"', "badly formed"),
    Difference(
        "bytes of another length into fixed", "written", "bad record", "fixed", "^$", '"object"', "bytes instead of"
    ),
    Difference(
        "a timestamp before 1970 into a date", "the day after", "its day", "date", r"\.v$", "^-?[0-9]+$", "^-[0-9]+$"
    ),
    Difference(
        "a time or timestamp into date, a timestamp into time, a time into timestamp",
        "its milliseconds since 1970",
        "bad record",
        "date|time",
        "^$",
        '"object"',
        "text is wanted",
    ),
    Difference(
        "a day without a time into a timestamp",
        "the task fails",
        "midnight",
        "timestamp",
        "^$",
        "StringIndexOutOf",
        '"object"',
    ),
    Difference(
        "1.9 into the integers of a list",
        "cut",
        "bad record",
        "list",
        "^$",
        '"object"',
        "not a whole number|does not fit",
    ),
    Difference(
        "a struct with a schema into a map",
        "the task fails",
        "taken",
        "map",
        "^$",
        "IllegalArgumentException",
        '"object"',
    ),
    Difference(
        "a map with a schema into a struct", "taken", "bad record", "struct", "^$", '"object"', "is not an object"
    ),
]
