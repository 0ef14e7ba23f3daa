"""Which files are rewritten together, and why."""

from __future__ import annotations

import pytest

from calving.maintenance.plan import FileState, Plan, Triggers, plan

MIB = 1024 * 1024
HOUR = 3_600_000
TRIGGERS = Triggers(target_bytes=512 * MIB)


def file(number: int, size: int = MIB, partition: int = 0, **more: object) -> FileState:
    given = {"records": 100, "deleted": 0, "sequence": number, "added_ms": HOUR} | more
    return FileState(f"f{number:03d}", (0, (partition,)), size, **given)  # type: ignore[arg-type]


def planned(*files: FileState, triggers: Triggers = TRIGGERS, now_ms: int = HOUR) -> Plan:
    return plan(files, triggers, now_ms)


def paths(found: Plan) -> list[list[str]]:
    return [[each.path for each in group.files] for group in found.groups]


def test_twelve_small_files_of_a_partition_are_due_and_eleven_are_not() -> None:
    files = [file(i) for i in range(12)]
    (group,) = planned(*files).groups
    assert (group.files, group.reason) == (tuple(files), "12 files below 64 MiB")
    assert planned(*files[:11]).groups == ()


def test_two_small_files_are_due_once_they_are_an_hour_old() -> None:
    assert paths(planned(file(1), file(2), now_ms=2 * HOUR)) == [["f001", "f002"]]
    assert paths(planned(file(1), file(2), now_ms=2 * HOUR - 1)) == []
    assert paths(planned(file(1), file(2, added_ms=HOUR + 1), now_ms=2 * HOUR)) == []


def test_a_file_of_which_nobody_knows_when_it_came_is_old() -> None:
    assert paths(planned(file(1, added_ms=None), file(2, added_ms=None), now_ms=0)) == [["f001", "f002"]]


def test_one_small_file_is_never_due() -> None:
    assert paths(planned(file(1), now_ms=100 * HOUR)) == []


def test_partitions_are_planned_each_for_itself() -> None:
    files = [file(i, partition=i % 2) for i in range(23)]
    (group,) = planned(*files).groups
    assert group.partition == (0, (0,)) and len(group.files) == 12


def test_files_of_another_spec_are_of_another_partition() -> None:
    files = [file(i) for i in range(6)]
    others = [FileState(f"o{i}", (1, (0,)), MIB, 100, 0, i, HOUR) for i in range(6)]
    assert planned(*files, *others).groups == ()


def test_five_medium_files_are_due_and_take_the_small_ones_along() -> None:
    medium = [file(i, 70 * MIB) for i in range(5)]
    (group,) = planned(*medium, file(9)).groups
    assert (len(group.files), group.reason) == (6, "6 files below 384 MiB")
    assert planned(*medium[:4], file(9)).groups == ()


def test_large_files_stay() -> None:
    assert planned(*(file(i, 384 * MIB) for i in range(20)), now_ms=9 * HOUR).groups == ()


def test_small_files_alone_do_not_take_medium_ones_along() -> None:
    (group,) = planned(*(file(i) for i in range(12)), file(20, 100 * MIB)).groups
    assert len(group.files) == 12


def test_a_file_with_many_deleted_rows_is_due_alone() -> None:
    (group,) = planned(file(1, 500 * MIB, deleted=30), file(2, 500 * MIB, deleted=29)).groups
    assert (group.files[0].path, group.reason) == ("f001", "1 file with 30% or more of the rows deleted")


def test_a_file_with_many_deleted_rows_joins_the_small_files() -> None:
    (group,) = planned(*(file(i) for i in range(12)), file(20, 100 * MIB, deleted=50)).groups
    assert len(group.files) == 13
    assert group.reason == "12 files below 64 MiB, 1 file with 30% or more of the rows deleted"


def test_rows_stay_in_the_order_in_which_they_came() -> None:
    found = planned(file(3), file(1, sequence=9), file(2), triggers=Triggers(small_files=2))
    assert paths(found) == [["f002", "f003", "f001"]]


def test_a_group_has_at_most_so_many_bytes() -> None:
    found = planned(*(file(i, 10 * MIB) for i in range(12)), triggers=Triggers(group_bytes=50 * MIB))
    assert [len(group.files) for group in found.groups] == [5, 5, 2]


def test_what_is_left_alone_in_a_group_stays() -> None:
    found = planned(*(file(i, 10 * MIB) for i in range(13)), triggers=Triggers(group_bytes=40 * MIB))
    assert [len(group.files) for group in found.groups] == [4, 4, 4]


def test_a_file_larger_than_a_group_is_rewritten_alone_if_its_rows_are_deleted() -> None:
    found = planned(file(1, 90 * MIB, deleted=50), file(2, 90 * MIB), triggers=Triggers(group_bytes=MIB))
    assert paths(found) == [["f001"]]


def test_a_group_has_at_most_fifty_million_rows() -> None:
    found = planned(*(file(i, records=10_000_000) for i in range(12)))
    assert [len(group.files) for group in found.groups] == [5, 5, 2]


def test_files_with_equality_deletes_wait() -> None:
    found = planned(*(file(i, waits=i < 2) for i in range(13)))
    assert (found.groups, found.waiting) == ((), 2)


@pytest.mark.parametrize("target", [8, 800])
def test_what_is_small_depends_on_the_target_size(target: int) -> None:
    found = planned(*(file(i, 2 * MIB) for i in range(12)), triggers=Triggers(target_bytes=target * MIB))
    assert len(found.groups) == 1
    assert found.groups[0].reason == ("12 files below 6 MiB" if target == 8 else "12 files below 100 MiB")


def test_the_partition_with_most_files_comes_first() -> None:
    found = planned(*(file(i) for i in range(12)), *(file(20 + i, partition=1) for i in range(15)))
    assert [group.partition[1] for group in found.groups] == [(1,), (0,)]


def landed(number: int, **more: object) -> FileState:
    return file(number, has_landed=True, **more)  # type: ignore[arg-type]


def test_one_file_without_a_partition_is_due_where_files_land_so() -> None:
    (group,) = planned(landed(1, size=900 * MIB), triggers=Triggers(landed_files=1)).groups
    assert (len(group.files), group.reason) == (1, "1 file without a partition")


def test_files_without_a_partition_wait_for_others_at_most_a_minute() -> None:
    triggers = Triggers(landed_files=3)
    assert paths(planned(landed(1), landed(2), triggers=triggers, now_ms=HOUR + 59_999)) == []
    assert paths(planned(landed(1), landed(2), landed(3), triggers=triggers)) == [["f001", "f002", "f003"]]
    assert paths(planned(landed(1), landed(2), triggers=triggers, now_ms=HOUR + 60_000)) == [["f001", "f002"]]


def test_files_of_a_former_spec_without_partitions_are_due_as_others_are() -> None:
    assert planned(landed(1), landed(2, size=900 * MIB), now_ms=HOUR + 60_000).groups == ()
    (group,) = planned(*(landed(i) for i in range(12))).groups
    assert group.reason == "12 files below 64 MiB"


def test_a_file_without_a_partition_is_rewritten_alone_if_it_fills_a_group() -> None:
    files = [landed(i, size=10 * MIB) for i in range(3)]
    found = planned(*files, triggers=Triggers(landed_files=1, group_bytes=10 * MIB))
    assert [len(group.files) for group in found.groups] == [1, 1, 1]
