"""Checks of Spark's properties: Spark ignores names that it does not know, and says late, in Java, what is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping

from calving.errors import ConfigError
from calving.wording import meant

_PORT = r"[\w.\[\]:-]+:\d{1,5}"
_MASTER = re.compile(
    rf"local(\[(\*|[1-9]\d*)(\s*,\s*\d+)?\])?|local-cluster\[.+\]|yarn|spark://{_PORT}(,{_PORT})*|k8s://.+",
    re.ASCII | re.IGNORECASE,
)
_REMOTE = re.compile(r"sc://([\w.-]+|\[[\w:]+\])(:(?P<port>\d{1,5}))?(/.*)?|local(\[.+\])?", re.ASCII)
_PACKAGE = re.compile(r"[^:\s]+:[^:\s]+:[^:\s]+")
_MEMORY = re.compile(r"\d+([kmgtp]b?|b)?", re.ASCII | re.IGNORECASE)
_COUNT = re.compile(r"[1-9]\d*", re.ASCII)
_MEMORIES = (
    "driver.memory",
    "driver.memoryOverhead",
    "executor.memory",
    "executor.memoryOverhead",
    "executor.pyspark.memory",
)
_COUNTS = ("calving.slots", "cores.max", "driver.cores", "executor.cores", "executor.instances", "task.cpus")
_NAMES = (
    *(f"spark.{name}" for name in (*_MEMORIES, *_COUNTS)),
    *(
        "spark.master",
        "spark.remote",
        "spark.app.name",
        "spark.log.level",
        "spark.submit.deployMode",
        "spark.local.dir",
    ),
    *("spark.default.parallelism", "spark.dynamicAllocation.enabled", "spark.dynamicAllocation.minExecutors"),
    *("spark.dynamicAllocation.maxExecutors", "spark.dynamicAllocation.initialExecutors", "spark.eventLog.enabled"),
    *(
        "spark.eventLog.dir",
        "spark.driver.host",
        "spark.driver.port",
        "spark.driver.bindAddress",
        "spark.driver.maxResultSize",
    ),
    *("spark.driver.extraJavaOptions", "spark.driver.extraClassPath", "spark.executor.extraJavaOptions"),
    *("spark.executor.extraClassPath", "spark.executor.memoryOverheadFactor", "spark.driver.memoryOverheadFactor"),
    *("spark.pyspark.python", "spark.pyspark.driver.python", "spark.python.worker.memory", "spark.python.worker.reuse"),
    *("spark.jars", "spark.jars.packages", "spark.files", "spark.archives", "spark.submit.pyFiles"),
    *("spark.network.timeout", "spark.network.crypto.enabled", "spark.authenticate", "spark.authenticate.secret"),
    *(
        "spark.rpc.message.maxSize",
        "spark.serializer",
        "spark.scheduler.mode",
        "spark.speculation",
        "spark.task.maxFailures",
    ),
    *(
        "spark.ui.enabled",
        "spark.ui.port",
        "spark.ui.showConsoleProgress",
        "spark.redaction.regex",
        "spark.io.encryption.enabled",
    ),
    *("spark.yarn.queue", "spark.yarn.archive", "spark.kerberos.principal", "spark.kerberos.keytab"),
    *("spark.kubernetes.namespace", "spark.kubernetes.container.image", "spark.kubernetes.driver.pod.name"),
    *("spark.kubernetes.authenticate.driver.serviceAccountName", "spark.kubernetes.executor.podTemplateFile"),
    *(
        "spark.memory.fraction",
        "spark.memory.offHeap.enabled",
        "spark.memory.offHeap.size",
        "spark.sql.shuffle.partitions",
    ),
)
"""Names that users write. Others are Spark's, too, unless they look like one of these."""


def check_spark(spark: Mapping[str, str]) -> None:
    """:raises ConfigError: a property of Spark is misspelt, or has a value that Spark does not take."""
    for key in spark.keys() - {*_NAMES}:
        if key.startswith("spark.calving."):
            raise ConfigError(f"unknown key '{key}'; did you mean 'spark.calving.slots'?")
        if hint := meant(key, _NAMES, 0.92):
            raise ConfigError(f"unknown key '{key}'{hint}")
    for key, given in spark.items():
        if key.endswith(".enabled") and given.lower() not in ("true", "false"):
            raise ConfigError(f"{key}: must be true or false (given: '{given}')")
    for package in filter(None, map(str.strip, spark.get("spark.jars.packages", "").split(","))):
        if not _PACKAGE.fullmatch(package):
            raise ConfigError(f"spark.jars.packages: '{package}' is no package: write group:artifact:version")
    _check_place(spark)
    for name in _MEMORIES:
        if not _MEMORY.fullmatch(size := spark.get(f"spark.{name}", "0")):
            raise ConfigError(f"spark.{name}: '{size}' is no size of memory, such as 2g or 512m")
    for name in _COUNTS:
        if not _COUNT.fullmatch(count := spark.get(f"spark.{name}", "1")):
            raise ConfigError(f"spark.{name}: must be a whole number of at least 1 (given: '{count}')")


def _check_place(spark: Mapping[str, str]) -> None:
    master, remote = spark.get("spark.master"), spark.get("spark.remote")
    if (mode := spark.get("spark.submit.deployMode", "client")) != "client":
        raise ConfigError(
            f"spark.submit.deployMode = {mode}: `calving run` is the driver: leave it out, or run `spark-submit"
            f" --deploy-mode {mode}`"
        )
    if master is not None and remote is not None:
        raise ConfigError("spark.master and spark.remote exclude each other: spark.remote is Spark Connect's server")
    if master is not None and not _MASTER.fullmatch(master):
        raise ConfigError(
            f"spark.master: '{master}' is none of local, local[4], local[*], spark://host:port, k8s://..., yarn"
        )
    if remote is not None and not ((match := _REMOTE.fullmatch(remote)) and int(match["port"] or 0) < 65536):
        raise ConfigError(f"spark.remote: '{remote}' is no server of Spark Connect, such as sc://host:15002")
