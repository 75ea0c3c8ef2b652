"""What a log takes from producers and from a leader, and what it refuses before anything has changed."""

import pytest

from lograft.contract.batch import FLAG_APPEND_TIME, Batch
from lograft.contract.codecs import Codec
from lograft.contract.errors import (
    CorruptBatch,
    FencedEpoch,
    InvalidRequest,
    LogError,
    OutOfOrderSequence,
    ProducerFenced,
    RecordTooLarge,
)
from lograft.contract.records import encode_batch
from lograft.storage.config import HOUR_MS, CleanupPolicy, LogConfig
from lograft.storage.core.admission import LogEnd, admit, admit_replica
from lograft.storage.core.producer_state import Duplicate, ProducerStates

NOW_MS = 1_700_000_000_000
END = LogEnd("orders-0", 40, 3)


def one(value: bytes = b"v", **options) -> Batch:
    return encode_batch([value], timestamps_ms=options.pop("timestamps_ms", NOW_MS), **options)


def admitted(batch: Batch, config: LogConfig | None = None, producers: ProducerStates | None = None, **options):
    end = options.pop("end", END)
    epoch = options.pop("leader_epoch", None)
    return admit(
        batch, config or LogConfig(), end, producers or ProducerStates(5), leader_epoch=epoch, now_ms=NOW_MS, **options
    )


def test_admit_when_batch_is_sound_then_stamps_offset_epoch_and_time() -> None:
    header = admitted(encode_batch([b"a", b"b"], timestamps_ms=[NOW_MS, NOW_MS - 5]), leader_epoch=4)
    assert (header.base_offset, header.next_offset, header.leader_epoch) == (40, 42, 4)
    assert (header.append_timestamp_ms, header.max_timestamp_ms, header.flags) == (NOW_MS, NOW_MS, 0)


@pytest.mark.parametrize(("latest", "epoch"), [(3, 3), (None, 0)])
def test_admit_when_no_epoch_is_given_then_takes_the_latest(latest: int | None, epoch: int) -> None:
    assert admitted(one(), end=LogEnd("orders-0", 0, latest)).leader_epoch == epoch


def test_admit_when_epoch_is_over_then_is_fenced_with_the_current_one() -> None:
    with pytest.raises(FencedEpoch) as caught:
        admitted(one(), leader_epoch=2)
    assert (caught.value.subject, caught.value.epoch, caught.value.current_epoch) == ("orders-0", 2, 3)


def test_admit_when_batch_is_as_large_as_allowed_then_takes_it_and_not_one_byte_more() -> None:
    batch = one(b"x" * 300)
    size = batch.header.size_bytes
    assert admitted(batch, LogConfig(max_batch_bytes=size)).size_bytes == size
    with pytest.raises(RecordTooLarge) as caught:
        admitted(batch, LogConfig(max_batch_bytes=size - 1))
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (size, size - 1)
    assert "max_batch_bytes" in str(caught.value)


def test_admit_when_batch_unpacks_to_more_than_allowed_then_is_refused() -> None:
    batch = one(bytes(100_000), codec=Codec.ZSTD)
    assert admitted(batch)
    with pytest.raises(CorruptBatch, match="above the limit"):
        admitted(batch, LogConfig(max_uncompressed_bytes=50_000))


@pytest.mark.requirement("R7")
def test_admit_when_timestamp_is_further_ahead_than_allowed_then_is_refused() -> None:
    assert admitted(one(timestamps_ms=NOW_MS + HOUR_MS))
    with pytest.raises(InvalidRequest, match=r"3600001 ms ahead.*max_timestamp_ahead_ms \(3600000\)"):
        admitted(one(timestamps_ms=NOW_MS + HOUR_MS + 1))


def test_admit_when_timestamp_is_old_then_takes_it() -> None:
    assert admitted(one(timestamps_ms=0)).max_timestamp_ms == 0


def test_admit_when_topic_has_append_time_then_the_header_says_so() -> None:
    header = admitted(one(timestamps_ms=5), LogConfig(append_time=True))
    assert header.flags == FLAG_APPEND_TIME
    assert header.max_timestamp_ms == header.append_timestamp_ms == NOW_MS


