"""Jars from Maven repositories, resolved with the Ivy that PySpark ships. Jars are cached; only Java is needed."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from calving.errors import ConfigError
from calving.host import cache_folder, java


@dataclass(frozen=True, slots=True)
class Artifact:
    """One dependency. With a ``classifier``, only that jar is taken, without its dependencies."""

    group: str
    name: str
    version: str
    classifier: str | None = None
    transitive: bool = True

    def xml(self) -> str:
        head = f"<dependency org={quoteattr(self.group)} name={quoteattr(self.name)} rev={quoteattr(self.version)}"
        if self.classifier is None:
            return f'{head} conf="default->default" transitive="{str(self.transitive).lower()}"/>'
        classifier = quoteattr(self.classifier)
        return (
            f'{head} conf="default->default" transitive="false">'
            f'<artifact name={quoteattr(self.name)} type="jar" ext="jar" m:classifier={classifier}/></dependency>'
        )


def jars(name: str, artifacts: Sequence[Artifact]) -> Path:
    """A folder with the jars of ``artifacts`` and of their dependencies. Jars are downloaded once, and then cached.

    :raises ConfigError: Java is missing, or a jar cannot be downloaded.
    """
    ivy_xml = _ivy_file(artifacts)
    folder = cache_folder() / "jars" / f"{name}-{hashlib.sha256(ivy_xml.encode()).hexdigest()[:12]}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / "lock").open("w") as lock:  # for all: one process at a time can use Ivy's cache
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                _retrieve(ivy_xml, folder)
    return folder


def _retrieve(ivy_xml: str, folder: Path) -> None:
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    (partial / "ivy.xml").write_text(ivy_xml)
    command = [java(), "-jar", str(_ivy_jar()), "-ivy", str(partial / "ivy.xml"), "-confs", "default"]
    command += ["-cache", str(cache_folder() / "ivy"), "-types", "jar", "bundle"]
    command += ["-retrieve", str(partial / "[artifact]-[revision](-[classifier]).[ext]")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not list(partial.glob("*.jar")):
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise ConfigError(f"the jars of '{folder.name}' could not be downloaded from Maven Central:\n{tail}")
    partial.rename(folder)


def _ivy_file(artifacts: Sequence[Artifact]) -> str:
    dependencies = "".join(artifact.xml() for artifact in artifacts)
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="calving" module="services"/><configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("pyspark is not installed: its Ivy is used to download jars")
    return next(Path(spec.submodule_search_locations[0], "jars").glob("ivy-*.jar"))
