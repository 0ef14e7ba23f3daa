"""The lists of files that only expired snapshots named. They are deleted after ``grace``, because a reader may have
planned on such a snapshot a moment before (K15).

Each list is a file beside the table's metadata, which never changes and names the list before it. A table property of
the sink names the last list. A list is deleted after its files, and those before it.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.table import Table

from calving.errors import TableTroubleError
from calving.iceberg.locations import FileRules
from calving.model.text import printable

EXPIRED_FILES = "calving.expired-files"
"""The table property; the owner's name follows."""
_NAME = re.compile(r"calving-expired-[0-9a-f]+\.json\.z")
_MOST_BYTES = 256 * 1024**2
"""The most bytes of a list, not compressed: it is read whole, and whoever can write to the table may have made it."""
_MOST_FILES = 100_000
"""The most files of a list that is written: with paths of 2 KB each it can be read."""


_MOST_NUMBER = 10**14
"""The largest size in bytes, and the last time, in milliseconds since the epoch: in the year 5138."""
_MOST_PARTS = 1_000_000
"""The most commas and brackets of a list that is read: a path may have some."""
_BYTES_OF_PART = 100
"""What a value of two bytes may take in memory."""
_MOST_TOGETHER = 1024**3
"""The most bytes that the lists of a table take in memory: each leads to the one before it, so all are read."""
_LONGEST_PATH, _LONGEST_SHOWN = 8_192, 300
"""The longest path of a list that is read, in characters, and the longest one in an error."""


@dataclass(frozen=True, slots=True)
class ExpiredFiles:
    """A list. ``files``: their sizes in bytes, by path. ``before``: the location of the list before it. ``expired_ms``:
    when the snapshots expired, in milliseconds since the epoch.
    """

    location: str
    before: str | None
    expired_ms: int
    files: Mapping[str, int]

    def write(self, table: Table) -> None:
        """:raises Exception: whatever the storage raises."""
        said = {"before": self.before, "expired-ms": self.expired_ms, "files": dict(self.files)}
        with table.io.new_output(self.location).create() as out:
            out.write(zlib.compress(json.dumps(said, separators=(",", ":")).encode()))


def made_lists(
    table: Table, names: Callable[[], str], before: str | None, expired_ms: int, files: Mapping[str, int]
) -> list[ExpiredFiles]:
    """Lists of these files, each of which names the one before it; none without files. ``names``: as of
    ``new_location``.
    """
    made: list[ExpiredFiles] = []
    every = list(files.items())
    for start in range(0, len(every), _MOST_FILES):
        last = made[-1].location if made else before
        part = dict(every[start : start + _MOST_FILES])
        made.append(ExpiredFiles(new_location(table, names()), last, expired_ms, part))
    return made


def new_location(table: Table, name: str) -> str:
    """Where a list is written. ``name``: hexadecimal digits."""
    return table.location_provider().new_metadata_location(f"calving-expired-{name}.json.z")


def lists(table: Table, name: str, rules: FileRules) -> list[ExpiredFiles]:
    """The lists of a table, the oldest first. ``name``: that of the property which names the last one.

    :raises TableTroubleError: a list is not one of calving's, or cannot be read; or they are too large together.
    """
    made: dict[str, ExpiredFiles] = {}
    left = _MOST_TOGETHER
    location = table.metadata.properties.get(name)
    while location is not None and location not in made:
        try:
            expired, size = _read(table, location, rules)
            if (left := left - size) < 0:
                raise ValueError(f"with the lists after it, it holds more than {_MOST_TOGETHER:,} bytes")
        except FileNotFoundError:  # its files are deleted, and those of all before it
            break
        except Exception as error:  # whatever is in it, or whatever a storage raises
            shown = printable(location, _LONGEST_SHOWN)
            raise TableTroubleError(
                f"table {'.'.join(table.name())}: the list of expired files {shown}, which property {name} leads to,"
                f" cannot be read ({type(error).__name__}: {error}); remove the property to go on without these files,"
                " which stay as orphan files"
            ) from error
        made[location] = expired
        location = expired.before
    return [*made.values()][::-1]


def _read(table: Table, location: str, rules: FileRules) -> tuple[ExpiredFiles, int]:
    """A list, and about how many bytes it takes in memory."""
    name = location.rpartition("/")[2]
    is_beside = location == table.location_provider().new_metadata_location(name)
    if _NAME.fullmatch(name) is None or (not is_beside and rules.outside(table, [location])):
        raise ValueError("no list of calving's is there")  # whoever changes table properties may name any file
    with table.io.new_input(location).open() as file:
        reader = zlib.decompressobj()
        text = reader.decompress(bytes(file.read(_MOST_BYTES)), _MOST_BYTES)
    if not reader.eof:
        raise ValueError(f"it is cut off, or holds more than {_MOST_BYTES:,} bytes")
    if (parts := text.count(b",") + text.count(b"[") + text.count(b"{")) > _MOST_PARTS:
        raise ValueError(f"it has more than {_MOST_PARTS:,} parts")
    if not text.isascii():
        raise ValueError("it is no ASCII")  # calving writes nothing else, and other characters take four bytes each
    said: dict[str, Any] = json.loads(text)
    before, files = said["before"], {_path(path): _number(size) for path, size in said["files"].items()}
    expired = ExpiredFiles(location, None if before is None else _path(before), _number(said["expired-ms"]), files)
    return expired, len(text) + _BYTES_OF_PART * parts


def _path(value: object) -> str:
    """:raises ValueError: it is no path."""
    if not isinstance(value, str) or len(value) > _LONGEST_PATH:
        raise ValueError(f"a path is no text of at most {_LONGEST_PATH:,} characters")
    return value


def _number(value: object) -> int:
    """:raises ValueError: it is no size and no time."""
    if type(value) is not int or not 0 <= value <= _MOST_NUMBER:
        raise ValueError(f"a size or a time is no whole number from 0 to {_MOST_NUMBER}")
    return value
