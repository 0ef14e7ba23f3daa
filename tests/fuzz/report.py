"""The report of a run: coverage and findings."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fuzz import cases

_MOST = 100


def repeat(seed: int, number: int, places: Sequence[int], *, long: bool) -> str:
    """The command that tries these records of a case again; many records: the whole case."""
    only = f" ONLY={','.join(map(str, places))}" if len(places) <= _MOST else ""
    return f"make fuzz SEED={seed} CASE={number}{' LONG=1' if long else ''}{only}"


class Report:
    def __init__(self, seed: int, *, long: bool = False) -> None:
        """``long``: the cases are."""
        self._seed, self._long, self._started = seed, long, time.monotonic()
        self._name = f"{time.strftime('%Y%m%d-%H%M%S')}-{seed}.json"
        self._cases = self._records = self._taken = 0
        self._unread = 0
        """Cases whose files no library can read: they count for nothing."""
        self._covered: Counter[str] = Counter()
        """Records by what their case covers."""
        self._peak = 0
        self._slowest = 0.0
        self._signatures: Counter[str] = Counter()
        self.disagreements: list[dict[str, Any]] = []

    def add(self, answer: dict[str, Any], seconds: float) -> None:
        if not answer["read"]:
            self._unread += 1
            return
        self._cases += 1
        self._records += len(answer["records"])
        self._taken += answer["taken"]
        for name, value in answer["tags"].items():
            self._covered[f"{name} {value}"] += len(answer["records"])
        self._peak = max(self._peak, answer["peak"])
        self._slowest = max(self._slowest, seconds)
        self._signatures.update(found["signature"] for found in answer["found"])

    def disagree(self, number: int, places: list[int], found: dict[str, Any]) -> str:
        """Notes a disagreement, and says it in one line."""
        case = cases.make(self._seed, number, long=self._long)
        values = [repr(case.raws[place])[:300] for place in places[:4]]
        command = repeat(self._seed, number, places, long=self._long)
        self.disagreements.append({"case": number, "values": values, **found, "repeat": command})
        record = "" if found["record"] is None else f" record {found['record']}"
        line = (
            f"[{found['check']}] seed {self._seed} case {number}{record}: expected {found['expected'][:300]} |"
            f" got {found['got'][:400]} | {len(places)} records: {' '.join(values)[:600]} | {command}"
        )
        return " ".join(line.split())

    def figures(self) -> dict[str, Any]:
        seconds = time.monotonic() - self._started
        return {
            "seed": self._seed,
            "seconds": round(seconds, 1),
            "cases": self._cases,
            "cases_not_read": self._unread,
            "records": self._records,
            "records_taken_in_all_runs": self._taken,
            "records_by_what_their_case_covers": dict(sorted(self._covered.items())),
            "peak_bytes": self._peak,
            "slowest_case_seconds": round(self._slowest, 1),
            "cases_that_disagree": sum(self._signatures.values()),
            "signatures": dict(self._signatures.most_common()),
            "disagreements": self.disagreements,
        }

    def text(self) -> str:
        figures = self.figures() | {"disagreements": len(self.disagreements)}
        return json.dumps(figures, indent=1, ensure_ascii=False)

    def save(self, folder: Path) -> None:
        """The figures so far."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / self._name).write_text(json.dumps(self.figures(), indent=1, ensure_ascii=False) + "\n")
