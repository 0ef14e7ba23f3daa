"""Settings: one declaration per key, read from TOML, Kafka Connect JSON or .properties.

    >>> from calving.settings.files import flat
    >>> from calving.settings.load import parse
    >>> sink = parse(flat({
    ...     "name": "orders", "topics": "orders", "iceberg.tables": "db.orders",
    ...     "kafka": {"bootstrap.servers": "localhost:9092"},
    ...     "iceberg.control.commit.interval-ms": 5000,
    ... }))
    >>> sink.keys.tables, sink.kafka["bootstrap.servers"]
    (('db.orders',), 'localhost:9092')

An unknown key, or a wrong value, is a ``ConfigError`` that names the key, and the one that was probably meant. To add a
key, declare it in ``keys``: the reference in the manual is made from that.
"""
