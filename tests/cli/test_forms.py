"""Every command answers with one sentence for a table that a later version has written in a form of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from calving.cli.status import status
from calving.cli.takeover import takeover
from calving.errors import CommandFailedError, NewerVersionError
from calving.iceberg.catalog import open_catalog
from calving.model.forms import NEWEST, OLDEST, StoredForm
from calving.protocol.forms import FORM
from calving.runtime.maintenance.mend import BOUNDS
from calving.settings.load import load
from calving.source.client import client_config
from harness.topic import Topic
from tests.cli import maintaining
from tests.cli.commands import Cli

LATER = StoredForm(NEWEST.number + 1, "0.9.0")
SENTENCE = f"is written in form {LATER.number}, which this version does not know: install version 0.9.0 or later"


def mark(cli: Cli, owner: str, form: StoredForm = LATER) -> None:
    with open_catalog("iceberg", cli.catalog_keys).load_table("db.t").transaction() as change:
        change.set_properties({f"{FORM}.{owner}": str(form)})


def own(cli: Cli, name: str = "") -> str:
    return f"control-{name or cli.name}.connect-{name or cli.name}"


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory, servers: str) -> Cli:
    """A sink with a table that its later version has written."""
    unique = uuid4().hex
    made = Cli(tmp_path_factory.mktemp("forms"), Topic(servers, unique), unique)
    made.send(0, 10)
    made.run_here()
    mark(made, own(made))
    return made


@pytest.fixture(scope="module")
def undecodable(tmp_path_factory: pytest.TempPathFactory, servers: str) -> Cli:
    """A sink whose control log has an entry of a later version that this one cannot decode."""
    unique = uuid4().hex
    made = Cli(tmp_path_factory.mktemp("undecodable"), Topic(servers, unique), unique)
    made.send(0, 10)
    made.run_here()
    beside = json.dumps({"group": f"connect-{unique}", "form": LATER})
    producer = Producer(client_config({"bootstrap.servers": servers}))
    producer.produce(f"control-{unique}", b"\xc2\x01 of another time", headers=[("calving-beside", beside)])
    producer.flush(10)
    return made


@pytest.mark.parametrize(
    "command",
    [
        lambda cli: cli.run_here(),
        lambda cli: cli.recover_here(),
        lambda cli: cli.recover_here(rolled_back=["db.t"]),
        lambda cli: takeover(load(cli.config)),
    ],
    ids=["run", "recover", "recover --table", "takeover"],
)
def test_a_command_stops_with_the_table_and_the_version_to_install(
    committed: Cli, command: Callable[[Cli], object]
) -> None:
    before = open_catalog("iceberg", committed.catalog_keys).load_table("db.t").metadata_location
    with pytest.raises(NewerVersionError, match=rf"^table db\.t: .*{re.escape(SENTENCE)}"):
        command(committed)
    assert open_catalog("iceberg", committed.catalog_keys).load_table("db.t").metadata_location == before


@pytest.mark.parametrize("dry_run", [False, True])
def test_maintenance_leaves_the_table_alone_and_fails(committed: Cli, dry_run: bool) -> None:
    before = open_catalog("iceberg", committed.catalog_keys).load_table("db.t").metadata_location
    steps = maintaining.steps(load(committed.config), ["db.t"], [BOUNDS], now_ms=0, dry_run=dry_run)
    step = next(steps)
    assert step.outcome == "failed" and SENTENCE in step.text
    with pytest.raises(CommandFailedError, match="1 step failed"):
        next(steps)
    assert open_catalog("iceberg", committed.catalog_keys).load_table("db.t").metadata_location == before


def test_status_gives_the_sentence_as_a_reason(committed: Cli) -> None:
    (reason,) = (reason for reason in status(load(committed.config)).reasons if "form" in reason)
    assert reason.startswith("table db.t: ")
    assert SENTENCE in reason


def test_status_of_a_table_that_only_a_later_version_knows_is_degraded(committed: Cli) -> None:
    assert SENTENCE in " ".join(committed.run("status", code=3).split())


def test_a_first_start_is_refused_beside_another_sink_of_a_newer_form_unless_it_is_named(
    tmp_path: Path, topic: Callable[..., Topic], unique: str
) -> None:
    cli = Cli(tmp_path, topic(), unique)
    cli.send(0, 10)
    cli.run_here()
    mark(cli, own(cli))
    other = f"{unique}-b"
    cli.keys |= {"name": other, "iceberg.control.topic": f"control-{other}"}
    with pytest.raises(
        NewerVersionError, match=rf"^table db\.t: sink control-{unique}\..* name it in iceberg\.control"
    ):
        cli.run_here()
    cli.keys["iceberg.control.other-sinks"] = f"control-{unique}.connect-{unique}"
    cli.run_here()
    assert cli.rows() == 20


def test_a_sink_that_takes_over_from_its_former_name_keeps_the_form(
    tmp_path: Path, topic: Callable[..., Topic], unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = Cli(tmp_path, topic(), unique)
    cli.send(0, 10)
    cli.run_here()
    former = own(cli)
    mark(cli, former)
    new = f"{unique}-b"
    cli.keys |= {"name": new, "iceberg.control.topic": f"control-{new}"}
    with pytest.raises(NewerVersionError, match=rf"^table db\.t: .*{re.escape(SENTENCE)}"):
        cli.recover_here(former)
    monkeypatch.setattr("calving.protocol.forms.UNMARKED", OLDEST)
    mark(cli, former, NEWEST)
    cli.recover_here(former)
    properties = open_catalog("iceberg", cli.catalog_keys).load_table("db.t").properties
    assert properties[f"{FORM}.{own(cli, new)}"] == str(NEWEST)


@pytest.mark.parametrize(
    "command",
    [
        lambda cli: cli.run_here(),
        lambda cli: cli.recover_here(),
        lambda cli: status(load(cli.config)),
    ],
    ids=["run", "recover", "status"],
)
def test_a_command_stops_at_an_entry_that_only_a_later_version_can_decode(
    undecodable: Cli, command: Callable[[Cli], object]
) -> None:
    with pytest.raises(NewerVersionError, match=rf"use form {LATER.number} .* install version 0\.9\.0 or later"):
        command(undecodable)


@pytest.mark.parametrize(("command", "code"), [("status", 2), ("takeover", 1)])
def test_a_command_that_only_looks_tells_the_version_to_install(undecodable: Cli, command: str, code: int) -> None:
    text = " ".join(undecodable.run(command, code=code).split())
    assert "install version 0.9.0 or later" in text
    assert "Traceback" not in text
