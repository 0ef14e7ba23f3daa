"""Landed files beside those of partitions, read and moved by Spark with Iceberg's own runtime."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from calving.iceberg.catalog import open_catalog
from calving.model.tables import Landing, RowMutations
from harness.forms import forms
from harness.spark_reader import spark_on
from tests.iceberg.test_landing import Row, changes, records
from tests.mutations.changing import Changing

pytestmark = pytest.mark.services

POSITIONS, EQUALITY = RowMutations("op"), RowMutations("op", row_deletes="equality")
TERMS = (("g",), ("bucket(id, 4)",))


def landed(where: str, name: str, version: int, mutations: RowMutations | None, terms: tuple[str, ...]) -> Changing:
    """A sink that lands and writes into partitions by turns."""
    keys = {"type": "rest", "uri": where} if where.startswith("http") else {"type": "embedded", "warehouse": where}
    catalog = open_catalog("iceberg", keys)
    if catalog.namespace_exists("db") and catalog.table_exists(name):
        catalog.drop_table(name)
    return Changing(
        Path(where),
        mutations,
        id_columns=("id",) if mutations is not None else (),
        partition_by=terms,
        properties={"format-version": str(version)},
        name=name,
        keys=keys,
    )


def by_turns(sink: Changing, seed: int) -> list[tuple[Any, ...]]:
    """Six batches; the rows that they leave."""
    chance, expected = random.Random(seed), dict[int, Row]()
    for number in range(6):
        landing: Landing = "partitioned" if number % 3 == 1 else "unpartitioned"
        sink.landing = landing
        if sink.mutations is None:
            batch = records(range(20 * number, 20 * number + 20), 6)
            expected |= {row["id"]: row for _, row in batch}
        else:
            batch = changes(chance, expected, number)
        sink.take(*batch)
    return sorted(((row["id"], row["g"], row["v"]) for row in expected.values()), key=repr)


@pytest.mark.parametrize("version", forms([1, 2, 3], [3]))
def test_spark_reads_landed_rows_and_moves_them_into_their_partitions(
    version: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    where = str(tmp_path) if version < 3 else str(request.getfixturevalue("rest_uri"))
    by_version: dict[int, list[RowMutations | None]] = {1: [None], 2: [None, POSITIONS, EQUALITY], 3: [None, POSITIONS]}
    kinds = by_version[version]
    wanted: dict[str, list[tuple[Any, ...]]] = {}
    for number, (mutations, terms) in enumerate((m, t) for m in kinds for t in TERMS):
        name = f"db.landed{version}{number}"
        wanted[name] = by_turns(landed(where, name, version, mutations, terms), number)
    select = [f"select id, g, v from iceberg.{name}" for name in wanted]
    found = spark_on(
        where,
        *select,
        *(
            f"call iceberg.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
            for name in wanted
        ),
        *select,
        *(f"select count(*) n from iceberg.{name}.files where spec_id != 0 and content = 0" for name in wanted),
    )
    before, _, after, left = (found[start : start + len(wanted)] for start in range(0, len(found), len(wanted)))
    for (name, rows), first, second, landed_files in zip(wanted.items(), before, after, left, strict=True):
        assert sorted((tuple(row.values()) for row in first), key=repr) == rows, name
        assert sorted((tuple(row.values()) for row in second), key=repr) == rows, name
        assert landed_files == [{"n": 0}], name
