"""The sink of a campaign: real workers, of this version and of a former one, and records of every kind."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from functools import cached_property
from pathlib import Path

from pyiceberg.exceptions import CommitFailedException

from calving.iceberg.catalog import find_table
from campaign import changes, records
from campaign.changes import Workload
from harness.former import BEFORE_0_2_0, unpacked
from harness.raw import RawProducer
from harness.run import Run

_FORMATS = ("parquet", "orc", "avro")
NO_HISTORY = f"commit {BEFORE_0_2_0} of the history is not here: fetch the whole history"
"""Why there is no former version."""


def former_version(folder: Path) -> Path | None:
    """A tree below ``folder``, whose workers can run beside those of this version. None: ``NO_HISTORY``."""
    return unpacked(BEFORE_0_2_0, folder / "former", "harness", "campaign")


class Sink(Run):
    """With records among the others that no table takes. If they are ``poisoned``, also with records that have odd
    timestamps and headers, at which earlier versions stop.
    """

    workload: Workload = "append"
    poisoned = True

    @cached_property
    def _raw(self) -> RawProducer:
        return RawProducer(self.servers)

    def send(self, number: int, partition: int) -> None:
        now = time.time_ns() // 1_000_000
        stamped, headers = records.timestamp(number, now), records.headers(number)
        if not self.poisoned or (stamped == now and not headers):
            super().send(number, partition)
            return
        assert self._producer.flush(60) == 0  # records stay in order
        key, value = str(number).encode(), self.payload(number)
        self._raw.send(self.topic, value, key=key, partition=partition, timestamp=stamped, headers=headers)

    def stop(self) -> None:
        super().stop()
        if (raw := self.__dict__.pop("_raw", None)) is not None:
            raw.close()

    def payload(self, number: int) -> bytes | None:
        return changes.payload(number, self.tables, self.workload, poisoned=self.poisoned)

    def mix_formats(self) -> None:
        """Every table that there is gets its own from now on, those of one kind different ones."""
        for i, name in enumerate(self.tables):
            if (table := find_table(self.catalog, tuple(name.split(".")))) is not None:
                with contextlib.suppress(CommitFailedException), table.transaction() as change:
                    change.set_properties({"write.format.default": _FORMATS[(i + i // 6) % len(_FORMATS)]})

    def led_by(self) -> dict[str, int]:
        """The commits of all tables, by the version of the worker that made them."""
        tables = (find_table(self.catalog, tuple(name.split("."))) for name in self.tables)
        snapshots = (snapshot for table in tables if table is not None for snapshot in table.metadata.snapshots)
        summaries = [snapshot.summary.additional_properties for snapshot in snapshots if snapshot.summary]
        # Of the snapshots of one commit only the last tells it.
        return dict(Counter(summary["engine-version"] for summary in summaries if "engine-version" in summary))
