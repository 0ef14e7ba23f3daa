"""A TCP proxy on loopback, whose wire can be cut."""

from __future__ import annotations

import contextlib
import itertools
import selectors
import socket
import threading
from collections.abc import Callable

from calving.services.process import LOOPBACK, free_port

_BYTES = 1 << 16


class Proxy:
    """Between some processes and one port. ``cut`` ends what is open and refuses; ``hush`` keeps it open and silent.

    ``overhear`` is told what clients send, with a number for each connection.
    """

    def __init__(
        self, target: int, port: int | None = None, overhear: Callable[[int, bytes], None] = lambda wire, data: None
    ) -> None:
        self.port, self.target, self._overhear = port or free_port(), target, overhear
        self._wires = itertools.count()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._refusing = False
        self._server = socket.create_server((LOOPBACK, self.port))
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    @property
    def wires(self) -> int:
        """Connections that are open."""
        with self._lock:
            return len(self._open) // 2

    def cut(self) -> None:
        self._refusing = True
        with self._lock:
            for end in self._open:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def hush(self) -> None:
        self._flowing.clear()

    def mend(self) -> None:
        self._refusing = False
        self._flowing.set()

    def close(self) -> None:
        self._server.close()
        self.mend()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            if self._refusing:
                near.close()
                continue
            try:
                far = socket.create_connection((LOOPBACK, self.target), timeout=5)
            except OSError:
                near.close()
                continue
            threading.Thread(
                target=self._carry, args=(next(self._wires), near, far), name="proxy-wire", daemon=True
            ).start()

    def _carry(self, wire: int, near: socket.socket, far: socket.socket) -> None:
        with self._lock:
            self._open |= {near, far}
        with near, far, selectors.DefaultSelector() as ready, contextlib.suppress(OSError):
            ready.register(near, selectors.EVENT_READ, far)
            ready.register(far, selectors.EVENT_READ, near)
            far.settimeout(None)
            while not self._refusing:
                for key, _ in ready.select(1.0):
                    self._flowing.wait()
                    assert isinstance(key.fileobj, socket.socket)
                    data = key.fileobj.recv(_BYTES)
                    if not data:
                        raise OSError("closed")
                    if key.fileobj is near:
                        self._overhear(wire, data)
                    key.data.sendall(data)
        with self._lock:
            self._open -= {near, far}
