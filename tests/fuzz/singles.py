"""Converters of one value a record: texts, bytes and numbers, by docs/reference/converters.md."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

from tests.fuzz.fates import Dead
from tests.fuzz.forms import single
from tests.fuzz.nodes import Node
from tests.fuzz.oracle import Typed
from tests.fuzz.texts import NUMBERS, STRINGS

_NUMBERS = {"short": (">h", "int16"), "integer": (">i", "int"), "long": (">q", "long"), "float": (">f", "float")}
_FORMS = {**_NUMBERS, "double": (">d", "double"), "boolean": (">?", "boolean")}
CONVERTERS = ("string", "string", "bytes", *_FORMS)


def value(random: Random, converter: str, number: int) -> tuple[bytes | None, Any]:
    """A record, and its value, or the fate of what is none."""
    if random.random() < 0.03:
        return None, None
    match converter:
        case "string":
            if random.random() < 0.03:
                return b"\xff\xfe", Dead("VALUE_CONVERTER")
            text = random.choice((*STRINGS, *NUMBERS, str(number), "\ud7ff"))
            return text.encode(), Typed(text, Node("string", True))
        case "bytes":
            raw = random.randbytes(random.choice((0, 1, 4, 16, 17)))
            return raw, Typed(raw, Node("bytes", True))
    form, kind = _FORMS[converter]
    size = struct.calcsize(form)
    if random.random() < 0.03:
        length = random.choice([n for n in (0, 1, 2, 3, 5, 9) if n != size])
        return b"\7" * length, Dead("VALUE_CONVERTER")
    if kind == "boolean":
        raw = random.choice((b"\0", b"\1", b"\2"))
        return raw, Dead("VALUE_CONVERTER") if raw == b"\2" else Typed(raw == b"\1", Node(kind, True))
    raw = random.choice((random.randbytes(size), struct.pack(form, number % 100), b"\x7f" + b"\xff" * (size - 1)))
    (found,) = struct.unpack(form, raw)
    return raw, Typed(single(found) if kind == "float" else found, Node(kind, True))
