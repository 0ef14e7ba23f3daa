"""``calving rollback`` of two tables that ends at any call of the catalog, the storage or the store, and is run again."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.table import Table

from calving.cli.rollback import rollback
from calving.cli.status import status
from calving.errors import CalvingError, NothingToAnswerError
from calving.model.tables import RollbackAnswer
from calving.protocol.answers import AsItIs
from calving.settings.load import load
from calving_kafka.cursor import KafkaCursor
from calving_kafka.session import KafkaSession
from harness.forms import forms
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.e2e.test_catalog import routed, send_to

pytestmark = pytest.mark.services
FORGET, RESTORE, REREAD = RollbackAnswer.FORGET, RollbackAnswer.RESTORE, RollbackAnswer.REREAD
TABLES = ("db.a", "db.b")
_READS: tuple[tuple[Any, str], ...] = (
    (SqlCatalog, "load_table"),
    (PyArrowFile, "open"),
    (PyArrowFile, "exists"),
    (KafkaSession, "follow"),
    (KafkaSession, "committed"),
)
_WRITES: tuple[tuple[Any, str], ...] = (
    (Table, "_do_commit"),
    (PyArrowFile, "create"),
    (KafkaCursor, "rewind"),
)
_HAS_EFFECT = ("_do_commit", "rewind")
"""Of other calls the moment after is the moment before the next one."""


class Killed(BaseException):
    """Only the end of the process handles it."""


def end_at(
    last: int, calls: Iterable[tuple[Any, str]], how: type[BaseException], patch: pytest.MonkeyPatch
) -> Callable[[], bool]:
    """Let one of these calls end, before it has an effect or after that. The result tells whether it was reached."""
    steps = itertools.count()
    reached: list[str] = []

    def step(name: str) -> None:
        if next(steps) == last:
            reached.append(name)
            raise how(f"at {name}")

    def around(kind: Any, name: str) -> None:
        original = getattr(kind, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            step(name)
            answer = original(*args, **kwargs)
            if name in _HAS_EFFECT:
                step(name)
            return answer

        patch.setattr(kind, name, wrapped)

    for kind, name in calls:
        around(kind, name)
    return lambda: bool(reached)


class Tables:
    """Two tables of a sink. ``kept``: the records that should be in them."""

    def __init__(self, sink: Cli, catalog: Catalog) -> None:
        self.sink, self.catalog, self.sent = sink, catalog, 0
        self.kept: dict[str, list[int]] = {name: [] for name in TABLES}

    def commit(self) -> dict[str, list[int]]:
        """Two records of each table; which."""
        new = {}
        for name in TABLES:
            send_to(self.sink, name, self.sent, self.sent + 2)
            new[name] = [self.sent, self.sent + 1]
            self.kept[name] += new[name]
            self.sent += 2
        self.sink.run_here()
        return new

    def roll_back(self, names: Iterable[str] = TABLES) -> None:
        """Somebody takes the last commit of each table away."""
        for name in names:
            table = self.catalog.load_table(name)
            head = table.current_snapshot()
            assert head is not None and head.parent_snapshot_id is not None
            table.manage_snapshots().rollback_to_snapshot(head.parent_snapshot_id).commit()

    def answer(self, answer: RollbackAnswer, names: Collection[str] = TABLES) -> None:
        list(rollback(load(self.sink.config), names, AsItIs(), answer))

    def check(self) -> None:
        for name in TABLES:
            assert Counter(self.sink.ids(name)) == Counter(self.kept[name])


@pytest.fixture
def tables(tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]) -> Tables:
    made = Tables(*routed(tmp_path, topic(), unique, keys))
    made.commit()
    return made


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
@pytest.mark.parametrize(
    ("answer", "later", "least", "step"),
    [
        pytest.param(FORGET, True, 4, 1, id="forget", marks=pytest.mark.long),
        pytest.param(RESTORE, False, 4, 1, id="restore, the branch goes forward", marks=pytest.mark.long),
        pytest.param(RESTORE, True, 6, 1, id="restore, files are added", marks=pytest.mark.long),
        pytest.param(REREAD, True, 14, 1, id="reread", marks=pytest.mark.long),
        pytest.param(FORGET, True, 4, 2, id="forget, every second write"),
        pytest.param(RESTORE, True, 6, 3, id="restore, every third write"),
        pytest.param(REREAD, True, 14, 4, id="reread, every fourth write"),
    ],
)
def test_a_command_that_is_killed_at_any_write_is_run_again(
    tables: Tables, answer: RollbackAnswer, later: bool, least: int, step: int
) -> None:
    lost = tables.commit()
    for last in itertools.count(0, step):
        tables.roll_back()
        if later:
            tables.commit()
        with pytest.MonkeyPatch.context() as patch:
            was_reached = end_at(last, _WRITES, Killed, patch)
            with suppress(Killed):
                tables.answer(answer)
        if was_reached():
            with suppress(NothingToAnswerError):
                tables.answer(answer)
        if answer is FORGET:
            tables.kept = {name: [n for n in kept if n not in lost[name]] for name, kept in tables.kept.items()}
        lost = tables.commit()
        tables.check()
        if not was_reached():
            break
    assert last > least
    assert status(load(tables.sink.config)).health == "OK"


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
@pytest.mark.parametrize("answer", forms(RollbackAnswer, [REREAD]))
def test_a_command_whose_reads_fail_one_after_the_other_is_run_again(tables: Tables, answer: RollbackAnswer) -> None:
    lost = tables.commit()
    tables.roll_back()
    tables.commit()
    for last in itertools.count():
        with pytest.MonkeyPatch.context() as patch:
            was_reached = end_at(last, _READS, TimeoutError, patch)
            with suppress(TimeoutError, CalvingError):
                tables.answer(answer)
        if not was_reached():
            break
    if answer is FORGET:
        tables.kept = {name: [n for n in kept if n not in lost[name]] for name, kept in tables.kept.items()}
    tables.commit()
    tables.check()
    assert last > 4
    assert status(load(tables.sink.config)).health == "OK"


@pytest.mark.long
@pytest.mark.parametrize("keys", ["redis"], indirect=True)
def test_one_table_is_read_again_by_a_command_that_is_killed_at_any_commit(tables: Tables) -> None:
    """The store's log gets another identity then, which each table of the sink has to know before the next start."""
    for last in itertools.count():
        tables.commit()
        tables.roll_back(["db.a"])
        with pytest.MonkeyPatch.context() as patch:
            was_reached = end_at(last, ((Table, "_do_commit"),), Killed, patch)
            with suppress(Killed):
                tables.answer(REREAD, ["db.a"])
        with suppress(NothingToAnswerError):
            tables.answer(REREAD, ["db.a"])
        tables.sink.run_here()
        tables.check()
        if not was_reached():
            break
    assert last >= 6
