"""Java's date patterns (SimpleDateFormat), as far as they occur in configurations: y M d H h m s S a E Z X z."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

from calving.errors import ConfigError

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


class JavaDateFormat:
    """Writes and reads instants; what has no zone is UTC."""

    def __init__(self, pattern: str) -> None:
        """:raises ConfigError: the pattern has a letter that is not supported."""
        self.pattern = pattern
        self._write: list[Callable[[datetime], str]] = []
        parts: list[str] = []
        for match in _TOKEN.finditer(pattern):
            token = match.group(0)
            if token.startswith("'"):
                text = match.group(1).replace("''", "'") or "'"
                self._literal(text, parts)
            elif match.group(2) is None:
                self._literal(token, parts)
            else:
                self._letter(token[0], len(token), parts)
        self._regex = re.compile("".join(parts))

    def _literal(self, text: str, parts: list[str]) -> None:
        self._write.append(lambda _: text)
        parts.append(re.escape(text))

    def _letter(self, letter: str, count: int, parts: list[str]) -> None:
        match letter:
            case "y" | "u":
                self._write.append(lambda t: f"{t.year % 100:02d}" if count == 2 else f"{t.year:0{count}d}")
                parts.append(r"(?P<y2>\d{2})" if count == 2 else r"(?P<y>\d{4,})")
            case "M" if count >= 3:
                self._write.append(lambda t: _MONTHS[t.month - 1])
                parts.append(f"(?P<Mon>{'|'.join(_MONTHS)})")
            case "E":
                self._write.append(lambda t: _DAYS[t.weekday()])
                parts.append(f"(?:{'|'.join(_DAYS)})")
            case "a":
                self._write.append(lambda t: "AM" if t.hour < 12 else "PM")
                parts.append("(?P<a>AM|PM|am|pm)")
            case "S":
                self._write.append(lambda t: f"{t.microsecond // 1000:0{count}d}")
                parts.append(rf"(?P<S>\d{{{count},}})")
            case "Z" | "X" | "z":
                self._write.append(lambda t: _zone(t, letter, count))
                parts.append(r"(?P<zone>Z|UTC|GMT|[+-]\d{2}:?(?:\d{2})?)")
            case "M" | "d" | "H" | "h" | "m" | "s":
                get = _NUMBERS[letter]
                self._write.append(lambda t: f"{get(t):0{count}d}")
                parts.append(rf"(?P<{letter}>\d{{{count},}})" if count < 2 else rf"(?P<{letter}>\d{{{count}}})")
            case _:
                raise ConfigError(f"date pattern '{self.pattern}': the letter '{letter}' is not supported")

    def format(self, instant: datetime) -> str:
        return "".join(write(instant) for write in self._write)

    def parse(self, text: str) -> datetime:
        """:raises ValueError: the text does not match the pattern."""
        match = self._regex.fullmatch(text)
        if match is None:
            raise ValueError(f"'{text}' does not match '{self.pattern}'")
        found = {name: value for name, value in match.groupdict().items() if value is not None}
        year = int(found["y"]) if "y" in found else 2000 + int(found["y2"]) if "y2" in found else 1970
        month = _MONTHS.index(found["Mon"]) + 1 if "Mon" in found else int(found.get("M", 1))
        hour = int(found.get("H", found.get("h", 0)))
        if "a" in found:
            hour = hour % 12 + (12 if found["a"].upper() == "PM" else 0)
        # SimpleDateFormat takes the digits of S as a number of milliseconds.
        millis = int(found.get("S", 0))
        made = datetime(
            year, month, int(found.get("d", 1)), hour, int(found.get("m", 0)), int(found.get("s", 0)), tzinfo=UTC
        )
        return made.replace(tzinfo=_offset(found.get("zone"))).astimezone(UTC) + timedelta(milliseconds=millis)


_NUMBERS: dict[str, Callable[[datetime], int]] = {
    "M": lambda t: t.month,
    "d": lambda t: t.day,
    "H": lambda t: t.hour,
    "h": lambda t: (t.hour + 11) % 12 + 1,
    "m": lambda t: t.minute,
    "s": lambda t: t.second,
}


def _zone(instant: datetime, letter: str, count: int) -> str:
    if letter == "X":
        return "Z"
    return "+0000" if letter == "Z" else "UTC"


def _offset(text: str | None) -> timezone:
    if text is None or text in ("Z", "UTC", "GMT"):
        return UTC
    digits = text[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:] or 0)
    return timezone(timedelta(minutes=minutes if text[0] == "+" else -minutes))
