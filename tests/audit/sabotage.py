"""Falsifies a table below its catalog: metadata, lists, manifests and data files, as such.

A falsified file keeps all that names it in agreement with it, sizes and checksums included, so that nothing but the
one lie can be found.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyiceberg.table import Table

Record = dict[str, Any]
Records = list[Record]
Change = Callable[[Records], Records]


def local(path: str) -> Path:
    return Path(path.removeprefix("file://").removeprefix("file:"))  # Java writes one slash


def _avro(path: str) -> tuple[Any, dict[str, str], Records]:
    reader = fastavro.reader(io.BytesIO(local(path).read_bytes()))
    said = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    return reader.writer_schema, said, [cast(Record, each) for each in reader]


def _rewrite(path: str, change: Change) -> None:
    schema, said, records = _avro(path)
    made = io.BytesIO()
    fastavro.writer(made, schema, change(records), metadata=said)
    local(path).write_bytes(made.getvalue())


class Sabotage:
    """One table, on the local disk."""

    def __init__(self, table: Table) -> None:
        self._table = table

    # Metadata

    def change_metadata(self, change: Callable[[Record], object]) -> None:
        place = local(self._table.metadata_location)
        raw = json.loads(place.read_text())
        change(raw)
        place.write_text(json.dumps(raw))

    def change_summary(self, name: str, change: Callable[[str], str], which: int = -1) -> None:
        """Of one snapshot, the last one by default."""

        def falsify(raw: Record) -> None:
            summary = raw["snapshots"][which]["summary"]
            summary[name] = change(summary[name])

        self.change_metadata(falsify)

    # Manifests

    @property
    def lists(self) -> list[str]:
        """The manifest lists, the newest last."""
        return [snapshot.manifest_list for snapshot in self._table.metadata.snapshots]

    def change_list(self, change: Change, which: int = -1) -> None:
        _rewrite(self.lists[which], change)

    def listed(self, which: int = -1) -> Records:
        """What a manifest list says."""
        return _avro(self.lists[which])[2]

    def manifests(self, which: int = -1, content: int = 0) -> list[str]:
        return [m["manifest_path"] for m in self.listed(which) if (m["content"] or 0) == content]

    def entries(self, manifest: str) -> Records:
        return _avro(manifest)[2]

    def change_entry(self, manifest: str, change: Callable[[Record], object], place: int = 0) -> None:
        """Of a manifest; the lists that name the manifest know its new length."""

        def falsify(records: Records) -> Records:
            change(records[place])
            return records

        self.change_manifest(manifest, falsify)

    def change_manifest(self, manifest: str, change: Change) -> None:
        _rewrite(manifest, change)
        size = local(manifest).stat().st_size
        entries = self.entries(manifest)

        def count(records: Records) -> Records:
            for listed in records:
                if listed["manifest_path"] == manifest:
                    listed["manifest_length"] = size
                    for status, name in ((0, "existing"), (1, "added"), (2, "deleted")):
                        own = [entry for entry in entries if entry["status"] == status]
                        listed[f"{name}_files_count"] = len(own)
                        listed[f"{name}_rows_count"] = sum(entry["data_file"]["record_count"] for entry in own)
            return records

        for place in self.lists:
            _rewrite(place, count)

    # Files

    def files(self, content: int = 0) -> list[tuple[str, int, Record]]:
        """Of the head: the manifest, the place in it, and the file."""
        return [
            (manifest, place, entry["data_file"])
            for manifest in self.manifests(content=int(content > 0))
            for place, entry in enumerate(self.entries(manifest))
            if entry["data_file"]["content"] == content and entry["status"] != 2
        ]

    def change_rows(self, change: Change, place: int = 0) -> None:
        """Of a live data file; its entry knows the new size."""
        manifest, at, file = self.files()[place]
        path = file["file_path"]
        if path.endswith(".avro"):
            _rewrite(path, change)
        else:
            read, write = (
                (orc.read_table, orc.write_table) if path.endswith(".orc") else (pq.read_table, pq.write_table)
            )
            before = read(local(path))
            after = pa.Table.from_pylist(change(before.to_pylist()), schema=before.schema)
            write(after, local(path))
        size = local(path).stat().st_size
        self.change_entry(manifest, lambda entry: entry["data_file"].update(file_size_in_bytes=size), at)
