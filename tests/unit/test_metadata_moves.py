"""Moves, draining and elections by hand, each decision applied to a real state."""

import pytest

from lograft.contract.errors import (
    InvalidAssignment,
    InvalidRequest,
    MoveRefused,
    NoEligibleLeader,
    UnknownBroker,
    UnknownTopicOrPartition,
)
from lograft.metadata_quorum.core import moves
from lograft.metadata_quorum.core.in_sync import change_in_sync
from lograft.v1 import cluster_pb2


@pytest.fixture
def five(trio):
    """Five brokers; topic t on 1, 2, 3."""
    trio.start(4, 5)
    return trio


def move(cluster, *replicas: int, topic: str = "t", partition: int = 0):
    op = cluster_pb2.MovePartitionOperation(topic=topic, partition=partition, replicas=replicas)
    return moves.move(cluster.state, op)


def cancel(cluster, topic: str = "t"):
    return moves.cancel(cluster.state, cluster_pb2.CancelMoveOperation(topic=topic, partition=0))


def sync(cluster, *members: int, topic: str = "t", number: int = 0) -> None:
    cluster.commit(change_in_sync(cluster.state, cluster.sync(*members, topic=topic, number=number)))


def do_all(cluster, changes) -> int:
    for change in changes:
        cluster.commit(change)
    return len(changes)


# Begin


def test_move_adds_the_new_ones_and_changes_nothing_else(five) -> None:
    five.commit(move(five, 4, 2, 3))
    now = five.partition()
    assert (now.adding, now.removing, now.in_sync, now.leader) == ((4,), (1,), (1, 2, 3), 1)
    assert (now.target, now.original) == ((4, 2, 3), (1, 2, 3))


@pytest.mark.parametrize("target", [(5, 4), (3, 4), (4, 2, 1), (3, 2, 1, 4)])
def test_move_goes_to_exactly_the_replicas_that_were_asked_for(five, target) -> None:
    five.commit(move(five, *target))
    assert five.partition().target == target
    assert set(five.partition().original) == {1, 2, 3}


def test_move_when_partition_or_replicas_are_wrong_then_refused(five) -> None:
    assert isinstance(move(five, 4, topic="x"), UnknownTopicOrPartition)
    assert isinstance(move(five, 4, partition=1), UnknownTopicOrPartition)
    assert isinstance(move(five), InvalidAssignment)
    assert isinstance(move(five, 4, 4), InvalidAssignment)
    assert isinstance(move(five, 9), InvalidAssignment)


def test_move_when_a_new_broker_is_fenced_or_draining_then_refused(five) -> None:
    five.fence(4)
    five.drain(5, 3)
    assert "fenced" in str(move(five, 1, 2, 4))
    assert "draining" in str(move(five, 1, 2, 5))
    five.commit(move(five, 3, 2, 1))  # one that stays may drain


def test_move_when_one_is_in_progress_then_refused(five) -> None:
    five.commit(move(five, 4, 2, 3))
    assert isinstance(move(five, 5, 2, 3), MoveRefused)


def test_move_when_replicas_are_there_already_then_nothing_happens(five) -> None:
    assert move(five, 1, 2, 3).WhichOneof("kind") == "barrier"


def test_move_when_only_the_order_changes_then_done_at_once(five) -> None:
    five.commit(move(five, 3, 1, 2))
    now = five.partition()
    assert (now.replicas, now.leader, now.moving) == ((3, 1, 2), 1, False)


# Fewer replicas


def test_move_to_fewer_when_enough_are_in_sync_then_done_at_once(five) -> None:
    five.commit(move(five, 2, 3))
    now = five.partition()
    assert (now.replicas, now.in_sync, now.leader, now.leader_epoch, now.moving) == ((2, 3), (2, 3), 2, 1, False)


