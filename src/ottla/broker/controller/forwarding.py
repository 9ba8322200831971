"""Requests that only the controller answers, whatever broker they come to.

Another broker sends such a request on to the controller. It passes the answer to the client when it has applied as
much as the controller had then: a client reads what it wrote. If the controller changes meanwhile, the next one is
asked, within the time that the request may take.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any, cast

from ottla.broker.access.authorizer import ANONYMOUS, Principal
from ottla.broker.controller.controller import NotController
from ottla.broker.controller.topics import Charge
from ottla.broker.loop.slices import Finished, Steps, Waiting
from ottla.broker.network.peer import Answered, PeerFailure, PeerTimedOut
from ottla.wire.apis import BY_KEY
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.forward import ForwardRequest, ForwardResponse
from ottla.wire.registry import REQUESTS, RESPONSES
from ottla.wire.schema import Request, Response

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context, Handler

FORWARD_SECONDS = 30.0  # for which somebody who decides is looked for
RETRY_SECONDS = 0.05
CREATE_TOPICS_VERSION = 7


class _Far:
    """The connection of a client that came to another broker."""

    address = ""

    def mute(self, seconds: float) -> None:
        """Its own broker reads nothing from it; the answer tells for how long."""


class Forwarded:
    """What handlers see of a request that came to another broker, or from this one itself."""

    def __init__(self, node_id: int, version: int, client_id: str, listener: str, principal: Principal) -> None:
        self.origin = node_id  # the broker that it came to
        self.version = version
        self.client_id = client_id
        self.listener = listener
        self.principal = principal
        self.connection = _Far()


def at_controller(handler: Handler) -> Handler:
    """A handler that runs on the controller only."""

    def handle(broker: Broker, request: Any, context: Context) -> Response | Steps | None:
        if broker.membership.is_controller:
            answered = handler(broker, request, context)
            return _unless_lost(broker, request, context, answered) if isinstance(answered, Generator) else answered
        return _forwarded(broker, request, context)

    return handle


def _unless_lost(broker: Broker, request: Request, context: Context, steps: Steps) -> Steps:
    """The answer of this broker, or of the next controller if this one decides no more."""
    try:
        answer = yield from steps
    except NotController:
        answer = yield from _forwarded(broker, request, context)
    return answer


def _forwarded(broker: Broker, request: Request, context: Context) -> Steps:
    try:
        answer = yield from answer_of_controller(
            broker, request, context.version, context.client_id, context.listener, context.principal
        )
    except PeerFailure as failure:
        context.close(str(failure))
        return None
    return answer


def answer_of_controller(
    broker: Broker, request: Request, version: int, client_id: str, listener: str, principal: Principal
) -> Generator[Waiting | None, None, Response]:
    """What the controller answers; PeerTimedOut where there is none for long."""
    body = b"".join(bytes(part) for part in cast("list[bytes]", request.writers[version](request)))
    forward = ForwardRequest(
        broker_id=broker.node_id,
        api_key=request.api.key,
        api_version=version,
        client_id=client_id,
        listener=listener,
        principal=str(principal),
        body=body,
    )
    loop, membership = broker.loop, broker.membership
    due = loop.now() + FORWARD_SECONDS
    while loop.now() < due:
        if membership.is_controller:
            context = Forwarded(broker.node_id, version, client_id, listener, principal)
            try:
                return (yield from local_answer(broker, request, context))
            except NotController:
                continue
        if membership.ask_peer is not None:
            answer = yield from _sent(broker, forward)
            if answer is not None:
                yield Waiting(partial(_wait_for, broker, answer))
                response: Response = RESPONSES[request.api.key].readers[version](answer.body, 0)[0]
                return response
        yield Waiting(partial(_pause, broker))
    raise PeerTimedOut("no controller was found in time")


def _pause(broker: Broker, finished: Finished) -> None:
    broker.loop.call_later(RETRY_SECONDS, lambda: finished(None))


def _wait_for(broker: Broker, answer: ForwardResponse, finished: Finished) -> None:
    broker.membership.view.when_applied(answer.controller_epoch, answer.position, lambda: finished(None))


def _sent(broker: Broker, forward: ForwardRequest) -> Generator[Waiting, None, ForwardResponse | None]:
    """The answer; None where there was none, and another controller may give one."""
    answers: list[Response | PeerFailure] = []

    def begin(finished: Finished) -> None:
        def answered(answer: Response | PeerFailure) -> None:
            answers.append(answer)
            finished(None)

        assert broker.membership.ask_peer is not None
        broker.membership.ask_peer.send(forward, 0, answered)

    yield Waiting(begin)
    answer = answers[0]
    return answer if isinstance(answer, ForwardResponse) and not answer.error_code else None


def create_topics(
    broker: Broker, asked: list[CreatableTopic], charge: Charge | None = None
) -> Generator[Any, None, dict[str, ApiError | None]]:
    """Have the controller create topics; for each the error, or None. REQUEST_TIMED_OUT if there is no controller."""
    if broker.membership.is_controller:
        requests = broker.topic_requests
        try:
            decided = yield from requests.create(asked) if charge is None else requests.create(asked, charge=charge)
        except NotController:
            pass  # somebody else decides now
        else:
            return {name: decision if isinstance(decision, ApiError) else None for name, decision in decided.items()}
    elif charge is not None:
        charge(len(asked) * broker.settings.config.num_partitions)
    request = CreateTopicsRequest(topics=asked, timeout_ms=int(FORWARD_SECONDS * 1000), validate_only=False)
    name = f"broker-{broker.node_id}"
    try:
        response = yield from answer_of_controller(broker, request, CREATE_TOPICS_VERSION, name, "", ANONYMOUS)
    except PeerFailure as failure:
        return {topic.name: ApiError(ErrorCode.REQUEST_TIMED_OUT, str(failure)) for topic in asked}
    return {
        topic.name: ApiError(ErrorCode(topic.error_code), topic.error_message) if topic.error_code else None
        for topic in cast("CreateTopicsResponse", response).topics
    }


def local_answer(broker: Broker, request: Request, context: Forwarded) -> Generator[Any, None, Response]:
    """The answer of this broker's own handler."""
    from ottla.broker.api_table import BY_KEY as ROUTES

    answered = ROUTES[request.api.key].load()(broker, request, cast("Context", context))
    if isinstance(answered, GeneratorType):
        answered = yield from answered
    return cast(Response, answered)


