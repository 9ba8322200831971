"""Who reads what: everything once, evenly, and with little movement."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.client.group.assignors import ASSIGNORS, Assignments, Assignor, Subscriber
from ottla.client.group.blobs import encode_assignment, encode_subscription, read_assignment, read_subscriber
from ottla.client.group.offsets import TopicPartition

TOPICS = ("a", "b", "c")
counts_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7))


def places(counts: dict[str, int]) -> set[TopicPartition]:
    return {TopicPartition(topic, index) for topic, count in counts.items() for index in range(count)}


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, Subscriber], dict[str, int]]:
    counts = draw(counts_of_topics)
    claimable = sorted(places(counts) | {TopicPartition("gone", 0)})
    members = {}
    for number in range(draw(st.integers(1, 5))):
        topics = draw(st.frozensets(st.sampled_from(TOPICS)))
        owned = draw(st.frozensets(st.sampled_from(claimable)))
        members[f"member-{number}"] = Subscriber(topics, owned, draw(st.integers(-1, 2)))
    return members, counts


def assert_sound(members: dict[str, Subscriber], counts: dict[str, int], assignments: Assignments) -> None:
    assert set(assignments) == set(members)
    given = [place for assigned in assignments.values() for place in assigned]
    assert len(given) == len(set(given)), "a partition has one reader"
    for member, assigned in assignments.items():
        assert assigned <= places(counts)
        assert {place.topic for place in assigned} <= members[member].topics


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
@given(group=groups())
def test_each_partition_has_one_reader_that_wants_it(
    assignor: Assignor, group: tuple[dict[str, Subscriber], dict[str, int]]
) -> None:
    members, counts = group
    assignments = assignor.assign(members, counts)
    assert_sound(members, counts, assignments)
    wanted = set().union(*(member.topics for member in members.values()))
    everything = {place for place in places(counts) if place.topic in wanted}
    if not assignor.is_cooperative:
        assert set().union(*assignments.values()) == everything


@example(
    group=(
        {
            "one of b": Subscriber(frozenset("b"), frozenset(), 0),
            "with all": Subscriber(frozenset("ab"), frozenset(places({"a": 4, "b": 4})), 0),
            "one of a": Subscriber(frozenset("a"), frozenset(), 0),
        },
        {"a": 4, "b": 5},
    )
)
@given(group=groups())
def test_cooperative_members_get_nothing_that_another_has_and_agree_in_two_rounds(
    group: tuple[dict[str, Subscriber], dict[str, int]],
) -> None:
    members, counts = group
    assign = ASSIGNORS["cooperative-sticky"].assign
    first = assign(members, counts)
    second = _next_round(members, first)
    result = assign(second, counts)
    wanted = set().union(*(member.topics for member in members.values()))
    assert set().union(*result.values()) == {place for place in places(counts) if place.topic in wanted}
    assert assign(_next_round(members, result), counts) == result, "then nothing moves any more"


def _next_round(members: dict[str, Subscriber], assignments: Assignments) -> dict[str, Subscriber]:
    """Each has what it was assigned, as of the same generation."""
    return {name: member._replace(owned=frozenset(assignments[name]), generation=9) for name, member in members.items()}


@pytest.mark.parametrize("name", ["sticky", "roundrobin"])
@given(count=st.integers(0, 30), member_count=st.integers(1, 8))
def test_members_that_want_the_same_get_as_many(name: str, count: int, member_count: int) -> None:
    members = {f"{number}": Subscriber(frozenset(["a"])) for number in range(member_count)}
    sizes = [len(assigned) for assigned in ASSIGNORS[name].assign(members, {"a": count}).values()]
    assert max(sizes) - min(sizes) <= 1


@given(count=st.integers(1, 30), member_count=st.integers(2, 8), leaves=st.booleans())
def test_sticky_moves_no_more_than_it_must(count: int, member_count: int, leaves: bool) -> None:
    assign = ASSIGNORS["sticky"].assign
    members = {f"{number}": Subscriber(frozenset(["a"])) for number in range(member_count)}
    before = assign(members, {"a": count})
    members = {name: member._replace(owned=frozenset(before[name]), generation=1) for name, member in members.items()}
    if leaves:
        gone = before["0"]
        del members["0"]
    else:
        gone = set()
        members["new"] = Subscriber(frozenset(["a"]))
    after = assign(members, {"a": count})
    moved = {place for name, assigned in after.items() for place in assigned if place not in before.get(name, set())}
    if leaves:
        assert moved == gone
    else:
        assert moved == after["new"]


def test_ranges_line_up_across_topics() -> None:
    members = {name: Subscriber(frozenset(["a", "b"])) for name in ("x", "y")}
    assert ASSIGNORS["range"].assign(members, {"a": 3, "b": 3}) == {
        "x": {TopicPartition(topic, index) for topic in "ab" for index in (0, 1)},
        "y": {TopicPartition(topic, 2) for topic in "ab"},
    }


def test_static_members_keep_their_place_under_another_member_id() -> None:
    def assign(*ids: str) -> dict[str | None, set[TopicPartition]]:
        members = {
            member_id: Subscriber(frozenset(["a"]), instance_id=instance_id)
            for member_id, instance_id in zip(ids, ("one", "two"), strict=True)
        }
        assignments = ASSIGNORS["range"].assign(members, {"a": 2})
        return {members[member_id].instance_id: assigned for member_id, assigned in assignments.items()}

    assert assign("m1", "m2") == assign("z9", "m2")


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
@given(
    topics=st.frozensets(st.sampled_from(TOPICS)),
    owned=st.frozensets(st.sampled_from(sorted(places({"a": 3, "b": 2})))),
    generation=st.integers(-1, 100),
)
def test_what_members_tell_each_other_is_understood(assignor: Assignor, **told: Any) -> None:
    topics, owned, generation = told["topics"], told["owned"], told["generation"]
    had = owned if assignor.tells_owned else ()
    data = encode_subscription(assignor, topics, () if assignor.tells_owned else owned, had, generation)
    assert read_subscriber(data, assignor, None) == Subscriber(topics, owned, generation)
    assert read_assignment(encode_assignment(owned)) == owned
    assert read_assignment(b"") == set()


@given(st.binary())
def test_what_a_sticky_member_of_another_make_says_is_read_or_ignored(data: bytes) -> None:
    from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
    from ottla.wire.versioned import encode_versioned

    subscription = encode_versioned(ConsumerProtocolSubscription(topics=["a"], user_data=data), 1)
    assert read_subscriber(subscription, ASSIGNORS["sticky"], None).topics == {"a"}
