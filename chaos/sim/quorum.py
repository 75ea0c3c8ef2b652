"""The quorum as a model: one log, one leader at a time, and former leaders that have not noticed yet.

The controller on each node is the production `Controller`; this plays the Raft node under it, and the part of the
heartbeat service that stands between a broker's stream and the sessions.
"""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from lograft.chaos.sim.oracle import Oracle, Violation, snapshot_bytes
from lograft.chaos.sim.world import SimulatedLoop, World
from lograft.metadata_quorum.controller import Controller
from lograft.metadata_quorum.core.apply import apply_entry
from lograft.metadata_quorum.core.config_keys import cluster_int
from lograft.metadata_quorum.core.model import ClusterState, Member
from lograft.metadata_quorum.core.snapshot import SnapshotLoader
from lograft.v1 import cluster_pb2, metadata_pb2

Answer = Callable[[object, bool], None]


class HeartbeatAnswer(NamedTuple):
    """What a broker hears. Not ``ok``: the stream is over; ``gone``: so is the incarnation."""

    ok: bool
    version: int = 0
    gone: bool = False
    hint: str | None = None


@dataclass
class _Machine:
    """What the controller sees of Raft."""

    me: Member
    members: tuple[Member, ...]
    leading: bool = False
    term: int = 0
    leader: str | None = None


@dataclass
class _Proposal:
    term: int
    payload: bytes
    answer: Answer
    # The process that waits for the answer.
    loop: SimulatedLoop


@dataclass
class _Heard:
    """When a broker was heard by a node, and when a stream of it broke: independent of the sessions."""

    arrivals: list[int] = field(default_factory=list)
    breaks: list[int] = field(default_factory=list)


class WatchedController(Controller):
    """The production controller; fences that nobody deserved are noticed."""

    def __init__(self, node: "Node") -> None:
        self._sim = node
        super().__init__(node, timeout_ms=3_000)  # type: ignore[arg-type] # a model of a RaftNode

    def _fence(self, broker_id: int, reason: str) -> None:
        self._sim.judge_fence(broker_id, reason)
        super()._fence(broker_id, reason)


