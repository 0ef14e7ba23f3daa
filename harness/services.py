"""Kafka and the services around it on this machine, for the how-to guides: ``make services``.

They listen on loopback, and their data is gone when they end.
"""

from __future__ import annotations

import argparse
import signal
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import boto3
import pyspark

from calving.errors import ConfigError
from calving.services.kafka import kafka
from calving.services.process import LOOPBACK, Process, free_port, interruptible
from calving.services.rest_catalog import RestCatalog
from harness.registry import serving
from harness.servers import SeaweedFs, clients

ADDRESSES = {
    "kafka": {"localhost:9092": "Kafka"},
    "s3": {"http://localhost:8333": "S3", "http://localhost:8181": "its REST catalog"},
    "registry": {"http://localhost:8081": "schema registry"},
    "spark": {"spark://localhost:7077": "Spark's master"},
}
"""What the guides call each service, and what it is."""
BUCKET = "lake"


@contextmanager
def services(names: Iterable[str], folder: Path, *, fixed: bool = True) -> Iterator[dict[str, str]]:
    """The addresses of running services, by those of ``ADDRESSES``. ``fixed``: they are the same, otherwise each has a
    free port.
    """
    with ExitStack() as stack:
        actual: dict[str, str] = {}
        for name in names:
            ports = [_of(address) if fixed else free_port() for address in ADDRESSES[name]]
            actual |= zip(ADDRESSES[name], _STARTS[name](stack, folder / name, ports), strict=True)
        yield actual


def _of(address: str) -> int:
    """The port of an address.

    :raises ConfigError: another process has it.
    """
    port = int(address.rpartition(":")[2])
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            raise ConfigError(
                f"port {port} is taken: end the process that listens there, or leave its service out"
            ) from None
    return port


def _kafka(stack: ExitStack, folder: Path, ports: list[int]) -> list[str]:
    return [stack.enter_context(kafka(folder, *ports))]


def _s3(stack: ExitStack, folder: Path, ports: list[int]) -> list[str]:
    store = SeaweedFs(folder / "store", port=ports[0])
    stack.callback(store.stop)
    boto3.client("s3", **clients(store.s3["s3.endpoint"])).create_bucket(Bucket=BUCKET)
    catalog = RestCatalog(folder / "catalog", f"s3://{BUCKET}/warehouse", store.s3, ports[1])
    stack.callback(catalog.stop)
    return [store.s3["s3.endpoint"], catalog.uri]


def _registry(stack: ExitStack, folder: Path, ports: list[int]) -> list[str]:
    return [stack.enter_context(serving(*ports)).url]


def _spark(stack: ExitStack, folder: Path, ports: list[int]) -> list[str]:
    """A standalone cluster with one worker of two cores."""
    folder.mkdir(parents=True)
    (port,) = ports
    home = Path(pyspark.__file__).parent
    launch, env = [str(home / "bin" / "spark-class")], {"SPARK_HOME": str(home)}
    own = ["--host", LOOPBACK, "--webui-port", "0"]
    master = [*launch, "org.apache.spark.deploy.master.Master", *own, "--port", str(port)]
    worker = [*launch, "org.apache.spark.deploy.worker.Worker", *own, "--cores", "2", "--memory", "2g"]
    url = f"spark://{LOOPBACK}:{port}"
    first = Process(master, folder / "master.log", env)
    stack.callback(first.stop)
    first.wait_for_port(port)
    stack.callback(Process([*worker, "--work-dir", str(folder / "work"), url], folder / "worker.log", env).stop)
    return [url]


_STARTS: dict[str, Callable[[ExitStack, Path, list[int]], list[str]]] = {
    "kafka": _kafka,
    "s3": _s3,
    "registry": _registry,
    "spark": _spark,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="services for the how-to guides, until Ctrl-C")
    parser.add_argument("names", nargs="+", choices=ADDRESSES)
    names = parser.parse_args().names
    with tempfile.TemporaryDirectory(prefix="calving-services-") as folder, interruptible():
        try:
            with services(names, Path(folder)):
                for name in names:
                    for address, what in ADDRESSES[name].items():
                        print(f"{what}: {address}")
                print("Ctrl-C ends them, and deletes their data.", flush=True)
                signal.pause()
        except KeyboardInterrupt:
            print("ended")
        except ConfigError as error:
            parser.exit(1, f"error: {error}\n")


if __name__ == "__main__":
    main()
