"""Which manifests are merged."""

from __future__ import annotations

from dataclasses import replace

from calving.maintenance.manifest_plan import ManifestState, manifest_groups

TARGET = 1000


def manifest(number: int, **more: object) -> ManifestState:
    return replace(ManifestState(f"m{number:04}", "data", 0, 100, 10, (number % 3,), number), **more)  # type: ignore[arg-type]


def names(*manifests: ManifestState, least: int = 3) -> list[list[str]]:
    return [[each.path for each in group.manifests] for group in manifest_groups(manifests, least, TARGET)]


def test_fewer_small_manifests_than_the_trigger_stay() -> None:
    assert names(manifest(0), manifest(1)) == []


def test_so_many_small_manifests_are_merged_those_of_neighbouring_partitions_side_by_side() -> None:
    assert names(*map(manifest, range(6))) == [["m0000", "m0003", "m0001", "m0004", "m0002", "m0005"]]


def test_a_manifest_near_the_target_size_stays_and_does_not_count() -> None:
    large = [manifest(number, size=750) for number in range(9)]
    assert names(*large) == []
    assert names(*large, *map(manifest, range(10, 13))) == [["m0012", "m0010", "m0011"]]


def test_manifests_of_each_spec_are_merged_by_themselves() -> None:
    assert names(*map(manifest, range(3)), *(manifest(n, spec_id=1) for n in (6, 9))) == [
        ["m0000", "m0001", "m0002"],
        ["m0006", "m0009"],
    ]


def test_a_single_small_manifest_of_a_spec_stays() -> None:
    assert names(*map(manifest, range(3)), manifest(6, spec_id=1)) == [["m0000", "m0001", "m0002"]]


def test_twenty_manifests_of_delete_files_are_enough_and_do_not_mix_with_those_of_data_files() -> None:
    deletes = [manifest(number, content="deletes", lower=()) for number in range(20)]
    assert names(*deletes[:19], *map(manifest, range(20, 80)), least=100) == []
    assert names(*deletes, *map(manifest, range(20, 80)), least=100) == [[each.path for each in deletes]]


def test_a_partition_without_a_value_comes_first() -> None:
    assert names(manifest(0), manifest(1), manifest(2, lower=(None,))) == [["m0002", "m0000", "m0001"]]


def test_a_group_has_a_bounded_number_of_files() -> None:
    many = [manifest(number, files=20_000, lower=()) for number in range(6)]
    assert names(*many) == [["m0000", "m0001"], ["m0002", "m0003"], ["m0004", "m0005"]]


def test_manifests_that_would_not_become_fewer_stay() -> None:
    assert names(*(manifest(number, size=700, lower=()) for number in range(3))) == []


def test_merging_ends() -> None:
    """What a plan leaves is not due again."""
    state = [manifest(number, size=90 + number % 7) for number in range(500)]
    for _ in range(5):
        groups = manifest_groups(state, 100, TARGET)
        if not groups:
            break
        for group in groups:
            state = [each for each in state if each not in group.manifests]
            whole, rest = divmod(group.size, TARGET)
            state += [manifest(len(state) + i, size=TARGET) for i in range(whole)]
            state += [manifest(len(state), size=rest)] if rest else []
    assert manifest_groups(state, 100, TARGET) == ()
    assert len(state) <= 60
