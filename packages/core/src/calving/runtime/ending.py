"""Reports the end of a worker that ends with an error in the control log, for those who look at the sink later."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import time
from uuid import uuid4

from calving.backend.interface import Backend
from calving.errors import BadRecordError, CalvingError, first_line
from calving.model.events import WorkerEnd
from calving.model.text import printable
from calving.runtime import components
from calving.secrets import without_secrets
from calving.settings.load import Sink
from calving.source.interface import Source
from calving.threads import within

log = logging.getLogger(__name__)

_SECONDS = 10.0
_PLACE = re.compile(r".*?topic '[^']*', partition \d+, offset \d+(?=:)|table [^:]*, column '[^':]*'(?=:)")
"""A bad record's place in an error, or the column of bad records. The reason after it may show a value."""
_LONGEST = 500
"""The longest reported error, in characters."""


def report_end(sink: Sink, backend: Backend, topics: Source, member: str, error: BaseException) -> None:
    """Write down why this worker ends, if the control log takes it within 10 s. Raises nothing."""
    text = _text(sink, error)
    try:
        within(_SECONDS, "calving-ending", lambda: _write(sink, backend, topics, member, text))
    except Exception as failure:  # whoever looks at the sink later sees less, and the worker's own error counts
        log.info("the control log does not tell why this worker ends: %s: %s", type(failure).__name__, failure)


def _write(sink: Sink, backend: Backend, topics: Source, member: str, text: str) -> None:
    # Imported here: most workers end without an error.
    from calving.runtime.preflight import held, own_tables, refuse_reused_offsets, routed_tables
    from calving.version import __version__

    catalog = components.catalog(sink)
    with contextlib.closing(backend.open(str(uuid4()))) as session:
        with contextlib.closing(session.watch()) as cursor:
            control = cursor.log
        # B3: a log that lost its end must not grow. Otherwise it would reach the offsets that tables have seen, and no
        # start would notice the loss any more.
        routed = routed_tables(catalog, sink, {tp.topic for tp in topics.partitions()}).all()
        tables = dict(held(catalog, sink, control.identity, [*own_tables(sink), *routed]))
        refuse_reused_offsets(sink, control, tables)
        session.report_end(WorkerEnd(__version__, time.time_ns() // 1_000_000, member, socket.gethostname(), text))


def _text(sink: Sink, error: BaseException) -> str:
    """The error as one line of printable text, without values of records, or secrets of the sink's settings."""
    text = first_line(error)
    if isinstance(error, BadRecordError):
        place = _PLACE.match(text)
        text = f"{place[0] if place else 'some records'}: a bad record; the worker's log has the reason"
    if not isinstance(error, CalvingError):
        text = f"{type(error).__name__}: {text}"
    backend = {name: str(value) for name, value in sink.backend_settings.model_dump(by_alias=True).items()}
    for settings in (sink.kafka, sink.control_kafka, sink.catalog, sink.spark, backend):
        text = without_secrets(text, settings)
    text = printable(text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
