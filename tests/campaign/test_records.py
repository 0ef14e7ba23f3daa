"""The records of a campaign: some are poison, and some have odd envelopes."""

from __future__ import annotations

import json

from campaign import records

TABLES = ["db.a", "db.b"]
NUMBERS = range(40 * 42)
NOW = 1_780_000_000_000


def test_records_of_each_sort_of_poison_are_among_them() -> None:
    bad = {records.payload(n, TABLES) for n in NUMBERS if records.place(n, TABLES)[0] == records.BAD}
    assert len(bad) == 7 and None not in bad


def test_odd_timestamps_and_headers_are_on_records_for_tables_and_on_poison() -> None:
    odd = [n for n in NUMBERS if records.timestamp(n, NOW) != NOW]
    unnamed = [n for n in NUMBERS if records.headers(n)]
    for some in (odd, unnamed):
        places = {records.place(n, TABLES)[0] for n in some}
        assert records.BAD in places and places & {*TABLES}
    assert len({records.timestamp(n, NOW) for n in NUMBERS}) == 4


def test_every_other_record_is_what_its_number_says() -> None:
    for n in NUMBERS:
        if (place := records.place(n, TABLES)[0]) in TABLES:
            found = json.loads(records.payload(n, TABLES) or b"")
            assert (found["id"], found["route"]) == (n, place)
