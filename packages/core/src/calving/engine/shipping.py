"""The functions that run in Spark's workers, for every kind of engine: text in, text out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from calving.engine.interface import Function
from calving.tasks import task
from calving.tasks.shuffle import RangeBounds, RangeSplitter, Sample, ShuffleBlock, range_bounds
from calving.tasks.spec import TaskSpec
from calving.version import __version__

Sent = tuple[str, str, bytes]
"""A table, a place in it, and rows. If the table is ``_RESULTS``: the result of a task, which is sent along with the
rows. If it is ``SAMPLES``: a sample, with its table, partition and size as JSON, and its keys.
"""

_RESULTS = ""
SAMPLES = "."


def call(function: Function, version: str, payload: str) -> str:
    """Call ``function`` with the payload. ``version``: the driver's version of calving."""
    _check(version)
    return function(payload)


def _check(version: str) -> None:
    """:raises RuntimeError: the driver has another version, which may give the same text another meaning."""
    if version != __version__:
        raise RuntimeError(f"calving {__version__} is installed for Spark's workers, calving {version} for the driver")


def send(text: str, version: str = __version__) -> Iterator[Sent]:
    """Run a task. Yields the rows that other tasks write, and its result."""
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
    """Whether rows are divided by ranges. Then ``send`` sends samples, too."""
    return any(table.distribution == "range" for table in TaskSpec.from_json(text).tables.values())


def plan(text: str, samples: Iterable[Sent], slots: int) -> RangeBounds:
    """The ranges by which to divide the rows for ``slots`` receivers. ``text``: any task."""
    taken = []
    for _, which, keys in samples:
        table, partition, size = json.loads(which)
        taken.append(Sample(table, partition, size, keys))
    return range_bounds(TaskSpec.from_json(text), taken, slots)


def cut(text: str, how: RangeBounds, found: Iterable[Sent]) -> Iterator[Sent]:
    """The sent blocks, divided by range and with their receivers, without samples. ``text``: any task."""
    splitter = RangeSplitter(TaskSpec.from_json(text), how)
    for table, place, content in found:
        if table == _RESULTS:
            yield table, place, content
        elif table != SAMPLES:
            for block in splitter.split(ShuffleBlock(table, place, content)):
                yield block.table, block.partition, block.rows


def receive(text: str, found: Iterable[Sent]) -> list[str]:
    """Write the rows that other tasks have sent, ordered by table and place, and pass on the results of these tasks.
    ``text``: any task.
    """
    results: list[str] = []

    def blocks() -> Iterator[ShuffleBlock]:
        for table, partition, content in found:
            if table == _RESULTS:
                results.append(content.decode())
            else:
                yield ShuffleBlock(table, partition, content)

    written = task.receive(TaskSpec.from_json(text), blocks())
    return [*results, written.to_json()]
