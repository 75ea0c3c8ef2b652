"""Creation, deletion and growth of topics, and their configuration, each decision applied to a real state."""

import pytest

from lograft.contract.errors import (
    InvalidAssignment,
    InvalidConfigValue,
    InvalidPartitionCount,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicName,
    TopicExists,
    UnknownBroker,
    UnknownConfig,
    UnknownTopicOrPartition,
)
from lograft.metadata_quorum.core import topics
from lograft.metadata_quorum.core.config_keys import BROKER, CLUSTER, TOPIC
from lograft.metadata_quorum.core.model import ConfigKey
from lograft.v1 import cluster_pb2


def create(cluster, name: str = "u", *by_hand: tuple[int, ...], **options):
    assignments = [cluster_pb2.ReplicaList(replicas=replicas) for replicas in by_hand]
    op = cluster_pb2.CreateTopicOperation(name=name, assignments=assignments, **options)
    return topics.create(cluster.state, op, topic_id="id-u", now_ms=77, start=1)


def add(cluster, total: int, *by_hand: tuple[int, ...], topic: str = "t"):
    assignments = [cluster_pb2.ReplicaList(replicas=replicas) for replicas in by_hand]
    op = cluster_pb2.AddPartitionsOperation(topic=topic, total=total, assignments=assignments)
    return topics.add_partitions(cluster.state, op, start=0)


def alter(cluster, resource: int, name: str, remove=(), **values: str):
    pairs = {key.replace("_", "."): value for key, value in values.items()}
    op = cluster_pb2.AlterConfigOperation(resource=resource, name=name, set=pairs, remove=remove)
    return topics.alter_config(cluster.state, op)


# Creation


def test_create_places_replicas_and_takes_id_time_and_configs(trio) -> None:
    applied = trio.commit(create(trio, partitions=6, replication_factor=2, configs={"retention.ms": "5"}))
    topic = trio.state.topics["id-u"]
    assert (applied.id, topic.name, topic.created_at_ms, len(topic.partitions)) == ("id-u", "u", 77, 6)
    assert sorted(partition.leader for partition in topic.partitions) == [1, 1, 2, 2, 3, 3]
    assert all(partition.in_sync == partition.replicas for partition in topic.partitions)
    assert trio.state.configs[ConfigKey(TOPIC, "id-u")] == {"retention.ms": "5"}


def test_create_when_numbers_are_absent_then_the_defaults_of_the_cluster(trio) -> None:
    trio.configure(num_partitions="4", default_replication_factor="2")
    trio.commit(create(trio))
    assert [len(partition.replicas) for partition in trio.state.topics["id-u"].partitions] == [2] * 4


@pytest.mark.parametrize("name", ["", "..", "a b", "x" * 250])
def test_create_when_name_is_illegal_then_refused(trio, name) -> None:
    assert isinstance(create(trio, name), InvalidTopicName)


def test_create_when_name_is_taken_then_refused_and_a_similar_one_is_not(trio) -> None:
    assert isinstance(create(trio, "t"), TopicExists)
    trio.topic("a.b", (1,))
    trio.commit(create(trio, "a_b"))


def test_create_internal_topic(trio) -> None:
    trio.commit(create(trio, "__groups", partitions=5, replication_factor=3))


@pytest.mark.parametrize("count", [0, 100_001])
def test_create_when_number_of_partitions_is_out_of_range_then_refused(trio, count) -> None:
    assert isinstance(create(trio, partitions=count, replication_factor=1), InvalidPartitionCount)


@pytest.mark.parametrize("factor", [0, 3])
def test_create_when_there_are_not_enough_candidates_then_refused(trio, factor) -> None:
    trio.drain(3)
    error = create(trio, replication_factor=factor)
    assert isinstance(error, InvalidReplicationFactor)
    assert (error.requested, error.available) == (factor, 2)


def test_create_by_hand_keeps_the_order_and_leaves_fenced_brokers_out_of_sync(trio) -> None:
    trio.fence(2)
    trio.commit(create(trio, "u", (2, 1), (3, 2)))
    first, second = trio.state.topics["id-u"].partitions
    assert (first.replicas, first.in_sync, first.leader) == ((2, 1), (1,), 1)
    assert (second.replicas, second.in_sync, second.leader) == ((3, 2), (3,), 3)


@pytest.mark.parametrize(
    ("by_hand", "words"),
    [
        ([()], "at least one"),
        ([(1, 1)], "named twice"),
        ([(1, 9)], "no broker 9"),
        ([(1, 2), (3,)], "another partition has 2"),
        ([(1, 4)], "draining"),
        ([(5,)], "none of them is alive"),
    ],
)
def test_create_by_hand_when_replicas_do_not_fit_then_refused(trio, by_hand, words) -> None:
    trio.start(4, 5)
    trio.drain(4)
    trio.fence(5)
    error = create(trio, "u", *by_hand)
    assert isinstance(error, InvalidAssignment)
    assert words in error.problem


def test_create_by_hand_and_by_numbers_at_once_is_refused(trio) -> None:
    assert isinstance(create(trio, "u", (1,), partitions=1), InvalidRequest)


def test_create_when_config_is_wrong_then_refused(trio) -> None:
    assert isinstance(create(trio, configs={"retention": "1"}), UnknownConfig)
    assert isinstance(create(trio, configs={"retention.ms": "x"}), InvalidConfigValue)
    assert isinstance(create(trio, configs={"segment.bytes": "1024"}), InvalidConfigValue)


