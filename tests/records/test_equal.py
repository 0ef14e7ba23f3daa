"""Which rows have the same key, and which of them is the last one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from calving.writing.key_runs import are_last, numbered

NUMBERS, TEXTS = st.integers(-3, 3), st.sampled_from(["", "a", "b"])


def check(columns: list[pa.Array], rows: list[Any]) -> None:
    assert len({*zip(numbered(columns).to_pylist(), rows, strict=True)}) == len({*rows})
    assert are_last(numbered(columns)).to_pylist() == [row not in rows[i + 1 :] for i, row in enumerate(rows)]


@given(st.lists(NUMBERS))
def test_keys_of_one_number(rows: list[int]) -> None:
    check([pa.array(rows, pa.int64())], rows)


@given(st.lists(st.none() | NUMBERS))
def test_null_is_a_key_of_its_own(rows: list[int | None]) -> None:
    check([pa.array(rows, pa.int64())], rows)


@given(st.lists(st.tuples(st.none() | NUMBERS, st.none() | TEXTS, NUMBERS)))
def test_keys_of_several_columns(rows: list[tuple[int | None, str | None, int]]) -> None:
    kinds = (pa.int64(), pa.string(), pa.int32())
    check([pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)], rows)
