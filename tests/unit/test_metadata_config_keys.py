"""The table of dynamic configuration keys, and who wins when several places set one."""

import pytest

from lograft.contract.batch import MAX_BATCH_BYTES
from lograft.contract.errors import InvalidConfigValue, InvalidRequest, UnknownConfig
from lograft.metadata_quorum.core import config_keys
from lograft.metadata_quorum.core.config_keys import (
    BROKER,
    CLUSTER,
    CLUSTER_KEYS,
    KEYS,
    TOPIC,
    TOPIC_KEYS,
    Kind,
    broker_value,
    check,
    check_together,
    cluster_bool,
    cluster_int,
    cluster_value,
    effective_min_in_sync,
    min_in_sync,
    topic_bool,
    topic_int,
    topic_value,
)
from lograft.metadata_quorum.core.model import Partition
from lograft.storage.config import MAX_SEGMENT_BYTES, CleanupPolicy, Durability, LogConfig

# What the storage engine calls them.
LOG_CONFIG_NAMES = {
    "segment.bytes": "segment_bytes",
    "segment.ms": "segment_ms",
    "index.interval.bytes": "index_interval_bytes",
    "max.message.bytes": "max_batch_bytes",
    "max.uncompressed.bytes": "max_uncompressed_bytes",
    "checkpoint.interval.bytes": "checkpoint_interval_bytes",
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "delete.retention.ms": "delete_retention_ms",
    "min.cleanable.dirty.ratio": "min_compaction_dirty_ratio",
    "message.timestamp.after.max.ms": "max_timestamp_ahead_ms",
    "producer.remembered.batches": "remembered_batches",
    "producer.id.expiration.ms": "producer_expiration_ms",
}


def test_every_default_is_a_value_of_its_key_and_has_words() -> None:
    for resource, settings in KEYS.items():
        for key, setting in settings.items():
            assert check(resource, key, setting.default) is None
            assert setting.key == key
            assert setting.help.endswith(".")


def test_topic_defaults_are_those_of_the_storage_engine() -> None:
    config = LogConfig()
    for key, name in LOG_CONFIG_NAMES.items():
        default = TOPIC_KEYS[key].default
        expected = getattr(config, name)
        assert (None if default == "-1" else float(default)) == expected, key
    assert TOPIC_KEYS["cleanup.policy"].default == config.cleanup_policy.value
    assert TOPIC_KEYS["durability"].default == config.durability.value
    assert (TOPIC_KEYS["message.timestamp.type"].default == "LogAppendTime") == config.append_time


def test_topic_keys_cover_the_storage_engine() -> None:
    others = {"cleanup_policy", "durability", "append_time"}
    assert set(LOG_CONFIG_NAMES.values()) | others == set(LogConfig.__dataclass_fields__)
    assert set(TOPIC_KEYS["cleanup.policy"].choices) == {policy.value for policy in CleanupPolicy}
    assert set(TOPIC_KEYS["durability"].choices) == {durability.value for durability in Durability}


@pytest.mark.parametrize("bound", ["least", "most"])
def test_storage_engine_takes_the_limits_of_every_number(bound) -> None:
    for key, name in LOG_CONFIG_NAMES.items():
        value = getattr(TOPIC_KEYS[key], bound)
        room = {"segment_bytes": MAX_SEGMENT_BYTES, "max_batch_bytes": 1 << 10}
        LogConfig(**(room | {name: None if value == -1 else value}))
    assert TOPIC_KEYS["max.message.bytes"].most == MAX_BATCH_BYTES
    assert TOPIC_KEYS["segment.bytes"].most == MAX_SEGMENT_BYTES


def test_cluster_takes_every_topic_key_as_a_default() -> None:
    assert set(TOPIC_KEYS) < set(CLUSTER_KEYS)


def test_check_when_unknown_then_names_the_nearest_key() -> None:
    error = check(TOPIC, "retention.m", "1")
    assert isinstance(error, UnknownConfig)
    assert (error.resource, error.suggestion) == ("topic", "retention.ms")
    assert check(BROKER, "zzz", "1").suggestion is None


