"""Brokers as a model: they register, send heartbeats, follow the metadata with a lag, lead, follow, crash and return.

Replication is cut down to what the metadata promises are about: logs as lists, acknowledgements with the flushed end,
a high watermark over the maximal in-sync set. A broker acts on nothing before it has seen its own registration: an
older view could make it follow a leader that is over, and cut what only it still holds.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from lograft.chaos.sim.oracle import Grant, Oracle, Record
from lograft.chaos.sim.quorum import HeartbeatAnswer, Node, Quorum
from lograft.chaos.sim.world import World
from lograft.metadata_quorum.core import config_keys
from lograft.metadata_quorum.core.model import ClusterState, Partition, PartitionKey
from lograft.v1 import cluster_pb2, metadata_pb2

_ANSWER_TIMEOUT_MS = 500
# A follower that was behind for so long is dropped from the in-sync set.
_LAG_MS = 600


@dataclass
class Replica:
    """The log of one replica on one disk."""

    records: list[Record] = field(default_factory=list)
    flushed: int = 0


@dataclass
class Disk:
    """What outlives a process."""

    directory_id: str
    logs: dict[PartitionKey, Replica] = field(default_factory=dict)
    clean_stop_epoch: int | None = None
    # The incarnation that wrote it last has left things that were not synced.
    running: bool = False


@dataclass
class _Lead:
    """A partition while this broker leads it."""

    epoch: int
    # Where the log ended when the epoch began: who does not reach it may miss committed records.
    start: int
    since_ms: int
    high_watermark: int = 0
    # Broker epoch and flushed end of each follower, in the incarnation that said so.
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    caught_up_ms: dict[int, int] = field(default_factory=dict)
    # Members of all in-sync sets asked for since this partition epoch. Any of them may still be committed, also after
    # a refusal: an earlier copy of the request may be on its way. Only another partition epoch ends that.
    asked: set[int] = field(default_factory=set)
    asked_at_epoch: int = -1
    asked_ms: int = 0


class Brokers:
    """All machines that run brokers, by id."""

    def __init__(self, world: World, quorum: Quorum, oracle: Oracle) -> None:
        self.world, self.quorum, self.oracle = world, quorum, oracle
        self.disks: dict[int, Disk] = {}
        self.processes: dict[int, Broker] = {}
        self.streams = itertools.count(1)
        self.records = itertools.count(1)

    def start(self, broker_id: int) -> None:
        """Start a broker on its machine."""
        disk = self.disks.setdefault(broker_id, Disk(self.world.fresh_id()))
        self.processes[broker_id] = Broker(self, broker_id, disk)

    def wipe(self, broker_id: int) -> None:
        """Another disk in the machine of a broker that is down."""
        self.world.say(f"broker {broker_id} gets an empty disk")
        self.disks[broker_id] = Disk(self.world.fresh_id())

    def electable(self, key: PartitionKey) -> dict[int, list[Record]]:
        """The logs of all that the metadata would elect without a further question."""
        partition = self.oracle.truth.partition(key)
        found: dict[int, list[Record]] = {}
        if partition is not None:
            for broker_id in (*partition.in_sync, *partition.eligible):
                disk = self.disks[broker_id]
                # A disk that was changed under a dead broker is found out when it registers, before it can lead.
                if disk.directory_id == self.oracle.truth.brokers[broker_id].directory_id:
                    replica = disk.logs.get(key, Replica())
                    found[broker_id] = replica.records[: replica.flushed]
        return found


class Broker:
    """One broker process, from its start to its end."""

    def __init__(self, brokers: Brokers, broker_id: int, disk: Disk) -> None:
        self.brokers, self.world, self.quorum = brokers, brokers.world, brokers.quorum
        self.broker_id, self.disk, self.name = broker_id, disk, f"b{broker_id}"
        self.incarnation_id = self.world.fresh_id()
        self.broker_epoch: int | None = None
        self.view = ClusterState()
        self.alive, self.stopping, self.frozen_until_ms = True, False, 0
        self.leads: dict[PartitionKey, _Lead] = {}
        self._ready_ms = self.world.now_ms + self.world.load.randint(0, 200)
        self._node = self._some_node()
        self._stream: int | None = None
        self._asked_ms = -10_000
        self._heard_ms = self.world.now_ms
        self._clean_stop_epoch, disk.clean_stop_epoch = disk.clean_stop_epoch, None
        self._torn = self._open_logs()
        disk.running = True
        self.world.say(f"broker {broker_id} starts, directory {disk.directory_id[:4]}")
        self._tick()

    # Life

    def crash(self) -> None:
        """Without a warning; what was not synced is gone in part."""
        self.world.say(f"broker {self.broker_id} crashes")
        self.alive = False
        if self._stream is not None and self.world.faults.random() < 0.7:
            self._close_stream()

    def stop(self) -> None:
        """In good order: ask to be fenced, then sync and go, whether or not anybody answered."""
        self.world.say(f"broker {self.broker_id} stops")
        self.stopping = True
        if self.broker_epoch is not None:
            stop = cluster_pb2.StopBrokerOperation(broker_id=self.broker_id, broker_epoch=self.broker_epoch)
            self._ask(cluster_pb2.Operation(stop_broker=stop))
        self.world.at(self.world.faults.randint(20, 400), self._exit)

    def _exit(self) -> None:
        if self.alive:
            for replica in self.disk.logs.values():
                replica.flushed = len(replica.records)
            self.disk.clean_stop_epoch, self.disk.running, self.alive = self.broker_epoch, False, False
            self._close_stream()

    @property
    def runs(self) -> bool:
        """Whether it does anything at the moment."""
        return self.alive and self.world.now_ms >= self.frozen_until_ms

    def _open_logs(self) -> list[PartitionKey]:
        """After a crash some of what was not synced is gone; says whose log was cut."""
        torn = []
        for key, replica in self.disk.logs.items():
            if self.disk.running and replica.flushed < len(replica.records):
                del replica.records[self.world.faults.randint(replica.flushed, len(replica.records)) :]
                torn.append(key)
            replica.flushed = len(replica.records)
        return torn

    def _tick(self) -> None:
        if not self.alive:
            return
        if self.runs:
            self._watch()
            if self.broker_epoch is None:
                self._register()
            else:
                self._send_heartbeat()
            me = self.view.brokers.get(self.broker_id)
            if self.broker_epoch is not None and me is not None:
                if me.broker_epoch > self.broker_epoch:
                    self.world.say(f"broker {self.broker_id} has a successor and exits")
                    self.crash()
                    return
                if me.broker_epoch == self.broker_epoch:
                    self._act()
        wait = max(self.frozen_until_ms - self.world.now_ms, 0)
        self.world.at(wait + self.world.load.randint(30, 70), self._tick)

    def _some_node(self) -> Node:
        return self.quorum.nodes[self.world.load.choice(sorted(self.quorum.nodes))]

    # Metadata

    def _watch(self) -> None:
        """Entries from some node, as far as that has them; sometimes none."""
        source = self._some_node()
        if not self.world.linked(source.name, self.name):
            return
        missing = max(source.state.version - self.view.version, 0)
        count = (
            missing if self.world.calm or self.world.network.random() < 0.6 else self.world.network.randint(0, missing)
        )
        for _ in range(count):
            self.quorum.apply_next(self.view)
        if count:
            self.brokers.oracle.same(self.name, self.view)

    def _register(self) -> None:
        if self.world.now_ms - self._asked_ms < _ANSWER_TIMEOUT_MS:
            return
        self._asked_ms = self.world.now_ms
        register = cluster_pb2.RegisterBrokerOperation(
            broker_id=self.broker_id,
            incarnation_id=self.incarnation_id,
            directory_id=self.disk.directory_id,
            endpoints=[metadata_pb2.Endpoint(name="client", host=self.name, port=9)],
            rack=("a", "b")[self.broker_id % 2],
            clean_stop_epoch=self._clean_stop_epoch,
            damaged=[cluster_pb2.DamagedReplica(topic_id=key.topic_id, partition=key.partition) for key in self._torn],
        )

        def told(result: metadata_pb2.ChangeResult) -> None:
            if result.HasField("applied") and self.broker_epoch is None:
                self.broker_epoch = result.applied.number

        # One after the other: by chance alone the controller could be missed for long.
        names = sorted(self.quorum.nodes)
        self._node = self.quorum.nodes[names[(names.index(self._node.name) + 1) % len(names)]]
        self._ask(cluster_pb2.Operation(register_broker=register), told)

    def _ask(
        self, operation: cluster_pb2.Operation, told: Callable[[metadata_pb2.ChangeResult], None] = lambda _: None
    ) -> None:
        """To the node it takes for the controller; the answer may never come."""
        node = self._node

        def answer(result: metadata_pb2.ChangeResult) -> None:
            self.world.send(node.name, self.name, lambda: told(result) if self.alive else None)

        self.world.send(self.name, node.name, lambda: node.receive(lambda: node.execute(operation, answer)))

    def _send_heartbeat(self) -> None:
        if self.world.now_ms - self._heard_ms > _ANSWER_TIMEOUT_MS:
            self._change_node(None)
        if self._stream is None:
            self._stream = next(self.brokers.streams)
        elif self.world.now_ms - self._asked_ms < 150:
            return
        self._asked_ms = self.world.now_ms
        request = cluster_pb2.HeartbeatRequest(
            broker_id=self.broker_id,
            broker_epoch=self.broker_epoch,
            version=self.view.version,
            ready=self.world.now_ms >= self._ready_ms,
        )
        node, stream = self._node, self._stream

        def handle() -> None:
            answer = node.heartbeat(stream, request)
            self.world.send(node.name, self.name, lambda: self._heartbeat_answered(stream, answer))

        def arrive() -> None:
            node.heartbeat_arrives(stream, request)
            node.receive(handle)

        self.world.send(self.name, node.name, arrive)

    def _heartbeat_answered(self, stream: int, answer: HeartbeatAnswer) -> None:
        if not self.alive or stream != self._stream:
            return
        if answer.gone:
            self.world.say(f"broker {self.broker_id} is told that it is over")
            self.crash()
        elif answer.ok:
            self._heard_ms = self.world.now_ms
        else:
            self._change_node(answer.hint)

    def _change_node(self, hint: str | None) -> None:
        self._close_stream()
        self._node = self.quorum.nodes[hint] if hint in self.quorum.nodes else self._some_node()
        self._heard_ms = self.world.now_ms

    def _close_stream(self) -> None:
        node, stream, self._stream = self._node, self._stream, None
        if stream is not None:
            self.world.send(self.name, node.name, lambda: node.receive(lambda: node.end_stream(stream)))

    # Partitions

    def _act(self) -> None:
        mine = dict(self.view.partitions_on(self.broker_id))
        for key in [key for key in self.disk.logs if key not in mine]:
            del self.disk.logs[key]
        for key, partition in mine.items():
            replica = self.disk.logs.setdefault(key, Replica())
            if partition.leader == self.broker_id:
                self._lead(key, partition, replica)
            else:
                self.leads.pop(key, None)
                if partition.leader is not None:
                    self._follow(key, partition, replica)
        for key in [key for key in self.leads if key not in mine]:
            del self.leads[key]

    def _lead(self, key: PartitionKey, partition: Partition, replica: Replica) -> None:
        lead = self.leads.get(key)
        if lead is None or lead.epoch != partition.leader_epoch:
            lead = self.leads[key] = _Lead(partition.leader_epoch, len(replica.records), self.world.now_ms)
            grant = Grant(self.broker_id, self.broker_epoch or 0)
            self.brokers.oracle.begins_to_lead(key, lead.epoch, grant, replica.records)
            self.world.say(f"broker {self.broker_id} leads {_short(key)} in epoch {lead.epoch}")
        if self.world.load.random() < 0.3:
            for _ in range(self.world.load.randint(1, 3)):
                replica.records.append(Record(lead.epoch, next(self.brokers.records)))
        if self.world.calm or self.world.load.random() < 0.7:
            replica.flushed = len(replica.records)
        if lead.asked_at_epoch != partition.partition_epoch:
            lead.asked.clear()
        self._advance(key, partition, replica, lead)
        self._change_in_sync(key, partition, replica, lead)

    def _advance(self, key: PartitionKey, partition: Partition, replica: Replica, lead: _Lead) -> None:
        if len(partition.in_sync) < config_keys.min_in_sync(self.view, key.topic_id, partition):
            return
        others = {*partition.in_sync, *lead.asked} - {self.broker_id}
        end = min([replica.flushed, *(lead.ends.get(other, (0, 0))[1] for other in others)])
        if end > lead.high_watermark:
            lead.high_watermark = end
            holders = self.brokers.electable(key)
            self.brokers.oracle.high_watermark(key, lead.epoch, replica.records, end, holders)

    def _change_in_sync(self, key: PartitionKey, partition: Partition, replica: Replica, lead: _Lead) -> None:
        now, dice = self.world.now_ms, self.world.load
        if now - lead.asked_ms < 200 or self.stopping:
            return
        if not self.world.calm and dice.random() < 0.003:
            self._offer(key, lead)
        bar = max(lead.high_watermark, lead.start)
        wanted = {self.broker_id}
        for other in partition.replicas:
            if other == self.broker_id:
                continue
            end = lead.ends.get(other, (0, -1))[1]
            if end >= len(replica.records) or (other not in partition.in_sync and end >= bar):
                lead.caught_up_ms[other] = now
            caught_up_ms = lead.caught_up_ms.get(other, lead.since_ms)
            broker = self.view.brokers.get(other)
            if other in partition.in_sync:
                # Also by mistake: a leader may drop whom it likes.
                if now - caught_up_ms < _LAG_MS and (self.world.calm or dice.random() > 0.005):
                    wanted.add(other)
            elif end >= bar and broker is not None and (broker.may_join or dice.random() < 0.05):
                wanted.add(other)
        stale = not self.world.calm and dice.random() < 0.005
        if wanted == set(partition.in_sync) and not stale:
            return
        known = {other: epoch for other, (epoch, _) in lead.ends.items()}
        known[self.broker_id] = self.broker_epoch or 0
        change = cluster_pb2.ChangeInSyncOperation(
            broker_id=self.broker_id,
            broker_epoch=self.broker_epoch,
            topic_id=key.topic_id,
            partition=key.partition,
            leader_epoch=lead.epoch,
            partition_epoch=max(partition.partition_epoch - stale, 0),
            in_sync=[
                cluster_pb2.InSyncMember(
                    # A member that has said nothing to this leader yet: in the incarnation that the metadata shows.
                    broker_id=other,
                    broker_epoch=known.get(other, self.view.brokers[other].broker_epoch),
                )
                for other in sorted(wanted)
            ],
        )
        lead.asked |= wanted
        lead.asked_at_epoch, lead.asked_ms = partition.partition_epoch, now
        self._ask(cluster_pb2.Operation(change_in_sync=change, command_id=bytes.fromhex(self.world.fresh_id())))

    def _offer(self, key: PartitionKey, lead: _Lead) -> None:
        offer = cluster_pb2.OfferLeadershipOperation(
            broker_id=self.broker_id,
            broker_epoch=self.broker_epoch,
            topic_id=key.topic_id,
            partition=key.partition,
            leader_epoch=lead.epoch,
        )
        self._ask(cluster_pb2.Operation(offer_leadership=offer))

    def _follow(self, key: PartitionKey, partition: Partition, replica: Replica) -> None:
        leader = self.brokers.processes.get(partition.leader if partition.leader is not None else -1)
        if leader is None or not leader.runs or not self.world.linked(leader.name, self.name):
            return
        lead = leader.leads.get(key)
        if lead is None or lead.epoch != partition.leader_epoch or leader.broker_epoch is None:
            return
        theirs = leader.disk.logs[key].records
        agreed = sum(1 for _ in _common(replica.records, theirs))
        if agreed < len(replica.records):
            self.brokers.oracle.truncates(key, self.broker_id, replica.records, agreed)
            del replica.records[agreed:]
            replica.flushed = min(replica.flushed, agreed)
        count = len(theirs) - agreed
        if not self.world.calm and self.world.network.random() < 0.3:
            count = self.world.network.randint(0, count)
        replica.records.extend(theirs[agreed : agreed + count])
        if self.world.calm or self.world.load.random() < 0.7:
            replica.flushed = len(replica.records)
        epoch, end, mine = lead.epoch, replica.flushed, self.broker_epoch or 0
        self.world.send(self.name, leader.name, lambda: leader.acknowledged(key, epoch, self.broker_id, mine, end))

    def acknowledged(self, key: PartitionKey, leader_epoch: int, follower: int, broker_epoch: int, end: int) -> None:
        """A follower has synced its log up to ``end``."""
        lead = self.leads.get(key)
        if not self.alive or lead is None or lead.epoch != leader_epoch:
            return
        known_epoch, known_end = lead.ends.get(follower, (0, 0))
        if broker_epoch > known_epoch:
            lead.ends[follower] = (broker_epoch, end)
        elif broker_epoch == known_epoch:
            lead.ends[follower] = (broker_epoch, max(end, known_end))


def _common(mine: list[Record], theirs: list[Record]) -> Iterator[Record]:
    for left, right in zip(mine, theirs, strict=False):
        if left != right:
            return
        yield left


def _short(key: PartitionKey) -> str:
    return f"{key.topic_id[:4]}-{key.partition}"
