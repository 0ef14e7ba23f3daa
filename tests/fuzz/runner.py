"""Worker processes, what they answer, and how a failing case gets small."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.fuzz import cases
from tests.fuzz.report import Report

_TIMEOUT = 600.0
"""Seconds for one case, also on a machine that does much else."""
_GROWTH = 1_500_000_000
"""Bytes that a worker may use at most."""
_SHRUNK = 2
"""Disagreements of one signature that are made small and printed."""
_SHRINKING = 20.0
"""Seconds for making one case small."""
_SAVED = 30.0
"""Seconds after which the figures of a run that goes on are saved again."""

Answer = dict[str, Any]


class Worker:
    """One process; a new one where it died."""

    def __init__(self, *, long: bool = False) -> None:
        """``long``: the cases are."""
        self._long = long
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def ask(self, seed: int, number: int, records: Sequence[int] | None = None, only: str | None = None) -> Answer:
        """Check a case, with some of its records, by one check ``only``. What the checks say; that the process died or hangs is an answer as well."""
        if self._process is None:
            command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz.worker"]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            question = {"seed": seed, "case": number, "long": self._long, "records": records, "only": only}
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], _TIMEOUT)
            line = process.stdout.readline() if ready else None
        except BrokenPipeError:
            line = ""
        if line:
            answer: Answer = json.loads(line)
            if answer["peak"] > _GROWTH:
                answer["found"].append(_finding("memory", f"at most {_GROWTH:,} bytes", f"{answer['peak']:,} bytes"))
                self.stop()
            return answer
        if line is None:
            got = f"none after {_TIMEOUT:.0f} s"
        else:
            process.wait()
            got = f"the process died: {process.returncode}"
        self.stop()
        return {
            "records": list(records or []),
            "read": True,
            "tags": {},
            "taken": 0,
            "found": [_finding("process", "an answer", got)],
            "peak": 0,
        }


def _finding(check: str, expected: str, got: str) -> dict[str, Any]:
    return {"check": check, "record": None, "expected": expected, "got": got, "signature": f"{check}: {got}"}


def shrink(worker: Worker, seed: int, number: int, found: dict[str, Any], places: Sequence[int]) -> list[int]:
    """The fewest records, greedily, of which the same check still says the same."""
    until = time.monotonic() + _SHRINKING

    def fails(some: Sequence[int]) -> bool:
        answer = worker.ask(seed, number, list(some), found["check"])
        return any(f["check"] == found["check"] for f in answer["found"])

    places = list(places)
    if found["record"] in places and len(places) > 1 and fails([found["record"]]):
        return [found["record"]]
    size = len(places) // 2
    while size and time.monotonic() < until:
        start = 0
        while start < len(places) and len(places) > 1 and time.monotonic() < until:
            rest = places[:start] + places[start + size :]
            if rest and fails(rest):
                places = rest
            else:
                start += size
        size = min(size // 2, len(places) // 2) if size > 1 else 0
    return places


class Fuzzer:
    """Hands out cases until the time is over."""

    def __init__(
        self, seed: int, numbers: Sequence[int], until: float, report: Report, results: Path, *, long: bool = False
    ) -> None:
        self._long = long
        self._seed, self._until, self._report, self._results = seed, until, report, results
        self._saved = 0.0
        self._numbers: Iterator[int] = iter(numbers)
        self._lock = threading.Lock()
        self._seen: Counter[str] = Counter()

    def work(self) -> None:
        """Until there is nothing left to do."""
        with Worker(long=self._long) as worker:
            while time.monotonic() < self._until:
                with self._lock:
                    number = next(self._numbers, None)
                if number is None:
                    return
                started = time.monotonic()
                answer = worker.ask(self._seed, number)
                self._took(worker, number, answer, time.monotonic() - started)

    def _took(self, worker: Worker, number: int, answer: Answer, seconds: float) -> None:
        new = []
        with self._lock:
            self._report.add(answer, seconds)
            if time.monotonic() - self._saved > _SAVED:
                self._report.save(self._results)
                self._saved = time.monotonic()
            for found in answer["found"]:
                self._seen[found["signature"]] += 1
                if self._seen[found["signature"]] <= _SHRUNK:
                    new.append(found)
        for found in new[:2]:
            places = answer["records"] or list(cases.make(self._seed, number, long=self._long).places)
            small = shrink(worker, self._seed, number, found, places)
            again = worker.ask(self._seed, number, small, found["check"])["found"]
            shown = next((f for f in again if f["check"] == found["check"]), found)
            with self._lock:
                print(self._report.disagree(number, small, shown), flush=True)
