"""A server of Spark Connect in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyspark

from calving.services.process import LOOPBACK, Process, free_port
from harness.jvm import spark


class ConnectServer:
    """``properties``: what a client needs. Its tasks run in ``python``, on the Spark that ``settings`` name. ``env``: of
    its process.
    """

    def __init__(self, folder: Path, python: str, settings: Mapping[str, str], **env: str) -> None:
        home, self._port = Path(pyspark.__file__).parent, free_port()
        own = {
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            **spark(),
            "spark.ui.enabled": "false",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
        self._command = [str(home / "bin" / "spark-submit")]
        self._command += [part for key, value in {**own, **settings}.items() for part in ("--conf", f"{key}={value}")]
        self._command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        # The server knows nothing of this process's modules: its Python has what is installed there.
        self._env = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": python, "PYTHONPATH": "", "SPARK_LOCAL_IP": LOOPBACK}
        self._env |= env
        self._log = folder / "server.log"
        self.properties = {"spark.remote": f"sc://{LOOPBACK}:{self._port}"}
        self.start()

    def start(self) -> None:
        self._process = Process(self._command, self._log, self._env)
        self._process.wait_for_port(self._port)

    def close(self) -> None:
        self._process.stop()
