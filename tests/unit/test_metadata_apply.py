"""The rules of `apply`: what is stored, what is rejected, and that a rejection changes nothing."""

from typing import Any

import pytest

from lograft.contract.errors import (
    BrokerInUse,
    FencedEpoch,
    Internal,
    InvalidAssignment,
    InvalidPartitionCount,
    InvalidRequest,
    InvalidTopicName,
    LogError,
    MembershipRefused,
    NoEligibleLeader,
    TopicExists,
    UnknownBroker,
    UnknownName,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    from_detail,
)
from lograft.metadata_quorum.core import apply, apply_topics
from lograft.metadata_quorum.core.apply import apply_entry, skip_entry, unsupported
from lograft.metadata_quorum.core.invariants import violations
from lograft.metadata_quorum.core.model import (
    ClusterState,
    ConfigKey,
    Credential,
    Member,
    Partition,
    PartitionKey,
    QuotaKey,
)
from lograft.metadata_quorum.core.snapshot import capture, encode_pieces
from lograft.v1 import metadata_pb2 as pb

CLUSTER, BROKER, TOPIC = pb.CONFIG_RESOURCE_CLUSTER, pb.CONFIG_RESOURCE_BROKER, pb.CONFIG_RESOURCE_TOPIC


class Log:
    """A state and the log that makes it; looks at the invariants after each entry."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.epoch = 1
        self.do(claim_controller=pb.ClaimController(node="q1", cluster_id="c1"))

    def entry(self, *changes: pb.Change, epoch: int | None = None) -> list[pb.ChangeResult]:
        entry = pb.MetadataEntry(controller_epoch=self.epoch if epoch is None else epoch, changes=changes)
        results = apply_entry(self.state, entry, version=self.state.version + 1, term=self.epoch)
        assert violations(self.state) == []
        return results

    def change(self, command_id: bytes = b"", **kind: Any) -> pb.ChangeResult:
        return self.entry(pb.Change(command_id=command_id, **kind))[0]

    def do(self, **kind: Any) -> pb.Applied:
        result = self.change(**kind)
        assert result.WhichOneof("outcome") == "applied", result
        assert result.applied.version == self.state.version
        return result.applied

    def refuse(self, expected: type[LogError], **kind: Any) -> Any:
        before = self.bytes()
        result = self.change(**kind)
        assert result.WhichOneof("outcome") == "rejected", result
        error = from_detail(result.rejected)
        assert type(error) is expected, error
        assert self.bytes() == before
        return error

    def bytes(self) -> list[bytes]:
        """The state without what every entry changes."""
        copy = capture(self.state)
        copy.header.version = copy.header.term = copy.header.previous_term = 0
        return list(encode_pieces(copy))

    def brokers(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            epoch = self.register(broker_id).number
            self.do(unfence_broker=pb.UnfenceBroker(broker_id=broker_id, broker_epoch=epoch))

    def register(self, broker_id: int, incarnation: str = "i1", directory: str = "d1", **more: Any) -> pb.Applied:
        return self.do(
            register_broker=pb.RegisterBroker(
                broker_id=broker_id, incarnation_id=incarnation, directory_id=directory, **more
            )
        )

    def topic(self, name: str = "orders", *assignments: pb.Assignment, **configs: str) -> None:
        create = pb.CreateTopic(
            name=name,
            topic_id=f"id-{name}",
            assignments=assignments or [assignment(1, 2, 3)],
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        self.do(create_topic=create)

    def fence(self, broker_id: int, *partitions: pb.PartitionChange) -> dict[str, Any]:
        epoch = self.state.brokers[broker_id].broker_epoch
        return {
            "fence_broker": pb.FenceBroker(
                broker_id=broker_id, broker_epoch=epoch, partitions=partitions, reason="silent"
            )
        }

    def of(self, name: str = "orders", partition: int = 0) -> Partition:
        return self.state.topics[f"id-{name}"].partitions[partition]

    def wanted(self, name: str = "orders", partition: int = 0, **values: Any) -> pb.PartitionChange:
        """A change of the partition as it is now."""
        return pb.PartitionChange(
            topic_id=f"id-{name}", partition=partition, **{**self.of(name, partition)._asdict(), **values}
        )

    def refuse_partition(self, expected: type[LogError], **values: Any) -> Any:
        return self.refuse(expected, change_partition=self.wanted(**values))


def assignment(*replicas: int) -> pb.Assignment:
    return pb.Assignment(replicas=replicas, in_sync=replicas, leader=replicas[0])


@pytest.fixture
def log() -> Log:
    """Brokers 1, 2, 3 alive, 4 fenced, and a topic on the first three, led by 1."""
    log = Log()
    log.brokers(1, 2, 3)
    log.register(4)
    log.topic()
    return log


# Controller, terms, command ids


def test_entry_when_applied_then_version_and_terms_move(log: Log) -> None:
    skip_entry(log.state, version=70, term=7)
    assert (log.state.version, log.state.term, log.state.previous_term) == (70, 7, 1)
    apply_entry(log.state, pb.MetadataEntry(), version=71, term=8)
    assert (log.state.version, log.state.term, log.state.previous_term) == (71, 8, 7)


def test_claim_when_epoch_is_higher_then_taken_and_cluster_id_kept(log: Log) -> None:
    log.epoch = 5
    answer = log.do(claim_controller=pb.ClaimController(node="q2", cluster_id="other"))
    assert (log.state.controller_epoch, log.state.controller_node, log.state.cluster_id) == (5, "q2", "c1")
    assert (answer.number, answer.id) == (5, "c1")


def test_claim_when_repeated_by_same_node_then_applied_and_by_another_then_entry_refused(log: Log) -> None:
    log.do(claim_controller=pb.ClaimController(node="q1"))
    before = log.bytes()
    claim = pb.Change(claim_controller=pb.ClaimController(node="q2"))
    results = log.entry(claim, pb.Change(command_id=b"x", set_user=pb.SetUser(name="eve")))
    assert [type(from_detail(result.rejected)) for result in results] == [FencedEpoch, FencedEpoch]
    assert log.bytes() == before


def test_claim_when_not_first_then_only_same_node_may(log: Log) -> None:
    barrier = pb.Change(barrier=pb.Barrier())
    other = pb.Change(claim_controller=pb.ClaimController(node="q2"))
    results = log.entry(barrier, other, barrier)
    assert [result.WhichOneof("outcome") for result in results] == ["applied", "rejected", "applied"]
    assert log.state.controller_node == "q1"


def test_claim_without_node_name_then_rejected(log: Log) -> None:
    log.epoch = 9
    log.refuse(InvalidRequest, claim_controller=pb.ClaimController())


def test_claim_with_remembered_command_id_then_still_applied(log: Log) -> None:
    log.change(command_id=b"1", barrier=pb.Barrier())
    log.epoch = 2
    log.change(command_id=b"1", claim_controller=pb.ClaimController(node="q3"))
    assert log.state.controller_node == "q3"


def test_entry_when_controller_epoch_is_over_then_rejected_and_not_remembered(log: Log) -> None:
    log.epoch = 2
    log.do(claim_controller=pb.ClaimController(node="q2"))
    before = log.bytes()
    user = pb.Change(command_id=b"same", set_user=pb.SetUser(name="alice"))
    results = log.entry(user, user, epoch=1)
    error = from_detail(results[1].rejected)
    assert isinstance(error, FencedEpoch)
    assert (error.subject, error.epoch, error.current_epoch) == ("controller", 1, 2)
    assert log.bytes() == before
    assert log.entry(user)[0].WhichOneof("outcome") == "applied"


def test_entry_when_controller_epoch_is_not_claimed_then_rejected(log: Log) -> None:
    log.epoch = 2
    log.refuse(InvalidRequest, command_id=b"1", barrier=pb.Barrier())


def test_command_when_repeated_then_answered_with_first_result(log: Log) -> None:
    broker = pb.AllocateProducerIds(broker_id=1, broker_epoch=1, count=10)
    first = log.change(command_id=b"1", allocate_producer_ids=broker)
    again = log.change(command_id=b"1", allocate_producer_ids=broker)
    assert first == again
    assert log.state.next_producer_id == 10


def test_command_when_rejected_then_the_rejection_is_remembered(log: Log) -> None:
    first = log.change(command_id=b"1", delete_user=pb.DeleteUser(name="alice"))
    log.do(set_user=pb.SetUser(name="alice"))
    assert log.change(command_id=b"1", delete_user=pb.DeleteUser(name="alice")) == first
    assert "alice" in log.state.users


def test_commands_when_too_many_then_oldest_are_forgotten(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "ANSWERED_LIMIT", 3)
    log.entry(*[pb.Change(command_id=bytes([number]), barrier=pb.Barrier()) for number in range(5)])
    assert list(log.state.answered) == [b"\2", b"\3", b"\4"]


def test_change_when_apply_has_a_bug_then_internal_and_reported(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def buggy(*_: Any) -> Any:
        raise KeyError("bug")

    monkeypatch.setitem(apply._HANDLERS, "barrier", buggy)
    seen = []
    barrier = pb.Change(command_id=b"1", barrier=pb.Barrier())
    user = pb.Change(set_user=pb.SetUser(name="alice"))
    results = apply_entry(
        log.state,
        pb.MetadataEntry(controller_epoch=1, changes=[barrier, user]),
        version=99,
        term=1,
        on_bug=lambda incident, bug: seen.append((incident, type(bug))),
    )
    error = from_detail(results[0].rejected)
    assert isinstance(error, Internal)
    assert error.incident == "apply-99"
    assert seen == [("apply-99", KeyError)]
    assert "alice" in log.state.users


def test_change_when_memory_is_short_then_process_stops(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setitem(apply._HANDLERS, "barrier", short)
    with pytest.raises(MemoryError):
        log.change(barrier=pb.Barrier())


def test_every_kind_of_change_then_has_a_handler() -> None:
    kinds = {field.name for field in pb.Change.DESCRIPTOR.oneofs_by_name["kind"].fields}
    assert kinds == {*apply._HANDLERS, "claim_controller"}


# Feature level, members, barrier


def test_entry_when_newer_than_this_release_then_unsupported(log: Log) -> None:
    assert unsupported(pb.MetadataEntry(changes=[pb.Change(barrier=pb.Barrier())])) is None
    assert unsupported(pb.MetadataEntry(changes=[pb.Change(set_feature_level=pb.SetFeatureLevel(level=1))])) is None
    raised = pb.Change(set_feature_level=pb.SetFeatureLevel(level=2))
    error = unsupported(pb.MetadataEntry(changes=[raised]))
    assert error is not None
    assert (error.found, error.supported) == (2, 1)
    later = pb.Change.FromString(b"\xca\x3e\x00")  # field 1001: a kind of change from the future
    assert isinstance(unsupported(pb.MetadataEntry(changes=[later])), UnsupportedVersion)
    log.refuse(UnsupportedVersion, set_feature_level=pb.SetFeatureLevel(level=2))
    log.refuse(UnsupportedVersion)


def test_feature_level_when_lowered_then_rejected(log: Log) -> None:
    assert log.do(set_feature_level=pb.SetFeatureLevel(level=1)).number == 1
    log.refuse(InvalidRequest, set_feature_level=pb.SetFeatureLevel(level=0))


def test_members_when_set_then_kept_in_order(log: Log) -> None:
    members = [pb.QuorumMember(name=name, directory_id="d", address="h:1") for name in ("q2", "q1")]
    log.do(set_quorum_members=pb.SetQuorumMembers(members=members))
    assert log.state.members == (Member("q2", "d", "h:1"), Member("q1", "d", "h:1"))


@pytest.mark.parametrize("names", [[], ["q1", "q1"], [""]])
def test_members_when_none_or_not_distinct_then_rejected(log: Log, names: list[str]) -> None:
    members = [pb.QuorumMember(name=name) for name in names]
    log.refuse(MembershipRefused, set_quorum_members=pb.SetQuorumMembers(members=members))


# Brokers


def test_register_when_new_then_fenced_with_rising_epoch(log: Log) -> None:
    answer = log.register(5, rack="r1", endpoints=[pb.Endpoint(name="client", host="h", port=9)], registered_at_ms=3)
    broker = log.state.brokers[5]
    assert answer.number == broker.broker_epoch == 5
    assert broker.fenced
    assert (broker.rack, broker.registered_version, broker.registered_at_ms) == ("r1", log.state.version, 3)
    assert broker.endpoints == (("client", "h", 9),)
    assert log.register(4, "i2").number == 6


def test_register_when_same_incarnation_then_answered_with_present_epoch(log: Log) -> None:
    before = log.bytes()
    assert log.register(1).number == 1
    assert log.bytes() == before
    assert not log.state.brokers[1].fenced


def test_register_without_incarnation_then_rejected(log: Log) -> None:
    log.refuse(InvalidRequest, register_broker=pb.RegisterBroker(broker_id=9, directory_id="d"))


def test_register_when_draining_then_still_draining(log: Log) -> None:
    log.do(set_broker_draining=pb.SetBrokerDraining(broker_id=4, draining=True))
    log.register(4, "i2")
    assert log.state.brokers[4].draining


def test_register_when_led_partition_is_left_out_then_rejected(log: Log) -> None:
    again = pb.RegisterBroker(broker_id=1, incarnation_id="i2", directory_id="d1")
    log.refuse(InvalidRequest, register_broker=again)
    again.partitions.append(log.wanted(in_sync=[2, 3], leader=1))
    log.refuse(InvalidRequest, register_broker=again)
    again.partitions[0].in_sync[:] = [1, 2, 3]
    log.refuse(NoEligibleLeader, register_broker=again)  # the new incarnation is fenced and leads nothing yet
    again.partitions[0].leader = 2
    log.refuse(InvalidRequest, register_broker=again)  # another leader, the same leader epoch
    again.partitions[0].leader_epoch = 1
    log.do(register_broker=again)
    assert log.of() == Partition((1, 2, 3), (1, 2, 3), (), 2, 1, 1)


def test_register_when_same_directory_then_last_in_sync_stays(log: Log) -> None:
    log.do(change_partition=log.wanted(in_sync=[1], eligible=[2, 3]))
    gone = log.wanted(in_sync=[], leader=None, leader_epoch=1)
    log.refuse(
        InvalidRequest,
        register_broker=pb.RegisterBroker(broker_id=1, incarnation_id="i2", directory_id="d1", partitions=[gone]),
    )
    log.register(1, "i2", partitions=[log.wanted(leader=None, leader_epoch=1)])
    assert log.of() == Partition((1, 2, 3), (1,), (2, 3), None, 1, 2)


@pytest.mark.parametrize("directory", ["d2", ""])
def test_register_when_other_directory_then_leaves_in_sync_and_eligible(log: Log, directory: str) -> None:
    log.do(change_partition=log.wanted(in_sync=[1], eligible=[2]))
    again = pb.RegisterBroker(broker_id=1, incarnation_id="i2", directory_id=directory)
    log.refuse(InvalidRequest, register_broker=again)
    again.partitions.append(log.wanted(leader=None, leader_epoch=1))
    log.refuse(InvalidRequest, register_broker=again)  # still in sync
    again.partitions[0].in_sync[:] = []
    again.partitions[0].eligible[:] = [1, 2]
    log.refuse(InvalidRequest, register_broker=again)  # still eligible
    again.partitions[0].eligible[:] = [2]
    log.do(register_broker=again)
    assert log.of() == Partition((1, 2, 3), (), (2,), None, 1, 2)
    # Its own disk is empty: nothing but an unclean election brings it back. The eligible one may lead.
    epoch = log.state.brokers[1].broker_epoch
    back = log.wanted(in_sync=[1], eligible=[2], leader=1, leader_epoch=2)
    log.refuse(NoEligibleLeader, unfence_broker=pb.UnfenceBroker(broker_id=1, broker_epoch=epoch, partitions=[back]))
    log.do(change_partition=log.wanted(in_sync=[2], eligible=[], leader=2, leader_epoch=2))


def test_register_when_other_directory_and_not_last_then_others_stay(log: Log) -> None:
    nobody = log.wanted(in_sync=[], leader=None, leader_epoch=1)
    again = pb.RegisterBroker(broker_id=1, incarnation_id="i2", directory_id="d2", partitions=[nobody])
    log.refuse(InvalidRequest, register_broker=again)


def test_register_when_eligible_and_directory_is_another_then_must_be_covered(log: Log) -> None:
    log.do(change_partition=log.wanted(in_sync=[1], eligible=[2]))
    again = pb.RegisterBroker(broker_id=2, incarnation_id="i2", directory_id="d2")
    log.refuse(InvalidRequest, register_broker=again)
    again.partitions.append(log.wanted(eligible=[]))
    log.do(register_broker=again)


def test_fence_when_partitions_are_covered_then_all_stored(log: Log) -> None:
    log.topic("more", assignment(1, 2), assignment(2, 1))
    log.do(
        **log.fence(
            1,
            log.wanted(in_sync=[2, 3], leader=2, leader_epoch=1),
            log.wanted("more", 0, in_sync=[2], eligible=[1], leader=2, leader_epoch=1),
            log.wanted("more", 1, in_sync=[2]),
        )
    )
    assert log.state.brokers[1].fenced
    assert log.state.brokers[1].fence_reason == "silent"
    assert log.of() == Partition((1, 2, 3), (2, 3), (), 2, 1, 1)
    assert log.of("more", 0) == Partition((1, 2), (2,), (1,), 2, 1, 1)
    assert log.of("more", 1) == Partition((2, 1), (2,), (), 2, 0, 1)


def test_fence_when_one_partition_is_wrong_then_nothing_changes(log: Log) -> None:
    log.topic("more", assignment(1, 2))
    good = log.wanted(in_sync=[2, 3], leader=2, leader_epoch=1)
    log.refuse(InvalidRequest, **log.fence(1, good))  # more-0 would be led by a fenced broker
    log.refuse(FencedEpoch, **log.fence(1, good, log.wanted("more", leader=2, leader_epoch=1, partition_epoch=8)))
    log.refuse(NoEligibleLeader, **log.fence(1, good, log.wanted("more", leader_epoch=1)))
    log.refuse(InvalidRequest, **log.fence(1, good, good))


def test_fence_when_epoch_is_over_or_broker_unknown_then_rejected(log: Log) -> None:
    error = log.refuse(FencedEpoch, fence_broker=pb.FenceBroker(broker_id=2, broker_epoch=1))
    assert (error.subject, error.epoch, error.current_epoch) == ("broker 2", 1, 2)
    log.refuse(UnknownBroker, fence_broker=pb.FenceBroker(broker_id=8))
    log.refuse(FencedEpoch, unfence_broker=pb.UnfenceBroker(broker_id=4, broker_epoch=1))
    log.refuse(UnknownBroker, unfence_broker=pb.UnfenceBroker(broker_id=8))


def test_unfence_when_partition_waited_then_broker_leads_it(log: Log) -> None:
    log.topic("single", assignment(3))
    log.do(**log.fence(3, log.wanted(in_sync=[1, 2]), log.wanted("single", leader=None, leader_epoch=1)))
    elected = log.wanted("single", leader=3, leader_epoch=2)
    log.refuse(NoEligibleLeader, change_partition=elected)
    log.do(unfence_broker=pb.UnfenceBroker(broker_id=3, broker_epoch=3, partitions=[elected]))
    assert log.of("single") == Partition((3,), (3,), (), 3, 2, 2)
    assert log.state.brokers[3].fence_reason == ""


def test_draining_when_broker_is_unknown_then_rejected(log: Log) -> None:
    log.refuse(UnknownBroker, set_broker_draining=pb.SetBrokerDraining(broker_id=8, draining=True))


def test_retire_when_alive_or_in_use_then_rejected_else_forgotten(log: Log) -> None:
    log.refuse(UnknownBroker, retire_broker=pb.RetireBroker(broker_id=8))
    log.refuse(BrokerInUse, retire_broker=pb.RetireBroker(broker_id=2))
    log.do(**log.fence(2, log.wanted(in_sync=[1, 3])))
    log.refuse(BrokerInUse, retire_broker=pb.RetireBroker(broker_id=2))
    log.do(change_partition=log.wanted(replicas=[1, 3]))
    log.do(alter_config=pb.AlterConfig(resource=BROKER, name="2", set={"a": "b"}))
    log.do(retire_broker=pb.RetireBroker(broker_id=2))
    assert 2 not in log.state.brokers
    assert log.state.configs == {}


def test_producer_ids_when_allocated_then_disjoint(log: Log) -> None:
    ask = pb.AllocateProducerIds(broker_id=2, broker_epoch=2, count=1000)
    assert [log.do(allocate_producer_ids=ask).number for _ in range(3)] == [0, 1000, 2000]
    log.refuse(FencedEpoch, allocate_producer_ids=pb.AllocateProducerIds(broker_id=2, broker_epoch=1, count=1))
    log.refuse(UnknownBroker, allocate_producer_ids=pb.AllocateProducerIds(broker_id=7, count=1))
    log.refuse(InvalidRequest, allocate_producer_ids=pb.AllocateProducerIds(broker_id=2, broker_epoch=2))


# Topics


def test_create_when_applied_then_topic_configs_and_indexes_are_there(log: Log) -> None:
    log.topic("more", assignment(2, 1), assignment(3), retention_ms="5")
    topic = log.state.topic_named("more")
    assert topic is not None
    assert topic.partitions == [Partition((2, 1), (2, 1), (), 2), Partition((3,), (3,), (), 3)]
    assert log.state.configs == {ConfigKey(TOPIC, "id-more"): {"retention.ms": "5"}}
    assert [key for key, _ in log.state.partitions_on(3)] == [("id-orders", 0), ("id-more", 1)]


def test_create_when_name_or_id_is_taken_or_illegal_then_rejected(log: Log) -> None:
    one = [assignment(1)]
    log.refuse(TopicExists, create_topic=pb.CreateTopic(name="orders", topic_id="x", assignments=one))
    log.refuse(InvalidRequest, create_topic=pb.CreateTopic(name="new", topic_id="id-orders", assignments=one))
    log.refuse(InvalidRequest, create_topic=pb.CreateTopic(name="new", assignments=one))
    log.refuse(InvalidTopicName, create_topic=pb.CreateTopic(name="a/b", topic_id="x", assignments=one))
    log.refuse(InvalidPartitionCount, create_topic=pb.CreateTopic(name="new", topic_id="x"))


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (pb.Assignment(), InvalidAssignment),
        (pb.Assignment(replicas=[1, 1], in_sync=[1], leader=1), InvalidAssignment),
        (pb.Assignment(replicas=[1, 9], in_sync=[1], leader=1), UnknownBroker),
        (pb.Assignment(replicas=[1], in_sync=[2], leader=2), InvalidRequest),
        (pb.Assignment(replicas=[1, 2], in_sync=[2], leader=1), InvalidRequest),
        (pb.Assignment(replicas=[1, 2], in_sync=[2, 2], leader=2), InvalidRequest),
        (pb.Assignment(replicas=[1, 4], in_sync=[1, 4], leader=1), InvalidRequest),
        (pb.Assignment(replicas=[1, 4], in_sync=[4], leader=4), NoEligibleLeader),
        (pb.Assignment(replicas=[4]), NoEligibleLeader),
    ],
)
def test_create_and_add_when_assignment_is_wrong_then_rejected(
    log: Log, bad: pb.Assignment, expected: type[LogError]
) -> None:
    both = [assignment(1), bad]
    log.refuse(expected, create_topic=pb.CreateTopic(name="new", topic_id="x", assignments=both))
    log.refuse(expected, add_partitions=pb.AddPartitions(topic_id="id-orders", existing_partitions=1, assignments=both))


def test_create_when_a_replica_is_fenced_then_it_is_not_in_sync(log: Log) -> None:
    log.topic("more", pb.Assignment(replicas=[4, 1], in_sync=[1], leader=1))
    assert log.of("more") == Partition((4, 1), (1,), (), 1)


def test_delete_when_applied_then_nothing_is_left_and_name_is_free(log: Log) -> None:
    empty = log.bytes()
    log.topic("more", assignment(1, 2), retention_ms="5")
    log.do(change_partition=log.wanted("more", replicas=[1, 2, 3], adding=[3]))
    assert log.state.moving == {PartitionKey("id-more", 0): None}
    log.do(delete_topic=pb.DeleteTopic(topic_id="id-more"))
    assert log.bytes() == empty
    log.refuse(UnknownTopicOrPartition, delete_topic=pb.DeleteTopic(topic_id="id-more"))
    log.topic("more")


def test_add_partitions_when_count_is_right_then_numbered_on(log: Log) -> None:
    more = pb.AddPartitions(topic_id="id-orders", existing_partitions=1, assignments=[assignment(3, 1)])
    log.do(add_partitions=more)
    assert log.of(partition=1) == Partition((3, 1), (3, 1), (), 3)
    assert log.refuse(InvalidPartitionCount, add_partitions=more).requested == 2
    log.refuse(InvalidPartitionCount, add_partitions=pb.AddPartitions(topic_id="id-orders", existing_partitions=2))
    log.refuse(UnknownTopicOrPartition, add_partitions=pb.AddPartitions(topic_id="x"))


# One partition


def test_partition_when_in_sync_shrinks_and_grows_then_stored(log: Log) -> None:
    assert log.do(change_partition=log.wanted(in_sync=[1, 3])).number == 1
    log.do(change_partition=log.wanted(in_sync=[1], eligible=[3]))
    log.do(change_partition=log.wanted(in_sync=[1, 2, 3], eligible=[]))
    assert log.of() == Partition((1, 2, 3), (1, 2, 3), (), 1, 0, 3)


def test_partition_when_unknown_then_rejected(log: Log) -> None:
    change = log.wanted()
    change.partition = 1
    assert log.refuse(UnknownTopicOrPartition, change_partition=change).topic == "orders"
    change.topic_id = "x"
    assert log.refuse(UnknownTopicOrPartition, change_partition=change).topic == "x"


def test_partition_when_epoch_is_another_then_fenced(log: Log) -> None:
    log.do(change_partition=log.wanted())
    error = log.refuse_partition(FencedEpoch, partition_epoch=0)
    assert (error.subject, error.epoch, error.current_epoch) == ("orders-0", 0, 1)
    log.refuse_partition(FencedEpoch, partition_epoch=2)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"replicas": []}, InvalidAssignment),
        ({"replicas": [1, 2, 3, 3]}, InvalidAssignment),
        ({"replicas": [1, 2, 3, 9]}, UnknownBroker),
        ({"in_sync": [1, 2, 4]}, InvalidRequest),
        ({"in_sync": [1, 1]}, InvalidRequest),
        ({"eligible": [3]}, InvalidRequest),
        ({"in_sync": [1], "eligible": [4]}, InvalidRequest),
        ({"in_sync": [1], "eligible": [2, 2]}, InvalidRequest),
        ({"in_sync": [2, 3]}, InvalidRequest),
        ({"leader_epoch": 2}, FencedEpoch),
        ({"leader": 2}, InvalidRequest),
        ({"leader": None}, InvalidRequest),
        ({"in_sync": [], "leader": None, "leader_epoch": 1}, InvalidRequest),
        ({"in_sync": [], "eligible": [1, 2, 3], "leader": None, "leader_epoch": 1}, InvalidRequest),
        ({"adding": [4]}, InvalidRequest),
        ({"removing": [4]}, InvalidRequest),
        ({"adding": [2], "removing": [2]}, InvalidRequest),
        ({"adding": [2, 2]}, InvalidRequest),
        ({"removing": [1, 2, 3]}, InvalidRequest),
        ({"adding": [1, 2, 3]}, InvalidRequest),
        ({"unclean": True}, InvalidRequest),
        ({"unclean": True, "leader": None, "leader_epoch": 1, "in_sync": []}, InvalidRequest),
    ],
)
def test_partition_when_values_break_a_rule_then_rejected(
    log: Log, values: dict[str, Any], expected: type[LogError]
) -> None:
    log.refuse_partition(expected, **values)


def test_partition_when_leader_changes_with_epoch_then_elected(log: Log) -> None:
    log.do(change_partition=log.wanted(leader=3, leader_epoch=1))
    log.do(change_partition=log.wanted(leader=None, leader_epoch=2))
    log.refuse_partition(InvalidRequest, leader=2)
    log.do(change_partition=log.wanted(leader=2, leader_epoch=3))
    log.do(change_partition=log.wanted(leader=2, leader_epoch=4))
    assert log.of() == Partition((1, 2, 3), (1, 2, 3), (), 2, 4, 4)


def test_partition_when_leader_epoch_goes_back_then_fenced(log: Log) -> None:
    log.do(change_partition=log.wanted(leader=3, leader_epoch=1))
    log.refuse_partition(FencedEpoch, leader_epoch=0)


def test_partition_when_elected_from_outside_then_only_unclean(log: Log) -> None:
    log.do(change_partition=log.wanted(in_sync=[1, 2]))
    log.refuse_partition(NoEligibleLeader, in_sync=[1, 2, 3], leader=3, leader_epoch=1)
    log.refuse_partition(NoEligibleLeader, in_sync=[3], leader=3, leader_epoch=1)
    log.do(change_partition=log.wanted(in_sync=[3], leader=3, leader_epoch=1, unclean=True))
    assert log.of() == Partition((1, 2, 3), (3,), (), 3, 1, 2)


def test_partition_when_unclean_then_losers_are_not_kept_as_eligible_unless_they_were_safe(log: Log) -> None:
    log.do(change_partition=log.wanted(in_sync=[1]))
    log.refuse_partition(InvalidRequest, in_sync=[3], eligible=[2], leader=3, leader_epoch=1, unclean=True)


def test_partition_when_in_sync_grows_by_fenced_or_draining_then_rejected(log: Log) -> None:
    log.do(change_partition=log.wanted(replicas=[1, 2, 3, 4], in_sync=[1, 2]))
    log.refuse_partition(InvalidRequest, in_sync=[1, 2, 4])
    log.do(set_broker_draining=pb.SetBrokerDraining(broker_id=3, draining=True))
    log.refuse_partition(InvalidRequest, in_sync=[1, 2, 3])
    log.do(set_broker_draining=pb.SetBrokerDraining(broker_id=3, draining=False))
    log.do(change_partition=log.wanted(in_sync=[1, 2, 3]))


def test_partition_when_draining_replica_is_the_eligible_one_then_may_be_elected(log: Log) -> None:
    log.do(change_partition=log.wanted(in_sync=[1], eligible=[2, 3]))
    log.do(set_broker_draining=pb.SetBrokerDraining(broker_id=2, draining=True))
    log.do(**log.fence(1, log.wanted(in_sync=[2], eligible=[1, 3], leader=2, leader_epoch=1)))
    assert log.of() == Partition((1, 2, 3), (2,), (1, 3), 2, 1, 2)


def test_partition_when_nobody_leads_then_nobody_joins(log: Log) -> None:
    log.do(change_partition=log.wanted(in_sync=[1, 2], leader=None, leader_epoch=1))
    log.refuse_partition(InvalidRequest, in_sync=[1, 2, 3])


def test_move_when_begun_and_finished_then_indexes_follow(log: Log) -> None:
    log.brokers(5)
    log.do(change_partition=log.wanted(replicas=[5, 2, 3, 1], adding=[5], removing=[1]))
    key = PartitionKey("id-orders", 0)
    assert log.state.moving == {key: None}
    assert log.state.replicas_on[5] == {key: None}
    log.do(change_partition=log.wanted(in_sync=[1, 2, 3, 5]))
    log.refuse_partition(InvalidRequest, replicas=[5, 2, 3], in_sync=[5, 2, 3], adding=[], removing=[])
    log.do(
        change_partition=log.wanted(
            replicas=[5, 2, 3], in_sync=[5, 2, 3], adding=[], removing=[], leader=5, leader_epoch=1
        )
    )
    assert log.state.moving == {}
    assert 1 not in log.state.replicas_on
    assert log.of() == Partition((5, 2, 3), (5, 2, 3), (), 5, 1, 3)


def test_move_when_cancelled_with_same_replicas_then_index_follows(log: Log) -> None:
    log.do(change_partition=log.wanted(removing=[3]))
    assert log.state.moving
    log.do(change_partition=log.wanted(removing=[]))
    assert not log.state.moving


# Configuration


def test_config_when_altered_then_set_and_removed_and_empty_is_gone(log: Log) -> None:
    key = ConfigKey(BROKER, "1")
    log.do(alter_config=pb.AlterConfig(resource=BROKER, name="1", set={"a": "1", "b": "2"}))
    log.do(alter_config=pb.AlterConfig(resource=BROKER, name="1", set={"c": "3"}, remove=["a", "x"]))
    assert log.state.configs == {key: {"b": "2", "c": "3"}}
    log.do(alter_config=pb.AlterConfig(resource=BROKER, name="1", remove=["b", "c"]))
    assert log.state.configs == {}


@pytest.mark.parametrize(
    ("resource", "name", "expected"),
    [
        (CLUSTER, "x", InvalidRequest),
        (BROKER, "9", UnknownBroker),
        (BROKER, "01", UnknownBroker),
        (BROKER, "one", InvalidRequest),
        (BROKER, "\u0661", InvalidRequest),
        (TOPIC, "orders", UnknownTopicOrPartition),
        (pb.CONFIG_RESOURCE_UNSPECIFIED, "", InvalidRequest),
        (77, "", InvalidRequest),
    ],
)
def test_config_when_resource_is_unknown_then_rejected(
    log: Log, resource: Any, name: str, expected: type[LogError]
) -> None:
    log.refuse(expected, alter_config=pb.AlterConfig(resource=resource, name=name, set={"a": "b"}))


def test_config_when_min_in_sync_of_topic_changes_then_its_eligible_are_cleared(log: Log) -> None:
    log.topic("more")
    for name in ("orders", "more"):
        log.do(change_partition=log.wanted(name, in_sync=[1], eligible=[2]))
    log.do(alter_config=pb.AlterConfig(resource=TOPIC, name="id-orders", set={"min.insync.replicas": "2"}))
    assert log.of() == Partition((1, 2, 3), (1,), (), 1, 0, 2)
    assert log.of("more").eligible == (2,)
    log.do(change_partition=log.wanted(in_sync=[1, 2]))
    log.do(change_partition=log.wanted(in_sync=[1], eligible=[2]))
    log.do(alter_config=pb.AlterConfig(resource=TOPIC, name="id-orders", set={"min.insync.replicas": "2", "x": "y"}))
    assert log.of().eligible == (2,)
    log.do(alter_config=pb.AlterConfig(resource=TOPIC, name="id-orders", remove=[apply_topics.MIN_IN_SYNC_KEY]))
    assert log.of().eligible == ()


def test_config_when_min_in_sync_of_cluster_changes_then_topics_without_their_own_are_cleared(log: Log) -> None:
    log.topic("more", min_insync_replicas="2")
    for name in ("orders", "more"):
        log.do(change_partition=log.wanted(name, in_sync=[1], eligible=[2]))
    log.do(alter_config=pb.AlterConfig(resource=CLUSTER, set={"min.insync.replicas": "2"}))
    assert (log.of().eligible, log.of("more").eligible) == ((), (2,))
    assert (log.of().partition_epoch, log.of("more").partition_epoch) == (2, 1)
    # What the topic says is now what the cluster says: nothing changes when it stops saying so.
    log.do(alter_config=pb.AlterConfig(resource=TOPIC, name="id-more", remove=["min.insync.replicas"]))
    assert log.of("more").eligible == (2,)


# Users, ACLs, quotas


def test_user_when_set_and_deleted_then_known_and_forgotten(log: Log) -> None:
    credential = pb.Credential(scheme="scrypt", salt=b"s", hash=b"h", n=1, r=2, p=3)
    log.do(set_user=pb.SetUser(name="alice", credential=credential))
    assert log.state.users == {"alice": Credential("scrypt", b"s", b"h", 1, 2, 3)}
    log.do(delete_user=pb.DeleteUser(name="alice"))
    log.refuse(UnknownName, delete_user=pb.DeleteUser(name="alice"))
    log.refuse(InvalidRequest, set_user=pb.SetUser())


def test_acl_when_created_twice_then_once_and_deleted_exactly(log: Log) -> None:
    acl = pb.Acl(
        principal="user:alice",
        resource=pb.ACL_RESOURCE_TOPIC,
        resource_name="orders",
        pattern=pb.ACL_PATTERN_LITERAL,
        operation=pb.ACL_OPERATION_READ,
    )
    log.do(create_acl=pb.CreateAcl(acl=acl))
    log.do(create_acl=pb.CreateAcl(acl=acl))
    assert len(log.state.acls) == 1
    other = pb.Acl()
    other.CopyFrom(acl)
    other.host = "h"
    log.refuse(UnknownName, delete_acl=pb.DeleteAcl(acl=other))
    log.do(delete_acl=pb.DeleteAcl(acl=acl))
    assert log.state.acls == {}
    acl.operation = pb.ACL_OPERATION_UNSPECIFIED
    log.refuse(InvalidRequest, create_acl=pb.CreateAcl(acl=acl))
    log.refuse(InvalidRequest, create_acl=pb.CreateAcl())


def test_quota_when_altered_then_set_and_removed(log: Log) -> None:
    alice = pb.QuotaEntity(user="alice")
    log.do(alter_quota=pb.AlterQuota(entity=alice, set={"request_rate": 5, "producer_byte_rate": 1e6}))
    log.do(alter_quota=pb.AlterQuota(entity=alice, set={"request_rate": 6}, remove=["producer_byte_rate"]))
    assert log.state.quotas == {QuotaKey("alice", ""): {"request_rate": 6.0}}
    log.do(alter_quota=pb.AlterQuota(entity=alice, remove=["request_rate"]))
    assert log.state.quotas == {}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_quota_when_not_a_limit_then_rejected(log: Log, value: float) -> None:
    log.refuse(InvalidRequest, alter_quota=pb.AlterQuota(set={"request_rate": value}))
