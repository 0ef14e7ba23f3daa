"""The checker's view of tables: metadata, manifests and data files of one state, read without a library of tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from campaign import records
from campaign.audit import Audit, Claim
from campaign.files import avro, content, rows
from campaign.latency import Commit

_ADDED, _DELETED = 1, 2
"""Of a manifest entry's status; others exist."""

Listed = tuple[str, int]
"""A data file, and its occurrence number among the listed ones: its rows count as often as it is listed."""


@dataclass
class Seen:
    """A table as it was looked at last."""

    metadata_location: str
    snapshot: int | None
    files: dict[Listed, list[int]]
    claim: Claim


_NEVER = Seen("", None, {}, Claim("", {}, {}, {}, {}))


class Tables:
    """The tables of a catalog in SQLite."""

    def __init__(self, names: list[str], topic: str, ledger: str, audit: Audit) -> None:
        self._names, self._topic, self._ledger, self._audit = names, topic, ledger, audit
        self._owner = ledger.removeprefix("kafka.connect.offsets.")
        self._manifests: dict[str, list[tuple[int, int | None, str]]] = {}
        self._seen: dict[str, Seen] = {}
        self._incarnations = [""]
        """The topic's ids, oldest first; the first is any that is not named."""
        self.commits: list[Commit] = []

    def look(self, where: Mapping[str, str]) -> None:
        """Read the tables, and judge them. For errors see ``read``."""
        self.read(where)
        self._audit.look({name: seen.claim for name, seen in self._seen.items() if name in self._names})

    def read(self, where: Mapping[str, str]) -> None:
        """:raises OSError: it is too late to look at that moment, files are gone; or they cannot be read now."""
        changed = {n: at for n, at in where.items() if n not in self._seen or self._seen[n].metadata_location != at}
        metadata = {name: json.loads(content(at)) for name, at in changed.items()}
        lives = {name: list(self._live(found)) for name, found in metadata.items()}
        known = {name: self._seen.get(name, _NEVER) for name in changed}
        contents = {
            listed: rows(listed[0])
            for name, live in lives.items()
            for listed in live
            if listed not in known[name].files
        }
        news = {
            name: [(snapshot, self._additions(snapshot)) for snapshot in self._since(found, known[name].snapshot)]
            for name, found in metadata.items()
        }
        # Everything is read: from here on nothing fails.
        for name, found in metadata.items():
            for snapshot, additions in news[name]:
                self._hear(name, snapshot, additions)
            files = dict(known[name].files)
            live = {
                listed: files.pop(listed) if listed in files else self._audit.appeared(name, contents[listed])
                for listed in lives[name]
            }
            for numbers in files.values():
                self._audit.vanished(numbers)
            self._seen[name] = Seen(changed[name], found.get("current-snapshot-id"), live, self._claim(found))

    def complete(self, sent: int) -> bool:
        return self._audit.is_complete(records.with_rows(sent))

    def end(self, sent: int, cycles: int | None) -> None:
        self._audit.end(sent, cycles)

    def dropped(self, name: str, location: str) -> None:
        """The table with its metadata at ``location`` is gone, and all records in it."""
        for numbers in self._seen.pop(name, _NEVER).files.values():
            self._audit.vanished(numbers)
        self._audit.began_again(name)
        self.released([path for path, _ in self._live(json.loads(content(location)))])

    def released(self, files: Iterable[str]) -> None:
        """No table will hold these files."""
        for path in files:
            self._audit.dropped(row.number for row in rows(path))

    def recreated(self, topic_id: str) -> None:
        self._incarnations.append(topic_id)

    def _since(self, metadata: dict[str, Any], known: int | None) -> list[dict[str, Any]]:
        """The ancestry of the head down to what is known, oldest first."""
        by_id = {s["snapshot-id"]: s for s in metadata.get("snapshots", ())}
        found, at = [], metadata.get("current-snapshot-id")
        while at in by_id and at != known:
            found.append(by_id[at])
            at = by_id[at].get("parent-snapshot-id")
        return found[::-1]

    def _additions(self, snapshot: dict[str, Any]) -> list[str]:
        own = snapshot["snapshot-id"]
        manifests = [m["manifest_path"] for m in avro(snapshot["manifest-list"]) if m["added_snapshot_id"] == own]
        entries = [entry for path in manifests for entry in self._entries(path)]
        return [path for status, by, path in entries if status == _ADDED and by in (None, own)]

    def _hear(self, name: str, snapshot: dict[str, Any], additions: list[str]) -> None:
        for path in additions:
            self._audit.added(name, path, snapshot["snapshot-id"])
        summary = snapshot["summary"]
        if self._ledger in summary:
            self._audit.committed(name, replace(self._claim_of(summary, str), through_ms=_through(summary)))
            if (
                cycle := summary.get("kafka.connect.commit-id")
            ) is not None:  # `calving maintain` copies the ledger only
                self.commits.append(Commit(snapshot["timestamp-ms"] / 1000, cycle, _through(summary), name))

    def _live(self, metadata: dict[str, Any]) -> Iterator[Listed]:
        head = {s["snapshot-id"]: s for s in metadata.get("snapshots", ())}.get(metadata.get("current-snapshot-id"))
        times: Counter[str] = Counter()
        for manifest in avro(head["manifest-list"]) if head else ():
            for status, _, path in self._entries(manifest["manifest_path"]):
                if status != _DELETED:
                    times[path] += 1
                    yield path, times[path]

    def _entries(self, path: str) -> list[tuple[int, int | None, str]]:
        if path not in self._manifests:
            self._manifests[path] = [(e["status"], e["snapshot_id"], e["data_file"]["file_path"]) for e in avro(path)]
        return self._manifests[path]

    def _claim(self, metadata: dict[str, Any]) -> Claim:
        """By the newest snapshot that says something; else by the table's properties."""
        ancestry = [snapshot["summary"] for snapshot in reversed(self._since(metadata, None))]
        through = next((told for told in map(_through, ancestry) if told is not None), None)
        for summary in ancestry:
            if "calving.source-offsets" in summary:
                return replace(self._claim_of(summary, str), through_ms=through)
        return self._claim_of(
            metadata["properties"], lambda name: name if name == self._ledger else f"{name}.{self._owner}"
        )

    def _claim_of(self, entries: Mapping[str, str], name: Any) -> Claim:
        def by_partition(key: str) -> dict[int, tuple[int, Any]]:
            """Of the newest incarnation that is named: where it begins, and what is said. All before it is held."""
            found: dict[int, tuple[int, Any]] = {}
            said = json.loads(entries.get(name(key), "{}"))
            for topic in sorted(said, key=self._incarnation):
                assert topic.partition("@")[0] == self._topic, f"a ledger speaks of {topic}"
                partitions = said[topic]  # a list is of the partitions from 0 on
                each = enumerate(partitions) if isinstance(partitions, list) else partitions.items()
                for p, what in each:
                    found[int(p)] = self._audit.begins(int(p))[self._incarnation(topic)], what
            return found

        source = {p: begin + end for p, (begin, end) in by_partition("calving.source-offsets").items()}
        settled = {p: begin + end for p, (begin, end) in by_partition("calving.settled-offsets").items()}
        missing = by_partition("calving.missing-offsets")
        return Claim(
            entries.get(name("calving.control-log-id"), ""),
            json.loads(entries.get(name(self._ledger), "{}")),
            source,
            source | settled,
            {p: [[begin + start, begin + end] for start, end in spans] for p, (begin, spans) in missing.items()},
        )

    def _incarnation(self, topic: str) -> int:
        """Which of the topic's incarnations a ledger's ``<topic>@<id>`` is."""
        topic_id = topic.partition("@")[2]
        return self._incarnations.index(topic_id) if topic_id in self._incarnations else 0


def _through(summary: Mapping[str, str]) -> int | None:
    told = summary.get("kafka.connect.valid-through-ts")
    return None if told is None else round(datetime.fromisoformat(told).timestamp() * 1000)
