"""The environments of tox run every test."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_what_the_environments_for_services_and_for_none_leave_out_belongs_to_another_environment() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(_ROOT / "tox.ini")
    commands = {section: tox[section].get("commands", "") for section in tox.sections()}
    left_out = re.compile(r"--ignore (tests/[\w/.]+)")
    ignored = {path for section in ("testenv", "testenv:unit") for path in left_out.findall(commands[section])}
    run = {
        path.removeprefix("{posargs:").rstrip("}")
        for command in commands.values()
        for path in left_out.sub("", command).split()
    }
    assert "tests/cluster" in ignored
    assert ignored <= run
    assert all((_ROOT / path).exists() for path in ignored)
