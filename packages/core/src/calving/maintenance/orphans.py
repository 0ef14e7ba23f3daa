"""Which files of a table's folders nobody needs: files of attempts that failed, or of processes that were killed (K16).

These decisions are pure; ``orphan_search`` asks the storage, the control logs and the catalog. Whatever is doubtful
stays: a file whose age is unknown, a hidden file, and a file with the same name as one that is needed. Iceberg's names
are unique, so the name alone identifies a file, whatever scheme, host, mount or link leads to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from pyiceberg.table.metadata import TableMetadata

from calving.iceberg.history import summary_of
from calving.iceberg.locations import FileRules
from calving.model.backfills import ended_backfills, is_backfill
from calving.model.files import is_below, one_name
from calving.protocol.ledger_key import LOG_ID, OFFSETS, SOURCE_OFFSETS

_METADATA_PATH = "write.metadata.path"
_HINT = "version-hint.text"
"""The file by which tables without a catalog find their metadata."""
_WITH_BUCKETS = {"s3", "gs", "oss"}
_WITH_ACCOUNTS = {"abfs", "wasb"}
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as the storage lists it. ``modified_ms``: by the storage's clock, in milliseconds since the epoch; None if
    the storage does not tell.
    """

    path: str
    size: int
    modified_ms: int | None


class NamedFiles:
    """Files that something names. A million of them take about 100 MB.

    Only hashes are kept. If two names have one hash, at worst an orphan file stays.
    """

    def __init__(self) -> None:
        self._hashes = {_hash(_HINT)}

    def add(self, paths: Iterable[str]) -> None:
        self._hashes.update(map(_hash, paths))

    def __contains__(self, path: str) -> bool:
        return _hash(path) in self._hashes


def _hash(path: str) -> int:
    return hash(unquote(path.rpartition("/")[2]))


def folders(metadata: TableMetadata, rules: FileRules) -> tuple[str, ...]:
    """The data and metadata folders of a table, none within another."""
    location = metadata.location.rstrip("/")
    given = (f"{location}/data", f"{location}/metadata", metadata.properties.get(_METADATA_PATH))
    every = dict.fromkeys(path.rstrip("/") for path in (*given, *rules.locations(metadata)[1:]) if path)
    places = {path: _place(path) for path in every}
    outer: dict[str, str] = {}
    for path, place in sorted(places.items(), key=lambda each: len(each[1])):
        if not any(place.startswith(other) for other in outer.values()):
            outer[path] = place
    return tuple(outer)


def table_within(own: Collection[str], others: Mapping[str, Collection[str]]) -> str | None:
    """The first of the ``others`` that has files in a folder of this table, or the other way round.

    ``others``: the location of each other table, and then its folders.
    """
    mine = [_place(path) for path in own]
    for name, (location, *inner) in others.items():
        places = [_place(path) for path in (location, *inner)]
        is_inside = any(theirs.startswith(place) for theirs in places for place in mine)
        if is_inside or any(place.startswith(theirs) for theirs in places[1:] for place in mine):
            return name
    return None


def _place(location: str) -> str:
    """A location with a slash at the end. Hosts are left out, because one storage may have several: only names of
    buckets and accounts tell storages apart.
    """
    scheme, _, rest = one_name(location.rstrip("/")).partition("://")
    authority, _, path = rest.partition("/")
    if scheme in _WITH_ACCOUNTS:
        authority = authority.partition(".")[0]  # the service of an account is named after the first dot
    host = authority if scheme in _WITH_BUCKETS | _WITH_ACCOUNTS else ""
    return f"{host}/{path}/" if path else f"{host}/"


@dataclass(frozen=True, slots=True)
class OrphanRule:
    """Which files of a folder may be orphan files: those that were changed before ``before_ms``, and nothing names.

    ``partition_fields``: their folders are not hidden, whatever the first character of their names is.
    """

    before_ms: int
    partition_fields: frozenset[str]

    @staticmethod
    def of(metadata: TableMetadata, now_ms: int, older_than_ms: int) -> OrphanRule:
        fields = frozenset(field.name for spec in metadata.partition_specs for field in spec.fields)
        return OrphanRule(now_ms - older_than_ms, fields)

    def holds(self, file: StoredFile, folder: str, named: NamedFiles) -> bool:
        return (
            file.modified_ms is not None
            and file.modified_ms < self.before_ms
            and file.path not in named
            and is_below(file.path, folder)
            and not self._is_hidden(file.path[len(folder) :])
        )

    def _is_hidden(self, path: str) -> bool:
        """Whether a program such as Hadoop keeps the file for itself."""
        hidden = (step.partition("=") for step in path.split("/") if step.startswith(("_", ".")))
        return any(not equals or name not in self.partition_fields for name, equals, _ in hidden)


def owners(metadata: TableMetadata) -> frozenset[str]:
    """The sinks that have written a table, each as ``<control topic>.<group>``: by the table's properties, and by the
    summaries of its snapshots, because the Java sink writes only these. Backfills that have ended are left out: no file
    of theirs waits for a commit.
    """
    properties = (_without_branch(name, metadata) for name in metadata.properties)
    said = {name for snapshot in metadata.snapshots for name in summary_of(snapshot)}
    prefixes = (OFFSETS, f"{SOURCE_OFFSETS}.")
    return frozenset(
        name.removeprefix(prefix) for name in (*properties, *said) for prefix in prefixes if name.startswith(prefix)
    ) - ended_backfills(metadata.properties)


def _without_branch(name: str, metadata: TableMetadata) -> str:
    before, _, branch = name.rpartition("@")
    return before if before and (branch in metadata.refs or is_backfill(before)) else name


def unread_names(metadata: TableMetadata, logs: Mapping[str, str]) -> str | None:
    """Why the control logs that were read do not name all files that are needed; None if they do.

    ``logs``: the identity of each control log, by its sink.
    """
    if strangers := sorted(owners(metadata) - logs.keys()):
        return (
            f"it is also written by sink {strangers[0]}, whose buffered files only its control log names: give its file"
            " with --other-sink"
        )
    for name, identity in metadata.properties.items():
        owner = _without_branch(name, metadata).removeprefix(f"{LOG_ID}.")
        if logs.get(owner, identity) != identity:
            return (
                f"the control log of sink {owner} was created again since its last commit, and it is unknown which"
                " files the former one named: run `calving recover FILE`, and let the sink commit"
            )
    return None
