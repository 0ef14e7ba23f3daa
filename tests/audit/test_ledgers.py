"""Ledgers of sound tables: after rollbacks, expiry, compactions, cherry-picks, and the Java sink's own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from calving.audit.ledgers import subtracted
from calving.audit.lines import LineJudge, SinkLine, sink_lines
from calving.audit.metadata import TableMetadataFile
from tests.audit.conftest import audited
from tests.iceberg.lake import Lake

GOLDENS = Path(__file__).parents[1] / "goldens"
PARTITION = ("orders@id1", 0)


def taken(lake: Lake) -> list[Any]:
    (line,) = audited(lake.table).lines
    return [each.offsets[PARTITION] for each in line.taken]


@pytest.fixture(params=["1", "2"])
def lake(request: pytest.FixtureRequest, catalog: Catalog) -> Lake:
    made = Lake(catalog, request.param, "main")
    made.snapshots = []
    for start in (0, 100, 200):
        made.commit(start, start + 100)
        made.snapshots.append(made.head)
    return made


def test_each_snapshot_has_taken_what_the_one_below_does_not_hold(lake: Lake) -> None:
    assert audited(lake.table).findings == []
    assert taken(lake) == [((0, 100),), ((100, 200),), ((200, 300),)]


def test_after_a_rollback_the_line_of_the_head_counts(lake: Lake) -> None:
    lake.roll_back(lake.snapshots[0])
    lake.commit(300, 400)
    assert audited(lake.table).findings == []
    assert taken(lake)[0] == ((0, 100),)


def test_a_compaction_takes_nothing(lake: Lake) -> None:
    lake.compact()
    lake.commit(300, 400)
    assert audited(lake.table).findings == []
    assert len(taken(lake)) == 4


def test_rows_of_another_writer_are_in_no_ledger(lake: Lake) -> None:
    lake.append(7, 8)
    assert audited(lake.table).findings == []
    assert len(taken(lake)) == 3


def test_once_snapshots_have_expired_the_first_one_left_stands_for_them(lake: Lake) -> None:
    lake.commit(300, 400)
    lake.expire(lake.snapshots[2])
    found = audited(lake.table)
    assert found.findings == []
    (line,) = found.lines
    assert [(each.is_known, each.offsets[PARTITION]) for each in line.taken] == [
        (False, ((0, 300),)),
        (True, ((300, 400),)),
    ]


def test_what_was_settled_before_the_first_commit_is_taken_by_none(catalog: Catalog) -> None:
    lake = Lake(catalog, "2", "main")
    lake.commit(100, 200)
    lake.commit(200, 300)
    (line,) = audited(lake.table).lines
    assert [each.offsets[PARTITION] for each in line.taken] == [((100, 200),), ((200, 300),)]
    assert line.held() == {PARTITION: ((100, 300),)}


def test_a_cherry_pick_is_sound(lake: Lake) -> None:
    lake.roll_back(lake.snapshots[1])
    lake.append(7)
    lake.cherry_pick(lake.snapshots[2])
    lake.look()
    assert audited(lake.table).findings == []


def test_main_is_sound_once_it_was_fast_forwarded_to_the_branch_that_the_sink_writes(catalog: Catalog) -> None:
    """The properties of main are those of before, and those of the branch have the offsets."""
    lake = Lake(catalog, "2", "main")
    lake.commit(0, 100)
    main = lake.head
    lake.key, lake._branch = replace(lake.key, branch="audit"), "audit"
    for start in (100, 200):
        lake.commit(start, start + 100)
    published, lake._branch = lake.head, "main"
    assert lake.head == main
    lake.roll_back(published)
    assert audited(lake.table).findings == []


def java(name: str, *later: dict[str, Any]) -> TableMetadataFile:
    """A table of the Java sink; ``later``: the summaries of snapshots after its own."""
    snapshots = json.loads((GOLDENS / f"java-{name}-snapshots.json").read_text())
    for number, summary in enumerate(later):
        parent = snapshots[-1]["snapshot-id"]
        snapshots.append(
            {"snapshot-id": number, "parent-snapshot-id": parent, "sequence-number": 90, "summary": summary}
        )
    raw = {
        "format-version": 2,
        "schema": {"type": "struct", "fields": []},
        "snapshots": snapshots,
        "current-snapshot-id": snapshots[-1]["snapshot-id"],
        "last-sequence-number": 99,
    }
    return TableMetadataFile("golden", raw)


@pytest.mark.parametrize("name", ["orders", "clicks"])
def test_ledgers_of_the_java_sink_are_sound_and_name_no_offsets(name: str) -> None:
    metadata = java(name)
    (line,) = sink_lines(metadata, None)
    assert line.owner == "control-iceberg.connect-golden"
    assert list(LineJudge(metadata, line, {}, {}).judge(metadata.current)) == []
    assert line.ledger is not None and line.ledger.source is None and not line.taken


def test_the_first_ledger_after_the_java_sink_stands_for_what_that_has_taken_too() -> None:
    control = {"kafka.connect.offsets.control-iceberg.connect-golden": '{"0":999}', "calving.control-log-id": "log"}
    first, second = ({**control, "calving.source-offsets": json.dumps({"orders": [at]})} for at in (500, 600))
    metadata = java("orders", first, second)
    (line,) = sink_lines(metadata, None)
    begins = {next(iter(metadata.snapshots)): True}
    assert list(LineJudge(metadata, line, {}, begins).judge(metadata.current)) == []
    assert [(each.is_known, each.offsets["orders", 0]) for each in line.taken] == [
        (False, ((0, 500),)),
        (True, ((500, 600),)),
    ]


def test_a_ledger_of_the_java_sink_that_goes_back_is_found() -> None:
    metadata = java("orders")
    last = metadata.snapshots[metadata.current or 0]
    last.summary["kafka.connect.offsets.control-iceberg.connect-golden"] = '{"0":1}'  # type: ignore[index]
    line = SinkLine("control-iceberg.connect-golden", "main")
    (found,) = LineJudge(metadata, line, {}, {}).judge(metadata.current)
    assert "went from" in found.text


@pytest.mark.parametrize(
    ("ranges", "holes", "left"),
    [
        ([(0, 10)], [], ((0, 10),)),
        ([(0, 10)], [(3, 5)], ((0, 3), (5, 10))),
        ([(0, 10)], [(0, 10)], ()),
        ([(0, 4), (6, 9)], [(2, 7)], ((0, 2), (7, 9))),
        ([(0, 10)], [(20, 30)], ((0, 10),)),
    ],
)
def test_holes_are_cut_out_of_ranges(ranges: Any, holes: Any, left: Any) -> None:
    assert subtracted(ranges, holes) == left
