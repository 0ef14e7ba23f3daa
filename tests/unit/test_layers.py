"""Every package imports only packages below it."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "packages" / "core" / "src" / "calving"
LEVELS = (
    {"addresses", "version", "wording"},
    {"caches", "secrets"},
    {"errors"},
    {"avro_binary", "host", "importing", "lean", "plugins", "retries", "storage_errors", "threads", "model"},
    {"protocol", "wire", "records"},
    {"audit", "casting", "catalogs", "converters", "status"},
    {"source", "transforms", "writing"},
    {"backend", "mutations"},
    {"iceberg", "tasks"},
    {"engine", "maintenance", "services"},
    {"settings", "testing"},
    {"serving", "terminal"},
    {"runtime"},
    {"demo"},
    {"cli"},
    {"api"},
    {"__init__"},
)
"""Packages and modules of the core, the lowest first. One imports nothing of its own level or above."""
FOREIGN = {
    "pyspark",
    "confluent_kafka",
    "pyiceberg",
    "pyarrow",
    "pydantic",
    "typer",
    "rich",
    "threading",
    "logging",
    "random",
    "time",
}


@cache
def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def room(path: Path) -> str:
    """The package or the module at the top of the core that a file belongs to."""
    return path.relative_to(CORE).parts[0].removesuffix(".py")


def files(name: str) -> list[Path]:
    return [CORE / f"{name}.py"] if (CORE / f"{name}.py").exists() else sorted((CORE / name).rglob("*.py"))


def test_every_package_has_its_level() -> None:
    rooms = {room(path) for path in CORE.rglob("*.py")}
    assert rooms == set().union(*LEVELS)
    assert sum(map(len, LEVELS)) == len(rooms)


@pytest.mark.parametrize("name", sorted(set().union(*LEVELS)))
def test_a_package_imports_only_what_lies_below_it(name: str) -> None:
    below: set[str] = set()
    for level in LEVELS:
        if name in level:
            break
        below |= level
    for path in files(name):
        ours = {imported.split(".")[1] for imported in imports(path) if imported.startswith("calving.")}
        assert ours <= {*below, name}, path


@pytest.mark.parametrize("package", ["model", "protocol"])
def test_the_protocol_knows_no_library_and_no_clock(package: str) -> None:
    for path in files(package):
        assert not {name.split(".")[0] for name in imports(path)} & FOREIGN, path


def test_the_client_of_kafka_is_known_to_the_source_alone() -> None:
    client = {room(p) for p in CORE.rglob("*.py") if any(name.startswith("confluent_kafka") for name in imports(p))}
    assert client == {"source", "demo", "converters"}  # a demo brings its own Kafka; a schema registry is no Kafka
    kafka = {f"calving.source.{path.stem}" for path in (CORE / "source").glob("kafka*.py")}
    users = {path.relative_to(CORE).as_posix() for path in CORE.rglob("*.py") if imports(path) & kafka}
    assert {user for user in users if not user.startswith("source/kafka")} == {"source/opening.py"}


def test_core_imports_no_backend_package() -> None:
    for path in CORE.rglob("*.py"):
        assert not any(name.startswith("calving_") for name in imports(path)), path


@pytest.mark.parametrize("backend", ["redis", "zookeeper"])
def test_a_backend_needs_only_what_is_public(backend: str) -> None:
    """That of Kafka shares clients with the source."""
    used = {name for path in (ROOT / f"packages/backend-{backend}/src").rglob("*.py") for name in imports(path)}
    assert {name for name in used if name.startswith("calving.")} == {"calving.backend", "calving.errors"}


def test_only_the_contracts_need_pytest() -> None:
    users = {room(path) for path in CORE.rglob("*.py") if "pytest" in imports(path)}
    assert users == {"testing"}
    for path in CORE.rglob("*.py"):
        assert room(path) == "testing" or not any(name.startswith("calving.testing") for name in imports(path)), path


def test_no_package_has_more_than_twelve_percent_of_the_core() -> None:
    lines = {name: sum(len(path.read_text().splitlines()) for path in files(name)) for name in set().union(*LEVELS)}
    whole = sum(lines.values())
    assert {name: size for name, size in lines.items() if size > 0.12 * whole} == {}


@pytest.mark.parametrize(
    "module", ["bench.run", "campaign.run", "campaign.checker", "tests.simulation.run", "tests.fuzz.run"]
)
def test_what_make_starts_besides_tests_can_be_imported(module: str) -> None:
    importlib.import_module(module)


def test_the_checker_of_campaigns_shares_no_code_with_the_sink() -> None:
    imported = "import sys, campaign.checker; print({name.split('.')[0] for name in sys.modules})"
    found = subprocess.run([sys.executable, "-c", imported], cwd=ROOT, check=True, capture_output=True, text=True)
    assert "'campaign'" in found.stdout
    assert "'calving'" not in found.stdout


def test_the_audit_shares_no_code_with_what_it_judges() -> None:
    names = [f"calving.audit.{path.stem}" for path in sorted((CORE / "audit").glob("*.py"))]
    imported = f"import sys, {', '.join(names)}; print(*(name for name in sys.modules if name.startswith('calving')))"
    found = subprocess.run([sys.executable, "-c", imported], cwd=ROOT, check=True, capture_output=True, text=True)
    used = {name for name in found.stdout.split() if not name.startswith("calving.audit")}
    assert used == {"calving", "calving.version", "calving.errors", "calving.secrets", "calving.storage_errors"}


def test_all_errors_of_the_core_stand_in_one_module_and_say_what_the_caller_does_next() -> None:
    elsewhere = {path.name for path in CORE.rglob("*.py") if "(CalvingError)" in path.read_text()} - {"errors.py"}
    errors = importlib.import_module("calving.errors")
    found = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.CalvingError)]
    assert not elsewhere
    assert [each.__name__ for each in found if "__doc__" not in vars(each) or not each.__doc__] == []


def test_no_module_of_the_core_imports_itself_by_way_of_others() -> None:
    modules = {
        f"calving.{path.relative_to(CORE).with_suffix('').as_posix().replace('/', '.')}" for path in CORE.rglob("*.py")
    }
    imported = {name: _modules_of(name, modules) for name in modules}

    def lead_to(name: str, seen: set[str]) -> set[str]:
        for each in imported[name] - seen:
            seen.add(each)
            lead_to(each, seen)
        return seen

    assert [name for name in sorted(modules) if name in lead_to(name, set())] == []


def _modules_of(name: str, modules: set[str]) -> set[str]:
    """The modules of the core that one imports, wherever in it."""
    path = CORE / f"{name.removeprefix('calving.').replace('.', '/')}.py"
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return (found & modules) - {name}
