"""``calving audit --full``, once all tables were read: whether each bad record is a dead letter, and which offsets are
in no table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from calving.audit.ledgers import Partition, Ranges, count, named, ranges_text, subtracted
from calving.audit.live import LiveRows
from calving.audit.metadata import TableMetadataFile
from calving.audit.storage import AuditedStore, DamagedFileError
from calving.audit.table import TableAudit
from calving.errors import ConfigError
from calving.iceberg.catalog import find_table, table_id
from calving.model.dead_letters import origin
from calving.model.offsets import Range
from calving.runtime import components
from calving.runtime.parts import record_path
from calving.runtime.reread import present
from calving.settings.load import Sink
from calving.source.opening import open_reader
from calving.source.reading import headers_of

_SHOWN = 5
_PLACE = ("topic", "partition", "offset")


@dataclass
class LetterAudit:
    """What is said of a sink's records beyond single tables. ``lost``: bad records without a dead letter; None if
    nobody knows, and ``why`` not. ``nowhere``: offsets that no table holds, below those that one does.
    """

    sink: str
    bad: int = 0
    lost: Mapping[Partition, Set[int]] | None = field(default_factory=dict)
    why: str = ""
    nowhere: Mapping[Partition, Ranges] = field(default_factory=dict)

    @property
    def is_well(self) -> bool:
        """Whether no bad record is lost."""
        return not self.lost

    def json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "sink": self.sink,
            "bad": self.bad,
            "lost": None
            if self.lost is None
            else [_listed(of, sorted(each)) for of, each in sorted(self.lost.items())],
            "nowhere": [_listed(of, [list(each) for each in ranges]) for of, ranges in sorted(self.nowhere.items())],
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        if self.bad:
            lost = sum(map(len, (self.lost or {}).values()))
            are = f"it is not known whether they are dead letters: {self.why}" if self.lost is None else f"{lost} lost"
            yield f"sink {self.sink}: {self.bad} bad records, {are}"
        for partition, offsets in sorted((self.lost or {}).items()):
            shown = ", ".join(map(str, sorted(offsets)[:_SHOWN]))
            more = f" and {len(offsets) - _SHOWN} more" if len(offsets) > _SHOWN else ""
            yield f"  records: offsets {shown}{more} of {named(partition)} are bad, and are no dead letters"
        for partition, ranges in sorted(self.nowhere.items()):
            yield (
                f"sink {self.sink}: offsets {ranges_text(ranges)} of {named(partition)} ({count(ranges)}) are in no"
                " table: not committed yet, or left by a rollback"
            )


def _listed(partition: Partition, offsets: Sequence[Any]) -> dict[str, Any]:
    return {"topic": partition[0], "partition": partition[1], "offsets": offsets}


def letter_audit(sink: Sink, tables: Iterable[TableAudit]) -> LetterAudit:
    """Judge the records of all tables, whose audits have read them.

    :raises CalvingError: the dead letters cannot be read.
    """
    audited = list(tables)
    bad: dict[Partition, set[int]] = {}
    for found in audited:
        for partition, offsets in found.bad.items():
            bad.setdefault(partition, set()).update(offsets)
    made = LetterAudit(sink.keys.name, sum(map(len, bad.values())), nowhere=_nowhere(sink, audited))
    if bad:
        letters = _letters(sink)
        if isinstance(letters, str):
            made.lost, made.why = None, letters
        else:
            without = {of: {each for each in offsets if (*of, each) not in letters} for of, offsets in bad.items()}
            made.lost = {of: offsets for of, offsets in without.items() if offsets}
    return made


def _nowhere(sink: Sink, tables: Iterable[TableAudit]) -> dict[Partition, Ranges]:
    own = f"{sink.keys.control_topic}.{sink.group}"
    ledgers = [line.ledger for found in tables for line in found.lines if line.owner == own and line.ledger is not None]
    found: dict[Partition, Ranges] = {}
    for ledger in ledgers:
        for partition, end in (ledger.source or {}).items():
            whole = max([end, *(each.source.get(partition, 0) for each in ledgers if each.source is not None)])
            held = [span for each in ledgers for span in each.held().get(partition, ())]
            if left := subtracted(((0, whole),), held):
                found[partition] = left
    return found


def _letters(sink: Sink) -> Set[tuple[str, int, int]] | str:
    """The places of the records that are dead letters; or why they are not known."""
    keys = sink.keys
    if keys.dead_letter_table is not None:
        return _of_table(sink, keys.dead_letter_table)
    if keys.dead_letter_topic is None:
        return "errors.deadletterqueue.topic.name and errors.deadletterqueue.table are not set"
    if not keys.dead_letter_headers:
        return "errors.deadletterqueue.context.headers.enable is false"
    return _of_topic(
        replace(sink, keys=keys.model_copy(update={"topics": (keys.dead_letter_topic,), "topics_regex": None}))
    )


def _of_topic(letters: Sink) -> Set[tuple[str, int, int]] | str:
    try:
        begins, ends, _ = present(letters)
    except ConfigError:  # the topic is made with the first letter
        return frozenset()
    if any(begins.values()):
        return "the dead-letter topic has deleted letters"
    path = record_path(letters)
    ranges = tuple(Range(tp.topic, tp.partition, 0, end) for tp, end in sorted(ends.items()) if end)
    found: set[tuple[str, int, int]] = set()
    with closing(open_reader(path.kafka, path.limits).read(ranges)) as blocks:
        for block in blocks:
            places = (origin(headers_of(block, place) or ()) for place in range(len(block)))
            found.update(place for place in places if place is not None)
    return found


def _of_table(sink: Sink, name: str) -> Set[tuple[str, int, int]] | str:
    table = find_table(components.catalog(sink), table_id(name))
    snapshot = table.current_snapshot() if table is not None else None
    if table is None or snapshot is None:
        return frozenset()
    store = AuditedStore(table.io)
    found: set[tuple[str, int, int]] = set()
    try:
        metadata = TableMetadataFile.load(store, table.metadata_location)
        if any(
            each.summary.get("operation") in ("delete", "overwrite") for each in metadata.line(snapshot.snapshot_id)
        ):
            return f"rows were deleted from table {name}"
        ids = {column.name: number for number, column in metadata.columns.items()}
        live = LiveRows(store, metadata, metadata.snapshots[snapshot.snapshot_id])
        live.open()
        for row in map(dict, live.rows()):
            with suppress(KeyError):
                topic, partition, offset = (row[ids[each]] for each in _PLACE)
                found.add((topic, partition, offset))
    except (DamagedFileError, FileNotFoundError):
        return f"table {name} cannot be read"
    return found
