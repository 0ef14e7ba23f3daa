"""Decides which files that entries name are added to a table, and which of them are deleted when they are not needed;
and how the files of a table are reached.

Whoever can write to the control log can name any file that the sink's credentials reach. So a file is added only below
a location of its table, and deleted only if the sink has written it, and the table does not need it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from calving.errors import OtherSettingsError, TableTroubleError
from calving.iceberg.manifests import read_entries, read_manifest_list
from calving.model.events import DataWritten, Envelope, TableId
from calving.model.files import DATA, DELETES, KEYS, DataFile, FileContent, is_below_any, one_name, sink_name
from calving.model.text import counted, printable
from calving.protocol.commit import Admitted, Step
from calving.protocol.effects import CommitTables

log = logging.getLogger(__name__)

ALLOWED = "iceberg.tables.allowed-locations"
_PROPERTIES = ("write.data.path", "write.object-storage.path", "write.folder-storage.path")
"""The table properties that name a place of data files. The last two are older names of the first."""
_LONGEST = 300
"""The longest path in a sentence, in characters."""
_FORMER = 20
"""How many former states of a table are searched for former locations."""
_OF_CATALOGS = ("uri", "token", "credential", "scope", "audience", "resource")
_OF_CATALOGS_FROM = ("auth.", "oauth2-", "header.", "rest.", "ssl.", "glue.", "hive.")
"""The prefixes of keys with a catalog's address and logins."""


@dataclass(frozen=True, slots=True)
class FileRules:
    """Where files of tables may be. ``allowed``: locations besides the tables' own. ``write_properties``: the table
    properties that the sink overrides when it writes.
    """

    allowed: tuple[str, ...] = ()
    write_properties: Mapping[str, str] = field(default_factory=dict)

    def locations(self, metadata: TableMetadata) -> tuple[str, ...]:
        """The locations of this table, first its own one."""
        properties = {**metadata.properties, **self.write_properties}
        given = (*(properties.get(name) for name in _PROPERTIES), *map(metadata.properties.get, _PROPERTIES))
        return (metadata.location, *dict.fromkeys(path for path in given if path))

    def folder(self, metadata: TableMetadata) -> str:
        """The folder of the data files that the sink writes for this table."""
        path = {**metadata.properties, **self.write_properties}.get(_PROPERTIES[0])
        return path.rstrip("/") if path else f"{metadata.location.rstrip('/')}/data"

    def check(self, table: Table, admitted: Admitted, entries: Iterable[Envelope]) -> None:
        """Refuse files elsewhere, and files of a partition spec that the table does not have, or has with other fields
        since somebody has removed it. ``entries`` name the files.

        :raises TableTroubleError: a file must not be added; nothing of the commit is.
        """
        name, specs = ".".join(table.name()), table.metadata.specs()
        files = (*admitted.data_files, *admitted.delete_files)
        unknown = next((file for file in files if not has_spec(file, specs)), None)
        if unknown is not None:
            how = " with the fields of this file" if unknown.spec_id in specs else ""
            raise TableTroubleError(
                f"table {name}: {_origin(entries, unknown.file_path)} of partition spec {unknown.spec_id}, which the"
                f" table does not have{how}, and nothing is committed; if somebody else writes to the control log,"
                f" discard what the entry names: `calving release FILE --table {name} --record OUT`"
            )
        if outside := self.outside(table, (file.file_path for file in files)):
            more = f" (and {len(outside) - 1} more)" if len(outside) > 1 else ""
            raise TableTroubleError(
                f"table {name}: {_origin(entries, outside[0])}{more} outside the table's location"
                f" {table.metadata.location}, and nothing is committed. If a worker of this sink has written it there,"
                f" add its location to {ALLOWED}; if somebody else writes to the control log, discard what the entry"
                f" names: `calving release FILE --table {name} --record OUT`"
            )

    def outside(self, table: Table, paths: Iterable[str]) -> list[str]:
        """Those of the files that are outside the locations of the table, now and in its last states."""
        known = (*self.locations(table.metadata), *self.allowed)
        strangers = [path for path in paths if not is_below_any(path, known)]
        former = tuple(self._former(table)) if strangers else ()
        return [path for path in strangers if not is_below_any(path, former)]

    def _former(self, table: Table) -> Iterator[str]:
        """The locations of the table's last former states: a file may have been written before a location changed."""
        for entry in islice(reversed(table.metadata.metadata_log), _FORMER):
            try:
                before = FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
            except Exception as error:  # it may be deleted, and a storage may raise anything
                log.debug("former metadata %s cannot be read: %s", entry.metadata_file, error)
                continue
            yield from self.locations(before)

    def deletable(
        self, table: Table, steps: Collection[Step], unused: Collection[str], live: Collection[str]
    ) -> frozenset[str]:
        """Those of the ``unused`` files of a commit that may be deleted: by place and name a sink has written them for
        these ``steps``, and the branch does not need them. ``live``: data files of the branch's head. Delete files are
        kept that the head of any branch or tag names.
        """
        locations = self.locations(table.metadata)
        names = {path: name for path in unused if is_below_any(path, locations) and (name := sink_name(path))}
        # A key file is deleted after its commit. So if there still is one, the data files of its writer are new, too.
        said = [sink_name(file.file_path) for step in steps for file in step.delete_files]
        new = {name.writer for name in said if name is not None and name.kind == KEYS}
        paths = {path for path, name in names.items() if name.kind == KEYS}
        if gone := {path for path, name in names.items() if name.kind == DATA and name.writer in new}:
            paths |= _without(gone, live)
        if kept := {path for path, name in names.items() if name.kind == DELETES}:
            paths |= _without(kept, _delete_files(table))
        return frozenset(paths)


