"""What a leader may ask of the controller, each decision applied to a real state."""

import pytest

from lograft.contract.errors import (
    FencedEpoch,
    InvalidRequest,
    NoEligibleLeader,
    NotLeader,
    UnknownBroker,
    UnknownTopicOrPartition,
)
from lograft.metadata_quorum.core import moves
from lograft.metadata_quorum.core.in_sync import change_in_sync, offer_leadership
from lograft.v1 import cluster_pb2


def ask(cluster, *members: int, **options):
    return change_in_sync(cluster.state, cluster.sync(*members, **options))


def move(cluster, *replicas: int) -> None:
    op = cluster_pb2.MovePartitionOperation(topic="t", partition=0, replicas=replicas)
    cluster.commit(moves.move(cluster.state, op))


def shape(partition) -> tuple:
    return partition.leader, partition.in_sync, partition.eligible


# Who may ask


def test_change_when_asker_does_not_lead_then_not_leader_with_a_hint(trio) -> None:
    error = ask(trio, 1, 2, broker_id=2, broker_epoch=trio.epoch(2))
    assert isinstance(error, NotLeader)
    assert (error.leader_hint, error.leader_epoch) == (1, 0)


@pytest.mark.parametrize("field", ["broker_epoch", "leader_epoch", "partition_epoch"])
def test_change_when_an_epoch_is_over_then_fenced(trio, field) -> None:
    trio.commit(ask(trio, 1, 2))
    op = trio.sync(1, 2, 3)
    setattr(op, field, getattr(op, field) + 1)
    assert isinstance(change_in_sync(trio.state, op), FencedEpoch)


def test_change_when_asker_or_partition_is_unknown_then_refused(trio) -> None:
    assert isinstance(ask(trio, 1, broker_id=9), UnknownBroker)
    assert isinstance(ask(trio, 1, topic_id="x"), UnknownTopicOrPartition)
    assert isinstance(ask(trio, 1, partition=1), UnknownTopicOrPartition)


# Which sets


def test_change_when_leader_is_left_out_then_refused(trio) -> None:
    assert isinstance(ask(trio, 2, 3), InvalidRequest)


def test_change_when_member_is_no_replica_or_named_twice_then_refused(trio) -> None:
    trio.start(4)
    assert isinstance(ask(trio, 1, 4), InvalidRequest)
    assert isinstance(ask(trio, 1, 2, 2), InvalidRequest)


def test_change_when_member_has_restarted_meanwhile_then_fenced(trio) -> None:
    trio.commit(ask(trio, 1, 2))
    op = trio.sync(1, 2, 3)
    trio.register(3)
    trio.unfence(3)
    assert isinstance(change_in_sync(trio.state, op), FencedEpoch)
    trio.commit(ask(trio, 1, 2, 3))


def test_change_when_addition_is_fenced_or_draining_then_refused(trio) -> None:
    trio.fence(3)
    assert "fenced" in str(ask(trio, 1, 2, 3))
    trio.unfence(3)
    trio.drain(3)
    assert "draining" in str(ask(trio, 1, 2, 3))


def test_change_when_draining_member_is_in_already_then_it_may_stay(trio) -> None:
    trio.drain(3)
    trio.commit(ask(trio, 1, 3))


def test_change_answers_with_the_new_partition_epoch_and_keeps_the_leader_epoch(trio) -> None:
    assert trio.commit(ask(trio, 1, 3)).number == 1
    assert (trio.partition().leader_epoch, trio.partition().partition_epoch) == (0, 1)


def test_change_orders_members_like_the_replicas(trio) -> None:
    trio.commit(ask(trio, 3, 1))
    assert trio.partition().in_sync == (1, 3)


# Eligible replicas


def test_change_when_dropped_above_the_minimum_then_not_eligible(trio) -> None:
    trio.commit(ask(trio, 1, 2))
    assert shape(trio.partition()) == (1, (1, 2), ())


