"""Control events as bytes: the same as the Java sink's."""

from __future__ import annotations

import base64
import dataclasses
import json
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from calving.model.events import (
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Event,
    PartitionProgress,
    StartCommit,
    TableReference,
)
from calving.model.files import DataFile, FileContent, PartitionField, PartitionTuple
from calving.model.offsets import TopicPartition
from calving.wire.codec import Message, UndecodableError, decode, divide, encode, head_of

GOLDENS = json.loads((Path(__file__).parent.parent / "goldens" / "control-topic.json").read_text())["records"]
COMMIT = UUID("00112233-4455-6677-8899-aabbccddeeff")
TABLE = TableReference("cat", ("db",), "tbl", UUID("11111111-2222-3333-4444-555555555555"))
TS = 1704164645678901
FILE = DataFile(
    "s3://b/f.parquet",
    "PARQUET",
    3,
    100,
    column_sizes={1: 3, 2: 3},
    value_counts={1: 3, 2: 3},
    null_value_counts={1: 3, 2: 3},
    lower_bounds={1: (1).to_bytes(8, "little")},
    upper_bounds={1: (1).to_bytes(8, "little")},
    split_offsets=(4,),
    sort_order_id=0,
)
PARTITIONED = PartitionTuple(
    (PartitionField("day", 1000, '{"type":"int","logicalType":"date"}'), PartitionField("name", 1001, '"string"')),
    (19000, "x"),
)


def tail(event: Event) -> bytes:
    data = encode(Message(uuid4(), TS, "connect-x", event))
    length = int.from_bytes(data[2:4], "big")
    body = data[4 + length :]
    return body[body.index(b"connect-x") + len(b"connect-x") :]


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda g: str(g["offset"]))
def test_a_golden_is_reproduced_byte_for_byte(golden: dict[str, str]) -> None:
    data = base64.b64decode(golden["value_b64"])
    assert encode(decode(data)) == data


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (StartCommit(COMMIT), "00112233445566778899aabbccddeeff"),
        (
            DataComplete(
                COMMIT,
                (
                    PartitionProgress(TopicPartition("t", 0), 10, TS),
                    PartitionProgress(TopicPartition("t", 1), None, None),
                ),
            ),
            "00112233445566778899aabbccddeeff 02 04 0274 00 0214 02eabcc185b8fb8606 0274 02 00 00 00",
        ),
        (
            CommitToTable(COMMIT, TABLE, 5, TS),
            "00112233445566778899aabbccddeeff 06636174 0204646200 0674626c"
            " 0211111111222233334444555555555555 020a 02eabcc185b8fb8606",
        ),
        (CommitComplete(COMMIT, TS), "00112233445566778899aabbccddeeff 02eabcc185b8fb8606"),
        (
            DataWritten(COMMIT, TABLE, (FILE,)),
            "00112233445566778899aabbccddeeff 06636174 0204646200 0674626c 0211111111222233334444555555555555"
            " 02 02 0200 2073333a2f2f622f662e70617271756574 0e50415251554554 0200 06 c801"
            " 02 04 0206 0406 00 02 04 0206 0406 00 02 04 0206 0406 00 00 02 02 02100100000000000000 00"
            " 02 02 02100100000000000000 00 00 02 02 08 00 00 0200 00 00 00 00 00 02 00",
        ),
    ],
)
def test_the_body_is_javas(event: Event, expected: str) -> None:
    assert tail(event) == bytes.fromhex(expected.replace(" ", ""))


@pytest.mark.parametrize(
    "file",
    [
        FILE,
        dataclasses.replace(FILE, partition=PARTITIONED, spec_id=2),
        dataclasses.replace(FILE, content=FileContent.EQUALITY_DELETES, equality_ids=(1, 2)),
        dataclasses.replace(FILE, content=FileContent.POSITION_DELETES, referenced_data_file="x", content_offset=4),
    ],
)
def test_a_file_survives_the_round_trip(file: DataFile) -> None:
    data = file.content is FileContent.DATA
    event = DataWritten(COMMIT, TABLE, (file,) if data else (), () if data else (file,))
    assert decode(encode(Message(COMMIT, TS, "g", event))).event == event


