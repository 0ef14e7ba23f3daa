"""The manual agrees with the code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from calving.errors import ConfigError
from calving.runtime.checks import check_record_path
from calving.settings.files import flat
from calving.settings.load import parse
from harness import generate_matrix as matrix
from harness.generate_docs import COMMANDS, METRICS_PAGE, PAGE, commands_page, metrics_page, page
from harness.live_pictures import FOLDER, pictures
from tests.cli.pages import DOCS, modules

ROOT = Path(__file__).parents[2]
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [
    (path, kind, text)
    for path in TEXTS
    for kind, text in re.findall(r"```(toml|json)\b[^\n]*\n(.*?)```", path.read_text(), re.DOTALL)
]


def test_the_reference_of_keys_is_up_to_date() -> None:
    assert PAGE.read_text() == page()


def test_the_reference_of_commands_is_up_to_date() -> None:
    assert COMMANDS.read_text() == commands_page()


def test_the_reference_of_metrics_is_up_to_date() -> None:
    assert METRICS_PAGE.read_text() == metrics_page()


@pytest.mark.parametrize(("name", "picture"), pictures().items())
def test_the_pictures_of_the_live_view_are_up_to_date(name: str, picture: str) -> None:
    assert (FOLDER / name).read_text() == picture, "run make docs"


@pytest.mark.parametrize(("path", "kind", "text"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_configuration_in_the_manual_is_valid(
    path: Path, kind: str, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if path.is_relative_to(DOCS):
        for block in modules(str(path.relative_to(DOCS))):
            (tmp_path / str(block.title)).write_text(block.text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("KAFKA_PASSWORD", "x")
    monkeypatch.setenv("CATALOG_TOKEN", "x")
    monkeypatch.setenv("S3_SECRET", "x")
    monkeypatch.setenv("REGISTRY_LOGIN", "user:x")
    monkeypatch.setenv("VIRTUAL_ENV", "/x")
    raw = tomllib.loads(text) if kind == "toml" else json.loads(text)
    sink = parse(flat(raw.get("config", raw) | ({"name": raw["name"]} if "name" in raw else {})))
    check_record_path(sink)


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_inside_the_repository_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_step_of_a_list_runs_into_the_paragraph_before_it(path: Path) -> None:
    """Markdown takes a line with a number or a dash for a step only after an empty line or another step."""
    without_code = re.sub(r"(?ms)^ *```.*?^ *```$", "", path.read_text())
    for block in re.split(r"\n\s*\n", without_code):
        lines = block.strip("\n").split("\n")
        if not re.match(r"\s*([0-9]+\.|[-*]) ", lines[0]):
            assert not [line for line in lines[1:] if re.match(r"([0-9]+\.|[-*]) ", line)], block


def test_the_matrix_of_backends_has_every_rule_of_the_contract() -> None:
    text = matrix.PAGE.read_text()
    places = [text.find(f"| {number} | {sentence} | ") for number, sentence in matrix.rules().items()]
    assert min(places) > 0 and places == sorted(places), "run make matrix"
    assert "**no**" not in text


def named_tests(page: str) -> list[str]:
    return sorted(set(re.findall(r"`([a-z0-9]+/test_\w+\.py[^`]*)`", (ROOT / "docs/reference" / page).read_text())))


@pytest.mark.parametrize("place", [*named_tests("java-tests.md"), *named_tests("catalogs.md")])
def test_the_tests_that_the_manual_names_are_there(place: str) -> None:
    path, _, name = place.partition("::")
    text = (ROOT / "tests" / path).read_text()
    assert not name or f"def {name}(" in text


def test_every_difference_from_the_java_sink_has_a_reason() -> None:
    _, _, section = (ROOT / "docs/reference/records.md").read_text().partition("## Differences from the Java sink\n")
    rows = re.findall(r"^\|.*$", section.partition("\n## ")[0], re.MULTILINE)
    assert rows
    assert not [row for row in rows if not re.fullmatch(r"\|( ?[^| ][^|]*\|){4}", row)]


def refused_keys() -> list[str]:
    page = (DOCS / "how-to" / "from-the-java-sink.md").read_text().partition("<!-- refused keys -->")[2]
    first_cells = re.findall(r"^\| (`[^|]+) \|", page.partition("\nThese are refused")[0], re.MULTILINE)
    return [key for cell in first_cells for key in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("key", refused_keys())
def test_a_key_that_the_manual_says_is_refused_is(key: str) -> None:
    settings = {"name": "s", "topics": "t", "iceberg.tables": "db.t", "kafka.bootstrap.servers": "h:1"}
    with pytest.raises(ConfigError, match=f"unknown key '{key}'"):
        parse(settings | {key: "x"})


def test_the_map_of_packages_has_every_package() -> None:
    page = (DOCS / "explanation" / "architecture.md").read_text().partition("<!-- map of packages -->")[2]
    core = ROOT / "packages" / "core" / "src" / "calving"
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == {f.parent.name for f in core.glob("*/__init__.py")}


def test_every_module_that_the_architecture_page_names_is_there() -> None:
    page = (DOCS / "explanation" / "architecture.md").read_text().partition("## Where to look")[2]
    core = ROOT / "packages" / "core" / "src" / "calving"
    named = set(re.findall(r"`([a-z_/.]+)`", page)) - {"packages/core/src/calving", "session.py"}
    assert len(named) > 20
    assert [name for name in named if not (core / name).exists()] == []


def test_every_page_is_in_the_site() -> None:
    nav = (ROOT / "mkdocs.yml").read_text()
    assert [path for path in DOCS.rglob("*.md") if f" {path.relative_to(DOCS)}\n" not in nav] == []


def test_the_contracts_in_the_manual_hold_for_its_examples(tmp_path: Path) -> None:
    page = "how-to/extend.md"
    for block in modules(page):
        (tmp_path / str(block.title)).write_text(block.text)
    groups = "\n".join(re.findall(r"```ini\n(.*?)```", (DOCS / page).read_text(), re.DOTALL))
    info = tmp_path / "examples-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: examples\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        re.sub(r'\[project\.entry-points\."([^"]+)"\]', r"[\1]", groups).replace('"', "")
    )
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert {path.name for path in tmp_path.glob("test_*.py")} >= {
        "test_plain.py",
        "test_pool.py",
        "test_readings.py",
        "test_units.py",
    }


def test_every_decision_is_in_the_index_with_its_reasons() -> None:
    records = sorted((DOCS / "adr").glob("[0-9]*.md"))
    index = re.findall(r"^\| (\d+) \| \[(.+)\]\((.+)\) \|$", (DOCS / "adr" / "index.md").read_text(), re.MULTILINE)
    titles = [path.read_text().partition("\n")[0].removeprefix("# ") for path in records]
    assert index == [(str(n), title, path.name) for n, (title, path) in enumerate(zip(titles, records, strict=True), 1)]
    for path in records:
        parts = re.findall(r"^## (.+)$", path.read_text(), re.MULTILINE)
        assert parts[:3] == ["Context", "Decision", "Consequences"], path
        assert parts[3:] in ([], ["Alternatives"]), path