def test_move_to_fewer_when_too_few_would_be_in_sync_then_waits(five) -> None:
    sync(five, 1, 2)
    five.commit(move(five, 1, 3))
    now = five.partition()
    assert (now.removing, now.adding, now.in_sync) == ((2,), (), (1, 2))
    sync(five, 1, 2, 3)
    assert five.partition().replicas == (1, 3)
    assert five.partition().in_sync == (1, 3)


def test_move_to_one_replica_is_not_held_up_by_the_minimum(five) -> None:
    five.commit(move(five, 3))
    assert five.partition()[:4] == ((3,), (3,), (), 3)


def test_move_to_fewer_when_the_partition_has_no_leader_then_waits(five) -> None:
    five.fence(1, 2, 3)
    assert five.partition().in_sync == (3,)
    five.commit(move(five, 3))
    assert five.partition().removing == (1, 2)
    assert five.partition().eligible == (2,)


# Cancel


def test_cancel_goes_back_in_order(five) -> None:
    before = five.partition()
    five.commit(move(five, 4, 2, 3))
    five.commit(cancel(five))
    assert five.partition()[:4] == before[:4]
    assert not five.partition().moving


def test_cancel_when_an_added_one_is_in_sync_then_it_leaves(five) -> None:
    five.commit(move(five, 4, 5, 1))
    sync(five, 1, 2, 3, 4)
    five.commit(cancel(five))
    assert five.partition().in_sync == (1, 2, 3)


def test_cancel_when_an_added_one_leads_then_another_is_elected(five) -> None:
    five.commit(move(five, 4, 5))
    sync(five, 1, 2, 3, 4)
    five.fence(1)
    five.commit(move_leader(five, 4))
    five.commit(cancel(five))
    assert five.partition()[:4] == ((1, 2, 3), (2, 3), (), 2)


def move_leader(cluster, leader: int):
    from lograft.metadata_quorum.core.elect import partition_change
    from lograft.metadata_quorum.core.model import PartitionKey

    old = cluster.partition()
    return partition_change(PartitionKey("id-t", 0), old, old._replace(leader=leader))


def test_cancel_when_too_few_of_the_old_ones_are_in_sync_then_refused(five) -> None:
    five.commit(move(five, 4, 5))
    sync(five, 1, 4)
    assert "2 are needed" in str(cancel(five))
    sync(five, 1)
    five.commit(cancel(five))  # nobody who is in sync is given up
    assert five.partition().in_sync == (1,)


def test_cancel_when_nothing_moves_then_refused(five) -> None:
    assert isinstance(cancel(five), MoveRefused)
    assert isinstance(cancel(five, "x"), UnknownTopicOrPartition)


# What moves wait for


def test_list_moves_says_what_each_waits_for(five) -> None:
    def waiting(topic: str = "") -> list[str]:
        return [each.waiting_for for each in moves.list_moves(five.state, topic)]

    assert waiting() == []
    five.commit(move(five, 4, 5, 1))
    assert waiting() == ["broker 4 to catch up and broker 5 to catch up"]
    five.drain(4)
    five.fence(5)
    assert waiting()[0].startswith("broker 4, which is draining")
    assert waiting()[0].endswith("broker 5, which is fenced (session timed out)")
    assert waiting("x") == []
    five.fence(1, 2, 3)
    assert waiting("t")[0].startswith("a leader")


def test_list_moves_when_min_in_sync_is_not_reached_then_says_so(five) -> None:
    five.topic("u", (1, 2, 3))
    five.commit(move(five, 4, 2, 3))
    sync(five, 1, 4)
    (only,) = moves.list_moves(five.state, "t")
    assert (list(only.adding), list(only.removing), list(only.added_in_sync)) == ([4], [1], [4])
    assert only.waiting_for == "1 more of the brokers 4, 2, 3 in sync (min.insync.replicas)"


def test_completed_moves_finishes_what_became_complete_without_the_leader(five) -> None:
    sync(five, 1, 2)
    five.commit(move(five, 1, 3))
    assert moves.completed_moves(five.state, limit=10) == []
    five.configure(min_insync_replicas="1")
    assert moves.list_moves(five.state, "")[0].waiting_for.startswith("nothing")
    assert moves.completed_moves(five.state, limit=0) == []
    assert do_all(five, moves.completed_moves(five.state, limit=10)) == 1
    assert five.partition().replicas == (1, 3)


