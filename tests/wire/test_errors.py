from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from ottla.wire.errors import ErrorCode


def test_names_numbers_and_retriability_are_those_of_kio() -> None:
    ours = {code.name.lower(): (code.value, code.retriable) for code in ErrorCode}
    assert ours == {code.name: (int(code), code.retriable) for code in KioErrorCode}


def test_each_meaning_is_one_sentence_of_its_own() -> None:
    meanings = [code.meaning for code in ErrorCode]
    assert len(set(meanings)) == len(meanings)
    for meaning in meanings:
        assert meaning[0].isupper()
        assert meaning.endswith(".")


def test_a_code_is_a_number_and_is_found_by_one() -> None:
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert int(ErrorCode.UNKNOWN_SERVER_ERROR) == -1
    assert 3 in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
