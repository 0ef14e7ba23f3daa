"""Checks cases that it is told on standard input, one JSON line each, and answers with one JSON line each.

A process of its own: what kills it is a finding, not the end of the run.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
import tempfile
import traceback
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from calving.services.rest_catalog import RestCatalog
from tests.fuzz import cases
from tests.fuzz.checks import Disagreement, check
from tests.fuzz.plain import UnreadableError
from tests.fuzz.sink import Sink

_FRESH = 150
"""Cases after which the catalog is recreated."""


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="calving-fuzz-") as folder, ExitStack() as stack:
        sink, uri = Sink(Path(folder) / "0"), None
        for number, line in enumerate(sys.stdin, 1):
            question = json.loads(line)
            if uri is None and question["case"] >= cases.VERSION_3:
                server = RestCatalog(Path(folder) / "rest")
                stack.callback(server.stop)
                uri = server.uri
                sink.close()
                sink = Sink(Path(folder) / "0", uri)
            elif number % _FRESH == 0:
                sink.close()
                sink = Sink(Path(folder) / str(number), uri)
            answers.write(json.dumps(_answer(question, sink)) + "\n")
            answers.flush()


_case = lru_cache(maxsize=1)(cases.make)


def _answer(question: dict[str, Any], sink: Sink) -> dict[str, Any]:
    before = sink.records
    case = _case(question["seed"], question["case"], long=question["long"])
    if question.get("records") is not None:
        case = case.only(question["records"])
    read = True
    try:
        found = check(case, sink, question.get("only"))
    except UnreadableError:
        found, read = [], False
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        found = [
            Disagreement(
                "harness", None, "a check", f"{type(error).__name__}: {error} at {where.filename}:{where.lineno}"
            )
        ]
    return {
        "records": list(case.places),
        "read": read,
        "tags": case.tags,
        "taken": sink.records - before,
        "found": [d.plain() | {"signature": d.signature} for d in found],
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "arrow": pa.total_allocated_bytes(),
    }


if __name__ == "__main__":
    main()
