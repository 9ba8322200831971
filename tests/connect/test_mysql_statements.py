"""Which statements change rows that the binlog does not show."""

import pytest

from ottla.connect.mysql.statements import refilled_table


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE orders ADD COLUMN points INT DEFAULT 7",
        "alter table `orders` add points int not null",
        "/* a tool */ ALTER TABLE shop.orders ADD (a INT, b TEXT DEFAULT 'x')",
        "ALTER TABLE orders ADD total INT AS (price * 2) STORED",
        "ALTER TABLE orders ADD INDEX (id), ADD COLUMN at DATETIME DEFAULT CURRENT_TIMESTAMP",
        "ALTER ONLINE TABLE `shop`.`orders` MODIFY price INT",
        "ALTER TABLE IF EXISTS orders CHANGE price cost DECIMAL(9,2)",
        "ALTER TABLE orders CONVERT TO CHARACTER SET utf8mb4",
    ],
)
def test_rows_have_other_values(statement: str) -> None:
    assert refilled_table(statement, "shop") == "shop.orders"


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE orders ADD COLUMN points INT",
        "ALTER TABLE orders ADD COLUMN points INT DEFAULT NULL",
        "ALTER TABLE orders ADD UNIQUE INDEX (id)",
        "ALTER TABLE orders DROP COLUMN points",
        "ALTER TABLE orders RENAME TO sales",
        "ALTER TABLE orders ENGINE=InnoDB -- MODIFY",
        "CREATE TABLE orders (id INT DEFAULT 7)",
        "DROP TABLE orders",
    ],
)
def test_rows_are_as_they_were(statement: str) -> None:
    assert refilled_table(statement, "shop") is None
