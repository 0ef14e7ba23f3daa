"""Finds keys of which several rows are live."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from calving.errors import TableTroubleError
from calving.iceberg.delete_files import Deletions, KnownPositions
from calving.iceberg.live_files import LiveFiles, Manifests
from calving.iceberg.lookups import KeySearch, Lookups
from calving.mutations.cache import KeyCache
from calving.mutations.candidates import Pruning
from calving.mutations.columns import ColumnReader, columns_of
from calving.mutations.keys import KeyPart, parts


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
