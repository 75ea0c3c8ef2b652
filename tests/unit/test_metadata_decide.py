"""The one door to all decisions, and long random walks in which `apply` accepts every one of them."""

import random

import pytest

from lograft.contract.errors import BrokerIdInUse, InvalidRequest, LogError, TopicExists
from lograft.metadata_quorum.core import brokers, config_keys, moves
from lograft.metadata_quorum.core.decide import Context, decide
from lograft.metadata_quorum.core.model import Credential, PartitionKey
from lograft.v1 import cluster_pb2, metadata_pb2

CONTEXT = Context(now_ms=5, new_id="id-u", credential=Credential("scrypt", b"s", b"h", 2, 8, 1))


def operation(kind: str, command_id: bytes = b"", **fields) -> cluster_pb2.Operation:
    made = cluster_pb2.Operation(command_id=command_id)
    body = getattr(made, kind)
    body.SetInParent()
    body.MergeFrom(type(body)(**fields))
    return made


def test_decide_knows_every_operation(trio) -> None:
    for field in cluster_pb2.Operation.DESCRIPTOR.oneofs_by_name["kind"].fields:
        decided = decide(trio.state, operation(field.name), CONTEXT)
        assert isinstance(decided, metadata_pb2.Change | LogError)
        if isinstance(decided, InvalidRequest):
            assert "does not know" not in str(decided), field.name


def test_decide_when_nothing_is_asked_then_refused(trio) -> None:
    assert isinstance(decide(trio.state, cluster_pb2.Operation(), CONTEXT), InvalidRequest)


def test_decide_copies_the_command_id(trio) -> None:
    change = decide(trio.state, operation("barrier", b"x" * 16), CONTEXT)
    assert (change.command_id, change.WhichOneof("kind")) == (b"x" * 16, "barrier")


@pytest.mark.parametrize("length", [1, 15, 17])
def test_decide_when_command_id_has_another_length_then_refused(trio, length) -> None:
    assert isinstance(decide(trio.state, operation("barrier", b"x" * length), CONTEXT), InvalidRequest)


def test_decide_when_a_command_is_repeated_then_answered_with_the_first_result(trio) -> None:
    create = operation("create_topic", b"c" * 16, name="u", partitions=1)
    first = trio.commit(decide(trio.state, create, CONTEXT))
    again = trio.commit(decide(trio.state, create, CONTEXT))
    assert again == first
    create.command_id = b"d" * 16
    assert isinstance(decide(trio.state, create, CONTEXT), TopicExists)


def test_decide_passes_the_context_on(trio) -> None:
    trio.commit(decide(trio.state, operation("create_topic", name="u"), CONTEXT))
    assert trio.state.topics["id-u"].created_at_ms == 5
    trio.commit(decide(trio.state, operation("set_user", name="alice", password="p"), CONTEXT))
    assert trio.state.users["alice"].hash == b"h"
    op = cluster_pb2.Operation(register_broker=trio.registration(1))
    alive = Context(now_ms=5, alive=frozenset({1}))
    assert isinstance(decide(trio.state, op, alive), BrokerIdInUse)
    assert isinstance(decide(trio.state, op, CONTEXT), metadata_pb2.Change)


