"""Which Spark an archive of classes belongs to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from calving.engine.classic import class_archive


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "spark" / "jars" / "spark.jar"
    made.parent.mkdir(parents=True)
    made.write_bytes(b"classes")
    monkeypatch.setenv("SPARK_HOME", str(made.parent.parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


def archive() -> Path:
    """Where the next JVM leaves its classes."""
    made = class_archive()
    (option,) = (o for o in made.options if o.startswith("-XX:ArchiveClassesAtExit="))
    made.end(None)
    return Path(option.partition("=")[2]).with_suffix(".jsa")


def test_a_second_start_reads_what_the_first_has_left(jar: Path) -> None:
    left = archive()
    left.touch()
    assert f"-XX:SharedArchiveFile={left}" in class_archive().options


def test_a_spark_that_was_installed_again_gets_a_new_archive(jar: Path) -> None:
    """Java would ignore the archive of the former jars, and would never write another."""
    left = archive()
    left.touch()
    os.utime(jar, ns=(1, 1))
    assert archive() != left


def test_two_installations_of_spark_keep_archives_of_their_own(
    jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = archive()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "other"))
    assert archive().parent != first.parent
