"""``make pin-images``: writes the digests of the base images of ``deploy/Dockerfile`` behind their tags."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

DOCKERFILE = Path(__file__).parents[1] / "deploy" / "Dockerfile"
_BASE = re.compile(r"^(?P<name>ARG [A-Z]+=)(?P<image>[^\s@]+:[^\s@]+)(?:@\S+)?$", re.MULTILINE)
_DIGEST = re.compile(r"^Digest:\s+(sha256:[0-9a-f]{64})$", re.MULTILINE)


def pinned(text: str, digest: Callable[[str], str]) -> str:
    """The text of a Dockerfile with the present digest of each image that an ``ARG`` names by its tag."""
    return _BASE.sub(lambda base: f"{base['name']}{base['image']}@{digest(base['image'])}", text)


def digest_of(image: str) -> str:
    """The digest of an image, of all its platforms together, as its registry says.

    :raises ValueError: docker, or the registry, does not tell it.
    """
    command = ["docker", "buildx", "imagetools", "inspect", image]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ValueError(f"{image}: docker does not start ({error}): install it with buildx") from error
    match = _DIGEST.search(asked.stdout)
    if asked.returncode != 0 or match is None:
        raise ValueError(f"{image}: docker does not tell its digest: {asked.stderr.strip() or asked.stdout.strip()}")
    return match[1]


def main() -> int:
    try:
        text = pinned(DOCKERFILE.read_text("utf-8"), digest_of)
    except ValueError as error:
        print(f"{error}\n{DOCKERFILE} is as it was", file=sys.stderr)
        return 1
    DOCKERFILE.write_text(text, "utf-8")
    print("\n".join(match[0] for match in _BASE.finditer(text)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
