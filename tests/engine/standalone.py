"""A standalone cluster of Spark on loopback, whose own Python knows nothing of calving."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark

from calving.services.process import LOOPBACK, Process, free_port
from harness.jvm import java_options, spark
from harness.waiting import wait_for

_HOME = Path(pyspark.__file__).parent
_LAUNCH = [str(_HOME / "bin" / "spark-class")]
_CLASS = "org.apache.spark.deploy."


class Cluster:
    """A master. ``properties``: what an application needs to run there."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        venv.create(folder / "bare", with_pip=False)
        self.folder, self.workers, self._numbers = folder, list[Worker](), itertools.count()
        self.bare_python = str(folder / "bare" / "bin" / "python")
        """An interpreter that has nothing installed: what the workers' PATH leads to."""
        port = free_port()
        self.url = f"spark://{LOOPBACK}:{port}"
        main = [f"{_CLASS}master.Master", "--host", LOOPBACK, "--webui-port", "0", "--port", str(port)]
        self._command, self._port = [*_LAUNCH, *main], port
        self.start()
        self.properties = {
            "spark.master": self.url,
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.executor.memory": "512m",
            **spark(),
            "spark.ui.showConsoleProgress": "false",
        }

    def start(self) -> None:
        """The master, which may have been killed. It starts without state."""
        log = self.folder / f"master-{next(self._numbers)}.log"
        self._master = Process(self._command, log, self.env())
        self._master.wait_for_port(self._port)

    def lose(self) -> None:
        """The master is killed."""
        self._master.kill()

    def end_applications(self) -> None:
        """As an operator does on the master's page."""
        (page,) = re.findall(r"MasterWebUI .*started at (http://\S+)", self._master.log.read_text())
        with urllib.request.urlopen(f"{page}/json/") as answer:
            active = json.load(answer)["activeapps"]
        assert active
        for app in active:
            with urllib.request.urlopen(page) as answer:
                tokens = re.findall(r'name="(csrfToken)" value="(\w+)"', answer.read().decode())  # of Spark 4.3
            form = urllib.parse.urlencode({"id": app["id"], "terminate": "true", **dict(tokens)})
            urllib.request.urlopen(f"{page}/app/kill/", form.encode()).close()

    def env(self) -> dict[str, str]:
        path = f"{self.folder / 'bare' / 'bin'}:{os.environ['PATH']}"
        daemons = {"SPARK_HOME": str(_HOME), "SPARK_DAEMON_JAVA_OPTS": java_options(), "SPARK_LOCAL_IP": LOOPBACK}
        return {**daemons, "PATH": path, "PYTHONPATH": ""}

    def worker(self, cores: int, host: str = LOOPBACK, **env: str) -> Worker:
        """One more node. ``env``: of its executors."""
        made = Worker(self, self.folder / f"worker-{next(self._numbers)}", cores, host, env)
        self.workers.append(made)
        return made

    def executors(self) -> list[int]:
        return [pid for worker in self.workers for pid in worker.executors()]

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()
        self._master.stop()


@contextlib.contextmanager
def with_one_node(folder: Path) -> Iterator[Cluster]:
    """A cluster with a worker of two cores."""
    cluster = Cluster(folder)
    try:
        cluster.worker(2)
        yield cluster
    finally:
        cluster.stop()


class Worker:
    """A node: the worker's daemon and its executors."""

    def __init__(self, cluster: Cluster, folder: Path, cores: int, host: str, env: dict[str, str]) -> None:
        self._work = folder / "work"
        folder.mkdir()
        main = [f"{_CLASS}worker.Worker", "--host", host, "--webui-port", "0", "--work-dir", str(self._work)]
        size = ["--cores", str(cores), "--memory", f"{cores}g"]
        own = {**cluster.env(), "SPARK_LOCAL_IP": host, **env}
        self._daemon = Process([*_LAUNCH, *main, *size, cluster.url], folder / "worker.log", own)

    def executors(self) -> list[int]:
        """The processes of its executors."""
        return executors_in(self._work)

    def lose(self) -> None:
        """The node is gone for good: its daemon is killed together with its executors."""
        self._daemon.kill()

    def stop(self) -> None:
        self._daemon.stop()
        shutil.rmtree(self._work, ignore_errors=True)  # environments that were shipped are large


def executors_in(folder: Path) -> list[int]:
    """The processes of executors that run below ``folder``."""
    return processes_in(folder, "YarnCoarse|executor.Coarse")


def processes_in(folder: Path, pattern: str) -> list[int]:
    """The processes whose command matches ``pattern`` and that run below ``folder``."""
    found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, check=False)
    return [pid for pid in map(int, found.stdout.split()) if folder in _folder_of(pid).parents]


def _folder_of(pid: int) -> Path:
    """Where the process runs; the root if it has just ended."""
    try:
        return Path(f"/proc/{pid}/cwd").resolve()
    except OSError:
        return Path("/")


def eventually(done: Callable[[], object], seconds: float = 300) -> None:
    """Wait: a cluster takes its time."""
    wait_for(done, seconds)
