"""What a campaign breaks: workers, the services around them, and the faults that workers are started with."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from calving.services.kafka import KafkaServer
from calving.services.process import Process
from campaign.changes import Workload
from campaign.checker import Checker
from campaign.lake import Lake
from campaign.sink import Sink
from harness.proxy import Proxy
from harness.run import Store

_PLACES = {
    # After the pause others have read the same records: only the comparison of positions refuses the publication.
    "publish": ("before", "after", "pause"),
    "acknowledge": ("before", "after"),
    "table": ("before", "after", "lost-request", "lost-answer", "false-conflict"),
    "batch": ("before", "after"),
    "deletes": ("before", "after"),
}
"""Where a fault may strike that a worker is started with, and how."""
INSIDE = "offsets:after:@{folder},transaction:before:@{folder}"
"""The fault of every worker on request: it dies inside its next transaction."""
OF_ONE = ("deaf cursor", "stuck worker")
"""Sabotage that one worker in three is enough for; the rest is in what a leader does, whoever that is."""
_LEAVES_SECONDS = 30
"""A worker that has been told to leave, and has not by then, is killed."""


def armory(workload: Workload) -> list[str]:
    """The faults that a worker may be started with: deletes are written only for tables whose rows records change."""
    places = _PLACES.items() if workload != "append" else [each for each in _PLACES.items() if each[0] != "deletes"]
    return [f"{place}:{when}:{count}" for place, whens in places for when in whens for count in (1, 2, 3)]


@dataclass
class Field:
    """The parts to break."""

    run: Sink
    broker: KafkaServer
    store: Store
    proxy: Proxy
    folder: Path
    rng: random.Random
    workers: int
    checker: Checker
    quiet: Callable[[], AbstractContextManager[None]]
    """While it is entered, no records are sent."""
    database: Path
    """The catalog's."""
    lake: Lake | None = None
    """Where the tables are, if they are not in the embedded catalog."""
    armory: Sequence[str] = ()
    """Faults that workers may be started with."""
    sabotage: str | None = None
    """Of every worker of this version, or of one in three: see ``OF_ONE``."""
    former: Path | None = None
    """The tree of a former version; see ``campaign.sink``."""
    recovered: int = 0
    """How often an operator has."""
    dropped: set[str] = field(default_factory=set)
    """Tables that somebody has dropped: the sink has created them again."""
    appended: int = 0
    """How many rows somebody else has appended, or tried to."""
    armed: dict[str, int] = field(default_factory=dict)
    """Faults that workers were started with; not all live long enough to commit theirs."""
    _former: set[Process] = field(default_factory=set)
    """Workers of the former version."""

    @property
    def hang(self) -> Path:
        """While this exists, the catalog hangs."""
        return self.folder / "hang"

    def all_there(self) -> bool:
        """Whether all that was sent, and was not dropped since, is committed."""
        return self.checker.is_complete(self.run.sent)

    def wait(self, seconds: float, while_waiting: Callable[[], None] = lambda: None) -> float | None:
        """Seconds until everything that was sent is committed; None: it is not."""
        started = time.monotonic()
        while time.monotonic() - started < seconds:
            while_waiting()
            if self.all_there():
                return time.monotonic() - started
            time.sleep(0.5)
        return None

    def living(self) -> list[Process]:
        return [w for w in self.run.workers if w.returncode is None]

    def victim(self) -> Process | None:
        living = self.living()
        return self.rng.choice(living) if living else None

    def revive(self, *, armed: bool = True) -> None:
        """As many workers as there should be; every other one carries a fault of its own, if they are ``armed``."""
        while len(self.living()) < self.workers:
            fault = self.rng.choice(self.armory) if armed and self.armory and self.rng.random() < 0.5 else None
            if fault is not None:
                self.armed[fault.rpartition(":")[0]] = self.armed.get(fault.rpartition(":")[0], 0) + 1
            self._start(fault)
        self.run.poisoned = not self.has_former

    @property
    def has_former(self) -> bool:
        """Whether workers of the former version live. They stop at records that are poison to them: there are none
        meanwhile.
        """
        return any(worker in self._former for worker in self.living())

    def change_versions(self) -> None:
        """Some workers are killed, or leave, one after the other, and each has a successor of the other version."""
        living = self.living()
        for victim in self.rng.sample(living, self.rng.randint(min(1, len(living)), len(living))):
            if self.rng.random() < 0.5:
                victim.stop(_LEAVES_SECONDS)
            else:
                victim.kill()
            self._start(former=None if victim in self._former else self.former)

    def _start(self, fault: str | None = None, former: Path | None = None) -> None:
        self.run.environment.pop("SABOTAGE", None)
        place = len(self.run.workers)
        if former is None and self.sabotage is not None and (self.sabotage not in OF_ONE or place % 3 == 1):
            self.run.environment["SABOTAGE"] = self.sabotage
        inside = INSIDE.format(folder=self.folder) if isinstance(self.store, KafkaServer) else None
        worker = self.run.start(",".join(filter(None, (fault, inside))), forced=True, former=former)
        if former is not None:
            self._former.add(worker)
