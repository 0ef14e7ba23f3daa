"""Rows that are sorted in memory and on the local disk."""

from __future__ import annotations

import io
import random
import tempfile
from typing import Any

import pyarrow as pa
import pytest

from calving.errors import TableTroubleError
from calving.maintenance.external_sort import ExternalSort

ORDER = [("k", "descending"), ("n", "ascending")]


def batches(count: int, rows: int, seed: int) -> list[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Batches with few distinct keys; ``n`` numbers all rows."""
    chance, made = random.Random(seed), []
    for number in range(count):
        keys = [chance.randrange(20) for _ in range(rows)]
        numbers = [number * rows + i for i in range(rows)]
        key_batch = pa.RecordBatch.from_pydict({"k": pa.array(keys), "n": pa.array(numbers)})
        made.append((key_batch, pa.RecordBatch.from_pydict({"text": [f"{k}-{n}" for k, n in zip(keys, numbers)]})))  # noqa: B905
    return made


@pytest.mark.parametrize("at_once", [1, 300, 2_000, 10**9])
@pytest.mark.parametrize("seed", range(3))
def test_rows_come_back_in_order_whatever_memory_holds(at_once: int, seed: int) -> None:
    given = batches(9, 40, seed)
    sort = ExternalSort(ORDER, at_once)
    for keys, rows in given:
        sort.add(keys, rows)
    found = [
        (key["k"], key["n"], row["text"])
        for keys, rows in sort.sorted()
        for key, row in zip(keys.to_pylist(), rows.to_pylist(), strict=True)
    ]
    sort.close()
    all_of = [(k, n, f"{k}-{n}") for keys, _ in given for k, n in zip(*keys.to_pydict().values(), strict=True)]
    assert found == sorted(all_of, key=lambda row: (-row[0], row[1]))


def test_memory_holds_a_few_times_as_much_as_it_is_told() -> None:
    at_once, count = 64 * 1024, 60
    sort = ExternalSort(ORDER, at_once)
    for keys, rows in batches(count, 500, 7):
        sort.add(keys, rows)
    sizes = [keys.nbytes + rows.nbytes for keys, rows in sort.sorted()]
    sort.close()
    assert len(sizes) > 5 and max(sizes) < 3 * at_once


def test_no_rows_are_none() -> None:
    sort = ExternalSort(ORDER, 10)
    assert list(sort.sorted()) == []
    sort.close()


def test_a_full_local_disk_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**how: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    sort = ExternalSort(ORDER, 1)
    with pytest.raises(TableTroubleError, match=r"No space left on device; make room there, let TMPDIR name another"):
        sort.add(*batches(1, 3, 1)[0])


class Disk(io.BytesIO):
    """A file on a disk that takes so many writes."""

    def __init__(self, takes: int) -> None:
        super().__init__()
        self.left = takes

    def write(self, data: Any, /) -> int:
        self.left -= 1
        if self.left < 0:
            raise OSError(28, "No space left on device")
        return super().write(data)


def test_a_disk_that_fills_at_any_write_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    takes = 0
    while True:
        disk = Disk(takes)
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda disk=disk, **how: disk)
        sort = ExternalSort(ORDER, 100)
        try:
            for keys, rows in batches(2, 3, 1):
                sort.add(keys, rows)
            assert sum(keys.num_rows for keys, _ in sort.sorted()) == 6
            break
        except TableTroubleError as error:
            assert "make room there" in str(error)
        finally:
            disk.left = 1_000
            sort.close()
        takes += 1
    assert takes > 5