def serve_forwarded(broker: Broker, request: ForwardRequest) -> Generator[Any, None, ForwardResponse]:
    """Answer what came to another broker."""
    from ottla.broker.api_table import BY_KEY as ROUTES

    controller = broker.membership.controller
    api = BY_KEY.get(request.api_key)
    route = None if api is None else ROUTES.get(api.key)
    if controller is None:
        return ForwardResponse(error_code=ErrorCode.NOT_CONTROLLER)
    if api is None or route is None or not route.is_at_controller or not api.serves(request.api_version):
        return ForwardResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    kind, _, name = request.principal.partition(":")
    version = request.api_version
    context = Forwarded(request.broker_id, version, request.client_id, request.listener, Principal(kind, name))
    inner: Request = REQUESTS[api.key].readers[version](memoryview(request.body), 0)[0]
    try:
        response = yield from local_answer(broker, inner, context)
    except NotController:
        return ForwardResponse(error_code=ErrorCode.NOT_CONTROLLER)
    body = b"".join(bytes(part) for part in cast("list[bytes]", response.writers[version](response)))
    epoch = controller.office.epoch
    return ForwardResponse(controller_epoch=epoch, position=controller.feed.position, body=body)


def ask(broker: Broker, request: Request, version: int, answered: Answered) -> None:
    """Ask the controller for this broker itself, and call back with its answer or why there is none."""
    steps = answer_of_controller(broker, request, version, f"broker-{broker.node_id}", "", ANONYMOUS)

    def done(response: Any, failure: Exception | None) -> None:
        if failure is None:
            answered(response)
        elif isinstance(failure, PeerFailure):
            answered(failure)
        else:
            answered(PeerFailure(str(failure)))

    broker.request_slices.start(steps, done)
