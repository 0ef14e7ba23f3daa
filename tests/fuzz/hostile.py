"""``python -m tests.fuzz.hostile --seconds 600 [--seed S] [--case N]``: hostile schemas, records and control events.

A case is a random schema of few bytes that may describe much (types that use each other twice, wide records, unions,
enums, deep nesting), with records that are short, empty, deep, damaged, or say that they hold more than they do; or an
entry of the control log or a file of parked commits (``hostile_log``); or a shape (``hostile_shapes``); or a block
(``hostile_blocks``); or a query of the transform Sql (``hostile_sql``). Whatever they are, they are values, bad, or refused, within ``SECONDS`` of CPU and ``MEGABYTES``.
The cases run in a process of their own, whose memory the operating system bounds: what Rust and Arrow allocate counts,
too.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from google.protobuf import descriptor_pb2

from tests.fuzz import hostile_shapes
from tests.fuzz.work_typed import zigzag

SECONDS, MEGABYTES = 3.0, 2_500
"""Bounds on a case. A record at ``iceberg.limits.cells`` alone takes 40 MB in each of the forms through which it goes."""
GROWTH = 500
"""Megabytes that a record of a shape may take: a parser that gets no more memory may only say that it is bad."""
LONGEST = 1_000_000
"""Bytes of a schema. A registry that keeps its schemas in Kafka takes no more, unless somebody tells it to."""
ALONE = 600
"""Seconds that a process with cases may take before it counts as hanging."""
Json = Any
F = descriptor_pb2.FieldDescriptorProto


def most(chance: Random, limit: int) -> int:
    """A count, mostly small, now and then up to ``limit``."""
    return chance.choice((1, 2, 3, chance.randint(1, 40), chance.randint(1, limit)))


def avro(chance: Random) -> Json:
    """A record; types may use those before them several times."""
    known: list[str] = []

    def kind(depth: int) -> Json:
        choice = chance.randrange(10 if depth else 4)
        match choice:
            case 0 | 1:
                return chance.choice(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
            case 2 if known:
                return chance.choice(known)
            case 3:
                name = f"N{len(known)}"
                known.append(name)
                if chance.random() < 0.5:
                    size = chance.choice((0, 1, 16, 2**31 - 1))
                    return {"type": "fixed", "name": name, "size": size}
                return {"type": "enum", "name": name, "symbols": [f"S{i}" for i in range(most(chance, 5_000))]}
            case 4 | 5:
                return {"type": "array", "items": kind(depth - 1)}
            case 6:
                return {"type": "map", "values": kind(depth - 1)}
            case 7:
                branches = ["null", kind(depth - 1)]
                wide = [{"type": "fixed", "name": f"U{len(known)}x{i}", "size": i} for i in range(most(chance, 500))]
                return chance.choice((branches, ["null", *wide]))
        inner = kind(depth - 1)
        name = f"N{len(known)}"
        known.append(name)
        again = name if chance.random() < 0.05 else inner if isinstance(inner, str) else "int"
        fields = [inner, *[again] * most(chance, 2_000)]
        return {"type": "record", "name": name, "fields": [{"name": f"f{i}", "type": t} for i, t in enumerate(fields)]}

    fields = [{"name": f"r{i}", "type": kind(chance.choice((1, 3, 8, 40)))} for i in range(chance.randint(1, 6))]
    if chance.random() < 0.2:
        wide = [{"name": f"w{i}", "type": ["null", "long"]} for i in range(chance.randint(1_000, 4_000))]
        items = ["null", {"type": "record", "name": "Wide", "fields": wide}]
        fields.insert(
            0, {"name": "list", "type": {"type": chance.choice(("array", "map")), "items": items, "values": items}}
        )
    return {"type": "record", "name": "Root", "fields": fields}


def json_schema(chance: Random) -> Json:
    definitions: dict[str, Json] = {}

    def kind(depth: int) -> Json:
        match chance.randrange(9 if depth else 3):
            case 0 | 1:
                return {"type": chance.choice(("integer", "number", "string", "boolean", "null"))}
            case 2 if definitions:
                return {"$ref": f"#/definitions/{chance.choice([*definitions, 'Nowhere'])}"}
            case 3 | 4:
                return {"type": "array", "items": kind(depth - 1)}
            case 5:
                inner = [kind(depth - 1), *({"type": "object", "properties": {f"b{i}": {}}} for i in range(3))]
                beside = {"properties": {f"c{i}": kind(depth - 1) for i in range(chance.randrange(3))}}
                words = chance.sample(("oneOf", "anyOf", "allOf", "then"), chance.randint(1, 3))
                several = {word: inner[0] if word == "then" else inner * most(chance, 200) for word in words}
                return several | (beside if chance.random() < 0.5 else {})
            case 6:
                return {"enum": [*range(most(chance, 5_000))]}
        inner, name = kind(depth - 1), f"D{len(definitions)}"
        properties = {f"p{i}": inner for i in range(most(chance, 2_000))}
        found = {"type": "object", "properties": properties, "required": [f"p{i}" for i in range(chance.randrange(50))]}
        definitions[name] = found
        return {"$ref": f"#/definitions/{name}"}

    properties = {f"r{i}": kind(chance.choice((1, 3, 8, 40))) for i in range(chance.randint(1, 6))}
    if chance.random() < 0.3:
        wide = {
            "type": "object",
            "properties": {f"w{i}": {"type": "integer"} for i in range(chance.randint(1_000, 4_000))},
        }
        properties = {"r0": {"type": "array", "items": wide}, "r1": {"type": "object", "additionalProperties": wide}}
    return {"type": "object", "properties": properties, "definitions": definitions}


def connect(chance: Random) -> Json:
    def kind(depth: int) -> Json:
        match chance.randrange(6 if depth else 2):
            case 0 | 1:
                simple = ("int8", "int32", "int64", "float", "double", "boolean", "string", "bytes", "other")
                return {"type": chance.choice(simple), "optional": True}
            case 2 | 3:
                return {"type": "array", "items": kind(depth - 1), "optional": True}
            case 4:
                return {"type": "map", "keys": {"type": "string"}, "values": kind(depth - 1), "optional": True}
        inner = kind(depth - 1)
        fields = [{**inner, "field": f"f{i}"} for i in range(most(chance, 300 if depth > 1 else 2_000))]
        return {"type": "struct", "fields": fields, "optional": True}

    return {"type": "struct", "fields": [{**kind(chance.choice((1, 2, 3))), "field": f"r{i}"} for i in range(3)]}


def protobuf(chance: Random) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="h.proto", package="h", syntax="proto3")
    count = chance.choice((1, 2, 5, 30))
    if chance.random() < 0.3:
        wide = file.message_type.add(name="Root").field
        wide.add(name="list", number=1, type=F.TYPE_MESSAGE, label=F.LABEL_REPEATED, type_name=f".h.M{count - 1}")
    for i in range(count):
        message = file.message_type.add(name=f"M{i}")
        for number in range(1, 1 + most(chance, 2_000 if i == count - 1 else 3)):
            field = message.field.add(name=f"f{number}", number=number, type=F.TYPE_INT64)
            field.label = chance.choice((F.LABEL_OPTIONAL, F.LABEL_REPEATED))
            if i < count - 1 and chance.random() < 0.8:
                field.type, field.type_name = F.TYPE_MESSAGE, f".h.M{chance.randrange(i, count)}"
    return file


def _text(chance: Random, schema: Json) -> bytes:
    """JSON that may fit the schema's first fields: empty elements, deep nesting, odd numbers, cut off."""
    names = [*schema.get("properties", {}), *(field["field"] for field in schema.get("fields", ()))][:6] or ["r0"]
    n, many = most(chance, 60_000), chance.randint(1, 250_000) // len(names)
    inner = chance.choice(
        (
            "[" + ",".join([chance.choice(("{}", "null", "[]", "[{}]", "0", '""'))] * many) + "]",
            "[" * n + "]" * n,
            '{"f0":' * min(n, 20_000) + "0" + "}" * min(n, 20_000),
            "{" + ",".join(f'"k{i}":{{}}' for i in range(n)) + "}",
            "1" * n,
            f"1e{n}",
            f"-0.{'0' * n}1E-{n}",
            '"' + "\\u0000" * n + '"',
        )
    )
    made = ("{" + ",".join(f'"{name}":{inner}' for name in names) + "}").encode()
    return made if chance.random() < 0.8 else made[: chance.randrange(len(made))]