@pytest.mark.requirement("R8")
@pytest.mark.parametrize("policy", [CleanupPolicy.COMPACT, CleanupPolicy.COMPACT_DELETE])
def test_admit_when_topic_is_compacted_then_every_record_needs_a_key(policy: CleanupPolicy) -> None:
    config = LogConfig(cleanup_policy=policy)
    assert admitted(one(keys=[b"k"]), config)
    for batch in (one(), encode_batch([b"a", b"b"], keys=[b"k", None], timestamps_ms=0)):
        assert admitted(batch)
        with pytest.raises(InvalidRequest, match="needs a key"):
            admitted(batch, config)


@pytest.mark.requirement("R15")
def test_admit_when_batch_is_a_repeat_then_answers_where_it_is() -> None:
    producers = ProducerStates(5)
    batch = one(producer_id=7)
    producers.note(admitted(batch))
    assert admitted(batch, producers=producers, end=LogEnd("orders-0", 90, 3)) == Duplicate(40, 40, NOW_MS)


@pytest.mark.requirement("R15")
def test_admit_when_sequence_or_incarnation_is_wrong_then_is_refused() -> None:
    producers = ProducerStates(5)
    producers.note(admitted(one(producer_id=7, producer_epoch=2)))
    before = producers.entries()
    with pytest.raises(OutOfOrderSequence) as skipped:
        admitted(one(producer_id=7, producer_epoch=2, base_sequence=5), producers=producers)
    assert (skipped.value.sequence, skipped.value.expected) == (5, 1)
    with pytest.raises(ProducerFenced) as fenced:
        admitted(one(producer_id=7, producer_epoch=1, base_sequence=1), producers=producers)
    assert (fenced.value.epoch, fenced.value.current_epoch) == (1, 2)
    assert producers.entries() == before


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"record_count": 2}, CorruptBatch),
        ({"last_offset_delta": 7}, CorruptBatch),
        ({"delete_horizon_ms": 1}, InvalidRequest),
        ({"flags": 1}, InvalidRequest),
        ({"record_count": 0, "last_offset_delta": 0}, InvalidRequest),
        ({"max_timestamp_ms": 1}, CorruptBatch),
        ({"uncompressed_bytes": 1}, CorruptBatch),
        ({"producer_id": 1 << 63}, InvalidRequest),
    ],
)
def test_admit_when_header_and_records_disagree_then_is_refused(change: dict[str, int], error: type[LogError]) -> None:
    batch = one()
    with pytest.raises(error):
        admitted(Batch(batch.header._replace(**change), batch.records))


# --- from a leader


def leader_batch(offset: int, epoch: int = 3, count: int = 1) -> bytes:
    batch = encode_batch([b"v"] * count, timestamps_ms=NOW_MS)
    return Batch(batch.header._replace(base_offset=offset, leader_epoch=epoch), batch.records).frame()


def test_admit_replica_when_batches_follow_each_other_then_takes_all() -> None:
    headers = admit_replica(leader_batch(40, 3, 2) + leader_batch(42, 3) + leader_batch(43, 5), END)
    assert [(header.base_offset, header.leader_epoch) for header in headers] == [(40, 3), (42, 3), (43, 5)]
    assert admit_replica(b"", END) == []


def test_admit_replica_when_the_leader_has_compacted_then_gaps_are_taken() -> None:
    headers = admit_replica(leader_batch(55) + leader_batch(90), END)
    assert [header.base_offset for header in headers] == [55, 90]


@pytest.mark.requirement("R3")
@pytest.mark.parametrize("data", [leader_batch(39), leader_batch(40, 3, 5) + leader_batch(44)])
def test_admit_replica_when_offsets_go_back_then_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptBatch, match="goes back behind") as caught:
        admit_replica(data, END)
    assert caught.value.source == "the leader's answer"


@pytest.mark.parametrize("data", [leader_batch(40, 2), leader_batch(40, 5) + leader_batch(41, 4)])
def test_admit_replica_when_epochs_go_back_then_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptBatch, match=r"epoch . goes back behind"):
        admit_replica(data, END)


def test_admit_replica_when_any_byte_is_wrong_then_takes_nothing() -> None:
    sound = leader_batch(40) + leader_batch(41)
    for position in range(len(sound)):
        damaged = bytearray(sound)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptBatch):
            admit_replica(bytes(damaged), END)
    for size in range(1, len(sound)):
        if size != len(sound) // 2:
            with pytest.raises(CorruptBatch):
                admit_replica(sound[:size], END)
