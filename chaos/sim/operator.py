"""The people who run the cluster: they create, delete, move, drain and alter, and repeat what was not answered."""

from lograft.chaos.sim.quorum import Quorum
from lograft.chaos.sim.world import World
from lograft.contract.errors import MetadataOutcomeUnknown, NotController
from lograft.v1 import cluster_pb2, metadata_pb2

_TOPICS = ("orders", "clicks", "audit")
# Answers that leave open whether it was done, or that say that another node is to be asked.
_REPEAT = (NotController.number, MetadataOutcomeUnknown.number)


class Operator:
    """Sends one operation after the other; each is repeated with its id until somebody answers for good."""

    def __init__(self, world: World, quorum: Quorum, broker_ids: range) -> None:
        self.world, self.quorum, self.broker_ids = world, quorum, broker_ids
        self._dice = world.load
        # Some clusters never lose a record on purpose, so that the oracle has something to watch until the end.
        self._reckless = self._dice.random() < 0.3
        for name in _TOPICS:
            self.submit(self._creation(name))
        self._next()

    def _next(self) -> None:
        if not self.world.calm:
            self.submit(self._operation())
            self.world.at(self._dice.randint(30, 300), self._next)

    def submit(self, operation: cluster_pb2.Operation, repeats: int = 6) -> None:
        """Ask some node; if there is no good answer, ask again."""
        operation.command_id = operation.command_id or bytes.fromhex(self.world.fresh_id())
        node = self.quorum.nodes[self._dice.choice(sorted(self.quorum.nodes))]
        done = False

        def told(result: metadata_pb2.ChangeResult) -> None:
            nonlocal done
            done = done or result.HasField("applied") or result.rejected.number not in _REPEAT

        def reply(result: metadata_pb2.ChangeResult) -> None:
            self.world.send(node.name, "operator", lambda: told(result))

        def again() -> None:
            if not done and repeats:
                self.submit(operation, repeats - 1)

        self.world.send("operator", node.name, lambda: node.receive(lambda: node.execute(operation, reply)))
        self.world.at(self._dice.randint(100, 700), again)

    def _operation(self) -> cluster_pb2.Operation:  # noqa: PLR0912 - one case per operation
        dice, topic = self._dice, self._dice.choice(_TOPICS)
        present = self.quorum.oracle.truth.topic_named(topic)
        partition = dice.randrange(1 if present is None else len(present.partitions))
        broker_id = dice.choice(self.broker_ids)
        operation = cluster_pb2.Operation()
        match dice.choices(range(10), (4, 1, 1, 6, 2, 2, 2, 4, 1, 1))[0]:
            case 0:
                return self._creation(topic)
            case 1:
                operation.delete_topic.name = topic
            case 2:
                operation.add_partitions.topic, operation.add_partitions.total = topic, dice.randint(2, 4)
            case 3:
                replicas = dice.sample(self.broker_ids, dice.randint(1, min(3, len(self.broker_ids))))
                operation.move_partition.CopyFrom(
                    cluster_pb2.MovePartitionOperation(topic=topic, partition=partition, replicas=replicas)
                )
            case 4:
                operation.cancel_move.topic, operation.cancel_move.partition = topic, partition
            case 5:
                operation.drain_broker.broker_id = broker_id
                operation.drain_broker.cancel = dice.random() < 0.6
            case 6:
                resource = dice.choice((metadata_pb2.CONFIG_RESOURCE_TOPIC, metadata_pb2.CONFIG_RESOURCE_CLUSTER))
                operation.alter_config.resource = resource
                if resource == metadata_pb2.CONFIG_RESOURCE_TOPIC:
                    operation.alter_config.name = topic
                if dice.random() < 0.7:
                    operation.alter_config.set["min.insync.replicas"] = str(dice.randint(1, 3))
                else:
                    operation.alter_config.remove.append("min.insync.replicas")
            case 7:
                operation.elect_leader.topic, operation.elect_leader.partition = topic, partition
                unclean = self._reckless and dice.random() < 0.1
                operation.elect_leader.election = (
                    cluster_pb2.ELECTION_UNCLEAN if unclean else cluster_pb2.ELECTION_PREFERRED
                )
            case 8:
                operation.barrier.SetInParent()
            case _:
                operation.retire_broker.broker_id = broker_id
        return operation

    def _creation(self, topic: str) -> cluster_pb2.Operation:
        dice = self._dice
        operation = cluster_pb2.CreateTopicOperation(
            name=topic, partitions=dice.randint(1, 3), replication_factor=dice.randint(1, 3)
        )
        operation.configs["min.insync.replicas"] = str(dice.randint(1, 2))
        if self._reckless and dice.random() < 0.2:
            operation.configs["unclean.leader.election.enable"] = "true"
        return cluster_pb2.Operation(create_topic=operation)
