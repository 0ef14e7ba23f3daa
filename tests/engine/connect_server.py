"""A server of Spark Connect in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyspark

from calving.services.process import LOOPBACK, Process, free_port


class ConnectServer:
    """``properties``: what a client needs. Its tasks run in ``python``, on the Spark that ``settings`` name."""

    def __init__(self, folder: Path, python: str, settings: Mapping[str, str]) -> None:
        home, port = Path(pyspark.__file__).parent, free_port()
        own = {
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(port),
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.ui.enabled": "false",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
        command = [str(home / "bin" / "spark-submit")]
        command += [part for key, value in {**own, **settings}.items() for part in ("--conf", f"{key}={value}")]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        # The server knows nothing of this process's modules: its Python has what is installed there.
        env = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": python, "PYTHONPATH": "", "SPARK_LOCAL_IP": LOOPBACK}
        self._process = Process(command, folder / "server.log", env)
        self._process.wait_for_port(port, 180)
        self.properties = {"spark.remote": f"sc://{LOOPBACK}:{port}"}

    def close(self) -> None:
        self._process.stop()
