"""The metastore of the tests of tables serves here too."""

from tests.iceberg.conftest import hive_keys

__all__ = ["hive_keys"]
