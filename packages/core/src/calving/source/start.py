"""Where the first start of a sink begins to read its topics."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, Self

from calving.model.offsets import SourceOffsets, TopicPartition, is_moment
from calving.model.text import listed

_MOST_LINES = 20
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_RECORD = re.compile(r"(?P<topic>\S+):(?P<partition>\d{1,9})=(?P<offset>\d{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Start:
    """``place``: the beginning or the end of each partition, or the first record of a time, in ms since 1970.
    ``offsets``: those of partitions that begin elsewhere.
    """

    place: Literal["earliest", "latest"] | int = "earliest"
    offsets: tuple[tuple[TopicPartition, int], ...] = ()

    @classmethod
    def of(cls, text: str) -> Self:
        """The start that a text names: ``earliest``, ``latest``, a time, or ``topic:partition=offset, ...``.

        :raises ValueError: it names none.
        """
        if text == "earliest":
            return cls()
        if text == "latest":
            return cls("latest")
        if "=" not in text:
            try:
                return cls(moment_ms(text))
            except ValueError as error:
                raise ValueError(f"must be earliest, latest, a time, or offsets: {error}") from error
        offsets: dict[TopicPartition, int] = {}
        for part in filter(None, map(str.strip, text.split(","))):
            tp, offset = record_at(part)
            if tp in offsets:
                raise ValueError(f"partition {tp.partition} of topic '{tp.topic}' stands twice")
            offsets[tp] = offset
        return cls(offsets=tuple(sorted(offsets.items())))

    def __str__(self) -> str:
        """As a configuration file has it; the reference of keys shows the default so."""
        if self.offsets:
            return ", ".join(f"{tp.topic}:{tp.partition}={offset}" for tp, offset in self.offsets)
        return self.place if isinstance(self.place, str) else moment_text(self.place)


EARLIEST = Start()


def record_at(text: str) -> tuple[TopicPartition, int]:
    """The partition and the offset of ``topic:partition=offset``.

    :raises ValueError: it is something else.
    """
    found = _RECORD.fullmatch(text)
    if found is None:
        raise ValueError(f"{text} is not TOPIC:PARTITION=OFFSET, such as orders:0=1200")
    return TopicPartition(found["topic"], int(found["partition"])), int(found["offset"])


def moment_ms(text: str) -> int:
    """Milliseconds since 1970 of a time in ISO 8601 with its zone.

    :raises ValueError: it is none, or lacks the zone, or is before 1970: for brokers, -1 is the end of a partition, and
        -2 its beginning. After the year 9999 no time can be shown.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text} is not a time such as 2026-11-28T09:30:00Z") from error
    if moment.tzinfo is None:
        raise ValueError(f"{text}: which time zone? Add Z for UTC, or an offset such as +01:00")
    ms = (moment - _FIRST) // timedelta(milliseconds=1)  # a float would be a millisecond less for some times
    if not is_moment(ms):
        raise ValueError(f"{text} is not in the years 1970 to 9999")
    return ms


def moment_text(ms: int) -> str:
    """A time in ISO 8601."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


def place_text(start: Start) -> str:
    """Where it is, for a sentence."""
    if start.offsets:
        return str(start)
    if isinstance(start.place, int):
        return f"the first record of {moment_text(start.place)}"
    return "the beginning" if start.place == "earliest" else "the end"


def first_start_lines(start: Start, starts: SourceOffsets) -> list[str]:
    """What a first start says of where it reads from: a line, and one for each topic."""
    topics: dict[str, list[str]] = {}
    for tp, at in sorted(starts.items()):
        topics.setdefault(tp.topic, []).append(f"{tp.partition} from {at}")
    shown = [f"topic '{name}': partition {listed(each)}" for name, each in topics.items()][:_MOST_LINES]
    if len(topics) > _MOST_LINES:
        shown.append(f"{len(topics) - _MOST_LINES} more topics")
    return [f"first start, from {place_text(start)} on; earlier records are in no table", *shown]


def outside(start: Start, begins: SourceOffsets, ends: SourceOffsets) -> str | None:
    """Why the start cannot be taken: a partition that it names is not there, or has no such offset; None if it can."""
    for tp, offset in start.offsets:
        name = f"partition {tp.partition} of topic '{tp.topic}'"
        if tp not in ends:
            return f"{name} is none that the sink reads"
        if not begins[tp] <= offset <= ends[tp]:
            return f"{name} has the offsets {begins[tp]} to {ends[tp]}, and {offset} is none of them"
    return None
