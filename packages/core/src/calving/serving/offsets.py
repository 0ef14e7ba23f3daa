"""The endpoints with which an operator stops a sink, and moves its positions, as in Kafka Connect from 3.6 on. These
wait for the broker, the backend and the catalog, each on a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from calving.errors import CalvingError, CommandFailedError, ConfigError, DataLossError
from calving.model.events import TargetState
from calving.model.offsets import SourceOffsets, TopicPartition
from calving.serving import connect
from calving.serving.access import error
from calving.serving.bodies import json_body

PATIENCE = "calving.patience"
"""In the state of a request: a call that lets the connection wait longer for the answer. Whoever asks has the token."""


class PositionControl(Protocol):
    """What an operator does with the sink's state and its positions. Each method raises CalvingError."""

    def tell(self, state: TargetState) -> None:
        """Let all workers of the sink have this state, also after a restart."""

    def stored(self) -> SourceOffsets:
        """The stored positions of all partitions."""

    def move(self, to: Mapping[TopicPartition, int | None] | None) -> Sequence[str]:
        """Move positions of the stopped sink, or all to the beginnings; one sentence for each thing that it means. A
        partition without an offset goes to its beginning, like one that is new.
        """


class SinkStates:
    """``is_stopped``: whether the sink was stopped, and this worker has left the group."""

    def __init__(self, name: str, control: PositionControl, is_stopped: Callable[[], bool]) -> None:
        self._name, self._control, self._is_stopped = name, control, is_stopped
        # Other answers wait for the interpreter alone. These may wait for services, so they have threads of their own.
        self._changes, self._looks = CapacityLimiter(1), CapacityLimiter(1)

    async def stop(self, request: Request) -> Response:
        return await self._done(request, lambda: self._tell(TargetState.STOPPED, 204))

    async def run(self, request: Request) -> Response:
        """Let a stopped sink run again."""
        return await self._done(request, lambda: self._tell(TargetState.RUNNING, 202))

    async def stored(self, request: Request) -> Response:
        return await self._answered(lambda: JSONResponse(connect.offsets_of(self._control.stored())), self._looks)

    async def alter(self, request: Request) -> Response:
        try:
            wanted = connect.altered(await json_body(request))
        except ValueError as wrong:
            return error(400, str(wrong))
        return self._refusal() or await self._done(request, lambda: self._moved(wanted, "altered"))

    async def reset(self, request: Request) -> Response:
        return self._refusal() or await self._done(request, lambda: self._moved(None, "reset"))

    def _tell(self, state: TargetState, code: int) -> Response:
        self._control.tell(state)
        return Response(status_code=code)

    def _moved(self, to: Mapping[TopicPartition, int | None] | None, done: str) -> Response:
        lines = self._control.move(to)
        text = f"The offsets for this connector have been {done} successfully"
        return JSONResponse({"message": text, "calving": list(lines)})

    def _refusal(self) -> Response | None:
        if self._is_stopped():
            return None
        return error(
            409,
            "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the"
            f" specified connector by issuing a 'PUT' request to the '/connectors/{self._name}/stop' endpoint",
        )

    async def _done(self, request: Request, act: Callable[[], Response]) -> Response:
        """The answer to a change, however long it takes."""
        request.scope["state"][PATIENCE]()
        return await self._answered(act)

    async def _answered(self, act: Callable[[], Response], limiter: CapacityLimiter | None = None) -> Response:
        try:
            return await to_thread.run_sync(act, limiter=limiter or self._changes)
        except CalvingError as failure:
            return error(_code(failure), str(failure))


def _code(failure: CalvingError) -> int:
    if isinstance(failure, ConfigError):
        return 400
    return 409 if isinstance(failure, CommandFailedError | DataLossError) else 503
