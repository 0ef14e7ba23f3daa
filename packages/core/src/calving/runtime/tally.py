"""The accounts of a batch: the totals of its tasks, and the check that every record is accounted for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

from calving.errors import AccountingError
from calving.model.dead_letters import DeadLetter
from calving.model.files import DataFile, FileContent
from calving.model.offsets import Spans, TopicPartition
from calving.model.text import counted
from calving.status.histogram import BYTES, Histogram
from calving.status.values import Batches, RecordCounts
from calving.tasks.spec import RECEIVED, TaskResult

_RECENT = 10
N = TypeVar("N", int, float)
_CONTENTS = {
    FileContent.DATA: "data",
    FileContent.POSITION_DELETES: "position-deletes",
    FileContent.EQUALITY_DELETES: "equality-deletes",
}


@dataclass(slots=True)
class Tally:
    """The totals of a batch's tasks."""

    dead_letter_table: str | None = None
    """Rows of this table do not count as written records."""
    covered: Counter[TopicPartition] = field(default_factory=Counter)
    """Offsets."""
    latest_us: dict[TopicPartition, int] = field(default_factory=dict)
    earliest_us: dict[TopicPartition, int] = field(default_factory=dict)
    files: dict[str, list[DataFile]] = field(default_factory=dict)
    """By table; key files delete from all files before them."""
    filtered: Counter[str] = field(default_factory=Counter)
    letters: list[DeadLetter] = field(default_factory=list)
    topics: Counter[str] = field(default_factory=Counter)
    """Records read, by topic."""
    refused: Counter[str] = field(default_factory=Counter)
    """Bad records, by stage."""
    unnamed: Counter[str] = field(default_factory=Counter)
    """Records that name no operation, by what the log says of them."""
    warnings: dict[str, None] = field(default_factory=dict)
    """What else the log has to say, each once."""
    stages: dict[str, float] = field(default_factory=dict)
    read: int = 0
    written: int = 0
    rejected: int = 0
    size: int = 0
    superseded: int = 0
    deleted: int = 0
    shuffled: int = 0
    first_rejected: str = ""

    @property
    def account(self) -> str:
        """What became of the records, as a sum; empty if each was written once or more. A record that went to several
        tables counts as read once, and as copied for each table but the first.
        """
        if not (self.filtered or self.rejected or self._replaced):
            return ""
        taken = f"read {self.read}" + (f" + copied {self._copied}" if self._copied else "")
        causes = {"written": sum(self._rows.values()), "dead letters": self.rejected}
        causes |= {**self._replaced, **self.filtered}
        return f"{taken} = {', '.join(f'{cause} {count}' for cause, count in causes.items())}"

    @property
    def _rows(self) -> dict[str, int]:
        """Written rows, by table."""
        return {
            table: sum(file.rows for file in files)
            for table, files in self.files.items()
            if table != self.dead_letter_table
        }

    @property
    def _copied(self) -> int:
        """Copies of records that went to several tables, not counting the first table."""
        return sum(self._rows.values()) + self._replaced.total() - self.written

    @property
    def _replaced(self) -> Counter[str]:
        """Changes of mutation tables that left no row."""
        return Counter({"superseded": self.superseded, "deleted": self.deleted}) + Counter()

    def add(self, result: TaskResult) -> None:
        self.letters += result.dead_letters
        self.first_rejected = self.first_rejected or result.first_bad or ""
        self.shuffled += result.shuffled
        self.superseded, self.deleted = self.superseded + result.superseded, self.deleted + result.deleted
        self.refused.update(result.bad_by_stage)
        self.unnamed.update(result.unnamed)
        self.warnings |= dict.fromkeys(result.warnings)
        self.stages = _sum(self.stages, result.stages)
        for r in result.ranges:
            tp = TopicPartition(r.range.topic, r.range.partition)
            self.covered[tp] += r.range.end - r.range.start
            self.read, self.written, self.size = self.read + r.read, self.written + r.written, self.size + r.bytes
            self.topics[tp.topic] += r.read
            self.rejected += r.bad
            self.filtered.update(r.filtered)
            if r.timestamp_ms is not None:
                self.latest_us[tp] = max(self.latest_us.get(tp, 0), r.timestamp_ms * 1000)
            if r.earliest_ms is not None:
                earliest_us = r.earliest_ms * 1000
                self.earliest_us[tp] = min(self.earliest_us.get(tp, earliest_us), earliest_us)
        for table, files in result.files.items():
            if files:
                known = self.files.setdefault(table, [])
                known += files
                if result.number == RECEIVED:  # no other receiver has these keys, so the files form one step
                    known.sort(key=lambda file: file.content is FileContent.DATA)

    def check(self, spans: Spans) -> None:
        """Check the totals against the batch's ``spans``.

        :raises AccountingError: an offset, a row or a record is not accounted for.
        """
        wanted = {tp: span.end - span.start for tp, span in spans.items()}
        if self.shuffled:
            raise AccountingError(
                f"the batch does not balance: the shuffle lost {counted(self.shuffled, 'row')}; nothing is published"
            )
        if self.covered != wanted or self.read != self.written + self.rejected + sum(self.filtered.values()):
            raise AccountingError(
                f"the batch does not balance: {dict(self.covered)} of {wanted} offsets covered,"
                f" {counted(self.read, 'record')} read, {self.written} written, {self.rejected} rejected,"
                f" {dict(self.filtered)} filtered; nothing is published"
            )

    def added_to(self, before: Batches, seconds: float) -> Batches:
        """The totals with this batch, which took so many ``seconds``."""
        records = before.records
        sizes: dict[str, list[float]] = {}
        for file in chain.from_iterable(self.files.values()):
            sizes.setdefault(_CONTENTS[file.content], []).append(file.file_size_in_bytes)
        return Batches(
            count=before.count + 1,
            files=before.files + sum(map(len, self.files.values())),
            records=RecordCounts(
                read=_sum(records.read, self.topics),
                written=_sum(records.written, self._rows),
                dead_lettered=_sum(records.dead_lettered, self.refused),
                filtered=_sum(records.filtered, self.filtered),
                superseded=records.superseded + self.superseded,
                deleted=records.deleted + self.deleted,
                copied=records.copied + self._copied,
            ),
            seconds=before.seconds.observe([seconds]),
            sizes=before.sizes.observe([self.read]),
            file_bytes={
                content: before.file_bytes.get(content, Histogram.of(BYTES)).observe(sizes.get(content, ()))
                for content in before.file_bytes.keys() | sizes.keys()
            },
            stages=_sum(before.stages, self.stages),
            recent=((self.read, self.rejected), *before.recent)[:_RECENT],
            dead_letters=((self.first_rejected, *before.dead_letters) if self.first_rejected else before.dead_letters)[
                :_RECENT
            ],
        )


def _sum(a: Mapping[str, N], b: Mapping[str, N]) -> dict[str, N]:
    return {**a, **{key: a[key] + more if key in a else more for key, more in b.items()}}
