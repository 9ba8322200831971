import pytest

from ottla.client.network.address import Address, parse_addresses


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [Address("localhost", 9092)]),
        ("broker", [Address("broker", 9092)]),
        ("a:1, b:65535,", [Address("a", 1), Address("b", 65535)]),
        ("[::1]:9093", [Address("::1", 9093)]),
        ("[fe80::1]", [Address("fe80::1", 9092)]),
    ],
)
def test_addresses(text: str, addresses: list[Address]) -> None:
    assert list(parse_addresses(text)) == addresses
    assert parse_addresses(",".join(map(str, addresses))) == tuple(addresses)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        ":9092",
        "a:",
        "a:b",
        "a:0",
        "a:65536",
        "a:1:2",
        "::1",
        "[::1",
        "[::1]9",
        "[]:1",
        "a\0b:1",
        "a b:1",
        f"{'a' * 64}.de:1",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_addresses(text)
