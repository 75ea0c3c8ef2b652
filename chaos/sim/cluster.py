"""A whole run: brokers, quorum and operator under faults, then quiet, then everything must be well again."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from lograft.chaos.sim.broker import Brokers
from lograft.chaos.sim.operator import Operator
from lograft.chaos.sim.oracle import Oracle, Violation
from lograft.chaos.sim.quorum import Quorum
from lograft.chaos.sim.world import World
from lograft.metadata_quorum import controller as controller_module
from lograft.metadata_quorum.core import drains, moves
from lograft.metadata_quorum.core.model import PartitionKey
from lograft.v1 import cluster_pb2

_STORMY_MS = 12_000
_QUIET_MS = 12_000
# What a drain may wait for when nothing happens any more.
_GOOD_REASONS = ("a broker that can take it", "a leader", "(min.insync.replicas)")


class Failed(AssertionError):
    """A run broke a promise; says how to see it again."""


def run(seed: int, *, stormy_ms: int = _STORMY_MS) -> Oracle:
    """One cluster's life. Raises `Failed` with the last events if anything was not as promised."""
    world = World(seed)
    with _simulated(world):
        simulation = _Simulation(world)
        try:
            simulation.live(stormy_ms)
        except Exception as problem:
            events = "\n".join(world.trace)
            command = f"LOGRAFT_TEST_SEED={seed} pytest tests/simulation/test_controller_simulation.py"
            raise Failed(f"seed {seed}: {problem!r}\n{events}\nrepeat: {command}") from problem
        finally:
            for node in simulation.quorum.nodes.values():
                node.loop.dead = True
        return simulation.oracle


@contextmanager
def _simulated(world: World) -> Iterator[None]:
    """The controller's clock and ids come from the world."""

    class Clock:
        @staticmethod
        def time() -> float:
            return 1_700_000_000 + world.now_ms / 1000

        @staticmethod
        def monotonic() -> float:
            # Whole milliseconds, in spite of the division.
            return (world.now_ms + 0.5) / 1000

    logger = logging.getLogger(controller_module.__name__)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with (
            patch.object(controller_module, "time", Clock),
            patch.object(controller_module, "random_id", world.fresh_id),
        ):
            yield
    finally:
        logger.setLevel(level)


