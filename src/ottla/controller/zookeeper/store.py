"""A store in ZooKeeper: a cluster over several machines."""

from __future__ import annotations

from collections.abc import Callable

from ottla.controller.store import Changed, StoreError, Watch
from ottla.controller.threaded_store import ThreadedStore, Worker
from ottla.controller.zookeeper.address import ZookeeperAddress
from ottla.controller.zookeeper.nodes import NodeWatcher, ZookeeperNodes


class ZookeeperStore(ThreadedStore[ZookeeperNodes]):
    def __init__(
        self,
        address: ZookeeperAddress,
        worker: Worker,
        post: Callable[[Callable[[], None]], None],
        *,
        session_timeout_seconds: float,
    ) -> None:
        """`post` calls on the loop, and may be called from any thread."""
        told = NodeWatcher(
            changed=lambda path: post(lambda: self._arm(path)),
            connected=lambda: post(self._arm_all),
            lost_session=lambda: post(self._tell_of_lost_sessions),
        )
        super().__init__(lambda: ZookeeperNodes(address, session_timeout_seconds, told), worker)
        self.max_commit_bytes = address.max_commit_bytes
        self._arming: dict[str, bool] = {}  # and whether that has to be done again

    def look(self) -> None:
        """ZooKeeper tells by itself."""

    # A watch of ZooKeeper's is told once. It is armed anew before its user is told, so that what changes while the
    # user reads is told again.

    def watch(self, path: str, changed: Changed) -> Watch:
        watch = super().watch(path, changed)
        self._arm(path)
        return watch

    def _arm_all(self) -> None:
        for path in list(self._watches):
            self._arm(path)

    def _arm(self, path: str) -> None:
        if self._is_over or path not in self._watches:
            return
        if path in self._arming:
            self._arming[path] = True  # what was armed a moment ago has been told already
            return
        self._arming[path] = False

        def armed(failure: StoreError | None) -> None:
            is_told = self._arming.pop(path)
            if failure is not None:
                return  # there is no connection, and with the next one all are armed
            if is_told:
                self._arm(path)
            self._tell([path])

        self._ask(lambda nodes: nodes.arm(path), armed)

    def abandon(self) -> None:
        if self._nodes is not None:
            self._nodes.interrupt()
        super().abandon()
