"""The command without a subcommand."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from calving.cli import inspect, recover
from calving.cli.main import app
from calving.version import __version__


def test_without_a_command_the_help_is_shown_and_no_error() -> None:
    done = CliRunner().invoke(app, [])
    assert (done.exit_code, "Usage:" in done.output, "rror" in done.stderr) == (2, True, False)


def test_the_version_can_be_asked_for_as_an_option() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.output) == (0, f"{__version__}\n")


@pytest.mark.parametrize("command", [[], ["run"], ["status"]])
def test_help_has_a_short_name(command: list[str]) -> None:
    done = CliRunner().invoke(app, [*command, "-h"])
    assert (done.exit_code, "Usage:" in done.output) == (0, True)


def test_the_list_of_commands_has_no_line_breaks_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    shown = CliRunner().invoke(app, []).output
    assert "Creates the control topic if it is missing. A REST catalog that cannot stage" in shown


def test_shells_complete_the_command() -> None:
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output


@pytest.mark.parametrize(("command", "module"), [("validate", inspect), ("recover", recover)])
def test_lines_of_a_command_do_not_command_the_terminal(
    command: str, module: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sink.toml"
    file.write_text('name = "s"\n"kafka.bootstrap.servers" = "k:9092"\ntopics = "a"\n"iceberg.tables" = "db.a"\n')
    monkeypatch.setattr(module, command, lambda *_, **__: iter(["table db.\x1b]0;title\x07[b]: skipped"]))
    assert "table db.?]0;title?[b]: skipped\n" in CliRunner().invoke(app, [command, str(file)]).output
