"""Base images get the digests that their registries say, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import pin_images
from harness.pin_images import DOCKERFILE, digest_of, pinned

OLD, NEW = f"sha256:{'0' * 64}", f"sha256:{'a' * 64}"


def docker(folder: Path, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A docker that answers so."""
    command = folder / "docker"
    command.write_text(f"#!/bin/sh\n{answer}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_every_base_image_of_the_dockerfile_gets_its_digest_and_nothing_else_changes() -> None:
    before = DOCKERFILE.read_text()
    once = pinned(before, lambda image: OLD)
    assert once.count(f"@{OLD}\n") == sum(line.startswith("ARG ") and ":" in line for line in before.splitlines()) > 0
    assert pinned(once, lambda image: NEW) == once.replace(OLD, NEW)
    assert len(once.splitlines()) == len(before.splitlines())


def test_the_digest_of_all_platforms_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker(tmp_path, f'echo "Name: $4"; echo "Digest:    {NEW}"; echo "  Name: $4@{OLD}"', monkeypatch)
    assert digest_of("python:3.12") == NEW


@pytest.mark.parametrize("answer", ["echo no such host >&2; exit 1", "echo nothing", None])
def test_without_an_answer_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("ARG PYTHON=python:3.12\n")
    monkeypatch.setattr(pin_images, "DOCKERFILE", file)
    monkeypatch.setenv("PATH", str(tmp_path))
    if answer is not None:
        docker(tmp_path, answer, monkeypatch)
    assert pin_images.main() == 1
    assert file.read_text() == "ARG PYTHON=python:3.12\n"
