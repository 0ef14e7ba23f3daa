"""The public API: the names that ``import calving`` provides. No other module of the package imports this one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from calving.cli.inspect import validate as _validate
from calving.errors import CalvingError
from calving.runtime.app import App, Progress
from calving.settings.files import flat
from calving.settings.load import Sink, parse
from calving.settings.load import load as _load


def load(path: str | Path, worker: str | Path | None = None) -> Sink:
    """Read a sink's configuration: TOML, Kafka Connect JSON or ``.properties``, by the file's suffix.

    ``worker`` is the properties file of the Kafka Connect worker on which the connector ran. Only these files are read:
    no broker and no catalog is contacted.

    :raises ConfigError: the file cannot be read, or a key is wrong; the text names it.
    """
    return _load(Path(path), None if worker is None else Path(worker))


def build(settings: Mapping[str, Any]) -> Sink:
    """A sink from settings in the program, with the keys of the configuration file.

    Keys may be flat (``{"iceberg.tables": "db.t"}``) or nested as in TOML (``{"iceberg": {"tables": "db.t"}}``).
    Values are text, numbers, booleans, or lists of these.

    :raises ConfigError: a key is wrong; the text names it.
    """
    return parse(flat(settings))


def validate(sink: Sink) -> list[str]:
    """Check everything that the settings refer to: topics, backend, catalog, tables. Returns a line for each passed
    check.

    Creates the control topic if it is missing. A REST catalog that cannot stage a table creates an empty one, which is
    dropped at once.

    :raises ConfigError: the settings, or a service they refer to, must be changed; the text names it.
    :raises CalvingError: a service cannot be reached now; try again later.
    """
    return list(_validate(sink))


class Worker:
    """One worker of a sink, in this process.

    Several workers of one sink share its partitions, in one process or in many; one of them commits. A worker runs only
    once: make another worker to run again.

    Either ``run`` it in this thread, which blocks, or ``start`` it in a separate thread::

        with calving.Worker(sink) as worker:          # starts here, stops cleanly at the end
            while worker.progress.committed_records < 1_000:
                worker.join(0.5)
    """

    def __init__(self, sink: Sink) -> None:
        """Contacts nothing. Errors are raised by ``run``, or by ``join`` and ``stop`` after ``start``."""
        self._app = App(sink)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def run(self, *, until_caught_up: bool = False, on_progress: Callable[[Progress], None] | None = None) -> None:
        """Work until ``stop`` is called or, with ``until_caught_up``, until every record now in the topics is
        committed.

        ``on_progress`` is called in this thread, a few times a second. An exception in ``on_progress`` ends the worker.

        :raises CalvingError: an operator has to act; the text says how. The worker retries temporary failures itself.
        """
        self._app.run(until_caught_up=until_caught_up, on_progress=on_progress)

    def start(self, *, until_caught_up: bool = False) -> None:
        """``run`` in a separate thread. ``join`` and ``stop`` raise the errors of that thread."""
        if self._thread is not None:
            raise RuntimeError("this worker was started before: make another one")

        def work() -> None:
            try:
                self.run(until_caught_up=until_caught_up)
            except CalvingError as error:
                self._error = error

        self._thread = threading.Thread(target=work, name="calving-worker", daemon=True)
        self._thread.start()

    def join(self, seconds: float | None = None) -> bool:
        """Wait for the thread, at most ``seconds``; true if it has ended.

        :raises CalvingError: the worker has ended with this error.
        """
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                return False
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        """Stop cleanly, after the running batch is published. ``iceberg.stop-timeout-ms`` bounds the wait.

        :raises CalvingError: the worker has ended with this error.
        """
        self._app.stop()
        self.join()

    @property
    def progress(self) -> Progress:
        """The worker's totals since it started, and its present lag, as an immutable value."""
        return self._app.progress

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._app.stop()
        if kind is None:
            self.join()
        elif self._thread is not None:
            self._thread.join()  # an error raised here would hide the caller's
