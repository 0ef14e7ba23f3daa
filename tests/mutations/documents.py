"""Seeded histories of a MongoDB collection, whose updates come with the changed fields alone, beside its documents.

``python -m tests.mutations.documents --seeds 1000`` plays many.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from calving.model.record_path import Evolution, TransformSpec
from calving.model.tables import RowMutations
from harness.documents import FIELDS, WHOLE, Collection, plain
from tests.iceberg.reader import rows_of
from tests.mutations.changing import Changing

TRANSFORMS = (TransformSpec("documents", "MongoDebeziumTransform"), TransformSpec("unwrap", "DebeziumTransform"))
KEEPING = RowMutations("_cdc.op", on_unavailable_value="keep")


def played(folder: Path, seed: int, batches: int = 8) -> Counter[str]:
    """A history, to its end.

    :raises AssertionError: the table has other rows than the collection has documents.
    """
    chance = random.Random(seed)
    many = chance.random() < 0.3  # documents of a batch, of which some lack the same
    collection = Collection(seed, 100) if many else Collection(seed)
    slots = chance.choice([1, 2])
    sink = Changing(
        folder,
        KEEPING,
        ("_id",),
        ("bucket(_id, 3)",) if chance.random() < 0.3 else (),
        transforms=TRANSFORMS,
        evolution=Evolution(create=True, evolve=True),
        slots=slots,
    )
    first = collection.event(-1, "r", after=json.dumps({"_id": -1, **WHOLE}))
    waiting = []
    has_columns = chance.random() < 0.7  # else they come with the changes, and an empty array brings none
    if has_columns:
        sink.take(first, collection.event(-1, "d"))
    for _ in range(batches):
        messages = [collection.change() for _ in range(chance.randrange(0, 300 if many else 14))]
        if not messages:
            continue
        outcome = sink.read({0: messages})
        assert not outcome.dead_letters, sink.reasons(outcome)
        waiting.append(outcome)
        if chance.random() < 0.6:
            sink.commit(*waiting)
            waiting.clear()
            _compare(sink, collection, seed, empty=has_columns)
    if waiting:
        sink.commit(*waiting)
        _compare(sink, collection, seed, empty=has_columns)
    return collection.counts


def _compare(sink: Changing, collection: Collection, seed: int, *, empty: bool) -> None:
    table = sink.table
    names = [each.name for each in table.schema().fields]
    found = sorted(
        (
            tuple(plain(row[names.index(name)], empty) if name in names else None for name in FIELDS)
            for row in rows_of(table)
        ),
        key=repr,
    )
    expected = collection.rows(empty=empty)
    for row, wanted in zip(found, expected, strict=False):
        assert row == wanted, f"seed {seed}: the row\n{row}\nis not\n{wanted}"
    assert found == expected, f"seed {seed}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(args.first, args.first + args.seeds):
            try:
                counts += played(Path(folder) / str(seed), seed)
            except Exception as error:
                failed += 1
                print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
            counts["histories"] += 1
    print(f"{dict(counts)}, {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
