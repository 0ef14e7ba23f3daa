"""What happens inside Spark's workers, however their rows travel: texts in, texts out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from calving.data import task
from calving.data.shuffle import Parcel
from calving.data.spec import TaskSpec

Sent = tuple[str, str, bytes]
"""Table, partition, rows; or, with ``_RESULTS`` for the table, the result of a task that passes through beside them."""

_RESULTS = ""


def run(text: str) -> str:
    """A task, whole."""
    return task.run_json(text)


def send(text: str) -> Iterator[Sent]:
    """The rows of a task, for others to write."""
    spec = TaskSpec.from_json(text)
    for sent in task.stream(spec):
        if isinstance(sent, Parcel):
            yield sent.table, sent.partition, sent.rows
        else:
            yield _RESULTS, str(spec.number), sent.to_json().encode()


def receive(text: str, found: Iterable[Sent]) -> list[str]:
    """Write what others have read, ordered by table and partition, and hand on their results. ``text``: any task."""
    results: list[str] = []

    def parcels() -> Iterator[Parcel]:
        for table, partition, content in found:
            if table == _RESULTS:
                results.append(content.decode())
            else:
                yield Parcel(table, partition, content)

    written = task.receive(TaskSpec.from_json(text), parcels())
    return [*results, written.to_json()]
