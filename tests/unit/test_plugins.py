"""Parts by name: calving's own, those of other packages, and what is said where there is none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from calving.converters.interface import converter
from calving.engine.interface import open_engine
from calving.engine.registry import Patience
from calving.errors import ConfigError
from calving.model.record_path import PredicateSpec
from calving.plugins import Registry
from calving.settings.load import parse
from calving.transforms.registry import predicate, transform
from calving.writing.formats.interface import format_of
from calving.writing.properties import FORMAT, WriteProperties

BASE = {"name": "s", "topics": "t", "iceberg.tables": "db.t", "kafka.bootstrap.servers": "localhost:1"}
Install = Callable[..., None]
SHAPES = Registry("shape", {"text": "textwrap:TextWrapper"}, extras=("round",), direct=True, also=("their old names",))


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package on the path: a module, and an entry point."""
    monkeypatch.syspath_prepend(tmp_path)

    def run(package: str, what: str, name: str, value: str, code: str) -> None:
        (tmp_path / f"{package}.py").write_text(code)
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[calving.{what}s]\n{name} = {value}\n")
        monkeypatch.delitem(sys.modules, package, raising=False)

    return run


def test_an_own_part_is_found_without_looking_at_installed_packages() -> None:
    code = (
        "import sys; from calving.plugins import Registry;"
        "print(Registry('shape', {'text': 'textwrap:dedent'}).find('text').__name__,"
        " {'pluggy', 'importlib.metadata'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "dedent set()\n"


def test_a_registered_part_is_found_by_its_name(install: Install) -> None:
    install("corners", "shape", "square", "corners:Square", "class Square: pass")
    assert SHAPES.find("square").__name__ == "Square"


def test_a_module_with_a_hook_is_asked_for_its_part(install: Install) -> None:
    code = (
        "import pluggy\n@pluggy.HookimplMarker('calving')\ndef calving_register_shape():\n    return Square\n"
        "class Square: pass"
    )
    install("hooked", "shape", "square", "hooked", code)
    assert SHAPES.find("square").__name__ == "Square"


def test_a_module_without_the_hook_is_named(install: Install) -> None:
    install("unhooked", "shape", "square", "unhooked", "class Square: pass")
    with pytest.raises(
        ConfigError, match=r"the shape 'square' cannot be loaded: .*unhooked has no hook calving_register_"
    ):
        SHAPES.find("square")


def test_two_packages_that_claim_a_name_are_both_named(install: Install) -> None:
    for package in ("ours", "theirs"):
        install(package, "shape", "square", f"{package}:Square", "class Square: pass")
    for ask in (SHAPES.find, SHAPES.check):
        with pytest.raises(ConfigError, match=r"several .* provide the shape 'square': ours:Square, theirs:Square"):
            ask("square")


def test_a_package_cannot_take_an_own_name(install: Install) -> None:
    install("taker", "shape", "text", "taker:Square", "class Square: pass")
    assert SHAPES.find("text").__name__ == "TextWrapper"


def test_a_name_that_nobody_has_is_answered_with_all_that_there_is(install: Install) -> None:
    install("corner", "shape", "square", "corner:Square", "class Square: pass")
    expected = "there is no shape 'oval'; there are: text, square, their old names, module:name"
    for ask in (SHAPES.find, SHAPES.check):
        with pytest.raises(ConfigError, match=f"^{expected}$"):
            ask("oval")


def test_a_part_that_is_not_installed_is_named_with_its_extra() -> None:
    with pytest.raises(ConfigError, match=r"the shape 'round' is not installed: pip install \"calving\[round\]\""):
        SHAPES.find("round")


def test_a_part_may_be_given_by_its_place() -> None:
    assert SHAPES.find("textwrap:dedent").__name__ == "dedent"


def test_a_part_that_cannot_be_loaded_is_named_with_the_reason(install: Install) -> None:
    install("broken", "shape", "square", "broken:Square", "1 / 0")
    with pytest.raises(ConfigError, match="the shape 'square' cannot be loaded: division by zero"):
        SHAPES.find("square")


def test_a_check_loads_nothing(install: Install) -> None:
    install("unloaded", "shape", "square", "unloaded:Square", "1 / 0")
    SHAPES.check("square")
    assert "unloaded" not in sys.modules


def test_a_part_of_another_kind_is_refused(install: Install) -> None:
    install("odd", "shape", "square", "odd:Square", "class Square: pass")
    with pytest.raises(ConfigError, match=r"the shape 'square' is not a subclass of pathlib.*\.Path"):
        SHAPES.find("square", Path)


CONVERTER = """
from calving.converters import Converter, Decoded
class Empty(Converter):
    def __init__(self, options, *, is_key):
        self.options = dict(options)
    def decode(self, values, projection):
        return Decoded()
"""


@pytest.mark.parametrize("name", ["empty", "nothing:Empty"])
def test_a_converter_of_another_package_gets_its_options(install: Install, name: str) -> None:
    install("nothing", "converter", "empty", "nothing:Empty", CONVERTER)
    made = converter(name, {"colour": "red"}, is_key=True)
    assert made.options == {"colour": "red"}  # type: ignore[attr-defined]


def test_a_converter_that_is_not_there_is_named_with_its_key() -> None:
    with pytest.raises(
        ConfigError, match=r"^key\.converter: there is no converter 'nope'; there are: json, avro, .*Kaf"
    ):
        converter("nope", {}, is_key=True)


def test_a_transform_of_another_package_is_found_by_its_name(install: Install) -> None:
    code = "def same(records, options):\n    return records"
    install("sames", "transform", "same", "sames:same", code)
    assert transform("x", "same", {}).apply("records") == "records"  # type: ignore[arg-type, comparison-overlap]


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("Filter$Key", "did you mean 'Filter'?"),
        ("Cast$Header", "did you mean 'Cast'?"),
        ("org.apache.kafka.connect.transforms.Nope", "there are: Cast, CopyValue"),
    ],
)
def test_a_transform_that_is_not_there_is_named_with_its_step(kind: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        transform("x", kind, {})
    assert str(caught.value).startswith(f"transforms.x: there is no transform '{kind}'; {remedy}")


PREDICATE = """
import pyarrow as pa
from calving.transforms import Predicate
class Never(Predicate):
    def __init__(self, options):
        self.options = dict(options)
    def test(self, records):
        return pa.array([False] * len(records))
"""


@pytest.mark.parametrize("kind", ["never", "nevers:Never"])
def test_a_predicate_of_another_package_gets_its_options(install: Install, kind: str) -> None:
    install("nevers", "predicate", "never", "nevers:Never", PREDICATE)
    assert predicate("x", PredicateSpec(kind, {"a": "b"})).options == {"a": "b"}  # type: ignore[attr-defined]


def test_a_predicate_that_is_not_there_is_named_with_its_step() -> None:
    with pytest.raises(ConfigError, match=r"^transforms\.x\.predicate: there is no predicate 'Nope'; there are: Topic"):
        predicate("x", PredicateSpec("Nope", {}))


def written(name: str) -> str:
    return format_of(WriteProperties.of({FORMAT: name}, "db.t")).name


def test_another_package_s_writer_of_a_known_format_is_found_by_its_name(install: Install) -> None:
    code = "from calving.writing.formats.parquet import Parquet\nclass Other(Parquet): pass"
    install("others", "format", "other", "others:Other", code)
    assert written("Other") == "parquet"


def test_a_writer_of_files_that_iceberg_does_not_know_is_refused(install: Install) -> None:
    code = "from calving.writing.formats.parquet import Parquet\nclass Csv(Parquet):\n    name = 'csv'"
    install("csvs", "format", "comma", "csvs:Csv", code)
    with pytest.raises(
        ConfigError, match=r"write\.format\.default = comma: it writes csv files; Iceberg's are: parquet, "
    ):
        written("comma")


ENGINE = """
from calving.engine.interface import LocalEngine
class Told(LocalEngine):
    def __init__(self, *what):
        self.what = what
"""


def test_an_engine_of_another_package_gets_the_name_and_the_properties_of_the_sink(install: Install) -> None:
    install("engines", "engine", "told", "engines:Told", ENGINE)
    made = open_engine("told", "orders", {"spark.x": "y"})
    assert made.what == ("orders", {"spark.x": "y"}, Patience())  # type: ignore[attr-defined]


def test_an_engine_that_is_not_there_is_named_when_the_settings_are_read() -> None:
    with pytest.raises(ConfigError, match=r"^iceberg\.engine: there is no engine 'flink'; there are: spark, local$"):
        parse({**BASE, "iceberg.engine": "flink"})
