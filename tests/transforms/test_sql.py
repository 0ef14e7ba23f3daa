"""What a query of SQL may take, what its process does, and which record is to blame."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from threading import Timer

import pyarrow as pa
import pytest

from calving.errors import UnexpectedError
from calving.model.record_path import Limits, TransformSpec
from calving.records.values import objects
from calving.transforms import query_process
from calving.transforms.chain import Chain
from calving.transforms.database import Database
from calving.transforms.transformed import Transformed
from tests.transforms.applying import records


def chain(query: str, limits: Limits) -> Chain:
    return Chain([TransformSpec("x", "Sql", {"query": query})], limits=limits)


def rows(done: Transformed) -> list[Mapping[str, object]]:
    return [row for part in done.records for row in objects(part.value)]


def process_of(limits: Limits) -> subprocess.Popen[bytes] | None:
    """The process that waits for the next query with these limits."""
    (waiting,) = query_process._idle[os.getpid(), limits.sql_ms, limits.sql_bytes]
    return waiting._process


def test_a_machine_that_stands_still_makes_no_record_bad() -> None:
    limits = Limits(sql_ms=101)
    sql = chain("SELECT a FROM records WHERE a > 0", limits)
    sql.apply(records({"a": 1}))
    process = process_of(limits)
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    Timer(2.5, process.send_signal, [signal.SIGCONT]).start()
    done = sql.apply(records({"a": 2}))
    assert not done.bad and rows(done) == [{"a": 2}]


@pytest.mark.parametrize("query", ["SELECT a FROM records", "SELECT a + 1 AS a FROM records"])
def test_a_record_with_which_the_process_ends_once_is_good(query: str) -> None:
    limits = Limits(sql_ms=10_001)
    sql = chain(query, limits)
    (expected,) = rows(sql.apply(records({"a": 1})))
    process = process_of(limits)
    assert process is not None
    process.send_signal(signal.SIGSEGV)
    done = sql.apply(records({"a": 1}))
    assert not done.bad and rows(done) == [expected]


@pytest.mark.parametrize("length", [1, 500_000], ids=["while it computes", "while it is sent a block"])
def test_a_process_that_never_answers_is_ended_and_blames_no_record(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(sql_ms=102)
    sql = chain("SELECT s FROM records", limits)
    sql.apply(records({"s": "a"}))
    process = process_of(limits)
    assert process is not None
    monkeypatch.setattr(query_process, "_CLOCK_SECONDS", 0.5)
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(UnexpectedError, match=r"it has not answered for"):
        sql.apply(records({"s": "a" * length}))
    assert process.poll() == -signal.SIGKILL


def nested(levels: int, *, maps: bool) -> pa.DataType:
    kind: pa.DataType = pa.string()
    for _ in range(levels):
        kind = pa.map_(pa.string(), kind) if maps else pa.list_(kind)
    return kind


@pytest.mark.parametrize(
    ("query", "levels", "maps", "reason"),
    [
        ("SELECT id, a FROM records", 32, True, "field 'a': SQL takes at most 63 levels"),
        ("SELECT * FROM records", 63, False, "field 'a': SQL takes at most 63 levels"),
        ("SELECT id, [[a]] AS b FROM records", 31, True, "Arrow has no type for what the query makes"),
    ],
)
def test_a_type_of_too_many_levels_is_named_and_costs_no_process(
    query: str, levels: int, maps: bool, reason: str
) -> None:
    limits = Limits(sql_ms=10_002)
    sql = chain(query, limits)
    sql.apply(records({"id": 1, "a": "x"}))
    process = process_of(limits)
    kind = pa.struct([("id", pa.int64()), ("a", nested(levels, maps=maps))])
    done = sql.apply(records(pa.array([{"id": place, "a": None} for place in range(40)], kind), typed=True))
    assert len(done.bad) == 40 and all(reason in bad.reason for bad in done.bad)
    assert process_of(limits) is process


def test_types_of_as_many_levels_as_can_be_sent_pass_sql() -> None:
    kind = pa.struct([("a", nested(31, maps=True)), ("b", nested(62, maps=False))])
    given = pa.array([{"a": [], "b": None}] * 3, kind)
    done = chain("SELECT a, b FROM records", Limits()).apply(records(given, typed=True))
    assert not done.bad and len(rows(done)) == 3


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT CASE WHEN n < 0 THEN error('n is negative') ELSE n END AS n FROM records", "n is negative"),
        ("SELECT n FROM records WHERE CASE WHEN n < 0 THEN error('n is negative') ELSE true END", "n is negative"),
        ("SELECT uuid() AS id, sqrt(n) AS n FROM records", "sqrt(n) cannot be computed"),
        ("SELECT random() + sqrt(n) AS n FROM records", "square root"),
        ("SELECT n FROM records WHERE sqrt(n) + random() >= 0", "square root"),
    ],
)
def test_the_reason_of_a_bad_record_is_the_querys_own_beside_volatile_functions(query: str, reason: str) -> None:
    done = chain(query, Limits()).apply(records({"n": 1.0}, {"n": -1.0}, {"n": 3.0}))
    assert [bad.index for bad in done.bad] == [1] and reason in done.bad[0].reason
    assert sum(len(part.value) for part in done.records) == 2


def test_bad_records_are_found_together_beside_a_volatile_function(monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[str] = []
    run = Database.run

    def counted(database: Database, table: pa.Table, query: str) -> tuple[pa.Table, set[int]]:
        queries.append(query)
        return run(database, table, query)

    monkeypatch.setattr(Database, "run", counted)
    done = chain("SELECT uuid() AS id, s::INT AS n FROM records", Limits()).apply(records(*[{"s": "x"}] * 100))
    assert len(done.bad) == 100 and len(queries) == 2


def test_an_answer_of_many_columns_takes_memory_for_its_rows_alone() -> None:
    given = {f"c{place}": place for place in range(400)}
    done = chain("SELECT * FROM records", Limits(sql_bytes=64 * 2**20)).apply(records(given, given))
    assert not done.bad and rows(done) == [given, given]


def test_an_answer_takes_no_more_than_the_limit() -> None:
    sql = chain("SELECT s AS a, s AS b, s AS c, s AS d FROM records", Limits(sql_bytes=16 * 2**20))
    done = sql.apply(records(*[{"s": "x" * (count * 2**20)} for count in (1, 2, 5, 3)]))
    assert [bad.index for bad in done.bad] == [2] and "iceberg.limits.sql-bytes" in done.bad[0].reason
    assert sorted(len(str(row["d"])) // 2**20 for row in rows(done)) == [1, 2, 3]


def test_a_process_that_keeps_much_memory_is_replaced() -> None:
    limits = Limits(sql_bytes=256 * 2**20)
    sql = chain("SELECT repeat(s, n) AS s FROM records", limits)
    done = sql.apply(records(*[{"s": "a" * 1_000, "n": 1_000}] * 150))
    assert not done.bad
    sql.apply(records({"s": "a", "n": 1}))
    process = process_of(limits)
    assert process is not None
    resident = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert resident < 300 * 2**20


def test_fields_that_the_query_does_not_name_cost_no_plan_and_make_no_record_bad(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans: list[str] = []
    steps = Database.steps

    def counted(database: Database, table: pa.Table, query: str) -> list[str]:
        plans.append(query)
        return steps(database, table, query)

    sql = chain("SELECT records.id AS i, upper(B) AS b FROM records WHERE i > 0", Limits())
    monkeypatch.setattr(Database, "steps", counted)
    given = [{"id": 1, "b": "x", f"new{place}": {}} for place in range(5)]
    done = sql.apply(records(*given))
    assert not done.bad and rows(done) == [{"i": 1, "b": "X"}] * 5
    assert len(plans) == 2  # the rows and the condition


@pytest.mark.parametrize(
    ("query", "row"),
    [
        ("SELECT main.records.a AS x FROM records", {"x": 1}),
        ("SELECT #2 AS x FROM records", {"x": {"c": 2}}),
        ("SELECT r AS x FROM records AS r", {"x": {"a": 1, "b": {"c": 2}}}),
        ("SELECT b.* FROM records", {"c": 2}),
        ("SELECT b.c + 1 AS x FROM records", {"x": 3}),
        ("SELECT a.abs() AS x FROM records", {"x": 1}),
        ("SELECT COLUMNS('^a$') FROM records", {"a": 1}),
    ],
)
def test_a_query_reads_the_fields_that_it_names_in_other_ways(query: str, row: Mapping[str, object]) -> None:
    given = pa.array([{"a": 1, "b": {"c": 2}}])
    assert rows(chain(query, Limits()).apply(records(given, typed=True))) == [row]
