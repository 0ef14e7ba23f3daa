"""FieldNames: names in lower case, or in snake case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from calving.errors import ConfigError
from calving.model.record_path import Evolution, TransformSpec
from calving.model.tables import RowMutations
from calving.records.values import objects
from calving.transforms.names import snake
from tests.mutations.changing import Changing
from tests.transforms.applying import apply, chain, records, values


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *(
            (name, "order_id")
            for name in ("orderId", "OrderId", "OrderID", "ORDER_ID", "order id", "order-id", "order.id")
        ),
        ("HTTPUrl", "http_url"),
        ("address2Line", "address2_line"),
        ("SKU", "sku"),
        ("_id", "_id"),
        ("__Op", "__op"),
        ("_cdc", "_cdc"),
        ("a__b", "a_b"),
        ("größeÄ", "größe_ä"),
        ("", ""),
    ],
)
def test_words_are_apart_in_snake_case(name: str, expected: str) -> None:
    assert snake(name) == expected


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("lower", {"orderid": 1, "lines": [{"unitprice": 2, "a": None}, None], "o": {"isnew": True}, "none": None}),
        ("snake", {"order_id": 1, "lines": [{"unit_price": 2, "a": None}, None], "o": {"is_new": True}, "none": None}),
    ],
)
def test_names_are_changed_at_every_depth(style: str, expected: Any) -> None:
    given = {"OrderId": 1, "Lines": [{"UnitPrice": 2, "A": None}, None], "O": {"IsNew": True}, "None": None}
    assert values("FieldNames", {"style": style}, given) == [expected]


def test_arrays_of_several_kinds_of_values_are_changed_too() -> None:
    given = {"Big": [{"UnitPrice": 2**70}, "x", {"Of": [{"A B": 1}]}]}
    assert values("FieldNames", {"style": "snake"}, given) == [
        {"big": [{"unit_price": 2**70}, "x", {"of": [{"a_b": 1}]}]}
    ]


def test_a_key_of_a_single_value_stays() -> None:
    made = apply("FieldNames$Key", {"style": "snake"}, records({"A": 1}, keys=["OrderId"]))
    assert (made.key.to_pylist(), objects(made.value)) == (["OrderId"], [{"A": 1}])


def test_a_schema_keeps_what_it_requires_and_the_keys_of_its_maps() -> None:
    inner = pa.struct([pa.field("Id", pa.int64(), nullable=False)])
    kind = pa.struct([pa.field("Of", pa.map_(pa.string(), inner)), pa.field("At", pa.list_(inner), nullable=False)])
    given = pa.array([{"Of": [("Key", {"Id": 1})], "At": [{"Id": 2}]}, None, {"Of": None, "At": []}], kind)
    made: Any = apply("FieldNames", {"style": "lower"}, records(given, typed=True).take(pa.array([0, 2]))).value
    assert [field.name for field in made.type] == ["of", "at"]
    assert [field.nullable for field in made.type] == [True, False]
    assert not made.type.field("at").type.value_type.field("id").nullable
    assert [dict(row) for row in objects(made)] == [
        {"of": [("Key", {"id": 1})], "at": [{"id": 2}]},
        {"of": None, "at": []},
    ]


def test_fields_that_would_have_one_name_make_a_record_bad() -> None:
    done = chain("FieldNames", {"style": "snake"}).apply(records({"a": {"orderId": 1, "order_id": 2}}))
    reason = "transform 'x': the fields 'orderId' and 'order_id' would both be 'order_id'"
    assert [(error.index, error.reason) for error in done.bad] == [(0, reason)]


def test_a_style_is_needed() -> None:
    with pytest.raises(ConfigError, match="style is lower or snake, not 'camel'"):
        chain("FieldNames", {"style": "camel"})


def test_a_mirror_has_columns_in_snake_case_and_finds_its_keys(tmp_path: Path) -> None:
    steps = [("unwrap", "DebeziumTransform"), ("names", "FieldNames"), ("keys", "FieldNames$Key")]
    sink = Changing(
        tmp_path,
        RowMutations("_cdc.op", by_key=True),
        id_columns=(),
        evolution=Evolution(create=True, evolve=True),
        transforms=tuple(
            TransformSpec(name, kind, {} if name == "unwrap" else {"style": "snake"}) for name, kind in steps
        ),
    )

    def change(op: str, price: int) -> Any:
        row = {"orderId": 1, "Unit Price": price}
        sides = {"before": row, "after": None} if op == "d" else {"before": {**row, "orderId": 2}, "after": row}
        source = {"db": "shop", "schema": "public", "table": "t"}
        return {"orderId": 1}, {"op": op, "ts_ms": 1, "source": source, **sides}

    sink.take(change("c", 3))
    sink.take(change("u", 4))
    assert sink.rows("order_id", "unit_price") == [(1, 4)]
    sink.take(change("d", 4))
    assert sink.rows("order_id") == []
