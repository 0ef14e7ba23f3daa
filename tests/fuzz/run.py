"""``python -m tests.fuzz.run --seconds 3600 [--long] [--seed 7] [--case 12 [--records 3,5]]``: fuzzes the record path.

Prints one line for each disagreement, with the command that repeats it, and saves figures under ``fuzz-results/``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path

from tests.fuzz import cases
from tests.fuzz.report import Report, repeat
from tests.fuzz.runner import Fuzzer, Worker, shrink


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, help="default: the clock")
    parser.add_argument("--long", action="store_true", help=f"cases of {cases.LONG:,} records, each in one way more")
    parser.add_argument("--case", type=int, help="this case only")
    parser.add_argument("--records", help="of that case only the records at these places, separated by commas")
    parser.add_argument("--cases", type=int, default=10**9, help="at most so many")
    parser.add_argument("--first", type=int, default=0, help="the first case's number")
    parser.add_argument("--version-3", action="store_true", help="tables of version 3, in Apache's REST catalog")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, default=Path("fuzz-results"))
    args = parser.parse_args()
    seed = int(time.time()) if args.seed is None else args.seed
    if args.case is not None:
        return _one(seed, args.case, args.long, [int(r) for r in args.records.split(",")] if args.records else None)
    report = Report(seed, long=args.long)
    first = args.first + (cases.VERSION_3 if args.version_3 else 0)
    numbers = range(first, first + args.cases)
    fuzzer = Fuzzer(seed, numbers, time.monotonic() + args.seconds, report, args.results, long=args.long)
    threads = [threading.Thread(target=fuzzer.work) for _ in range(args.workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(report.text())
    report.save(args.results)
    return 1 if report.disagreements else 0


def _one(seed: int, number: int, long: bool, records: list[int] | None) -> int:
    case = cases.make(seed, number, long=long)
    with Worker(long=long) as worker:
        found = worker.ask(seed, number, records)["found"]
        places = (
            shrink(worker, seed, number, found[0], records or list(case.places)) if found and not records else records
        )
    for target in case.targets:
        print(f"table {target.name}: {target.schema}, partitioned by {target.spec}, {dict(target.properties)}")
    print(case.run)
    for place in places or case.places[:20]:
        print(f"record {place}: {case.raws[place]!r}")
    for disagreement in found:
        print(json.dumps(disagreement, ensure_ascii=False, indent=1))
    if places and places != list(case.places):
        print(f"smallest: {repeat(seed, number, places, long=long)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
