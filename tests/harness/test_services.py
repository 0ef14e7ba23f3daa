"""The services of the how-to guides."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from calving.errors import ConfigError
from harness.services import services


def test_a_port_that_another_process_has_is_named_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as other:
        with contextlib.suppress(OSError):  # somebody has it already
            other.bind(("127.0.0.1", 8081))
            other.listen()
        with pytest.raises(ConfigError, match="port 8081 is taken"), services(["registry"], tmp_path):
            pytest.fail("the registry started")
