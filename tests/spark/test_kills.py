"""Planning, tasks, commits and reads are killed at random moments, and each batch is repeated as Spark repeats it.

Spark itself is left out, so that there may be many kills; ``make spark-kills`` is the same with it. A process for each
step dies by a signal at any point of it. A batch that was interrupted comes again with new files, and so does now and
then one that was done: a checkpoint may lose the last entry of its commit log.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from calving_spark.source import DefaultSource
from harness.forms import forms
from tests.spark.lake import SparkLake
from tests.spark.written import Batches, Row

KILLS = int(os.environ.get("CALVING_KILLS", "5"))
BATCH, KEYS, DELETED = 10, 7, 5
"""Rows of a batch; the number of keys, and of how many changes one deletes."""
LOST_EVERY = 6
"""One of so many batches comes again, although it was done."""
SCHEMA = StructType().add("id", "long").add("seq", "long").add("op", "string")
OPTIONS: dict[str, dict[str, str]] = {
    "append": {},
    "upserts": {"keys": "id", "sequence_by": "seq"},
    "changes": {"keys": "id", "sequence_by": "seq", "apply_as_deletes": "op = 'D'"},
    "cdc": {"id-columns": "id", "order-field": "seq", "cdc-field": "op"},
}


def row(kind: str, value: int) -> Row:
    key = value if kind == "append" else value % KEYS
    return {"id": key, "seq": value, "op": "D" if value % DELETED == 0 else "U"}


def expected(kind: str, batches: int) -> list[tuple[int, int]]:
    """The rows of a dict to which the same changes were applied."""
    told: dict[int, int] = {}
    for value in range(batches * BATCH):
        made = row(kind, value)
        told[made["id"]] = value
        if kind in ("changes", "cdc") and made["op"] == "D":
            del told[made["id"]]
    return sorted(told.items())


class Driver:
    """Does each step in a process of its own, of which some are killed."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder, self._kind, self._rng = folder, kind, random.Random(kind)
        self._usual: dict[str, float] = {}
        self.kills: Counter[str] = Counter()
        """By the step that was killed."""
        self._survives("begin", lambda: SparkLake.create(folder / "warehouse"))

    def batch(self, number: int) -> None:
        """Until Spark would believe that it is done."""
        while not (self._lives("write", lambda: self._write(number)) and self._lives("commit", self._commit(number))):
            pass

    def read(self) -> list[tuple[int, int]]:
        """The rows that a read finds, after reads that were killed."""
        while not self._lives("read", self._read):
            pass
        return [(key, value) for key, value in json.loads((self._folder / "rows").read_text())]

    @property
    def _lake(self) -> SparkLake:
        return SparkLake(self._folder / "warehouse")

    def _batches(self, number: int) -> Batches:
        options = {**OPTIONS[self._kind], "auto-create-enabled": "true"}
        return Batches(self._lake, SCHEMA, setattr, options, number)

    def _write(self, number: int) -> None:
        values = range(number * BATCH, (number + 1) * BATCH)
        parts: Sequence[list[Row]] = [
            [row(self._kind, value) for value in values if value % 2 == part] for part in (0, 1)
        ]
        messages = self._batches(number).write(*parts, commits=False)
        (self._folder / "messages").write_bytes(pickle.dumps(messages))

    def _commit(self, number: int) -> Callable[[], None]:
        return lambda: self._batches(number).again(pickle.loads((self._folder / "messages").read_bytes()))

    def _read(self) -> None:
        source = DefaultSource({**self._lake.to_read, "path": "lake.t", "columns": "id, seq"})
        reader, groups = pickle.loads(pickle.dumps((made := source.reader(source.schema()), made.partitions())))
        rows = [list(each.values()) for group in groups for part in reader.read(group) for each in part.to_pylist()]
        (self._folder / "rows").write_text(json.dumps(sorted(rows)))

    def _lives(self, step: str, act: Callable[[], Any]) -> bool:
        """Do a step, whose process is killed half of the time; whether it came to its end."""
        if step not in self._usual:
            started = time.monotonic()
            self._survives(step, act)
            self._usual[step] = time.monotonic() - started
            return True
        kills = self._rng.random() < 0.5
        lived = self._forked(act, self._rng.uniform(0, 1.1 * self._usual[step]) if kills else None)
        self.kills[step] += not lived
        return lived

    def _survives(self, step: str, act: Callable[[], Any]) -> None:
        assert self._forked(act, None), f"{step} was killed by somebody else"

    @staticmethod
    def _forked(act: Callable[[], Any], seconds: float | None) -> bool:
        pid = os.fork()
        if pid == 0:
            try:
                if seconds is not None:
                    signal.signal(signal.SIGALRM, signal.SIG_DFL)
                    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
                act()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a step failed that nobody had killed"
        return not os.WIFSIGNALED(status)


@pytest.mark.parametrize("kind", forms(OPTIONS, ["changes"]))
def test_no_row_is_lost_or_doubled_and_no_read_is_wrong_whatever_step_was_killed(tmp_path: Path, kind: str) -> None:
    driver, number = Driver(tmp_path, kind), 0
    while driver.kills.total() < KILLS:
        driver.batch(number)
        if number % LOST_EVERY == LOST_EVERY - 1:
            driver.batch(number)
        number += 1
        if number % 2:
            assert driver.read() == expected(kind, number), driver.kills
    assert driver.read() == expected(kind, number), driver.kills
    print(f"{kind}: {number} batches, killed: {dict(driver.kills)}")
