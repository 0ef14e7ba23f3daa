"""YARN on loopback: a ResourceManager and its nodes, of the version of Hadoop that PySpark comes with."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

import pyspark

from calving.engine.spark import LOCAL_JAVA
from calving.host import java
from calving.services.maven import Artifact, jars
from calving.services.process import LOOPBACK, Process, free_port
from harness.jvm import spark
from tests.engine.standalone import executors_in, processes_in

_JARS = Path(pyspark.__file__).parent / "jars"
_LEFT_OUT = [Artifact("org.bouncycastle", name, "1.78.1") for name in ("bcprov-jdk18on", "bcpkix-jdk18on")]
"""What its jar does not have."""
_SERVER = "org.apache.hadoop.yarn.server."
_ADDRESSES = ("address", "localizer.address", "webapp.address")


class Yarn:
    """``env``: of a driver; ``properties``: what an application needs to run here. It has no node at first."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.nodes, self._numbers = folder, list[Node](), itertools.count()
        conf, port = folder / "conf", free_port()
        ports = {name: free_port() for name in ("scheduler", "resource-tracker", "admin", "webapp")}
        self.settings = {
            "yarn.resourcemanager.hostname": LOOPBACK,
            "yarn.resourcemanager.address": f"{LOOPBACK}:{port}",
            **{f"yarn.resourcemanager.{name}.address": f"{LOOPBACK}:{p}" for name, p in ports.items()},
            "yarn.resourcemanager.scheduler.class": f"{_SERVER}resourcemanager.scheduler.fifo.FifoScheduler",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.nm.liveness-monitor.expiry-interval-ms": "15000",  # a node that is silent for so long is lost
        }
        configure(conf, self.settings, folder)
        self.env = {"HADOOP_CONF_DIR": str(conf), "JAVA_HOME": _java_home(), "SPARK_LOCAL_IP": LOOPBACK}
        self.properties = {
            "spark.master": "yarn",
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.executor.memory": "512m",
            **spark(),
            "spark.yarn.am.extraJavaOptions": LOCAL_JAVA,
            "spark.ui.showConsoleProgress": "false",
            "spark.yarn.jars": f"local:{_JARS}/*",  # else Spark's own are copied for each application
            "spark.yarn.stagingDir": f"file://{folder / 'staging'}",
        }
        self._manager = start(conf, "resourcemanager.ResourceManager", folder / "resourcemanager.log")
        self._manager.wait_for_port(port)

    def node(self, megabytes: int = 4096, host: str = LOOPBACK, **env: str) -> Node:
        """One more node. ``env``: of its containers."""
        made = Node(self, self.folder / f"node-{next(self._numbers)}", megabytes, host, env)
        self.nodes.append(made)
        return made

    def executors(self) -> list[int]:
        """The processes of its executors."""
        return [pid for node in self.nodes for pid in node.executors()]

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
        self._manager.stop()


class Node:
    """A NodeManager and its containers."""

    def __init__(self, yarn: Yarn, folder: Path, megabytes: int, host: str, env: Mapping[str, str]) -> None:
        self._local = folder / "local"
        own = {
            **{f"yarn.nodemanager.{name}": f"{host}:{free_port()}" for name in _ADDRESSES},
            "yarn.nodemanager.hostname": host,
            "yarn.nodemanager.local-dirs": str(self._local),
            "yarn.nodemanager.log-dirs": str(folder / "containers"),
            "yarn.nodemanager.resource.memory-mb": str(megabytes),
            "yarn.nodemanager.resource.cpu-vcores": "4",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            "yarn.nodemanager.admin-env": ",".join(f"{name}={value}" for name, value in env.items()),
        }
        configure(folder / "conf", {**yarn.settings, **own}, folder)
        self._daemon = start(folder / "conf", "nodemanager.NodeManager", folder / "nodemanager.log")

    def executors(self) -> list[int]:
        """The processes of its executors."""
        return executors_in(self._local)

    def lose(self) -> None:
        """The node is gone for good: its daemon is killed together with its executors and application masters."""
        self._daemon.kill()
        for container in [*self.executors(), *processes_in(self._local, "yarn.ExecutorLauncher")]:
            os.kill(container, signal.SIGKILL)

    def stop(self) -> None:
        self._daemon.stop()
        shutil.rmtree(self._local, ignore_errors=True)  # environments that were shipped are large


def configure(conf: Path, settings: Mapping[str, str], folder: Path) -> None:
    """Write the settings of a daemon, or of a driver."""
    conf.mkdir(parents=True)
    _write(conf / "core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(folder / "tmp")})
    _write(conf / "yarn-site.xml", settings)


def start(conf: Path, main: str, log: Path) -> Process:
    """A daemon of YARN."""
    found = {path.name.removesuffix(".jar"): path for path in _JARS.glob("*.jar")}
    (version,) = (name.rpartition("-")[2] for name in found if name.startswith("hadoop-client-api-"))
    minicluster = Artifact("org.apache.hadoop", "hadoop-client-minicluster", version, transitive=False)
    server = jars("yarn", [minicluster, *_LEFT_OUT])
    command = [java(), "-Xmx512m", *LOCAL_JAVA.split(), "-cp", f"{conf}:{server}/*:{_JARS}/*", f"{_SERVER}{main}"]
    return Process(command, log, {"HADOOP_CONF_DIR": str(conf), "JAVA_HOME": _java_home()})


def _java_home() -> str:
    return str(Path(shutil.which(java()) or java()).resolve().parents[1])


def _write(path: Path, settings: Mapping[str, str]) -> None:
    lines = "".join(
        f"<property><name>{key}</name><value>{value}</value></property>\n" for key, value in settings.items()
    )
    path.write_text(f"<configuration>\n{lines}</configuration>\n")
