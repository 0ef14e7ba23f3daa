"""Mistakes in a configuration: `calving validate` answers each with one sentence of ours, with the key or the file, the
value, and what to write.

`mistakes.txt` is the table. A block has the lines that a user adds to ``GOOD``, or that replace a line of it, and below
them, indented, the whole answer. ``- key`` removes a line of ``GOOD``; ``! NAME = value`` sets an environment variable;
``! without package`` uninstalls a package; ``{folder}`` is a folder with what ``_furnished`` puts there.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from calving.cli.main import main
from calving.settings.files import read
from calving.settings.load import load

GOOD = {
    "name": '"s"',
    "topics": '"t"',
    '"iceberg.tables"': '"db.t"',
    '"iceberg.tables.auto-create-enabled"': "true",
    '"iceberg.engine"': '"local"',
    '"kafka.bootstrap.servers"': '"localhost:1"',
    '"iceberg.catalog.type"': '"embedded"',
    '"iceberg.catalog.warehouse"': '"{folder}/warehouse"',
}
_FOREIGN = re.compile(r"Traceback|pydantic|Input should|librdkafka|java\.|[a-z]\w*(Error|Exception)\b|\[Errno")
"""Words of others, which stand in brackets after our own, or not at all."""


class Mistake(NamedTuple):
    lines: list[str]
    answer: str


def _table() -> Iterator[Mistake]:
    text = (Path(__file__).parent / "mistakes.txt").read_text()
    for block in re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip().split("\n\n"):
        lines = block.strip("\n").splitlines()
        answer = "\n".join(line.strip() for line in lines if line.startswith("    "))
        yield Mistake([line for line in lines if not line.startswith("    ")], answer)


TABLE = [*_table()]


@pytest.mark.parametrize("mistake", TABLE, ids=lambda mistake: " ".join(mistake.lines))
def test_a_mistake_is_answered_with_its_key_and_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mistake: Mistake
) -> None:
    folder = _furnished(tmp_path)
    configuration = dict(GOOD)
    for line in (line.replace("{folder}", str(folder)) for line in mistake.lines):
        if line.startswith("! without "):
            _without(monkeypatch, line.removeprefix("! without "))
        elif line.startswith("! "):
            monkeypatch.setenv(*line.removeprefix("! ").split(" = "))
        elif line.startswith("- "):
            del configuration[line.removeprefix("- ")]
        else:
            key, _, value = line.partition(" = ")
            configuration[key] = value
    text = "".join(f"{key} = {value}\n" for key, value in configuration.items())
    answer = _answer(monkeypatch, capsys, folder / "sink.toml", text.replace("{folder}", str(folder)).encode())
    assert answer.replace(str(folder), "{folder}") == mistake.answer


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("sink.yaml", b"name: s", "YAML is not read: write TOML, Kafka Connect's JSON (.json) or .properties"),
        ("sink.toml", b'name = "s"\ntopics: t', "line 2: 'topics:' is YAML or JSON: write key = value"),
        ("sink.toml", b'name = "\xff"', "it is not UTF-8 at byte 8: save it as UTF-8"),
        ("sink.toml", "name = 's'".encode("utf-16"), "it is not UTF-8 at byte 0: save it as UTF-8"),
        (
            "sink.toml",
            b"name = orders",
            'line 1: the value of name is neither a number nor in quotes: text stands in quotes, as in name = "orders"',
        ),
        (
            "sink.toml",
            b'name = "s',
            "its end: the value of name has a quote that is not closed, or a line break in its text",
        ),
        ("sink.toml", b"name", "its end: a key has no value: write key = value, and text in quotes"),
        (
            "sink.toml",
            b'"sasl.password" = "secret",',
            "line 1: the value of \"sasl.password\" is followed by ',': remove it",
        ),
        (
            "sink.toml",
            b'a = "b"c"',
            "line 1: the value of a goes on after its end: put all of it in quotes, '...' if it has double quotes",
        ),
        ("sink.toml", b"a = " + b"9" * 5000, "a number has thousands of digits: is it meant to be text, in quotes?"),
        ("sink.json", b'{"a": ' + b"9" * 5000 + b"}", "a number has thousands of digits"),
        (
            "sink.toml",
            b'"topics.regex" = "a\\.b"',
            "line 1: a backslash in double quotes: write '...' in single quotes, or \\\\",
        ),
        ("sink.toml", b"name = 's'\nname = 't'\n", "line 2: the key name is there twice: leave one out"),
        ("sink.toml", b"[kafka]\n[kafka]", "line 2: the section [kafka] is there twice: join them"),
        (
            "sink.toml",
            b"iceberg.tables = 'db.t'\niceberg.tables.evolve-schema-enabled = true\n",
            "line 2: a key without quotes is a path, and iceberg.tables.evolve-schema-enabled goes on below another"
            ' key; quote such keys, as in "iceberg.tables" = "db.t", or write them in a section',
        ),
        ("sink.json", b"", "it is empty: write an object of keys, or {name, config}"),
        ("sink.json", b"{", "line 1, column 2: it is no JSON (Expecting property name enclosed in double quotes)"),
        ("sink.json", b'{\n// ours\n"name": "s"}', "line 2: JSON has no comments: remove them, or write TOML"),
        ("sink.json", b'{"name": "s",\n}', "line 2: a comma stands before a closing bracket: remove it"),
        ("sink.json", b"{'name': 's'}", "line 1: JSON has double quotes around keys and text"),
        ("sink.json", b'{"name": "s", "name": "t"}', "the key name is there twice: leave one out"),
        ("sink.json", b'["s"]', "a JSON configuration is an object of keys, or {name, config}"),
        ("sink.properties", b"name = \\u12", "a .properties file has \\u without four hexadecimal digits"),
        ("missing.toml", None, "there is no such file; `calving init missing.toml` writes one"),
        ("java-11", None, "it is a folder: name the configuration file in it"),
    ],
)
def test_a_file_that_is_no_configuration_is_named_with_the_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: bytes | None,
    sentence: str,
) -> None:
    file = _furnished(tmp_path) / name
    assert _answer(monkeypatch, capsys, file, content).startswith(f"{file}: {sentence}")


@pytest.mark.parametrize(
    "line",
    [
        '"sasl.password" = "topsecret77",',
        '"sasl.password" = topsecret77',
        '"sasl.password" : "topsecret77"',
        "sasl.password: topsecret77",
        '"sasl.password" = "topsecret77',
        '"sasl.password" = "topsecret77";',
        '"sasl.password" = "top"secret77"',
        "\"sasl.password\" = 'topse'cret77'",
        '"sasl.password" = """topsecret77',
        '"sasl.password" = ["topsecret77"',
        '"sasl.password = "topsecret77"',
        '"sasl.password" "topsecret77"',
        "topsecret77",
        '"sasl.jaas.config" = "PlainLoginModule required username="u" password="topsecret77";"',
        'jaas = { password = "topsecret77"',
        "[kafka] # topsecret77",
    ],
)
@pytest.mark.parametrize("end", ["", "\n", '\nname = "t"\n'])
def test_a_slip_beside_a_password_does_not_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, end: str
) -> None:
    file = _furnished(tmp_path) / "sink.toml"
    answer = _answer(monkeypatch, capsys, file, f'name = "s"\n[kafka]\n{line}{end}'.encode())
    assert "cret77" not in answer


