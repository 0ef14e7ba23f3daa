"""The functions that run in Spark's workers, for every kind of engine: text in, text out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from calving.engine.interface import Function
from calving.tasks import task
from calving.tasks.ranges import Cutter, RangeBounds, cuts
from calving.tasks.shuffle import Sample, ShuffleBlock
from calving.tasks.spec import TaskSpec
from calving.version import __version__

Sent = tuple[str, str, bytes]
"""Table, place in it, rows. With ``_RESULTS`` for the table, the result of a task, which passes through beside them;
with ``SAMPLES``, a sample: its table, partition and size as JSON, and its keys.
"""

_RESULTS = ""
SAMPLES = "."


def call(function: Function, version: str, payload: str) -> str:
    """``version``: calving's, of the driver."""
    _check(version)
    return function(payload)


def _check(version: str) -> None:
    """:raises RuntimeError: another version would read another meaning out of the same text."""
    if version != __version__:
        raise RuntimeError(f"calving {__version__} is installed for Spark's workers, calving {version} for the driver")


def send(text: str, version: str = __version__) -> Iterator[Sent]:
    """The rows of a task, for others to write."""
    _check(version)
    spec = TaskSpec.from_json(text)
    for sent in task.stream(spec):
        if isinstance(sent, ShuffleBlock):
            yield sent.table, sent.partition, sent.rows
        elif isinstance(sent, Sample):
            yield SAMPLES, json.dumps([sent.table, sent.partition, sent.size]), sent.keys
        else:
            yield _RESULTS, str(spec.number), sent.to_json().encode()


def has_ranges(text: str) -> bool:
    """Whether rows are to be cut by ranges: ``send`` sends samples then."""
    return any(table.distribution == "range" for table in TaskSpec.from_json(text).tables.values())


def plan(text: str, samples: Iterable[Sent], slots: int) -> RangeBounds:
    """How to cut what was sent, for so many receivers. ``text``: any task."""
    found = []
    for _, which, keys in samples:
        table, partition, size = json.loads(which)
        found.append(Sample(table, partition, size, keys))
    return cuts(TaskSpec.from_json(text), found, slots)


def cut(text: str, how: RangeBounds, found: Iterable[Sent]) -> Iterator[Sent]:
    """The sent blocks by receiver, without samples. ``text``: any task."""
    cutter = Cutter(TaskSpec.from_json(text), how)
    for table, place, content in found:
        if table == _RESULTS:
            yield table, place, content
        elif table != SAMPLES:
            for block in cutter.cut(ShuffleBlock(table, place, content)):
                yield block.table, block.partition, block.rows


def receive(text: str, found: Iterable[Sent]) -> list[str]:
    """Write what others have read, ordered by table and place, and hand on their results. ``text``: any task."""
    results: list[str] = []

    def blocks() -> Iterator[ShuffleBlock]:
        for table, partition, content in found:
            if table == _RESULTS:
                results.append(content.decode())
            else:
                yield ShuffleBlock(table, partition, content)

    written = task.receive(TaskSpec.from_json(text), blocks())
    return [*results, written.to_json()]
