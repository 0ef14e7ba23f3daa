"""``make rolling``: workers of two versions replace each other, one after the other, while records come all the time.

The tables get rows that are appended, and rows that replace each other. On each store in turn a sink goes from the
former version to this one and back, again and again. One worker in three is killed, the others are stopped. With
``--other-settings`` one new worker in five has another setting for the table whose rows change, and the next one in its
place has not.

Prints and saves, by store: replacements, records, how many were lost, doubled or wrong, how often an invariant did not
hold, workers that ended by themselves, commits by the version that led, and the longest time in which a table had no
commit. That must not be longer than the commit timeout; on a busy machine, as many times longer as work takes there.
With other settings it may be: the files of a table wait until its workers agree (rule S2).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from calving.services.kafka import KafkaServer
from calving.services.process import Process, interruptible
from campaign.audit import harm
from campaign.checker import Checker
from campaign.latency import longest_gap
from campaign.run import BACKENDS, Plan, broker_and_proxy, sink_of, store_of
from campaign.sink import NO_HISTORY, Sink, former_version
from harness.processes import Waiting, tree_cpu
from harness.producing import Producing
from harness.waiting import happens_within

_WORKERS = 3
_KILLED, _OTHERWISE = 3, 5
"""One worker in so many is killed, and one has other settings."""
_TABLES = 2
_RECORDS_PER_SECOND = 60
_LAST_RECORDS = 200
_TIMEOUT_MS = 15_000
"""Of a commit. As many sessions long as by default, where it is 30 s, and a session 6 s."""
_SECONDS = 300
"""So long a worker may take to its first batch, and the sink to its first commit and to its last, on a busy machine."""
_STRETCH = 25
"""Replacements of one sink: the tables stay small, and reading them stays cheap."""
_OTHER_SETTINGS = {"row-deletes": "equality", "inserts": "upsert"}
"""Of the table whose rows change. Rows are the same, however earlier ones are deleted."""
_VERDICT = ("lost", "doubled", "resurrected", "wrong", "invariants", "ended", "stuck", "late")


@dataclass
class Replacement:
    """One worker takes the place of another of the other version, at this moment."""

    at: float
    is_upgrade: bool
    killed: bool
    otherwise: bool
    """Whether the new one has other settings."""


@dataclass
class Crew:
    """The workers of a sink, in their places. ``former``: a tree of the former version."""

    run: Sink
    former: Path
    rng: random.Random
    turns: bool
    """Whether some workers have other settings."""
    places: dict[int, Process] = field(default_factory=dict)
    is_former: dict[int, bool] = field(default_factory=dict)
    done: list[Replacement] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    """The logs of workers that ended without having been told to, or with an error when they were told to."""

    def fill(self, place: int, *, former: bool, otherwise: bool = False) -> None:
        """Start a worker in a place."""
        self.places[place] = self.run.start(aside=otherwise, former=self.former if former else None)
        self.is_former[place] = former

    def replace_all(self, first: int, count: int) -> None:
        """The workers, one after the other, until ``count`` are replaced; ``first`` were replaced before."""
        order: list[int] = []
        for number in range(first, first + count):
            order = order or self.rng.sample(range(_WORKERS), _WORKERS)
            self._replace(order.pop(), number)
        self.ended += [str(worker.log) for worker in self.places.values() if worker.returncode is not None]

    def _replace(self, place: int, number: int) -> None:
        killed, otherwise = number % _KILLED == _KILLED - 1, self.turns and number % _OTHERWISE == _OTHERWISE - 1
        former = not self.is_former[place]
        self.done.append(Replacement(time.time(), not former, killed, otherwise))
        self._end(self.places[place], killed=killed)
        self.fill(place, former=former, otherwise=otherwise)
        self.wait(self.places[place])

    def _end(self, worker: Process, *, killed: bool) -> None:
        if worker.returncode is not None:
            self.ended.append(str(worker.log))
            return
        worker.signal(signal.SIGKILL if killed else signal.SIGTERM)
        if worker.wait(_SECONDS) != (-signal.SIGKILL if killed else 0):
            self.ended.append(str(worker.log))

    def wait(self, worker: Process) -> None:
        """Until a new worker has read records: it has its share of the work. One that has ended counts as such when its
        turn comes.
        """
        deadline = time.monotonic() + _SECONDS
        while "first batch" not in worker.log.read_text(errors="replace"):
            if worker.returncode is not None or time.monotonic() > deadline:
                return
            time.sleep(0.05)


def stretch(
    folder: Path,
    backend: str,
    broker: KafkaServer,
    former: Path,
    seed: int,
    first: int,
    count: int,
    *,
    other_settings: bool,
) -> dict[str, Any]:
    """One sink on one store, whose workers are replaced so often; ``first`` were replaced before, with other sinks."""
    plan = Plan(backend, _TABLES, workload="mixed", seed=seed, timeout_ms=_TIMEOUT_MS)
    with store_of(folder, backend, broker) as store:
        run = sink_of(folder, broker, store, plan, None, f"rolling-{first}")
        run.workload, run.poisoned = plan.workload, False
        changed, cpu = run.tables[0], tree_cpu(os.getpid())
        run.put_aside({f"iceberg.table.{changed}.{key}": text for key, text in _OTHER_SETTINGS.items()})
        checker = Checker(run, folder / "warehouse" / "catalog.db", None, plan.workload, plan.warehouse)
        producing, waiting = Producing(run, _RECORDS_PER_SECOND), Waiting()
        crew = Crew(run, former, random.Random(seed + first), other_settings)
        try:
            for place in range(_WORKERS):
                crew.fill(place, former=True)
            producing.start()
            waiting.start()
            assert happens_within(_SECONDS, lambda: run.committed() > 0), f"the sink has not begun; logs in {folder}"
            begin = time.time()
            crew.replace_all(first, count)
            end = time.time()
            producing.stop()
            is_stuck = not happens_within(_SECONDS, lambda: checker.is_complete(run.sent))
            checker.watch_the_end(run.sent + _LAST_RECORDS, _SECONDS)
            run.produce(_LAST_RECORDS, _LAST_RECORDS)
            checked = checker.report()
            figures = _figures(crew, checked, begin, end, waiting)
            figures |= {"stuck": int(is_stuck), "cpu_seconds": round(tree_cpu(os.getpid()) - cpu, 1)}
        finally:
            waiting.stop()
            producing.stop()
            run.stop()
            checker.stop()
    return {"backend": backend, **figures}


def _figures(crew: Crew, checked: Mapping[str, Any], begin: float, end: float, waiting: Waiting) -> dict[str, Any]:
    report, commits = checked["report"], checked["commits"]
    pause = longest_gap(commits, begin, end)
    slowdown = waiting.slowdown(pause.begin, pause.begin + pause.seconds)
    whole = longest_gap([each for each in commits if each.through is not None], begin, end)
    return {
        "replacements": len(crew.done),
        "killed": sum(each.killed for each in crew.done),
        "otherwise": sum(each.otherwise for each in crew.done),
        "records": crew.run.sent,
        **harm(report),
        "ended": len(crew.ended),
        "late": int(not crew.turns and pause.seconds * 1000 > _TIMEOUT_MS * slowdown),
        "commits": len({each.cycle for each in commits}),
        "led_by": crew.run.led_by(),
        "longest_pause": round(pause.seconds, 1),
        "slowdown_in_it": round(slowdown, 1),
        "before_it": [asdict(each) for each in crew.done if -20 < each.at - pause.begin < pause.seconds][-4:],
        "longest_without_all_partitions": round(whole.seconds, 1),
        "seconds": round(end - begin, 1),
        "ended_logs": crew.ended,
        "checked": report,
    }


def _shown(results: Sequence[Mapping[str, Any]]) -> Table:
    """A line for each store, over all its sinks."""
    sums = ("replacements", "killed", "otherwise", "records", "commits", *_VERDICT)
    shown = Table(title=f"Rolling upgrade and back, again and again; a commit's timeout is {_TIMEOUT_MS / 1000:.0f} s")
    for column in ("store", *sums, "longest pause, s", "slower", "led by", "CPU s a replacement"):
        shown.add_column(column)
    for backend in dict.fromkeys(each["backend"] for each in results):
        own = [each for each in results if each["backend"] == backend]
        led = sum((Counter(each["led_by"]) for each in own), start=Counter[str]())
        count = sum(each["replacements"] for each in own)
        shown.add_row(
            backend,
            *(str(sum(each[name] for each in own)) for name in sums),
            *map(str, max((each["longest_pause"], each["slowdown_in_it"]) for each in own)),
            ", ".join(f"{version}: {times}" for version, times in sorted(led.items())),
            f"{sum(each['cpu_seconds'] for each in own) / count:.1f}",
        )
    return shown


def _stretches(backends: Sequence[str], replacements: int) -> Iterator[tuple[str, int, int]]:
    """The store of each sink, the replacements before it, and its own."""
    length = min(_STRETCH, -(-replacements // len(backends)))
    for number, first in enumerate(range(0, replacements, length)):
        yield backends[number % len(backends)], first, min(length, replacements - first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=BACKENDS, action="append")
    parser.add_argument("--replacements", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--other-settings", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("campaign-results"))
    args = parser.parse_args()
    logging.getLogger("calving.librdkafka").setLevel(logging.CRITICAL)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"{time.strftime('%Y%m%d-%H%M%S')}-rolling.json"
    results: list[dict[str, Any]] = []
    folder = Path(tempfile.mkdtemp(prefix="calving-rolling-"))
    if (former := former_version(folder)) is None:
        sys.exit(NO_HISTORY)
    with interruptible(), broker_and_proxy(folder) as (broker, _):
        for backend, first, count in _stretches(args.backend or BACKENDS, args.replacements):
            own = folder / f"{first}-{backend}"
            own.mkdir()
            figures = stretch(own, backend, broker, former, args.seed, first, count, other_settings=args.other_settings)
            results.append(figures)
            path.write_text(json.dumps(results, indent=1))
            print(json.dumps({key: found for key, found in results[-1].items() if key != "checked"}), flush=True)
            if not any(results[-1][key] for key in _VERDICT):
                shutil.rmtree(own)
    Console(width=200).print(_shown(results))
    failed = any(each[key] for each in results for key in _VERDICT)
    if not failed:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
