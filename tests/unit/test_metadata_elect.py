"""Who is elected, and what becomes of in-sync and eligible replicas then."""

import pytest

from lograft.metadata_quorum.core.elect import (
    change_to,
    eligible_after,
    in_replica_order,
    next_leader,
    with_leader,
    without_broker,
)
from lograft.metadata_quorum.core.model import Broker, Partition, PartitionKey

KEY = PartitionKey("id-t", 4)


def brokers(*living: int, draining: tuple[int, ...] = ()) -> dict[int, Broker]:
    return {
        number: Broker(
            number, number, f"i{number}", f"d{number}", fenced=number not in living, draining=number in draining
        )
        for number in (1, 2, 3, 4)
    }


def some(in_sync: tuple[int, ...] = (1, 2, 3), **options) -> Partition:
    return Partition((1, 2, 3), in_sync, **options)


def test_next_leader_is_the_first_living_replica_that_is_in_sync() -> None:
    assert next_leader(some((3, 2)), brokers(1, 2, 3)) == 2
    assert next_leader(some((2, 3)), brokers(1, 3)) == 3


def test_next_leader_when_the_first_is_draining_then_prefers_another() -> None:
    assert next_leader(some(), brokers(1, 2, 3, draining=(1,))) == 2
    assert next_leader(some(), brokers(1, 2, 3, draining=(1, 2, 3))) == 1


def test_next_leader_when_in_sync_is_draining_and_eligible_is_not_then_in_sync_wins() -> None:
    assert next_leader(some((1,), eligible=(2,)), brokers(1, 2, draining=(1,))) == 1


def test_next_leader_when_no_in_sync_one_lives_then_the_first_eligible() -> None:
    assert next_leader(some((1,), eligible=(3, 2)), brokers(2, 3)) == 2


def test_next_leader_when_only_others_live_then_nobody_unless_unclean() -> None:
    assert next_leader(some((1,)), brokers(2, 3)) is None
    assert next_leader(some((1,)), brokers(3, 2), unclean=True) == 2
    assert next_leader(some((1,)), brokers(), unclean=True) is None
    assert next_leader(some((9,))._replace(replicas=(9,)), brokers(1)) is None


def test_unclean_still_prefers_a_replica_that_holds_everything() -> None:
    assert next_leader(some((2,), eligible=(3,)), brokers(1, 2, 3), unclean=True) == 2
    assert next_leader(some((2,), eligible=(3,)), brokers(1, 3), unclean=True) == 3


def test_with_leader_when_elected_from_in_sync_then_sets_stay() -> None:
    assert with_leader(some((2, 3)), brokers(2, 3), min_in_sync=2) == some((2, 3), leader=2)


def test_with_leader_when_eligible_is_elected_then_it_is_in_sync_alone_and_other_eligible_ones_stay() -> None:
    new = with_leader(some((1,), eligible=(2, 3)), brokers(2, 3), min_in_sync=2)
    assert (new.leader, new.in_sync, new.eligible) == (2, (2,), (3,))
    assert with_leader(some((1,), eligible=(2, 3)), brokers(2, 3), min_in_sync=1).eligible == ()


def test_with_leader_when_unclean_then_it_is_in_sync_alone_and_nobody_is_eligible() -> None:
    new = with_leader(some((1,), eligible=(2,)), brokers(3), min_in_sync=2, unclean=True)
    assert (new.leader, new.in_sync, new.eligible) == (3, (3,), ())


def test_eligible_after_a_drop_below_the_minimum_holds_the_dropped() -> None:
    assert eligible_after(some((1, 2)), (1,), min_in_sync=2) == (2,)
    assert eligible_after(some(), (1,), min_in_sync=2) == (2, 3)
    assert eligible_after(some((1,), eligible=(2,)), (1,), min_in_sync=2) == (2,)


def test_eligible_after_a_set_at_the_minimum_is_empty() -> None:
    assert eligible_after(some(), (1, 2), min_in_sync=2) == ()
    assert eligible_after(some((1,), eligible=(2, 3)), (1, 2), min_in_sync=2) == ()


def test_eligible_after_leaves_out_brokers_that_lost_records() -> None:
    assert eligible_after(some(), (1,), min_in_sync=2, lost=(3,)) == (2,)


