"""Corrects wrong bounds of the files of a sink's tables, and finds the keys of which several rows are live."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.errors import CommandFailedError, CommitRefusedError, CommitUncertainError, TableTroubleError
from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.delete_files import Deletions, KnownPositions
from calving.iceberg.live_files import LiveFiles, Manifests
from calving.iceberg.lookups import KeySearch, Lookups
from calving.iceberg.maintenance import Maintenance
from calving.iceberg.mending import Corrections, Mending
from calving.iceberg.rules import in_use, spelt_mutations
from calving.iceberg.schemas import as_in
from calving.iceberg.summary import engine
from calving.model.tables import RowMutations
from calving.model.text import counted
from calving.mutations.cache import KeyCache
from calving.mutations.candidates import Pruning
from calving.mutations.columns import ColumnReader, columns_of
from calving.mutations.keys import KeyPart, parts
from calving.runtime.maintenance.step import MaintenanceStep
from calving.runtime.preflight import ledger_key
from calving.settings.load import Sink
from calving.writing.changes import identity


class RepeatedKeys:
    """The keys of a branch's head, by the id columns ``ids``.

    :raises TableTroubleError: the head has equality deletes, so it is unknown which rows are live.
    """

    def __init__(self, table: Table, branch: str, ids: Iterable[int], cache: KeyCache) -> None:
        self._table = table
        self._columns = columns_of(table.metadata.schema(), list(ids))
        mapping = table.name_mapping()
        self._reading = ColumnReader(table.io, self._columns, tuple(mapping.root) if mapping is not None else ())
        head = table.metadata.snapshot_by_name(branch)
        kept = Manifests([column.field_id for column in self._columns])
        self._live: LiveFiles = kept.live(table.io, head.manifest_list if head is not None else None)
        if self._live.equality:
            raise TableTroubleError(
                f"table {'.'.join(table.name())} has equality deletes, so it is unknown which keys have several rows:"
                " turn them into positions with `calving maintain FILE`, and run the task bounds again"
            )
        self._deletions = Deletions(table, self._live, KnownPositions())
        self._lookups = Lookups(cache)

    def among(self, paths: Collection[str]) -> Iterator[dict[str, Any]]:
        """The keys of rows in these data files that have another live row, in these files or in others. A key is its
        values by column name.
        """
        files = [(path, self._live.data[path].candidate.file_format) for path in paths if path in self._live.data]
        schema = self._table.metadata.schema()
        names = [schema.find_field(column.field_id).name for column in self._columns]
        for part in parts(self._reading, len(self._columns), [files]):
            for row in self._repeated(part).to_pylist():
                yield dict(zip(names, row.values(), strict=True))

    def _repeated(self, part: KeyPart) -> pa.RecordBatch:
        pruning = Pruning(part.keys, self._columns, self._table.metadata.specs())
        candidates = [data.candidate for data in self._live.data.values()]
        wanted = [(file, few) for file in candidates if (few := pruning.keys_of(file)) is not None]
        self._lookups.begin(self._live.data)
        looking = KeySearch(self._table, self._reading, len(self._columns), part.files)
        matches, _ = self._lookups.look(looking, wanted)
        rows = [
            each.living(self._deletions.before(file.path)).keys for (file, _), each in zip(wanted, matches, strict=True)
        ]
        counts = pc.value_counts(pa.chunked_array(rows, pa.int32()))
        several = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        return part.keys.rows.take(several)


BOUNDS = "bounds"
_SHOWN = 5


def mended(catalog: Catalog, sink: Sink, name: str, cache: KeyCache, *, dry_run: bool) -> Iterator[MaintenanceStep]:
    """Correct the bounds of one table; yields what was done.

    :raises CommandFailedError: others have committed too fast.
    """
    key, mending = ledger_key(sink, "", name), Mending()
    table = find_table(catalog, table_id(name))
    if table is None:
        return
    if dry_run:
        corrections = mending.of(table, key.branch)
    else:
        try:
            corrections = Maintenance(catalog, table_id(name), key, engine()).mend(mending)
        except (CommitRefusedError, CommitUncertainError) as error:
            raise CommandFailedError(
                f"table {name}: others committed faster each time, or the catalog gave no answer ({error});"
                " run it again"
            ) from error
    looked = f"{counted(mending.looked_at, 'file')} looked at"
    if corrections is None:
        yield MaintenanceStep(name, BOUNDS, "nothing", f"no wrong bounds, {looked}", {"looked_at": mending.looked_at})
        return
    done = "would be corrected" if dry_run else "corrected"
    ids = frozenset().union(*corrections.columns.values())
    names = sorted(table.metadata.schema().find_column_name(i) or f"column {i}" for i in ids)
    yield MaintenanceStep(
        name,
        BOUNDS,
        "planned" if dry_run else "done",
        f"bounds of {counted(len(corrections.entries), 'file')} {done} ({', '.join(names)}), {looked}",
        {"files": len(corrections.entries), "columns": names, "looked_at": mending.looked_at},
    )
    mutations = sink.mutations(name)
    if mutations is not None and mutations.has_one_row and not dry_run:
        now = catalog.load_table(table_id(name))
        if in_use(now.schema(), mutations) is None:
            return
        own = _ids(now, sink.id_columns(name), mutations, fold=sink.keys.case_insensitive)
        yield from _repeated(now, key.branch, corrections, own, cache)


def _ids(table: Table, id_columns: Sequence[str], mutations: RowMutations, *, fold: bool) -> tuple[int, ...]:
    """The ids of the columns that identify the table's rows."""
    schema = table.metadata.schema()
    spelt = spelt_mutations(schema, mutations, fold=fold)
    return identity(".".join(table.name()), schema, as_in(schema, id_columns, fold=fold), spelt).ids


def _repeated(
    table: Table, branch: str, corrections: Corrections, ids: Collection[int], cache: KeyCache
) -> Iterator[MaintenanceStep]:
    """A sentence on the keys that have several rows because a wrong bound hid one of them from a change."""
    paths = [path for (path, _), columns in corrections.columns.items() if columns & set(ids)]
    if not paths:
        return
    name = ".".join(table.name())
    keys = {str(key): key for key in RepeatedKeys(table, branch, ids, cache).among(paths)}
    if keys:
        shown = "; ".join(", ".join(f"{n} = {v!r}" for n, v in key.items()) for key in islice(keys.values(), _SHOWN))
        more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
        yield MaintenanceStep(
            name,
            BOUNDS,
            "done",
            f"{counted(len(keys), 'key')} with several rows, because wrong bounds hid a row from its change:"
            f" {shown}{more}; delete the older rows",
            {"repeated_keys": len(keys)},
        )
