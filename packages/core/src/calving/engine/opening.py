"""Opens an engine: the kind of Spark that the settings name; on another thread, while its users do other work, and
again when it is lost.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import TypeVar

from calving.engine.interface import Engine, Function
from calving.engine.registry import Patience
from calving.errors import ConfigError, EngineLostError, NoResourcesError, UnavailableError, UnexpectedError
from calving.importing import IMPORTING
from calving.tasks.spec import TaskResult, TaskSpec
from calving.threads import in_thread

T = TypeVar("T")


class OpeningEngine(Engine):
    """An engine that is opened once: by ``begin``, or by the first call that needs it, which waits. An engine that is
    lost, or could not be reached, is opened again.
    """

    def __init__(self, open_it: Callable[[], Engine], patience: Patience = Patience()) -> None:  # noqa: B008
        self._open, self._patience = open_it, patience.resources
        self._opening: Future[Engine] | None = None
        self._late_at = 0.0
        self._has_started = self._has_worked = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Begin to open the engine, if that has not begun.

        :raises ConfigError: opening has failed: the engine does not start.
        :raises UnavailableError: the engine cannot be reached, or has not started in time: try again.
        """
        opening = self._begun()
        if opening.done():
            self._opened(opening)
        else:
            self._check_time()

    @property
    def slots(self) -> int:
        return self._use(lambda engine: engine.slots)

    def map(self, function: Function, payloads: Sequence[str]) -> list[str]:
        return self._job(lambda engine: engine.map(function, payloads))

    def run(self, tasks: Sequence[TaskSpec]) -> list[TaskResult]:
        return self._job(lambda engine: engine.run(tasks))

    def for_other_jobs(self) -> Engine | None:
        return self._use(lambda engine: engine.for_other_jobs())

    def close(self) -> None:
        """Close the engine. An engine that is still being opened is left alone: it ends with the process."""
        if self._opening is not None and self._opening.done() and self._opening.exception() is None:
            self._opening.result().close()

    def _job(self, job: Callable[[Engine], T]) -> T:
        try:
            answer = self._use(job)
        except NoResourcesError as error:
            if self._has_worked:
                raise
            raise ConfigError(str(error)) from error
        self._has_worked = True
        return answer

    def _use(self, call: Callable[[Engine], T]) -> T:
        opening = self._begun()
        engine = self._opened(opening)
        try:
            return call(engine)
        except EngineLostError:
            with self._lock:
                if self._opening is opening:
                    self._start(partial(self._reopened, engine))
            raise

    def _begun(self) -> Future[Engine]:
        with self._lock:
            return self._opening or self._start(self._try)

    def _start(self, open_it: Callable[[], Engine]) -> Future[Engine]:
        self._late_at = time.monotonic() + self._patience
        self._opening = in_thread("calving-engine", open_it)
        return self._opening

    def _reopened(self, lost: Engine) -> Engine:
        with contextlib.suppress(Exception):  # what it would release is gone
            lost.close()
        return self._try()

    def _try(self) -> Engine:
        try:
            engine = self._open()
        except ConfigError as error:
            if self._has_started:  # the settings were right, but something that they name may have changed since
                raise UnexpectedError(str(error)) from error
            raise
        self._has_started = True
        return engine

    def _opened(self, opening: Future[Engine]) -> Engine:
        while not opening.done():
            wait([opening], max(0.0, self._late_at - time.monotonic()))
            if not opening.done():
                self._check_time()
        try:
            return opening.result()
        except UnavailableError:
            with self._lock:
                if self._opening is opening:
                    self._opening = None
            raise

    def _check_time(self) -> None:
        """:raises UnavailableError: the engine starts late. Opening goes on, and the error returns after the same
        time.
        """
        with self._lock:
            if time.monotonic() < self._late_at:
                return
            self._late_at = time.monotonic() + self._patience
        raise UnavailableError(
            f"the engine has not started for {self._patience:.0f} s (iceberg.engine.resources-timeout-ms): is its"
            " cluster up, and does it have the resources that spark.* asks for?"
        )


def open_spark(name: str, properties: Mapping[str, str], patience: Patience) -> Engine:
    """Spark Connect if ``spark.remote`` is among Spark's properties, otherwise classic Spark.

    :raises ConfigError: Spark does not start.
    """
    # Imported here, because only one kind is needed.
    if "spark.remote" in properties:
        with IMPORTING:
            from calving.engine.connect import ConnectEngine
        return ConnectEngine(name, properties, patience)
    with IMPORTING:
        from calving.engine.classic import ClassicEngine
    return ClassicEngine(name, properties, patience)