@pytest.mark.parametrize("name", ["SINK", "sink.toml", "sink.conf", "sink.properties"])
def test_a_file_of_json_by_another_name_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    file = _furnished(tmp_path) / name
    assert _answer(monkeypatch, capsys, file, b'\n{"name": "s"}') == f"{file} holds JSON: name it .json"


@pytest.mark.parametrize(
    ("name", "text"), [("SINK.JSON", '{"a": "b"}'), ("s.Properties", "a=b\n"), ("s.TOML", 'a = "b"')]
)
def test_the_case_of_a_suffix_does_not_matter(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read(tmp_path / name) == {"a": "b"}


def _answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: Path, content: bytes | None
) -> str:
    """What `calving validate` says: the error of a configuration, and nothing else."""
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setattr(sys, "argv", ["calving", "validate", str(file)])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which the command sets
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    answer = said.err.removeprefix("error: ").rstrip("\n")
    assert ended.value.code == 2, said
    assert said.out in ("", "ok configuration\n"), said
    assert _FOREIGN.search(re.sub(r"\([^()]*\)$", "", answer)) is None, answer
    return answer


def _furnished(folder: Path) -> Path:
    """A folder with a file, an old Java, and a file of secrets."""
    (folder / "file").write_text("")
    (folder / "secrets").write_text("password=x\n")
    java = folder / "java-11" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    return folder


_IMPORT_DUCKDB = "calving.transforms.sql", "calving.transforms.query_process"


def _without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Uninstall a package, for this test."""
    for name in [*sys.modules]:
        if name.startswith((f"{package}.", "pyiceberg.catalog.", "confluent_kafka.schema", *_IMPORT_DUCKDB)):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)


def test_the_table_has_each_mistake_once() -> None:
    assert len({tuple(mistake.lines) for mistake in TABLE}) == len(TABLE) >= 100


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bom.toml", "\ufeff{good}"),
        ("windows.toml", "{good}".replace("\n", "\r\n")),
        ("bom.json", '\ufeff{"name": "s", "topics": "t", "iceberg.tables": "db.t", "kafka.bootstrap.servers": "h"}'),
    ],
)
def test_a_file_of_an_editor_for_windows_is_read(tmp_path: Path, name: str, content: str) -> None:
    good = "".join(f"{key} = {value}\r\n" for key, value in GOOD.items())
    (tmp_path / name).write_bytes(content.replace("{good}", good).encode())
    assert load(tmp_path / name).keys.name == "s"


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[2]",
        "local[*]",
        "local[*, 3]",
        "local-cluster[2,1,1024]",
        "yarn",
        "spark://h:7077",
        "spark://a:7077,b:7077",
        "k8s://https://h",
    ],
)
def test_every_master_of_spark_is_accepted(tmp_path: Path, master: str) -> None:
    good = "".join(f"{key} = {value}\n" for key, value in GOOD.items())
    (tmp_path / "sink.toml").write_text(f'{good}"spark.master" = "{master}"')
    assert load(tmp_path / "sink.toml").spark["spark.master"] == master
