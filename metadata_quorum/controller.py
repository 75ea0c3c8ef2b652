"""The cluster's one controller: what runs on the quorum node that leads.

It claims its epoch in the log before it does anything. Operations queue up; whenever no entry is on its way, all that
are waiting are decided on the state as it is, committed as one entry, and answered with what `apply` said. So decisions
never guess what an entry in flight will do, a thousand callers share a sync, and a controller that was replaced without
knowing it can answer nothing, not even a refusal: refusals too are sent only after an entry of its own was committed.

Runs on the event loop; pure decisions are in `core`.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from lograft.contract.errors import (
    LogError,
    MembershipRefused,
    MetadataOutcomeUnknown,
    NotController,
    to_detail,
)
from lograft.contract.ids import random_id
from lograft.metadata_quorum.core import brokers, drains, moves
from lograft.metadata_quorum.core.config_keys import cluster_bool, cluster_int
from lograft.metadata_quorum.core.decide import Context, decide
from lograft.metadata_quorum.core.liveness import Sessions, unfence_candidates
from lograft.metadata_quorum.core.model import Credential, Member
from lograft.metadata_quorum.identity import members_to_proto
from lograft.metadata_quorum.journal import MEMBERS, METADATA
from lograft.metadata_quorum.raft_node import RaftNode
from lograft.v1 import cluster_pb2, metadata_pb2

_logger = logging.getLogger(__name__)
# An entry is closed when it has this many changes or bytes; the rest waits for the next. Deciding and applying more in
# one step would keep heartbeats waiting.
_MAX_CHANGES = 512
_MAX_BYTES = 4 << 20
# Beyond so many waiting operations callers are told to come back later.
MAX_WAITING = 100_000
_LOOK_AROUND_S = 0.05
DEFAULT_TIMEOUT_MS = 10_000

Decision = metadata_pb2.Change | LogError
OnResult = Callable[[metadata_pb2.ChangeResult], None]


@dataclass(slots=True)
class _Waiting:
    """Something to be decided, and who wants to know."""

    decide: Callable[[], Decision]
    on_result: OnResult
    # By the event loop's clock: after it the caller is told that the outcome is unknown.
    deadline: float


class Controller:
    """Leads the cluster while its node leads the quorum."""

    def __init__(self, node: RaftNode, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self.timeout_ms = timeout_ms
        self.sessions = Sessions()
        # The epoch in which this node is the active controller; 0 if it is not.
        self.epoch = 0
        self._claiming = 0
        self._waiting: deque[_Waiting] = deque()
        self._in_flight: list[_Waiting] = []
        self._fencing: set[int] = set()
        self._unfencing: set[int] = set()
        self._placed = 0
        self._balanced_at = 0.0
        self._changing_members = False
        self._members_future: asyncio.Future[None] | None = None
        self._holders = 0
        node.on_step.append(self.look)
        self._timer = self._loop.call_later(_LOOK_AROUND_S, self._look_around)
        self._closed = False

    @property
    def active(self) -> bool:
        """Whether this node is the controller, as far as it knows."""
        return self.epoch != 0 and self._node.machine.leading and not self._node.standing_still

    def close(self) -> None:
        """Stop looking around."""
        self._closed = True
        self._timer.cancel()
        self._resign()

    # Leadership

    def look(self) -> None:
        """After every step of Raft: has the leadership come or gone?"""
        if self._closed:
            return  # the process is about to end: a claim now would only promise what it cannot keep
        machine = self._node.machine
        leads = machine.leading and not self._node.standing_still
        mine = self.epoch or self._claiming
        if mine and (not leads or mine != machine.term):
            self._resign()
        if leads and not self.epoch and not self._claiming:
            self._claim(machine.term)

    def _claim(self, term: int) -> None:
        self._claiming = term
        claim = metadata_pb2.Change(
            claim_controller=metadata_pb2.ClaimController(node=self._node.machine.me.name, cluster_id=random_id())
        )

        def claimed(results: object, applied: bool) -> None:
            if self._claiming != term:
                return
            self._claiming = 0
            if not applied or not isinstance(results, list) or results[0].HasField("rejected"):
                return
            self.epoch = term
            self.sessions.reset(self._node.state.brokers, now_ms())
            self._fencing.clear()
            self._unfencing.clear()
            _logger.info("%s is the controller, epoch %d", self._node.machine.me.name, term)
            if not self._node.state.members:
                # From now on the log says who votes, also to nodes and watchers that come later.
                self._propose_members(self._node.machine.members)
            self._pump()

        self._node.propose(METADATA, _entry(term, [claim]), claimed)

    def _resign(self) -> None:
        if self.epoch:
            _logger.info("%s is not the controller any more", self._node.machine.me.name)
        self.epoch = self._claiming = 0
        unknown, self._in_flight = self._in_flight, []
        waiting, self._waiting = self._waiting, deque()
        for item in unknown:
            item.on_result(_rejected(MetadataOutcomeUnknown(self.timeout_ms)))
        for item in waiting:
            item.on_result(_rejected(self.not_controller()))
        if self._members_future is not None and not self._members_future.done():
            self._members_future.set_exception(MetadataOutcomeUnknown(self.timeout_ms))
        # Its answer may never come. Before this node may change the voters again, its claim is committed, and with it
        # whatever became of the change.
        self._members_future, self._changing_members = None, False

    def not_controller(self) -> NotController:
        """What to answer if this node is not the controller: who is."""
        machine = self._node.machine
        leader = machine.leader
        if leader is None or leader == f"{machine.me.name}:{machine.me.directory_id}":
            return NotController(machine.me.name)
        name = leader.partition(":")[0]
        address = next((m.address for m in machine.members if m.name == name), None)
        return NotController(machine.me.name, name, address)

    # Operations

    def submit(
        self, operation: cluster_pb2.Operation, on_result: OnResult, credential: Credential | None = None
    ) -> None:
        """Do an operation. ``on_result`` is called exactly once, when it is committed, rejected, or given up."""
        if not self.active:
            on_result(_rejected(self.not_controller()))
            return
        if len(self._waiting) >= MAX_WAITING:
            on_result(_rejected(NotController(self._node.machine.me.name)))
            return
        self._add(lambda: self._decide(operation, credential), on_result)

    def _add(self, decision: Callable[[], Decision], on_result: OnResult, *, urgent: bool = False) -> None:
        item = _Waiting(decision, on_result, self._loop.time() + self.timeout_ms / 1000)
        if urgent:
            self._waiting.appendleft(item)
        else:
            self._waiting.append(item)
        if not self._in_flight:
            self._loop.call_soon(self._pump)

    def _decide(self, operation: cluster_pb2.Operation, credential: Credential | None) -> Decision:
        self._placed += 1
        context = Context(
            now_ms=int(time.time() * 1000),
            new_id=random_id(),
            start=self._placed,
            alive=frozenset(self.sessions.alive_brokers(now_ms())),
            credential=credential,
        )
        return decide(self._node.state, operation, context)

    def _pump(self) -> None:
        """Commit what is waiting, if nothing is on its way."""
        if self._in_flight or not self._waiting or not self.active or self._changing_members or self._holders:
            return
        changes: list[metadata_pb2.Change] = []
        # Which change each of them waits for; a refusal waits for the whole entry.
        answers: list[tuple[_Waiting, int | metadata_pb2.ChangeResult]] = []
        size = 0
        while self._waiting and len(changes) < _MAX_CHANGES and size < _MAX_BYTES:
            item = self._waiting.popleft()
            decision = item.decide()
            if isinstance(decision, LogError):
                answers.append((item, _rejected(decision)))
            else:
                answers.append((item, len(changes)))
                changes.append(decision)
                size += decision.ByteSize()
        if not changes:
            changes.append(metadata_pb2.Change(barrier=metadata_pb2.Barrier()))
        self._in_flight = [item for item, _ in answers]
        epoch = self.epoch

        def committed(results: object, applied: bool) -> None:
            if self.epoch != epoch:
                return  # resigned meanwhile: everybody has been told that the outcome is unknown
            self._in_flight = []
            if not applied or not isinstance(results, list):
                for item, _ in answers:
                    item.on_result(_rejected(self.not_controller()))
            else:
                for item, answer in answers:
                    item.on_result(results[answer] if isinstance(answer, int) else answer)
            self._pump()

        self._node.propose(METADATA, _entry(epoch, changes), committed)

    # Sessions, and what the controller does by itself

    def _look_around(self) -> None:
        if self._closed:
            return
        self._timer = self._loop.call_later(_LOOK_AROUND_S, self._look_around)
        self._give_up_late_ones()
        if not self.active:
            return
        now = now_ms()
        state = self._node.state
        self.sessions.configure(
            session_timeout_ms=cluster_int(state, "broker.session.timeout.ms"),
            grace_ms=cluster_int(state, "broker.reconnect.grace.ms"),
        )
        for broker_id, reason in self.sessions.expired(now):
            broker = state.brokers.get(broker_id)
            if broker is not None and not broker.fenced and broker_id not in self._fencing:
                self._fence(broker_id, reason)
        self.unfence_ready()
        self._balance()

    def session_broken(self) -> None:
        """A heartbeat stream has ended: look again when the grace is over, not at the next round."""
        grace_s = cluster_int(self._node.state, "broker.reconnect.grace.ms") / 1000
        self._loop.call_later(grace_s + 0.001, self._expire_now)

    def _expire_now(self) -> None:
        if not self._closed:
            self._timer.cancel()
            self._look_around()

    def _fence(self, broker_id: int, reason: str) -> None:
        self._fencing.add(broker_id)
        _logger.warning("broker %d is fenced: %s", broker_id, reason)

        def fenced(result: metadata_pb2.ChangeResult) -> None:
            self._fencing.discard(broker_id)
            if result.HasField("rejected"):
                _logger.info("fencing broker %d is decided again: %s", broker_id, result.rejected.message)

        self._add(lambda: brokers.fence(self._node.state, broker_id, reason), fenced, urgent=True)

    def unfence_ready(self) -> None:
        """Let brokers lead that have caught up with the metadata."""
        state = self._node.state
        for broker_id in unfence_candidates(state, self.sessions, now_ms()):
            if broker_id not in self._unfencing:
                self._unfencing.add(broker_id)
                self._add(partial(self._decide_unfence, broker_id), partial(self._unfenced, broker_id))

    def _decide_unfence(self, broker_id: int) -> Decision:
        return brokers.unfence(self._node.state, broker_id)

    def _unfenced(self, broker_id: int, _: metadata_pb2.ChangeResult) -> None:
        self._unfencing.discard(broker_id)

    def _balance(self) -> None:
        """Drains and preferred leaders, when nothing else is waiting."""
        state = self._node.state
        if self._waiting or self._in_flight:
            return
        limit = cluster_int(state, "max.concurrent.moves")
        todo: Iterable[metadata_pb2.Change] = [
            *moves.completed_moves(state, limit=limit),
            *drains.next_drain_moves(state, limit=limit),
        ]
        interval_s = cluster_int(state, "leader.imbalance.check.interval.ms") / 1000
        if self._loop.time() - self._balanced_at >= interval_s and cluster_bool(state, "auto.leader.rebalance.enable"):
            self._balanced_at = self._loop.time()
            todo = [*todo, *moves.preferred_elections(state, limit=1_000)]
        for change in todo:
            self._add(partial(_decided, change), _ignore)

    def _give_up_late_ones(self) -> None:
        now = self._loop.time()
        late = [item for item in self._in_flight if item.deadline <= now]
        for item in late:
            item.on_result(_rejected(MetadataOutcomeUnknown(self.timeout_ms)))
            item.on_result = _ignore
            item.deadline = float("inf")
        while self._waiting and self._waiting[0].deadline <= now:
            self._waiting.popleft().on_result(_rejected(self.not_controller()))

    # The quorum's voters

    @asynccontextmanager
    async def calm(self) -> AsyncIterator[None]:
        """Nothing is on its way inside, and what comes waits: under load it would never be so by itself.

        Raises `NotController` if this node does not lead any more.
        """
        self._holders += 1
        try:
            while self._changing_members or self._in_flight:  # noqa: ASYNC110 - rare and short
                await asyncio.sleep(0.001)
            if not self.active:
                raise self.not_controller()
            yield
        finally:
            self._holders -= 1
            self._pump()

    async def change_members(self, members: tuple[Member, ...]) -> None:
        """Commit new voters. One change at a time; waits until it is committed."""
        async with self.calm():
            # The caller looked at the voters some time ago, and another leader may have changed them since. Two changes
            # in one step could make two majorities that do not know each other.
            if len(set(members) ^ set(self._node.machine.members)) > 1:
                raise MembershipRefused("the members have changed meanwhile: look at them, and try again")
            committed = self._propose_members(members)
        try:
            await asyncio.wait_for(asyncio.shield(committed), self.timeout_ms / 1000)
        except TimeoutError:
            raise MetadataOutcomeUnknown(self.timeout_ms) from None

    def _propose_members(self, members: tuple[Member, ...]) -> asyncio.Future[None]:
        self._changing_members = True
        future: asyncio.Future[None] = self._loop.create_future()
        future.add_done_callback(lambda f: f.cancelled() or f.exception())
        self._members_future = future

        def changed(results: object, applied: bool) -> None:
            if self._members_future is not future:
                return  # of an earlier leadership; another change may be on its way
            self._changing_members = False
            if not future.done():
                if applied and isinstance(results, list) and not results[0].HasField("rejected"):
                    future.set_result(None)
                else:
                    future.set_exception(self.not_controller())
            self._pump()

        change = metadata_pb2.Change(
            set_quorum_members=metadata_pb2.SetQuorumMembers(members=members_to_proto(members))
        )
        self._node.propose(MEMBERS, _entry(self.epoch, [change]), changed)
        return future


def _entry(epoch: int, changes: list[metadata_pb2.Change]) -> bytes:
    return metadata_pb2.MetadataEntry(controller_epoch=epoch, changes=changes).SerializeToString()


def _rejected(error: LogError) -> metadata_pb2.ChangeResult:
    return metadata_pb2.ChangeResult(rejected=to_detail(error))


def _decided(change: metadata_pb2.Change) -> Decision:
    return change


def _ignore(_: metadata_pb2.ChangeResult) -> None:
    """Nobody waits for it."""


def now_ms() -> int:
    """The one clock of sessions: whoever tells them a time reads it here."""
    return int(time.monotonic() * 1000)
