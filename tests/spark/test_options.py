"""The options of the data source: which are known, which show a secret, and what they become."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from calving.errors import ConfigError, UnexpectedError
from calving_spark.masking import no_secrets_in_errors
from calving_spark.options import read
from calving_spark.source import DefaultSource

CATALOG = {"catalog.type": "rest", "catalog.uri": "http://catalog:8181"}
TABLE = {**CATALOG, "table": "lake.t"}


def test_the_argument_of_start_and_of_save_is_the_table() -> None:
    assert read({**CATALOG, "path": "lake.t"}).keys.table == "lake.t"


def test_what_spark_adds_is_no_option_of_the_table() -> None:
    read({**TABLE, "checkpointlocation": "/c", "queryname": "q"})


@pytest.mark.parametrize(
    ("more", "sink"), [({}, None), ({"queryname": "q"}, "q"), ({"queryname": "q", "sink": "s"}, "s")]
)
def test_a_stream_has_the_name_of_its_sink_or_of_its_query(more: dict[str, str], sink: str | None) -> None:
    assert read({**TABLE, **more}).sink == sink


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"tabel": "x"}, "option tabel: unknown; did you mean 'table'"),
        ({"table": "orders"}, "option table: must be a table's name with its namespace"),
        ({"on-new-checkpoint": "ignore"}, "option on-new-checkpoint: must be 'refuse' or 'continue'"),
        ({"write-id": "a@b"}, "option write-id: must have 1 to 200 characters"),
        ({"queryname": "a@b"}, "the query's name 'a@b' must have 1 to 200 characters .*: set the option sink"),
        ({"catalog.urii": "x"}, "unknown key 'iceberg.catalog.urii'; did you mean"),
        ({"catalog.uri": "catalog:8181"}, "iceberg.catalog.uri: must be such as http://host:8181"),
    ],
)
def test_a_mistaken_option_is_refused(more: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read({**TABLE, **more})


def test_a_write_without_a_catalog_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"option catalog\.type is missing"):
        read({"table": "lake.t"})


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("catalog.token", "hunter2"),
        ("catalog.s3.secret-access-key", "hunter2"),
        ("catalog.credential", "me:hunter2"),
        ("catalog.uri", "https://me:hunter2@catalog"),
        ("catalog.uri", "https://catalog?warehouse=w&password=hunter2"),
    ],
)
def test_an_option_that_shows_a_secret_is_refused_without_showing_it(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"option {key} shows a secret") as caught:
        read({**TABLE, key: text})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("call", ["schema", "writer", "streamWriter"])
def test_an_error_shows_no_secret_in_its_causes_either(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    monkeypatch.setenv("LAKE_PASSWORD", "hunter2secret/x")  # a library takes hunter2secret for a port
    source = DefaultSource({**TABLE, "catalog.uri": "http://me:${env:LAKE_PASSWORD}@catalog"})
    arguments = () if call == "schema" else (StructType().add("id", "long"), False)
    with pytest.raises(ConfigError, match="cannot be opened") as caught:
        getattr(source, call)(*arguments)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_an_error_of_a_library_with_a_secret_becomes_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_TOKEN", "hunter2secret")
    read({**TABLE, "catalog.token": "${env:LAKE_TOKEN}"})
    with pytest.raises(UnexpectedError, match=r"OSError: \*\*\* is no token") as caught, no_secrets_in_errors():
        raise OSError("hunter2secret is no token")
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_an_error_without_a_secret_keeps_its_cause() -> None:
    with pytest.raises(ConfigError) as caught, no_secrets_in_errors():
        raise ConfigError("no") from OSError("why")
    assert isinstance(caught.value.__cause__, OSError)


def test_two_names_of_the_table_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"option table is lake\.t, and start, save or load names lake\.u"):
        read({**TABLE, "path": "lake.u"})
    assert read({**TABLE, "path": "lake.t"}).keys.table == "lake.t"


def test_a_secret_may_be_a_reference_which_is_looked_up_and_does_not_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_TOKEN", "hunter2")
    options = read({**TABLE, "catalog.token": "${env:LAKE_TOKEN}"})
    assert options.catalog["token"] == "hunter2"
    assert "hunter2" not in str(options.given)


@pytest.mark.parametrize("given", [{}, {"sink": "mine"}])
def test_options_come_before_those_of_the_file(tmp_path: Path, given: dict[str, str]) -> None:
    file = tmp_path / "sink.toml"
    file.write_text('table = "lake.t"\nsink = "file"\n[catalog]\ntype = "rest"\nuri = "http://c:1"\ntoken = "x"\n')
    options = read({"config": str(file), **given})
    assert options.sink == given.get("sink", "file")
    assert options.catalog == {"type": "rest", "uri": "http://c:1", "token": "x"}
