"""Which files only the control logs of sinks name: those of uncommitted entries and of parked commits."""

from __future__ import annotations

from contextlib import closing

from calving.backend.interface import Session
from calving.backend.sessions import read_to_end
from calving.errors import TableTroubleError
from calving.iceberg.parking import Parking
from calving.model.events import DataWritten, Envelope
from calving.model.files import one_name
from calving.protocol.buffer import Buffer


def files_of_log(session: Session, parking: Parking) -> frozenset[str]:
    """The files that a control log names from the saved position to its end, each as ``one_name``. Those of
    publications that have not ended are among them, and those of parked commits, and these files themselves.

    :raises UnavailableError: the store gives no answer.
    :raises TableTroubleError: an entry or a parked commit cannot be read, so it is unknown what it names.
    """
    with closing(session.watch()) as cursor:
        start, files = cursor.log.start, set[str]()
        buffer = Buffer(start)
        for entry in read_to_end(cursor):
            if entry.offset >= start.get(entry.partition, 0):
                files |= _files_of(entry)
                buffer.hear(entry)
        if cursor.unreadable:
            raise TableTroubleError(cursor.unreadable[-1])
    for table, parked in buffer.parked.items():
        for commit in parking.commits(table, parked):
            files |= {one_name(location) for location in commit.files}
            files = files.union(*map(_files_of, commit.entries))
    return frozenset(files)


def _files_of(entry: Envelope) -> set[str]:
    event = entry.event
    return {one_name(file.file_path) for file in event.files} if isinstance(event, DataWritten) else set()
