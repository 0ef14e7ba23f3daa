"""What schema changes say of tables. The events are those of connectors of Debezium for MySQL (2.4), SQL Server (2.6)
and Oracle, with the fields that matter.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from calving.transforms.ddl import renamed_columns
from calving.transforms.table_changes import TableChange, table_changes

MYSQL = """{
  "databaseName": "mydb", "ddl": "ALTER TABLE test add column v2 varchar(32)", "schemaName": null,
  "source": {"connector": "mysql", "db": "mydb", "file": "binlog.000065", "name": "RW_CDC_0", "pos": 234,
    "snapshot": "false", "table": "test", "ts_ms": 1718354727000, "version": "2.4.2.Final"},
  "tableChanges": [{"id": "\\"mydb\\".\\"test\\"", "type": "ALTER", "table": {"comment": null, "columns": [
    {"jdbcType": 4, "length": null, "name": "id", "optional": false, "typeExpression": "INT", "typeName": "INT"},
    {"jdbcType": 2014, "length": null, "name": "v1", "typeExpression": "TIMESTAMP", "typeName": "TIMESTAMP"},
    {"charsetName": "utf8mb4", "jdbcType": 12, "length": 32, "name": "v2", "typeName": "VARCHAR"}
  ]}}]}"""
SQL_SERVER = """{
  "source": {"version": "2.6.2.Final", "connector": "sqlserver", "name": "server1", "ts_ms": 1728337635149,
    "snapshot": "true", "db": "testDB", "schema": "dbo", "table": "customers", "change_lsn": null},
  "ts_ms": 1728337635150, "databaseName": "testDB", "schemaName": "dbo", "ddl": null,
  "tableChanges": [{"type": "CREATE", "id": "\\"testDB\\".\\"dbo\\".\\"customers\\"", "table": {"columns": [
    {"name": "id", "jdbcType": 4, "typeName": "int identity", "length": 10, "scale": 0, "autoIncremented": true},
    {"name": "first_name", "jdbcType": 12, "typeName": "varchar", "length": 255, "scale": null},
    {"name": "is_new", "jdbcType": -7, "typeName": "bit", "length": 1, "scale": null}
  ]}}]}"""
ORACLE = """{
  "source": {"version": "2.7.0.Final", "connector": "oracle", "name": "server1", "ts_ms": 1588252618953,
    "snapshot": "false", "db": "ORCLPDB1", "schema": "DEBEZIUM", "table": "CUSTOMERS", "scn": "1513734"},
  "databaseName": "ORCLPDB1", "schemaName": "DEBEZIUM",
  "ddl": "ALTER TABLE \\"DEBEZIUM\\".\\"CUSTOMERS\\" RENAME COLUMN last_name TO family_name",
  "tableChanges": [{"type": "ALTER", "id": "\\"ORCLPDB1\\".\\"DEBEZIUM\\".\\"CUSTOMERS\\"", "table": {"columns": [
    {"name": "ID", "jdbcType": 2, "typeName": "NUMBER", "length": 9, "scale": 0},
    {"name": "FAMILY_NAME", "jdbcType": 12, "typeName": "VARCHAR2", "length": 255, "scale": null}
  ]}}]}"""
UNKNOWN, TEXT = pa.null(), pa.string()


@pytest.mark.parametrize(
    ("event", "change", "topics"),
    [
        (
            MYSQL,
            TableChange(("mydb", "test"), {"id": pa.int32(), "v1": UNKNOWN, "v2": TEXT}),
            ["RW_CDC_0.mydb.test"],
        ),
        (
            SQL_SERVER,
            TableChange(("testDB", "dbo", "customers"), {"id": pa.int32(), "first_name": TEXT, "is_new": pa.bool_()}),
            ["server1.testDB.dbo.customers", "server1.dbo.customers"],
        ),
        (
            ORACLE,
            TableChange(
                ("ORCLPDB1", "DEBEZIUM", "CUSTOMERS"),
                {"ID": UNKNOWN, "FAMILY_NAME": TEXT},
                (("last_name", "FAMILY_NAME"),),
            ),
            ["server1.ORCLPDB1.DEBEZIUM.CUSTOMERS", "server1.DEBEZIUM.CUSTOMERS"],
        ),
    ],
    ids=["MySQL", "SQL Server", "Oracle"],
)
def test_a_schema_change_names_its_table_and_all_columns(event: str, change: TableChange, topics: list[str]) -> None:
    told = json.loads(event)
    assert [*table_changes(told)] == [change]
    assert change.topics(told["source"]["name"]) == topics


@pytest.mark.parametrize(
    ("statement", "renames"),
    [
        ("ALTER TABLE t RENAME COLUMN a TO b", [("a", "b")]),
        ("alter table `d`.`t` rename column `a` to `b c`, change `d``e` f varchar(3)", [("a", "b c"), ("d`e", "f")]),
        ("ALTER TABLE t ADD x ENUM('a,b', 'rename column c to d'), CHANGE COLUMN y z INT FIRST", [("y", "z")]),
        ("ALTER ONLINE TABLE IF EXISTS t CHANGE COLUMN IF EXISTS a b INT", [("a", "b")]),
        ("ALTER TABLE t /* RENAME COLUMN x TO y, */ RENAME COLUMN a TO b; ", [("a", "b")]),
        ('ALTER TABLE "S"."T" RENAME COLUMN "a" TO "B"', [("a", "B")]),
        ("ALTER TABLE t CHANGE a a BIGINT, RENAME INDEX i TO j, RENAME TO u", []),
        ("ALTER TABLE t COMMENT = 'x, CHANGE a b INT'", []),
        ("ALTER TABLE t RENAME COLUMN a TO b; ALTER TABLE u RENAME COLUMN c TO d", []),
        ("CREATE TABLE t (a INT)", []),
        ("ALTER TABLE", []),
        ("", []),
    ],
)
def test_a_statement_says_which_columns_it_renames(statement: str, renames: list[tuple[str, str]]) -> None:
    assert renamed_columns(statement) == renames


def told(ddl: str, *columns: str, changes: int = 1) -> list[tuple[tuple[str, str], ...]]:
    """The renames of an event."""
    table = {"columns": [{"name": name, "typeName": "INT"} for name in columns]}
    change: dict[str, Any] = {"type": "ALTER", "id": '"d"."t"', "table": table}
    return [each.renamed for each in table_changes({"ddl": ddl, "tableChanges": [change] * changes})]


def test_a_rename_counts_if_the_table_bears_it_out() -> None:
    assert told("ALTER TABLE t CHANGE a b INT", "B") == [(("a", "B"),)]
    assert told("ALTER TABLE t CHANGE a b INT", "a", "b") == [()]
    assert told("ALTER TABLE t CHANGE a b INT", "c") == [()]
    assert told("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a", "a", "b") == [()]
    assert told("ALTER TABLE t CHANGE a b INT", "b", changes=2) == [(), ()]


@pytest.mark.parametrize(
    "changes",
    [
        None,
        "text",
        [None],
        [{"type": "DROP", "id": '"d"."t"', "table": None}],
        [{"type": "ALTER", "id": None, "table": {"columns": [{"name": "a", "typeName": "INT"}]}}],
        [{"type": "ALTER", "id": '"t"', "table": {"columns": [{"name": "a", "typeName": "INT"}]}}],
        [{"type": "ALTER", "id": '"d"."t"', "table": {"columns": [{"name": None}, 5]}}],
        [{"type": "ALTER", "id": '"d"."t"', "table": {"columns": [{"name": "\ud800", "typeName": "INT"}]}}],
    ],
)
def test_an_event_without_a_table_or_columns_tells_nothing(changes: object) -> None:
    assert [*table_changes({"ddl": "DROP TABLE t", "tableChanges": changes})] == []


@pytest.mark.parametrize(
    ("name", "length", "kind"),
    [
        ("BIGINT", None, pa.int64()),
        ("INT UNSIGNED ZEROFILL", 10, pa.int64()),
        ("nvarchar", 50, TEXT),
        ("VARCHAR2(50 CHAR)", 50, TEXT),
        ("DOUBLE PRECISION", None, pa.float64()),
        ("BIT", 8, UNKNOWN),
        ("TINYINT", 1, UNKNOWN),
        ("TINYINT", None, pa.int32()),
        *(
            (name, None, UNKNOWN)
            for name in ("BIGINT UNSIGNED", "DECIMAL", "DATE", "FLOAT", "NUMBER", "BLOB", "", None)
        ),
    ],
)
def test_a_type_is_known_where_no_setting_of_the_connector_changes_it(
    name: str | None, length: int | None, kind: pa.DataType
) -> None:
    columns = [{"name": "a", "typeName": name, "length": length}]
    (change,) = table_changes({"tableChanges": [{"type": "ALTER", "id": '"d"."t"', "table": {"columns": columns}}]})
    assert change.columns == {"a": kind}
