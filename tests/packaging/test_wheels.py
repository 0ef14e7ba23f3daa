"""The distributions, built and installed as a user has them: into an environment with nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from harness import native_wheel

ROOT = Path(__file__).parents[2]
MODULES = {
    "calving": "calving",
    "calving-kafka": "calving_kafka",
    "calving-redis": "calving_redis",
    "calving-spark": "calving_spark",
    "calving-zookeeper": "calving_zookeeper",
}
"""The distributions, and the package of each."""


def uv(*arguments: str | Path) -> None:
    # The environment of the tests is not the one to install into.
    env = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
    program = shutil.which("uv") or ROOT / ".venv" / "bin" / "uv"
    done = subprocess.run(
        [program, *map(str, arguments)], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    for package in sorted(set((ROOT / "packages").iterdir()) - {ROOT / "packages" / "native"}):
        uv("build", "--quiet", "--wheel", "--out-dir", folder, package)
    return folder


@pytest.fixture(scope="module")
def environment(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with ``calving[kafka,redis,zookeeper]``."""
    folder = tmp_path_factory.mktemp("env")
    uv("venv", "--quiet", folder)
    target = ("--python", folder / "bin" / "python", "--find-links", wheels, "--constraint", "requirements.lock")
    # uv's cache knows a wheel by its folder and version, not by what it holds.
    rebuilt = [f"--refresh-package={name}" for name in (*MODULES, "calving-native")]
    uv("pip", "install", "--quiet", *target, *rebuilt, *native_wheel.options(), "calving[kafka,redis,zookeeper]")
    return folder / "bin"


@pytest.fixture(scope="module")
def spark_environment(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with ``calving-spark``."""
    folder = tmp_path_factory.mktemp("spark")
    uv("venv", "--quiet", folder)
    target = ("--python", folder / "bin" / "python", "--find-links", wheels, "--constraint", "requirements.lock")
    rebuilt = [f"--refresh-package={name}" for name in (*MODULES, "calving-native")]
    uv("pip", "install", "--quiet", *target, *rebuilt, *native_wheel.options(), "calving-spark")
    return folder / "bin"


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, cwd=program.parent)


def content(wheels: Path, name: str) -> list[str]:
    (wheel,) = wheels.glob(f"{name.replace('-', '_')}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.mark.parametrize("name", MODULES)
def test_a_wheel_holds_its_licence(wheels: Path, name: str) -> None:
    assert any(path.endswith("licenses/LICENSE") for path in content(wheels, name))


@pytest.mark.parametrize("name", MODULES)
def test_a_wheel_tells_type_checkers_that_it_is_typed(wheels: Path, name: str) -> None:
    assert f"{MODULES[name]}/py.typed" in content(wheels, name)


def test_all_distributions_have_one_version() -> None:
    assert len({version(name) for name in MODULES}) == 1


@pytest.mark.parametrize("name", ["calving-kafka", "calving-redis", "calving-zookeeper"])
def test_a_backend_takes_only_a_core_that_it_is_compatible_with(name: str) -> None:
    folder = ROOT / "packages" / name.replace("calving", "backend")
    dependencies = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"calving~={version('calving')}" in dependencies


def test_the_installed_command_tells_its_version(environment: Path) -> None:
    done = run(environment / "calving", "version")
    assert done.stdout.splitlines()[0] == version("calving"), done.stderr


@pytest.mark.skipif(
    native_wheel.WHEEL is None, reason="there is no wheel of calving-native: make builds one where there is a cargo"
)
def test_the_installed_command_reads_and_decodes_in_rust(environment: Path) -> None:
    done = run(environment / "calving", "version")
    assert done.stdout.splitlines()[1:3] == ["native decoders: in use", "native reader: in use"], done.stderr


@pytest.mark.parametrize(
    ("machine", "system", "python", "needed"),
    [
        ("x86_64", "linux", "CPython", True),
        ("aarch64", "linux", "CPython", True),
        ("ppc64le", "linux", "CPython", False),
        ("arm64", "darwin", "CPython", False),
        ("x86_64", "linux", "PyPy", False),
    ],
)
def test_the_decoders_in_rust_are_required_where_they_have_a_wheel(
    machine: str, system: str, python: str, needed: bool
) -> None:
    project = tomllib.loads((ROOT / "packages" / "core" / "pyproject.toml").read_text())["project"]
    (native,) = [one for each in project["dependencies"] if (one := Requirement(each)).name == "calving-native"]
    environment = {"platform_machine": machine, "sys_platform": system, "platform_python_implementation": python}
    assert native.marker is not None and native.marker.evaluate(environment) is needed
    assert native.specifier.contains(version("calving"), prereleases=True)
    assert project["optional-dependencies"]["native"] == []


@pytest.mark.parametrize("backend", ["kafka", "redis", "zookeeper"])
def test_the_installed_command_finds_the_backend(environment: Path, tmp_path: Path, backend: str) -> None:
    sink = tmp_path / "sink.toml"
    sink.write_text(
        f'name = "s"\ntopics = ["t"]\n[iceberg]\ntables = "db.t"\n"control.backend" = "{backend}"\n"nonsense" = 1\n'
        '[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n'
    )
    done = run(environment / "calving", "validate", str(sink))
    assert "unknown key 'iceberg.nonsense'" in done.stderr, done.stderr
    assert done.returncode == 2


def test_the_data_source_of_spark_takes_only_a_core_that_it_is_compatible_with() -> None:
    project = tomllib.loads((ROOT / "packages" / "spark" / "pyproject.toml").read_text())["project"]
    assert f"calving~={version('calving')}" in project["dependencies"]


WRITE = """
import sys
from pyspark.sql import SparkSession
from pyiceberg.catalog import load_catalog

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
catalog = {"catalog.type": "embedded", "catalog.warehouse": sys.argv[1], "auto-create-enabled": "true"}
spark.range(10).write.format("calving").mode("append").options(**catalog).save("lake.t")
table = load_catalog("iceberg", type="sql", uri=f"sqlite:///{sys.argv[1]}/catalog.db").load_table("lake.t")
print("rows:", table.scan().to_arrow().num_rows)
"""


def test_the_installed_data_source_is_found_and_writes(
    spark_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(spark_environment / "python"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    done = run(spark_environment / "python", "-c", WRITE, str(tmp_path / "warehouse"))
    assert "rows: 10" in done.stdout, done.stderr
