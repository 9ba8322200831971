"""The store as steps of work see it: they ask, and go on with the answer."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TypeVar

from ottla.broker.loop.slices import Finished, Waiting
from ottla.controller.store import Answer, Node, NodeMissing, Operation, Store, StoreError

T = TypeVar("T")


def _answer(ask: Callable[[Answer[T]], None]) -> Generator[Waiting, None, T]:
    answers: list[T] = []

    def begin(finished: Finished) -> None:
        def answered(answer: T | StoreError) -> None:
            if isinstance(answer, StoreError):
                finished(answer)
            else:
                answers.append(answer)
                finished(None)

        ask(answered)

    yield Waiting(begin)
    return answers[0]


def node_at(store: Store, path: str) -> Generator[Waiting, None, Node | None]:
    """None where there is none."""
    try:
        node: Node = yield from _answer(partial(store.get, path))
    except NodeMissing:
        return None
    return node


def all_nodes(store: Store) -> Generator[Waiting, None, dict[str, Node]]:
    nodes: dict[str, Node] = yield from _answer(partial(store.tree, ""))
    return nodes


def committed(
    store: Store, operations: Iterable[Operation], *, is_vital: bool = False
) -> Generator[Waiting, None, None]:
    yield Waiting(lambda finished: store.commit(operations, finished, is_vital=is_vital))
