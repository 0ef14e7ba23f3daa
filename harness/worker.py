"""A worker process of the sink that dies, or is lied to, at one chosen place.

``FAULT = <place>:<when>:<count>``: at the ``count``-th call of a place the process kills itself ``before`` or ``after``
it takes effect, hangs, makes a ``pause`` before it that outlasts its session, or (for ``table``, ``table=<name>``) the
commit is made to answer wrongly. A publication without records does not count for a ``pause``: repeated, it harms nothing.
``<place>:<when>:@<folder>``: as soon as the file ``<place>-<when>`` is there, which the first takes away that finds it.
Several faults are separated by commas. ``<place>:broken:@<folder>``: every call fails while that file is there.
``deletes`` is where a commit of a mutation table has found the rows to delete, and writes its delete files; its call of
``table`` comes next. ``PARK_BEHIND`` is ``Coordinator.park_behind``, and a commit fails soon. ``FORCE_LEAD = <file>``:
while the file exists, this worker believes that it leads. ``BACKEND`` names the sink's backend.
The arguments are those of ``calving``; a file alone is for ``calving run``.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from calving.backend.interface import Cursor, Session
from calving.cli.main import main
from calving.iceberg import commit, resolution
from calving.maintenance.rewriting_process import RewritingProcess
from calving.protocol.coordinator import Coordinator
from calving.runtime.batch import BatchRunner
from calving_kafka.cursor import KafkaCursor
from calving_kafka.session import KafkaSession
from calving_kafka.transactions import Transactions
from calving_redis.cursor import RedisCursor
from calving_redis.session import RedisSession
from calving_zookeeper.cursor import ZooKeeperCursor
from calving_zookeeper.session import ZooKeeperSession

STORES: dict[str, tuple[type[Session], type[Cursor]]] = {
    "kafka": (KafkaSession, KafkaCursor),
    "redis": (RedisSession, RedisCursor),
    "zookeeper": (ZooKeeperSession, ZooKeeperCursor),
}
SESSION, CURSOR = STORES[os.environ.get("BACKEND", "kafka")]
PLACES: dict[str, tuple[type | ModuleType, str]] = {
    "batch": (BatchRunner, "run"),
    "publish": (SESSION, "publish"),
    "acknowledge": (CURSOR, "acknowledge"),
    "deletes": (resolution, "write_deleted"),
    "rewrite": (RewritingProcess, "__call__"),
    "table": (Table, "_do_commit"),
    "offsets": (Transactions, "_store"),
    "transaction": (Transactions, "_commit"),
}


PAUSE_SECONDS = 12
"""Longer than the sessions and leases of the tests' sinks: others have taken over meanwhile, and have read and published
what the paused worker had read, also on a machine that is busy.
"""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def pause() -> None:
    """Stop the whole process, as a machine that sleeps does. A process of its own wakes it."""
    wake = f"sleep {PAUSE_SECONDS}; kill -CONT {os.getpid()}"
    subprocess.Popen(["sh", "-c", wake], stdin=subprocess.DEVNULL)
    os.kill(os.getpid(), signal.SIGSTOP)


def arm(fault: str) -> None:
    place, when, count = fault.split(":", 2)
    place, _, only = place.partition("=")
    owner, name = PLACES[place]
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        if only and ".".join(args[0].name()) != only:
            return original(*args, **kwargs)
        if (place, when) == ("publish", "pause") and not args[1].advances:
            return original(*args, **kwargs)
        calls += 1
        if when == "broken":
            if Path(count[1:], f"{place}-{when}").exists():
                raise OSError("broken")
            return original(*args, **kwargs)
        if not (taken(Path(count[1:], f"{place}-{when}")) if count.startswith("@") else calls == int(count)):
            return original(*args, **kwargs)
        match when:
            case "before":
                die()
            case "after":
                original(*args, **kwargs)
                die()
            case "hang":
                threading.Event().wait()
            case "pause":
                pause()
                return original(*args, **kwargs)
            case "lost-request":
                raise OSError("the request was lost")
            case "lost-answer":
                original(*args, **kwargs)
                raise OSError("the answer was lost")
            case "false-conflict":
                original(*args, **kwargs)
                raise CommitFailedException("reported although it landed")
        raise AssertionError(when)

    setattr(owner, name, wrapped)


def taken(trigger: Path) -> bool:
    try:
        trigger.unlink()
    except FileNotFoundError:
        return False
    return True


def force_lead(flag: Path) -> None:
    original: Callable[..., bool] = SESSION.lead

    def lead(self: Session, held: Any, every: Any) -> bool:
        return flag.exists() or original(self, held, every)

    SESSION.lead = lead  # type: ignore[method-assign]


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # a stuck worker can be asked where it is
    if "PARK_BEHIND" in os.environ:
        Coordinator.park_behind = int(os.environ["PARK_BEHIND"])
        setattr(commit, "MAX_TRIES", 2)  # noqa: B010 - it is imported there
    if "FAULT" in os.environ:
        for each in os.environ["FAULT"].split(","):
            arm(each)
    if "FORCE_LEAD" in os.environ:
        force_lead(Path(os.environ["FORCE_LEAD"]))
    sys.argv = ["calving", *(["run"] if len(sys.argv) == 2 else []), *sys.argv[1:]]
    main()