def test_a_table_without_uuid_survives_the_round_trip() -> None:
    event = CommitToTable(COMMIT, dataclasses.replace(TABLE, table_uuid=None))
    assert decode(encode(Message(COMMIT, TS, "g", event))).event == event


def test_a_schema_of_an_older_sink_without_table_uuid_and_newer_file_fields_is_read() -> None:
    event = DataWritten(COMMIT, TABLE, (FILE,))
    data = encode(Message(COMMIT, TS, "g", event))
    length = int.from_bytes(data[2:4], "big")
    schema = json.loads(data[4 : 4 + length])
    payload = schema["fields"][4]["type"]
    reference = payload["fields"][1]["type"]
    reference["fields"] = [f for f in reference["fields"] if f["field-id"] != 10604]
    text = json.dumps(schema).encode()
    assert TABLE.table_uuid is not None
    body = data[4 + length :].replace(b"\x02" + TABLE.table_uuid.bytes, b"")
    old = data[:2] + len(text).to_bytes(2, "big") + text + body
    assert decode(old).event == dataclasses.replace(event, table=dataclasses.replace(TABLE, table_uuid=None))


@pytest.mark.parametrize("garbage", [b"", b"hello", b"\xc2\x01", b"\xc2\x01\x00\x02{}", b"\xc2\x01\x00\x04null\x00"])
def test_garbage_is_refused_with_one_kind_of_error(garbage: bytes) -> None:
    with pytest.raises(UndecodableError):
        decode(garbage)


@pytest.mark.parametrize(
    ("event", "written", "damaged"),
    [
        pytest.param(CommitComplete(COMMIT, None), b"\xff\0", b"\xff\3\2", id="a branch that counts from the end"),
        pytest.param(CommitComplete(COMMIT, 1), b"\2\2", b"\2" + b"\xff" * 9 + b"\2", id="a number of 65 bits"),
        pytest.param(StartCommit(COMMIT), b"\x12connect-x", b"\x01", id="a size below zero"),
        pytest.param(StartCommit(COMMIT), b"\0\xea\xbc", b"\x80" * 5 + b"\1\xea\xbc", id="a type of 33 bits"),
        pytest.param(DataComplete(COMMIT), b"\xff\2\0", b"\xff", id="an end before the partitions"),
        pytest.param(DataComplete(COMMIT), b"\xff\2\0", b"\xff\3\0", id="partitions of a branch below zero"),
    ],
)
def test_an_event_whose_bytes_java_would_refuse_is_refused(event: Event, written: bytes, damaged: bytes) -> None:
    data = encode(Message(UUID(int=7), TS, "connect-x", event))
    assert data.count(written) == 1
    with pytest.raises(UndecodableError):
        decode(data.replace(written, damaged))


def test_records_that_double_are_read_no_further_than_the_bytes_go() -> None:
    data = encode(Message(COMMIT, TS, "g", StartCommit(COMMIT)))
    length = int.from_bytes(data[2:4], "big")
    schema = json.loads(data[4 : 4 + length])
    fields = schema["fields"][-1]["type"]["fields"]
    for n in range(40):
        inner: object = f"R{n - 1}" if n else "double"
        both = [{"name": name, "type": inner, "field-id": 9} for name in "ab"]
        kind = {"type": "record", "name": f"R{n}", "fields": both}
        fields.append({"name": f"x{n}", "type": ["null", kind], "field-id": 10 + n})
    text = json.dumps(schema).encode()
    framed = data[:2] + len(text).to_bytes(2, "big") + text
    assert decode(framed + data[4 + length :] + b"\0" * 40).event == StartCommit(COMMIT)
    with pytest.raises(UndecodableError):
        decode(framed + data[4 + length :] + b"\0" * 39 + b"\2" + b"\0" * 1_000)


