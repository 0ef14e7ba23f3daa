"""Readers of the stream."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Collection, Sequence
from typing import Any
from uuid import uuid4

from calving.backend import (
    BEFORE,
    ControlLog,
    ControlOffsets,
    Encoded,
    EntryCursor,
    Envelope,
    SinkIdentity,
    SourceOffsets,
    Topic,
    partition_key,
)
from calving.errors import CalvingError, ProtocolError
from calving_redis import scripts
from calving_redis.connection import ERRORS, connect, reaching, refused, where, writing
from calving_redis.store import RedisStore

log = logging.getLogger(__name__)

_AT_ONCE = 500
_CLOSE_SECONDS = 0.5
_Read = tuple[list[Envelope], int | None]
"""Entries, and the next offset; None if the stream had no more."""


class RedisCursor(EntryCursor):
    """A cursor whose thread waits in XREAD, so that an idle cursor costs the store one request every few seconds."""

    BLOCK_SECONDS = 5.0

    def __init__(self, sink: SinkIdentity, store: RedisStore, *, replay: bool, watch: bool = False) -> None:
        options, keys = store.options, store.keys
        super().__init__(sink, options, where(options), replay=replay, watch=watch)
        self._store, self._options, self._keys = store, options, keys
        self._reader = connect(options, blocks_seconds=self.BLOCK_SECONDS)
        self._writer = connect(options) if replay else None
        self._found: queue.Queue[_Read | CalvingError] = queue.Queue(maxsize=4)
        self._stopping = threading.Event()
        self._waiting: int | None = None
        identity, epoch, saved, last = self._state()
        self._identity, self._epoch, end = (identity or b"").decode(), int(epoch or 0), int(last or 0) + 1
        start = self.start_of_replay(int(saved) if saved else None, end) if replay or watch else end
        self.log = ControlLog(self._identity, {0: start}, {0: end})
        if watch:
            with reaching(options):
                before = self._reader.xrevrange(keys.log, max=f"({start}-0", count=BEFORE)
            start = int(before[-1][0].partition(b"-")[0]) if before else start
        self._ended = start >= end
        self._thread = threading.Thread(target=self._run, args=(start,), name="calving-redis", daemon=True)
        self._thread.start()

    def _state(self) -> Sequence[Any]:
        """Identity, epoch, saved position and last offset. A cursor that replays begins a new epoch."""
        if self._writer is None:
            with reaching(self._options):
                return self._reader.hmget(self._keys.state, ["id", "epoch", "saved", "last"])
        with writing(self._options):
            state: Sequence[Any] = self._writer.register_script(scripts.REPLAY)([self._keys.state], [])
        return state

    @property
    def has_ended(self) -> bool:
        return self._ended

    def read(self, timeout: float) -> Sequence[Envelope]:
        try:
            batch = self._found.get(timeout=timeout) if timeout > 0 else self._found.get_nowait()
        except queue.Empty:
            return []
        if isinstance(batch, CalvingError):
            raise batch
        entries, reached = batch
        self._ended = self._ended or reached is None or reached >= self.log.end[0]
        return entries

    def save(self, position: ControlOffsets, encoded: Encoded, departed: Collection[Topic]) -> None:
        saved = position.get(0, "")
        headers = [self.sender, saved, self._options.audit_ms * 1000, encoded.coverage, encoded.beside]
        self._write(scripts.ACKNOWLEDGE, *headers, len(departed), *map(str, departed), *encoded.events)

    def rewind(self, positions: SourceOffsets) -> None:
        stored = [part for tp, offset in positions.items() for part in (partition_key(tp), offset)]
        self._write(scripts.REWIND, str(uuid4()), *stored)

    def _write(self, script: str, *arguments: object) -> None:
        if self._writer is None:
            raise ProtocolError("only a cursor that replays can write")
        self._store.write(self._writer, script, self._identity, self._epoch, *arguments)

    def release(self) -> None:
        self._stopping.set()
        with contextlib.suppress(queue.Empty):
            while True:
                self._found.get_nowait()
        # Unblock on another thread: a store that does not answer would delay the close, and so the release of the
        # partitions.
        threading.Thread(target=self._unblock, name="calving-redis-unblock", daemon=True).start()
        self._thread.join(_CLOSE_SECONDS)
        if self._writer is not None:
            self._writer.close()

    def _run(self, start: int) -> None:
        at = f"{start - 1}-0" if start > 1 else "0-0"
        block = int(self.BLOCK_SECONDS * 1000)
        try:
            self._waiting = None if self._options.cluster else self._reader.client_id()
            while not self._stopping.is_set():
                answer = self._reader.xread({self._keys.log: at}, count=_AT_ONCE, block=block)
                if not answer:
                    if not self._ended:
                        self._put(([], None))
                    continue
                if self._writer is not None:
                    self._wait_until_safe()
                ((_, entries),) = answer
                at = entries[-1][0].decode()
                reached = int(entries[-1][0].partition(b"-")[0]) + 1
                self._put(([e for e in map(self._envelope, entries) if e is not None], reached))
        except ERRORS as error:
            self._put(refused(self._options, error))
        except CalvingError as error:
            self._put(error)
        except Exception as error:  # this thread has no caller: its reader would wait for ever
            log.exception("the reader of %s ended", self.log_name)
            self._put(ProtocolError(f"{self.log_name}: its reader ended with {type(error).__name__}: {error}"))
        finally:
            self._reader.close()

    def _unblock(self) -> None:
        """Wake the reader, which otherwise stops only after its request has ended."""
        if self._waiting is not None:
            with (
                contextlib.suppress(*ERRORS, CalvingError),
                contextlib.closing(connect(self._options)) as other,
            ):
                other.client_unblock(self._waiting)

    def _wait_until_safe(self) -> None:
        """Wait until all earlier writes are durable: a commit must not depend on entries that the store may
        still lose.
        """
        durability = self._store.durability
        if durability.fsync or durability.replicas:
            with writing(self._options):
                self._reader.hincrby(self._keys.state, "read", 1)
            durability.wait(self._reader, self._options)

    def _put(self, found: _Read | CalvingError) -> None:
        while not self._stopping.is_set():
            try:
                self._found.put(found, timeout=0.2)
            except queue.Full:
                continue
            return

    def _envelope(self, entry: tuple[bytes, dict[bytes, bytes]]) -> Envelope | None:
        number, fields = entry
        offset = int(number.partition(b"-")[0])
        # Others may add entries with other fields.
        sender, event = fields.get(b"s", b""), fields.get(b"e", b"")
        return self.entries.envelope(0, offset, sender, event, fields.get(b"p"), fields.get(b"b"))