def test_check_when_key_of_another_resource_then_unknown() -> None:
    assert isinstance(check(TOPIC, "num.partitions", "3"), UnknownConfig)
    assert isinstance(check(BROKER, "retention.ms", "3"), UnknownConfig)
    assert isinstance(check(0, "retention.ms", "3"), InvalidRequest)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "1_000"),
        ("retention.ms", " 1"),
        ("retention.ms", "1.5"),
        ("retention.ms", "٣"),
        ("retention.ms", "007"),
        ("retention.ms", str(1 << 63)),
        ("retention.ms", ""),
        ("segment.bytes", "1023"),
        ("segment.bytes", str(1 << 32)),
        ("min.insync.replicas", "0"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "-0.1"),
        ("unclean.leader.election.enable", "True"),
        ("unclean.leader.election.enable", "1"),
        ("cleanup.policy", "keep"),
        ("durability", "FSYNC"),
    ],
)
def test_check_when_value_does_not_fit_then_says_so(key, value) -> None:
    error = check(TOPIC, key, value)
    assert isinstance(error, InvalidConfigValue)
    assert error.key == key
    assert "must be" in error.problem


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.bytes", "0"),
        ("cleanup.policy", "compact,delete"),
        ("min.cleanable.dirty.ratio", "1"),
        ("message.timestamp.type", "LogAppendTime"),
        ("durability", "os"),
    ],
)
def test_check_when_value_fits_then_nothing(key, value) -> None:
    assert check(TOPIC, key, value) is None
    assert check(CLUSTER, key, value) is None


def test_check_together_when_batch_is_larger_than_segment_then_refused() -> None:
    assert check_together({}, {}) is None
    for values, defaults in [
        ({"segment.bytes": "1048576"}, {}),
        ({}, {"segment.bytes": "1048576"}),
        ({"max.message.bytes": "2097152"}, {"segment.bytes": "1048576"}),
    ]:
        assert isinstance(check_together(values, defaults), InvalidConfigValue)
    assert check_together({"max.message.bytes": "1048576"}, {"segment.bytes": "1048576"}) is None


def test_check_together_when_grace_outlasts_the_session_then_refused() -> None:
    assert isinstance(check_together({"broker.session.timeout.ms": "200"}, {}), InvalidConfigValue)


def test_value_of_a_topic_beats_the_cluster_which_beats_the_default(trio) -> None:
    state = trio.state
    assert topic_value(state, "id-t", "retention.ms") == str(7 * 86_400_000)
    trio.configure(retention_ms="5000")
    assert topic_int(state, "id-t", "retention.ms") == 5000
    trio.configure(TOPIC, "t", retention_ms="-1")
    assert topic_int(state, "id-t", "retention.ms") == -1
    assert cluster_value(state, "retention.ms") == "5000"


def test_typed_values(trio) -> None:
    assert cluster_bool(trio.state, "delete.topic.enable")
    assert cluster_int(trio.state, "num.partitions") == 1
    assert not topic_bool(trio.state, "id-t", "unclean.leader.election.enable")
    trio.configure(BROKER, "1", log_cleaner_threads="4")
    assert broker_value(trio.state, 1, "log.cleaner.threads") == "4"
    assert broker_value(trio.state, 2, "log.cleaner.threads") == "1"
    with pytest.raises(KeyError):
        topic_value(trio.state, "id-t", "no.such.key")


def test_effective_minimum_is_never_above_the_number_of_replicas() -> None:
    assert effective_min_in_sync(2, Partition((1,), (1,))) == 1
    assert effective_min_in_sync(2, Partition((1, 2, 3), (1,))) == 2
    assert effective_min_in_sync(1, Partition((1, 2, 3), (1,))) == 1


def test_effective_minimum_when_moving_then_counts_the_replicas_from_before() -> None:
    assert effective_min_in_sync(2, Partition((1, 2, 3), (1,), adding=(2, 3))) == 1
    assert effective_min_in_sync(3, Partition((1, 2, 3), (1,), removing=(2, 3))) == 3


def test_minimum_of_a_partition_comes_from_its_topic(trio) -> None:
    assert min_in_sync(trio.state, "id-t", trio.partition()) == 2
    trio.configure(TOPIC, "t", min_insync_replicas="3")
    assert min_in_sync(trio.state, "id-t", trio.partition()) == 3


def test_kinds_are_all_used() -> None:
    assert {setting.kind for setting in config_keys.CLUSTER_KEYS.values()} == set(Kind)
