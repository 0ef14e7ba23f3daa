"""The distribution of the decoders in Rust: its sdist builds with cargo alone, and its wheel decodes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version

from tests.packaging.crates import ALLOWED, LIST, NATIVE, cargo, crates, listing
from tests.packaging.test_wheels import ROOT, uv

pytestmark = pytest.mark.skipif(cargo() is None, reason="there is no cargo on this machine")
DECODE = """
import calving_native
import pyarrow as pa
decoder = calving_native.Decoder.of_json([(["id"], "long", [], -2, -1)], True, False, 9, 100)
rows, refused, _ = decoder.decode([b'{"id":7}', b"{"], b"", b"")
print(calving_native.__version__, pa.array(rows).to_pylist(), refused)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist."""
    folder = tmp_path_factory.mktemp("native")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(cargo() or '').parent}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("CARGO_TARGET_DIR", str(ROOT / ".cache" / "cargo"))
        uv("build", "--quiet", "--sdist", "--out-dir", folder, NATIVE)
        uv("build", "--quiet", "--wheel", "--out-dir", folder, next(folder.glob("*.tar.gz")))
    return next(folder.glob("*.whl"))


def test_the_wheel_decodes_where_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    uv("pip", "install", "--quiet", "--no-deps", "--target", tmp_path, "--python", sys.executable, wheel)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", DECODE], env=env, capture_output=True, text=True, check=True)
    number, decoded = done.stdout.strip().split(" ", 1)
    assert Version(number) == Version(version("calving"))
    assert decoded == "[{'id': 7}] [1]"


def test_the_wheel_is_for_every_python_and_typed_and_holds_licences(wheel: Path) -> None:
    assert "-cp311-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {"calving_native/py.typed", "calving_native/__init__.pyi"} <= set(names)
    assert {Path(name).name for name in names if "licenses/" in name} == {"LICENSE", "THIRD-PARTY.md"}


def test_the_list_of_crates_is_that_of_the_lock_file() -> None:
    assert LIST.read_text() == listing()


def test_every_crate_has_a_licence_that_lets_us_ship_it() -> None:
    for name, _, licence in crates():
        choices = re.split(r" OR |/", licence.replace("(", "").replace(")", ""))
        assert any(set(choice.split(" AND ")) <= ALLOWED for choice in choices), (name, licence)


CALLS_C = {"consumer.rs", "librdkafka.rs", "python.rs"}
"""They call librdkafka, and take Arrow columns over its C interface, which is unsafe by nature; no other module does."""


def test_there_is_no_unsafe_code_but_where_c_is_called() -> None:
    sources = {path.name: path.read_text() for path in (NATIVE / "src").glob("*.rs")}
    forbidding = {name for name, text in sources.items() if "#![forbid(unsafe_code)]" in text}
    assert forbidding == set(sources) - {"lib.rs"} - CALLS_C
    unsafe = {name for name, text in sources.items() if re.search(r"\bunsafe\b(?!_code)", text)}
    assert unsafe == CALLS_C
