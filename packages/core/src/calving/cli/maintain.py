"""Maintains the tables of a sink in this process: once, or until it is stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain

from calving.engine.opening import OpeningEngine
from calving.errors import CalvingError, CommandFailedError
from calving.model.text import counted
from calving.mutations.cache import KeyCache
from calving.mutations.lookup import Tasks
from calving.retries import Retries
from calving.runtime import components
from calving.runtime.maintenance.maintainer import Maintainer, MaintenanceOrder, Run
from calving.runtime.maintenance.means import Means
from calving.runtime.maintenance.step import MaintenanceStep, failed
from calving.runtime.maintenance.watch import continuous
from calving.settings.load import Sink

log = logging.getLogger(__name__)


def maintain(sink: Sink, order: MaintenanceOrder, now_ms: int, holder: str) -> Iterator[MaintenanceStep]:
    """Do the tasks once. An error of a table is a step, and the other tables go on.

    The command may be run at any time, several times at once, and again after an interruption.

    :raises ConfigError: a table does not exist, or is only appended to and has no deletes.
    :raises CommandFailedError: a step failed. The commits made so far stay.
    """
    failures = 0
    with _maintainer(sink, order, holder) as maintainer, maintainer.round(now_ms) as run:
        names, unclear = maintainer.tables()
        for step in chain(unclear, *(_contained(name, run) for name in names)):
            failures += step.outcome == "failed"
            yield step
    if failures:
        raise CommandFailedError(f"{counted(failures, 'step')} failed, as said above; nothing is lost, run it again")


def watch(sink: Sink, order: MaintenanceOrder, holder: str, stop: threading.Event) -> Iterator[MaintenanceStep]:
    """Do the tasks again and again, until ``stop`` is set, as ``continuous`` does.

    :raises GaveUpError: errors that do not pass have been retried for too long, and nothing has succeeded in between.
    :raises ConfigError: a table does not exist, or is only appended to and has no deletes.
    """
    with _maintainer(sink, order, holder) as maintainer:
        tables = partial(_tables, maintainer)
        yield from continuous(maintainer, tables, stop.wait, Retries(sink.keys.retry_seconds))


@contextmanager
def _maintainer(sink: Sink, order: MaintenanceOrder, holder: str) -> Iterator[Maintainer]:
    cache = KeyCache(sink.keys.key_cache_bytes)
    with closing(OpeningEngine(lambda: components.engine(sink), sink.patience)) as engine:
        means = Means(components.catalog(sink), lambda: cache, lambda: _tasks(engine))
        yield Maintainer(sink, order, holder, means)


def _tables(maintainer: Maintainer) -> list[str]:
    """The tables to maintain now. The log names those of which nobody can tell."""
    names, unclear = maintainer.tables()
    for step in unclear:
        log.warning("%s; the other tables are maintained", step.line())
    return names


def _tasks(engine: OpeningEngine) -> Tasks | None:
    """The engine; None if its tasks would run in this process, or if it does not start."""
    try:
        return engine.for_other_jobs()
    except CalvingError as error:
        log.warning("all data files are searched in this process, because the engine does not start: %s", error)
        return None


def _contained(name: str, run: Run) -> Iterator[MaintenanceStep]:
    """The steps of a table; an error is the last of them."""
    try:
        yield from run(name)
    except Exception as error:  # a catalog or a storage may raise anything
        yield failed(name, error)
