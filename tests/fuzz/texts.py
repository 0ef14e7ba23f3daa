"""Random JSON records for a table: good, almost good, wrong, and no records at all. All as text, since how a number or a
name is written matters.
"""

from __future__ import annotations

import base64
import json
from random import Random

from pyiceberg.types import DecimalType, FixedType, IcebergType, ListType, MapType, StructType

_ZEROS = "0" * 60
NUMBERS = (
    *("0", "-0", "1", "-1", "7", "127", "2147483647", "2147483648", "-2147483649", "9007199254740993"),
    *("9223372036854775807", "-9223372036854775808", "9223372036854775808", "18446744073709551616"),
    *("99999999999999999999999999999999999999", "100000000000000000000000000000000000000", "-" + "1234567890" * 4),
    *("1.0", "-0.0", "1.5", "3.0", "1e2", "1E-3", "-2.5e3", "0.1", "1.10", "123456789.125", "1e20", "3.4028235e38"),
    *("3.4028236e38", "1e39", "1e308", "4.9e-324", "1e-400", "0.30000000000000004", "9007199254740993.0"),
    *("92233720368547.76562", "0.1234567890123456789012345678901234567", "12345678901234567890.5", "1234567.5"),
    *("0.00005", "100.005", "9.9999999999999999999", "2.5", "-2.5", "1e7", "86399999", "86400000", "1704164645123"),
    *("253402300800000", "-62135596800001", "1704164645123456", "1e400", "-1e400", "1704164645", "1704164645123456789"),
    *(f"1.{_ZEROS}", f"0.{_ZEROS}1", f"-7.{_ZEROS}", f"5e{_ZEROS}1", f"1{_ZEROS}", f"-1{_ZEROS}.5", f"1e-{_ZEROS}2"),
    *("9223372036854776", "-9223372036854776", "9223372036854775", "253402300799999999", "86399999999999"),
)
STRINGS = (
    *("", "x", "text", "true", "FALSE", "null", "5", "-7", "+3", "007", "1.5", "1e3", "NaN", "Infinity", "-Infinity"),
    *("nan", "inf", "1_000", " 1 ", "0x1p3", "1d", "9223372036854775807", "9223372036854775808", "\u0661\u0662"),
    *("99999999999999999999999999999999999999.5", "1e400", "-1e400", "1e-400"),
    *("2024-01-02", "2024-02-30", "1969-12-31", "0001-01-01", "9999-12-31", "0000-01-01", "2024-1-2", "24-01-02"),
    *("03:04", "03:04:05", "03:04:05.6", "03:04:05.678901234", "24:00", "23:59:60", "3:04"),
    *("2024-01-02T03:04:05", "2024-01-02 03:04", "2024-01-02T03:04:05.678901Z", "2024-01-02T03:04:05.6789019+02:00"),
    *("1969-12-31T23:59:59.999999Z", "2024-01-02T03:04:05-0730", "2024-01-02T03:04:05+05", "2024-01-02T25:00:00Z"),
    *("2024-01-02T03:04:05.1234567890Z", "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00"),
    *(
        "123e4567-e89b-12d3-a456-426614174000",
        "123E4567E89B12D3A456426614174000",
        "123e4567-e89b-12d3-a456-42661417400",
    ),
    *("AA==", "AAAA", "AQIDBA==", "AQIDBA", "A", "****", "AAECAwQFBgcICQoLDA0ODw==", "AAECAwQFBgcICQoLDA0ODxA="),
    *(
        "naïve",
        "日本語",
        "😀",
        "a\u0000b",
        "tab\tnew\nline",
        '"quoted"',
        "\\",
        "\ud7ff" * 17,
        "\U0010ffff" * 17,
        "x" * 40,
    ),
    *(
        f"{_ZEROS}1",
        f"-{_ZEROS}5",
        f"+{_ZEROS}",
        f"{_ZEROS}9223372036854775808",
        f"{_ZEROS}.5",
        f"1.{_ZEROS}",
        f"1e{_ZEROS}1",
    ),
    *(
        f"0.{_ZEROS}1",
        f"{'0' * 38}7",
        f"{'0' * 5000}3",
        f"1{_ZEROS}",
        "1dd",
        "1fd",
        "2d",
        "2F",
        "12345678-1234-1234-1234-12345678",
    ),
    *("234567812345678123456781234567ab ", " 234567812345678123456781234567a", "+2345678123456781234567812345678"),
    *("0x345678123456781234567812345678", "1234567812345678123456781234_678", "\t2345678123456781234567812345678"),
    *("\u0661" * 32, "{123e4567-e89b-12d3-a456-426614174000}", "urn:uuid:123e4567-e89b-12d3-a456-426614174000"),
    *(
        "123e4567e89b-12d3-a456-426614174000",
        "123e-4567e89b12d3a456426614174000",
        "123E4567-E89B-12D3-A456-426614174000",
    ),
    *(
        "2024-01-02Z",
        "2024-01-02T03:04:05+25:00",
        "2024-01-02T03:04:05+02:60",
        "03:04:05Z",
        "03:04+00:00",
        "03:04:05+01:00",
    ),
    *("infinity", "2024-01-02T00:00:00.000000000Z", "10000-01-01", "+2024-01-02"),
    *("{}", "[1]", "\u2028", "\ufeff", "e\u0301", "%s/..?=&", "\x7f\x80"),
)
POISON = (
    *(
        b"",
        b" ",
        b"5",
        b"null",
        b"true",
        b'"x"',
        b"[1]",
        b"[]",
        b"{}",
        b"{",
        b"}",
        b'{"id":1',
        b'{"id":1}}',
        b'{"id":}',
    ),
    *(
        b'{"id":1}{"id":2}',
        b'{"id":1}\n{"id":2}',
        b'{"id":1} x',
        b"\xff\xfe",
        b'{"id":1,"a":"\xff"}',
        b"\xef\xbb\xbf{}",
    ),
    *(b'{"id":NaN}', b'{"a":Infinity}', b'{"a":-Infinity}', b'{"a":"\\ud800"}', b'{"\\uDC00":1}', b"{'id':1}"),
    *(b'{"id":01}', b'{"id":+1}', b'{"id":.5}', b'{"id":1.}', b'{"id":1,}', b'{"a":"\x01"}', b'{"a":"\\x"}', b"nul"),
    *(b'{"a":nan}', b'{"a":tru}', b'{"id" 1}', b"\x00", b"\x00\x00\x00\x00\x01abc", b'{"a":[1,]}', b"[{}]", b"\t\n"),
)
_DEEP = tuple(
    (b'{"id":1,"x":' + opened * levels + b"1" + closed * levels + b"}")
    for levels in (20, 31, 32, 66, 350, 3_000)
    for opened, closed in ((b"[", b"]"), (b'{"x":', b"}"))
)
_MORE = ("a.b", "b", "", "new", "extra", "id", "A", "Id", "Value", "a", "ts", "n1", "n2", "mixed")


