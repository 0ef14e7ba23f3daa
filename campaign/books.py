"""Whether what workers say of their records adds up (I1), as their metrics have it."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

_TAKEN = ("read", "copied")
_LEFT = ("written", "superseded", "deleted", "dead_lettered", "filtered")


def imbalance(metrics: str) -> float:
    """Records that were taken and are nowhere, or are somewhere and were not taken; 0 is right."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    taken, left = (sum(sums.get(f"calving_records_{name}_total", 0.0) for name in names) for names in (_TAKEN, _LEFT))
    return taken - left


def books(logs: Iterable[Path]) -> tuple[int, int]:
    """Of the workers with these logs: how many have answered, and how many of these do not add up."""
    found: list[float] = []
    for log in logs:
        urls = re.findall(r"status page: (\S+)", log.read_text(errors="replace"))
        if not urls:
            continue
        try:
            with urllib.request.urlopen(f"{urls[-1]}metrics", timeout=10) as answer:
                found.append(imbalance(answer.read().decode()))
        except OSError:  # it has just ended
            continue
    return len(found), sum(each != 0 for each in found)
