"""Metadata, manifests and data files as such, without a library of tables."""

from __future__ import annotations

import io
import zlib
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import fastavro
import pyarrow.orc as orc
import pyarrow.parquet as pq
from botocore.exceptions import BotoCoreError, ClientError
from pyroaring import BitMap64

from campaign.audit import Row
from campaign.changes import GONE, told
from campaign.replays import version


def content(location: str) -> bytes:
    """:raises OSError: it is gone, or cannot be read now."""
    if not location.startswith("s3://"):
        return Path(location.removeprefix("file://").removeprefix("file:")).read_bytes()  # Java writes one slash
    bucket, _, key = location.removeprefix("s3://").partition("/")
    try:
        found: bytes = _s3().get_object(Bucket=bucket, Key=key)["Body"].read()
    except (BotoCoreError, ClientError) as error:
        raise OSError(f"{location}: {error}") from error
    return found


@cache
def _s3() -> Any:
    """Its address and keys are in the environment."""
    return boto3.client("s3")


def avro(location: str) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(content(location))))


def positions(location: str) -> list[tuple[str, int]]:
    """The data files and the places in them that a file of position deletes names."""
    columns = pq.read_table(io.BytesIO(content(location)), columns=["file_path", "pos"]).to_pydict()
    return list(zip(columns["file_path"], columns["pos"], strict=True))


def vector(location: str, offset: int, size: int) -> BitMap64:
    """The places in a data file that a deletion vector names: a blob of this many bytes in a Puffin file."""
    blob = content(location)[offset : offset + size]
    body = blob[4:-4]
    assert int.from_bytes(blob[:4], "big") == len(body), f"{location}: no vector begins at {offset}"
    assert zlib.crc32(body) == int.from_bytes(blob[-4:], "big"), f"{location}: the vector at {offset} is damaged"
    found: BitMap64 = BitMap64.deserialize(body[4:])
    return found


def keys(location: str) -> set[int]:
    """The ids of the rows that an equality-delete file is about, whichever format its name says."""
    if location.endswith(".avro"):
        return {record["id"] for record in avro(location)}
    read = orc.read_table if location.endswith(".orc") else pq.read_table
    return set(read(io.BytesIO(content(location)), columns=["id"]).column("id").to_pylist())


def rows(location: str) -> list[Row]:
    """The rows of a data file, whichever format its name says."""
    if location.endswith(".avro"):
        return [_row(record) for record in avro(location)]
    read = orc.read_table if location.endswith(".orc") else pq.read_table
    return [_row(record) for record in read(io.BytesIO(content(location))).to_pylist()]


def _row(record: Mapping[str, Any]) -> Row:
    """The mark of a deleted row is a part of its proof, and so are its other values, and when a version holds."""
    mark = GONE if record.get("_cdc_deleted") else ""
    row = told(f"{mark}{record['proof']}", {**record, **(record.get("inner") or {})})
    if (begin := record.get("valid_from")) is not None:
        row = version(row, _number(begin), _number(record["valid_to"]), is_current=record["is_current"])
    return Row(record["id"], record["route"], row)


def _number(moment: Any) -> Any:
    """A timestamp in milliseconds; any other value as it is."""
    return round(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment
