"""The metadata under any sequence of changes, sound and hostile.

Half of the changes are drawn from the state, so that they mostly apply; the others have any value in any field. A
failure prints how to repeat it. ``LOGRAFT_TEST_EFFORT=10`` tries ten times as much.
"""

import os
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.metadata_quorum.core.apply import apply_entry, skip_entry
from lograft.metadata_quorum.core.invariants import violations
from lograft.metadata_quorum.core.model import ClusterState, Partition, PartitionKey
from lograft.metadata_quorum.core.snapshot import SnapshotLoader, capture, encode_pieces
from lograft.v1 import metadata_pb2 as pb

EFFORT = int(os.environ.get("LOGRAFT_TEST_EFFORT", "1"))

broker_ids = st.integers(0, 4)
any_brokers = st.lists(broker_ids | st.just(1 << 31), max_size=4)
small = st.integers(0, 4)
names = st.sampled_from(["", "a", "b", "c", "a/b"])
keys = st.sampled_from(["min.insync.replicas", "x"])


def encoded(state: ClusterState, *, without_position: bool = False) -> bytes:
    copy = capture(state)
    if without_position:
        copy.header.version = copy.header.term = copy.header.previous_term = 0
    return b"|".join(encode_pieces(copy, piece_bytes=100))


def reloaded(state: ClusterState, piece_bytes: int) -> ClusterState:
    loader = SnapshotLoader()
    for piece in encode_pieces(capture(state), piece_bytes=piece_bytes):
        loader.add(piece)
    return loader.finish()


