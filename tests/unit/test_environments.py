"""The environments of tox run every test."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_LEFT_OUT = re.compile(r"--ignore (tests/[\w/.]+)")


@pytest.fixture(scope="module")
def commands() -> dict[str, str]:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(_ROOT / "tox.ini")
    return {section.removeprefix("testenv:"): tox[section].get("commands", "") for section in tox.sections()}


def test_what_the_environments_for_services_and_for_none_leave_out_belongs_to_another_environment(
    commands: dict[str, str],
) -> None:
    ignored = {path for name in ("testenv", "unit") for path in _LEFT_OUT.findall(commands[name])}
    run = {
        path.removeprefix("{posargs:").rstrip("}")
        for command in commands.values()
        for path in _LEFT_OUT.sub("", command).split()
    }
    assert "tests/cluster" in ignored
    assert ignored <= run
    assert all((_ROOT / path).exists() for path in ignored)


def test_what_takes_long_belongs_to_an_environment_of_the_same_folders(commands: dict[str, str]) -> None:
    assert {name for name, command in commands.items() if "not long" in command} >= {"testenv", "unit", "spark41"}
    assert _LEFT_OUT.findall(commands["long"]) == _LEFT_OUT.findall(commands["testenv"])
    for name, folders in {"long": "tests ", "long41": "tests/readback tests/java}"}.items():
        assert f" -m long {{posargs:{folders}" in commands[name]
