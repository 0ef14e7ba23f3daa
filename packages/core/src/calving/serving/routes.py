"""The endpoints. Each answers from the status alone, but those that stop a sink and move its positions; no other waits
for a broker, a catalog or Spark. The page, and the page for those who are on call, load nothing from elsewhere.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from calving.serving import connect, views
from calving.serving.access import Access, Guard, error
from calving.serving.bodies import is_text, json_body
from calving.serving.history import Events, History
from calving.serving.metrics import exposition
from calving.serving.offsets import PositionControl, SinkStates
from calving.serving.pages import on_call, page
from calving.settings.load import Sink
from calving.status.health import not_ready
from calving.status.remedies import Trouble
from calving.status.values import Status


class Controls(Protocol):
    @property
    def status(self) -> Status:
        """All that the worker knows now."""

    def stopped_loops(self) -> Mapping[str, float]:
        """Loops whose last step ended longer ago than three times their longest step, each with the seconds since
        then.
        """

    def pause(self) -> None:
        """Start no more batches; answer the coordinator with the finished batches."""

    def resume(self) -> None:
        """Go on after a pause."""

    def restart(self) -> None:
        """Start over from the stored positions, as after an error."""

    def commit(self) -> bool:
        """Start a commit cycle now. Returns false if this worker does not lead."""

    @property
    def control(self) -> PositionControl:
        """What an operator does with the state of the whole sink, and with its positions."""

    @property
    def is_stopped(self) -> bool:
        """Whether the sink was stopped, as far as this worker knows."""


Handler = Callable[[Request], Response]
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_MOST_KEYS = 5_000
"""Keys of a configuration that is validated."""


class Endpoints:
    def __init__(
        self, sink: Sink, controls: Controls, history: History, events: Events, address: str, advertised: str
    ) -> None:
        """``address`` is the worker's id in Kafka Connect's answers: host and port. ``advertised`` is the server's URL
        for others.
        """
        self._sink, self._controls, self._history, self._address = sink, controls, history, address
        self._events = events
        self._access = Access(sink.keys, advertised)
        self._expose = exposition(lambda: controls.status)
        self._states = SinkStates(sink.keys.name, controls.control, lambda: controls.status.worker.stopped)

    def app(self) -> Starlette:
        name = "/connectors/{name}"
        routes = [
            Route("/", self._root),
            Route("/on-call", lambda r: on_call()),
            Route("/metrics", self._metrics),
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/connectors", self._connectors),
            Route("/connector-plugins", lambda r: JSONResponse(connect.plugins(self._status.sink.version))),
            Route(f"/connector-plugins/{connect.PLUGIN}/config/validate", self._validate, methods=["PUT"]),
            Route(name, self._of_sink(self._info)),
            Route(f"{name}/status", self._of_sink(self._state)),
            Route(f"{name}/config", self._of_sink(lambda: dict(self._sink.given))),
            Route(
                f"{name}/tasks", self._of_sink(lambda: [{"id": each, "config": {}} for each in self._info()["tasks"]])
            ),
            Route(f"{name}/tasks/0/status", self._task),
            Route(f"{name}/topics", self._of_sink(self._topics)),
            Route(f"{name}/offsets", self._offsets, methods=["GET", "PATCH", "DELETE"]),
            Route(f"{name}/stop", self._change(self._states.stop), methods=["PUT"]),
            Route(f"{name}/pause", self._change(self._pause), methods=["PUT"]),
            Route(f"{name}/resume", self._change(self._resume), methods=["PUT"]),
            Route(f"{name}/restart", self._act(self._restart), methods=["POST"]),
            Route(f"{name}/commit", self._act(self._commit), methods=["POST"]),
            Route("/api/status", self._json(self._overview)),
            Route("/api/tables", self._json(lambda status, now: views.tables(status, now))),
            Route("/api/tables/{table:path}", self._table),
            Route("/api/partitions", self._json(views.partitions)),
            Route("/api/partitions/{topic}/{partition:int}", self._partition),
            Route("/api/events", self._json(lambda status, now: views.events(self._events))),
            Route("/api/commits", self._json(lambda status, now: views.commits(status))),
            Route("/api/history", self._charts),
            Route("/admin/loggers/{logger:path}", self._logger, methods=["GET", "PUT"]),
        ]
        application = Starlette(
            routes=routes,
            middleware=[Middleware(Guard, access=self._access), Middleware(_Paths)],
            exception_handlers={HTTPException: _refused, Exception: _failed},
        )
        application.router.redirect_slashes = False
        return application

    @property
    def _status(self) -> Any:
        return self._controls.status

    @property
    def _name(self) -> str:
        return self._sink.keys.name

    def _json(self, view: Callable[[Any, float], Any]) -> Handler:
        return lambda request: JSONResponse(view(self._status, time.time()))

    def _overview(self, status: Status, now: float) -> views.Json:
        return views.overview(status, now, with_values=self._sink.keys.http_show_values)

    def _info(self) -> connect.Json:
        return connect.info(self._sink, self._status)

    def _tasks(self) -> Sequence[connect.Json]:
        found: Sequence[connect.Json] = self._info()["tasks"]
        return found

    def _state(self) -> connect.Json:
        stopped = self._controls.stopped_loops()
        return connect.state(self._status, stopped, self._address, time.time())

    def _root(self, request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return page()
        return JSONResponse(connect.worker(self._status))

    def _metrics(self, request: Request) -> Response:
        text, media_type = self._expose(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": media_type})

    # The two probes are answered at once; all other requests wait for each other.
    async def _healthz(self, request: Request) -> Response:
        stopped = self._controls.stopped_loops()
        reasons = [f"the loop of the {loop} stands still for {s:.0f} s" for loop, s in stopped.items()]
        return self._answer(request, reasons, Trouble.LOOP_STOPPED)

    async def _readyz(self, request: Request) -> Response:
        return self._answer(request, list(not_ready(self._status)), Trouble.NOT_READY)

    def _answer(self, request: Request, reasons: list[str], trouble: Trouble) -> Response:
        """The answer to a probe. Without the token it has no reasons, in which errors may be."""
        if not reasons:
            return JSONResponse({"status": "ok", "reasons": []})
        shown = reasons if self._access.may_read(request.headers) else []
        return JSONResponse({"status": "unavailable", "reasons": shown, **connect.remedy(trouble)}, 503)

    def _connectors(self, request: Request) -> Response:
        expand = request.query_params.getlist("expand")
        if not expand:
            return JSONResponse([self._name])
        parts: Mapping[str, Callable[[], Any]] = {"status": self._state, "info": self._info}
        return JSONResponse({self._name: {part: parts[part]() for part in parts if part in expand}})

    def _topics(self) -> connect.Json:
        topics = sorted({tp.topic for tp in self._status.worker.partitions})
        return {self._name: {"topics": topics}}

    def _of_sink(self, view: Callable[[], Any]) -> Handler:
        return lambda request: self._unknown(request) or JSONResponse(view())

    def _act(self, act: Callable[[], Response]) -> Handler:
        return lambda request: self._access.change_refusal(request.headers) or self._unknown(request) or act()

    def _unknown(self, request: Request) -> Response | None:
        name = unquote(request.path_params["name"])
        return None if name == self._name else error(404, f"Connector {name} not found")

    def _change(self, act: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            refused = self._access.change_refusal(request.headers) or self._unknown(request)
            return refused or await act(request)

        return answer

    async def _offsets(self, request: Request) -> Response:
        match request.method:
            case "PATCH":
                return await self._change(self._states.alter)(request)
            case "DELETE":
                return await self._change(self._states.reset)(request)
        if (refused := self._unknown(request)) is not None:
            return refused
        if self._status.worker.stopped:  # this worker holds none
            return await self._states.stored(request)
        return JSONResponse(connect.offsets(self._status))

    async def _pause(self, request: Request) -> Response:
        self._controls.pause()
        return await self._states.run(request) if self._controls.is_stopped else Response(status_code=202)

    async def _resume(self, request: Request) -> Response:
        self._controls.resume()
        return await self._states.run(request)  # this worker may not have heard yet that the sink was stopped

    def _restart(self) -> Response:
        if self._controls.is_stopped:
            return error(409, f"Connector {self._name} is STOPPED: resume it")
        self._controls.restart()
        return Response(status_code=204)

    def _task(self, request: Request) -> Response:
        tasks = self._state()["tasks"]
        return self._unknown(request) or (JSONResponse(tasks[0]) if tasks else error(404, "No status found for task 0"))

    def _commit(self) -> Response:
        if self._controls.commit():
            return Response(status_code=202)
        answer = {
            "error_code": 409,
            "message": connect.not_leading(self._status),
            "leader": connect.leader(self._status),
        }
        return JSONResponse(answer, 409)

    async def _validate(self, request: Request) -> Response:
        refused = self._access.change_refusal(request.headers)
        if refused is not None:
            return refused
        body = await json_body(request)
        if not isinstance(body, dict):
            return error(400, "a configuration is an object of keys")
        if len(body) > _MOST_KEYS:
            return error(400, f"the configuration has {len(body)} keys, more than {_MOST_KEYS}")
        config = {str(key): str(setting) for key, setting in body.items() if setting is not None}
        if not is_text("".join((*config, *config.values()))):
            return error(400, "a key or a value has half of a surrogate pair, which is no character")
        return await run_in_threadpool(lambda: JSONResponse(connect.validated(config)))

    def _charts(self, request: Request) -> Response:
        asked = {kind: request.query_params.getlist(kind)[:100] for kind in ("age", "commit", "lag")}
        series = {kind: self._history.series(kind, names) for kind, names in asked.items()}
        return JSONResponse({"times": self._history.times, **series})

    def _table(self, request: Request) -> Response:
        name = request.path_params["table"]
        return self._with_history(views.table(self._status, name, time.time()), name, ("age", "commit"))

    def _partition(self, request: Request) -> Response:
        topic, number = request.path_params["topic"], request.path_params["partition"]
        view = views.partition(self._status, topic, number, time.time())
        return self._with_history(view, f"{topic}-{number}", ("lag", "waiting"))

    def _with_history(self, view: views.Json | None, name: str, kinds: tuple[str, ...]) -> Response:
        if view is None:
            return error(404, f"this worker does not know {name}")
        series = {kind: self._history.series(kind, [name]).get(name, []) for kind in kinds}
        return JSONResponse({**view, "history": {"times": self._history.times, **series}})

    async def _logger(self, request: Request) -> Response:
        name = unquote(request.path_params["logger"])
        if name != "root" and name not in logging.root.manager.loggerDict:  # asking for a logger would make it
            return error(404, f"Logger {name} not found")
        logger = logging.getLogger(name)
        if request.method != "PUT":
            return JSONResponse({"level": logging.getLevelName(logger.getEffectiveLevel())})
        refused = self._access.change_refusal(request.headers)
        if refused is not None:
            return refused
        body = await json_body(request)
        level = str(body.get("level", "")).upper() if isinstance(body, dict) else ""
        if level not in _LEVELS:
            return error(400, f"a level is one of {', '.join(_LEVELS)}")
        logger.setLevel(level)
        return JSONResponse([name])


class _Paths:
    """The application, asked by paths as Kafka Connect reads them: a slash at the end is no other path, and an encoded
    slash is part of a name. Slashes and percent signs of names stay encoded.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts = scope["raw_path"].decode("ascii", "replace").rstrip("/").split("/")
        path = "/".join(unquote(part).replace("%", "%25").replace("/", "%2F") for part in parts)
        await self._app({**scope, "path": path or "/"}, receive, send)


def _failed(request: Request, error_raised: Exception) -> Response:
    """Connect's answer where this server fails. The error itself, which is logged, could show a secret."""
    return error(500, "HTTP 500 Internal Server Error")


def _refused(request: Request, refusal: Exception) -> Response:
    """Connect's answer to a path or a method that is not known, and to the question which methods are."""
    assert isinstance(refusal, HTTPException)  # noqa: S101 - the application asks for this class
    if request.method == "OPTIONS" and refusal.status_code == 405:
        return Response(headers={"allow": f"{(refusal.headers or {})['Allow']}, OPTIONS"})
    return error(refusal.status_code, f"HTTP {refusal.status_code} {refusal.detail}", refusal.headers)