def test_change_when_dropped_below_the_minimum_then_eligible(trio) -> None:
    trio.commit(ask(trio, 1, 2))
    trio.commit(ask(trio, 1))
    assert shape(trio.partition()) == (1, (1,), (2,))


def test_change_when_the_set_reaches_the_minimum_again_then_nobody_is_eligible(trio) -> None:
    trio.commit(ask(trio, 1))
    assert trio.partition().eligible == (2, 3)
    trio.commit(ask(trio, 1, 3))
    assert shape(trio.partition()) == (1, (1, 3), ())


# Moves


def test_change_when_an_added_replica_is_missing_then_the_move_goes_on(trio) -> None:
    trio.start(4, 5)
    move(trio, 4, 5, 1)
    trio.commit(ask(trio, 1, 2, 3, 4))
    assert trio.partition().adding == (4, 5)


def test_change_when_all_added_are_in_sync_then_the_move_is_done_in_the_same_step(trio) -> None:
    trio.start(4)
    move(trio, 4, 2, 1)
    trio.commit(ask(trio, 1, 2, 3, 4))
    assert trio.partition()[:4] == ((4, 2, 1), (4, 2, 1), (), 1)
    assert not trio.partition().moving
    assert trio.partition().leader_epoch == 0


def test_change_when_the_leader_is_moved_away_then_another_of_the_target_is_elected(trio) -> None:
    trio.start(4)
    move(trio, 4, 2, 3)
    trio.commit(ask(trio, 1, 2, 3, 4))
    assert trio.partition()[:5] == ((4, 2, 3), (4, 2, 3), (), 4, 1)


def test_change_when_too_few_of_the_target_are_in_sync_then_the_move_waits(trio) -> None:
    trio.start(4)
    move(trio, 4, 2, 3)
    trio.commit(ask(trio, 1, 4))
    assert trio.partition().moving
    trio.commit(ask(trio, 1, 3, 4))
    assert trio.partition()[:4] == ((4, 2, 3), (4, 3), (), 4)


def test_change_when_one_replica_grows_to_three_then_writable_all_the_time(cluster) -> None:
    cluster.start(1, 2, 3)
    cluster.topic("t", (1,))
    move(cluster, 1, 2, 3)
    assert cluster.partition()[:4] == ((1, 2, 3), (1,), (), 1)
    cluster.commit(ask(cluster, 1, 2))
    assert shape(cluster.partition()) == (1, (1, 2), ())
    cluster.commit(ask(cluster, 1, 2, 3))
    assert not cluster.partition().moving


# Leadership that is offered


def offer(cluster, **options):
    old = cluster.partition()
    facts = {
        "broker_id": old.leader,
        "broker_epoch": cluster.epoch(old.leader),
        "topic_id": "id-t",
        "leader_epoch": old.leader_epoch,
    }
    return offer_leadership(cluster.state, cluster_pb2.OfferLeadershipOperation(**(facts | options)))


def test_offer_gives_leadership_to_the_next_in_sync_one_and_keeps_the_set(trio) -> None:
    trio.commit(offer(trio))
    assert shape(trio.partition()) == (2, (1, 2, 3), ())
    assert trio.partition().leader_epoch == 1


def test_offer_prefers_a_broker_that_does_not_drain(trio) -> None:
    trio.drain(2)
    trio.commit(offer(trio))
    assert trio.partition().leader == 3


def test_offer_when_nobody_else_is_in_sync_then_refused_even_with_an_eligible_one(trio) -> None:
    trio.commit(ask(trio, 1))
    assert trio.partition().eligible == (2, 3)
    assert isinstance(offer(trio), NoEligibleLeader)


def test_offer_when_asker_is_over_then_refused(trio) -> None:
    assert isinstance(offer(trio, broker_epoch=99), FencedEpoch)
    assert isinstance(offer(trio, leader_epoch=9), FencedEpoch)
    assert isinstance(offer(trio, broker_id=2, broker_epoch=trio.epoch(2)), NotLeader)
