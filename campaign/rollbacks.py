"""``make rollbacks``: somebody else rolls tables back under a sink that runs, and an operator answers, at random.

The tables get rows that are appended, and rows that replace each other. On each store in turn another engine moves the
heads of tables back: one that knows the catalog only, one that replaces whole tables, or Spark with Iceberg's
procedures (``engines.py``). An operator
answers with ``calving rollback --as-is --then reread|forget|restore``, beside the sink where it may run. Workers are
killed before, during and after the command, and so is the command, which then is run again. After each answer the
tables must hold what it promises.

Prints and saves, by store: rollbacks, answers, how often somebody was killed, answers that were refused or that the
engine itself had made needless, records, how many were lost, doubled or wrong, and how often an invariant did not hold.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from calving.services.kafka import KafkaServer
from calving.services.process import Process, interruptible
from campaign.audit import harm
from campaign.checker import Checker
from campaign.engines import ENGINES, Engine
from campaign.run import BACKENDS, Plan, broker_and_proxy, sink_of, store_of
from campaign.sink import Sink
from harness.heads import row_count
from harness.nursery import Forked
from harness.producing import Producing
from harness.waiting import happens_within

_WORKERS, _TABLES = 2, 6
_RECORDS_PER_SECOND = 60
_LAST_RECORDS = 200
_SECONDS = 240
"""So long anything may take on a busy machine: a command, and the sink until everything is there."""
_STRETCH = 40
"""Rollbacks of one sink: the tables stay small, and reading them stays cheap."""
_OFTEN = 0.4
ANSWERS = ("reread", "forget", "restore")
VERDICT = ("lost", "doubled", "resurrected", "wrong", "invariants", "unanswered", "stuck")


Outcome = Literal["given", "needless", "refused"]
"""Of an answer. It is needless if the engine has brought everything back itself; the checker expects that it has."""
_PASSING = ("stop all workers", "run it again", "run the sink until its log says so")
"""What the command says if the same one will do it a little later."""
_DISCARDED = re.compile(r"^table (\S+): .*their snapshots are discarded", re.MULTILINE)
"""What the command says of a table that lacks more than can be restored."""


@dataclass
class Operator:
    """Runs the command, which somebody may kill."""

    run: Sink
    rng: random.Random
    runs: int = 0
    killed: int = 0
    refused: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    in_part: set[str] = field(default_factory=set)
    """The tables that the last answer has left with a part that needs another one."""

    def answer(self, tables: Sequence[str], answer: str, *more: str) -> Outcome:
        """The command has done it, perhaps before it was killed; or says that there is nothing to do; or refuses.
        ``more``: options.
        """
        options = [option for name in tables for option in ("--table", name)]
        line = ["rollback", str(self.run.config), *options, "--as-is", "--then", answer, *more]
        self.in_part = set()
        was_killed, deadline = False, time.monotonic() + _SECONDS
        while True:
            patience = self.rng.uniform(0.1, 3) if self.rng.random() < _OFTEN else _SECONDS
            code, text = self._ended(line, patience)
            self.in_part.update(_DISCARDED.findall(text))
            if code == 0:
                return "given"
            if code == -signal.SIGKILL:
                self.killed, was_killed = self.killed + 1, True
            elif "there is nothing to answer" in text:
                return "given" if was_killed or self.in_part else "needless"
            elif not any(passing in text for passing in _PASSING):
                self.refused.append(f"{answer} of {', '.join(tables)}: {text.strip()}")
                return "refused"
            if time.monotonic() > deadline:
                self.failed.append(text)
                return "refused"
            time.sleep(0.5)

    def _ended(self, line: Sequence[str], seconds: float) -> tuple[int, str]:
        """The exit code of a command, and what it printed; it is killed after so long."""
        self.runs += 1
        command = Forked("harness.command", line, self.run.folder / f"command-{self.runs}.log", {})
        try:
            code = command.wait(seconds)
        except subprocess.TimeoutExpired:
            command.kill()
            code = command.wait(seconds)
        return code, command.log.read_text(errors="replace")


@dataclass
class Crew:
    """The workers of a sink."""

    run: Sink
    rng: random.Random
    killed: int = 0

    def fill(self) -> None:
        while len(self._living()) < _WORKERS:
            self.run.start()

    def kill_one(self) -> None:
        """Or none, mostly."""
        if (living := self._living()) and self.rng.random() < _OFTEN:
            self.rng.choice(living).kill()
            self.killed += 1

    def stop(self) -> None:
        """All of them, each in one way or the other."""
        for worker in self._living():
            if self.rng.random() < _OFTEN:
                worker.kill()
                self.killed += 1
            else:
                worker.signal(signal.SIGTERM)
        for worker in self._living():
            worker.wait(_SECONDS)

    def _living(self) -> list[Process]:
        return [worker for worker in self.run.workers if worker.returncode is None]


@dataclass
class Answers:
    """Rolls tables back and answers, again and again, until the sink is ``stuck``."""

    run: Sink
    checker: Checker
    crew: Crew
    operator: Operator
    rng: random.Random
    patience: float
    engine: Engine
    rollbacks: int = 0
    needless: int = 0
    in_part: int = 0
    """How often a part of what was to be restored had to be read again."""
    given: Counter[str] = field(default_factory=Counter)
    stuck: bool = False

    def round(self) -> None:
        """Several tables go back; when all are answered, they are looked at."""
        self.checker.tell("look away")
        chosen = self.rng.sample(list(self.run.tables), self.rng.randint(1, len(self.run.tables)))
        moved = [found for name in chosen if (found := self.engine(self.run, name, self.rng)) is not None]
        for each in moved:
            self.checker.tell("rolled back", *each)
        self.rollbacks += len(moved)
        self.crew.kill_one()
        time.sleep(self.rng.choice((0, 0, self.rng.uniform(0, 6))))
        wanted = {each.table: self.rng.choice(ANSWERS) for each in moved}
        print(f"{datetime.now(UTC):%H:%M:%S} {wanted}", file=sys.stderr, flush=True)
        for answer in self.rng.sample(ANSWERS, len(ANSWERS)):
            self._give([name for name, each in wanted.items() if each == answer], answer)
        self.crew.fill()
        self.crew.kill_one()
        self.crew.fill()
        sent = self.run.sent
        self.stuck = not happens_within(self.patience, lambda: self.checker.is_complete(sent))
        self.checker.tell("back")
        self.checker.is_complete(sent)  # which looks at all of them

    def _give(self, tables: Sequence[str], answer: str) -> None:
        if not tables:
            return
        if answer == "reread":
            self.crew.stop()
        else:
            self.crew.kill_one()
            self.crew.fill()  # a worker has to note the discarded offsets first; until then the command refuses
        again = ["--again"] if answer == "reread" and self.rng.random() < _OFTEN else []
        outcome = self.operator.answer(tables, answer, *again)
        if outcome == "needless":
            self.needless += len(tables)
        elif outcome == "given":
            in_part = sorted(self.operator.in_part)
            for name in set(tables).difference(in_part):
                self.given[answer] += 1
                if answer == "forget" or again:
                    self.checker.tell("forgotten" if answer == "forget" else "wanted", name)
            self.in_part += len(in_part)
            if answer == "forget":
                self._forget_all(in_part)
            else:
                self._give(in_part, "reread")
        elif len(tables) > 1:
            for name in tables:
                self._give([name], answer)
        elif answer != "forget":  # that one is never refused
            self._forget_all(tables)
        self.crew.fill()

    def _forget_all(self, tables: Sequence[str]) -> None:
        """Also the commits that a replacement has discarded."""
        if tables and self.operator.answer(tables, "forget", "--again") == "given":
            for name in tables:
                self.given["forget"] += 1
                self.checker.tell("forgotten", name)


def stretch(
    folder: Path,
    backend: str,
    broker: KafkaServer,
    seed: int,
    first: int,
    count: int,
    sabotage: str | None = None,
    *,
    engine: str = "catalog",
    patience: float = _SECONDS,
) -> dict[str, Any]:
    """One sink on one store with so many rollbacks by an engine; there were ``first`` before, with other sinks.
    ``sabotage``: see ``campaign/worker.py``. ``patience``: the sink is stuck if it takes so many seconds until
    everything is there.
    """
    plan = Plan(backend, _TABLES, workload="mixed", seed=seed)
    with store_of(folder, backend, broker) as store:
        run = sink_of(folder, broker, store, plan, None, f"rollbacks-{first}")
        run.workload, run.poisoned, run.module = plan.workload, False, "campaign.worker"
        if sabotage is not None:
            run.environment["SABOTAGE"] = sabotage
        checker = Checker(run, folder / "warehouse" / "catalog.db", None, plan.workload, plan.warehouse)
        producing, rng = Producing(run, _RECORDS_PER_SECOND), random.Random(seed + first)
        crew, operator = Crew(run, rng), Operator(run, rng)
        answers = Answers(run, checker, crew, operator, rng, patience, ENGINES[engine])
        begin = time.time()
        try:
            crew.fill()
            producing.start()
            has_begun = happens_within(_SECONDS, lambda: all(row_count(run.catalog, name) for name in run.tables))
            assert has_begun, f"the sink has not begun; logs in {folder}"
            while answers.rollbacks < count and not answers.stuck:
                answers.round()
                time.sleep(rng.uniform(0, 3))
            producing.stop()
            sent = run.sent
            answers.stuck |= not happens_within(patience, lambda: checker.is_complete(sent))
            checker.watch_the_end(run.sent + _LAST_RECORDS, patience)
            run.produce(_LAST_RECORDS, _LAST_RECORDS)
            checked = checker.report()
        finally:
            producing.stop()
            run.stop()
            checker.stop()
    return {"backend": backend, "seconds": round(time.time() - begin, 1), **_figures(answers, checked["report"])}


def _figures(answers: Answers, report: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "rollbacks": answers.rollbacks,
        **{answer: answers.given[answer] for answer in ANSWERS},
        "needless": answers.needless,
        "in part": answers.in_part,
        "refused": len(answers.operator.refused),
        "workers killed": answers.crew.killed,
        "commands killed": answers.operator.killed,
        "records": answers.run.sent,
        **harm(report),
        "unanswered": answers.rollbacks - answers.given.total() - answers.needless,
        "stuck": int(answers.stuck),
        "refusals": answers.operator.refused,
        "failures": answers.operator.failed,
        "checked": report,
    }


def _shown(results: Sequence[Mapping[str, Any]]) -> Table:
    """A line for each store, over all its sinks."""
    columns = ("rollbacks", *ANSWERS, "needless", "refused", "workers killed", "commands killed", "records", *VERDICT)
    shown = Table(title="Rollbacks by another engine under a running sink, and their answers")
    for column in ("store", *columns):
        shown.add_column(column)
    for backend in dict.fromkeys(each["backend"] for each in results):
        own = [each for each in results if each["backend"] == backend]
        shown.add_row(backend, *(str(sum(each[name] for each in own)) for name in columns))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=BACKENDS, action="append")
    parser.add_argument("--engine", choices=ENGINES, default="catalog", help="that rolls back")
    parser.add_argument("--rollbacks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("campaign-results"))
    args = parser.parse_args()
    logging.getLogger("calving.librdkafka").setLevel(logging.CRITICAL)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"{time.strftime('%Y%m%d-%H%M%S')}-rollbacks.json"
    results: list[dict[str, Any]] = []
    folder = Path(tempfile.mkdtemp(prefix="calving-rollbacks-"))
    backends = args.backend or BACKENDS
    with interruptible(), broker_and_proxy(folder) as (broker, _):
        length = min(_STRETCH, -(-args.rollbacks // len(backends)))
        while (first := sum(each["rollbacks"] for each in results)) < args.rollbacks:
            backend = backends[len(results) % len(backends)]
            own = folder / f"{first}-{backend}"
            own.mkdir()
            count = min(length, args.rollbacks - first)
            results.append(stretch(own, backend, broker, args.seed, first, count, engine=args.engine))
            path.write_text(json.dumps(results, indent=1))
            print(json.dumps({key: found for key, found in results[-1].items() if key != "checked"}), flush=True)
            if not _failed(results[-1:]):
                shutil.rmtree(own)
    Console(width=200).print(_shown(results))
    if not _failed(results):
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(_failed(results))


def _failed(results: Iterable[Mapping[str, Any]]) -> bool:
    return any(each[key] for each in results for key in VERDICT)


if __name__ == "__main__":
    main()
