from dataclasses import dataclass

from ottla.config import Definition, Kind, Synonym, definitions_of, setting


@dataclass(frozen=True)
class Declared:
    queue_size: int = setting("queue.size", Kind.INT, 5, "How many wait.", synonyms="default.queue.size")
    not_a_setting: int = 0
    name: str = setting("name", Kind.STRING, "", "What it is called.")


def test_a_declaration_is_a_typed_attribute_with_a_default() -> None:
    assert Declared().queue_size == 5
    assert Declared(queue_size=7).queue_size == 7


def test_definitions_come_back_in_order_by_name() -> None:
    definitions = definitions_of(Declared)
    assert list(definitions) == ["queue.size", "name"]
    queue_size = definitions["queue.size"]
    assert queue_size.attribute == "queue_size"
    assert queue_size.parse(" 9 ") == 9
    assert queue_size.synonyms == (Synonym("default.queue.size", Kind.INT, 5),)


def test_a_secret_is_not_shown() -> None:
    secret = Definition("secret", Kind.PASSWORD, None, "The word.")
    assert secret.is_sensitive
    assert secret.shown(secret.parse("s3cret")) is None


def test_a_synonym_converts_its_unit_and_keeps_no_limit() -> None:
    hours = Synonym("log.retention.hours", Kind.INT, 168, 3_600_000, is_limit=True)
    assert hours.convert(hours.parse("2")) == 7_200_000
    assert hours.convert(hours.parse("-3")) == -1
