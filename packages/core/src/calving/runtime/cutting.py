"""How the offsets of a batch are cut into tasks."""

from __future__ import annotations

from collections.abc import Iterable

from calving.model.offsets import Range, Spans

_WORTH_A_TASK = 50_000
"""A task with fewer records than this costs more than it saves, so the batch is not split further."""
_RANGE_RECORDS = 200
"""The fixed cost of a range, in records."""
_UNEVEN = 1.5
"""A task may be this many times larger than its share. Only beyond that is a partition split, which needs a shuffle."""


def cut(spans: Spans, slots: int) -> list[list[Range]]:
    """Ranges for at most ``slots`` tasks of about equal size. Small backlogs of many partitions are spread over the
    tasks, too. A partition may be split over tasks.
    """
    total = sum(span.end - span.start + _RANGE_RECORDS for span in spans.values())
    count = _count(spans, slots)
    # At the end of a task, a range is split and pays its fixed cost again, unless the room left is smaller than that
    # cost.
    share = -(-(total + (count - 1) * _RANGE_RECORDS) // count)
    tasks: list[list[Range]] = [[]]
    room = share
    for tp, span in sorted(spans.items()):
        start = span.start
        while start < span.end:
            if room <= _RANGE_RECORDS:
                tasks.append([])
                room = share
            end = min(span.end, start + room - _RANGE_RECORDS)
            tasks[-1].append(Range(tp.topic, tp.partition, start, end))
            room -= end - start + _RANGE_RECORDS
            start = end
    return tasks


def cut_whole(spans: Spans, slots: int) -> list[list[Range]] | None:
    """Like ``cut``, but without splitting a partition; None if a task would be much larger than the others."""
    spans = {tp: span for tp, span in sorted(spans.items()) if span.start < span.end}
    sizes = {tp: span.end - span.start + _RANGE_RECORDS for tp, span in spans.items()}
    total, count = sum(sizes.values()), _count(spans, slots)
    tasks: list[list[Range]] = [[] for _ in range(count)]
    loads = [0] * count
    before = 0
    for tp, size in sizes.items():
        task = (2 * before + size) * count // (2 * total)  # the task into which its middle falls
        tasks[task].append(Range(tp.topic, tp.partition, spans[tp].start, spans[tp].end))
        loads[task] += size
        before += size
    return [task for task in tasks if task] if max(loads) * count <= _UNEVEN * total else None


def is_whole(tasks: Iterable[Iterable[Range]]) -> bool:
    """Whether no partition is split over these tasks."""
    partitions = [(each.topic, each.partition) for task in tasks for each in task]
    return len(partitions) == len(set(partitions))


def _count(spans: Spans, slots: int) -> int:
    total = sum(span.end - span.start + _RANGE_RECORDS for span in spans.values())
    return max(1, min(slots, -(-total // _WORTH_A_TASK)))
