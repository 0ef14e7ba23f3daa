"""`calving takeover` of a folder: every connector becomes a file, or says why not. No service is asked."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from calving.cli.connectors import Move, SinkDraft, convert
from calving.cli.main import app
from calving.errors import ConfigError
from calving.settings.files import read
from calving.settings.load import load

CONFIG = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "tasks.max": "4",
    "topics": "orders",
    "iceberg.tables": "sales.orders",
    "iceberg.catalog": "lake",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "https://catalog.example.com",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "kafka.bootstrap.servers": "kafka:9092",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "connectors"
    made.mkdir()
    return made


def save(folder: Path, file: str, answer: object) -> None:
    (folder / file).write_text(json.dumps(answer))


def save_one(folder: Path, **keys: str | None) -> None:
    """A connector with these keys, which differ from ``CONFIG``; None: without the key."""
    config = {"name": "orders", **CONFIG, **{key.replace("__", "."): text for key, text in keys.items()}}
    save(folder, "orders.json", {key: text for key, text in config.items() if text is not None})


def only(move: Move) -> SinkDraft:
    (draft,) = move.drafts
    return draft


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["takeover", *map(str, arguments)], terminal_width=200)


def test_every_answer_of_connects_rest_becomes_files(folder: Path, tmp_path: Path) -> None:
    expanded: dict[str, object] = {
        name: {"info": {"name": name, "config": {"name": name, **CONFIG}, "tasks": []}} for name in ("a", "b")
    }
    save(folder, "all.json", expanded)
    save(folder, "c.json", {"name": "c", "config": CONFIG, "tasks": [], "type": "sink"})
    save(folder, "config.json", {"name": "d", **CONFIG})
    move = convert(folder, tmp_path / "sinks")
    assert [(each.name, each.file, each.left, each.refusals) for each in move.drafts] == [
        (name, tmp_path / "sinks" / f"{name}.json", [], ()) for name in "abcd"
    ]
    assert [load(tmp_path / "sinks" / f"{name}.json").group for name in "abcd"] == [f"connect-{n}" for n in "abcd"]


def test_a_file_means_what_the_connector_means_with_its_worker(folder: Path, tmp_path: Path) -> None:
    save_one(folder, kafka__bootstrap__servers=None, value__converter=None, iceberg__catalog__prefix='é"\\\x7f')
    worker = tmp_path / "worker.properties"
    worker.write_text("bootstrap.servers=k:9092\nvalue.converter=org.apache.kafka.connect.json.JsonConverter\n")
    written = only(convert(folder, tmp_path / "sinks", read(worker))).file
    assert written is not None
    assert replace(load(written), file="") == replace(load(folder / "orders.json", worker), file="")


def test_keys_without_effect_are_left_out(folder: Path) -> None:
    save_one(folder, errors__log__enable="true")
    draft = only(convert(folder, folder.parent / "sinks"))
    assert (draft.left, draft.refusals) == ([], ())
    assert draft.file is not None
    assert "errors.log.enable" not in load(draft.file).given


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"kafka__bootstrap__servers": None}, "kafka.bootstrap.servers: give --worker, or add it"),
        ({"value__converter": None}, "value.converter: give --worker, or add it"),
        ({"iceberg__catalog__type": None}, "iceberg.catalog.type: add it"),
        ({"iceberg__catalog__token": "****************"}, "iceberg.catalog.token: Kafka Connect masks it"),
        ({"iceberg__catalog__token": "${env:NO_SUCH}"}, "the environment variable NO_SUCH is not set"),
        (
            {"iceberg__catalog__token": "${file:/no/such:token}"},
            "iceberg.catalog.token: /no/such: there is no such file",
        ),
        (
            {"iceberg__catalog__token": "${vault:lake:token}"},
            "'${vault:...}' is from a provider that calving lacks",
        ),
    ],
    ids=["brokers", "converter", "catalog", "masked", "variable", "file", "provider"],
)
def test_what_is_left_to_do_is_said_and_the_file_is_written(
    folder: Path, keys: Mapping[str, str | None], said: str
) -> None:
    save_one(folder, **keys)
    move = convert(folder, folder.parent / "sinks")
    assert said in "\n".join(only(move).left)
    assert (folder.parent / "sinks" / "orders.json").exists()
    assert move.exit_code == 1


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"iceberg__catalog__type": "nessie"}, "nessie"),
        ({"producer__override__acks": "1"}, "unknown key 'producer.override.acks'"),
        ({"value__converter": "com.example.Ours"}, "com.example.Ours"),
        ({"transforms": "t", "transforms__t__type": "com.example.Ours"}, "com.example.Ours"),
    ],
    ids=["catalog", "key", "converter", "transform"],
)
def test_what_cannot_be_taken_over_is_said_and_no_file_is_written(
    folder: Path, keys: Mapping[str, str | None], said: str
) -> None:
    save_one(folder, iceberg__catalog__token="${env:NO_SUCH}", **keys)
    move = convert(folder, folder.parent / "sinks")
    assert said in "\n".join(only(move).refusals)
    assert not (folder.parent / "sinks" / "orders.json").exists()
    assert move.exit_code == 2


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"iceberg__catalog__type": "rest", "iceberg__catalog__uri": "catalog:8181"}, "iceberg.catalog.uri: must be"),
        ({"iceberg__catalog__type": "rest", "iceberg__catalog__uri": None}, "iceberg.catalog.uri is missing"),
        ({"kafka__sasl__username": "u"}, "kafka.sasl.username has no effect"),
        ({"iceberg__tables__auto-create-props__format-version": "4"}, "format-version"),
    ],
)
def test_what_validate_refuses_without_a_service_is_refused(
    folder: Path, keys: Mapping[str, str | None], said: str
) -> None:
    save_one(folder, **keys)
    assert said in "\n".join(only(convert(folder, folder.parent / "sinks")).refusals)


def test_a_number_that_only_the_connects_workers_know_is_left_to_do_and_no_refusal(folder: Path) -> None:
    save_one(folder, **{"iceberg.control.commit.interval-ms": "${env:CALVING_NO_SUCH}"})
    draft = only(convert(folder, folder.parent / "sinks"))
    assert draft.refusals == () and "CALVING_NO_SUCH" in "\n".join(draft.left)


def test_a_file_that_only_the_connects_workers_have_is_no_refusal(folder: Path) -> None:
    save_one(folder, kafka__security__protocol="SSL", kafka__ssl__ca__location="/no/such.pem")
    assert only(convert(folder, folder.parent / "sinks")).refusals == ()


@pytest.mark.parametrize(
    "text", ["{", "[]", "[1]", '"x"', '{"topics": "t"}', "{}", '{"name": "x", "config": 1}', "\xff"]
)
def test_a_file_that_holds_no_connector_is_named_and_the_others_are_converted(folder: Path, text: str) -> None:
    save_one(folder)
    (folder / "bad.json").write_text(text, "latin-1")
    bad, good = convert(folder, folder.parent / "sinks").drafts
    assert (bad.name, len(bad.refusals), good.name) == ("bad.json", 1, "orders")
    assert "bad.json" in bad.refusals[0]


def test_connectors_that_do_not_write_to_iceberg_are_left_alone(folder: Path) -> None:
    save(folder, "a.json", {"name": "jdbc", "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector"})
    save_one(folder)
    move = convert(folder, folder.parent / "sinks")
    assert (only(move).name, move.others, move.exit_code) == ("orders", ["jdbc"], 0)


def test_two_connectors_of_one_name_are_refused_unless_they_are_the_same(folder: Path) -> None:
    save_one(folder)
    save(folder, "same.json", {"name": "orders", "config": CONFIG})
    assert only(convert(folder, folder.parent / "sinks")).refusals == ()
    save(folder, "same.json", {"name": "orders", "config": {**CONFIG, "topics": "others"}})
    move = convert(folder, folder.parent / "sinks")
    assert only(move).refusals == [
        "connector orders has different configurations in orders.json and same.json: keep the one that runs"
    ]


def expanded(*names: str, **others: object) -> dict[str, object]:
    return {**{name: {"info": {"name": name, "config": CONFIG}} for name in names}, **others}


def test_an_old_copy_of_one_connector_costs_no_other(folder: Path, tmp_path: Path) -> None:
    save(folder, "all.json", expanded("a", "b", "c"))
    save(folder, "a-old.json", {"name": "a", "config": {**CONFIG, "topics": "old"}})
    move = convert(folder, tmp_path / "sinks")
    assert [(each.name, each.file is not None) for each in move.drafts] == [("a", False), ("b", True), ("c", True)]
    assert move.drafts[0].refusals == [
        "connector a has different configurations in a-old.json and all.json: keep the one that runs"
    ]


@pytest.mark.parametrize(
    "entry",
    [{"info": {"config": CONFIG}}, {"info": {"config": []}}, {"status": {}}, 3],
    ids=["no name", "no keys", "no info", "no object"],
)
def test_an_entry_that_is_no_connector_costs_no_other(folder: Path, tmp_path: Path, entry: object) -> None:
    save(folder, "all.json", expanded("a", "b", bad=entry))
    move = convert(folder, tmp_path / "sinks")
    assert [(each.name, each.file is not None, len(each.refusals)) for each in move.drafts] == [
        ("a", True, 0),
        ("all.json, bad", False, 1),
        ("b", True, 0),
    ]


def test_a_long_name_has_a_file_of_its_own(folder: Path, tmp_path: Path) -> None:
    names = ["я" * 90 + "1", "я" * 90 + "2", "z"]
    configs = [{**CONFIG, "iceberg.connect.group-id": f"g{number}"} for number in range(3)]
    save(
        folder,
        "all.json",
        {name: {"info": {"name": name, "config": config}} for name, config in zip(names, configs, strict=True)},
    )
    move = convert(folder, tmp_path / "sinks")
    assert move.exit_code == 0
    assert len({each.file for each in move.drafts if each.file is not None and each.file.exists()}) == 3


@pytest.mark.parametrize("wrong", [{"name": "x\ud800"}, {"name": "x", "iceberg.catalog.prefix": "\udfff"}])
def test_half_a_character_is_refused_and_costs_no_other(folder: Path, tmp_path: Path, wrong: dict[str, str]) -> None:
    save(folder, "a.json", {**CONFIG, **wrong})
    save(folder, "z.json", {"name": "z", "config": CONFIG})
    move = convert(folder, tmp_path / "sinks")
    assert [(each.name, each.file is not None) for each in move.drafts] == [("a.json", False), ("z", True)]
    assert "holds half a character" in move.drafts[0].refusals[0]


@pytest.mark.parametrize("key", ["iceberg.connect.group-id", "consumer.override.group.id"])
def test_two_connectors_of_one_group_are_refused_and_name_each_other(folder: Path, tmp_path: Path, key: str) -> None:
    save(folder, "a.json", {"name": "a", "config": {**CONFIG, key: "connect-b"}})
    save(folder, "others.json", expanded("b", "c"))
    move = convert(folder, tmp_path / "sinks")
    assert [each.file is not None for each in move.drafts] == [False, False, True]
    for draft, other in zip(move.drafts, "ba", strict=False):
        assert draft.refusals[0].startswith(f"group connect-b is also that of {other}: ")


def test_a_file_that_somebody_has_changed_is_kept(folder: Path) -> None:
    save_one(folder)
    convert(folder, folder.parent / "sinks")
    assert convert(folder, folder.parent / "sinks").exit_code == 0
    changed = folder.parent / "sinks" / "orders.json"
    changed.write_text(changed.read_text() + " ")
    assert "orders.json is there with other contents" in only(convert(folder, folder.parent / "sinks")).left[0]
    assert changed.read_text().endswith(" ")


def test_a_file_appears_as_a_whole_and_only_its_owner_reads_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_one(folder)

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(ConfigError, match="No space left on device"):
            convert(folder, folder.parent / "sinks")
    assert list((folder.parent / "sinks").iterdir()) == []
    convert(folder, folder.parent / "sinks")
    assert (folder.parent / "sinks" / "orders.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["../../escape", "a/b", "..", "with space", "naïve"])
def test_a_file_of_any_connector_stays_in_the_folder(folder: Path, tmp_path: Path, name: str) -> None:
    save(folder, "x.json", {"name": name, "config": {**CONFIG, "iceberg.connect.group-id": "g"}})
    written = only(convert(folder, tmp_path / "sinks")).file
    assert written is not None
    assert [each.name for each in (tmp_path / "sinks").iterdir()] == [written.name]
    assert read(written)["name"] == name


def test_no_secret_is_in_the_table(folder: Path) -> None:
    save_one(
        folder,
        kafka__sasl__password="hunter2-kafka",
        iceberg__catalog__type="nessie",
        iceberg__catalog__token="hunter2",
    )
    result = command(folder, "--out", folder.parent / "sinks")
    assert (result.exit_code, "hunter2" in result.output) == (2, False)


def test_the_command_prints_a_table_and_ends_with_the_code_of_the_worst(folder: Path, tmp_path: Path) -> None:
    save_one(folder)
    result = command(folder, "--out", tmp_path / "sinks")
    assert (result.exit_code, "ready: 1; something is left to do: 0;" in result.stdout) == (0, True)
    save(folder, "b.json", {"name": "b", **CONFIG, "iceberg.catalog.token": "***"})
    assert command(folder, "--out", tmp_path / "sinks").exit_code == 1
    save(folder, "c.json", {"name": "c", **CONFIG, "iceberg.catalog.type": "hadoop"})
    result = command(folder, "--out", tmp_path / "sinks")
    assert result.exit_code == 2
    assert "ready: 1; something is left to do: 1; cannot be taken over: 1" in result.stdout
    assert sorted(each.name for each in (tmp_path / "sinks").iterdir()) == ["b.json", "orders.json"]


def test_what_looks_like_markup_is_shown_as_it_is(folder: Path) -> None:
    save(folder, "a.json", {"name": "[red]a[/blue]", **CONFIG, "iceberg.catalog.token": "[hidden]"})
    assert "[red]a[/blue]" in command(folder, "--out", folder.parent / "sinks").stdout


def test_a_folder_without_json_is_an_error(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no file \*\.json"):
        convert(folder, folder.parent / "sinks")


def test_the_folder_for_the_sinks_is_another_one(folder: Path) -> None:
    save_one(folder)
    assert "name a folder for the sinks with --out" in str(command(folder).exception)
    with pytest.raises(ConfigError, match="--out is the folder of the connectors"):
        convert(folder, folder)
