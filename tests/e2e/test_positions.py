"""``calving offsets --to`` and ``--by``: positions that an operator moves, on each backend."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from calving.cli.moving import Destination, move_positions
from calving.cli.status import status
from calving.engine.interface import LocalEngine
from calving.errors import ConfigError
from calving.runtime.app import App
from calving.settings.load import load
from harness.topic import Topic
from harness.worker import STORES
from tests.cli.commands import Cli
from tests.e2e.test_catalog import routed, send_to
from tests.e2e.test_rollback_interruptions import Killed, end_at

pytestmark = pytest.mark.services


@pytest.fixture
def sink(tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]) -> Cli:
    """300 records, all of them committed."""
    made = Cli(tmp_path, topic(), unique)
    made.keys |= keys
    made.send(0, 300)
    made.run_here()
    return made


def move(sink: Cli, *to: str, by: int | None = None, again: bool = False, dry_run: bool = False) -> list[str]:
    destination = Destination.of(to, by, again=again)
    assert destination is not None
    return list(move_positions(load(sink.config), destination, dry_run=dry_run))


def twice(first: int, end: int, *, of: int) -> Counter[int]:
    return Counter([*range(of), *range(first, end)])


def test_a_sink_that_goes_back_skips_what_its_table_holds(sink: Cli) -> None:
    name = sink.topic.name
    assert move(sink, "earliest") == [
        f"{name}-0: back from 300 to 0: 300 offsets to read again",
        f"table db.t: it holds 300 offsets of them (offsets 0 to 300 of {name}-0) and skips these",
        "done: the next run starts there",
    ]
    sink.send(300, 320)
    assert sink.run_here().progress.read == 320
    sink.assert_exactly_once(320)
    assert status(load(sink.config)).health == "OK"


def test_a_table_that_is_new_gets_all_records_once_while_the_others_skip_them(sink: Cli) -> None:
    sink.keys |= {"iceberg.tables": "db.t,db.u", "iceberg.tables.route-field": "id"}
    sink.keys |= {f"iceberg.table.db.{table}.route-regex": ".*" for table in "tu"}
    move(sink, "earliest")
    sink.run_here()
    sink.assert_exactly_once(300)
    assert Counter(sink.ids("db.u")) == Counter(range(300))


def test_again_reads_exactly_the_printed_records_a_second_time(sink: Cli) -> None:
    name = sink.topic.name
    assert move(sink, by=-100, again=True) == [
        f"{name}-0: back from 300 to 200: 100 offsets to read again",
        f"table db.t: it holds 100 offsets of them (offsets 200 to 300 of {name}-0): their records are read again, and"
        " stand twice in it",
        "done: the next run starts there",
    ]
    sink.send(300, 310)
    sink.run_here()
    assert Counter(sink.ids()) == twice(200, 300, of=310)
    sink.recover_here()
    sink.run_here()
    assert Counter(sink.ids()) == twice(200, 300, of=310)
    assert status(load(sink.config)).health == "OK"


def test_a_recovery_in_between_reads_on_where_records_still_come_again(sink: Cli) -> None:
    sink.keys["iceberg.control.commit.interval-ms"] = 100
    sink.keys["iceberg.batch.max-records"] = 30
    move(sink, "earliest", again=True)

    def stop(progress: Any) -> None:
        if 0 < progress.read < 300 and sum(s > 0 for s in [len(sink.ids()) - 300]):
            app.stop()

    app = App(load(sink.config), LocalEngine())
    app.run(on_progress=stop)
    assert 300 < len(sink.ids()) < 600
    sink.recover_here()
    sink.run_here()
    assert Counter(sink.ids()) == twice(0, 300, of=300)


def test_what_is_published_and_not_committed_is_read_again_from_before_the_new_position(sink: Cli) -> None:
    sink.keys["iceberg.control.backend"] = sink.keys.get("iceberg.control.backend", "kafka")
    sink.send(300, 400)
    sink.publish_without_commit()
    name = sink.topic.name
    with pytest.raises(ConfigError, match="records from offset 300 to 400 are published and not in all tables yet"):
        sink.send(400, 410)
        move(sink, "latest")
    assert f"{name}-0: read from 300 on, because later records are published and not in all tables yet" in move(
        sink, f"{name}:0=350"
    )
    sink.run_here()
    sink.assert_exactly_once(410)


def test_records_that_a_move_skips_are_in_no_table_and_no_ledger_claims_them(sink: Cli) -> None:
    name = sink.topic.name
    sink.send(300, 350)
    assert move(sink, f"{name}:0=340") == [
        f"{name}-0: forward from 300 to 340: 40 offsets (300 to 340) skipped, whose records are in no table",
        "done: the next run starts there",
    ]
    sink.run_here()
    assert sorted(sink.ids()) == [*range(300), *range(340, 350)]
    assert status(load(sink.config)).health == "OK"
    sink.recover_here()
    sink.run_here()
    assert sorted(sink.ids()) == [*range(300), *range(340, 350)]
    sink.recover_here(rolled_back=["db.t"])
    sink.run_here()
    sink.assert_exactly_once(350)


@pytest.mark.parametrize("options", [(["earliest"], True), (["earliest"], False), (["latest"], False)])
def test_a_move_that_is_killed_at_any_write_is_run_again(
    tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str], options: tuple[list[str], bool]
) -> None:
    to, again = options
    sink, _ = routed(tmp_path, topic(), unique, keys)
    rewinds = STORES[str(keys.get("iceberg.control.backend", "kafka"))][1]
    wanted: dict[str, Counter[int]] = {name: Counter() for name in ("db.a", "db.b")}
    sent = 0
    for last in itertools.count():
        for name, rows in wanted.items():
            send_to(sink, name, sent, sent + 2)
            rows.update([sent, sent + 1])
            sent += 2
        sink.run_here()
        if to == ["latest"]:
            send_to(sink, "db.a", 100_000 + last, 100_001 + last)
        with pytest.MonkeyPatch.context() as patch:
            was_reached = end_at(last, ((Table, "_do_commit"), (rewinds, "rewind")), Killed, patch)
            with suppress(Killed):
                move(sink, *to, again=again)
        if was_reached():
            if last > 1:
                with pytest.raises(ConfigError, match="was interrupted: run it again, with these options"):
                    sink.recover_here()
            move(sink, *to, again=again)
        if again:
            wanted = {name: rows + Counter([*rows]) for name, rows in wanted.items()}
        sink.run_here()
        for name, rows in wanted.items():
            assert Counter(sink.ids(name)) == rows, f"killed at write {last}"
        if not was_reached():
            break
    assert last > 8
