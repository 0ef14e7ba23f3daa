"""Which files are below a location."""

from __future__ import annotations

import pytest

from calving.model.files import DATA, DELETES, KEYS, FileName, is_below, sink_name

ID = "11111111-2222-3333-4444-555555555555"


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("s3://b/wh/t/data/f", "s3://b/wh/t"),
        ("s3://b/wh/t/data/f", "s3://b/wh/t//"),
        ("s3a://b/wh/t/f", "s3://b/wh/t"),
        ("s3n://b/wh/t/f", "S3://b/wh/t"),
        ("abfss://c@a.net/t/f", "abfs://c@a.net/t"),
        ("file:///wh/t/f", "/wh/t"),
        ("file:/wh/t/f", "file:///wh/t"),
        ("/wh/t/f", "file:///wh/t/"),
        ("hdfs://nn:8020/wh/t/f", "hdfs://nn:8020/wh/t"),
        ("s3://b/wh//t/f", "s3://b/wh//t"),
        ("s3://b/wh/t//f", "s3://b/wh/t"),
        ("s3://b/f", "s3://b"),
        ("file:///a/../wh/t/f", "file:///a/../wh/t"),
        ("s3://b/t/p=a%2F..%2Fb/f", "s3://b/t"),  # a partition of the text a/../b
        ("s3://b/t/p=../f..parquet", "s3://b/t"),
        ("s3://b/a#b?c/f", "s3://b/a#b?c"),
    ],
)
def test_a_file_below_a_location(path: str, location: str) -> None:
    assert is_below(path, location)


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("s3://b/wh/t2/f", "s3://b/wh/t"),
        ("s3://b/wh/t", "s3://b/wh/t"),
        ("s3://b/wh/t/", "s3://b/wh/t"),
        ("s3://b/wh/t/../u/f", "s3://b/wh/t"),
        ("s3://b/wh/t/./f", "s3://b/wh/t"),
        ("s3://b/wh/t/x\\..\\..\\u\\f", "s3://b/wh/t"),
        ("s3://b/wh/t/f/..", "s3://b/wh/t"),
        ("s3://other/wh/t/f", "s3://b/wh/t"),
        ("s3://B/wh/t/f", "s3://b/wh/t"),
        ("s3://b/WH/t/f", "s3://b/wh/t"),
        ("gs://b/wh/t/f", "s3://b/wh/t"),
        ("http://b/wh/t/f", "s3://b/wh/t"),
        ("file:///etc/passwd", "/wh/t"),
        ("file://host/wh/t/f", "/wh/t"),
        ("//host/wh/t/f", "/wh/t"),
        ("wh/t/f", "/wh/t"),
        ("", "/wh/t"),
        ("s3://b/wh//t/f", "s3://b/wh/t"),
        ("s3://b/t/f?/g", "s3://b/t"),  # PyArrow takes f
        ("s3://b/t/f#g", "s3://b/t"),
        ("s3://b/t/a\nb", "s3://b/t"),
        ("s3://b/t/a\0b", "s3://b/t"),
    ],
)
def test_a_file_elsewhere(path: str, location: str) -> None:
    assert not is_below(path, location)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (f"00001-0-{ID}-00002.parquet", FileName(ID, DATA)),
        (f"s3://b/t/data/p=1/00001-0-{ID}-00002.orc", FileName(ID, DATA)),
        (f"s3://b/t/data/0101/1101/0000/10101010-00001-0-{ID}-00002-keys.parquet", FileName(ID, KEYS)),
        (f"123456-0-{ID}-100000-deletes.parquet", FileName(ID, DELETES)),
        ("00001-0-x-00002.parquet", None),
        (f"{ID}.parquet", None),
        (f"00001-0-{ID}-00002-keys.parquet/", None),
        (f"00001-0-{ID}-m0.avro", None),
    ],
)
def test_the_name_of_a_file_tells_who_has_written_it(name: str, said: FileName | None) -> None:
    assert sink_name(name) == said