def has_spec(file: DataFile, specs: Mapping[int, PartitionSpec]) -> bool:
    """Whether the table has the file's spec. A key file has no partition, whatever spec it names."""
    spec = specs.get(file.spec_id)
    own = [each.field_id for each in file.partition.fields]
    return spec is not None and (file.content is not FileContent.DATA or own == [each.field_id for each in spec.fields])


OWN_LOCATIONS = FileRules()
"""Files may be below the tables' own locations only."""


def refuse_other_settings(table: TableId, group: str, deletes: Collection[DataFile], *, changes_rows: bool) -> None:
    """``changes_rows``: whether the settings of this worker's ``group`` have rows of the table deleted by key.

    :raises OtherSettingsError: these files delete rows in a way that the settings do not commit.
    """
    if not deletes:
        return
    name = ".".join(table)
    if not changes_rows:
        raise OtherSettingsError(
            f"table {name}: {_deleting(deletes)} by key, but this worker's settings append to the table:"
            f" {_others(group)}"
        )
    if not all(file.content is FileContent.EQUALITY_DELETES for file in deletes):
        raise OtherSettingsError(
            f"table {name}: {_deleting(deletes)} by position, but this worker's settings delete rows by key: another"
            f" sink wrote the files. Let that sink commit them, or discard them: `calving release FILE --table {name}`"
        )


def refuse_disputed(
    request: CommitTables, table: TableId, group: str, entries: Collection[Envelope], branch: str
) -> None:
    """``branch``: where this worker's ``group`` commits the table, by its settings.

    :raises OtherSettingsError: workers commit the table to different branches or change its rows in different ways, or
        did when they wrote the files and may still do. Once all of them agree, the files are committed.
    """
    others = sorted({entry.branch for entry in entries if entry.branch not in (None, branch)})
    if not entries or (table not in request.disputed and (request.heard_all or not others)):
        return
    written = f", and files were written for branch '{printable(others[0], _LONGEST)}'" if others else ""
    raise OtherSettingsError(
        f"table {'.'.join(table)}: this worker commits it to branch '{branch}'{written}; another worker may have other"
        f" settings for its branch, or for how its rows change. Its files wait until all workers of group {group} have"
        " the same ones. If two sinks have this group, give each a name of its own"
    )