class Sequence:
    """Draws entries that fit a state more or less, applies them, and looks."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.state = ClusterState()
        self.entries: list[tuple[bytes, int, int]] = []
        self.topics = 0

    def draw(self, strategy: st.SearchStrategy[Any]) -> Any:
        return self.data.draw(strategy)

    def rarely(self, one_in: int = 10) -> bool:
        return bool(self.draw(st.integers(1, one_in)) == one_in)  # not zero: hypothesis likes it too much

    def step(self) -> None:
        state = self.state
        changes = [self.change() for _ in range(self.draw(st.sampled_from([1, 1, 1, 2, 3])))]
        epoch = state.controller_epoch
        if not epoch or self.rarely():
            epoch = max(0, epoch + self.draw(st.sampled_from([1, 1, 1, 0, -1])))
            claim = pb.ClaimController(
                node=self.draw(st.sampled_from(["q1", "q2", "q1", "q2", ""])), cluster_id=self.draw(names)
            )
            changes.insert(self.draw(st.sampled_from([0, 0, len(changes)])), pb.Change(claim_controller=claim))
        term = state.term + self.draw(st.sampled_from([0, 0, 1]))
        self.apply(pb.MetadataEntry(controller_epoch=epoch, changes=changes), state.version + 1, term)

    def apply(self, entry: pb.MetadataEntry, version: int, term: int) -> None:
        state = self.state
        self.entries.append((entry.SerializeToString(), version, term))
        previous, before = reloaded(state, 1 << 20), encoded(state, without_position=True)
        results = apply_entry(state, entry, version=version, term=term, on_bug=_fail)
        assert len(results) == len(entry.changes)
        assert (state.version, state.term, state.previous_term) == (version, term, previous.term)
        assert violations(state, previous) == []
        remembered = any(change.command_id for change in entry.changes)
        if all(result.HasField("rejected") for result in results) and not remembered:
            assert encoded(state, without_position=True) == before
        copy = reloaded(state, self.draw(st.sampled_from([1, 200, 1 << 20])))
        assert copy == state
        assert list(copy.answered) == list(state.answered)
        assert encoded(copy) == encoded(state)

    def change(self) -> pb.Change:
        kind = self.draw(st.sampled_from(_KINDS))
        change = pb.Change(**{kind: getattr(self, kind)()})
        if self.rarely(5):
            change.command_id = self.draw(st.sampled_from([b"1", b"2", b"3", b"4", b"5", b"6"]))
        return change

    def broker(self) -> dict[str, int]:
        """A broker id and mostly its epoch."""
        broker_id = self.draw(broker_ids)
        known = self.state.brokers.get(broker_id)
        epoch = self.draw(small) if known is None or self.rarely() else known.broker_epoch
        return {"broker_id": broker_id, "broker_epoch": epoch}

    def topic_id(self) -> str:
        return str(self.draw(st.sampled_from([*self.state.topics, "nobody"])))

    def partition_change(self, key: PartitionKey | None = None) -> pb.PartitionChange:
        """A change like one that the controller decides, or any."""
        every = [PartitionKey(t, n) for t, topic in self.state.topics.items() for n in range(len(topic.partitions))]
        if key is None and (not every or self.rarely()):
            return pb.PartitionChange(
                topic_id=self.topic_id(), partition=self.draw(small), replicas=self.draw(any_brokers)
            )
        key = key or self.draw(st.sampled_from(every))
        old = self.state.partition(key)
        assert old is not None
        values = old._asdict()
        if not self.rarely(3):
            values.update(self.elected(old))
        else:
            for field in self.draw(st.lists(st.sampled_from(sorted(values)), max_size=3, unique=True)):
                hostile: st.SearchStrategy[Any] = any_brokers
                if field == "leader":
                    hostile = st.none() | broker_ids
                elif field.endswith("epoch"):
                    hostile = st.sampled_from([0, values[field] + 1, (1 << 32) - 1])
                values[field] = self.draw(hostile)
        return pb.PartitionChange(topic_id=key.topic_id, partition=key.partition, unclean=self.rarely(6), **values)

    def elected(self, old: Partition) -> dict[str, Any]:
        """A subset of the replicas in sync, one of them the leader, with the epoch that belongs to it."""
        members = self.draw(st.lists(st.sampled_from(old.replicas), unique=True))
        rest = [replica for replica in old.replicas if replica not in members]
        leader = self.draw(st.sampled_from([*members, None])) if old.leader not in members else old.leader
        return {
            "in_sync": members,
            "eligible": [replica for replica in rest if self.draw(st.booleans())],
            "leader": leader,
            "leader_epoch": old.leader_epoch + (leader != old.leader or self.rarely(4)),
        }

    def changes_on(self, broker_id: int) -> list[pb.PartitionChange]:
        """What becomes of the broker's partitions when it goes: mostly what the rules ask for."""
        changes = []
        for key, old in self.state.partitions_on(broker_id):
            others = [replica for replica in old.in_sync if replica != broker_id]
            alive = [replica for replica in others if not self.state.brokers[replica].fenced]
            if self.rarely():
                changes.append(self.partition_change(key))
            elif old.leader == broker_id or broker_id in (*old.in_sync, *old.eligible):
                values = old._asdict()
                values["in_sync"] = others if self.draw(st.booleans()) or others else old.in_sync
                values["eligible"] = [replica for replica in old.eligible if replica != broker_id]
                if old.leader == broker_id:
                    values.update(leader=alive[0] if alive else None, leader_epoch=old.leader_epoch + 1)
                changes.append(pb.PartitionChange(topic_id=key.topic_id, partition=key.partition, **values))
        return changes

    def assignments(self) -> list[pb.Assignment]:
        found = []
        for _ in range(self.draw(st.integers(0, 3))):
            alive = [broker.broker_id for broker in self.state.brokers.values() if broker.may_join]
            if alive and not self.rarely(5):
                replicas = self.draw(st.lists(st.sampled_from(alive), min_size=1, max_size=3, unique=True))
                found.append(pb.Assignment(replicas=replicas, in_sync=replicas, leader=replicas[0]))
            else:
                leader = self.draw(st.none() | broker_ids)
                found.append(
                    pb.Assignment(replicas=self.draw(any_brokers), in_sync=self.draw(any_brokers), leader=leader)
                )
        return found

    def register_broker(self) -> pb.RegisterBroker:
        broker_id = self.draw(broker_ids)
        return pb.RegisterBroker(
            broker_id=broker_id,
            incarnation_id=self.draw(st.sampled_from(["i1", "i2", "i3", ""])),
            directory_id=self.draw(st.sampled_from(["d1", "d1", "d2", ""])),
            partitions=self.changes_on(broker_id),
        )

    def fence_broker(self) -> pb.FenceBroker:
        broker = self.broker()
        return pb.FenceBroker(**broker, partitions=self.changes_on(broker["broker_id"]), reason=self.draw(names))

    def unfence_broker(self) -> pb.UnfenceBroker:
        broker = self.broker()
        waiting = [key for key, old in self.state.partitions_on(broker["broker_id"]) if old.leader is None]
        return pb.UnfenceBroker(**broker, partitions=[self.partition_change(key) for key in waiting])

    def set_broker_draining(self) -> pb.SetBrokerDraining:
        return pb.SetBrokerDraining(broker_id=self.draw(broker_ids), draining=self.rarely(3))

    def retire_broker(self) -> pb.RetireBroker:
        empty = [broker_id for broker_id in self.state.brokers if broker_id not in self.state.replicas_on]
        return pb.RetireBroker(broker_id=self.draw(st.sampled_from(empty) if empty else broker_ids))

    def create_topic(self) -> pb.CreateTopic:
        # Ids are never given twice, as the controller's are not; an id in use is refused.
        self.topics += 1
        fresh = f"id{self.topics}"
        return pb.CreateTopic(
            name=self.draw(names),
            topic_id=self.draw(st.sampled_from([fresh, fresh, fresh, "", *self.state.topics])),
            assignments=self.assignments(),
            configs=self.draw(st.dictionaries(keys, names, max_size=1)),
        )

    def delete_topic(self) -> pb.DeleteTopic:
        return pb.DeleteTopic(topic_id=self.topic_id())

    def add_partitions(self) -> pb.AddPartitions:
        topic_id = self.topic_id()
        topic = self.state.topics.get(topic_id)
        existing = len(topic.partitions) if topic is not None and not self.rarely(4) else self.draw(small)
        return pb.AddPartitions(topic_id=topic_id, existing_partitions=existing, assignments=self.assignments())

    def alter_config(self) -> pb.AlterConfig:
        resource: Any = self.draw(st.sampled_from([1, 2, 3, 3, 3]))
        fitting = {1: [""], 2: [str(broker_id) for broker_id in self.state.brokers], 3: [*self.state.topics]}[resource]
        name = self.draw(st.sampled_from(fitting or [""]))
        if self.rarely():
            resource, name = self.draw(st.integers(0, 4)), self.draw(names)
        return pb.AlterConfig(
            resource=resource,
            name=name,
            set=self.draw(st.dictionaries(keys, names, max_size=2)),
            remove=self.draw(st.lists(keys, max_size=1)),
        )

    def allocate_producer_ids(self) -> pb.AllocateProducerIds:
        return pb.AllocateProducerIds(**self.broker(), count=self.draw(small | st.just((1 << 32) - 1)))

    def set_quorum_members(self) -> pb.SetQuorumMembers:
        members = [pb.QuorumMember(name=name) for name in self.draw(st.lists(names, max_size=3))]
        return pb.SetQuorumMembers(members=members)

    def set_feature_level(self) -> pb.SetFeatureLevel:
        return pb.SetFeatureLevel(level=self.draw(st.integers(0, 2)))

    def set_user(self) -> pb.SetUser:
        return pb.SetUser(name=self.draw(names), credential=pb.Credential(hash=self.draw(st.binary(max_size=2))))

    def delete_user(self) -> pb.DeleteUser:
        return pb.DeleteUser(name=self.draw(names))

    def acl(self) -> pb.Acl:
        numbers: Any = self.draw(st.sampled_from([0, 1, 2, 99]))
        return pb.Acl(
            principal=self.draw(names), resource=numbers, pattern=1, operation=1, deny=self.draw(st.booleans())
        )

    def create_acl(self) -> pb.CreateAcl:
        return pb.CreateAcl(acl=self.acl())

    def delete_acl(self) -> pb.DeleteAcl:
        return pb.DeleteAcl(acl=self.acl())

    def alter_quota(self) -> pb.AlterQuota:
        limits = self.draw(st.dictionaries(names, st.floats(width=16), max_size=2))
        entity = pb.QuotaEntity(user=self.draw(names))
        return pb.AlterQuota(entity=entity, set=limits, remove=self.draw(st.lists(names, max_size=1)))

    def barrier(self) -> pb.Barrier:
        return pb.Barrier()

    change_partition = partition_change


