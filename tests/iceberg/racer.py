"""One of several coordinators that commit the same stream to one table, and are lied to on the way."""

from __future__ import annotations

import json
import logging
import random
import sys
from uuid import UUID

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import TableRequirement, TableUpdate

from calving.errors import CommitRefusedError, CommitUncertainError, TableTroubleError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.locations import FileRules
from calving.iceberg.target import IcebergTarget
from calving.model.events import DataWritten, Envelope, TableReference
from calving.model.files import DataFile
from calving.protocol.commit import CommitLoop
from calving.protocol.ledger_key import LedgerKey

KEY = LedgerKey("control", "connect-race", "log-1")
TABLE = TableReference("iceberg", ("db",), "race")
FILES_PER_ENTRY = 2


def entry(offset: int) -> Envelope:
    paths = [f"file:///race/{offset}-{i}.parquet" for i in range(FILES_PER_ENTRY)]
    files = tuple(DataFile(path, "PARQUET", 5, 100, value_counts={1: 5}) for path in paths)
    return Envelope(0, offset, DataWritten(UUID(int=1), TABLE, files))


def lie(rng: random.Random, share: float) -> None:
    """Requests that are lost, answers that are lost, conflicts that are reported although the commit landed."""
    original = Table._do_commit

    def wrapped(self: Table, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...]) -> None:
        roll = rng.random()
        if roll < share:
            raise OSError("the request was lost")
        original(self, updates, requirements)
        if roll < 2 * share:
            raise OSError("the answer was lost")
        if roll < 3 * share:
            raise CommitFailedException("reported although it landed")

    Table._do_commit = wrapped  # type: ignore[method-assign]


def main() -> None:
    catalog_keys, entries, seed, share = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    logging.disable(logging.CRITICAL)
    rng = random.Random(seed)
    lie(rng, share)
    catalog = open_catalog("iceberg", catalog_keys)
    read = 0
    while read < entries:
        read = min(entries, read + rng.randint(1, 3))
        target = IcebergTarget(
            catalog, TABLE.identifier, "main", KEY, {"racer": str(seed)}, files=FileRules(("file:///race",))
        )
        try:
            CommitLoop(target, KEY, 50).settle([entry(o) for o in range(read)], {0: read})
        except (CommitRefusedError, CommitUncertainError, TableTroubleError):
            read = 0  # what a coordinator does: the next one replays


if __name__ == "__main__":
    main()