def refuse_other_order(table: TableId, group: str, deletes: Collection[DataFile], order: Collection[int]) -> None:
    """``order``: the id of the column that orders the changes of a key by the settings of this worker's ``group``; none
    without such a column.

    :raises OtherSettingsError: these key files have the values of another such column, or of none. Without the value of
        a change nobody knows whether it wins.
    """
    for file in deletes:
        ids = {*(file.equality_ids or ())}
        others = None if not file.value_counts else file.value_counts.keys() - ids  # None: nobody has counted them
        if others not in (None, {*order} - ids):
            raise OtherSettingsError(
                f"table {'.'.join(table)}: {_deleting(deletes)} by key, and this worker's settings have another"
                f" order-field: {_others(group)}"
            )


def refuse_other_parking(table: TableId, group: str, held_back: Collection[Envelope]) -> None:
    """``held_back``: what these settings of a worker of ``group`` hold back of a parked commit.

    :raises OtherSettingsError: there is something. It was parked by settings that hold nothing back, and is in no
        buffer in which it could wait.
    """
    if held_back:
        raise OtherSettingsError(
            f"table {'.'.join(table)}: {counted(len(held_back), 'parked entry comes', 'parked entries come')} before"
            f" earlier records, and this worker's settings change rows in their order: {_others(group)}"
        )


def _others(group: str) -> str:
    return (
        f"the files were written with other settings. If two sinks have the group {group}, give each a name of its own."
        " If the settings were changed, let a worker with the former ones lead until it has committed the files"
    )


def _deleting(files: Collection[DataFile]) -> str:
    return f"{counted(len(files), 'file')} for it {'deletes' if len(files) == 1 else 'delete'} rows"


def _without(paths: Iterable[str], needed: Iterable[str]) -> set[str]:
    """The paths without those of the ``needed`` files, which an entry may name in another way."""
    names = set(map(one_name, needed))
    return {path for path in paths if one_name(path) not in names}


def _origin(entries: Iterable[Envelope], path: str) -> str:
    """Which entry names a file, for a sentence."""
    where = "an entry of the control log"
    for entry in entries:
        event = entry.event
        if isinstance(event, DataWritten) and path in {f.file_path for f in event.files}:
            sender = f" of sender '{entry.sender}'" if entry.sender else ""
            where = f"the entry{sender} at partition {entry.partition}, offset {entry.offset} of the control log"
            break
    return f"{where} names file {printable(path, _LONGEST)}"


def _delete_files(table: Table) -> Iterator[str]:
    """The paths of the delete files that the heads of branches and tags name."""
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    snapshots = (snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id in heads)
    known: set[str] = set()
    for manifest in chain.from_iterable(read_manifest_list(table.io, each.manifest_list) for each in snapshots):
        if manifest.content == ManifestContent.DELETES and manifest.manifest_path not in known:
            known.add(manifest.manifest_path)
            yield from (entry.data_file.file_path for entry in read_entries(table.io, manifest))


def delete_orphans(io: FileIO, paths: Iterable[str]) -> None:
    """Delete files, ignoring errors. A file that is not deleted is an orphan: it takes space, but does no other
    harm.
    """
    for path in paths:
        with contextlib.suppress(Exception):
            io.delete(path)


def carried(io: FileIO) -> dict[str, str]:
    """The properties that are needed to reach the storage, as text. They include the catalog's address and logins only
    if the catalog signs each request to the storage.
    """
    # A REST catalog adds its authenticator to the properties, which cannot be sent to a task.
    properties = {name: str(setting) for name, setting in io.properties.items() if isinstance(setting, str | int)}
    return (
        properties
        if "s3.signer" in properties
        else {name: text for name, text in properties.items() if not _is_catalogs(name)}
    )


def _is_catalogs(name: str) -> bool:
    return name in _OF_CATALOGS or name.startswith(_OF_CATALOGS_FROM)
