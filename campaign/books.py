"""Whether what workers say of their records is true (I1): the counters that they serve, as a scrape has them."""

from __future__ import annotations

import re
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from harness.run import Run

_TAKEN = ("read", "copied")
_LEFT = ("written", "superseded", "deleted", "dead_lettered", "filtered")
_AGAIN = ("calving_restarts_total",)

Counters = Mapping[str, float]
"""Sums over all labels, by the name of the metric. Of publications those that were refused."""


def counters(metrics: str) -> Counters:
    """Of the text of a scrape."""
    sums: defaultdict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.labels.get("outcome") != "done":
                sums[sample.name] += sample.value
    return sums


def imbalance(found: Counters) -> float:
    """Records that were taken and are nowhere, or are somewhere and were not taken; 0 is right."""
    return _sum(found, _TAKEN) - _sum(found, _LEFT)


def wrong(found: Counters) -> bool:
    """Whether they do not add up. Nothing was copied less than never: that would hide rows that were lost."""
    return imbalance(found) != 0 or found.get("calving_records_copied_total", 0) < 0


def asked(logs: Iterable[Path], seconds: float = 10.0) -> dict[Path, Counters]:
    """What the workers with these logs serve now; without those that do not answer."""
    found: dict[Path, Counters] = {}
    for log in logs:
        urls = re.findall(r"status page: (\S+)", log.read_text(errors="replace"))
        if not urls:
            continue
        try:
            with urllib.request.urlopen(f"{urls[-1]}metrics", timeout=seconds) as answer:
                found[log] = counters(answer.read().decode())
        except (OSError, HTTPException):  # it has just ended
            continue
    return found


def miscounted(before: Mapping[Path, Counters], after: Mapping[Path, Counters], sent: Counter[str]) -> list[str] | None:
    """Of these records, all sent in between: the outcomes whose counters have not grown by their number. ``sent`` is by
    outcome: kept, dead_lettered, filtered.

    None: a worker has ended or started over meanwhile, or was refused, so that records were read twice.
    """
    if not after or before.keys() != after.keys() or _grown(before, after, _AGAIN):
        return None
    if _grown(before, after, ("calving_publications_total",)):
        return None

    def grown(*names: str) -> float:
        return _grown(before, after, [f"calving_records_{name}_total" for name in names])

    kept = grown("written", "superseded", "deleted") - grown("copied")
    found = {"read": grown("read"), "kept": kept, **{name: grown(name) for name in ("dead_lettered", "filtered")}}
    return [name for name, count in found.items() if count != (sent.total() if name == "read" else sent[name])]


def _grown(before: Mapping[Path, Counters], after: Mapping[Path, Counters], names: Iterable[str]) -> float:
    return sum(after[log].get(name, 0) - before[log].get(name, 0) for name in names for log in after)


def _sum(found: Counters, names: Iterable[str]) -> float:
    return sum(found.get(f"calving_records_{name}_total", 0.0) for name in names)


@dataclass
class Books:
    """What the workers served of their records, before each fault and at the end. ``miscounted``: outcomes whose
    counters are not what was sent at the end.
    """

    scrapes: int = 0
    unbalanced: int = 0
    miscounted: int = 0
    counted: bool = False
    """Whether the records of the end were counted: nothing was read twice meanwhile."""

    def look(self, run: Run) -> Mapping[Path, Counters]:
        """Scrape all workers that live."""
        found = asked(worker.log for worker in run.workers if worker.returncode is None)
        self.unbalanced += sum(map(wrong, found.values()))
        self.scrapes += len(found)
        return found

    def close(self, before: Mapping[Path, Counters], after: Mapping[Path, Counters], sent: Counter[str]) -> None:
        """``before`` and ``after`` these records."""
        found = miscounted(before, after, sent)
        self.counted, self.miscounted = found is not None, len(found or ())
