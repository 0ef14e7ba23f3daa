"""Ledgers as snapshots and table properties state them, read by a parser of its own, and whether they agree.

A sink says in the summary of each snapshot which entries of its control log and which source offsets the table holds.
So each snapshot of a sink has taken the offsets that its ledger holds and the ledger below it does not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

CONTROL = "kafka.connect.offsets."
LOG_ID, SOURCE = "calving.control-log-id", "calving.source-offsets"
SETTLED, MISSING = "calving.settled-offsets", "calving.missing-offsets"
LEDGER_SNAPSHOT, GONE = "calving.ledger-snapshot", "calving.gone-offsets"

Ranges = tuple[tuple[int, int], ...]
Partition = tuple[str, int]
"""A topic, with its id as far as that is known (``orders@<id>``), and the number of a partition."""


class UnreadableLedgerError(ValueError):
    """An entry is not what a sink writes. The text names the entry."""


@dataclass(frozen=True, slots=True)
class StatedLedger:
    """A ledger as it is stated at one place."""

    log_id: str | None
    control: Mapping[int, int]
    source: Mapping[Partition, int] | None
    """None: the Java sink states no source offsets."""
    settled: Mapping[Partition, int] = field(default_factory=dict)
    missing: Mapping[Partition, Ranges] = field(default_factory=dict)

    def held(self) -> dict[Partition, Ranges]:
        """The offsets whose records the table holds, as far as they belong into it."""
        return {
            partition: subtracted(((0, end),), self.missing.get(partition, ()))
            for partition, end in (self.source or {}).items()
        }

    def faults(self) -> Iterator[str]:
        """What is wrong with it in itself."""
        source = self.source or {}
        for partition, spans in self.missing.items():
            if spans:
                yield from _faults(partition, spans, self.settled.get(partition, 0), source.get(partition, 0))
        for partition, offset in self.settled.items():
            end = source.get(partition, 0)
            if offset > end:
                yield f"the settled offset {offset} of {named(partition)} is above its source offset {end}"


def _faults(partition: Partition, spans: Ranges, low: int, end: int) -> Iterator[str]:
    flat = [at for span in spans for at in span]
    if flat != sorted(flat) or any(start >= stop for start, stop in spans):
        yield f"the missing offsets of {named(partition)} are not in order"
    elif spans[0][0] < low or spans[-1][1] > end:
        text = f"are not between the settled offset {low} and the source offset {end}"
        yield f"the missing offsets of {named(partition)} {text}"


def owners(entries: Iterable[str]) -> list[str]:
    """The sinks, ``<control topic>.<group>``, that have a ledger in a summary."""
    return sorted(name.removeprefix(CONTROL) for name in entries if name.startswith(CONTROL))


def stated(entries: Mapping[str, str], owner: str, suffix: str | None = None) -> StatedLedger:
    """The ledger in a summary; with a ``suffix``, in table properties, whose names end in it.

    :raises UnreadableLedgerError: it is not what a sink writes.
    """

    def said(name: str, read: Callable[[Any], Any]) -> Any:
        full = name if suffix is None else f"{name}{suffix}"
        if full not in entries:
            return None
        try:
            return read(json.loads(entries[full]))
        except Exception as error:  # whatever is in it
            raise UnreadableLedgerError(f"{full} is not what a sink writes: {entries[full][:80]!r}") from error

    branch = "" if suffix is None else suffix.removeprefix(f".{owner}")
    control = f"{CONTROL}{owner}{branch}"
    try:
        offsets = {int(p): _offset(at) for p, at in json.loads(entries.get(control, "{}")).items()}
    except Exception as error:
        raise UnreadableLedgerError(f"{control} is not what a sink writes: {entries[control][:80]!r}") from error
    source: dict[Partition, int] | None = said(SOURCE, _offsets)
    settled = {**(source or {}), **(said(SETTLED, _offsets) or {})}
    log_id = entries.get(LOG_ID if suffix is None else f"{LOG_ID}{suffix}")
    return StatedLedger(log_id, offsets, source, settled, said(MISSING, _ranges) or {})


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is no offset")
    return value


def _offsets(raw: Mapping[str, Any]) -> dict[Partition, int]:
    return {
        (topic, int(number)): _offset(at)
        for topic, each in raw.items()
        for number, at in (enumerate(each) if isinstance(each, list) else each.items())
    }


def _ranges(raw: Mapping[str, Any]) -> dict[Partition, Ranges]:
    return {
        (topic, int(number)): tuple((_offset(start), _offset(end)) for start, end in spans)
        for topic, each in raw.items()
        for number, spans in each.items()
    }


def named(partition: Partition) -> str:
    """A partition in a text."""
    return f"{partition[0].partition('@')[0]}-{partition[1]}"


def subtracted(ranges: Iterable[tuple[int, int]], holes: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges without others."""
    left = list(ranges)
    for low, high in holes:
        cut = []
        for start, end in left:
            cut += [(start, min(end, low)), (max(start, high), end)]
        left = [(start, end) for start, end in cut if start < end]
    return tuple(left)


def count(ranges: Iterable[tuple[int, int]]) -> int:
    """The number of offsets in ranges that do not overlap."""
    return sum(end - start for start, end in ranges)


def ranges_text(ranges: Iterable[tuple[int, int]]) -> str:
    """Ranges for people; the end is not in them."""
    found = [f"{start} to {end}" for start, end in ranges]
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
