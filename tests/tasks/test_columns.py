"""The columns that transforms read belong to their records."""

from __future__ import annotations

import pytest

from calving.casting.evolution import SchemaChanges
from calving.model.offsets import Range
from calving.model.record_path import ConverterSpec, RecordPath, Routing, TopicConverters
from calving.records.values import Records, Values, objects
from calving.tasks.decode import Decoders
from calving.tasks.selection import Accounts, Selection
from calving.tasks.spec import TaskSpec
from calving.tasks.transform import Columns
from calving.transforms.interface import Column
from harness.blocks import Given

FIRST = 10
KEYS = [b"zero", b"one", b"two"]
SHAPES: dict[str, list[dict[str, object]]] = {
    "alike": [{"n": 0}, {"n": 1}, {"n": 2}],
    "with a null between": [{"n": 0}, {"n": None}, {"n": 2}],
    "of two shapes": [{"n": 0}, {"n": "1"}, {"n": 2}],
}


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("wanted", [{"offset"}, {"offset", "key"}], ids=["offset", "offset and key"])
def test_every_record_has_its_own_offset_and_key(shapes: str, wanted: set[Column]) -> None:
    values = SHAPES[shapes]
    path = RecordPath({}, Routing(), converters={"": TopicConverters(key=ConverterSpec("string"))})
    columns = Columns(Decoders(TaskSpec(0, (), path, {}, {})), frozenset(wanted), None, decimals=True, replayed=False)
    block = Given(Range("t", 0, FIRST, FIRST + len(values)), FIRST, [b"{}"] * len(values), KEYS)
    found: dict[int, tuple[object, int, str | None]] = {}
    selected = Selection(block, "t", 0, range(len(values)), Accounts(SchemaChanges()))
    for part in columns.records(selected, Values(list(values), False)):
        assert part.index.to_pylist() == sorted(part.index.to_pylist())
        found |= dict(zip(part.index.to_pylist(), _rows(part), strict=True))
    keys = [key.decode() if "key" in wanted else None for key in KEYS]
    assert found == {i: (value, FIRST + i, keys[i]) for i, value in enumerate(values)}


def _rows(part: Records) -> list[tuple[object, int, str | None]]:
    return list(zip(objects(part.value), part.offset.to_pylist(), part.key.to_pylist(), strict=True))