class _Simulation:
    def __init__(self, world: World) -> None:
        self.world, self.oracle = world, Oracle()
        self.quorum = Quorum(world, self.oracle)
        self.brokers = Brokers(world, self.quorum, self.oracle)
        self.broker_ids = range(1, 1 + world.load.randint(3, 5))

    def live(self, stormy_ms: int) -> None:
        """Storm, then quiet, then the last look."""
        world = self.world
        self.quorum.elect(self.quorum.nodes["q0"])
        for broker_id in self.broker_ids:
            self.brokers.start(broker_id)
        self._until(world.now_ms + 600)
        Operator(world, self.quorum, self.broker_ids)
        world.at(500, self._fault)
        self._until(world.now_ms + stormy_ms)
        self._heal()
        self._until(world.now_ms + _QUIET_MS)
        self._last_look()

    def _until(self, end_ms: int) -> None:
        while self.world.now_ms < end_ms:
            self.world.step()

    # Faults: each carries its own end

    def _fault(self) -> None:
        if self.world.calm:
            return
        dice = self.world.faults
        self.world.at(dice.randint(50, 700), self._fault)
        broker_id = dice.choice(self.broker_ids)
        process = self.brokers.processes[broker_id]
        node = self.quorum.nodes[dice.choice(sorted(self.quorum.nodes))]
        match dice.choices(range(7), (4, 3, 3, 4, 3, 2, 2))[0]:
            case 0:
                if process.alive:
                    process.crash()
                    self._return(broker_id, wiped=dice.random() < 0.15)
            case 1:
                if process.alive and not process.stopping:
                    process.stop()
                    self._return(broker_id, wiped=dice.random() < 0.05)
            case 2:
                length = dice.choice((100, 800, 2_500, 5_000))
                self.world.say(f"broker {broker_id} stands still for {length}")
                process.frozen_until_ms = self.world.now_ms + length
            case 3:
                self._cut(process.name)
            case 4:
                self.quorum.elect(node)
            case 5:
                length = dice.choice((50, 300, 600, 2_500))
                self.world.say(f"{node.name} stands still for {length}")
                node.loop.paused_until_ms = self.world.now_ms + length
            case _:
                self.quorum.crash(node)

    def _return(self, broker_id: int, *, wiped: bool) -> None:
        """A machine that is down comes back."""

        def back() -> None:
            if self.brokers.processes[broker_id].alive:
                self.world.at(100, back)
                return
            if wiped:
                self.brokers.wipe(broker_id)
            self.brokers.start(broker_id)

        self.world.at(self.world.faults.choice((50, 500, 1_500, 4_000)), back)

    def _cut(self, name: str) -> None:
        """Some links of a broker, one way or both."""
        dice = self.world.faults
        others = [*self.quorum.nodes, *(other.name for other in self.brokers.processes.values() if other.name != name)]
        cut = set()
        for other in dice.sample(others, dice.randint(1, len(others))):
            cut |= set(dice.choice([[(name, other)], [(other, name)], [(name, other), (other, name)]]))
        self.world.say(f"cut {sorted(cut)}")
        self.world.cut |= cut

        def mend() -> None:
            self.world.cut -= cut

        self.world.at(dice.choice((200, 1_000, 4_000)), mend)

    # The end

    def _heal(self) -> None:
        self.world.say("quiet from here on")
        self.world.calm = True
        self.world.cut.clear()
        for node in self.quorum.nodes.values():
            node.loop.paused_until_ms = 0
        for process in self.brokers.processes.values():
            process.frozen_until_ms = 0
        self._revive()

    def _revive(self) -> None:
        """A supervisor: who has exited, because it was told that it is over, is started again."""
        for broker_id, process in list(self.brokers.processes.items()):
            if not process.alive and self.world.now_ms % 7 == 0:
                self.brokers.start(broker_id)
        self.world.at(53, self._revive)

    def _last_look(self) -> None:
        truth = self.oracle.truth
        active = [node for node in self.quorum.nodes.values() if node.controller.active]
        if len(active) != 1 or active[0].controller.epoch != truth.controller_epoch:
            raise Violation(f"controllers at the end: {[(node.name, node.controller.epoch) for node in active]}")
        for broker_id in self.broker_ids:
            broker, process = truth.brokers.get(broker_id), self.brokers.processes[broker_id]
            if broker is None or broker.fenced or broker.broker_epoch != process.broker_epoch:
                raise Violation(f"broker {broker_id} did not come back: {broker}, {process.broker_epoch}")
            if len(self.quorum.log) - process.view.version > 20:
                raise Violation(f"broker {broker_id} is at {process.view.version} of {len(self.quorum.log)}")
            self._look_at_drain(broker_id)
        for topic in truth.topics.values():
            for number in range(len(topic.partitions)):
                self._look_at_partition(PartitionKey(topic.topic_id, number))

    def _look_at_drain(self, broker_id: int) -> None:
        described = drains.describe_drain(self.oracle.truth, broker_id)
        if not isinstance(described, cluster_pb2.DescribeDrainResponse):
            raise Violation(f"nothing is known of the drain of broker {broker_id}: {described}")
        for waiting in described.partitions:
            if not any(reason in waiting.waiting_for for reason in _GOOD_REASONS):
                raise Violation(f"broker {broker_id} is not empty: {waiting}")

    def _look_at_partition(self, key: PartitionKey) -> None:
        truth = self.oracle.truth
        partition = truth.partition(key)
        if partition is None:
            raise Violation(f"{key} is gone")
        if partition.leader is None:
            if partition.in_sync or partition.eligible:
                raise Violation(f"{key} has no leader: {partition}")
            return
        missing = [
            replica
            for replica in partition.replicas
            if replica not in partition.in_sync and not truth.brokers[replica].draining
        ]
        if missing:
            raise Violation(f"{key}: {missing} did not come into sync: {partition}")
        if partition.moving:
            waiting = [move.waiting_for for move in moves.list_moves(truth) if move.partition == key.partition]
            if not any("draining" in reason or "min.insync" in reason for reason in waiting):
                raise Violation(f"{key} is still on its move: {partition}, {waiting}")
        leader = self.brokers.processes[partition.leader]
        lead, records = leader.leads.get(key), leader.disk.logs[key].records
        if lead is None or lead.epoch != partition.leader_epoch:
            raise Violation(f"broker {partition.leader} does not lead {key}")
        if key not in self.oracle.tainted and len(records) < self.oracle.committed(key):
            raise Violation(f"{key}: committed records are gone at the end")
