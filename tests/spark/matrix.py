"""``make spark-matrix``: the tests of the data source of Spark on one version of PySpark, with sessions of its own and
of Spark Connect, on this machine's threads and on a standalone cluster. Prints and saves what has passed, by session.

``python -m tests.spark.matrix --show`` prints what all versions have saved.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark
from rich.console import Console
from rich.table import Table

from calving.services.process import interruptible
from tests.spark.sessions import CHOSEN, KINDS, Kind

ROOT = Path(__file__).parents[2]
_OF_A_SESSION = ("batch_writes", "beside_a_sink", "foreach", "reads", "streams", "upserts")
"""The modules of tests whose Spark is a session of a kind; the others start theirs, and run once."""
_COLUMNS = ("spark", "session", "passed", "failed", "skipped", "seconds")


def run(kind: Kind, chosen: Sequence[str]) -> Mapping[str, object]:
    """Run the tests on such sessions; what came of them. ``chosen``: arguments of pytest."""
    tests = [f"tests/spark/test_{name}.py" for name in _OF_A_SESSION] if kind != KINDS[0] else ["tests/spark"]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={results}", *tests, *chosen]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, CHOSEN: kind}, check=False)
        # Code 1 says that tests have failed, which the results say, too.
        counts = _counts(results) if done.returncode in (0, 1) else {"passed": 0, "failed": 1, "skipped": 0}
    return {"spark": pyspark.__version__, "session": kind, **counts, "seconds": round(time.monotonic() - started)}


def _counts(results: Path) -> dict[str, int]:
    (suite,) = ET.parse(results).getroot().iter("testsuite")
    total, skipped = int(suite.attrib["tests"]), int(suite.attrib["skipped"])
    failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    return {"passed": total - failed - skipped, "failed": failed, "skipped": skipped}


def show(rows: Sequence[Mapping[str, object]]) -> None:
    """Print a table."""
    table = Table(*_COLUMNS)
    for row in rows:
        table.add_row(*(str(row[name]) for name in _COLUMNS))
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--session", choices=KINDS, action="append", help="default: each kind")
    parser.add_argument("-k", default="", help="only these tests, as of pytest")
    parser.add_argument("--show", action="store_true", help="what all versions have saved")
    parser.add_argument("--out", type=Path, default=ROOT / "campaign-results")
    args = parser.parse_args()
    if args.show:
        saved = sorted(args.out.glob("spark-matrix-*.json"))
        show([row for path in saved for row in json.loads(path.read_text())])
        return
    rows = []
    with interruptible():
        for kind in args.session or KINDS:
            rows.append(run(kind, ["-k", args.k] if args.k else []))
            args.out.mkdir(parents=True, exist_ok=True)
            (args.out / f"spark-matrix-{pyspark.__version__}.json").write_text(json.dumps(rows, indent=2))
    show(rows)
    sys.exit(any(row["failed"] for row in rows))


if __name__ == "__main__":
    main()
