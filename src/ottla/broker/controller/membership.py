"""This broker in its cluster: it registers, finds the one that decides or becomes it, and follows what is decided.

One broker alone does the same: it finds nobody, decides itself, and tells nobody but its own applier.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple, cast

from ottla.broker.controller.applier import Applier
from ottla.broker.controller.asking import all_nodes, committed, node_at
from ottla.broker.controller.balance import Balance, BalanceSettings
from ottla.broker.controller.controller import Controller, Outcomes, in_commits
from ottla.broker.controller.liveness import Liveness
from ottla.broker.controller.registration import Registration, Superseded, controllers_told
from ottla.broker.controller.view import View
from ottla.broker.controller.wakeup import Pause, Wakeup
from ottla.broker.events import Events
from ottla.broker.loop.slices import Slices, Steps, Task, Waiting
from ottla.broker.network.listeners import Endpoint
from ottla.broker.network.peer import Answered, Peer, PeerFailure, PeerRefused, PeerSettings
from ottla.config import ConfigError
from ottla.controller import layout
from ottla.controller.changes import Change, operations_of
from ottla.controller.cluster import Cluster
from ottla.controller.election import Office, claim
from ottla.controller.founding import founding_operations
from ottla.controller.layout import BrokerNode
from ottla.controller.leaders import RulesOf, Settings, broker_up, rules_in
from ottla.controller.steps import InSteps
from ottla.controller.store import Node, NodeExists, NodeMissing, Operation, Store, StoreError, VersionChanged
from ottla.log.loss import Loss
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.cluster_feed import ClusterFeedResponse
from ottla.wire.schema import Request
from ottla.wire.uuids import new_uuid, uuid_text

if TYPE_CHECKING:
    from ottla.broker.loop.loop import Loop

events = Events("ottla.broker")

MOST_PAUSE_SECONDS = 2.0
PAUSE_SECONDS = 0.1  # before the store or a broker is asked again that gave no answer
POLL_SECONDS = 1.0  # for which the controller may keep a broker waiting: after that, it gives a sign of life


class MembershipState(enum.Enum):
    JOINING = "joining"  # it looks for the controller
    FOLLOWING = "following"
    CONTROLLING = "controlling"
    STOPPED = "stopped"


TRANSITIONS: dict[MembershipState, frozenset[MembershipState]] = {
    MembershipState.JOINING: frozenset(
        {MembershipState.FOLLOWING, MembershipState.CONTROLLING, MembershipState.STOPPED}
    ),
    MembershipState.FOLLOWING: frozenset({MembershipState.JOINING, MembershipState.STOPPED}),
    MembershipState.CONTROLLING: frozenset({MembershipState.JOINING, MembershipState.STOPPED}),
    MembershipState.STOPPED: frozenset(),
}


class Identity(NamedTuple):
    """Who this broker is."""

    node_id: int
    node: Callable[[], BrokerNode]  # as it is to be registered
    listener: str | None  # through which brokers talk to each other; None: the first
    loss: Callable[[int | None], Loss]  # what it may lack of what it had in the registration of its last epoch, if any
    note_registration: Callable[[int], None]  # has the data know of one, before the cluster does


class Found(NamedTuple):
    """The one that decides."""

    node_id: int
    endpoint: Endpoint
    node: Node  # in the store


class Membership:
    def __init__(
        self,
        loop: Loop,
        store: Store,
        applier: Applier,
        identity: Identity,
        *,
        first_broker_config: Callable[[], dict[str, str]],
        settings: Callable[[], Settings],
        balance_settings: Callable[[], BalanceSettings] = BalanceSettings,
        session_seconds: float = 9.0,
        ask: Callable[[Request, int, Answered], None],
        halt: Callable[[str], None],
    ) -> None:
        """`ask`: has the controller answer a request, wherever it is. `halt`: ends this broker.

        `settings`: of elections. `first_broker_config`: what all brokers of a new cluster have.
        """
        self.node_id = identity.node_id
        self.view = View(loop, applier, identity.node_id)
        self.controller: Controller | None = None  # if this broker decides
        self._resigned: Controller | None = None  # whose last changes may be on their way
        self._controller_id = -1
        self.state = MembershipState.JOINING
        self.store = store
        self.failure: Exception | None = None  # why it could not join
        self.ask_controller = ask
        self._halt = halt
        self._loop = loop
        self._applier = applier
        self._identity = identity
        self._loss = Loss.NOTHING
        self._first_broker_config = first_broker_config
        self.settings = settings
        self._session_seconds = session_seconds
        self._slices = Slices(loop)
        self._life: Task | None = None
        self._wakeup = Wakeup(loop)
        self._registration = Registration(
            loop, store, identity.node_id, identity.node, identity.listener, identity.note_registration
        )
        self._liveness: Liveness | None = None
        self._balance: Balance | None = None
        self._balance_settings = balance_settings
        self._is_up = False
        self._heard_at = 0.0  # when the controller last answered
        self._known_at = 0.0  # when it was asked for that answer: until then all that was decided is known here
        self._is_touched = False  # the node of the controller
        self._is_lost = False  # the office is
        self._feed_peer: Peer | None = None
        self.ask_peer: Peer | None = None

    def _become(self, state: MembershipState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state.value} cannot be {state.value} next"
        self.state = state

    @property
    def cluster(self) -> Cluster:
        """As this broker knows it."""
        return self.view.cluster

    @property
    def is_controller(self) -> bool:
        return self.controller is not None

    @property
    def broker_epoch(self) -> int:
        """That of this broker as the cluster knows it; -1 if it does not."""
        known = self.cluster.brokers.get(self.node_id)
        return -1 if known is None else known.epoch

    @property
    def is_up(self) -> bool:
        """Whether this broker has become one of the cluster, with all that it leads."""
        return self._is_up

    def rules(self) -> RulesOf:
        """Of elections, as they are now."""
        return rules_in(self.cluster, self.settings())

    # Starting and stopping

    def start(self) -> None:
        """Join the cluster; `is_up` tells when that is done, `failure` why it cannot be."""
        self._life = self._slices.start(self._live(), self._ended)

    def _ended(self, _result: object, failure: Exception | None) -> None:
        self.failure = failure

    @property
    def is_idle(self) -> bool:
        """Whether all that was decided is true here."""
        last = self._resigned if self.controller is None else self.controller
        return self._applier.is_idle if last is None else last.is_idle

    def stop(self) -> None:
        """Decide and follow nothing more; what is on its way to the store or from there goes on."""
        if self.state is not MembershipState.STOPPED:
            self._leave_office()
            if self._life is not None:
                self._life.cancel()
            self._become(MembershipState.STOPPED)
            self.view.stop()

    # The life of a member

    def _live(self) -> Steps:
        self.store.watch(layout.CONTROLLER, self._controller_changed)
        self._registration.watch(self._wakeup.set)
        last = yield from node_at(self.store, layout.broker_epoch_path(self.node_id))
        self._loss = self._identity.loss(None if last is None else layout.decode_broker_epoch(last.data))
        pause_seconds = PAUSE_SECONDS
        while True:
            pause: Pause = self._wakeup.wait
            try:
                yield from self._find_and_follow()
                pause_seconds = PAUSE_SECONDS
            except Exception as error:
                if not self._is_up:
                    raise
                if isinstance(error, Superseded):
                    self._halt(str(error))
                    return
                pause, pause_seconds = self._wakeup.rest, min(pause_seconds * 2, MOST_PAUSE_SECONDS)
                if isinstance(error, StoreError | ConfigError):
                    events.warning("the broker has lost its cluster", reason=error)
                else:
                    events.failure("membership failed")  # a broker that gave up for ever would be of no use
            self._leave_office()
            if self.state is not MembershipState.JOINING:
                self._become(MembershipState.JOINING)
            yield from pause(pause_seconds)

    def _controller_changed(self, _path: str) -> None:
        self._is_touched = True
        self._wakeup.set()

    def _founding(self) -> Generator[Waiting, None, list[Operation]]:
        """What a new cluster needs first."""
        if self._is_up or (yield from node_at(self.store, layout.CLUSTER_ID)) is not None:
            return []
        nodes = yield from all_nodes(self.store)
        return founding_operations(nodes, self._first_broker_config(), lambda: uuid_text(new_uuid()))

    def _find_and_follow(self) -> Steps:
        """Be a member under one controller, until there is another."""
        self._is_touched = False
        node = yield from node_at(self.store, layout.CONTROLLER)
        if self._registration.is_unwanted and node is None:
            return
        if node is None:
            yield from self._take_office(None)
            return
        yield from self._registration.ensure()
        node_id = layout.decode_controller(node.data)
        if node_id == self.node_id:
            yield from self._take_office(node)  # of its last life, whose session is not over yet
            return
        known = yield from node_at(self.store, layout.broker_path(node_id))
        endpoint = None if known is None else self._registration.endpoint_in(layout.decode_broker(known.data))
        if endpoint is None:
            self.store.look()  # it is gone, and the store will find out
            return
        found = Found(node_id, endpoint, node)
        if (yield from self._follow(found)) and not self._registration.is_unwanted:
            events.warning("the controller is gone", controller=node_id)
            self._become(MembershipState.JOINING)
            yield from self._take_office(node)

    # Deciding

    def _take_office(self, dead: Node | None) -> Steps:
        """Become the controller, if nobody is quicker; and decide until somebody else does.

        `dead`: the node of the one before, where it is still there.
        """
        founding = yield from self._founding()
        if not (founding or self.view.is_open):
            yield from self._open_first()
        # In this order: whoever is quicker, before or after, is seen here or by the commit.
        epoch_node = yield from node_at(self.store, layout.CONTROLLER_EPOCH)
        if dead is not None:
            node = yield from node_at(self.store, layout.CONTROLLER)
            if node is not None and node.created_in != dead.created_in:
                return
            dead = node
        claimed = claim(epoch_node, self.node_id, self._loop.system.clock_ms(), dead=dead)
        operations = [*founding, *self._registration.operations(), *claimed.operations]
        try:
            yield from committed(self.store, operations, is_vital=not founding)
        except (NodeExists, NodeMissing, VersionChanged):
            if not founding:
                yield from self._registration.ensure()  # or this is why
            return
        nodes = yield from all_nodes(self.store)
        self._registration.found(nodes.get(layout.broker_path(self.node_id)))
        cluster = yield from Cluster.read_in_steps(nodes)
        cluster.controller_epoch = claimed.office.epoch
        yield from self._decide(cluster, claimed.office)

    def _open_first(self) -> Steps:
        """Open the data before the others wait for decisions; one broker alone has nobody who does."""
        nodes = yield from all_nodes(self.store)
        cluster = yield from Cluster.read_in_steps(nodes)
        if cluster.brokers.keys() - {self.node_id}:
            self.view.install(cluster)
            self.view.open(is_up=False)

    def _decide(self, cluster: Cluster, office: Office) -> Steps:
        self._become(MembershipState.CONTROLLING)
        self._tell(cluster, "this broker is the controller", office)
        self._is_lost = False
        controller = Controller(self._loop, self.store, cluster, office, self._applier, self.node_id, self._lose_office)
        was_open = self.view.is_open
        self.view.install(cluster)
        if not was_open:
            yield from self._open(controller)
        self.controller, self._controller_id = controller, self.node_id
        if was_open:
            self._take_in(controller, is_first=True)
        listener, seconds = self._identity.listener, self._session_seconds
        self._liveness = Liveness(self._loop, self.store, self, controller, seconds, listener)
        self._liveness.start()
        self._balance = Balance(self._loop, controller, self._balance_settings)
        while not self._is_lost:
            yield from self._look_at_office(controller)  # also at what happened before it had the office
            if not self._is_lost:
                yield from self._wakeup.wait()

    def _up(self, controller: Controller, *, is_first: bool) -> InSteps[list[Change]]:
        return broker_up(
            controller.cluster,
            rules_in(controller.cluster, self.settings()),
            self.node_id,
            self._registration.epoch,
            self._identity.node(),
            loss=max(self._loss, self._applier.loss),
            rotten=self._applier.rotten,
            is_first=is_first,
        )

    def _open(self, controller: Controller) -> Steps:
        """What is decided first is what this broker opens."""
        up = yield from self._up(controller, is_first=True)
        for group in (yield from in_commits(up, self.store.max_commit_bytes)):
            yield from committed(self.store, [controller.office.check, *operations_of(group)], is_vital=True)
            for change in group:
                controller.cluster.replay(change)
            controller.feed.append(group)
        self.view.open(is_up=True)
        self._now_up()

    def _take_in(self, controller: Controller, *, is_first: bool) -> None:
        """Let the cluster know of this broker, which has registered since or decides now."""

        def done(_outcomes: Outcomes, failure: Exception | None) -> None:
            if failure is None and self._is_up:
                self._now_up()
            elif failure is None:
                self.view.take_roles(self._now_up)

        controller.submit(lambda: self._up(controller, is_first=is_first), done, is_vital=True)

    def _now_up(self) -> None:
        self._is_up = self._registration.was_taken_in = True
        self._loss = Loss.NOTHING
        self._applier.loss_is_known()

    def _look_at_office(self, controller: Controller) -> Steps:
        if self._registration.is_touched:
            epoch = self._registration.epoch
            yield from self._registration.ensure()
            if self._registration.epoch != epoch:
                self._take_in(controller, is_first=False)
        if self._is_touched:
            self._is_touched = False
            node = yield from node_at(self.store, layout.CONTROLLER)
            if node is None or layout.decode_controller(node.data) != self.node_id:
                self._is_lost = True

    @staticmethod
    def _tell(cluster: Cluster, what: str, office: Office) -> None:
        """Of one broker alone, nobody wants to know."""
        tell = events.info if len(cluster.brokers) > 1 else events.debug
        tell(what, epoch=office.epoch)

    def _lose_office(self) -> None:
        self._is_lost = True
        self._wakeup.set()

    def _leave_office(self) -> None:
        if self._liveness is not None:
            self._liveness.stop()
            self._liveness = None
        if self._balance is not None:
            self._balance.stop()
            self._balance = None
        if self.controller is not None:
            self._tell(self.cluster, "this broker is the controller no more", self.controller.office)
            self.controller.stop()
            self._resigned, self.controller, self._controller_id = self.controller, None, -1

    @property
    def liveness(self) -> Liveness | None:
        """Of the other brokers, if this one decides."""
        return self._liveness

    # Following

    def _follow(self, found: Found) -> Generator[Waiting | None, None, bool]:
        """Do as another broker decides; whether that one is dead."""
        self._become(MembershipState.FOLLOWING)
        self._controller_id = found.node_id
        self._heard_at = self._loop.now()
        self.view.begin()
        self._feed_peer, self.ask_peer = self._peer_to(found.endpoint), self._peer_to(found.endpoint)
        try:
            while True:
                asked_at = self._loop.now()
                answer = yield from self._polled(found)
                if answer is None:
                    return False  # there is another controller
                if isinstance(answer, PeerFailure):
                    if isinstance(answer, PeerRefused):
                        return True  # that is believed at once
                    self.store.look()
                    if not self._is_silent:
                        yield from self._wakeup.wait(PAUSE_SECONDS / 2)
                    elif (yield from self._is_heard_by_others(found)):
                        yield from self._wakeup.wait(PAUSE_SECONDS * 2)
                    else:
                        return True
                    continue
                self._heard_at, self._known_at = self._loop.now(), asked_at
                if answer.error_code == ErrorCode.STALE_BROKER_EPOCH:
                    self._registration.is_touched = True
                    yield from self._registration.ensure()
                    yield from self._wakeup.wait(PAUSE_SECONDS / 2)
                elif answer.error_code:
                    return False  # it does not decide any more, or not yet
                else:
                    self.view.told(answer)
                    self._note_up()
        finally:
            self._controller_id = -1
            self._feed_peer.close()
            self.ask_peer.close()
            self._feed_peer = self.ask_peer = None

    @property
    def controller_id(self) -> int:
        """Who decides; -1 where this broker cannot know.

        The others take one that has heard nothing for the time of a session for dead, and may have decided on anything
        since. So what it says of the cluster names no controller.
        """
        is_lapsed = self.controller is None and self._loop.now() - self._known_at > self._session_seconds
        return -1 if is_lapsed else self._controller_id

    def _peer_to(self, endpoint: Endpoint) -> Peer:
        settings = PeerSettings(
            connect_seconds=self._session_seconds,
            least_backoff_seconds=PAUSE_SECONDS / 4,
            most_backoff_seconds=PAUSE_SECONDS,
        )
        return Peer(self._loop, endpoint.host, endpoint.port, f"broker-{self.node_id}", settings)

    def _polled(self, found: Found) -> Generator[Waiting, None, ClusterFeedResponse | PeerFailure | None]:
        """What the controller answers; None if it may be another one now."""
        request = self.view.request(self._loss)
        request.broker_epoch, request.max_wait_ms = self._registration.epoch, int(POLL_SECONDS * 1000)
        request.is_ready = request.is_ready and not self._registration.is_unwanted
        answers: list[ClusterFeedResponse | PeerFailure] = []

        def answered(answer: object) -> None:
            answers.append(cast("ClusterFeedResponse | PeerFailure", answer))
            self._wakeup.set()

        assert self._feed_peer is not None
        self._feed_peer.send(request, 0, answered, POLL_SECONDS + self._session_seconds)
        while not answers:
            yield from self._wakeup.wait()
            if self._registration.is_touched:
                yield from self._registration.ensure()
            if self._is_touched:
                self._is_touched = False
                node = yield from node_at(self.store, layout.CONTROLLER)
                if node is None or node.created_in != found.node.created_in:
                    return None
        return answers[0]

    @property
    def _is_silent(self) -> bool:
        """Whether nothing was heard of the controller for the time of a session."""
        return self._loop.now() - self._heard_at >= self._session_seconds

    def _is_heard_by_others(self, found: Found) -> Generator[Waiting, None, bool]:
        """Whether it is only this broker that does not hear the controller, as far as it can know.

        One that takes the office from somebody whom others hear would lose it to the next who hears nothing of it. One
        that reaches nobody, though none is known to be dead, is cut off itself: the store will tell who is gone.
        """
        others = [
            endpoint
            for node_id, broker in self.cluster.brokers.items()  # also those that this one took for dead
            if node_id not in (self.node_id, found.node_id)
            and (endpoint := self._registration.endpoint_in(broker.node)) is not None
        ]
        told, are_all_there = yield from controllers_told(self._loop, others)
        return found.node_id in told or not (told or are_all_there)

    def _note_up(self) -> None:
        known = self.cluster.brokers.get(self.node_id)
        if known is not None and known.is_alive and known.epoch == self._registration.epoch and not self._is_up:
            self.view.take_roles(self._now_up)
