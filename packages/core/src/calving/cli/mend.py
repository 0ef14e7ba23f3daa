"""Corrects wrong bounds of the files of a sink's tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.cli.repeated_keys import RepeatedKeys
from calving.errors import CommandFailedError, CommitRefusedError, CommitUncertainError
from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.maintenance import Maintenance
from calving.iceberg.mending import Corrections, Mending
from calving.iceberg.mutable import spelt_mutations
from calving.iceberg.schemas import as_in
from calving.iceberg.summary import engine
from calving.model.mutations import RowMutations
from calving.model.text import counted
from calving.mutations.cache import KeyCache
from calving.runtime.preflight import ledger_key
from calving.settings.load import Sink
from calving.writing.changes import identity

_SHOWN = 5


def mended(catalog: Catalog, sink: Sink, name: str, cache: KeyCache, *, dry_run: bool) -> Iterator[str]:
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
        yield f"table {name}: no wrong bounds, {looked}"
        return
    done = "would be corrected" if dry_run else "corrected"
    ids = frozenset().union(*corrections.columns.values())
    names = ", ".join(sorted(table.metadata.schema().find_column_name(i) or f"column {i}" for i in ids))
    yield f"table {name}: bounds of {counted(len(corrections.entries), 'file')} {done} ({names}), {looked}"
    mutations = sink.mutations(name)
    if mutations is not None and not dry_run and not (mutations.cdc_field and mutations.inserts == "append"):
        now = catalog.load_table(table_id(name))
        own = _ids(now, sink.id_columns(name), mutations, fold=sink.keys.case_insensitive)
        yield from _repeated(now, key.branch, corrections, own, cache)


def _ids(table: Table, id_columns: Sequence[str], mutations: RowMutations, *, fold: bool) -> tuple[int, ...]:
    """The ids of the columns that identify the table's rows."""
    schema = table.metadata.schema()
    spelt = spelt_mutations(schema, mutations, fold=fold)
    return identity(".".join(table.name()), schema, as_in(schema, id_columns, fold=fold), spelt).ids


def _repeated(
    table: Table, branch: str, corrections: Corrections, ids: Collection[int], cache: KeyCache
) -> Iterator[str]:
    """A sentence on the keys that have several rows because a wrong bound hid one of them from a change."""
    paths = [path for (path, _), columns in corrections.columns.items() if columns & set(ids)]
    if not paths:
        return
    name = ".".join(table.name())
    keys = {str(key): key for key in RepeatedKeys(table, branch, ids, cache).among(paths)}
    if keys:
        shown = "; ".join(", ".join(f"{n} = {v!r}" for n, v in key.items()) for key in islice(keys.values(), _SHOWN))
        more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
        yield (
            f"table {name}: {counted(len(keys), 'key')} with several rows, because wrong bounds hid a row from its"
            f" change: {shown}{more}; delete the older rows"
        )
