"""The report on known holes in locked packages says what it has found, and what it could not check."""

from __future__ import annotations

import json

from harness.audit import NOT_CHECKED, Finding, of_python, of_rust, verdict

CHECKED = {"name": "idna", "version": "3.7", "vulns": [{"id": "PYSEC-1"}, {"id": "PYSEC-2"}]}
SKIPPED = {"name": "py4j", "skip_reason": "not on this index"}
CRATE = {"advisory": {"id": "RUSTSEC-1"}, "package": {"name": "zip", "version": "1.0"}}


def test_each_hole_of_a_python_package_is_named_and_so_is_what_the_index_does_not_know() -> None:
    found = list(of_python("a.lock", json.dumps({"dependencies": [CHECKED, SKIPPED]}), ""))
    assert [each.is_hole for each in found] == [True, True, False]
    assert [each.text for each in found] == [
        "a.lock: idna 3.7: PYSEC-1",
        "a.lock: idna 3.7: PYSEC-2",
        "a.lock: the package index knows no advisories for py4j",
    ]


def test_each_hole_of_a_crate_is_named() -> None:
    report = json.dumps({"vulnerabilities": {"list": [CRATE]}})
    assert list(of_rust("b.lock", report, "")) == [Finding(True, "b.lock: zip 1.0: RUSTSEC-1")]


def test_a_program_without_an_answer_is_not_taken_for_a_good_one() -> None:
    for judge in (of_python, of_rust):
        (found,) = judge("a.lock", "", "Traceback\n\nno such host")
        assert not found.is_hole and found.text.endswith("has no answer: no such host")


def test_the_exit_code_tells_holes_from_what_could_not_be_checked() -> None:
    hole, unknown = Finding(True, "x"), Finding(False, "y")
    assert [verdict(each) for each in ([], [unknown], [unknown, hole])] == [0, NOT_CHECKED, 1]
