"""One broker for all checks, a topic for each, and the clients that are installed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

import ottla.testing
from ottla.testing import LocalBroker
from tests.compat import kcat_client
from tests.compat.aiokafka_client import AiokafkaClient
from tests.compat.client import AdminClient, Client
from tests.compat.confluent_client import ConfluentClient
from tests.compat.group_consumers import Membership
from tests.compat.kafka_python_client import KafkaPythonClient
from tests.compat.killable import KillableBroker, killable_broker
from tests.compat.member import Join, Member
from tests.compat.numbered_topic import NumberedTopic

LIBRARIES: dict[str, Callable[[str], AdminClient]] = {
    "confluent-kafka": ConfluentClient,
    "kafka-python": KafkaPythonClient,
    "aiokafka": AiokafkaClient,
}
CLIENTS: dict[str, Callable[[str], Client]] = {**LIBRARIES, "kcat": kcat_client.KcatClient}


@pytest.fixture(scope="session")
def broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def killable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KillableBroker]:
    """A broker with coordinators in a hurry. A test that ends it starts it again."""
    with killable_broker(tmp_path_factory.mktemp("killable")) as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def creator(broker: LocalBroker) -> Iterator[ConfluentClient]:
    with ConfluentClient(broker.bootstrap) as creator:
        yield creator


@pytest.fixture
def created_topic(creator: ConfluentClient, topic: str) -> str:
    """A topic of one partition: to have it created by the first write takes some clients a second."""
    creator.create_topic(topic, 1, {})
    return topic


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, broker: LocalBroker) -> Iterator[Client]:
    """Each client in turn, to write and read with."""
    if request.param == "kcat" and not kcat_client.is_installed():
        pytest.skip("kcat is not on the PATH: apt-get install kcat")
    with CLIENTS[request.param](broker.bootstrap) as client:
        yield client


@pytest.fixture(params=LIBRARIES)
def admin(request: pytest.FixtureRequest, broker: LocalBroker) -> Iterator[AdminClient]:
    """Each client that can administer in turn."""
    with LIBRARIES[request.param](broker.bootstrap) as admin:
        yield admin


@pytest.fixture(scope="session")
def readers(broker: LocalBroker) -> Iterator[dict[str, Client]]:
    """All clients that are there, to read what one has written."""
    names = [name for name in CLIENTS if name != "kcat" or kcat_client.is_installed()]
    clients = {name: CLIENTS[name](broker.bootstrap) for name in names}
    yield clients
    for client in clients.values():
        client.__exit__(None, None, None)


@pytest.fixture(scope="session")
def writer(killable: KillableBroker) -> Iterator[ConfluentClient]:
    with ConfluentClient(killable.bootstrap) as writer:
        yield writer


@pytest.fixture
def filled(writer: ConfluentClient, topic: str) -> NumberedTopic:
    return NumberedTopic(writer, topic)


@pytest.fixture
def membership(killable: KillableBroker, filled: NumberedTopic) -> Membership:
    return Membership(bootstrap=killable.bootstrap, group=f"group-{filled.name}", topics=[filled.name])


@pytest.fixture
def join() -> Iterator[Join]:
    """Starts a member, which ends with the test."""
    with ExitStack() as stack:
        yield lambda library, membership: stack.enter_context(Member(library, membership))