class Walk:
    """A cluster to which random things happen. Committing fails if `apply` refuses what was decided."""

    def __init__(self, cluster, seed: int) -> None:
        self.cluster = cluster
        self.state = cluster.state
        self.random = random.Random(seed)
        self.wiped = 0
        cluster.start(1, 2, 3, 4, 5, racks="aabbc" if seed % 2 else "")
        cluster.topic("a", (1, 2, 3), (2, 3, 4), (5, 1, 4))
        cluster.topic("b", (4, 5), (3, 1), min_insync_replicas="1")
        cluster.topic("d", (3,), (5,))
        cluster.topic("c", (1, 5, 2), (4, 3, 1), unclean_leader_election_enable="true")

    def step(self) -> None:
        broker_id = self.random.choice(list(self.state.brokers))
        actions = [
            lambda: brokers.fence(self.state, broker_id, "session timed out"),
            lambda: brokers.unfence(self.state, broker_id),
            lambda: brokers.unfence(self.state, broker_id),
            lambda: self._registration(broker_id),
            lambda: brokers.drain(
                self.state, cluster_pb2.DrainBrokerOperation(broker_id=broker_id, cancel=self.random.random() < 0.6)
            ),
            self._in_sync,
            self._in_sync,
            self._in_sync,
            self._move,
            lambda: moves.cancel(self.state, cluster_pb2.CancelMoveOperation(**self._somewhere())),
            self._elect,
            self._offer,
            self._minimum,
        ]
        decided = self.random.choice(actions)()
        if not isinstance(decided, LogError):
            self.cluster.commit(decided)
        if self.random.random() < 0.2:
            several = self.random.choice(
                [
                    moves.next_drain_moves(self.state, limit=3),
                    moves.preferred_elections(self.state, limit=5),
                    moves.completed_moves(self.state, limit=5),
                ]
            )
            for change in several:  # all decided on one state: they must not get into each other's way
                self.cluster.commit(change)

    def _somewhere(self) -> dict[str, str | int]:
        topic = self.random.choice(list(self.state.topics.values()))
        return {"topic": topic.name, "partition": self.random.randrange(len(topic.partitions))}

    def _registration(self, broker_id: int):
        former = self.state.brokers[broker_id]
        options = {"directory_id": former.directory_id, "rack": former.rack}
        if self.random.random() < 0.5:
            options["clean_stop_epoch"] = former.broker_epoch
        if self.random.random() < 0.15:
            self.wiped += 1
            options["directory_id"] = f"new-{self.wiped}"
        damaged = [
            cluster_pb2.DamagedReplica(topic_id=key.topic_id, partition=key.partition)
            for key in self.state.replicas_on.get(broker_id, ())
            if self.random.random() < 0.2
        ]
        op = self.cluster.registration(broker_id, damaged=damaged, **options)
        return brokers.register(self.state, op, alive=False, now_ms=1)

    def _in_sync(self):
        from lograft.metadata_quorum.core.in_sync import change_in_sync

        where = self._somewhere()
        now = self.cluster.partition(where["topic"], where["partition"])
        if now.leader is None:
            return InvalidRequest("no leader asks")
        share = self.random.choice([0.3, 0.9])
        members = [each for each in now.replicas if each == now.leader or self.random.random() < share]
        return change_in_sync(self.state, self.cluster.sync(*members, topic=where["topic"], number=where["partition"]))

    def _move(self):
        target = self.random.sample(list(self.state.brokers), self.random.randint(1, 4))
        return moves.move(self.state, cluster_pb2.MovePartitionOperation(replicas=target, **self._somewhere()))

    def _elect(self):
        election = self.random.choice([cluster_pb2.ELECTION_PREFERRED, cluster_pb2.ELECTION_UNCLEAN])
        return moves.elect(self.state, cluster_pb2.ElectLeaderOperation(election=election, **self._somewhere()))

    def _offer(self):
        from lograft.metadata_quorum.core.in_sync import offer_leadership

        where = self._somewhere()
        now = self.cluster.partition(where["topic"], where["partition"])
        if now.leader is None:
            return InvalidRequest("no leader offers")
        op = cluster_pb2.OfferLeadershipOperation(
            broker_id=now.leader,
            broker_epoch=self.cluster.epoch(now.leader),
            topic_id=f"id-{where['topic']}",
            partition=where["partition"],
            leader_epoch=now.leader_epoch,
        )
        return offer_leadership(self.state, op)

    def _minimum(self):
        from lograft.metadata_quorum.core.topics import alter_config

        value = str(self.random.randint(1, 3))
        op = cluster_pb2.AlterConfigOperation(
            resource=config_keys.TOPIC, name=self._somewhere()["topic"], set={config_keys.MIN_IN_SYNC: value}
        )
        return alter_config(self.state, op)

    def check(self) -> None:
        """What the decisions promise beyond what `apply` insists on."""
        for topic in self.state.topics.values():
            for number, now in enumerate(topic.partitions):
                where = f"{topic.name}-{number} {now}"
                minimum = config_keys.min_in_sync(self.state, topic.topic_id, now)
                assert not now.eligible or len(now.in_sync) < minimum, where
                if now.leader is None:
                    holders = {*now.in_sync, *now.eligible}
                    assert all(self.state.brokers[each].fenced for each in holders), f"{where} could have a leader"
                fenced = [each for each in now.in_sync if self.state.brokers[each].fenced]
                assert not fenced or len(now.in_sync) == 1, f"{where} counts on a dead broker"


@pytest.mark.parametrize("seed", range(12))
def test_random_walk_when_decisions_are_applied_then_every_one_is_accepted(cluster, seed) -> None:
    walk = Walk(cluster, seed)
    for _ in range(150):
        walk.step()
        walk.check()
    # In the end all come back, and whatever was not wiped has a leader again.
    for broker_id in list(walk.state.brokers):
        cluster.unfence(broker_id)
    walk.check()
    for topic in walk.state.topics.values():
        for number, now in enumerate(topic.partitions):
            assert now.leader is not None or not now.in_sync, PartitionKey(topic.topic_id, number)


def test_fence_of_a_broker_that_leads_ten_thousand_partitions_is_one_change(cluster) -> None:
    cluster.start(1, 2, 3, 4, 5)
    cluster.topic("big", *[(1, 2 + number % 2, 4 + number % 2) for number in range(10_000)])
    cluster.fence(1)
    leaders = [partition.leader for partition in cluster.state.topics["id-big"].partitions]
    assert (leaders.count(2), leaders.count(3)) == (5_000, 5_000)
