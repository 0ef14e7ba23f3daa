"""The reference lists every name that the sink writes into tables, the control log and stored positions."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import fields
from pathlib import Path
from uuid import UUID

import pytest

from calving.backend.entries import Encoded
from calving.backend.headers import Signer
from calving.iceberg.summary import engine
from calving.model.events import (
    Attachment,
    CommitComplete,
    DataComplete,
    DataWritten,
    Leader,
    Parked,
    Publication,
    TableReference,
    TargetState,
    WorkerEnd,
)
from calving.model.forms import NEWEST
from calving.model.marks import TableMark
from calving.model.members import Member
from calving.model.offsets import Span, TopicPartition
from calving.model.tables import Branches
from calving_kafka import records
from calving_kafka.notes import Note

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/stored-state.md").read_text()
CORE = ROOT / "packages/core/src/calving"
WRITERS = ("model", "protocol", "iceberg", "maintenance")
"""The packages of the core that know names in tables."""
TP = TopicPartition("t", 0)
SPANS = {TP: (Span(0, 1),)}
MEMBER = Member("0.2.0", "aa", NEWEST, "host", "file", {"topics": "1"}, 1, "m")
BRANCHES = Branches("audit", {("db", "t"): "main"})
ATTACHED = Attachment(
    settled=SPANS,
    marks={("db", "t"): TableMark("u", 1, {0: 1})},
    parked={("db", "t"): Parked("last", 1, SPANS)},
    released=frozenset({(0, 1)}),
    leader=Leader("m", "h", "http://h"),
    restarted=frozenset({TP}),
    restarts={TP: (0, 1)},
    form=NEWEST,
    read={0: 1},
    members=(MEMBER,),
    unanswered=1,
    state=TargetState.STOPPED,
)


def in_code() -> set[str]:
    """The constants that name a property of tables or an entry of summaries."""
    names: set[str] = set()
    for path in (path for package in WRITERS for path in (CORE / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                names |= {str(node.value.value)}
    return {name.rstrip(".") for name in names if re.fullmatch(r"(calving|kafka\.connect)\.[a-z.-]+", name)}


def beside() -> set[str]:
    """All names beside events, and those within the description of a worker."""
    written = DataWritten(UUID(int=1), TableReference("c", ("db",), "t"))
    publication = Publication(
        (written, DataComplete(UUID(int=1))),
        {},
        SPANS,
        paused_ms=1,
        member=MEMBER,
        branches=BRANCHES,
        ordered=frozenset({("db", "t")}),
        wanted=True,
    )
    entries = [
        Encoded.of_worker("g", publication, 10_000).signed(Signer(b"secret", "control", "g")),
        Encoded.of_coordinator("g", [CommitComplete(UUID(int=1))], ATTACHED, 10_000),
        Encoded.of_end("g", WorkerEnd("0.2.0", 1, "m", "h", "error"), 10_000),
    ]
    return {name for entry in entries for name in json.loads(entry.beside)} | set(MEMBER.as_json())


def test_the_attachment_of_this_test_has_a_value_in_every_field() -> None:
    assert [each.name for each in fields(Attachment) if not getattr(ATTACHED, each.name)] == []
    assert [each.name for each in fields(Member) if not getattr(MEMBER, each.name)] == []


@pytest.mark.parametrize("name", sorted(in_code() | set(engine())))
def test_the_page_has_every_property_of_tables_and_entry_of_summaries(name: str) -> None:
    assert re.search(rf"`{re.escape(name)}(\.<[^`]*)?`", PAGE)


@pytest.mark.parametrize("name", sorted(beside()))
def test_the_page_has_every_name_beside_an_event(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("name", [records.SPANS_HEADER, records.BESIDE_HEADER])
def test_the_page_has_every_header(name: str) -> None:
    assert f"| `{name}` |" in PAGE


def test_the_page_has_every_word_of_a_note() -> None:
    notes = f"{Note('id', 'log', 'by', 'member')} {Note()}"
    words = {word.partition("=")[0] for word in notes.split() if word != "id"}
    assert words == {"calving", "rewound", "log", "by", "member"}
    assert [word for word in words if not re.search(rf"`{word}[ =`]", PAGE)] == []


@pytest.mark.parametrize("name", re.findall(r"^\| `(calving\.[a-z.-]+?)(?:\.<|`)", PAGE, re.MULTILINE))
def test_the_page_has_no_name_that_nobody_writes(name: str) -> None:
    assert name in in_code()
