"""Keys and values: a column, from whatever they are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from calving.records.values import Payloads

Form = Callable[[Sequence[bytes | None]], Payloads]
GIVEN = [b"a", None, b"", b"\x00\xff", b"longest"]


def _as_objects(values: Sequence[bytes | None]) -> Payloads:
    return Payloads(list(values))


def _as_column(values: Sequence[bytes | None]) -> Payloads:
    return Payloads(pa.array(values, pa.binary()))


def _as_slice(values: Sequence[bytes | None]) -> Payloads:
    return Payloads(pa.array([b"before", *values, None], pa.binary())[1:-1])


@pytest.fixture(params=[_as_objects, _as_column, _as_slice])
def form(request: pytest.FixtureRequest) -> Form:
    found: Form = request.param
    return found


def test_they_hold_the_same_as_a_column_and_as_objects(form: Form) -> None:
    payloads = form(GIVEN)
    assert payloads.column.to_pylist() == payloads.items == list(payloads) == GIVEN
    assert [payloads[i] for i in range(len(payloads))] == GIVEN


def test_an_empty_value_is_not_null(form: Form) -> None:
    assert form(GIVEN).nulls == [1]
    assert form([b"", b"x"]).nulls == []


def test_some_are_taken(form: Form) -> None:
    assert form(GIVEN).take([1, 2, 4]) == [None, b"", b"longest"]
    assert form(GIVEN).take(range(5)) == GIVEN
    assert form(GIVEN)[1:3] == [None, b""]
    assert form(GIVEN).take([]) == []


def test_sizes_do_not_count_nulls(form: Form) -> None:
    assert (form(GIVEN).size, form(GIVEN).longest) == (10, 7)
    assert (form([None]).size, form([None]).longest) == (0, 0)
    assert (form([]).size, form([]).longest) == (0, 0)


def test_a_sequence_becomes_payloads_once(form: Form) -> None:
    payloads = form(GIVEN)
    assert Payloads.of(payloads) is payloads
    assert Payloads.of((b"a", None)) == [b"a", None]
