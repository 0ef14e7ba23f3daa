"""The checker's view of tables whose rows records change: at every moment a table is what a replay of the topic, in the
order of its offsets, up to the table's ledger comes to.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from campaign.audit import Audit, Claim, Row
from campaign.changes import Change
from campaign.deletes import DeadKeys, Live
from campaign.files import avro, content, keys, positions, rows, vector
from campaign.replays import Replay, Rows
from campaign.tables import Seen, Tables

_DELETED = 2
_POSITIONS, _KEYS = 1, 2
"""The content of a delete file."""
NOTHING: Mapping[int, Sequence[Sequence[int]]] = MappingProxyType({})
FOREIGN = "of somebody else"
"""The proof of rows that others append."""


@dataclass
class RowAudit(Audit):
    """``change``: what a record does; None: it belongs in no table. The order of effects (I7) shows in the values."""

    change: Callable[[int], Change | None] = lambda number: None
    replay: Callable[[str], Replay] = lambda table: Rows()
    """Of no changes yet, for a table."""
    appended_to: Collection[str] = ()
    """Tables in which each record is a row of its own: they may lack offsets for a while."""
    found: Counter[str] = field(default_factory=Counter)
    """How many keys were wrong, and how, each once: lost, doubled, resurrected, wrong."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._changes: dict[tuple[str, int], list[tuple[int, Change]]] = defaultdict(list)
        self._numbers: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._replayed: dict[tuple[str, int], tuple[int, Replay]] = {}
        self._foreign: dict[str, dict[int, bool]] = defaultdict(dict)
        """Keys of rows that somebody else appends, and whether they must be there."""
        self._told: set[tuple[str, int, str]] = set()
        self._forgotten: dict[tuple[str, int], set[int]] = defaultdict(set)
        """Offsets by table and partition whose records somebody wants no more in that table."""

    def produced(self, partition: int, offset: int, number: int, timestamp_ms: int = 0) -> None:
        super().produced(partition, offset, number, timestamp_ms)
        made = self.change(number)
        if made is not None:
            self._changes[made.table, partition].append((offset, made))
            self._numbers[made.table, partition].append(number)

    def appended(self, table: str, key: int, *, surely: bool) -> None:
        """Somebody else appends a row with a key that no record has; whether that is done, and not only tried."""
        self._foreign[table][key] = surely

    def rolled_back(self, table: str) -> None:
        """Somebody has moved the head of a table back: files may be added once more."""
        self._added = {path: first for path, first in self._added.items() if first[0] != table}

    def committed(self, table: str, claim: Claim) -> None:
        """What was forgotten need not be there at any time: the table has read on behind it."""
        source = {p: self._past_forgotten(table, p, end) for p, end in claim.source.items()}
        super().committed(table, replace(claim, source=source))

    def _past_forgotten(self, table: str, partition: int, end: int) -> int:
        changes, away = self._changes[table, partition], self._forgotten[table, partition]
        for offset, _ in changes[bisect_left(changes, end, key=lambda each: each[0]) :]:
            if offset not in away:
                break
            end = offset + 1
        return end

    def forget(self, table: str, offsets: Mapping[int, Iterable[int]]) -> None:
        """The records at these offsets, by partition, are to stay away from a table."""
        for partition, away in offsets.items():
            self._forgotten[table, partition].update(away)
            self._replayed.pop((table, partition), None)

    def want_again(self, table: str) -> None:
        """Nothing is to stay away from a table any more."""
        for partition in range(self.partitions):
            self._forgotten.pop((table, partition), None)
            self._replayed.pop((table, partition), None)

    def offsets_of(self, table: str, keys: Collection[int]) -> dict[int, set[int]]:
        """By partition, the offsets of the records that change rows with these keys."""
        return {
            partition: {offset for offset, made in self._changes[table, partition] if made.key in keys}
            for partition in range(self.partitions)
        }

    def lacks(self, table: str, missing: Mapping[int, Sequence[Sequence[int]]], sent: int | None = None) -> bool:
        """Whether a table that is without these offsets is without records that should be in it; of the first ``sent``
        records, or of all.
        """
        for partition, spans in missing.items():
            own = self._numbers[table, partition]
            last = len(own) if sent is None else bisect_left(own, sent)
            changes = self._changes[table, partition][:last]
            offsets = {offset for offset, _ in changes} - self._forgotten[table, partition]
            if any(start <= offset < end for offset in offsets for start, end in spans):
                return True
        return False

    def went_back(self) -> None:
        super().went_back()
        for known in self._foreign.values():
            known.update(dict.fromkeys(known, False))

    def expects(
        self, table: str, source: Mapping[int, int], missing: Mapping[int, Sequence[Sequence[int]]] = NOTHING
    ) -> dict[int, Sequence[str]]:
        """The rows of each key, once so much of each partition has been read, without ``missing``."""
        rows: dict[int, Sequence[str]] = {}
        for partition in range(self.partitions):
            rows |= self._replay(table, partition, source.get(partition, 0)).rows()
            for start, end in missing.get(partition, ()):
                for offset, made in self._between(table, partition, start, end):
                    if offset not in self._forgotten[table, partition] and made.key is not None:
                        rows.pop(made.key, None)
        return rows | {key: [FOREIGN] for key, surely in self._foreign[table].items() if surely}

    def _replay(self, table: str, partition: int, end: int) -> Replay:
        at, known = self._replayed.get((table, partition), (0, self.replay(table)))
        changes = self._changes[table, partition]
        stop = bisect_left(changes, end, key=lambda each: each[0])
        if stop < at:  # the catalog has gone back
            at, known = 0, self.replay(table)
        away = self._forgotten[table, partition]
        for offset, made in changes[at:stop]:
            if offset not in away:
                known.take(made, self._timestamps[partition][offset])
        self._replayed[table, partition] = stop, known
        return known

    def _between(self, table: str, partition: int, start: int, end: int) -> list[tuple[int, Change]]:
        changes = self._changes[table, partition]
        first, last = (bisect_left(changes, at, key=lambda each: each[0]) for at in (start, end))
        return changes[first:last]

    def compare(self, table: str, claim: Claim, live: Iterable[Row]) -> None:
        """The table as it was at one moment, and what it said of itself then."""
        self.looks += 1
        if table not in self.appended_to and self.lacks(table, claim.missing):
            self._break("I7", f"{table} lacks offsets {claim.missing} of what it has read")
        self._match(table, self.expects(table, claim.source, claim.missing), live)

    def _match(self, table: str, expected: Mapping[int, Sequence[str]], live: Iterable[Row]) -> None:
        rows: dict[int, list[str]] = defaultdict(list)
        for row in live:
            rows[row.number].append(row.proof if row.route == table else f"of {row.route}")
        for key in expected.keys() | rows.keys():
            there, foreign = rows[key], [FOREIGN] if key in self._foreign[table] and rows[key] else []
            wanted = expected.get(key, foreign)
            if not wanted and there:
                self._wrong(table, key, "resurrected", f"has rows {there}, and was deleted")
            elif len(there) < len(wanted):
                self._wrong(table, key, "lost", f"has rows {there}, and should have {wanted}")
            elif len(there) > len(wanted):
                self._wrong(table, key, "doubled", f"has rows {there}, and should have {wanted}")
            if there and Counter(wanted) - Counter(there):
                self._wrong(table, key, "wrong", f"has rows {there}, and should have {wanted}")

    def _wrong(self, table: str, key: int, kind: str, what: str) -> None:
        if (table, key, kind) not in self._told:
            self._told.add((table, key, kind))
            self.found[kind] += 1
            self._break("I7" if kind == "wrong" else "I1", f"key {key} of {table} {what}")

    def holds(self, table: str, source: Mapping[int, int], sent: int) -> bool:
        """Whether a table that has read so far has all of the first ``sent`` records."""
        for partition in range(self.partitions):
            count = bisect_left(self._numbers[table, partition], sent)
            if count and self._changes[table, partition][count - 1][0] >= source.get(partition, 0):
                return False
        return True

    def finish(self, sent: int, cycles: int | None, live: Mapping[str, Iterable[Row]]) -> None:
        """Everything is in the tables that ever will be."""
        if len(self._where) != sent:
            self._break("MISMATCH", f"the topic holds {len(self._where)} records, {sent} were sent")
        ends = {partition: self.reaches(partition) for partition in range(self.partitions)}
        for table in self.tables:
            self._match(table, self.expects(table, ends), live.get(table, ()))
        self.end_of_letters()
        if cycles is None or cycles > 2:
            self._break("I6", f"what had been read was committed after {cycles} cycles")

    def report(self) -> dict[str, Any]:
        counts = {name: [self.found[kind]] for name, kind in _REPORTED.items()}
        counts["GAP"].append(len(self.gaps))  # dead letters
        return super().report() | counts | {"resurrected": self.found["resurrected"]}


