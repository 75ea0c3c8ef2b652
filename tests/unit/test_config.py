"""Settings of a log: checked when made, all problems at once."""

import dataclasses

import pytest

from lograft.contract.batch import HEADER_SIZE, MAX_BATCH_BYTES
from lograft.storage.config import DAY_MS, MAX_SEGMENT_BYTES, CleanupPolicy, Durability, LogConfig


@pytest.mark.requirement("R7")
def test_config_when_nothing_is_said_then_keeps_records_for_seven_days_and_syncs() -> None:
    config = LogConfig()
    assert config.retention_ms == 7 * DAY_MS == 168 * 3_600_000
    assert config.retention_bytes is None
    assert config.durability is Durability.FSYNC
    assert config.cleanup_policy is CleanupPolicy.DELETE


def test_config_when_several_settings_are_wrong_then_all_are_reported_at_once() -> None:
    with pytest.raises(ValueError, match="segment_ms") as caught:
        LogConfig(
            segment_bytes=10,
            segment_ms=0,
            index_interval_bytes=0,
            max_batch_bytes=MAX_BATCH_BYTES + 1,
            max_uncompressed_bytes=0,
            checkpoint_interval_bytes=0,
            retention_ms=-1,
            retention_bytes=-1,
            delete_retention_ms=-1,
            max_timestamp_ahead_ms=-1,
            remembered_batches=0,
            producer_expiration_ms=0,
            min_compaction_dirty_ratio=1.5,
        )
    problems = str(caught.value).split("; ")
    assert len(problems) == 14
    for name in (
        "segment_bytes must be at least 1024, not 10",
        "segment_ms must be at least 1, not 0",
        "index_interval_bytes must be at least 1",
        f"max_batch_bytes must be at most {MAX_BATCH_BYTES}",
        f"max_batch_bytes ({MAX_BATCH_BYTES + 1}) must not be above segment_bytes (10)",
        "max_uncompressed_bytes must be at least 1",
        "checkpoint_interval_bytes must be at least 1",
        "retention_ms must be at least 0, not -1",
        "retention_bytes must be at least 0, not -1",
        "delete_retention_ms must be at least 0",
        "max_timestamp_ahead_ms must be at least 0",
        "remembered_batches must be at least 1",
        "producer_expiration_ms must be at least 1",
        "min_compaction_dirty_ratio must be between 0 and 1",
    ):
        assert any(problem.startswith(name) for problem in problems), name


@pytest.mark.parametrize(
    "settings",
    [
        {"segment_bytes": MAX_SEGMENT_BYTES},
        {"segment_bytes": 1024, "max_batch_bytes": 1024},
        {"max_batch_bytes": HEADER_SIZE + 1},
        {"retention_ms": None, "retention_bytes": None},
        {"retention_ms": 0, "retention_bytes": 0},
        {"min_compaction_dirty_ratio": 0.0},
        {"min_compaction_dirty_ratio": 1.0},
    ],
    ids=str,
)
def test_config_when_a_setting_is_at_its_limit_then_is_taken(settings: dict[str, int | float | None]) -> None:
    config = LogConfig(**settings)  # type: ignore[arg-type]
    assert {name: getattr(config, name) for name in settings} == settings


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"segment_bytes": MAX_SEGMENT_BYTES + 1}, "32 bits"),
        ({"segment_bytes": 2048, "max_batch_bytes": 2049}, "a batch never spans segments"),
        ({"max_batch_bytes": HEADER_SIZE}, f"at least {HEADER_SIZE + 1}"),
    ],
    ids=str,
)
def test_config_when_a_setting_is_beyond_its_limit_then_says_why(settings: dict[str, int], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        LogConfig(**settings)  # type: ignore[arg-type]


def test_config_when_made_then_cannot_be_changed_but_replaced() -> None:
    config = LogConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.segment_bytes = 5  # type: ignore[misc]
    assert dataclasses.replace(config, segment_ms=5).segment_ms == 5
    with pytest.raises(ValueError, match="segment_ms"):
        dataclasses.replace(config, segment_ms=0)


@pytest.mark.parametrize(
    ("policy", "deletes", "compacts"),
    [
        (CleanupPolicy.DELETE, True, False),
        (CleanupPolicy.COMPACT, False, True),
        (CleanupPolicy.COMPACT_DELETE, True, True),
    ],
)
def test_policy_when_asked_then_says_what_it_does(policy: CleanupPolicy, deletes: bool, compacts: bool) -> None:
    assert (policy.deletes, policy.compacts) == (deletes, compacts)
    assert CleanupPolicy(policy.value) is policy