def test_create_when_validate_only_then_checks_everything_and_creates_nothing(trio) -> None:
    assert isinstance(create(trio, "t", validate_only=True), TopicExists)
    assert isinstance(create(trio, replication_factor=9, validate_only=True), InvalidReplicationFactor)
    change = create(trio, validate_only=True)
    assert change.WhichOneof("kind") == "barrier"
    trio.commit(change)
    assert "u" not in trio.state.topic_ids


# Deletion


def delete(cluster, **options):
    return topics.delete(cluster.state, cluster_pb2.DeleteTopicOperation(**options))


@pytest.mark.parametrize("options", [{"name": "t"}, {"topic_id": "id-t"}, {"name": "t", "topic_id": "id-t"}])
def test_delete_by_name_or_id_or_both(trio, options) -> None:
    trio.commit(delete(trio, **options))
    assert trio.state.topics == {}


@pytest.mark.parametrize("options", [{}, {"name": "u"}, {"topic_id": "x"}, {"name": "t", "topic_id": "x"}])
def test_delete_when_there_is_no_such_topic_then_refused(trio, options) -> None:
    assert isinstance(delete(trio, **options), UnknownTopicOrPartition)


def test_delete_when_switched_off_then_refused(trio) -> None:
    trio.configure(delete_topic_enable="false")
    assert isinstance(delete(trio, name="t"), InvalidRequest)


# Growth


def test_add_partitions_has_the_factor_of_the_first(trio) -> None:
    trio.topic("pair", (1, 2))
    trio.commit(add(trio, 4, topic="pair"))
    assert [len(each.replicas) for each in trio.state.topics["id-pair"].partitions] == [2] * 4


def test_add_partitions_by_hand(trio) -> None:
    trio.commit(add(trio, 3, (3, 1), (2, 1)))
    assert [each.replicas for each in trio.state.topics["id-t"].partitions] == [(1, 2, 3), (3, 1), (2, 1)]


@pytest.mark.parametrize("total", [0, 1, 100_001])
def test_add_partitions_when_total_is_out_of_range_then_refused(trio, total) -> None:
    assert isinstance(add(trio, total), InvalidPartitionCount)


def test_add_partitions_when_it_does_not_fit_then_refused(trio) -> None:
    assert isinstance(add(trio, 2, topic="x"), UnknownTopicOrPartition)
    assert isinstance(add(trio, 3, (1,)), InvalidPartitionCount)
    assert isinstance(add(trio, 2, (9,)), InvalidAssignment)
    trio.fence(1)
    assert isinstance(add(trio, 2), InvalidReplicationFactor)


def test_add_partitions_to_the_groups_topic_is_refused(trio) -> None:
    trio.topic("__groups", (1, 2, 3))
    assert isinstance(add(trio, 2, topic="__groups"), InvalidPartitionCount)


# Configuration


def test_alter_config_of_each_resource(trio) -> None:
    trio.commit(alter(trio, TOPIC, "t", retention_ms="5", segment_ms="6"))
    trio.commit(alter(trio, TOPIC, "t", remove=["segment.ms"], retention_ms="7"))
    trio.commit(alter(trio, CLUSTER, "", num_partitions="3"))
    trio.commit(alter(trio, BROKER, "2", log_cleaner_threads="3"))
    assert trio.state.configs == {
        ConfigKey(TOPIC, "id-t"): {"retention.ms": "7"},
        ConfigKey(CLUSTER, ""): {"num.partitions": "3"},
        ConfigKey(BROKER, "2"): {"log.cleaner.threads": "3"},
    }


@pytest.mark.parametrize(
    ("resource", "name", "error"),
    [
        (CLUSTER, "x", InvalidRequest),
        (TOPIC, "x", UnknownTopicOrPartition),
        (TOPIC, "id-t", UnknownTopicOrPartition),
        (BROKER, "9", UnknownBroker),
        (BROKER, "01", InvalidRequest),
        (BROKER, "x", InvalidRequest),
        (0, "", InvalidRequest),
    ],
)
def test_alter_config_when_there_is_no_such_resource_then_refused(trio, resource, name, error) -> None:
    assert isinstance(alter(trio, resource, name), error)


def test_alter_config_when_key_or_value_is_wrong_then_refused(trio) -> None:
    assert isinstance(alter(trio, TOPIC, "t", num_partitions="3"), UnknownConfig)
    assert isinstance(alter(trio, TOPIC, "t", retention_ms="x"), InvalidConfigValue)
    assert isinstance(alter(trio, TOPIC, "t", remove=["retention"]), UnknownConfig)
    assert isinstance(alter(trio, TOPIC, "t", remove=["retention.ms"], retention_ms="1"), InvalidRequest)


def test_alter_config_when_values_do_not_fit_together_then_refused(trio) -> None:
    trio.commit(alter(trio, TOPIC, "t", segment_bytes=str(8 << 20)))
    assert isinstance(alter(trio, TOPIC, "t", max_message_bytes=str(9 << 20)), InvalidConfigValue)
    # The cluster's default would reach the topic.
    assert isinstance(alter(trio, CLUSTER, "", max_message_bytes=str(9 << 20)), InvalidConfigValue)
    trio.commit(alter(trio, TOPIC, "t", max_message_bytes=str(1 << 20)))
    trio.commit(alter(trio, CLUSTER, "", max_message_bytes=str(9 << 20)))
    assert isinstance(alter(trio, TOPIC, "t", remove=["max.message.bytes"]), InvalidConfigValue)


def test_alter_config_of_the_minimum_clears_eligible_replicas(trio) -> None:
    trio.fence(3, 2)
    assert trio.partition().eligible == (2,)
    trio.commit(alter(trio, TOPIC, "t", min_insync_replicas="1"))
    assert trio.partition().eligible == ()
