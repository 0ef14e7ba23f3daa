"""How a batch is cut into tasks."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from calving.model.files import DataFile, FileContent
from calving.model.offsets import Range, Span, TopicPartition
from calving.runtime.batch import in_steps
from calving.runtime.cutting import cut, cut_whole, is_whole


def records(task: Sequence[Range]) -> int:
    return sum(each.end - each.start for each in task)


def backlog(*sizes: int) -> dict[TopicPartition, Span]:
    return {TopicPartition("t", p): Span(10, 10 + size) for p, size in enumerate(sizes)}


def test_a_large_partition_is_split_over_all_slots() -> None:
    tasks = cut(backlog(2_000_000), 4)
    assert [len(task) for task in tasks] == [1, 1, 1, 1]
    assert max(map(records, tasks)) - min(map(records, tasks)) < 1000


def test_a_small_backlog_of_few_partitions_is_one_task() -> None:
    assert len(cut(backlog(*[100] * 10), 4)) == 1


def test_a_small_backlog_of_many_partitions_is_spread_over_the_slots() -> None:
    tasks = cut(backlog(*[1] * 1000), 4)
    assert [len(task) for task in tasks] == [250, 250, 250, 250]


def test_tasks_of_a_mixed_backlog_have_about_equally_much_to_do() -> None:
    tasks = cut(backlog(100_000, *[1] * 500), 2)
    assert len(tasks) == 2
    assert max(map(len, tasks)) > 400


@given(st.lists(st.integers(0, 300_000), max_size=60), st.integers(1, 16))
def test_every_offset_is_in_one_range_and_no_task_is_empty_or_too_many(sizes: list[int], slots: int) -> None:
    spans = backlog(*sizes)
    tasks = cut(spans, slots)
    assert len(tasks) <= slots
    assert all(tasks) or not any(sizes)
    for tp, span in spans.items():
        at = span.start
        for each in sorted(
            (each for task in tasks for each in task if each.partition == tp.partition), key=lambda r: r.start
        ):
            assert at == each.start < each.end
            at = each.end
        assert at == span.end


def test_partitions_of_about_equal_size_need_not_be_split() -> None:
    tasks = cut_whole(backlog(500_000, 480_000, 510_000, 490_000), 2)
    assert tasks is not None
    assert [[each.partition for each in task] for task in tasks] == [[0, 1], [2, 3]]
    assert is_whole(tasks)
    assert not is_whole(cut(backlog(500_000, 480_000, 510_000, 490_000), 2))


def test_a_task_that_would_be_much_larger_than_the_others_is_split() -> None:
    assert cut_whole(backlog(1_000_000), 2) is None
    assert cut_whole(backlog(1_000_000, 100_000, 100_000), 2) is None


@given(st.lists(st.integers(0, 300_000), max_size=60), st.integers(1, 16))
def test_tasks_of_whole_partitions_have_every_offset_once_in_the_order_of_partitions(
    sizes: list[int], slots: int
) -> None:
    spans = backlog(*sizes)
    tasks = cut_whole(spans, slots)
    if tasks is not None:
        assert len(tasks) <= slots
        assert all(tasks)
        found = [each for task in tasks for each in task]
        assert found == [Range(tp.topic, tp.partition, s.start, s.end) for tp, s in spans.items() if s.start < s.end]
        assert max(map(records, tasks), default=0) <= 1.5 * sum(sizes) / max(1, len(tasks)) + 200 * len(sizes)


def test_a_key_file_begins_a_step_for_it_deletes_from_all_files_before_it() -> None:
    files = {
        name: DataFile(name, "PARQUET", 1, 1, FileContent.EQUALITY_DELETES if name in "KL" else FileContent.DATA)
        for name in "abcKL"
    }

    def steps(names: str) -> list[tuple[str, str]]:
        return [
            ("".join(f.file_path for f in step.delete_files), "".join(f.file_path for f in step.data_files))
            for step in in_steps([files[name] for name in names])
        ]

    assert steps("ab") == [("", "ab")]
    assert steps("KabLc") == [("K", "ab"), ("L", "c")]
    assert steps("aKLb") == [("", "a"), ("KL", "b")]
    assert steps("aK") == [("", "a"), ("K", "")]
    assert steps("") == []