class Node:
    """One quorum node."""

    def __init__(self, quorum: "Quorum", name: str, members: tuple[Member, ...]) -> None:
        self.quorum, self.world, self.name = quorum, quorum.world, name
        self.machine = _Machine(next(member for member in members if member.name == name), members)
        self.state = ClusterState()
        self.standing_still = False
        self.on_step: list[Callable[[], None]] = []
        self.pending: list[_Proposal] = []
        self.loop = SimulatedLoop(self.world)  # type: ignore[abstract] # only what the controller uses
        self.controller = self._new_controller()
        # Broker, its epoch, and the controller's epoch in which the stream was entered; None if it is over.
        self._streams: dict[int, tuple[int, int, int] | None] = {}
        self._heard: dict[int, _Heard] = {}

    def _new_controller(self) -> WatchedController:
        asyncio._set_running_loop(self.loop)
        try:
            return WatchedController(self)
        finally:
            asyncio._set_running_loop(None)

    def restart(self) -> None:
        """The process dies and is back at once, with its state read from its snapshot."""
        self.world.say(f"{self.name} restarts")
        self.loop.dead = True
        reader = SnapshotLoader()
        reader.add(snapshot_bytes(self.state))
        self.state = reader.finish()
        self.on_step.clear()
        self._streams.clear()
        self._heard.clear()
        self.loop = SimulatedLoop(self.world)  # type: ignore[abstract] # only what the controller uses
        self.controller = self._new_controller()

    def look(self) -> None:
        """Raft has made a step."""
        for call in self.on_step:
            call()

    def propose(self, tag: bytes, payload: bytes, answer: Answer) -> None:
        """What `RaftNode.propose` does."""
        del tag
        if not self.machine.leading:
            answer(None, False)
            return
        self.quorum.propose(self, _Proposal(self.machine.term, payload, answer, self.loop))

    def apply_up_to(self, version: int) -> None:
        """Apply committed entries."""
        if self.state.version >= version:
            return
        while self.state.version < version:
            self.quorum.apply_next(self.state)
        self.quorum.oracle.same(self.name, self.state)

    # What the services do

    def receive(self, call: Callable[[], None]) -> None:
        """A message has arrived; it is looked at when the process runs."""
        self.loop.run_later(0, call)

    def execute(self, operation: cluster_pb2.Operation, reply: Callable[[metadata_pb2.ChangeResult], None]) -> None:
        """`ControllerService.Execute` with one operation."""

        loop = self.loop

        def told(result: metadata_pb2.ChangeResult) -> None:
            if not loop.dead:
                self.quorum.oracle.answered(operation.command_id, result)
                reply(result)

        self.controller.submit(operation, told)

    def heartbeat_arrives(self, stream: int, request: cluster_pb2.HeartbeatRequest) -> None:
        """For the judge: the message is at this machine, whether or not its process runs."""
        if stream not in self._streams or self._streams[stream] is not None:
            self._heard.setdefault(request.broker_id, _Heard()).arrivals.append(self.world.now_ms)

    def heartbeat(self, stream: int, request: cluster_pb2.HeartbeatRequest) -> HeartbeatAnswer:
        """`ControllerService.Heartbeat`, one message of a stream; as `services.py` does it."""
        if stream in self._streams and self._streams[stream] is None:
            return HeartbeatAnswer(False)
        controller = self.controller
        if not controller.active:
            self.end_stream(stream)
            leader = self.machine.leader
            return HeartbeatAnswer(False, hint=None if leader is None else leader.partition(":")[0])
        broker = self.state.brokers.get(request.broker_id)
        if broker is None or broker.broker_epoch != request.broker_epoch:
            self.end_stream(stream)
            return HeartbeatAnswer(False, gone=broker is None or broker.broker_epoch > request.broker_epoch)
        session = (request.broker_id, request.broker_epoch)
        entered = (*session, controller.epoch)
        if self._streams.get(stream) != entered:
            self._streams[stream] = entered
            controller.sessions.opened(*session, self.world.now_ms)
        controller.sessions.heartbeat(*session, request.version, request.ready, self.world.now_ms)
        if broker.fenced:
            controller.unfence_ready()
        return HeartbeatAnswer(True, self.state.version)

    def end_stream(self, stream: int) -> None:
        """A stream is over, from either side."""
        session = self._streams.get(stream)
        self._streams[stream] = None
        if session is not None:
            broker_id, broker_epoch, epoch = session
            self._heard.setdefault(broker_id, _Heard()).breaks.append(self.world.now_ms)
            if epoch == self.controller.epoch:
                self.controller.sessions.disconnected(broker_id, broker_epoch, self.world.now_ms)
                self.controller.session_broken()

    def judge_fence(self, broker_id: int, reason: str) -> None:
        """Nobody is fenced whose heartbeats arrived in time."""
        now, heard = self.world.now_ms, self._heard.get(broker_id, _Heard())
        timeout = cluster_int(self.state, "broker.session.timeout.ms")
        since = max(now - 2 * timeout, self.quorum.claimed_at_ms.get(self.controller.epoch, 0))
        times = [since, *(moment for moment in heard.arrivals if moment > since), now]
        steady = all(later - earlier <= timeout // 2 for earlier, later in itertools.pairwise(times))
        broken = any(moment >= since - timeout for moment in heard.breaks)
        self.world.say(f"{self.name} fences broker {broker_id}: {reason}")
        if steady and not broken:
            raise Violation(f"broker {broker_id} is fenced ({reason}) although it was heard at {times}")


class Quorum:
    """The nodes, the log, and who leads."""

    def __init__(self, world: World, oracle: Oracle, size: int = 3) -> None:
        self.world, self.oracle = world, oracle
        self.log: list[tuple[int, metadata_pb2.MetadataEntry]] = []
        self.term = 0
        self.leader: Node | None = None
        self.claimed_at_ms: dict[int, int] = {}
        members = tuple(Member(f"q{n}", f"directory-{n}", f"127.0.0.1:{n + 1}") for n in range(size))
        self.nodes = {member.name: Node(self, member.name, members) for member in members}
        for node in self.nodes.values():
            self._follow(node)

    def apply_next(self, state: ClusterState) -> list[metadata_pb2.ChangeResult]:
        """The next entry of the log; everybody gets the same results."""
        term, entry = self.log[state.version]
        version = state.version + 1
        results = apply_entry(state, entry, version=version, term=term)
        if results != self.oracle.results[version - 1]:
            raise Violation(f"entry {version} had other results: {results}")
        return results

    def elect(self, node: Node) -> None:
        """Another term. What the former leader had on its way is in the log before it, or lost."""
        self.term += 1
        former, self.leader = self.leader, node
        self.world.say(f"{node.name} leads in term {self.term}")
        if former is not None:
            survives = self.world.faults.randint(0, len(former.pending))
            for proposal in former.pending[:survives]:
                self._append(proposal)
            lost, former.pending = former.pending[survives:], []
            if former is not node:
                for proposal in lost:
                    self._late_or_lost(former, proposal)
                # It goes on for a while, as if nothing had happened.
                delay = 0 if self.world.calm else self.world.faults.choice((0, 5, 100, 1_500))
                self.world.at(delay, lambda: self._depose(former))
        node.machine.term, node.machine.leading = self.term, True
        node.machine.leader = f"{node.machine.me.name}:{node.machine.me.directory_id}"
        for other in self.nodes.values():
            if not other.machine.leading:
                other.machine.leader, other.machine.term = node.machine.leader, self.term
        node.look()

    def _depose(self, node: Node) -> None:
        if node is not self.leader and node.machine.leading:
            node.machine.leading = False
            node.machine.leader = None if self.leader is None else self.leader.machine.leader
            node.machine.term = self.term
            node.look()

    def propose(self, node: Node, proposal: _Proposal) -> None:
        """On its way into the log."""
        if node is not self.leader or proposal.term != self.term:
            self._late_or_lost(node, proposal)
            return
        node.pending.append(proposal)
        slow = not self.world.calm and self.world.network.random() < 0.05
        delay = self.world.network.randint(100, 700) if slow else self.world.network.randint(1, 10)
        node.loop.run_later(delay, lambda: self._commit(node, proposal))

    def _commit(self, node: Node, proposal: _Proposal) -> None:
        # In order: an earlier proposal that is late takes this one with it.
        while proposal in node.pending:
            first = node.pending.pop(0)
            results = self._append(first)
            node.apply_up_to(len(self.log))
            first.answer(results, True)
            node.look()

    def _append(self, proposal: _Proposal) -> list[metadata_pb2.ChangeResult]:
        entry = metadata_pb2.MetadataEntry.FromString(proposal.payload)
        results = self.oracle.commit(entry, self.term)
        self.log.append((self.oracle.truth.term, entry))
        self.claimed_at_ms.setdefault(self.oracle.truth.controller_epoch, self.world.now_ms)
        kinds = [change.WhichOneof("kind") for change in entry.changes]
        refused = [result.rejected.message for result in results if result.HasField("rejected")]
        self.world.say(f"entry {len(self.log)} of {entry.controller_epoch}: {kinds} {refused or ''}")
        return results

    def _late_or_lost(self, node: Node, proposal: _Proposal) -> None:
        """Of a leader that is over. Raft would never let it in behind a newer term; `apply` must not count on that."""
        chance = self.world.faults.random()
        if chance < 0.3:
            self.world.at(self.world.faults.randint(50, 1_500), lambda: self._append_late(proposal))
        elif chance < 0.6:
            proposal.loop.run_later(self.world.faults.randint(1, 1_000), lambda: self._discarded(node, proposal))

    def _append_late(self, proposal: _Proposal) -> None:
        epoch = metadata_pb2.MetadataEntry.FromString(proposal.payload).controller_epoch
        # Before the new leader has claimed its epoch the entry would still count: there Raft alone decides.
        if epoch < self.oracle.truth.controller_epoch:
            self._append(proposal)

    def _discarded(self, node: Node, proposal: _Proposal) -> None:
        """The library tells a proposer for certain that its entry is gone: once it knows of the other leader."""
        if not node.machine.leading or node.machine.term != proposal.term:
            proposal.answer(None, False)

    def _follow(self, node: Node) -> None:
        """A follower applies what is committed, sometimes late."""

        def step() -> None:
            if node is not self.leader and not node.machine.leading:
                missing = len(self.log) - node.state.version
                upto = missing if self.world.calm else self.world.network.randint(0, missing)
                node.apply_up_to(node.state.version + upto)
            self.world.at(self.world.network.randint(5, 60), step)

        self.world.at(10, step)

    def crash(self, node: Node) -> None:
        """A quorum node restarts; if it led, what it had on its way is as in any other change of leaders."""
        led = node is self.leader
        node.machine.leading = False
        node.restart()
        node.machine.leader = None if led or self.leader is None else self.leader.machine.leader
        if led:
            others = [other for other in self.nodes.values() if other is not node]
            self.elect(self.world.faults.choice(others))
