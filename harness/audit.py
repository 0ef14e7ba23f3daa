"""Asks PyPI and RustSec for known holes in the locked packages: ``python -m harness.audit``.

Exit code 1: a package has a known hole. 3: no hole is known, and not everything could be checked; each thing is named.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PYTHON = ("requirements.lock", "docs/requirements.txt", "deploy/pyspark.txt")
RUST = ("packages/native/Cargo.lock", "packages/native/fuzz/Cargo.lock")
NOT_CHECKED = 3


class Finding(NamedTuple):
    """One line of the report. ``is_hole``: a known hole; otherwise something that could not be checked."""

    is_hole: bool
    text: str


def of_python(lock: str, report: str, errors: str) -> Iterator[Finding]:
    """What pip-audit reports about a lock, as JSON."""
    if (found := _json(report)) is None:
        yield Finding(False, f"{lock}: pip-audit has no answer: {_last(errors)}")
        return
    skipped = [each["name"] for each in found["dependencies"] if "skip_reason" in each]
    for each in found["dependencies"]:
        for hole in each.get("vulns", ()):
            yield Finding(True, f"{lock}: {each['name']} {each['version']}: {hole['id']}")
    if skipped:
        yield Finding(False, f"{lock}: the package index knows no advisories for {', '.join(sorted(skipped))}")


def of_rust(lock: str, report: str, errors: str) -> Iterator[Finding]:
    """What cargo-audit reports about a lock, as JSON."""
    if (found := _json(report)) is None:
        yield Finding(False, f"{lock}: cargo-audit has no answer: {_last(errors)}")
        return
    for each in found["vulnerabilities"]["list"]:
        package = each["package"]
        yield Finding(True, f"{lock}: {package['name']} {package['version']}: {each['advisory']['id']}")


def verdict(findings: Sequence[Finding]) -> int:
    """The exit code."""
    return 1 if any(each.is_hole for each in findings) else NOT_CHECKED if findings else 0


def _json(report: str) -> Any:
    try:
        return json.loads(report)
    except ValueError:
        return None


def _last(errors: str) -> str:
    return next(iter(reversed(errors.split("\n\n")[-1].strip().splitlines())), "it has said nothing")


def main() -> int:
    findings: list[Finding] = []
    uv = str(Path(sys.executable).with_name("uv"))
    for lock in PYTHON:
        command = [uv, "tool", "run", "--quiet", "pip-audit", "--format", "json", "--disable-pip", "--require-hashes"]
        findings += of_python(lock, *_run([*command, "-r", lock]))
    for lock in RUST:
        if shutil.which("cargo-audit") is None:
            findings.append(Finding(False, f"{lock}: cargo-audit is not installed (cargo install cargo-audit)"))
        else:
            findings += of_rust(lock, *_run(["cargo-audit", "audit", "--json", "--file", lock]))
    for each in findings:
        print("HOLE:" if each.is_hole else "not checked:", each.text)
    return verdict(findings)


def _run(command: Sequence[str]) -> tuple[str, str]:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout, done.stderr


if __name__ == "__main__":
    sys.exit(main())