def _fail(incident: str, bug: Exception) -> None:
    raise AssertionError(incident) from bug


# Those that make the rest possible come first and more than once.
_KINDS = [
    *("register_broker", "unfence_broker", "create_topic", "change_partition", "fence_broker") * 3,
    *(
        "set_broker_draining",
        "retire_broker",
        "delete_topic",
        "add_partitions",
        "alter_config",
        "allocate_producer_ids",
    ),
    *("set_quorum_members", "set_feature_level", "set_user", "delete_user", "create_acl", "delete_acl", "alter_quota"),
    "barrier",
]


def prepared(data: st.DataObject) -> Sequence:
    """Three living brokers and a topic, most of the time: from nothing it takes too long to get anywhere."""
    sequence = Sequence(data)
    if data.draw(st.integers(1, 5)) < 5:
        changes = [pb.Change(claim_controller=pb.ClaimController(node="q1", cluster_id="c"))]
        for broker_id in range(3):
            register = pb.RegisterBroker(broker_id=broker_id, incarnation_id="i0", directory_id="d1")
            changes.append(pb.Change(register_broker=register))
            changes.append(pb.Change(unfence_broker=pb.UnfenceBroker(broker_id=broker_id, broker_epoch=broker_id + 1)))
        replicas = [[0, 1, 2], [1, 2], [2]]
        assignments = [pb.Assignment(replicas=each, in_sync=each, leader=each[0]) for each in replicas]
        changes.append(pb.Change(create_topic=pb.CreateTopic(name="t", topic_id="id0", assignments=assignments)))
        sequence.apply(pb.MetadataEntry(controller_epoch=1, changes=changes), 1, 1)
        assert sequence.state.topics
    return sequence