@pytest.mark.parametrize("place", ["head", "payload"])
@pytest.mark.parametrize("leaf", ["null", {"type": "fixed", "name": "nothing", "size": 0}], ids=["null", "fixed"])
def test_records_without_bytes_that_double_are_refused_at_once(place: str, leaf: object) -> None:
    data = encode(Message(COMMIT, TS, "g", StartCommit(COMMIT)))
    length = int.from_bytes(data[2:4], "big")
    schema = json.loads(data[4 : 4 + length])
    doubled, before = leaf, "null" if leaf == "null" else "nothing"
    for n in range(40):
        fields = [{"name": "a", "type": doubled, "field-id": 1}, {"name": "b", "type": before, "field-id": 2}]
        doubled, before = {"type": "record", "name": f"R{n}", "fields": fields}, f"R{n}"
    fields = schema["fields"] if place == "head" else schema["fields"][-1]["type"]["fields"]
    fields.insert(0, {"name": "x", "type": doubled, "field-id": 9})
    text = json.dumps(schema).encode()
    hostile = data[:2] + len(text).to_bytes(2, "big") + text + data[4 + length :]
    with pytest.raises(UndecodableError, match="record of values without bytes"):
        decode(hostile)
    assert (head_of(hostile) is None) == (place == "head")


def test_a_long_chain_of_records_around_one_byte_is_refused_at_once() -> None:
    data = encode(Message(COMMIT, TS, "g", StartCommit(COMMIT)))
    length = int.from_bytes(data[2:4], "big")
    schema = json.loads(data[4 : 4 + length])
    chain: object = "int"
    for n in range(50):
        chain = {"type": "record", "name": f"R{n}", "fields": [{"name": "a", "type": chain, "field-id": 1}]}
    items = {"name": "x", "type": {"type": "array", "items": chain}, "field-id": 9}
    schema["fields"][-1]["type"]["fields"].append(items)
    text = json.dumps(schema).encode()
    with pytest.raises(UndecodableError, match="record of values without bytes"):
        decode(data[:2] + len(text).to_bytes(2, "big") + text + data[4 + length :] + b"\x02\x00\x00")


def test_a_written_event_is_divided_below_the_limit_and_keeps_every_file() -> None:
    files = tuple(dataclasses.replace(FILE, file_path=f"s3://b/{i}.parquet") for i in range(1000))
    parts = list(divide(DataWritten(COMMIT, TABLE, files), 40_000))
    assert len(parts) > 1
    assert all(len(encode(Message(COMMIT, TS, "g", part))) <= 40_000 for part in parts)
    assert tuple(f for part in parts for f in part.data_files) == files


def test_files_of_two_specs_go_into_two_events() -> None:
    other = dataclasses.replace(FILE, partition=PARTITIONED, spec_id=1)
    parts = list(divide(DataWritten(COMMIT, TABLE, (FILE, other)), 900_000))
    assert [part.data_files for part in parts] == [(FILE,), (other,)]


def test_delete_files_come_before_all_data_files_that_they_say_nothing_of() -> None:
    other = dataclasses.replace(FILE, partition=PARTITIONED, spec_id=1)
    keys = [dataclasses.replace(file, content=FileContent.EQUALITY_DELETES) for file in (FILE, other)]
    parts = list(divide(DataWritten(COMMIT, TABLE, (FILE, other), tuple(keys)), 900_000))
    assert [(part.delete_files, part.data_files) for part in parts] == [
        ((keys[0],), ()),
        ((keys[1],), ()),
        ((), (FILE,)),
        ((), (other,)),
    ]


def test_an_event_without_files_stays_one_event() -> None:
    event = DataWritten(COMMIT, TABLE)
    assert list(divide(event, 900_000)) == [event]


def test_who_does_not_ask_for_progress_gets_the_event_without_it() -> None:
    progress = tuple(PartitionProgress(TopicPartition("t", p), p, TS) for p in range(3))
    data = encode(Message(uuid4(), TS, "connect-x", DataComplete(COMMIT, progress)))
    assert decode(data).event == DataComplete(COMMIT, progress)
    assert decode(data, progress=False).event == DataComplete(COMMIT)


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda g: str(g["offset"]))
def test_of_other_events_nothing_is_left_out(golden: dict[str, str]) -> None:
    data = base64.b64decode(golden["value_b64"])
    whole = decode(data)
    assert decode(data, progress=False) == (
        dataclasses.replace(whole, event=DataComplete(whole.event.commit_id))
        if isinstance(whole.event, DataComplete)
        else whole
    )
