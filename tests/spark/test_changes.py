"""Upserts and changes by DataFrames: the table is what a dict is that was told the same, in whatever tasks rows are."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from calving.errors import BadRecordError, CalvingError, ConfigError
from calving.iceberg.resolution import RowChangeResolver
from calving_spark import commits
from calving_spark.changes import DeleteCondition
from calving_spark.options import read
from harness.forms import forms
from harness.structure import check
from tests.spark.faulty import FaultyCatalog, has_failed, plan
from tests.spark.lake import SparkLake
from tests.spark.written import Batches, Row

SCHEMA = StructType().add("id", "long").add("name", "string").add("g", "long").add("seq", "long").add("op", "string")
Make = Callable[..., Batches]


@pytest.fixture
def lake(tmp_path: Path) -> SparkLake:
    return SparkLake.create(tmp_path / "warehouse")


@pytest.fixture
def batches(lake: SparkLake, monkeypatch: pytest.MonkeyPatch) -> Make:
    def make(schema: StructType = SCHEMA, **options: str) -> Batches:
        named = {key.replace("_", "-"): text for key, text in options.items()}
        return Batches(lake, schema, monkeypatch.setattr, named)

    return make


def row(key: int, name: str, seq: int, op: str = "U", g: int = 0) -> Row:
    return {"id": key, "name": name, "g": g, "seq": seq, "op": op}


def told(expected: dict[int, Row], *batch: Row) -> None:
    """What the batch makes of the rows: of each key the greatest counts, also above what is there."""
    for key in {each["id"] for each in batch}:
        last = max((each for each in batch if each["id"] == key), key=lambda each: each["seq"])
        held = expected.get(key)
        if held is None or held["seq"] <= last["seq"]:
            expected.pop(key, None)
            if last["op"] != "D":
                expected[key] = last


def plain(expected: Mapping[int, Row], *names: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(each[name] for name in names) for each in expected.values()), key=repr)


@pytest.mark.parametrize("terms", ["", "bucket(id, 4)", "g"])
@pytest.mark.parametrize("seed", forms(range(4), [0]))
def test_the_greatest_row_of_each_key_is_in_the_table_whatever_task_and_batch_it_is_in(
    batches: Make, terms: str, seed: int
) -> None:
    partition = {"default_partition_by": terms} if terms else {}
    written = batches(keys="id", sequence_by="seq", apply_as_deletes="op = 'D'", **partition)
    chance, expected = random.Random(seed), dict[int, Row]()
    serial = [*range(400)]
    chance.shuffle(serial)  # no two rows of a key are equal in order
    for _ in range(8):
        rows = [
            row(chance.randrange(12), f"v{seq}", seq, chance.choice("UUD"), chance.randrange(3))
            for seq in (serial.pop() for _ in range(chance.randrange(1, 30)))
        ]
        cut = sorted(chance.randrange(len(rows) + 1) for _ in range(2))
        written.write(rows[: cut[0]], rows[cut[0] : cut[1]], rows[cut[1] :])
        told(expected, *rows)
        assert written.rows == plain(expected, "id", "name", "g", "seq")
        check(written.lake.table("lake.t"))


def test_a_delete_is_later_than_an_older_row_of_a_later_task(batches: Make) -> None:
    written = batches(keys="id", sequence_by="seq", cdc_field="op")
    written.write([row(1, "a", 1), row(2, "b", 1), row(3, "c", 9)])
    written.write([row(1, "", 5, "D"), row(3, "", 5, "D")], [row(1, "x", 3), row(2, "y", 3)], [row(1, "", 2, "D")])
    assert written.rows == [(2, "y", 0, 3), (3, "c", 0, 9)]


def test_without_an_order_later_batches_win(batches: Make) -> None:
    written = batches(
        id_columns="id", upsert_mode_enabled="true", schema=StructType().add("id", "long").add("n", "long")
    )
    written.write([{"id": 1, "n": 1}, {"id": 2, "n": 1}], [{"id": 3, "n": 1}])
    written.write([{"id": 2, "n": 2}], [{"id": 4, "n": 2}])
    assert written.rows == [(1, 1), (2, 2), (3, 1), (4, 2)]


@pytest.mark.parametrize("parts", [([7, 8, 7],), ([7, 1], [8, 7])])
def test_without_an_order_a_key_that_comes_twice_is_named_and_nothing_is_written(
    batches: Make, parts: tuple[list[int], ...]
) -> None:
    schema = StructType().add("id", "long").add("s", "string")
    written = batches(schema, keys="id, s")
    written.write([{"id": 7, "s": "x"}])
    before, files = written.rows, written.files()
    with pytest.raises(
        ConfigError, match=r"table lake\.t: key id = 7, s = x comes twice in batch 1, .* no order-field"
    ):
        written.write(*([{"id": key, "s": "x"} for key in part] for part in parts))
    assert written.rows == before
    assert {name for name in written.files() - files if "delete" in name} == set()


def test_a_key_that_comes_twice_is_found_also_if_not_all_keys_fit_into_memory(
    batches: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = partial(RowChangeResolver, at_once=2)
    monkeypatch.setattr(commits, "RowChangeResolver", resolver)
    commits._kept.cache_clear()
    written = batches(StructType().add("id", "long"), keys="id")
    written.write([{"id": 1}, {"id": 2}], [{"id": 3}, {"id": 4}], [{"id": 5}])
    with pytest.raises(ConfigError, match=r"table lake\.t: key id = 1 comes twice in batch 1"):
        written.write([{"id": 1}, {"id": 6}], [{"id": 7}, {"id": 8}], [{"id": 1}])
    commits._kept.cache_clear()
    assert written.rows == [(each,) for each in range(1, 6)]


def test_a_repeated_batch_changes_nothing_and_its_files_are_deleted(batches: Make) -> None:
    written = batches(keys="id", sequence_by="seq", cdc_field="op")
    written.write([row(1, "a", 1), row(2, "b", 1)])
    written.write([row(1, "c", 2)], [row(2, "", 2, "D")])
    head, files = written.lake.table("lake.t").current_snapshot(), written.files()
    written.count -= 1
    written.write([row(1, "c", 2)], [row(2, "", 2, "D")])
    assert written.lake.table("lake.t").current_snapshot() == head
    assert written.files() == files


def test_files_of_keys_are_gone_after_the_commit(batches: Make) -> None:
    written = batches(keys="id", sequence_by="seq", cdc_field="op")
    written.write([row(1, "a", 5), row(2, "b", 1)])
    written.write([row(1, "late", 2)], [row(2, "", 2, "D")])
    assert written.rows == [(1, "a", 0, 5)]
    named = {
        entry["file_path"].rsplit("/", 1)[-1] for entry in written.lake.table("lake.t").inspect.all_files().to_pylist()
    }
    assert written.files() - {"catalog.db"} <= named


@pytest.mark.parametrize("call", ["load_table", "commit_table"])
@pytest.mark.parametrize("when", ["raises before", "raises after"])
def test_each_change_is_made_once_whatever_call_of_the_catalog_fails(
    batches: Make, lake: SparkLake, call: Any, when: Any
) -> None:
    written = batches(keys="id", sequence_by="seq", cdc_field="op")
    written.write([row(1, "a", 1), row(2, "b", 1), row(3, "c", 1)])
    written.options["catalog.py-catalog-impl"] = f"{FaultyCatalog.__module__}.FaultyCatalog"
    written.options["catalog.type"] = ""
    messages = written.write([row(1, "d", 2)], [row(2, "", 2, "D")], commits=False)
    plan(lake.folder, call, 1, when)
    try:
        written.commit(messages)
    except CalvingError:
        written.commit(messages)
    assert has_failed(lake.folder)
    assert written.rows == [(1, "d", 0, 2), (3, "c", 0, 1)]
    check(lake.table("lake.t"))


def test_the_column_of_the_operation_is_kept_if_the_table_has_it(batches: Make, lake: SparkLake) -> None:
    batches(keys="id", evolve_schema_enabled="true").write([row(1, "a", 1)])
    batches(keys="id", cdc_field="op", on_new_checkpoint="continue", sink="t").write([row(2, "b", 1, "c")])
    assert lake.table("lake.t").scan().to_arrow()["op"].to_pylist() == ["c", "U"]


def test_a_column_of_truth_says_whether_a_row_deletes(batches: Make) -> None:
    written = batches(StructType().add("id", "long").add("gone", "boolean"), keys="id", cdc_field="gone")
    written.write([{"id": 1, "gone": False}, {"id": 2, "gone": False}])
    written.write([{"id": 1, "gone": True}, {"id": 3, "gone": None}])
    assert written.rows == [(2,), (3,)]


@pytest.mark.parametrize("options", [{"cdc_field": "OP"}, {"apply_as_deletes": "Op = 'D'"}])
@pytest.mark.parametrize("fold", ["false", "true"])
def test_the_case_of_a_name_in_an_option_does_not_turn_deletes_into_rows(
    batches: Make, options: dict[str, str], fold: str
) -> None:
    written = batches(keys="id", sequence_by="seq", schema_case_insensitive=fold, **options)
    written.write([row(1, "a", 1), row(2, "b", 1)])
    written.write([row(1, "", 2, "D")])
    assert written.lake.values("lake.t", "id") == [2]


def test_spaces_with_which_spark_fills_a_char_do_not_count(batches: Make) -> None:
    written = batches(keys="id", sequence_by="seq", apply_as_deletes="op IN ('DELETE', 'D ')")
    written.write([row(1, "a", 1, "INSERT    "), row(2, "b", 1, "INSERT    "), row(3, "c", 1, " D")])
    written.write([row(1, "a", 2, "DELETE    "), row(2, "b", 2, "D")])
    assert written.rows == [(3, "c", 0, 1)]


META = StructType().add("op", "string").add("who", "string")


def test_a_struct_with_the_operation_keeps_its_other_fields(batches: Make) -> None:
    written = batches(StructType().add("id", "long").add("meta", META), keys="id", cdc_field="meta.OP")
    written.write([{"id": 1, "meta": {"op": "c", "who": "x"}}, {"id": 2, "meta": {"op": "c", "who": "y"}}])
    written.write([{"id": 1, "meta": {"op": "d", "who": "z"}}])
    assert written.rows == [(2, {"op": "c", "who": "y"})]


def test_identifier_fields_of_the_table_are_its_keys(batches: Make, lake: SparkLake) -> None:
    batches(keys="id").write([row(1, "a", 1)])
    assert lake.table("lake.t").schema().identifier_field_names() == {"id"}
    written = batches(upsert_mode_enabled="true", sink="t")
    written.write([row(1, "b", 1)])
    assert [each[1] for each in written.rows] == ["b"]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"id": None}, "field id is null, but identifies the row"),
        ({"seq": None}, "field seq is null or missing, but orders the changes"),
        ({"op": "t"}, "op names a truncate event"),
        ({"name": "__debezium_unavailable_value"}, "has the placeholder"),
    ],
)
def test_a_row_that_cannot_change_the_table_fails_its_task(batches: Make, bad: Row, said: str) -> None:
    written = batches(keys="id", sequence_by="seq", cdc_field="op")
    written.write([row(1, "a", 1)])
    with pytest.raises(BadRecordError, match=said):
        written.write([row(2, "b", 1), {**row(1, "b", 2), **bad}])
    assert written.rows == [(1, "a", 0, 1)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"keys": "nix"}, "table lake.t: id-column 'nix' is not among its fields"),
        ({"upsert_mode_enabled": "true"}, "table lake.t has no id columns"),
        ({"keys": "id", "cdc_field": "nix"}, "the DataFrame has no column nix, which the option cdc-field names"),
        ({"keys": "id", "apply_as_deletes": "nix = 'D'"}, "no column nix, which the option apply-as-deletes names"),
        ({"keys": "id", "cdc_field": "op.nix"}, r"no column op\.nix, which the option cdc-field names"),
        (
            {"keys": "id", "cdc_field": "seq"},
            "column seq, which the option cdc-field names, is bigint, which says noth",
        ),
        ({"keys": "id", "sequence_by": "nix"}, "no column nix, which is its order-field"),
        ({"id_columns": "id"}, "option id-columns has no effect on rows that are added"),
        ({"sequence_by": "seq"}, "option order-field has no effect on rows that are added"),
        ({"keys": "id", "id_columns": "id"}, "option keys is id-columns, which is there, too"),
        ({"keys": "id", "cdc_field": "op", "apply_as_deletes": "op = 'D'"}, "both say which rows delete"),
        ({"keys": "id", "apply_as_deletes": "op LIKE 'D%'"}, "option apply-as-deletes: must be such as"),
    ],
)
def test_options_that_cannot_be_followed_are_refused(batches: Make, options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        batches(**options).write([row(1, "a", 1)])


@pytest.mark.parametrize(("fold", "names"), [("false", ("a", "a")), ("true", ("a", "A"))])
def test_two_fields_of_a_struct_with_one_name_are_refused(batches: Make, fold: str, names: Sequence[str]) -> None:
    inner = StructType().add(names[0], "long").add(names[1], "long")
    with pytest.raises(ConfigError, match=r"column x has two fields a: rename one"):
        batches(StructType().add("x", inner), schema_case_insensitive=fold).write([])


def test_a_dataframe_with_two_spellings_of_the_operation_is_asked_for_one(batches: Make) -> None:
    with pytest.raises(ConfigError, match="two columns op and OP, which the option cdc-field names"):
        batches(StructType([*SCHEMA.fields]).add("OP", "string"), keys="id", cdc_field="oP").write([])


def test_a_dataframe_without_columns_is_refused(batches: Make) -> None:
    with pytest.raises(ConfigError, match=r"table lake\.t: the DataFrame has no columns"):
        batches(StructType()).write([])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("op = 'D'", DeleteCondition("op", ("D",))),
        ('op == "D"', DeleteCondition("op", ("D",))),
        ("`op` in ('d', 'gone, for good')", DeleteCondition("op", ("d", "gone, for good"))),
        ("op IN ('')", DeleteCondition("op", ("",))),
    ],
)
def test_the_condition_of_pipelines_names_a_column_and_its_texts(text: str, found: DeleteCondition) -> None:
    assert DeleteCondition.parse(text) == found


@pytest.mark.parametrize(
    "text", ["op", "op = D", "op = 'D' OR x", "NOT op = 'D'", "op IN ()", "op IN ('a' 'b')", "f(op) IN (1)"]
)
def test_another_condition_is_no_list_of_texts(text: str) -> None:
    with pytest.raises(ValueError, match="must be such as"):
        DeleteCondition.parse(text)


def test_ours_and_the_words_of_pipelines_are_one() -> None:
    catalog = {"catalog.type": "rest", "catalog.uri": "http://c:1", "table": "lake.t"}
    theirs = read({**catalog, "keys": "id", "sequence_by": "seq", "apply_as_deletes": "op = 'D'"}).keys
    ours = {"id-columns": "id", "upsert-mode-enabled": "true", "order-field": "seq", "apply-as-deletes": "op = 'D'"}
    assert theirs == read({**catalog, **ours}).keys
