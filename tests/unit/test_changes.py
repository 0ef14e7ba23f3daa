"""The changelog: by version and category, a line for each change, and a file for each change that is in no version."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHANGES = ROOT / "changes"
NO_CHANGES = {"README.md", "template.md"}
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
CATEGORIES = [category["directory"] for category in SETTINGS["type"]]
NAME = re.compile(rf"[a-z0-9][a-z0-9-]*\.({'|'.join(CATEGORIES)})(\.\d+)?\.md")
LINE = re.compile(r"\S.{10,228}[.)]")
"""A sentence, on a line, of at most 230 characters."""


def wrong(folder: Path) -> list[str]:
    """Files of changes that have no such name, or not one sentence."""
    return [
        path.name
        for path in sorted(folder.iterdir())
        if path.name not in NO_CHANGES and not (NAME.fullmatch(path.name) and LINE.fullmatch(path.read_text().strip()))
    ]


def test_every_file_of_a_change_has_a_category_and_one_sentence() -> None:
    assert wrong(CHANGES) == []


def test_a_file_with_an_unknown_category_or_several_lines_is_noticed(tmp_path: Path) -> None:
    sentence = "A paused sink is DEGRADED while records wait."
    for name, text in {
        "good.added.md": sentence,
        "good.added.1.md": sentence,
        "bad.bugfix.md": sentence,
        "bad.added": sentence,
        "Bad name.added.md": sentence,
        "long.added.md": "x" * 230 + ".",
        "lines.added.md": f"{sentence}\n{sentence}",
        "no-sentence.added.md": "a paused sink",
    }.items():
        (tmp_path / name).write_text(text)
    expected = ["Bad name.added.md", "bad.added", "bad.bugfix.md", "lines.added.md", "long.added.md"]
    assert wrong(tmp_path) == [*expected, "no-sentence.added.md"]


def test_the_changelog_has_versions_categories_and_a_line_for_each_change() -> None:
    _, *versions = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert len(versions) >= 2
    names = [str(category["name"]) for category in SETTINGS["type"]]
    for version in versions:
        title, *categories = re.split(r"^### ", version, flags=re.MULTILINE)
        assert re.fullmatch(r"\d+\.\d+\.\d+(, (unreleased|\d{4}-\d\d-\d\d))?\n\n", title)
        headings = [category.partition("\n")[0] for category in categories]
        assert headings == [name for name in names if name in headings]
        lines = [line for category in categories for line in category.splitlines()[1:] if line]
        assert [line for line in lines if not (line.startswith("- ") and LINE.fullmatch(line[2:]))] == []


def test_a_release_takes_the_changes_into_the_changelog(tmp_path: Path) -> None:
    (tmp_path / "changes").mkdir()
    for name in ("pyproject.toml", "CHANGELOG.md", "changes/template.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "changes" / "paused.fixed.md").write_text("A paused sink is DEGRADED while records wait.\n")
    (tmp_path / "changes" / "options.breaking.md").write_text("An unknown option is an error.\n")
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", "9.0.0", "--date", "2030-01-02"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    written = (tmp_path / "CHANGELOG.md").read_text()
    before, marker, after = (ROOT / "CHANGELOG.md").read_text().partition("<!-- towncrier release notes start -->\n")
    section = (
        "\n## 9.0.0, 2030-01-02\n\n### Breaking\n\n- An unknown option is an error.\n\n"
        "### Fixed\n\n- A paused sink is DEGRADED while records wait.\n"
    )
    assert written == f"{before}{marker}{section}{after}"
    assert [path.name for path in (tmp_path / "changes").iterdir()] == ["template.md"]
