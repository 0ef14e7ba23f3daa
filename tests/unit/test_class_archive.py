"""Which archive of classes a JVM is started with, and which JVM writes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from calving.host import ClassArchive


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "program" / "program.jar"
    made.parent.mkdir(parents=True)
    made.write_bytes(b"classes")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


def archive(jar: Path) -> ClassArchive:
    return ClassArchive("program", jar.parent, [jar], ["-Xint"])


def path(made: ClassArchive, option: str) -> Path:
    (found,) = (o for o in made.options if o.startswith(f"-XX:{option}="))
    return Path(found.partition("=")[2])


def written(jar: Path) -> Path:
    """The archive that a JVM has written."""
    writing = archive(jar)
    path(writing, "ArchiveClassesAtExit").write_bytes(b"parsed")
    writing.end(143)
    return path(archive(jar), "SharedArchiveFile")


def test_a_second_start_reads_what_the_first_has_left(jar: Path) -> None:
    assert written(jar).read_bytes() == b"parsed"


def test_one_jvm_of_a_process_writes_it_at_a_time(jar: Path) -> None:
    assert archive(jar).will_be_written
    assert archive(jar).options == []


@pytest.mark.parametrize("code", [None, 1, -9])
def test_a_jvm_that_did_not_end_well_leaves_it_to_the_next_one(jar: Path, code: int | None) -> None:
    writing = archive(jar)
    path(writing, "ArchiveClassesAtExit").write_bytes(b"half of")
    writing.end(code)
    assert archive(jar).will_be_written


def test_a_jvm_that_wrote_nothing_leaves_it_to_the_next_one(jar: Path) -> None:
    archive(jar).end(0)
    assert archive(jar).will_be_written


def test_a_program_that_was_installed_again_gets_a_new_archive_and_the_former_one_is_deleted(jar: Path) -> None:
    """Java would ignore an archive of the former jars, and would never write another."""
    first = written(jar)
    os.utime(jar, ns=(1, 1))
    assert written(jar) != first
    assert not first.exists()


def test_two_installations_keep_archives_of_their_own(jar: Path, tmp_path: Path) -> None:
    first, other = written(jar), tmp_path / "other" / jar.name
    other.parent.mkdir()
    other.write_bytes(b"classes")
    written(other)
    assert first.exists()
