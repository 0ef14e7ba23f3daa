"""A first configuration that is valid as it is written."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from calving.cli.init import CATALOGS, STORES, answers, text_of
from calving.cli.main import app
from calving.errors import ConfigError
from calving.runtime.checks import check_record_path
from calving.settings.files import flat
from calving.settings.load import load, parse

PAIRS = [(c, s) for c in CATALOGS for s in STORES if c != "embedded" or s == "local"]
FLAGS = ["--topic", "web.clicks", "--bootstrap-servers", "kafka:9092", "--catalog", "embedded", "--store", "local"]


@pytest.mark.parametrize(("catalog", "store"), PAIRS)
def test_every_catalog_and_store_makes_a_valid_configuration(catalog: str, store: str) -> None:
    sink = parse(
        flat(tomllib.loads(text_of(answers("clicks", None, "k:9092", catalog, store, None, None)))), resolved=False
    )
    check_record_path(sink)
    assert sink.catalog["type"] == catalog
    assert (sink.keys.tables, sink.kafka["bootstrap.servers"]) == (("db.clicks",), "k:9092")


@pytest.mark.parametrize(("catalog", "store"), PAIRS)
def test_what_is_commented_out_is_valid_as_well(catalog: str, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_of(answers("clicks", None, "k:9092", catalog, store, None, None))
    wanted = re.sub(r'(?m)^# (?=\[|"|\w[\w.-]* = )', "", text)
    sink = parse(flat(tomllib.loads(wanted)), resolved=False)
    assert sink.keys.errors_tolerance == "all" and sink.declared("db.clicks")["ts"] == "timestamptz"


def test_the_flags_make_a_file_without_a_question(tmp_path: Path) -> None:
    file = tmp_path / "sink.toml"
    done = CliRunner().invoke(app, ["init", str(file), *FLAGS, "--table", "lake.clicks"])
    assert (done.exit_code, "?" in done.output) == (0, False), done.output
    sink = load(file)
    assert (sink.keys.topics, sink.keys.tables) == (("web.clicks",), ("lake.clicks",))


def test_what_no_flag_says_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "sink.toml"
    done = CliRunner().invoke(app, ["init", str(file)], input="clicks\n\nrest\ns3\n")
    assert done.exit_code == 0, done.output
    sink = load(file)
    assert (sink.keys.tables, sink.catalog["type"]) == (("db.clicks",), "rest")
    assert sink.catalog["warehouse"].startswith("s3://")


def test_without_anybody_to_ask_what_has_a_default_gets_it(tmp_path: Path) -> None:
    file = tmp_path / "sink.toml"
    assert CliRunner().invoke(app, ["init", str(file), "--topic", "clicks"]).exit_code == 0
    assert load(file).kafka["bootstrap.servers"] == "localhost:9092"


def test_without_anybody_to_ask_the_topic_is_needed(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["init", str(tmp_path / "sink.toml")])
    assert str(done.exception) == "nobody answers: --topic is needed"


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "sink.toml"
    file.write_text("mine")
    done = CliRunner().invoke(app, ["init", str(file), *FLAGS])
    assert isinstance(done.exception, ConfigError) and file.read_text() == "mine"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"catalog": "nessie"}, "there is no catalog 'nessie'; there are embedded, rest"),
        ({"store": "tape"}, "there is no store 'tape'"),
        ({"store": "s3"}, "the embedded catalog is for the local disk"),
        ({"table": "clicks"}, "has no namespace: write it as db.clicks"),
    ],
)
def test_an_answer_that_cannot_be_is_refused(change: dict[str, str], text: str) -> None:
    given = {"topic": "t", "table": None, "servers": "k:1", "catalog": "embedded", "store": "local"} | change
    with pytest.raises(ConfigError, match=text):
        answers(**given, uri=None, warehouse=None)  # type: ignore[arg-type]


def test_the_head_names_the_extras_that_are_needed() -> None:
    text = text_of(answers("t", None, "k:1", "sql", "azure", None, None))
    assert 'pip install "calving[kafka,postgres,azure]"' in text
