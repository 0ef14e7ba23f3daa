"""Several processes commit one stream: no file twice, none missing, readable after every step."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from calving.iceberg.catalog import open_catalog
from calving.iceberg.tables import DEFAULT_PROPERTIES
from harness.nursery import Forked
from tests.iceberg.racer import FILES_PER_ENTRY, KEY, TABLE

ENTRIES = 40


def create(catalog: Catalog) -> None:
    catalog.create_namespace_if_not_exists("db")
    if catalog.table_exists(TABLE.identifier):
        catalog.drop_table(TABLE.identifier)
    properties = {**DEFAULT_PROPERTIES, "commit.manifest.min-count-to-merge": "5", "calving.expire.max-snapshots": "15"}
    catalog.create_table(
        TABLE.identifier, Schema(NestedField(1, "id", LongType(), required=False)), properties=properties
    )


def racer(catalog_keys: dict[str, str], seed: int, share: float, folder: Path) -> Forked:
    """Its log is in ``folder``."""
    arguments = [json.dumps(catalog_keys), str(ENTRIES), str(seed), str(share)]
    return Forked("tests.iceberg.racer", arguments, folder / f"racer-{seed}.log", {})


def live_files(catalog: Catalog) -> Counter[str]:
    """Through every manifest of the current snapshot: raises if one of them is gone."""
    table = catalog.load_table(TABLE.identifier)
    return Counter(task.file.file_path for task in table.scan().plan_files())


@pytest.mark.parametrize("share", [0.0, 0.08], ids=["honest", "lied-to"])
def test_racing_processes_that_are_killed_add_every_file_once(
    catalog_keys: dict[str, str], share: float, tmp_path: Path
) -> None:
    catalog = open_catalog("iceberg", catalog_keys)
    create(catalog)
    rng = random.Random(1)
    racers = [racer(catalog_keys, seed, share, tmp_path) for seed in range(3)]
    kills = 0
    deadline = time.monotonic() + 150
    ledger = 0
    while any(r.returncode is None for r in racers):
        assert time.monotonic() < deadline, "the race did not end"
        time.sleep(rng.uniform(0.2, 0.6))
        counts = live_files(catalog)
        assert max(counts.values(), default=1) == 1
        offset = int(json.loads(catalog.load_table(TABLE.identifier).properties.get(KEY.offsets, '{"0":0}'))["0"])
        assert offset >= ledger, "I3: the ledger went back"
        ledger = offset
        if kills < 5 and ledger:
            kills += 1
            victim = rng.randrange(3)
            racers[victim].kill()
            racers[victim] = racer(catalog_keys, 100 + kills, share, tmp_path)
    counts = live_files(catalog)
    assert counts == Counter(
        {f"file:///race/{o}-{i}.parquet": 1 for o in range(ENTRIES) for i in range(FILES_PER_ENTRY)}
    )
    assert kills > 0
