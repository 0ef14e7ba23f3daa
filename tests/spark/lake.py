"""Catalogs, and what tables hold, as pyiceberg reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table


@dataclass(frozen=True)
class SparkLake:
    """A warehouse in a folder, with a catalog of SQL."""

    folder: Path

    @staticmethod
    def create(folder: Path) -> SparkLake:
        folder.mkdir(parents=True, exist_ok=True)
        lake = SparkLake(folder)
        lake.catalog.create_namespace_if_not_exists("lake")
        return lake

    @property
    def options(self) -> dict[str, str]:
        """The options of a write."""
        return {
            "catalog.type": "sql",
            "catalog.uri": f"sqlite:///{self.folder}/catalog.db?timeout=30",
            "catalog.warehouse": f"file://{self.folder}",
            "auto-create-enabled": "true",
        }

    @property
    def to_read(self) -> dict[str, str]:
        """The options of a read."""
        return {name: text for name, text in self.options.items() if name.startswith("catalog.")}

    @property
    def faulty(self) -> dict[str, str]:
        """The options of a write through a catalog that fails where ``faulty.plan`` says so."""
        without_type = {name: text for name, text in self.options.items() if name != "catalog.type"}
        return {**without_type, "catalog.py-catalog-impl": "tests.spark.faulty.FaultyCatalog"}

    @property
    def catalog(self) -> Catalog:
        uri = self.options["catalog.uri"]
        return load_catalog("iceberg", type="sql", uri=uri, warehouse=f"file://{self.folder}")

    def table(self, name: str) -> Table:
        return self.catalog.load_table(name)

    def values(self, name: str, column: str = "value") -> list[int]:
        """The sorted values of a column; none if there is no such table."""
        if not self.catalog.table_exists(name):
            return []
        return sorted(self.table(name).scan().to_arrow()[column].to_pylist())

    def orphans(self, name: str) -> set[str]:
        """The data files that the table does not name."""
        table = self.table(name)
        folder = Path(table.location().removeprefix("file://"), "data")
        named = {Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()}
        return {path.name for path in folder.rglob("*") if path.is_file()} - {path.name for path in named}
