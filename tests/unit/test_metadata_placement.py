"""Where new replicas go."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lograft.metadata_quorum.core.model import Broker
from lograft.metadata_quorum.core.placement import candidates, place


def brokers(racks: str | int) -> list[Broker]:
    """One broker per letter, or so many without a rack."""
    names = [""] * racks if isinstance(racks, int) else list(racks)
    return [Broker(10 + number, 1, "i", "d", rack=rack, fenced=False) for number, rack in enumerate(names)]


def spread(counts: Counter[int], among: list[Broker]) -> int:
    values = [counts[broker.broker_id] for broker in among]
    return max(values) - min(values)


def loads(placed: list[tuple[int, ...]]) -> tuple[Counter[int], Counter[int]]:
    return Counter(each for replicas in placed for each in replicas), Counter(replicas[0] for replicas in placed)


@given(st.data())
def test_place_without_racks_is_even_for_replicas_and_leaders(data) -> None:
    count = data.draw(st.integers(1, 12))
    factor = data.draw(st.integers(1, count))
    among = brokers(count)
    placed = place(
        among,
        partitions=data.draw(st.integers(1, 60)),
        replication_factor=factor,
        start=data.draw(st.integers(0, 1_000)),
        shift=data.draw(st.integers(0, 1_000)),
    )
    assert all(len(set(replicas)) == factor for replicas in placed)
    replicas, leaders = loads(placed)
    assert spread(replicas, among) <= 1
    assert spread(leaders, among) <= 1


@given(st.data())
def test_place_with_equal_racks_is_even_and_uses_different_racks(data) -> None:
    racks = data.draw(st.integers(2, 5))
    among = brokers("abcde"[:racks] * data.draw(st.integers(1, 4)))
    factor = data.draw(st.integers(1, racks))
    placed = place(among, partitions=data.draw(st.integers(1, 60)), replication_factor=factor, start=3, shift=5)
    rack_of = {broker.broker_id: broker.rack for broker in among}
    assert all(len({rack_of[each] for each in replicas}) == factor for replicas in placed)
    replicas, leaders = loads(placed)
    assert spread(replicas, among) <= 1
    assert spread(leaders, among) <= 1


@given(st.data())
def test_place_with_unequal_racks_uses_different_racks_and_brokers(data) -> None:
    among = brokers("".join(name * data.draw(st.integers(1, 4)) for name in "abcd"))
    factor = data.draw(st.integers(1, len(among)))
    placed = place(among, partitions=40, replication_factor=factor, start=data.draw(st.integers(0, 99)), shift=1)
    rack_of = {broker.broker_id: broker.rack for broker in among}
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({rack_of[each] for each in replicas}) == min(factor, 4)


def test_place_with_nearly_equal_racks_is_close() -> None:
    among = brokers("aaabbbcc")
    placed = place(among, partitions=400, replication_factor=2, start=0, shift=0)
    replicas, leaders = loads(placed)
    assert spread(replicas, among) <= 2
    assert spread(leaders, among) <= 4


def test_place_when_some_broker_has_no_rack_then_racks_do_not_count() -> None:
    among = [*brokers("aab"), Broker(99, 1, "i", "d", fenced=False)]
    replicas, _ = loads(place(among, partitions=4, replication_factor=3, start=0, shift=0))
    assert spread(replicas, among) == 0


def test_place_when_fewer_racks_than_replicas_then_each_rack_gets_its_share() -> None:
    among = brokers("ababab")
    rack_of = {broker.broker_id: broker.rack for broker in among}
    for replicas in place(among, partitions=12, replication_factor=4, start=0, shift=0):
        assert Counter(rack_of[each] for each in replicas) == {"a": 2, "b": 2}


def test_place_is_deterministic_and_begins_at_start() -> None:
    among = brokers(5)
    options = {"partitions": 7, "replication_factor": 3, "shift": 2}
    assert place(among, start=3, **options) == place(among, start=3, **options)
    assert [place(among, start=start, **options)[0][0] for start in range(6)] == [10, 11, 12, 13, 14, 10]


def test_place_spreads_the_followers_of_one_broker_over_many_others() -> None:
    among = brokers(7)
    placed = place(among, partitions=42, replication_factor=3, start=0, shift=0)
    others = {each for replicas in placed if 10 in replicas for each in replicas} - {10}
    assert others == {11, 12, 13, 14, 15, 16}
    successors = {replicas[1] for replicas in placed if replicas[0] == 10}
    assert len(successors) >= 3


@pytest.mark.parametrize("racks", [100, "abcde" * 20, "aab" * 33])
def test_place_takes_the_largest_topic(racks) -> None:
    assert len(place(brokers(racks), partitions=10_000, replication_factor=3, start=0, shift=0)) == 10_000


def test_candidates_are_unfenced_and_not_draining_by_id(cluster) -> None:
    cluster.start(3, 1, 2, 4)
    cluster.fence(2)
    cluster.drain(4)
    assert [broker.broker_id for broker in candidates(cluster.state)] == [1, 3]
