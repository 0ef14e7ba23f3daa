"""What a task tells the commit: the files that it has written (S3)."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import uuid4

from pyiceberg.io import FileIO
from pyspark.sql.datasource import WriterCommitMessage

from calving.errors import ProtocolError
from calving.model.files import DataFile
from calving.tasks.spec import TaskResult

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""The properties by which the tasks of a stream know their query and their batch."""
MOST_BYTES = 1024 * 1024
"""The most bytes of the files' entries in a message; more go into a file."""
_NAME = "calving-files-{}.json.z"


@dataclass
class WrittenFiles(WriterCommitMessage):
    """The message of one task. ``query``: the id of the streaming query; None in a batch job. ``entries``: the data
    files as JSON; None if they are in the file ``path``.
    """

    query: str | None
    batch: str | None
    uuid: str
    rows: int
    entries: str | None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """The place of a task: its query and its batch, which streams have, and its partition."""

    query: str | None
    batch: str | None
    partition: int


class TaskFiles(NamedTuple):
    """The files of a task: those of the table, and if they change rows, key files. ``deletes``: files with the keys
    alone that are deleted, and their order.
    """

    files: list[DataFile]
    deletes: list[DataFile]

    @property
    def rows(self) -> int:
        """The rows of all."""
        return sum(file.record_count for file in (*self.files, *self.deletes))


def packed(place: TaskPlace, uuid: str, written: TaskFiles, folder: str, io: FileIO) -> WrittenFiles:
    """The message about these files. ``folder``: for a file with the entries, if there are many."""
    rows, text = written.rows, TaskResult(place.partition, files=written._asdict()).to_json()
    if len(text) <= MOST_BYTES:
        return WrittenFiles(place.query, place.batch, uuid, rows, text)
    path = f"{folder.rstrip('/')}/{_NAME.format(uuid4())}"
    with io.new_output(path).create() as out:
        out.write(zlib.compress(text.encode()))
    return WrittenFiles(place.query, place.batch, uuid, rows, None, path)


def unpacked(message: WrittenFiles, table: str, io: FileIO | None) -> TaskFiles:
    """The files of a message.

    :raises ProtocolError: they do not hold the rows that the task has written.
    """
    text = message.entries
    if text is None and message.path is not None and io is not None:
        with io.new_input(message.path).open() as file:
            text = zlib.decompress(file.read()).decode()
    found = TaskFiles(**TaskResult.from_json(text).files) if text is not None else TaskFiles([], [])
    if found.rows != message.rows:
        raise ProtocolError(
            f"table {table}: a task's message does not name all its rows: report this as a bug in calving"
        )
    return found


def of_one_batch(messages: Sequence[WriterCommitMessage | None], what: str) -> list[WrittenFiles]:
    """The messages, which are of one query, one batch and one table (S8).

    :raises ProtocolError: they are not.
    """
    found = [message for message in messages if isinstance(message, WrittenFiles)]
    places = {(message.query, message.batch, message.uuid) for message in found}
    if len(found) < len(messages) or len(places) > 1:
        raise ProtocolError(
            f"{what}: {len(messages) - len(found)} tasks sent no message of calving, and the others name {len(places)}"
            " batches or tables: nothing was committed; is calving of one version on every host?"
        )
    return found
