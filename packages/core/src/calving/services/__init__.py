"""Real services for the demo and the tests: containers if Docker answers, otherwise local processes on loopback.

A service is a context manager that gives an address, and ends the service that it has started::

    with kafka(folder) as servers:
        Producer({"bootstrap.servers": servers}).produce("orders", b"...")

There are Kafka, Redis, ZooKeeper and Apache's REST catalog. ``CALVING_SERVICES=local`` takes processes, even where
Docker is installed.
"""