@settings(max_examples=250 * EFFORT)
@given(st.data())
def test_state_under_any_changes_then_sound_and_equal_everywhere(data: st.DataObject) -> None:
    sequence = prepared(data)
    for _ in range(data.draw(st.integers(1, 12))):
        sequence.step()
    replay = ClusterState()
    for entry, version, term in sequence.entries:
        apply_entry(replay, pb.MetadataEntry.FromString(entry), version=version, term=term)
    assert replay == sequence.state
    assert encoded(replay) == encoded(sequence.state)


@settings(max_examples=80 * EFFORT)
@given(st.data())
def test_state_when_loaded_from_a_snapshot_midway_then_goes_on_equally(data: st.DataObject) -> None:
    """A node that gets a snapshot and then the log ends where one that applied everything does."""
    sequence = prepared(data)
    for _ in range(3):
        sequence.step()
    late = reloaded(sequence.state, 100)
    begin = len(sequence.entries)
    for _ in range(3):
        sequence.step()
    for entry, version, term in sequence.entries[begin:]:
        apply_entry(late, pb.MetadataEntry.FromString(entry), version=version, term=term)
    skip_entry(late, version=late.version + 1, term=late.term)
    skip_entry(sequence.state, version=late.version, term=late.term)
    assert encoded(late) == encoded(sequence.state)


@settings(max_examples=150 * EFFORT)
@given(st.binary(max_size=200), st.integers(0, 2))
def test_entry_of_any_bytes_then_never_raises(content: bytes, epoch: int) -> None:
    entry = pb.MetadataEntry(controller_epoch=epoch)
    change = entry.changes.add()
    try:
        change.MergeFromString(content)
    except Exception:
        return
    state = ClusterState()
    apply_entry(state, entry, version=1, term=1, on_bug=_fail)
    assert violations(state) == []
