import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config import ConfigError, Kind, Password, Value, parse_value, text_of

# What Kafka 4.3.1's own definitions answer: text, kind, and the value or the complaint.
READ: list[tuple[str, Kind, Value]] = [
    (" TRUE ", Kind.BOOLEAN, True),
    ("false", Kind.BOOLEAN, False),
    (" a b ", Kind.STRING, "a b"),
    (" -32768", Kind.SHORT, -32768),
    ("+7", Kind.INT, 7),
    ("-9223372036854775808", Kind.LONG, -(1 << 63)),
    ("\uff11", Kind.INT, 1),
    ("0x1.8P+3f", Kind.DOUBLE, 12.0),
    ("5.", Kind.DOUBLE, 5.0),
    ("1e400", Kind.DOUBLE, math.inf),
    ("-0x1p9999", Kind.DOUBLE, -math.inf),
    ("", Kind.LIST, ()),
    ("a , b,,c", Kind.LIST, ("a", "b", "", "c")),
    ("org.example.Policy", Kind.CLASS, "org.example.Policy"),
    (" s3cret ", Kind.PASSWORD, Password("s3cret")),
]

REFUSED = [
    ("yes", Kind.BOOLEAN, "Expected value to be either true or false"),
    ("", Kind.BOOLEAN, "Expected value to be either true or false"),
    ("32768", Kind.SHORT, "Not a number of type SHORT"),
    ("2147483648", Kind.INT, "Not a number of type INT"),
    ("1_000", Kind.INT, "Not a number of type INT"),
    ("\u00a01", Kind.INT, "Not a number of type INT"),
    ("9" * 10_000, Kind.LONG, "Not a number of type LONG"),
    ("", Kind.LONG, "Not a number of type LONG"),
    ("NaNf", Kind.DOUBLE, "Not a number of type DOUBLE"),
    ("inf", Kind.DOUBLE, "Not a number of type DOUBLE"),
    ("0x1", Kind.DOUBLE, "Not a number of type DOUBLE"),
]

SHOWN: list[tuple[Value, str | None]] = [
    (None, None),
    (True, "true"),
    (-5, "-5"),
    (1.0, "1.0"),
    (0.001, "0.001"),
    (1e-5, "1.0E-5"),
    (0.00012, "1.2E-4"),
    (-12345678.0, "-1.2345678E7"),
    (1234567.8, "1234567.8"),
    (-0.0, "-0.0"),
    (math.nan, "NaN"),
    (-math.inf, "-Infinity"),
    (("a", "b"), "a,b"),
    (Password("s3cret"), "[hidden]"),
]


@pytest.mark.parametrize(("text", "kind", "value"), READ)
def test_reads_what_kafka_reads(text: str, kind: Kind, value: Value) -> None:
    parsed = parse_value("x", kind, text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(("text", "kind", "complaint"), REFUSED)
def test_refuses_in_kafkas_words(text: str, kind: Kind, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_value("x", kind, text)
    assert str(refused.value) == f"Invalid value {text} for configuration x: {complaint}"


@pytest.mark.parametrize(("value", "text"), SHOWN)
def test_shows_what_kafka_shows(value: Value, text: str | None) -> None:
    assert text_of(value) == text


def test_a_password_shows_only_on_demand() -> None:
    password = Password("s3cret")
    assert "s3cret" not in f"{password} {password!r}"
    assert password.secret == "s3cret"


@given(st.floats(allow_nan=False))
def test_doubles_survive_their_text(value: float) -> None:
    assert parse_value("x", Kind.DOUBLE, str(text_of(value))) == value


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_integers_survive_their_text(value: int) -> None:
    assert parse_value("x", Kind.LONG, str(text_of(value))) == value


@given(st.sampled_from(Kind), st.text())
def test_any_text_is_a_value_or_the_one_error(kind: Kind, text: str) -> None:
    try:
        value = parse_value("x", kind, text)
    except ConfigError:
        return
    assert parse_value("x", kind, str(text_of(value))) == value or kind is Kind.PASSWORD or value != value
