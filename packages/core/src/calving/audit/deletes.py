"""Position-delete files and deletion vectors against the specification: version 2's files and version 3's Puffin."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyroaring import BitMap64

from calving.audit.avro import AvroFile, decoding, names_by_id
from calving.audit.content import FILE_PATH, POSITION
from calving.audit.data_files import field_id
from calving.audit.entries import AuditedEntry, file_key
from calving.audit.findings import AuditFinding, FindingKind
from calving.audit.storage import AuditedStore, DamagedFileError

_VECTOR_MAGIC, _PUFFIN_MAGIC = bytes.fromhex("d1d33964"), b"PFA1"
_TRAILER = 12
"""The bytes of a Puffin file after its footer: the footer's size, flags, and the magic bytes."""
_LZ4 = 1
"""The flag of a footer that is compressed."""
_FILES_AT_ONCE = 10_000


class DeleteJudge:
    """Judges delete files by position. Keeps for each the highest position in each data file that it names."""

    def __init__(self, store: AuditedStore) -> None:
        self._store = store
        self.reaches: dict[int, Mapping[int, int]] = {}
        """By the key of a delete: by the key of a data file, the highest position. Both are those of ``file_key``."""

    def judge(self, entry: AuditedEntry) -> Iterator[AuditFinding]:
        """What is wrong with the file in itself."""
        try:
            for text in self._vector(entry) if entry.file_format == "PUFFIN" else self._positions(entry):
                yield AuditFinding(FindingKind.DELETES, entry.path, text)
        except FileNotFoundError:
            return  # which is found for every file
        except DamagedFileError as error:
            yield AuditFinding(FindingKind.DELETES, entry.path, str(error))

    def _vector(self, entry: AuditedEntry) -> Iterator[str]:
        if entry.referenced is None or entry.offset is None or entry.blob_size is None:
            return  # its manifest is wrong, which is found there
        with self._store.open(entry.path) as stream:
            stream.seek(entry.offset)
            positions = vector_positions(bytes(stream.read(entry.blob_size)))
            stream.seek(0)
            blobs = _footer(stream, entry.size)
        if len(positions) != entry.records:
            yield f"the vector of {entry.referenced} has {len(positions)} positions, and its entry {entry.records}"
        blob = next((each for each in blobs if each.get("offset") == entry.offset), None)
        if blob is None:
            yield f"the file's footer has no blob at {entry.offset}"
            return
        said = blob.get("properties", {})
        wanted = {
            "type": (blob.get("type"), "deletion-vector-v1"),
            "length": (blob.get("length"), entry.blob_size),
            "referenced-data-file": (said.get("referenced-data-file"), entry.referenced),
            "cardinality": (said.get("cardinality"), str(len(positions))),
            "compression-codec": (blob.get("compression-codec"), None),
        }
        for name, (found, right) in wanted.items():
            if found != right:
                yield f"the footer says {name} = {found} of the vector at {entry.offset}, and it is {right}"
        self.reaches[entry.key] = {file_key(entry.referenced): int(positions.max())} if len(positions) else {}

    def _positions(self, entry: AuditedEntry) -> Iterator[str]:
        reach: dict[int, int] = {}
        last: tuple[str, int] | None = None
        rows, in_order, foreign = 0, True, None
        with self._store.open(entry.path) as stream:
            for paths, positions in position_columns(entry.file_format, stream):
                rows += len(paths)
                for path, position in zip(paths, positions, strict=True):
                    in_order = in_order and (last is None or last <= (path, position))
                    if last is None or last[0] != path:
                        key = file_key(path)
                    last = path, position
                    reach[key] = max(position, reach.get(key, -1))
                    if position < 0:
                        raise DamagedFileError(f"it names position {position} of {path}")
                    if entry.referenced not in (None, path):
                        foreign = path
        if not in_order:
            yield "its positions are not in order"
        if foreign is not None:
            yield f"its entry says that it is about {entry.referenced} alone, and it names {foreign}"
        self.reaches[entry.key] = reach


def vector_positions(blob: bytes) -> Any:
    """The positions in the blob ``deletion-vector-v1``.

    :raises DamagedFileError: it is none.
    """
    if len(blob) < 12 or int.from_bytes(blob[:4], "big") != len(blob) - 8 or blob[4:8] != _VECTOR_MAGIC:
        raise DamagedFileError("no deletion vector is at the place that its entry names")
    if zlib.crc32(blob[4:-4]) != int.from_bytes(blob[-4:], "big"):
        raise DamagedFileError("the deletion vector's checksum is wrong")
    with decoding():
        return BitMap64.deserialize(blob[8:-4])


def _footer(stream: Any, size: int) -> list[Mapping[str, Any]]:
    """The blobs that the footer of a Puffin file names.

    :raises DamagedFileError: the file has none.
    """
    if bytes(stream.read(4)) != _PUFFIN_MAGIC:
        raise DamagedFileError("it is no Puffin file")
    stream.seek(max(0, size - _TRAILER))
    trailer = bytes(stream.read(_TRAILER))
    length = int.from_bytes(trailer[:4], "little")
    if len(trailer) != _TRAILER or trailer[8:] != _PUFFIN_MAGIC or not 0 < length <= size - _TRAILER - 8:
        raise DamagedFileError("its footer is not at its end")
    stream.seek(size - _TRAILER - length - 4)
    footer = bytes(stream.read(length + 4))
    with decoding():
        if footer[:4] != _PUFFIN_MAGIC:
            raise DamagedFileError("its footer has no beginning")
        said = footer[4:]
        if trailer[4] & _LZ4:
            said = pa.CompressedInputStream(pa.py_buffer(said), "lz4").read()
        return list(json.loads(said)["blobs"])


def position_columns(file_format: str, stream: Any) -> Iterator[tuple[list[str], list[int]]]:
    """Paths and positions, in parts.

    :raises DamagedFileError: the file does not have them.
    """
    if file_format == "AVRO":
        file = AvroFile(stream)
        names = names_by_id(file.schema)
        if not {FILE_PATH, POSITION} <= names.keys():
            raise DamagedFileError("it lacks the columns of position deletes")
        for record in file.records():
            yield [record[names[FILE_PATH]]], [record[names[POSITION]]]
        return
    with decoding():
        table = pq.read_table(stream) if file_format == "PARQUET" else orc.ORCFile(stream).read()
        places = {field_id(field): at for at, field in enumerate(table.schema)}
        if not {FILE_PATH, POSITION} <= places.keys():
            raise DamagedFileError("it lacks the columns of position deletes")
        columns = [table.column(places[each]) for each in (FILE_PATH, POSITION)]
        if any(column.null_count for column in columns):
            raise DamagedFileError("a path or a position is null")
        for start in range(0, table.num_rows, _FILES_AT_ONCE):
            part = [column.slice(start, _FILES_AT_ONCE) for column in columns]
            yield part[0].cast(pa.string()).to_pylist(), part[1].to_pylist()