def body(chance: Random) -> bytes:
    """Binary: few bytes that say much, long rows of one byte, garbage."""
    n, many = most(chance, 100_000), chance.randint(1, 300_000)
    blocks = zigzag(many) + bytes(many) + b"\0"  # a list of n elements that are null or 0
    huge = b"\xff" * chance.randint(1, 9) + bytes([chance.randrange(128)])
    return chance.choice(
        (
            bytes([chance.randrange(256)]) * n,
            bytes([chance.randrange(256), chance.randrange(256)]) * n,
            huge + bytes(n),
            blocks,
            blocks,
            b"\x0a\x00" * many,  # empty messages
            b"\x02" * chance.randrange(9) + huge * min(n, 1_000),
            chance.randbytes(min(n, 5_000)),
        )
    )


_KINDS = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}


def _schema(chance: Random, form: str) -> tuple[Json, str]:
    """A schema that a registry takes, and its text."""
    from harness.registry import serialized

    if form == "plain":
        return {}, ""
    make = {"avro": avro, "json-schema": json_schema, "protobuf": protobuf, "connect": connect}[form]
    while True:
        schema = make(chance)
        text = serialized(schema) if form == "protobuf" else json.dumps(schema)
        if len(text) <= LONGEST:
            return schema, text


def _decoding(chance: Random, registry: Any) -> Callable[[], object]:
    from calving.converters.interface import converter
    from harness.registry import framed

    form = chance.choice(("avro", "avro", "json-schema", "protobuf", "connect", "plain"))
    if chance.random() < 0.1:
        return _shaped(hostile_shapes.shape(chance), registry)
    options = {"schemas.enable": "true"} if form == "connect" else {"schema.registry.url": registry.url}
    schema, text = _schema(chance, form)
    number = 0 if form in ("plain", "connect") else registry.register("s", text, _KINDS[form])
    values = []
    for _ in range(3):
        match form:
            case "plain":
                values.append(_text(chance, schema))
            case "connect":
                values.append(b'{"schema":%s,"payload":%s}' % (text.encode(), _text(chance, schema)))
            case "json-schema":
                values.append(framed(number, _text(chance, schema)))
            case _:
                values.append(framed(number, b"\0" * (form == "protobuf") + body(chance)))
    name = "json" if form in ("plain", "connect") else form
    made = converter(name, {} if form == "plain" else options, is_key=False)

    def run() -> None:
        for value in values:
            _decode(made, value)

    return run