# Draining


def test_drain_moves_leadership_first_then_replicas(five) -> None:
    five.drain(1)
    assert do_all(five, moves.next_drain_moves(five.state, limit=5)) == 1
    assert five.partition().leader == 2
    assert not five.partition().moving
    assert do_all(five, moves.next_drain_moves(five.state, limit=5)) == 1
    assert five.partition().target == (4, 2, 3)
    assert moves.next_drain_moves(five.state, limit=5) == []
    sync(five, 1, 2, 3, 4)
    assert five.state.replicas_on.get(1, {}) == {}


def test_drain_has_at_most_so_many_moves_in_progress(five) -> None:
    five.topic("u", *[(2, 1)] * 10)
    five.drain(1)
    assert do_all(five, moves.next_drain_moves(five.state, limit=3)) == 4  # one leadership
    assert len(five.state.moving) == 3
    assert moves.next_drain_moves(five.state, limit=3) == []
    number = next(iter(five.state.moving)).partition
    now = five.partition("u", number)
    sync(five, *now.in_sync, *now.adding, topic="u", number=number)
    assert do_all(five, moves.next_drain_moves(five.state, limit=3)) == 1


def test_drain_goes_to_the_least_loaded_brokers(five) -> None:
    five.topic("heavy", *[(4,)] * 6)
    five.topic("u", *[(2, 1)] * 6)
    five.drain(1)
    do_all(five, moves.next_drain_moves(five.state, limit=100))
    targets = [five.partition("u", number).target for number in range(6)]
    assert targets.count((2, 3)) >= 2
    assert targets.count((2, 5)) >= 3
    assert targets.count((2, 4)) == 0


def test_drain_goes_to_another_rack_than_the_replicas_that_stay(cluster) -> None:
    cluster.start(1, 2, 3, 4, racks="abba")
    cluster.topic("t", (2, 1))
    cluster.drain(1)
    do_all(cluster, moves.next_drain_moves(cluster.state, limit=5))
    assert cluster.partition().target == (2, 4)


def test_drain_replaces_several_draining_brokers_at_once(five) -> None:
    five.drain(1, 2)
    do_all(five, moves.next_drain_moves(five.state, limit=5))
    do_all(five, moves.next_drain_moves(five.state, limit=5))
    assert set(five.partition().target) == {3, 4, 5}


def test_drain_when_a_move_leads_to_the_draining_broker_then_called_off(five) -> None:
    five.commit(move(five, 4, 2, 3))
    five.drain(4)
    assert do_all(five, moves.next_drain_moves(five.state, limit=5)) == 1
    assert five.partition().replicas == (1, 2, 3)
    assert moves.next_drain_moves(five.state, limit=5) == []


def test_drain_of_a_dead_broker_moves_what_others_can_copy(five) -> None:
    five.topic("alone", (1,))
    five.fence(1)
    five.drain(1)
    do_all(five, moves.next_drain_moves(five.state, limit=5))
    assert five.partition().target == (4, 2, 3)
    assert not five.partition("alone").moving


def test_drain_when_no_broker_can_take_the_replicas_then_waits(trio) -> None:
    trio.drain(1)
    do_all(trio, moves.next_drain_moves(trio.state, limit=5))
    assert moves.next_drain_moves(trio.state, limit=5) == []
    described = moves.describe_drain(trio.state, 1)
    assert described.partitions[0].waiting_for.startswith("a broker that can take it: 0 are alive")


