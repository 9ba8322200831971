"""Settings and permissions under which changes would be lost, told before anything starts."""

from __future__ import annotations

from collections.abc import Iterator

import pymysql

from ottla.connect.interface import Finding
from ottla.connect.mysql.connection import SqlConnection

_WANTED = (
    ("log_bin", "ON", "set log_bin in the server's configuration, and start it again"),
    ("binlog_format", "ROW", "SET GLOBAL binlog_format = 'ROW', and in the server's configuration"),
    ("binlog_row_image", "FULL", "SET GLOBAL binlog_row_image = 'FULL', and in the server's configuration"),
    ("binlog_row_metadata", "FULL", "SET GLOBAL binlog_row_metadata = 'FULL', and in the server's configuration"),
)
_UNWANTED = (
    ("binlog_transaction_compression", "ON", "SET GLOBAL binlog_transaction_compression = OFF"),
    ("binlog_row_value_options", "PARTIAL_JSON", "SET GLOBAL binlog_row_value_options = ''"),
)


def check_settings(sql: SqlConnection) -> Iterator[Finding]:
    for name, wanted, advice in _WANTED:
        value = sql.variable(name)
        if value is None or value.upper() != wanted:
            shown = "not known to this server" if value is None else value
            yield Finding(f"{name} is {shown}, and rows would be lost: {advice}", is_problem=True)
    for name, unwanted, advice in _UNWANTED:
        if (sql.variable(name) or "").upper() == unwanted:
            yield Finding(f"{name} is {unwanted}, and rows would be lost: {advice}", is_problem=True)
    for name in ("log_slave_updates", "log_replica_updates"):
        if (sql.variable(name) or "").upper() == "OFF" and sql.is_replica():
            yield Finding(
                f"the server is a replica, and {name} is OFF: what it copies from its own server is not in its binlog; "
                f"set {name} in the server's configuration and start it again, or read from the other server",
                is_problem=True,
            )


def check_rights(sql: SqlConnection) -> Iterator[Finding]:
    try:
        sql.end_of_binlog()
        sql.binlogs()
        may_read = sql.may_follow()
    except pymysql.Error:
        may_read = False
    if not may_read:
        yield Finding(
            "the user may not look at the binlog: GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* (MySQL: REPLICATION "
            "CLIENT), and SELECT on the tables",
            is_problem=True,
        )
