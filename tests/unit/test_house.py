"""A name says one thing: classes are told apart by their names, and arguments by theirs. Functions have few branches; an
exception needs its sentence here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.house.static import Sources

BRANCHING = {
    "calving/records/inferred.py: of_value": "a case for each type of a JSON value",
    "calving/records/arrays.py: build": "a case for each type of Arrow",
    "calving/transforms/dates.py: _writer": "a case for each letter of Java's date patterns",
}


@pytest.fixture(scope="module")
def sources() -> Sources:
    return Sources()


def _written(root: Path, **modules: str) -> Sources:
    folder = root / "packages" / "core" / "src" / "calving"
    folder.mkdir(parents=True)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return Sources(root)


def test_every_public_class_has_a_name_of_its_own(sources: Sources) -> None:
    assert sources.repeated_classes == {}


def test_a_call_with_seven_arguments_or_more_names_them(sources: Sources) -> None:
    assert sources.long_calls == []


def test_every_branching_function_has_its_reason_and_no_other_has_one(sources: Sources) -> None:
    assert {name.rpartition("/src/")[2] for name in sources.branching} == BRANCHING.keys()


def test_a_second_class_of_a_name_and_a_long_call_are_noticed(tmp_path: Path) -> None:
    planted = _written(
        tmp_path, a="class Reader: ...\nf(1, 2, 3, 4, 5, 6, 7)\nf(1, 2, 3, 4, 5, 6, g=7)", b="class Reader: ..."
    )
    assert planted.repeated_classes == {"Reader": [f"packages/core/src/calving/{name}.py" for name in "ab"]}
    assert planted.long_calls == ["packages/core/src/calving/a.py:2"]


def test_the_depth_of_imports_counts_the_modules_of_the_longest_path(tmp_path: Path) -> None:
    planted = _written(
        tmp_path, a="from calving.b import x", b="from calving import c, d", c="", d="from calving import c"
    )
    assert planted.import_depth == 4