def test_describe_drain_tells_what_remains_and_why(five) -> None:
    five.topic("alone", (1,))
    five.topic("last", (1,))
    five.topic("u", (2, 1))
    assert isinstance(moves.describe_drain(five.state, 9), UnknownBroker)
    idle = moves.describe_drain(five.state, 1)
    assert (idle.draining, idle.remaining_replicas, len(idle.partitions)) == (False, 4, 0)
    five.drain(1)
    do_all(five, moves.next_drain_moves(five.state, limit=1))
    described = moves.describe_drain(five.state, 1)
    assert (described.draining, described.remaining_replicas) == (True, 4)
    words = {each.topic: each.waiting_for for each in described.partitions}
    assert words["alone"].startswith("its move: broker")
    assert words["u"] == "its turn: other moves are in progress"
    five.fence(1)
    words = {each.topic: each.waiting_for for each in moves.describe_drain(five.state, 1).partitions}
    assert words["last"].startswith("a leader")


def test_describe_drain_lists_at_most_a_thousand(five) -> None:
    five.topic("u", *[(1, 2)] * 1_100)
    five.drain(1)
    described = moves.describe_drain(five.state, 1)
    assert (described.remaining_replicas, len(described.partitions)) == (1_101, 1_000)


# Elections


def test_preferred_elections_give_leadership_back(five) -> None:
    five.topic("u", (1, 2), (2, 1))
    five.fence(1)
    five.unfence(1)
    assert moves.preferred_elections(five.state, limit=10) == []  # not in sync yet
    sync(five, 1, 2, 3)
    sync(five, 1, 2, topic="u")
    assert len(moves.preferred_elections(five.state, limit=1)) == 1
    assert do_all(five, moves.preferred_elections(five.state, limit=10)) == 2
    assert [five.partition().leader, five.partition("u").leader] == [1, 1]
    assert five.partition().leader_epoch == 2


def test_preferred_elections_leave_out_draining_moving_and_leaderless_ones(five) -> None:
    five.topic("m", (1, 2))
    five.commit(move(five, 2, 1, 3))  # t: preferred is now 2
    five.drain(2)
    assert moves.preferred_elections(five.state, limit=10) == []
    five.drain(2, cancel=True)
    assert len(moves.preferred_elections(five.state, limit=10)) == 1
    five.commit(move(five, 2, 4, 5))
    assert moves.preferred_elections(five.state, limit=10) == []


def elect(cluster, election: int, topic: str = "t", partition: int = 0):
    op = cluster_pb2.ElectLeaderOperation(topic=topic, partition=partition, election=election)
    return moves.elect(cluster.state, op)


def test_elect_preferred(five) -> None:
    preferred = cluster_pb2.ELECTION_PREFERRED
    assert elect(five, preferred).WhichOneof("kind") == "barrier"
    five.commit(move(five, 2, 1, 3))
    five.drain(2)
    assert "draining" in str(elect(five, preferred))
    five.drain(2, cancel=True)
    five.commit(elect(five, preferred))
    assert five.partition().leader == 2
    five.fence(2)
    assert isinstance(elect(five, preferred), NoEligibleLeader)


def test_elect_unclean_only_without_a_leader_and_with_somebody_alive(five) -> None:
    unclean = cluster_pb2.ELECTION_UNCLEAN
    assert elect(five, unclean).WhichOneof("kind") == "barrier"
    five.fence(1, 2, 3)
    assert isinstance(elect(five, unclean), NoEligibleLeader)
    five.unfence(1)
    assert five.partition().leader is None
    five.commit(elect(five, unclean))
    assert five.partition()[1:4] == ((1,), (), 1)


def test_elect_unclean_after_a_wiped_disk_brings_the_partition_back(five) -> None:
    five.topic("alone", (1,))
    five.register(1, directory_id="other")
    five.unfence(1)
    assert five.partition("alone").in_sync == ()
    five.commit(elect(five, cluster_pb2.ELECTION_UNCLEAN, "alone"))
    assert five.partition("alone")[1:4] == ((1,), (), 1)


def test_elect_when_not_understood_then_refused(five) -> None:
    assert isinstance(elect(five, 0), InvalidRequest)
    assert isinstance(elect(five, 1, "x"), UnknownTopicOrPartition)
    assert isinstance(elect(five, 1, "t", 7), UnknownTopicOrPartition)
