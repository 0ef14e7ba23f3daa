"""What the manual says is what the code does."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from calving.runtime.wiring import check_record_path
from calving.settings.load import flat, parse
from tests.conformance import matrix
from tests.generate_docs import PAGE, page

ROOT = Path(__file__).parents[2]
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [
    (path.name, kind, text)
    for path in TEXTS
    for kind, text in re.findall(r"```(toml|json)\n(.*?)```", path.read_text(), re.DOTALL)
]


def test_the_reference_of_keys_is_up_to_date() -> None:
    assert PAGE.read_text() == page()


@pytest.mark.parametrize(("name", "kind", "text"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_configuration_in_the_manual_is_valid(
    name: str, kind: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "x")
    monkeypatch.setenv("CATALOG_TOKEN", "x")
    raw = tomllib.loads(text) if kind == "toml" else json.loads(text)
    sink = parse(flat(raw.get("config", raw) | ({"name": raw["name"]} if "name" in raw else {})))
    check_record_path(sink)


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.name)
def test_links_inside_the_repository_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_the_matrix_of_backends_has_every_rule_of_the_contract() -> None:
    text = matrix.PAGE.read_text()
    for number, sentence in matrix.rules().items():
        assert f"| {number} | {sentence} | " in text, "run make matrix"
    assert "**no**" not in text


@pytest.mark.parametrize(
    "place", re.findall(r"`([a-z0-9]+/test_\w+\.py[^`]*)`", (ROOT / "docs/java-tests.md").read_text())
)
def test_what_javas_tests_check_has_a_test_here(place: str) -> None:
    path, _, name = place.partition("::")
    text = (ROOT / "tests" / path).read_text()
    assert not name or f"def {name}(" in text


def test_every_difference_from_the_java_sink_has_a_reason() -> None:
    _, _, section = (ROOT / "docs/records.md").read_text().partition("## Differences from the Java sink\n")
    rows = re.findall(r"^\|.*$", section.partition("\n## ")[0], re.MULTILINE)
    assert rows
    assert not [row for row in rows if not re.fullmatch(r"\|( ?[^| ][^|]*\|){4}", row)]
