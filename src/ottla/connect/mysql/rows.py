"""All rows of a table as it is now, each in the form that its change events have: what tables are checked against."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import pymysql

from ottla.connect.interface import ConnectorRefused
from ottla.connect.mysql.catalog import Catalog, TableChoice
from ottla.connect.mysql.connection import Address, SqlConnection
from ottla.connect.mysql.snapshot import read_chunk

FORM = "mysql://USER:PASSWORD@HOST:PORT/DATABASE.TABLE"
ALL_ROWS = 1 << 60
DEFAULT_PORT = 3306


def read_rows(url: str) -> tuple[str, Iterator[dict[str, Any]]]:
    """The name of the table, and its rows as of one moment. ConnectorRefused says what is wrong."""
    address, name = _read_url(url)
    try:
        sql = SqlConnection(address)
        try:
            table = Catalog(sql, TableChoice([name], []), {}).describe(name)
            if table is None:
                raise ConnectorRefused(f"{address}: there is no table {name}")
            chunk = read_chunk(sql, table, None, ALL_ROWS, is_mariadb=sql.server().is_mariadb)
        finally:
            sql.close()
    except pymysql.Error as error:
        raise ConnectorRefused(f"{address}: {error.args[-1]}") from None
    return name, (json.loads(row) for _, row in chunk.rows)


def _read_url(url: str) -> tuple[Address, str]:
    parts = urlsplit(url)
    name = unquote(parts.path.lstrip("/"))
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError:
        port = 0
    if not (port and parts.hostname and parts.username and name.count(".") == 1):
        raise ConnectorRefused(f"a table of MySQL is {FORM}, and this is not")
    return Address(parts.hostname, port, unquote(parts.username), unquote(parts.password or "")), name
