"""Corrects the bounds of a table's files, and of files that wait for their commit, if the files hold values beyond
them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import BinaryType, StringType

from calving.errors import TableTroubleError
from calving.iceberg.manifests import FileKey, key_of, read_entries, read_manifest_list
from calving.iceberg.snapshot import SinkSnapshot
from calving.iceberg.summary import ENGINE, ENGINE_VERSION
from calving.model import files
from calving.model.events import DataWritten, Envelope
from calving.protocol.commit import Admitted
from calving.protocol.ledger_key import COMMIT_ID
from calving.writing.formats.bounds import RightBounds, are_right_by, right_bounds

log = logging.getLogger(__name__)

_TOGETHER = 8
"""How many files are read at the same time."""
_LOWER, _UPPER = 10, 11
"""The indices of a data file's bounds."""


@dataclass(frozen=True, slots=True)
class Corrections:
    """Corrected entries of data and delete files, by file; the columns whose bounds were wrong; and the manifests that
    name these files.
    """

    entries: Mapping[FileKey, DataFile]
    columns: Mapping[FileKey, frozenset[int]]
    manifests: frozenset[str]
    deletes: tuple[DataFile, ...] = ()

    def put_into(self, snapshot: SinkSnapshot) -> None:
        """Make the corrections part of a snapshot."""
        snapshot.correct(self.entries, self.manifests)


class Mending:
    """The correction of one branch, kept until its commit: after a refused attempt only new files are read."""

    def __init__(self) -> None:
        self._known: dict[FileKey, RightBounds | None] = {}

    @property
    def looked_at(self) -> int:
        """How many files were read."""
        return len(self._known)

    def of(self, table: Table, branch: str) -> Corrections | None:
        """The corrections of this head of the branch; None if no bounds are wrong.

        :raises TableTroubleError: a file of the table cannot be read.
        """
        head = table.metadata.snapshot_by_name(branch)
        entries: dict[FileKey, DataFile] = {}
        manifests: set[str] = set()
        with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="calving-bounds") as pool:
            for manifest in read_manifest_list(table.io, head.manifest_list) if head is not None else ():
                doubtful = [e.data_file for e in read_entries(table.io, manifest) if _is_doubtful(table.metadata, e)]
                for file, right in zip(doubtful, pool.map(partial(self._right, table), doubtful), strict=True):
                    if right is not None:
                        entries[key_of(file)] = _corrected(file, right)
                        manifests.add(manifest.manifest_path)
        columns = {key: right.columns for key, right in self._known.items() if right is not None and key in entries}
        return Corrections(entries, columns, frozenset(manifests)) if entries else None

    def unused(self, used: Iterable[DataFile]) -> list[str]:
        """The written files that no commit uses: none, because only manifests are written."""
        return []

    def _right(self, table: Table, file: DataFile) -> RightBounds | None:
        key = key_of(file)
        if key not in self._known:
            try:
                self._known[key] = right_bounds(
                    table.io, file.file_path, file.lower_bounds or {}, file.upper_bounds or {}
                )
            except Exception as error:  # a storage may raise anything
                raise TableTroubleError(
                    f"table {'.'.join(table.name())}: the bounds of file {file.file_path} cannot be checked:"
                    f" {type(error).__name__}: {error}"
                ) from error
        return self._known[key]


def _is_doubtful(metadata: TableMetadata, entry: ManifestEntry) -> bool:
    """Whether the bounds of an entry may be wrong: a sink has committed the file, and not with a version that writes or
    checks bounds rightly. Of a snapshot that has expired, nobody knows who made it.
    """
    file = entry.data_file
    if file.file_format is not FileFormat.PARQUET or file.content is DataFileContent.POSITION_DELETES:
        return False
    snapshot = metadata.snapshot_by_id(entry.snapshot_id) if entry.snapshot_id is not None else None
    if snapshot is None or snapshot.summary is None:
        return True
    made_by = snapshot.summary.additional_properties
    if made_by.get(ENGINE) == "calving":
        return not are_right_by(made_by.get(ENGINE_VERSION))
    return COMMIT_ID in made_by  # a coordinator of the Java sink commits files of calving's workers, too


def _corrected(file: DataFile, right: RightBounds) -> DataFile:
    made = DataFile(*file._data)
    made.spec_id = file.spec_id
    made._data[_LOWER], made._data[_UPPER] = dict(right.lower), dict(right.upper)
    return made


def doubtful_files(entries: Iterable[Envelope]) -> frozenset[str]:
    """The paths of Parquet files in entries of the control log whose writer may have told wrong bounds. Entries without
    source offsets are not calving's.
    """
    return frozenset(
        file.file_path
        for entry in entries
        if isinstance(entry.event, DataWritten) and entry.spans and not are_right_by(entry.writer)
        for file in (*entry.event.data_files, *entry.event.delete_files)
        if file.file_format.upper() == FileFormat.PARQUET.value and file.content != files.FileContent.POSITION_DELETES
    )


def corrected(table: Table, admitted: Admitted, doubtful: Collection[str]) -> Admitted:
    """The admitted files with right bounds; those in ``doubtful`` are read. A file that cannot be read gets no bounds
    of text and binary columns, because no bound excludes no row.
    """
    every = {file.file_path: file for file in (*admitted.data_files, *admitted.delete_files)}
    wanted = [every[path] for path in sorted(every.keys() & doubtful)]
    if not wanted:
        return admitted
    with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="calving-bounds") as pool:
        every |= {file.file_path: file for file in pool.map(partial(_checked, table), wanted)}

    def taken(before: Sequence[files.DataFile]) -> tuple[files.DataFile, ...]:
        return tuple(every[file.file_path] for file in before)

    steps = tuple(
        replace(step, data_files=taken(step.data_files), delete_files=taken(step.delete_files))
        for step in admitted.steps
    )
    return replace(
        admitted, data_files=taken(admitted.data_files), delete_files=taken(admitted.delete_files), steps=steps
    )


def _checked(table: Table, file: files.DataFile) -> files.DataFile:
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    try:
        right = right_bounds(table.io, file.file_path, lower, upper)
    except Exception as error:  # a storage may raise anything
        log.warning(
            "table %s: file %s cannot be read, and is committed without bounds of text: %s",
            ".".join(table.name()),
            file.file_path,
            error,
        )
        schema = table.metadata.schema()
        others = [i for i in schema.field_ids if not isinstance(schema.find_type(i), StringType | BinaryType)]
        lower, upper = ({i: ends[i] for i in others if i in ends} for ends in (lower, upper))
        return replace(file, lower_bounds=lower, upper_bounds=upper)
    return file if right is None else replace(file, lower_bounds=right.lower, upper_bounds=right.upper)
