"""A metadata state that grows by decisions, every one of which `apply` must accept."""

import copy

import pytest

from lograft.contract.errors import LogError, from_detail
from lograft.metadata_quorum.core import brokers, config_keys, topics
from lograft.metadata_quorum.core.apply import apply_entry
from lograft.metadata_quorum.core.invariants import violations
from lograft.metadata_quorum.core.model import ClusterState, Partition, PartitionKey
from lograft.v1 import cluster_pb2, metadata_pb2

NOW_MS = 1_700_000_000_000


class MetadataCluster:
    """A state with short ways to get it where a test wants it."""

    def __init__(self) -> None:
        self.state = ClusterState()
        claim = metadata_pb2.ClaimController(node="q1", cluster_id="c1")
        self.commit(metadata_pb2.Change(claim_controller=claim))

    def commit(self, decision: metadata_pb2.Change | LogError) -> metadata_pb2.Applied:
        """Apply what was decided; a refusal on either side fails the test."""
        if isinstance(decision, LogError):
            raise decision
        before = copy.deepcopy(self.state)
        entry = metadata_pb2.MetadataEntry(controller_epoch=1, changes=[decision])
        (result,) = apply_entry(self.state, entry, version=self.state.version + 1, term=1)
        if result.HasField("rejected"):
            raise from_detail(result.rejected)
        assert violations(self.state, before) == []
        return result.applied

    def registration(self, broker_id: int, **options) -> cluster_pb2.RegisterBrokerOperation:
        point = metadata_pb2.Endpoint(name="client", host="localhost", port=9000 + broker_id % 1000)
        facts = {"incarnation_id": f"i{self.state.version}", "directory_id": f"d{broker_id}", "endpoints": [point]}
        return cluster_pb2.RegisterBrokerOperation(broker_id=broker_id, **(facts | options))

    def register(self, broker_id: int, **options) -> int:
        op = self.registration(broker_id, **options)
        return self.commit(brokers.register(self.state, op, alive=False, now_ms=NOW_MS)).number

    def start(self, *broker_ids: int, racks: str = "") -> None:
        """Register and unfence brokers; ``racks`` has one letter for each."""
        for place, broker_id in enumerate(broker_ids):
            self.register(broker_id, rack=racks[place] if racks else "")
            self.unfence(broker_id)

    def fence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.commit(brokers.fence(self.state, broker_id, "session timed out"))

    def unfence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.commit(brokers.unfence(self.state, broker_id))

    def drain(self, *broker_ids: int, cancel: bool = False) -> None:
        for broker_id in broker_ids:
            op = cluster_pb2.DrainBrokerOperation(broker_id=broker_id, cancel=cancel)
            self.commit(brokers.drain(self.state, op))

    def topic(self, name: str, *replicas: tuple[int, ...], **configs: str) -> str:
        """A topic with these replicas; its id is its name with "id-" in front. ``a_b=1`` sets ``a.b``."""
        op = cluster_pb2.CreateTopicOperation(
            name=name,
            assignments=[cluster_pb2.ReplicaList(replicas=each) for each in replicas],
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        return self.commit(topics.create(self.state, op, topic_id=f"id-{name}", now_ms=NOW_MS, start=0)).id

    def configure(self, resource: int = config_keys.CLUSTER, name: str = "", **values: str) -> None:
        op = cluster_pb2.AlterConfigOperation(
            resource=resource, name=name, set={key.replace("_", "."): value for key, value in values.items()}
        )
        self.commit(topics.alter_config(self.state, op))

    def set_partition(self, topic: str = "t", number: int = 0, **values) -> None:
        """Put a partition where no short way leads. The indexes must stay right."""
        partitions = self.state.topics[f"id-{topic}"].partitions
        partitions[number] = partitions[number]._replace(**values)
        assert violations(self.state) == []

    def partition(self, topic: str = "t", number: int = 0) -> Partition:
        partition = self.state.partition(PartitionKey(f"id-{topic}", number))
        assert partition is not None
        return partition

    def epoch(self, broker_id: int) -> int:
        return self.state.brokers[broker_id].broker_epoch

    def sync(self, *members: int, topic: str = "t", number: int = 0, **options) -> cluster_pb2.ChangeInSyncOperation:
        """The operation by which the present leader asks for this in-sync set."""
        old = self.partition(topic, number)
        facts = {
            "broker_id": old.leader,
            "broker_epoch": self.epoch(old.leader) if old.leader is not None else 0,
            "topic_id": f"id-{topic}",
            "partition": number,
            "leader_epoch": old.leader_epoch,
            "partition_epoch": old.partition_epoch,
            "in_sync": [cluster_pb2.InSyncMember(broker_id=each, broker_epoch=self.epoch(each)) for each in members],
        }
        return cluster_pb2.ChangeInSyncOperation(**(facts | options))


@pytest.fixture
def cluster() -> MetadataCluster:
    """A claimed cluster without brokers."""
    return MetadataCluster()


@pytest.fixture
def trio() -> MetadataCluster:
    """Brokers 1, 2 and 3, and topic ``t`` with one partition on all of them, led by 1."""
    made = MetadataCluster()
    made.start(1, 2, 3)
    made.topic("t", (1, 2, 3))
    return made
