"""What tasks tell the commit: every file, also of very many, and of one batch alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from calving.errors import ConfigError, ProtocolError
from calving.model.files import DataFile
from calving.model.tables import TableSpec
from calving_spark.messages import MOST_BYTES, TaskFiles, TaskPlace, WrittenFiles, of_one_batch, packed, unpacked
from calving_spark.planning import WritePlan
from calving_spark.tasks import write

PLACE = TaskPlace("q", "3", 0)


def files(count: int) -> list[DataFile]:
    return [
        DataFile(f"file:///lake/{n}.parquet", "PARQUET", n, 100, lower_bounds={1: b"\x00"}) for n in range(1, count)
    ]


@pytest.mark.parametrize(("count", "is_in_a_file"), [(10, False), (10_000, True)])
def test_a_message_names_every_file_and_stays_small(tmp_path: Path, count: int, is_in_a_file: bool) -> None:
    io, named = PyArrowFileIO(), files(count)
    message = packed(PLACE, "u", TaskFiles(named, []), str(tmp_path), io)
    assert len(message.entries or "") <= MOST_BYTES
    assert (message.path is not None) is is_in_a_file
    assert unpacked(message, "t", io).files == named


def message(query: str | None = "q", batch: str = "3", uuid: str = "u") -> WrittenFiles:
    return replace(WrittenFiles(query, batch, uuid, 0, "{}"))


@pytest.mark.parametrize("other", [message(query=None), message(batch="4"), message(uuid="v"), None])
def test_messages_of_several_batches_are_refused(other: WrittenFiles | None) -> None:
    with pytest.raises(ProtocolError, match="nothing was committed"):
        of_one_batch([message(), other], "batch 3")


def test_a_message_that_lacks_rows_is_refused() -> None:
    with pytest.raises(ProtocolError, match="does not name all its rows"):
        unpacked(WrittenFiles("q", "3", "u", 5, None), "t", None)


def test_a_task_with_another_version_names_its_host_and_what_to_install() -> None:
    plan = WritePlan(TableSpec("t", "", "", "", {}, {}), "u", fold=False)
    with pytest.raises(ConfigError, match=r"host .* has calving-spark .*, and the driver 0\.0\.0: install one version"):
        write(plan, "0.0.0", [])
