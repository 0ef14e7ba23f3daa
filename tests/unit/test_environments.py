"""The environments of tox run every test."""

from __future__ import annotations

import configparser
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_every_file_of_end_to_end_tests_belongs_to_an_environment() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(_ROOT / "tox.ini")
    commands = [tox[section].get("commands", "") for section in tox.sections()]
    words = {word.strip("{}").removeprefix("posargs:") for command in commands for word in command.split()}
    files = {str(path.relative_to(_ROOT)) for path in (_ROOT / "tests/e2e").glob("test_*.py")}
    assert files
    assert files <= words


def test_every_folder_with_tests_of_services_belongs_to_an_environment() -> None:
    commands = (_ROOT / "tox.ini").read_text()
    marked = {
        path.parent.relative_to(_ROOT)
        for path in (_ROOT / "tests").rglob("test_*.py")
        if "pytest.mark.services" in path.read_text() and path.parent.name not in ("e2e", Path(__file__).parent.name)
    }
    assert marked
    assert {str(folder) for folder in marked if str(folder) not in commands} == set()
