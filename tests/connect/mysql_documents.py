"""JSON in MySQL: documents of every form that its binlog has, as SQL, and at random."""

import json
import random
import string
from typing import Any

DATABASE = "documents"
TABLE = "CREATE TABLE documents (id INT PRIMARY KEY, document JSON)"
_NUMBERS = ("0", "1", "-1", "32767", "-32768", "32768", "-32769", "65535", "65536", "2147483647", "-2147483648",
            "2147483648", "-2147483649", "4294967295", "4294967296", "9223372036854775807", "-9223372036854775808",
            "9223372036854775808", "18446744073709551615")  # fmt: skip
_DOUBLES = ("0.0", "-0.0", "0.1", "1.0", "100000.5", "1e14", "999999999999999.9", "1e15", "1234567890123456.8",
            "1.5e15", "1e22", "1.5e300", "1.7976931348623157e308", "0.0001", "0.00012345", "1e-15", "1.25e-15",
            "9.999999999999999e-16", "5e-324", "-2.2250738585072014e-308")  # fmt: skip
_OTHERS = ("CAST(1.50 AS DECIMAL(10,2))", "CAST(-0.5 AS DECIMAL(65,30))", "CAST(0 AS DECIMAL(5,5))",
           "CAST(-98765432109876543210987654321098765.25 AS DECIMAL(60,2))", "DATE'2026-01-02'", "DATE'9999-12-31'",
           "TIMESTAMP'2026-01-02 03:04:05'", "TIMESTAMP'1000-01-01 00:00:00.000001'", "TIME'12:34:56.78'",
           "TIME'-838:59:59'", "TIME'-00:00:00.5'", "x''", "x'00ff'", "REPEAT(x'00ff10', 19)", "REPEAT(x'00ff10', 20)",
           "REPEAT(x'00ff10', 38)", "ST_GeomFromText('POINT(1 2.5)')", "CAST(2026 AS YEAR)", "UNHEX('C3A9')",
           "CAST(CAST(1 AS DOUBLE) / 3 AS FLOAT)", "_latin1 x'e9'", "CAST(7 AS UNSIGNED)", "CAST(70000 AS UNSIGNED)",
           "CAST(5000000000 AS UNSIGNED)")  # fmt: skip
_TEXTS = (
    'null', 'true', 'false', '{}', '[]', '""', '[null, true, false, [], {}, "", [[]], {"a": {}}]',
    '{"longer": 1, "b": 2, "a": [1, -70000, 70000, 1.5, "x", 5000000000], "": null, "é": "日本😀", "A": "a"}',
    r'"\b\t\n\f\r\"\\\/\u0000\u001f\u007f\u2028 plain"', r'{"\"quoted\" \\ \n": "\"quoted\""}',
    "[" * 100 + "]" * 100, '{"a":' * 99 + "[]" + "}" * 99,
)  # fmt: skip
_LARGE = (
    "CONCAT('[', REPEAT('1, -70000, 70000, 4000000000, null, ', 6000), '\"end\"]')",
    """CONCAT('{"', REPEAT('k', 65535), '": 1, "wide": "', REPEAT('x', 70000), '", "n": -70000, "u": 4000000000,
    "inner": {"small": [1, 2, 3]}}')""",
    "JSON_ARRAY(CAST(4000000000 AS UNSIGNED), CAST(-70000 AS SIGNED), CAST(7 AS UNSIGNED), REPEAT('z', 70000))",
    *(f"""CONCAT('["', REPEAT('y', {size}), '", 1]')""" for size in (127, 128, 16383, 16384, 65530)),
)
# Changes in the middle of a document: MySQL mends it where it is, and leaves holes.
UPDATES = (
    "UPDATE documents SET document = JSON_SET(document, '$.b', 300000, '$.longer', 'now a text') WHERE id = 8",
    "UPDATE documents SET document = JSON_REMOVE(document, '$.a[1]') WHERE id = 8",
    """UPDATE documents SET document = JSON_REPLACE(document, '$.wide', 'short') WHERE document->'$.n' = -70000""",
    "UPDATE documents SET document = JSON_REMOVE(document, '$[0]') WHERE id IN (SELECT id FROM (SELECT id FROM "
    "documents WHERE JSON_LENGTH(document) = 30001) AS large)",
)


def expressions() -> list[str]:
    quoted = [_quoted(text) for text in _TEXTS]
    return [
        *(f"CAST({text} AS JSON)" for text in quoted),
        *(f"CAST('{number}' AS JSON)" for number in _NUMBERS),
        *(f"CAST(CAST({number} AS UNSIGNED) AS JSON)" for number in (7, 70000)),
        f"CAST('[{', '.join(_NUMBERS)}]' AS JSON)",
        *(f"CAST(CAST({number} AS DOUBLE) AS JSON)" for number in _DOUBLES),
        *(f"JSON_ARRAY({other}, JSON_OBJECT('it', {other}))" for other in _OTHERS),
        *_LARGE,
        "NULL",
    ]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def random_expressions(seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    return [f"CAST({_quoted(json.dumps(_random(chance, 0)))} AS JSON)" for _ in range(count)]


def random_doubles(seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    numbers = (chance.uniform(-10, 10) * 10.0 ** chance.randrange(-30, 30) for _ in range(count))
    return [f"JSON_ARRAY(CAST({number!r} AS DOUBLE))" for number in numbers]


def _random(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(8 if depth < 6 else 6)
    if kind == 0:
        return chance.choice((None, True, False, "", {}, []))
    if kind == 1:
        return chance.randrange(-(1 << 63), 1 << 64) >> chance.randrange(64)
    if kind == 2:
        return chance.uniform(-10, 10) * 10.0 ** chance.randrange(-20, 20)
    if kind in (3, 4, 5):
        return "".join(chance.choices(string.printable + "äö日😀", k=chance.choice((3, 30, 300))))
    inside = [_random(chance, depth + 1) for _ in range(chance.randrange(6))]
    return inside if kind == 6 else {f"{chance.randrange(1 << chance.randrange(1, 30))}é": each for each in inside}


def fill(rows: list[str], first: int = 1) -> list[str]:
    return [f"INSERT INTO documents VALUES ({first + index}, {row})" for index, row in enumerate(rows)]