_HABITS = (
    *('{"a":%}', '{"a":7,"z":"x"}', '{"a":1.5,"b":"x"}', '{"a":9007199254740993}', '[{"a":%}]', '[{"a":1,"b":null}]'),
    *(
        "[]",
        "{}",
        "[1,2.5]",
        '["x",null]',
        "%",
        "1.5",
        "9007199254740993",
        "true",
        '{"a":{"b":%}}',
        '{"a":{"c":1.0}}',
        "null",
    ),
    *('[{"a":%},{"z":1}]', "[null,null]", '{"a":"%"}', "1.0"),
)


class Writer:
    """Writes records for one struct of columns."""

    def __init__(self, random: Random, wrong: float) -> None:
        self._random, self._wrong = random, wrong
        """``wrong``: the share of values that somebody should not have sent."""
        self._habit = random.choice(_HABITS) if random.random() < 0.15 else None
        """The texts that this sender writes into text columns."""
        self.shapes: int | None = None
        """How many forms records have, for a topic whose records are much alike; None: each has its own."""
        self._form, self._forms = random, random.random()
        self.few_keys: int | None = None
        """How many distinct keys maps have, where each may become a column."""
        self._keys: dict[str, list[str]] = {}

    def record(self, struct: StructType, number: int) -> bytes:
        """One record, nearly always an object."""
        random = self._random
        if random.random() < self._wrong * 0.3:
            return random.choice(_DEEP) if random.random() < 0.03 else random.choice(POISON)
        if self.shapes is not None:
            self._form = Random(f"{self._forms}/{random.randrange(self.shapes)}")
        text = self._object(struct, f"{number}")
        if random.random() < 0.03:
            text = random.choice((" ", "\n", "\r\n", "\t")) + text + random.choice(("", " ", "\n"))
        return text.encode()

    def _object(self, struct: StructType, number: str | None = None) -> str:
        random = self._form
        parts = []
        for field in struct.fields:
            if random.random() < 0.07:
                continue
            own = field.name == "id" and number is not None and random.random() > self._wrong
            value = number if own else self.value(field.field_type, field.required)
            parts.append((field.name, value or "null"))
        while random.random() < 0.12:
            parts.append((random.choice(_MORE), self._any(2)))
        if random.random() < 0.2:
            random.shuffle(parts)
        if parts and random.random() < 0.02:
            parts.append((random.choice(parts)[0], self._any(1)))
        blank = " " if random.random() < 0.2 else ""
        return "{" + f",{blank}".join(f"{_quoted(n)}:{blank}{v}" for n, v in parts) + "}"

    def value(self, kind: IcebergType, required: bool = False) -> str:
        """JSON text for a column; mostly what it takes."""
        random = self._form
        if random.random() < (self._wrong * 0.1 if required else 0.1):
            return "null"
        if random.random() < self._wrong:
            return self._any(2)
        if self._habit is not None and str(kind) in ("string", "double") and random.random() < 0.8:
            return random.choice((self._habit, self._habit, random.choice(_HABITS))).replace(
                "%", str(self._random.randint(0, 99))
            )
        match kind:
            case StructType():
                return self._object(kind)
            case ListType():
                items = [
                    self.value(kind.element_type, kind.element_required) for _ in range(random.choice((0, 1, 1, 2, 3)))
                ]
                return f"[{','.join(items)}]"
            case MapType():
                count = random.choice((0, 1, 1, 2, 3))
                keys = [self.key(kind.key_type) for _ in range(count)]
                return "{" + ",".join(f"{k}:{self.value(kind.value_type, kind.value_required)}" for k in keys) + "}"
        return self.primitive(kind)

    def key(self, kind: IcebergType) -> str:
        if self.few_keys is None:
            return self._key(kind)
        known = self._keys.setdefault(str(kind), [])
        if len(known) < self.few_keys:
            known.append(self._key(kind))
        return self._random.choice(known)

    def _key(self, kind: IcebergType) -> str:
        text = self.primitive(kind)
        return text if text.startswith('"') else _quoted(text)

    def primitive(self, kind: IcebergType) -> str:
        """Mostly good for the type."""
        random, form = self._random, self._form
        number = random.choice(
            (random.randint(-100, 100), random.randint(-(2**31), 2**31 - 1), random.randint(-(2**63), 2**63 - 1))
        )
        match str(kind).partition("(")[0].partition("[")[0]:
            case "boolean":
                return form.choice((random.choice(("true", "false")), random.choice(('"true"', '"False"'))))
            case "int" | "long" if random.random() < 0.05:
                return _quoted("-" * (number < 0) + "0" * random.choice((1, 9, 30, 41, 4300)) + str(abs(number)))
            case "int":
                number = random.randint(-(2**31), 2**31 - 1) if random.random() < 0.5 else random.randint(-9, 9)
                return form.choice((f"{number}", f"{number}", f"{number}", f'"{number}"', f"{number}.0"))
            case "long":
                return form.choice((f"{number}", f"{number}", f"{number}", f'"{number}"', f"{number}.0"))
            case "float" | "double":
                value = random.choice(
                    (random.uniform(-1e3, 1e3), random.uniform(-1e30, 1e30), float(random.randint(-9, 9)))
                )
                return form.choice((repr(value), repr(value), repr(value), f'"{value!r}"', f"{number % 1000}"))
            case "decimal":
                return self._decimal(kind)
            case "string":
                text = random.choice(STRINGS) if random.random() < 0.4 else f"text {number % 1000}"
                return _quoted(text, ascii=random.random() < 0.3)
            case "binary":
                return _quoted(base64.b64encode(random.randbytes(random.choice((0, 1, 3, 20)))).decode())
            case "fixed":
                assert isinstance(kind, FixedType)
                return _quoted(base64.b64encode(random.randbytes(len(kind))).decode())
            case "uuid":
                return _quoted(self._uuid())
            case "date":
                return form.choice((str(random.randint(-30_000, 60_000)), _quoted(self._day())))
            case "time":
                return form.choice((str(random.randint(0, 86_399_999)), _quoted(self._clock())))
        return form.choice((str(random.randint(-(10**12), 4 * 10**12)), _quoted(self._stamp()), _quoted(self._stamp())))

    def _uuid(self) -> str:
        """Mostly one; else a little off."""
        random = self._random
        text = f"{random.getrandbits(128):032x}"
        grouped = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
        if random.random() < 0.9:
            return random.choice((grouped, grouped, grouped, text, grouped.upper()))
        place, odd = random.randrange(32), random.choice(" +-_x\t\u0661gG")
        return random.choice(
            (text[:place] + odd + text[place + 1 :], grouped[:place] + odd + grouped[place:], grouped[1:])
        )

    def _decimal(self, kind: IcebergType) -> str:
        random = self._random
        assert isinstance(kind, DecimalType)
        digits = random.randint(1, kind.precision)
        number = str(random.randint(0, 10**digits - 1)).rjust(kind.scale + 1, "0")
        whole, fraction = (number[: -kind.scale], number[-kind.scale :]) if kind.scale else (number, "")
        text = random.choice(("", "-")) + (whole.lstrip("0") or "0") + (f".{fraction}" if fraction else "")
        return text if self._form.random() < 0.7 else _quoted(text)

    def _day(self) -> str:
        random = self._random
        year = random.choice((1, 1582, 1900, 1969, 1970, 2024, 9999, random.randint(1900, 2100)))
        return f"{year:04}-{random.randint(1, 12):02}-{random.randint(1, 28):02}"

    def _clock(self) -> str:
        random = self._random
        text = f"{random.randint(0, 23):02}:{random.randint(0, 59):02}"
        if random.random() < 0.8:
            text += f":{random.randint(0, 59):02}"
            if random.random() < 0.6:
                text += f".{random.randint(0, 999_999_999)}"[: random.randint(2, 10)]
        return text

    def _stamp(self) -> str:
        return f"{self._day()}{self._random.choice('TT ')}{self._clock()}{self._random.choice(('', '', 'Z', 'Z', '+02:00', '-0730', '+05'))}"

    def _any(self, depth: int) -> str:
        """Any JSON value."""
        random = self._form
        choice = random.random()
        if depth == 0 or choice < 0.75:
            scalar = random.random()
            if scalar < 0.1:
                return random.choice(("null", "true", "false"))
            return (
                random.choice(NUMBERS) if scalar < 0.6 else _quoted(random.choice(STRINGS), ascii=random.random() < 0.5)
            )
        count = random.choice((0, 1, 1, 2, 3))
        if choice < 0.88:
            return "[" + ",".join(self._any(depth - 1) for _ in range(count)) + "]"
        return "{" + ",".join(f"{_quoted(random.choice(_MORE))}:{self._any(depth - 1)}" for _ in range(count)) + "}"


def _quoted(text: str, ascii: bool = False) -> str:
    return json.dumps(text, ensure_ascii=ascii)
