"""What the control log is told of why a worker ends."""

from __future__ import annotations

import pytest

from calving.errors import BadRecordError
from calving.runtime.reporting import _text
from calving.settings.load import parse

LEAST = {"name": "s", "topics": "orders", "iceberg.tables": "db.orders", "kafka.bootstrap.servers": "broker:9092"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("topic 'a:b', partition 0, offset 7: 'CANARY' is no int", "topic 'a:b', partition 0, offset 7"),
        (
            "2 of 9 records are bad; the first: topic 't', partition 0, offset 7: 'CANARY'",
            "2 of 9 records are bad; the first: topic 't', partition 0, offset 7",
        ),
        ("table db.t, column 'a.b': 9 of its first values are int, such as 'CANARY'", "table db.t, column 'a.b'"),
        ("CANARY", "some records"),
    ],
)
def test_the_reason_of_a_bad_record_is_not_told(text: str, shown: str) -> None:
    assert _text(parse(LEAST), BadRecordError(text)) == f"{shown}: a bad record; the worker's log has the reason"
