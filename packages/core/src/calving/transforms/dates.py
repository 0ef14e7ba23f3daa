"""Java's ``SimpleDateFormat`` in UTC and English, lenient as in Connect: converts milliseconds to text and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from calving.casting.numbers import short
from calving.errors import ConfigError
from calving.records.calendar import Day, day_of, days_of, of_year, weekday

_DAY_MS = 86_400_000
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_TOKEN = re.compile(r"''|'(?P<quoted>(?:[^']|'')*)'|(?P<letter>[A-Za-z])(?P=letter)*|[^A-Za-z']+|(?P<open>')")
_NUMBER = re.compile(r"-?[0-9]{1,18}")


class _Moment(NamedTuple):
    day: Day
    days: int
    millis: int
    """Milliseconds of the day."""


class _Token(NamedTuple):
    letter: str
    """The pattern letter; if empty, ``text`` is literal."""
    width: int
    text: str = ""


class JavaDateFormat:
    """Writes and reads instants in milliseconds since 1970. ``now``, in the same unit, decides the century of
    ``yy``.
    """

    def __init__(self, pattern: str, now: int) -> None:
        """:raises ConfigError: the text is not a pattern, or has a letter that is not supported."""
        self.pattern = pattern
        self._tokens = list(self._parse_pattern(pattern))
        self._write = [_writer(token) for token in self._tokens]
        self._readers = [
            _reader(token, following) for token, following in zip(self._tokens, [*self._tokens[1:], None], strict=True)
        ]
        self._fractions = [i for i in range(2, len(self._tokens)) if _is_fraction(*self._tokens[i - 2 : i + 1])]
        for i in self._fractions:
            self._readers[i] = _three_digits(self._readers[i])
        today = day_of(now // _DAY_MS).year
        self._century = days_of(today - 80, *day_of(now // _DAY_MS)[1:3]) * _DAY_MS + now % _DAY_MS

    def _parse_pattern(self, pattern: str) -> Sequence[_Token]:
        tokens = []
        for match in _TOKEN.finditer(pattern):
            text, letter = match.group(0), match.group("letter")
            if match.group("open"):
                raise ConfigError(f"date pattern '{pattern}': a quote is not closed")
            if letter is None:
                quoted = match.group("quoted")
                tokens.append(
                    _Token("", 0, "'" if text == "''" else text if quoted is None else quoted.replace("''", "'"))
                )
            elif letter not in _SUPPORTED or (letter == "X" and len(text) > 3):
                hint = "write yyyy for the year" if letter == "Y" else f"supported are the letters {_SUPPORTED}"
                raise ConfigError(f"date pattern '{pattern}': '{text}' is not supported; {hint}")
            else:
                tokens.append(_Token(letter, len(text)))
        return tokens

    def unreadable(self) -> str | None:
        """The reason why text cannot be read with this pattern: its fields contradict each other, or do not determine a
        date. None if text can be read.
        """
        letters = {token.letter for token in self._tokens}
        for these, those in (("Hk", "Kh"), ("D", "MLd")):
            if letters & set(these) and letters & set(those):
                return (
                    f"date pattern '{self.pattern}': to read text, use either {' or '.join(these)} "
                    f"or {' and '.join(those)}, not both"
                )
        if letters & set("Eu") and not letters & set("dD"):
            return f"date pattern '{self.pattern}': to read text, a day of the week needs a date beside it"
        return None

    def unwritable(self) -> str | None:
        """The reason why a text of this pattern would name another moment. None if it does not."""
        if all(self._tokens[i].width == 3 for i in self._fractions):
            return None
        return f"date pattern '{self.pattern}': S counts milliseconds, of which a second has three digits: write SSS"

    def format(self, millis: int) -> str:
        days, of_day = divmod(millis, _DAY_MS)
        moment = _Moment(day_of(days), days, of_day)
        return "".join([write(moment) for write in self._write])

    def parse(self, text: str) -> int:
        """Parse a date; text after it is ignored. :raises ValueError: the text does not match the pattern."""
        fields: dict[str, int] = {}
        place = 0
        for read in self._readers:
            place = read(text, place, fields)
            if place < 0:
                raise ValueError(f"{short(text)} does not match '{self.pattern}'")
        two_digits = fields.get("yy")
        if two_digits is None:
            return _instant(fields)
        start = day_of(self._century // _DAY_MS).year
        fields["y"] = start - start % 100 + two_digits + (100 if two_digits < start % 100 else 0)
        millis = _instant(fields)
        if two_digits == start % 100 and millis < self._century:
            fields["y"] += 100
            millis = _instant(fields)
        return millis


def _instant(found: dict[str, int]) -> int:
    year = found.get("y", 1970)
    if found.get("G") == 0:
        year = 1 - year
    days = of_year(year, found["D"]) if "D" in found else days_of(year, found.get("M", 1), found.get("d", 1))
    hour = found["H"] if "H" in found else found.get("K", 0) + 12 * found.get("a", 0)
    minutes = hour * 60 + found.get("m", 0)
    return days * _DAY_MS + (minutes * 60 + found.get("s", 0)) * 1000 + found.get("S", 0) - found.get("zone", 0)


_SUPPORTED = "GyMLdDEuaHkKhmsSzZX"
_NUMBERS: dict[str, Callable[[_Moment], int]] = {
    "d": lambda t: t.day.day,
    "D": lambda t: t.day.of_year,
    "u": lambda t: weekday(t.days),
    "H": lambda t: t.millis // 3_600_000,
    "k": lambda t: t.millis // 3_600_000 or 24,
    "K": lambda t: t.millis // 3_600_000 % 12,
    "h": lambda t: t.millis // 3_600_000 % 12 or 12,
    "m": lambda t: t.millis // 60_000 % 60,
    "s": lambda t: t.millis // 1000 % 60,
    "S": lambda t: t.millis % 1000,
    "M": lambda t: t.day.month,
    "L": lambda t: t.day.month,
}


def _writer(token: _Token) -> Callable[[_Moment], str]:
    letter, count, text = token
    match letter:
        case "":
            return lambda _: text
        case "G":
            return lambda t: "AD" if t.day.year > 0 else "BC"
        case "y" if count == 2:
            return lambda t: f"{_of_era(t) % 100:02d}"
        case "y":
            return lambda t: f"{_of_era(t):0{count}d}"
        case "M" | "L" if count == 3:
            return lambda t: _MONTHS[t.day.month - 1][:3]
        case "M" | "L" if count > 3:
            return lambda t: _MONTHS[t.day.month - 1]
        case "E":
            return lambda t: _DAYS[weekday(t.days) - 1][: None if count > 3 else 3]
        case "a":
            return lambda t: "AM" if t.millis < _DAY_MS // 2 else "PM"
        case "z":
            return lambda _: "UTC" if count < 4 else "Coordinated Universal Time"
        case "Z":
            return lambda _: "+0000"
        case "X":
            return lambda _: "Z"
    get = _NUMBERS[letter]
    return lambda t: f"{get(t):0{count}d}"


def _of_era(moment: _Moment) -> int:
    year = moment.day.year
    return year if year > 0 else 1 - year


def _is_fraction(second: _Token, point: _Token, token: _Token) -> bool:
    """Whether ``token`` stands for the part of a second, as in ``ss.SSS``."""
    return second.letter == "s" and not point.letter and point.text in (".", ",") and token.letter == "S"


Reader = Callable[[str, int, dict[str, int]], int]
"""Reads a field of a text from a place on. Returns the place after the field, or -1."""


def _reader(token: _Token, following: _Token | None) -> Reader:
    letter, count, text = token
    if not letter:
        return lambda given, place, _: place + len(text) if given.startswith(text, place) else -1
    if letter in _NAMES and (letter not in "ML" or count > 2):
        field, names = _NAMES[letter]
        return _named(field, names)
    if letter in "zZ":
        return _zone
    if letter == "X":
        return lambda given, place, found: _iso_zone(given, place, found, count)
    return _numeric(letter, count, obeys=following is not None and _is_numeric(following))


def _is_numeric(token: _Token) -> bool:
    return bool(token.letter) and token.letter not in "GEazZX" and (token.letter not in "ML" or token.width <= 2)


_NAMES: dict[str, tuple[str, dict[str, int]]] = {
    "G": ("G", {"BC": 0, "AD": 1, "BEFORE CHRIST": 0, "ANNO DOMINI": 1}),
    "M": ("M", {name.upper(): i for i, m in enumerate(_MONTHS, 1) for name in (m, m[:3])}),
    "E": ("E", {name.upper(): i for i, d in enumerate(_DAYS, 1) for name in (d, d[:3])}),
    "a": ("a", {"AM": 0, "PM": 1}),
}
_NAMES["L"] = _NAMES["M"]


def _named(field: str, names: dict[str, int]) -> Reader:
    by_length = sorted(names.items(), key=lambda item: -len(item[0]))

    def read(text: str, place: int, found: dict[str, int]) -> int:
        for name, value in by_length:
            if text[place : place + len(name)].upper() == name:
                found[field] = value
                return place + len(name)
        return -1

    return read


def _numeric(letter: str, count: int, *, obeys: bool) -> Reader:
    """Reads a number. Of adjacent numbers, only the last may have more digits than letters."""
    field = {"k": "H", "h": "K", "L": "M"}.get(letter, letter)

    def read(text: str, place: int, found: dict[str, int]) -> int:
        start = _behind_blanks(text, place)
        if obeys and place + count > len(text):
            return -1
        match = _NUMBER.match(text, start, place + count if obeys else len(text))
        if match is None:
            return -1
        value = int(match.group())
        if letter == "y":
            two = count <= 2 and match.end() - start == 2 and value >= 0
            found.pop("yy", None)
            found["yy" if two else "y"] = value
        elif (letter, value) in (("k", 24), ("h", 12)):
            found[field] = 0
        else:
            found[field] = value
        return match.end()

    return read


def _three_digits(read: Reader) -> Reader:
    """Refuses a part of a second that is not in milliseconds; Java takes any digits for milliseconds."""

    def checked(text: str, place: int, found: dict[str, int]) -> int:
        end = read(text, place, found)
        digits = text[place:end].strip()
        if end >= 0 and len(digits) != 3:
            raise ValueError(
                f"{short(text)}: S counts milliseconds, which have three digits, not '{digits}'; without this transform"
                " a timestamp column takes such a text with its microseconds"
            )
        return end

    return checked


def _behind_blanks(text: str, place: int) -> int:
    while text[place : place + 1] in (" ", "\t"):
        place += 1
    return place


_RFC_822 = re.compile(r"([+-])([0-9]{2})([0-9]{2})")
_GMT = re.compile(r"GMT(?:([+-])([0-9]{1,2}):([0-9]{2})|(?![+-]))|UTC", re.IGNORECASE)
_ISO = {1: re.compile(r"([+-])([0-9]{2})"), 2: _RFC_822, 3: re.compile(r"([+-])([0-9]{2}):([0-9]{2})")}


def _zone(text: str, place: int, found: dict[str, int]) -> int:
    place = _behind_blanks(text, place)
    return _offset(_RFC_822.match(text, place) or _GMT.match(text, place), found)


def _iso_zone(text: str, place: int, found: dict[str, int], count: int) -> int:
    place = _behind_blanks(text, place)
    if text[place : place + 1] == "Z":
        found["zone"] = 0
        return place + 1
    return _offset(_ISO[count].match(text, place), found)


def _offset(match: re.Match[str] | None, found: dict[str, int]) -> int:
    if match is None:
        return -1
    sign, *numbers = match.groups(default="")
    hours, minutes = (int(text or 0) for text in (*numbers, "")[:2])
    if hours > 23 or minutes > 59:
        return -1
    found["zone"] = (hours * 60 + minutes) * (-60_000 if sign == "-" else 60_000)
    return match.end()
