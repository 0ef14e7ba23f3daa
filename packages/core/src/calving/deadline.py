"""A time limit for calls that have no time limit, or do not keep it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class LateError(Exception):
    """A call has not come back in time."""


def in_thread(name: str, call: Callable[[], T]) -> Future[T]:
    """Run ``call`` on a daemon thread called ``name``; the future has its result or error."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # handed over to the caller
            done.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done


def within(seconds: float, name: str, call: Callable[[], T]) -> T:
    """Run ``call`` on a separate thread, as ``beside`` does. Returns the call's result or raises its error.

    :raises LateError: the call has not ended after ``seconds``. It runs on, and its result is ignored.
    """
    done = in_thread(name, call)
    if not _ended(done, seconds):
        raise LateError(f"no answer within {seconds:.0f} s")
    return done.result()


def _ended(done: Future[T], seconds: float) -> bool:
    """Whether the call has ended in time. The call itself may raise a TimeoutError, which does not mean that it is
    late.
    """
    try:
        done.exception(seconds)
    except TimeoutError:
        return done.done()
    return True
