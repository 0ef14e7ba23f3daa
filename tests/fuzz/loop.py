"""The loop of a fuzzer: case after case until its time is up, and a line for each that is wrong."""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The arguments of every such fuzzer."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the clock")
    parser.add_argument("--case", type=int, help="this case only")
    return parser


def run(name: str, given: argparse.Namespace, check: Callable[[int, int, Path], tuple[int, str]]) -> int:
    """Check cases, and print the totals. Returns the exit code.

    ``check`` takes the seed, the case's number and a new folder. It returns the number of records, and what is wrong;
    empty if nothing is.
    """
    logging.disable(logging.CRITICAL)
    end, number, records, wrong = time.monotonic() + given.seconds, given.case or 0, 0, 0
    while time.monotonic() < end and (given.case is None or number == given.case):
        with tempfile.TemporaryDirectory(prefix="calving-fuzz-") as folder:
            count, fault = check(given.seed, number, Path(folder))
        records += count
        if fault:
            wrong += 1
            print(f"[{name}] {fault[:3000]} | --seed {given.seed} --case {number}", flush=True)
        number += 1
    print(json.dumps({"seed": given.seed, "cases": number - (given.case or 0), "records": records, "wrong": wrong}))
    return 1 if wrong else 0