_REPORTED = {"GAP": "lost", "DUPLICATE": "doubled", "MISMATCH": "wrong"}


class ChangedTables(Tables):
    """Tables with deletes of every kind, each looked at as a whole."""

    def __init__(self, names: list[str], topic: str, ledger: str, audit: RowAudit) -> None:
        super().__init__(names, topic, ledger, audit)
        self._rows: dict[str, list[Row]] = {}
        self._unjudged: set[str] = set()
        self._read_before: dict[str, list[Row]] = {}
        self._keys_before: dict[str, set[int]] = {}
        self._audited = audit
        self._removed: dict[str, Mapping[int, Iterable[int]]] = {}

    def seen(self, name: str) -> Seen:
        """A table as it was looked at last."""
        return self._seen.get(name, Seen("", None, {}, Claim("", {}, {}, {}, {})))

    def look(self, where: Mapping[str, str]) -> None:
        self.read(where)
        for name in self._unjudged:
            self._audited.compare(name, self.seen(name).claim, self._rows[name])
        self._unjudged.clear()

    def read(self, where: Mapping[str, str]) -> None:
        changed = {n: at for n, at in where.items() if n not in self._seen or self._seen[n].metadata_location != at}
        metadata = {name: json.loads(content(at)) for name, at in changed.items()}
        live = {name: self._live_rows(found) for name, found in metadata.items()}
        news = {
            name: [(each, self._additions(each)) for each in self._since(found, self.seen(name).snapshot)]
            for name, found in metadata.items()
        }
        # Everything is read: from here on nothing fails.
        for name, found in metadata.items():
            for snapshot, additions in news[name]:
                self._hear(name, snapshot, additions)
            claim = self._claim(found)
            self._seen[name] = Seen(changed[name], found.get("current-snapshot-id"), {}, claim)
            self._rows[name] = live[name]
            self._unjudged.add(name)

    def complete(self, sent: int) -> bool:
        """Whether the tables have read so far; what they hold then is compared at every look."""
        known = sum(self._audited.reaches(p) for p in range(self._audited.partitions))
        claims = {name: self.seen(name).claim for name in self._names}
        behind = [name for name, claim in claims.items() if not self._audited.holds(name, claim.source, sent)]
        lacking = [name for name, claim in claims.items() if self._audited.lacks(name, claim.missing, sent)]
        if behind or lacking:
            print(f"behind: {behind}, lacking: {lacking}", file=sys.stderr, flush=True)
        return known >= sent and not behind and not lacking

    def rolled_back(self, name: str, location: str, before: int, after: int | None) -> None:
        """Somebody has moved the head of a table from one snapshot to another one, both in the metadata at this place;
        None: the table begins again.
        """
        metadata = json.loads(content(location))
        then, now = ({**metadata, "current-snapshot-id": at} for at in (before, after))
        if name in self._audited.appended_to:
            keys = {row.number for row in self._live_rows(then)} - {row.number for row in self._live_rows(now)}
            self._removed[name] = self._audited.offsets_of(name, keys)
        else:
            held, left = self._claim_of_snapshots(then), self._claim_of_snapshots(now)
            sizes = {p: self._audited.reaches(p) for p in range(self._audited.partitions)}
            self._removed[name] = {
                p: np.flatnonzero(held.held(p, size) & ~left.held(p, size)).tolist() for p, size in sizes.items()
            }
        self._audited.rolled_back(name)

    def forgotten(self, name: str) -> None:
        """What the last rollback of a table has removed is to stay away."""
        self._audited.forget(name, self._removed[name])

    def _claim_of_snapshots(self, metadata: dict[str, Any]) -> Claim:
        """By the newest snapshot that says something: properties do not go back."""
        return self._claim({**metadata, "properties": {}})

    def end(self, sent: int, cycles: int | None) -> None:
        self._audited.finish(sent, cycles, self._rows)

    def _live_rows(self, metadata: Mapping[str, Any]) -> list[Row]:
        head = {s["snapshot-id"]: s for s in metadata.get("snapshots", ())}.get(metadata.get("current-snapshot-id"))
        data: list[Live] = []
        dead: dict[str, set[int]] = defaultdict(set)
        dead_keys = DeadKeys(spec["spec-id"] for spec in metadata["partition-specs"] if not spec["fields"])
        for live in self._entries_of(head["manifest-list"]) if head else ():
            file = live.file
            if file["content"] == _KEYS:
                dead_keys.add(live, self._keys_of(file["file_path"]))
            elif file["content"] == _POSITIONS and file["file_format"] == "PUFFIN":
                places = vector(file["file_path"], file["content_offset"], file["content_size_in_bytes"])
                dead[file["referenced_data_file"]].update(places)
            elif file["content"] == _POSITIONS:
                for path, place in positions(file["file_path"]):
                    dead[path].add(place)
            else:
                data.append(live)
        return [
            row
            for live in data
            for at, row in enumerate(self._rows_of(live.file["file_path"]))
            if at not in dead[live.file["file_path"]] and not dead_keys.has(live, row.number)
        ]

    def _entries_of(self, manifest_list: str) -> Iterator[Live]:
        for manifest in avro(manifest_list):
            for entry in avro(manifest["manifest_path"]):
                if entry["status"] != _DELETED:
                    sequence = entry["sequence_number"]
                    own = manifest["sequence_number"] if sequence is None else sequence
                    yield Live(entry["data_file"], own, manifest["partition_spec_id"])

    def _keys_of(self, path: str) -> set[int]:
        if path not in self._keys_before:
            self._keys_before[path] = keys(path)
        return self._keys_before[path]

    def _rows_of(self, path: str) -> list[Row]:
        if path not in self._read_before:
            self._read_before[path] = rows(path)
        return self._read_before[path]
