import pytest

from ottla.config import Between, BetweenOr, Check, ConfigError, ListOf, NonEmpty, OneOf, Value, at_least

# What Kafka 4.3.1's own validators say of a value of the setting x.
REFUSED: list[tuple[Check, Value, str]] = [
    (at_least(1), 0, "Invalid value 0 for configuration x: Value must be at least 1"),
    (at_least(1), None, "Invalid value null for configuration x: Value must be non-null"),
    (at_least(1), -5e20, "Invalid value -5.0E20 for configuration x: Value must be at least 1"),
    (Between(1, 5), 6, "Invalid value 6 for configuration x: Value must be no more than 5"),
    (
        BetweenOr(1, 9, -1),
        0,
        "Invalid value 0 for configuration x: Value must be between 1 and 9 or equal to -1",
    ),
    (OneOf(("a", "b")), "c", "Invalid value c for configuration x: String must be one of: a, b"),
    (OneOf(("a", "b")), None, "Invalid value null for configuration x: String must be one of: a, b"),
    (ListOf(("a", "b")), None, "Configuration 'x' values must not be null."),
    (ListOf(("a", "b")), ("a", "c"), "Invalid value c for configuration x: String must be one of: a, b"),
    (ListOf(("a", "b")), ("a", ""), "Configuration 'x' values must not be empty."),
    (
        ListOf(("a", "b"), may_be_empty=False),
        (),
        "Configuration 'x' must not be empty. Valid values include: [a, b]",
    ),
    (
        ListOf(may_be_empty=False),
        (),
        "Configuration 'x' must not be empty. Valid values include: any non-empty value",
    ),
    (NonEmpty(), "", "Invalid value  for configuration x: String must be non-empty"),
]

KEPT: list[tuple[Check, Value, Value]] = [
    (at_least(1), 1, 1),
    (Between(0, 1), 1.0, 1.0),
    (BetweenOr(1, 9, -1), -1, -1),
    (BetweenOr(1, 9, -1), 9, 9),
    (OneOf(("a", "b")), "b", "b"),
    (ListOf(("a", "b")), (), ()),
    (ListOf(("a", "b")), ("b", "a", "b"), ("b", "a")),
    (ListOf(), ("q",), ("q",)),
    (NonEmpty(), " ", " "),
]


@pytest.mark.parametrize(("check", "value", "message"), REFUSED)
def test_refuses_in_kafkas_words(check: Check, value: Value, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check("x", value)
    assert str(refused.value) == message


@pytest.mark.parametrize(("check", "value", "kept"), KEPT)
def test_keeps_what_passes(check: Check, value: Value, kept: Value) -> None:
    assert check("x", value) == kept


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (at_least(-1), "at least -1"),
        (Between(0, 1), "0 to 1"),
        (BetweenOr(1, 9, -1), "-1, or 1 to 9"),
        (OneOf(("a", "b")), "a, b"),
        (ListOf(("a", "b")), "any of a, b, or nothing"),
        (ListOf(may_be_empty=False), "words"),
        (NonEmpty(), "not empty"),
    ],
)
def test_says_what_it_lets_pass(check: Check, words: str) -> None:
    assert str(check) == words
