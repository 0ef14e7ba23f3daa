"""``python -m tests.fuzz.newcomers --seconds 600 [--seed S] [--case N]``: records that name new tables, beside good ones.

A case is a sink whose records name their tables, with random settings for new ones, and records of any shape, whose
columns are those of the settings or others. Some catalogs refuse a column of tables that are there. No record stops the
sink, the good ones beside are written, and each other one is a row or a dead letter of its table. A record that could
create its table alone is not bad because the table cannot be created in company.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import BadRequestError, ForbiddenError
from pyiceberg.table import Table
from pyiceberg.table.update import AddSchemaUpdate

from calving.model.record_path import Evolution, Limits, Routing
from calving.model.tables import RowMutations
from tests.fuzz import loop
from tests.fuzz.texts import STRINGS
from tests.mutations.changing import Changing

MOMENT = "2024-05-06T12:00:00Z"
GOOD = {"to": "db.good", "id": 1, "ts": MOMENT, "v": 1, "lsn": 1, "meta": {"at": MOMENT}}
TERMS = (
    "day(ts)",
    "hour(ts)",
    "bucket(v, 4)",
    "truncate(v, 2)",
    "v",
    "day(meta.at)",
    "bucket(meta.n, 3)",
    "year(late)",
)
NAMES = ("id", "ts", "v", "lsn", "meta", "_cdc_deleted", "_file", "ts_day", "other", "a.b", "")
Record = dict[str, Any]


def _value(random: Random, depth: int = 2) -> Any:
    choices: list[Any] = [None, True, 1, -(2**63), 2**70, 1.5, MOMENT, "soon", "", random.choice(STRINGS), [], {}]
    if depth and random.random() < 0.3:
        inner = _value(random, depth - 1)
        name = random.choice(("at", "n", "x", "x" * random.choice((255, 256)), "a\n"))
        return random.choice(({name: inner}, [inner], {"at": MOMENT, name: inner}))
    return random.choice(choices)


def _poison(random: Random) -> Record:
    """A record of any shape; now and then with more columns than a table may have."""
    record = {**GOOD, "to": f"db.{random.choice(('new', 'newer', 'good', 'good.inner'))}"}
    for name in random.sample(NAMES, random.randint(0, 4)):
        if random.random() < 0.4:
            record.pop(name, None)
        else:
            record[name] = _value(random)
    if random.random() < 0.1:
        record |= {f"c{n}": 1 for n in range(random.choice((8, 30)))}
    return record


def _settings(random: Random) -> dict[str, Any]:
    mutations = RowMutations(
        upsert=True,
        order_field=random.choice((None, "lsn", "meta.n")),
        delete_mode=random.choice(("hard", "soft")),
    )
    changes_rows = random.random() < 0.5
    return {
        "mutations": mutations if changes_rows else None,
        "id_columns": ("id",) if changes_rows or random.random() < 0.3 else (),
        "partition_by": random.choice(((), *((term,) for term in TERMS), ("day(ts)", "bucket(v, 4)"))),
        "types": random.choice(({}, {}, {"v": "string"}, {"ts": "timestamptz"})),
        "properties": random.choice(({}, {}, {}, {"format-version": "1"})),
        "evolution": Evolution(True, random.random() < 0.8, random.random() < 0.2),
        "limits": Limits(block_records=random.choice((1, 3, 100)), columns=60, new_columns=20),
        "slots": random.choice((1, 2)),
    }


def check(seed: int, number: int, folder: Path) -> tuple[int, str]:
    """How many records a case had, and what is wrong; empty: nothing."""
    random = Random(f"{seed}/{number}/newcomers")
    settings = {**_settings(random), "routing": Routing(field="to", dynamic=True), "name": "db.good"}
    good = [{**GOOD, "id": 100 + n, "late": MOMENT, "meta": {"at": MOMENT, "n": 1}} for n in range(3)]
    poison = [_poison(random) for _ in range(random.randint(1, 6))]
    records = random.sample([*good, *poison], len(good) + len(poison))
    refuses = (BadRequestError, ForbiddenError, None, None)[random.randrange(4)]
    try:
        if random.random() < 0.5:
            _bad(Changing(folder / "company", **settings), good)  # the table is there
        sink = Changing(folder / "company", **settings)
        if refuses is not None:
            _refuse_a_column(sink.catalog, refuses)
        bad = _bad(sink, records)
    except Exception as error:  # whatever it is, it stops the sink
        return len(records), f"{type(error).__name__}: {error}, {settings}, {records}"
    return len(records), next(_faults(sink, records, good, bad, settings, folder), "")


def _refuse_a_column(catalog: Catalog, error: type[Exception]) -> None:
    """Refuse the column ``other`` of each table."""
    commit = catalog.commit_table

    def checked(table: Table, requirements: Any, updates: Any) -> Any:
        schemas = [update.schema_ for update in updates if isinstance(update, AddSchemaUpdate)]
        if any("other" in schema.column_names for schema in schemas):
            raise error("no column has this name")
        return commit(table, requirements, updates)

    catalog.commit_table = checked  # type: ignore[method-assign]


def _bad(sink: Changing, records: Sequence[Record]) -> Mapping[int, str]:
    """The reasons of the records that are bad."""
    return dict(sink.reasons(sink.take(*((None, record) for record in records))))


def _faults(
    sink: Changing,
    records: list[Record],
    good: list[Record],
    bad: Mapping[int, str],
    settings: dict[str, Any],
    folder: Path,
) -> Iterator[str]:
    takes_none = settings["mutations"] is not None and bool(settings["properties"])
    for place, record in enumerate(records):
        reason = bad.get(place)
        if record in good and (reason is not None) != takes_none:
            yield f"a good record: {reason}, {settings}, {records}"
        elif reason is not None and not reason.startswith(f"table {record['to']}: "):
            yield f"{record}: {reason}, {settings}"
        elif reason is not None and not sink.catalog.table_exists(record["to"]):
            alone = Changing(folder / f"alone{place}", **settings)
            _bad(alone, good)
            if not _bad(alone, [record]):
                yield f"{record}: bad only in company: {reason}, {settings}, {records}"


def main() -> int:
    return loop.run("newcomers", loop.arguments(__doc__).parse_args(), check)


if __name__ == "__main__":
    sys.exit(main())