def _shaped(shape: hostile_shapes.Shape, registry: Any) -> Callable[[], object]:
    from calving.converters.interface import converter
    from harness.registry import framed

    if shape.form == "connect":
        made, value = converter("json", {"schemas.enable": "true"}, is_key=False), shape.body
    else:
        number = registry.register("s", shape.text, _KINDS[shape.form])
        made = converter(shape.form, {"schema.registry.url": registry.url}, is_key=False)
        value = framed(number, shape.body)

    def run() -> None:
        Path("/proc/self/clear_refs").write_text("5", "utf-8")  # the peak starts again
        before = _peak()
        _decode(made, value)
        if (grown := _peak() - before) > GROWTH:
            raise MemoryError(f"a {shape.form} record of {len(value)} bytes takes {grown} MB")

    return run


def _peak() -> int:
    """The most megabytes that this process has had."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def _decode(made: Any, value: bytes) -> None:
    """:raises MemoryError: the memory was not enough for the value, which is bad then."""
    for bad in made.decode([value], None).bad:
        if bad.error == "MemoryError":
            raise MemoryError(bad.reason)


def cases(seed: int, first: int, count: int) -> Iterator[str]:
    """Run cases in this process. Yields what is wrong, with the case's number."""
    from harness.registry import serving
    from tests.fuzz import hostile_blocks, hostile_log, hostile_sql

    logging.disable(logging.CRITICAL)
    with serving() as registry:
        for number in range(first, first + count):
            chance = Random(f"{seed} {number}")
            draw = chance.random()
            run = hostile_log.case(chance) if draw < 0.2 else _decoding(chance, registry)
            if draw > 0.9:
                run = hostile_blocks.case(chance, registry) if draw > 0.95 else hostile_sql.case(chance)
            print(f"case {number}", flush=True)
            began = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, 10 * SECONDS)  # then the process ends
            try:
                run()
            except Exception as error:  # whatever is raised would stop a sink
                yield f"case {number} raised {type(error).__name__}: {str(error)[:300]}"
            signal.setitimer(signal.ITIMER_PROF, 0)
            if (taken := time.process_time() - began) > SECONDS:
                yield f"case {number} took {taken:.1f} s of CPU"


def bounded(seed: int, first: int, count: int) -> list[str]:
    """Run cases in a process with bounded memory. Returns what is wrong."""
    command = [
        sys.executable,
        "-m",
        "tests.fuzz.hostile",
        "--seed",
        str(seed),
        "--case",
        str(first),
        "--cases",
        str(count),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ALONE, check=False)
    except subprocess.TimeoutExpired as error:
        last = (error.stdout or b"").decode().splitlines()[-1:]
        return [f"{' '.join(last)} does not end"]
    lines = done.stdout.splitlines()
    faults = [line.removeprefix("! ") for line in lines if line.startswith("! ")]
    if done.returncode not in (0, 1):
        faults.append(f"{lines[-1] if lines else 'no case'} ended its process: {done.stderr[-300:]}")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int)
    parser.add_argument("--cases", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600)
    given = parser.parse_args()
    if given.case is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (MEGABYTES << 20,) * 2)
        faults = [*cases(given.seed, given.case, given.cases)]
        print("".join(f"! {fault}\n" for fault in faults), end="")
        return int(bool(faults))
    ends, first, faults = time.monotonic() + given.seconds, 0, list[str]()
    while time.monotonic() < ends:
        new = bounded(given.seed, first, 200)
        print("".join(f"{fault}\n" for fault in new), end="")
        faults += new
        first += 200
        print(f"hostile: {first} cases of seed {given.seed}, {len(faults)} faults", flush=True)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
