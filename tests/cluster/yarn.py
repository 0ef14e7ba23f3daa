"""YARN on loopback: a ResourceManager and a NodeManager, of the version of Hadoop that PySpark comes with."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pyspark

from calving.host import java
from calving.services.maven import Artifact, jars
from calving.services.process import LOOPBACK, Process, free_port
from tests.engine.standalone import executors_in

_JARS = Path(pyspark.__file__).parent / "jars"
_LEFT_OUT = [Artifact("org.bouncycastle", name, "1.78.1") for name in ("bcprov-jdk18on", "bcpkix-jdk18on")]
"""What its jar does not have."""
_SERVER = "org.apache.hadoop.yarn.server."


class Yarn:
    """``env``: of a driver; ``properties``: what an application needs to run here."""

    def __init__(self, folder: Path) -> None:
        self._folder, conf = folder, folder / "conf"
        conf.mkdir(parents=True)
        port = free_port()
        ports = {name: free_port() for name in ("scheduler", "resource-tracker", "admin", "webapp")}
        _write(conf / "core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(folder / "tmp")})
        _write(
            conf / "yarn-site.xml",
            {
                "yarn.resourcemanager.hostname": LOOPBACK,
                "yarn.resourcemanager.address": f"{LOOPBACK}:{port}",
                **{f"yarn.resourcemanager.{name}.address": f"{LOOPBACK}:{p}" for name, p in ports.items()},
                "yarn.resourcemanager.scheduler.class": f"{_SERVER}resourcemanager.scheduler.fifo.FifoScheduler",
                "yarn.scheduler.minimum-allocation-mb": "128",
                "yarn.nodemanager.hostname": LOOPBACK,
                "yarn.nodemanager.address": f"{LOOPBACK}:{free_port()}",
                "yarn.nodemanager.localizer.address": f"{LOOPBACK}:{free_port()}",
                "yarn.nodemanager.webapp.address": f"{LOOPBACK}:{free_port()}",
                "yarn.nodemanager.local-dirs": str(folder / "local"),
                "yarn.nodemanager.log-dirs": str(folder / "containers"),
                "yarn.nodemanager.resource.memory-mb": "4096",
                "yarn.nodemanager.resource.cpu-vcores": "4",
                "yarn.nodemanager.vmem-check-enabled": "false",
                "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            },
        )
        java_home = Path(shutil.which(java()) or java()).resolve().parents[1]
        self.env = {"HADOOP_CONF_DIR": str(conf), "JAVA_HOME": str(java_home), "SPARK_LOCAL_IP": LOOPBACK}
        self.properties = {
            "spark.master": "yarn",
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.executor.memory": "512m",
            "spark.executor.instances": "1",
            "spark.ui.showConsoleProgress": "false",
            "spark.yarn.jars": f"local:{_JARS}/*",  # else Spark's own are copied for each application
            "spark.yarn.stagingDir": f"file://{folder / 'staging'}",
        }
        self._processes = list[Process]()
        self._start("resourcemanager.ResourceManager", port)
        self._start("nodemanager.NodeManager", None)

    def _start(self, main: str, port: int | None) -> None:
        found = {path.name.removesuffix(".jar"): path for path in _JARS.glob("*.jar")}
        (version,) = (name.rpartition("-")[2] for name in found if name.startswith("hadoop-client-api-"))
        minicluster = Artifact("org.apache.hadoop", "hadoop-client-minicluster", version, transitive=False)
        server = jars("yarn", [minicluster, *_LEFT_OUT])
        classpath = f"{self._folder / 'conf'}:{server}/*:{_JARS}/*"
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        log = self._folder / f"{main.partition('.')[0]}.log"
        made = Process([java(), *options, "-cp", classpath, f"{_SERVER}{main}"], log, self.env)
        self._processes.append(made)
        if port is not None:
            made.wait_for_port(port, 90)

    def executors(self) -> list[int]:
        """The processes of its executors."""
        return executors_in(self._folder / "local")

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.stop()


def _write(path: Path, settings: Mapping[str, str]) -> None:
    lines = "".join(
        f"<property><name>{key}</name><value>{value}</value></property>\n" for key, value in settings.items()
    )
    path.write_text(f"<configuration>\n{lines}</configuration>\n")
