"""Which brokers get the replicas of new partitions.

Deterministic from its arguments: the controller chooses ``start`` and ``shift``, so that topics with one partition do
not all begin on the same broker.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import gcd

from lograft.metadata_quorum.core.model import Broker, ClusterState


def candidates(state: ClusterState) -> list[Broker]:
    """Brokers that can take new replicas, by id."""
    return [state.brokers[broker_id] for broker_id in sorted(state.brokers) if state.brokers[broker_id].may_join]


def place(
    brokers: Sequence[Broker], *, partitions: int, replication_factor: int, start: int, shift: int
) -> list[tuple[int, ...]]:
    """Replicas for each partition, the preferred leader first.

    A partition's replicas are on different brokers, and on different racks if every broker has one and there are
    enough. Brokers get equally many replicas and equally many leaders, up to one; where racks are of unequal size,
    as equal as the racks allow. ``replication_factor`` is at most the number of brokers.
    """
    racks: dict[str, list[int]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack, []).append(broker.broker_id)
    if "" in racks or len(racks) == 1:
        order = [broker.broker_id for broker in brokers]
        return _in_rounds(order, partitions, replication_factor, start, shift)
    if len({len(members) for members in racks.values()}) == 1:
        # One of each rack in turn: as many neighbours as there are racks are on different racks, around the end too.
        order = [broker_id for row in zip(*racks.values(), strict=True) for broker_id in row]
        return _in_rounds(order, partitions, replication_factor, start, shift)
    return _by_load(list(racks.values()), partitions, replication_factor, start, shift)


def _in_rounds(
    order: Sequence[int], partitions: int, replication_factor: int, start: int, shift: int
) -> list[tuple[int, ...]]:
    """Deal the brokers out like cards: each partition takes the next ones of a circle.

    As many partitions as there are brokers are a round. In a round every broker gets as many replicas as every other,
    and leads once, so only the last, partial round can make a difference of one. Each round walks the circle with
    another stride: the partitions of a broker that fails are then followed on many others, not on its neighbours only.
    """
    count = len(order)
    strides = [stride for stride in range(1, count) if gcd(stride, count) == 1] or [1]
    # Windows begin only at multiples of this; the leader's place in the window makes up for it.
    common = gcd(replication_factor, count)
    placed = []
    for partition in range(partitions):
        turn, index = divmod(partition, count)
        stride = strides[(shift + turn) % len(strides)]
        first = index * replication_factor
        window = [order[(start + (first + place) * stride) % count] for place in range(replication_factor)]
        leader = index // (count // common) % common
        followers = window[leader + 1 :] + window[:leader]
        # Who takes over when the leader fails changes from round to round as well.
        turned = turn % len(followers) if followers else 0
        placed.append((window[leader], *followers[turned:], *followers[:turned]))
    return placed


def _by_load(
    racks: Sequence[Sequence[int]], partitions: int, replication_factor: int, start: int, shift: int
) -> list[tuple[int, ...]]:
    """Racks of unequal size: each partition takes the least loaded broker of each of the least loaded racks."""
    order = [broker_id for members in racks for broker_id in members]
    count = len(order)
    strides = [stride for stride in range(1, count) if gcd(stride, count) == 1]
    position = {broker_id: index for index, broker_id in enumerate(order)}

    def entry(load: int, broker_id: int) -> tuple[int, int, int]:
        # Among equally loaded ones each level of load has its own order, so that not the same ones meet every time.
        stride = strides[(shift + load) % len(strides)]
        return load, (position[broker_id] * stride - start) % count, broker_id

    heaps = [[entry(0, broker_id) for broker_id in members] for members in racks]
    for heap in heaps:
        heapify(heap)
    leads = dict.fromkeys(order, 0)
    placed = []
    for _ in range(partitions):
        taken: list[tuple[int, int]] = []  # rack, broker
        loads: list[int] = []
        while len(taken) < replication_factor:
            # One of each rack, then a second of each, and so on.
            open_racks = sorted((heap[0], rack) for rack, heap in enumerate(heaps) if heap)
            for _top, rack in open_racks[: replication_factor - len(taken)]:
                load, _tie, broker_id = heappop(heaps[rack])
                taken.append((rack, broker_id))
                loads.append(load)
        for (rack, broker_id), load in zip(taken, loads, strict=True):
            heappush(heaps[rack], entry(load + 1, broker_id))
        replicas = [broker_id for _rack, broker_id in taken]
        leader = min(replicas, key=leads.__getitem__)
        leads[leader] += 1
        place = replicas.index(leader)
        placed.append((*replicas[place:], *replicas[:place]))
    return placed
