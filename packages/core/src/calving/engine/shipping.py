"""What happens inside Spark's workers, however their rows travel: texts in, texts out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from calving.data import task
from calving.data.shuffle import Parcel
from calving.data.spec import TaskSpec

Sent = tuple[str, str, bytes]
"""Table, partition, rows; or, with ``_RESULTS`` for the table, the result of a task that passes through beside them."""

_RESULTS = ""


def run(texts: Sequence[str], number: int) -> str:
    """Task ``number``, whole."""
    return task.run_json(texts[number])


def send(texts: Sequence[str], number: int) -> Iterator[Sent]:
    """The rows of task ``number``, for others to write."""
    for sent in task.stream(TaskSpec.from_json(texts[number])):
        if isinstance(sent, Parcel):
            yield sent.table, sent.partition, sent.rows
        else:
            yield _RESULTS, str(number), sent.to_json().encode()


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