def test_without_broker_when_follower_then_it_leaves_and_the_leader_stays() -> None:
    new = without_broker(some(leader=1), 2, brokers(1, 3), min_in_sync=2)
    assert new == some((1, 3), leader=1)


def test_without_broker_when_leader_then_the_next_in_sync_leads() -> None:
    assert without_broker(some(leader=1), 1, brokers(2, 3), min_in_sync=2) == some((2, 3), leader=2)


def test_without_broker_when_the_set_falls_below_the_minimum_then_it_becomes_eligible() -> None:
    new = without_broker(some((1, 2), leader=1), 1, brokers(2, 3), min_in_sync=2)
    assert new == some((2,), eligible=(1,), leader=2)


def test_without_broker_when_last_member_then_it_stays_and_nobody_leads() -> None:
    assert without_broker(some((1,), leader=1), 1, brokers(2, 3), min_in_sync=1) == some((1,))


def test_without_broker_when_last_member_and_an_eligible_one_lives_then_that_leads() -> None:
    new = without_broker(some((1,), eligible=(3,), leader=1), 1, brokers(2, 3), min_in_sync=2)
    assert new == some((3,), eligible=(1,), leader=3)


def test_without_broker_when_last_member_and_topic_allows_unclean_then_a_living_one_leads() -> None:
    new = without_broker(some((1,), leader=1), 1, brokers(3), min_in_sync=2, unclean=True)
    assert new == some((3,), leader=3)


def test_without_broker_when_not_concerned_then_nothing_changes() -> None:
    assert without_broker(some((1, 2), leader=1), 3, brokers(1, 2), min_in_sync=2) is None
    assert without_broker(some((1,), eligible=(3,), leader=1), 3, brokers(1, 2), min_in_sync=2) is None
    assert without_broker(some((3,)), 3, brokers(1, 2), min_in_sync=2) is None


def test_without_broker_when_records_are_lost_then_it_is_not_eligible() -> None:
    assert without_broker(some((1, 2), leader=1), 2, brokers(1), min_in_sync=2, lost=True) == some((1,), leader=1)
    new = without_broker(some((1,), eligible=(2,), leader=1), 2, brokers(1), min_in_sync=2, lost=True)
    assert new == some((1,), leader=1)


def test_without_broker_when_wiped_then_it_leaves_even_as_the_last() -> None:
    assert without_broker(some((1,), leader=1), 1, brokers(2), min_in_sync=1, wiped=True) == some(())


@pytest.mark.parametrize(
    ("leader", "new_term", "epoch"), [(1, False, 7), (1, True, 8), (2, False, 8), (None, False, 8)]
)
def test_change_raises_the_leader_epoch_when_the_leader_changes_or_a_new_term_is_wished(
    leader, new_term, epoch
) -> None:
    old = some(leader=1, leader_epoch=7, partition_epoch=9)
    change = change_to(KEY, old, old._replace(leader=leader), new_term=new_term)
    assert change.leader_epoch == epoch
    assert change.HasField("leader") == (leader is not None)
    assert (change.topic_id, change.partition, change.partition_epoch) == ("id-t", 4, 9)


def test_change_carries_every_new_value() -> None:
    new = Partition((1, 2, 3, 4), (1, 2), (3,), 1, adding=(4,), removing=(2,))
    change = change_to(KEY, some(leader=1), new)
    lists = (change.replicas, change.in_sync, change.eligible, change.adding, change.removing)
    assert [list(each) for each in lists] == [[1, 2, 3, 4], [1, 2], [3], [4], [2]]
    assert not change.unclean


def test_change_is_unclean_exactly_if_the_new_leader_may_miss_records() -> None:
    old = some((1,), eligible=(2,))
    assert not change_to(KEY, old, old._replace(leader=1)).unclean
    assert not change_to(KEY, old, old._replace(leader=2, in_sync=(2,), eligible=())).unclean
    assert change_to(KEY, old, old._replace(leader=3, in_sync=(3,), eligible=())).unclean


def test_in_replica_order() -> None:
    assert in_replica_order(some(), (3, 1, 9)) == (1, 3)
