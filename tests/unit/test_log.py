"""One partition's log, as its users see it: append, read, look up, truncate, clean."""

import dataclasses
import multiprocessing
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from lograft.contract.batch import FLAG_APPEND_TIME, Batch, read_batches
from lograft.contract.codecs import Codec
from lograft.contract.disk import Disk
from lograft.contract.errors import (
    CorruptBatch,
    FencedEpoch,
    InvalidRequest,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RecordTooLarge,
    ShuttingDown,
    StorageCorrupted,
    UnsupportedVersion,
    WrongDirectory,
)
from lograft.contract.records import Record, encode_batch
from lograft.contract.small_files import Kind, encode_small_file
from lograft.storage import CleanupPolicy, LogConfig, PartitionLog
from lograft.storage import compaction as compacting
from lograft.storage.compaction import compact
from lograft.v1 import storage_pb2

DAY_MS = 24 * 3_600_000
START_MS = 1_700_000_000_000
# Segments of four batches of `large` each.
CONFIG = LogConfig(segment_bytes=1200, max_batch_bytes=1200, index_interval_bytes=200)
COMPACTED = dataclasses.replace(CONFIG, cleanup_policy=CleanupPolicy.COMPACT, delete_retention_ms=1000)


class Clock:
    """A wall clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = START_MS

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_log(tmp_path: Path, clock: Clock) -> Iterator[Callable[..., PartitionLog]]:
    """Opens a log in this test's folder; whatever is still open at the end is closed."""
    opened: list[PartitionLog] = []

    def open_one(config: LogConfig = CONFIG, **options) -> PartitionLog:
        path = options.pop("path", tmp_path / "orders-0")
        log = PartitionLog.open(path, config, now_ms=clock, **options)
        opened.append(log)
        return log

    yield open_one
    for log in opened:
        log.close()


def large(value: bytes, **options) -> Batch:
    """One record in a batch of about 280 bytes."""
    return encode_batch([value.ljust(150, b".")], timestamps_ms=options.pop("timestamps_ms", START_MS), **options)


def keyed(*pairs: tuple[bytes, bytes | None], **options) -> Batch:
    return encode_batch(
        [value for _, value in pairs], keys=[key for key, _ in pairs], timestamps_ms=START_MS, **options
    )


def rows(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in log.records()]


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in log.records()]


def names(log: PartitionLog, suffix: str = ".log") -> list[str]:
    return [path.name for path in sorted(log.path.glob(f"*{suffix}"))]


def fill(log: PartitionLog, count: int) -> None:
    for number in range(log.log_end_offset, log.log_end_offset + count):
        log.append(large(b"%d" % number))


# --- appending and reading


@pytest.mark.requirement("R3", "R4")
def test_records_when_appended_then_are_read_back_in_order_with_all_they_had(open_log: Callable) -> None:
    log = open_log()
    batch = encode_batch(
        [b"value", None, b""],
        keys=[b"key", None, b""],
        timestamps_ms=[START_MS, START_MS - 5, START_MS - 3],
        headers={0: [("trace", b"\x01"), ("trace", None)]},
        codec=Codec.ZSTD,
    )
    first = log.append(batch)
    second = log.append(encode_batch([b"next"], timestamps_ms=START_MS))
    assert (first.base_offset, first.next_offset, first.append_timestamp_ms) == (0, 3, START_MS)
    assert (second.base_offset, second.next_offset) == (3, 4)
    expected = [
        Record(0, START_MS, b"key", b"value", [("trace", b"\x01"), ("trace", None)]),
        Record(1, START_MS - 5, None, None),
        Record(2, START_MS - 3, b"", b""),
        Record(3, START_MS, None, b"next"),
    ]
    assert list(log.records()) == expected
    assert (log.log_start_offset, log.high_watermark, log.flushed_end_offset, log.log_end_offset) == (0, 4, 4, 4)
    log.close()
    assert list(open_log().records()) == expected


@pytest.mark.requirement("R2")
def test_log_when_opened_then_lives_in_a_directory_named_for_its_partition(open_log: Callable, tmp_path: Path) -> None:
    log = open_log(path=tmp_path / "my.topic-with_all-7", topic_id="t1")
    assert str(log.topic_partition) == "my.topic-with_all-7"
    assert (log.topic_partition.topic, log.topic_partition.partition) == ("my.topic-with_all", 7)
    assert log.topic_id == "t1"
    log.append(large(b"a"))
    assert names(log) == ["00000000000000000000.log"]
    log.close()
    assert open_log(path=log.path).topic_id == "t1"


@pytest.mark.parametrize("name", ["orders", "orders-", "orders-01", "orders-x", "-1", "or ders-1"])
def test_log_when_directory_is_not_named_like_a_partition_then_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match="<topic>-<partition>"):
        PartitionLog.open(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_log_when_directory_is_of_another_topic_or_partition_then_is_refused(open_log: Callable) -> None:
    log = open_log(topic_id="t1")
    log.close()
    with pytest.raises(WrongDirectory, match="t1"):
        open_log(topic_id="t2")
    moved = log.path.with_name("payments-3")
    log.path.rename(moved)
    with pytest.raises(WrongDirectory, match="orders-0"):
        open_log(path=moved)


def test_read_when_offset_is_inside_a_batch_then_begins_with_the_whole_batch(open_log: Callable) -> None:
    log = open_log()
    log.append(encode_batch([b"0", b"1", b"2"], timestamps_ms=0))
    log.append(encode_batch([b"3"], timestamps_ms=0))
    assert [batch.header.base_offset for batch in read_batches(log.read(2))] == [0, 3]
    assert [record.offset for record in log.records(2)] == [2, 3]


@pytest.mark.requirement("R6")
def test_read_when_limited_then_gives_whole_batches_within_the_limit_but_at_least_one(open_log: Callable) -> None:
    log = open_log(LogConfig())
    sizes = [log.append(large(b"%d" % number)).size_bytes for number in range(5)]
    assert len(set(sizes)) == 1
    for limit, count in ((0, 1), (1, 1), (sizes[0], 1), (2 * sizes[0] - 1, 1), (2 * sizes[0], 2), (1 << 20, 5)):
        assert len(log.read(0, limit)) == count * sizes[0], limit
    assert log.read(0, 1 << 20) == log.segments[0].path.read_bytes()


def test_read_when_an_end_is_given_then_stops_before_the_batch_that_reaches_it(open_log: Callable) -> None:
    log = open_log()
    for _ in range(3):
        log.append(encode_batch([b"a", b"b"], timestamps_ms=0))
    assert [batch.header.base_offset for batch in read_batches(log.read(0, end_offset=4))] == [0, 2]
    assert [batch.header.base_offset for batch in read_batches(log.read(0, end_offset=5))] == [0, 2]
    assert log.read(4, end_offset=4) == log.read(6) == b""
    assert [record.offset for record in log.records(end_offset=4)] == [0, 1, 2, 3]


@pytest.mark.requirement("R7")
def test_read_when_offset_is_outside_then_says_what_the_log_holds(open_log: Callable) -> None:
    log = open_log()
    fill(log, 6)
    log.delete_records(2)
    for offset in (-1, 0, 1, 7, 1 << 70):
        with pytest.raises(OffsetOutOfRange) as caught:
            log.read(offset)
        assert (caught.value.start_offset, caught.value.end_offset, caught.value.offset) == (2, 6, offset)
    assert log.read(6) == b""


@pytest.mark.requirement("R7")
def test_read_when_from_any_offset_of_many_segments_then_replays_from_there(open_log: Callable) -> None:
    log = open_log()
    fill(log, 20)
    assert len(log.segments) == 5
    for offset in range(20):
        assert [record.offset for record in log.records(offset)] == list(range(offset, 20))


def test_append_when_batch_is_refused_then_nothing_has_changed(open_log: Callable) -> None:
    log = open_log()
    log.append(large(b"a"), leader_epoch=3)
    sound = large(b"b")
    with pytest.raises(RecordTooLarge):
        log.append(large(b"x" * 2000))
    with pytest.raises(InvalidRequest):
        log.append(large(b"b", timestamps_ms=START_MS + DAY_MS))
    with pytest.raises(CorruptBatch):
        log.append(Batch(sound.header._replace(record_count=2, last_offset_delta=1), sound.records))
    with pytest.raises(FencedEpoch):
        log.append(sound, leader_epoch=2)
    assert (log.log_end_offset, log.epochs.latest) == (1, 3)
    assert log.append(sound).base_offset == 1


def test_log_when_empty_then_has_nothing_and_opens_again(open_log: Callable) -> None:
    log = open_log()
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (0, 0, 0)
    assert log.read(0) == b""
    assert rows(log) == []
    assert log.offset_for_time(1) is None
    assert log.enforce_retention() == 0
    assert log.truncate(0) == 0
    log.close()
    assert open_log().recovery.was_clean


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("rolled_first", [False, True], ids=["empty log", "all records deleted"])
def test_offset_for_time_when_there_are_no_records_then_is_none(open_log: Callable, rolled_first: bool) -> None:
    log = open_log()
    if rolled_first:
        fill(log, 1)
        rolled(log)
        log.delete_records(1)
    assert log.offset_for_time(0) is None


def test_log_when_closed_twice_then_nothing_happens(open_log: Callable) -> None:
    log = open_log()
    log.append(large(b"a"))
    log.close()
    before = {path.name: path.read_bytes() for path in log.path.iterdir()}
    log.close()
    assert {path.name: path.read_bytes() for path in log.path.iterdir()} == before


@pytest.mark.parametrize(
    "use",
    [
        lambda log: log.append(large(b"b")),
        lambda log: log.submit(large(b"b")),
        lambda log: log.submit_replica(b""),
        lambda log: log.truncate(1),
        lambda log: log.restart_at(9),
        lambda log: log.delete_records(1),
        lambda log: compact(log, force=True),
        lambda log: log.enforce_retention(),
    ],
    ids=["append", "submit", "submit_replica", "truncate", "restart_at", "delete_records", "compact", "retention"],
)
def test_log_when_used_after_close_then_refuses_and_leaves_the_files_alone(
    open_log: Callable, use: Callable[[PartitionLog], object]
) -> None:
    log = open_log(dataclasses.replace(COMPACTED, cleanup_policy=CleanupPolicy.COMPACT_DELETE, retention_bytes=0))
    for number in range(8):
        log.append(large(b"%d" % number, keys=[b"k"]))
    log.close()
    before = {path.name: path.read_bytes() for path in log.path.iterdir()}
    with pytest.raises(ShuttingDown):
        use(log)
    assert {path.name: path.read_bytes() for path in log.path.iterdir()} == before


# --- rolling


@pytest.mark.requirement("R2")
def test_segment_when_the_next_batch_would_be_too_much_then_another_is_begun(open_log: Callable) -> None:
    log = open_log()
    fill(log, 9)
    assert names(log) == [f"{base:020d}.log" for base in (0, 4, 8)]
    assert all(segment.size_bytes <= CONFIG.segment_bytes for segment in log.segments)
    log.flush()
    assert [name[:20] for name in names(log, ".index")][:2] == [f"{base:020d}" for base in (0, 4)]
    assert [name[:20] for name in names(log, ".timeindex")] == [name[:20] for name in names(log, ".index")]


def test_segment_when_its_first_batch_is_old_then_another_is_begun(open_log: Callable, clock: Clock) -> None:
    log = open_log(LogConfig(segment_ms=1000))
    log.append(large(b"a"))
    clock.now += 1000
    log.append(large(b"b"))
    assert len(log.segments) == 1
    clock.now += 1
    log.append(large(b"c"))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_segment_when_rolled_by_hand_then_is_closed_and_an_empty_one_is_not_rolled(open_log: Callable) -> None:
    log = open_log()
    log.roll()
    assert len(log.segments) == 1
    log.append(large(b"a"))
    log.roll()
    log.roll()
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    log.close()
    again = open_log()
    assert rows(again) == [(0, None, b"a".ljust(150, b"."))]
    assert again.append(large(b"b")).base_offset == 1


def test_settings_when_changed_while_open_then_hold_from_the_next_append(open_log: Callable) -> None:
    log = open_log(LogConfig())
    fill(log, 8)
    assert len(log.segments) == 1
    log.reconfigure(CONFIG)
    fill(log, 1)
    assert len(log.segments) == 2


# --- times


@pytest.mark.requirement("R7")
def test_offset_for_time_when_records_are_there_then_finds_the_first_not_older(open_log: Callable) -> None:
    log = open_log()
    stamps = [100, 300, 200, 400, 400, 250, 500]
    for stamp in stamps:
        log.append(encode_batch([b"x" * 150, b"y" * 150], timestamps_ms=[stamp, stamp + 10]))
    flat = [time for stamp in stamps for time in (stamp, stamp + 10)]
    for moment in range(0, 520, 5):
        expected = next(((offset, time) for offset, time in enumerate(flat) if time >= moment), None)
        assert log.offset_for_time(moment) == expected, moment
    log.close()
    again = open_log()
    assert again.offset_for_time(205) == (2, 300)
    assert again.offset_for_time(511) is None


@pytest.mark.requirement("R7")
def test_offset_for_time_when_records_were_deleted_then_does_not_find_them(open_log: Callable) -> None:
    log = open_log()
    for stamp in range(0, 100, 10):
        log.append(large(b"", timestamps_ms=stamp))
    log.delete_records(3)
    assert log.offset_for_time(0) == (3, 30)


def test_offset_for_time_when_records_are_damaged_then_names_the_place(open_log: Callable) -> None:
    log = open_log(LogConfig())
    first = log.append(large(b"a", timestamps_ms=100))
    log.append(large(b"b", timestamps_ms=200))
    path = log.segments[0].path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageCorrupted) as caught:
        log.offset_for_time(200)
    assert caught.value.path == str(path)
    assert caught.value.position == first.size_bytes


@pytest.mark.requirement("R4")
def test_append_time_when_the_topic_asks_for_it_then_replaces_the_producers(open_log: Callable, clock: Clock) -> None:
    log = open_log(dataclasses.replace(CONFIG, append_time=True))
    log.append(encode_batch([b"a", b"b"], timestamps_ms=[5, 7]))
    clock.now += 50
    log.append(encode_batch([b"c"], timestamps_ms=9))
    assert [record.timestamp_ms for record in log.records()] == [START_MS, START_MS, START_MS + 50]
    assert log.offset_for_time(START_MS + 1) == (2, START_MS + 50)
    assert all(batch.header.flags == FLAG_APPEND_TIME for batch in read_batches(log.read(0)))


# --- truncating, epochs


def test_truncate_when_inside_a_batch_then_takes_the_whole_batch(open_log: Callable) -> None:
    log = open_log()
    for _ in range(3):
        log.append(encode_batch([b"a", b"b", b"c"], timestamps_ms=0))
    assert log.truncate(7) == 6
    assert log.truncate(100) == 6
    assert offsets(log) == list(range(6))
    assert log.append(large(b"new")).base_offset == 6
    log.close()
    again = open_log()
    assert again.recovery.was_clean
    assert offsets(again) == list(range(7))


@pytest.mark.requirement("R3")
@pytest.mark.parametrize("target", range(21))
def test_truncate_when_at_any_offset_then_it_is_so_after_a_crash_too(
    open_log: Callable, tmp_path: Path, target: int
) -> None:
    log = open_log()
    fill(log, 20)
    assert log.truncate(target) == min(target, 20)
    copy = tmp_path / "crashed" / "orders-0"
    shutil.copytree(log.path, copy)
    for opened in (log, open_log(path=copy)):
        assert offsets(opened) == list(range(target))
        assert opened.append(large(b"new")).base_offset == target
        assert rows(opened)[-1] == (target, None, b"new".ljust(150, b"."))


@pytest.mark.requirement("R3")
def test_truncate_when_below_the_high_watermark_then_is_refused_unless_unclean(open_log: Callable) -> None:
    log = open_log(replicated=True)
    fill(log, 6)
    assert log.high_watermark == 0
    log.advance_high_watermark(4)
    log.advance_high_watermark(2)
    assert log.high_watermark == 4
    with pytest.raises(InvalidRequest, match="high watermark 4"):
        log.truncate(3)
    assert log.log_end_offset == 6
    assert log.truncate(4) == 4
    assert log.truncate(3, unclean=True) == 3
    assert log.high_watermark == 3


def test_high_watermark_when_told_more_than_is_flushed_then_stays_with_that(open_log: Callable) -> None:
    log = open_log(replicated=True)
    fill(log, 2)
    log.advance_high_watermark(100)
    assert log.high_watermark == 2
    log.close()
    assert open_log(replicated=True).high_watermark == 2


@pytest.mark.requirement("R15")
def test_truncate_when_producers_had_written_there_then_they_may_send_again(open_log: Callable) -> None:
    log = open_log()
    batches = [large(b"%d" % number, producer_id=7, base_sequence=number) for number in range(10)]
    for batch in batches:
        log.append(batch)
    log.truncate(6)
    with pytest.raises(OutOfOrderSequence):
        log.append(batches[7])
    assert log.append(batches[5]).duplicate
    again = [log.append(batch) for batch in batches[6:]]
    assert [(append.base_offset, append.duplicate) for append in again] == [(n, False) for n in range(6, 10)]


def test_epochs_when_leaders_change_then_their_ends_are_known_also_after_reopening(open_log: Callable) -> None:
    log = open_log()
    log.append(large(b"a"), leader_epoch=1)
    log.append(large(b"b"), leader_epoch=1)
    log.append(large(b"c"), leader_epoch=4)
    log.note_leader_epoch(6)
    with pytest.raises(FencedEpoch):
        log.note_leader_epoch(5)
    assert log.epochs.end_of(6, log.log_end_offset) == (6, 3)
    log.close()
    again = open_log()
    # An epoch in which nothing was written is the quorum's to know.
    assert [again.epochs.end_of(epoch, again.log_end_offset) for epoch in (0, 1, 3, 4)] == [
        None,
        (1, 2),
        (1, 2),
        (4, 3),
    ]


def test_epochs_when_log_start_moves_then_the_epoch_there_begins_there(open_log: Callable) -> None:
    log = open_log()
    for epoch in (1, 1, 2, 2, 3):
        log.append(large(b"a"), leader_epoch=epoch)
    log.delete_records(3)
    assert log.epochs.entries() == [(2, 3), (3, 4)]


def test_epochs_when_truncated_into_an_epoch_then_later_ones_are_gone(open_log: Callable) -> None:
    log = open_log()
    for epoch in (1, 1, 2, 2, 3):
        log.append(large(b"a"), leader_epoch=epoch)
    log.truncate(3)
    assert log.epochs.entries() == [(1, 0), (2, 2)]
    log.append(large(b"b"), leader_epoch=2)
    log.close()
    assert open_log().epochs.entries() == [(1, 0), (2, 2)]


# --- a follower


def canonical(offset: int, value: bytes = b"v", epoch: int = 0, **options) -> bytes:
    batch = large(value, **options)
    header = batch.header._replace(base_offset=offset, leader_epoch=epoch, append_timestamp_ms=START_MS)
    return Batch(header, batch.records).frame()


@pytest.mark.requirement("R3")
def test_replica_when_it_copies_a_leader_then_has_the_same_bytes(open_log: Callable, tmp_path: Path) -> None:
    leader = open_log()
    for number in range(12):
        leader.append(large(b"%d" % number, producer_id=7, base_sequence=number), leader_epoch=number // 5)
    (tmp_path / "copy").mkdir()
    follower = open_log(path=tmp_path / "copy" / "orders-0")
    while follower.log_end_offset < leader.log_end_offset:
        for pending in follower.submit_replica(leader.read(follower.log_end_offset, 700)):
            pending.wait()
    assert rows(follower) == rows(leader)
    assert [path.read_bytes() for path in sorted(follower.path.glob("*.log"))] == [
        path.read_bytes() for path in sorted(leader.path.glob("*.log"))
    ]
    assert follower.epochs.entries() == leader.epochs.entries()
    assert follower.producers.entries() == leader.producers.entries()
    assert follower.append(large(b"11", producer_id=7, base_sequence=11)).duplicate


def test_replica_when_one_answer_spans_segments_then_rolls_in_between(open_log: Callable) -> None:
    log = open_log()
    pending = log.submit_replica(b"".join(canonical(offset) for offset in range(10)))
    for append in pending:
        append.wait()
    assert [(append.base_offset, append.next_offset) for append in pending] == [(0, 4), (4, 8), (8, 10)]
    assert offsets(log) == list(range(10))
    assert log.submit_replica(b"") == []


@pytest.mark.requirement("R8")
def test_replica_when_the_leader_has_gaps_then_takes_them(open_log: Callable) -> None:
    log = open_log()
    for append in log.submit_replica(canonical(5) + canonical(50)):
        append.wait()
    assert offsets(log) == [5, 50]
    assert (log.log_start_offset, log.log_end_offset) == (0, 51)
    assert [batch.header.base_offset for batch in read_batches(log.read(6))] == [50]
    log.close()
    assert offsets(open_log()) == [5, 50]


@pytest.mark.parametrize("first", [b"", canonical(0)], ids=["empty log", "gap"])
def test_replica_when_offsets_are_further_apart_than_an_index_can_say_then_rolls(
    open_log: Callable, first: bytes
) -> None:
    log = open_log(LogConfig())
    far = 1 << 33
    for append in log.submit_replica(first + canonical(far) + canonical(far + 1)):
        append.wait()
    assert offsets(log)[-2:] == [far, far + 1]
    log.close()
    assert offsets(open_log())[-2:] == [far, far + 1]


@pytest.mark.requirement("R3")
@pytest.mark.parametrize(
    "bad",
    [
        canonical(3) + canonical(3),
        canonical(1),
        canonical(3) + canonical(4)[:-1],
        canonical(3) + bytes(200),
        canonical(3) + canonical(4, b"x").replace(b"x", b"y"),
        canonical(3, epoch=4) + canonical(4, epoch=3),
    ],
    ids=["repeats", "goes back", "cut short", "zeros", "damaged", "epoch goes back"],
)
def test_replica_when_anything_in_the_answer_is_wrong_then_nothing_of_it_is_taken(
    open_log: Callable, bad: bytes
) -> None:
    log = open_log()
    fill(log, 3)
    with pytest.raises(CorruptBatch):
        log.submit_replica(bad)
    assert (log.log_end_offset, log.epochs.latest) == (3, 0)
    assert offsets(log) == [0, 1, 2]


@pytest.mark.requirement("R20", "R21")
@pytest.mark.parametrize("wrote", [True, False], ids=["had written", "had only been elected"])
def test_replica_when_it_led_an_epoch_that_was_lost_then_follows_a_leader_without_it(
    open_log: Callable, wrote: bool
) -> None:
    # B led epoch 5 from offset 3 on; A, still in sync and with more of epoch 4, was elected for epoch 6.
    log = open_log(replicated=True)
    for number in range(3):
        log.append(large(b"%d" % number), leader_epoch=4)
    log.note_leader_epoch(5)
    if wrote:
        log.append(large(b"lost"), leader_epoch=5)
    log.truncate(3)
    for append in log.submit_replica(canonical(3, epoch=4) + canonical(4, epoch=6)):
        append.wait()
    assert log.epochs.entries() == [(4, 0), (6, 4)]


def test_restart_when_a_follower_is_too_far_behind_then_begins_anew(open_log: Callable, tmp_path: Path) -> None:
    log = open_log(replicated=True)
    for number in range(8):
        log.append(large(b"%d" % number, producer_id=7, base_sequence=number), leader_epoch=2)
    log.restart_at(100)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (100, 100, 100)
    assert log.epochs.entries() == []
    assert len(log.producers) == 0
    copy = tmp_path / "crashed" / "orders-0"
    shutil.copytree(log.path, copy)
    for opened in (log, open_log(path=copy, replicated=True)):
        for append in opened.submit_replica(canonical(100, epoch=3)):
            append.wait()
        assert offsets(opened) == [100]
        with pytest.raises(OffsetOutOfRange):
            opened.read(99)


# --- idempotence


@pytest.mark.requirement("R15")
@pytest.mark.parametrize("cleanly", [True, False])
def test_producer_when_the_log_was_reopened_then_its_repeats_are_still_recognised(
    open_log: Callable, tmp_path: Path, cleanly: bool
) -> None:
    log = open_log()
    batches = [large(b"%d" % number, producer_id=7, base_sequence=number) for number in range(10)]
    for batch in batches:
        log.append(batch)
    if cleanly:
        log.close()
        again = open_log()
    else:
        shutil.copytree(log.path, tmp_path / "crashed" / "orders-0")
        again = open_log(path=tmp_path / "crashed" / "orders-0")
    repeats = [again.append(batch) for batch in batches[-5:]]
    assert [(append.base_offset, append.duplicate) for append in repeats] == [(n, True) for n in range(5, 10)]
    assert repeats[0].append_timestamp_ms == START_MS
    with pytest.raises(OutOfOrderSequence):
        again.append(large(b"", producer_id=7, base_sequence=11))
    assert again.append(large(b"", producer_id=7, base_sequence=10)).base_offset == 10


def test_producer_when_quiet_for_long_then_is_forgotten(open_log: Callable, clock: Clock) -> None:
    log = open_log(dataclasses.replace(CONFIG, producer_expiration_ms=1000, retention_ms=None))
    log.append(large(b"a", producer_id=7))
    log.checkpoint()
    log.flush()
    clock.now += 1001
    log.enforce_retention()
    assert len(log.producers) == 0
    assert not log.append(large(b"a", producer_id=7)).duplicate


# --- deleting


@pytest.mark.requirement("R7")
def test_delete_records_when_told_then_moves_the_log_start_and_removes_whole_segments(
    open_log: Callable, tmp_path: Path
) -> None:
    log = open_log()
    fill(log, 14)
    assert log.delete_records(6) == 6
    assert offsets(log) == list(range(6, 14))
    assert names(log) == [f"{base:020d}.log" for base in (4, 8, 12)]
    assert log.delete_records(3) == 6
    copy = tmp_path / "crashed" / "orders-0"
    shutil.copytree(log.path, copy)
    assert offsets(open_log(path=copy)) == list(range(6, 14))
    assert log.delete_records(14) == 14
    assert offsets(log) == []
    assert log.append(large(b"next")).base_offset == 14
    log.close()
    assert offsets(open_log()) == [14]


def test_delete_records_when_above_the_high_watermark_then_is_refused(open_log: Callable) -> None:
    log = open_log(replicated=True)
    fill(log, 6)
    log.advance_high_watermark(3)
    with pytest.raises(OffsetOutOfRange) as caught:
        log.delete_records(4)
    assert caught.value.end_offset == 3
    assert log.delete_records(3) == 3


@pytest.mark.requirement("R7")
def test_retention_when_by_time_then_deletes_closed_segments_that_are_older(open_log: Callable, clock: Clock) -> None:
    log = open_log(dataclasses.replace(CONFIG, retention_ms=1000))
    fill(log, 8)
    clock.now += 600
    fill(log, 8)
    assert log.enforce_retention() == 0
    clock.now += 401
    assert log.enforce_retention() == 2
    log.flush()
    assert names(log) == [f"{base:020d}.log" for base in (8, 12)]
    assert (log.log_start_offset, offsets(log)) == (8, list(range(8, 16)))
    clock.now += 1000
    assert log.enforce_retention() == 1  # never the active segment
    log.close()
    assert offsets(open_log()) == [12, 13, 14, 15]


@pytest.mark.requirement("R7")
def test_retention_when_records_claim_to_be_old_then_counts_from_the_append(open_log: Callable, clock: Clock) -> None:
    log = open_log(dataclasses.replace(CONFIG, retention_ms=1000))
    for _ in range(8):
        log.append(large(b"old", timestamps_ms=5))
    assert log.enforce_retention() == 0


@pytest.mark.requirement("R7")
def test_retention_when_by_size_then_deletes_the_oldest_closed_segments(open_log: Callable) -> None:
    log = open_log(dataclasses.replace(CONFIG, retention_ms=None, retention_bytes=2300))
    fill(log, 16)
    before = log.size_bytes
    segment = before // 4
    assert log.enforce_retention() == (before - 2300) // segment
    assert log.size_bytes >= 2300
    assert offsets(log) == list(range(log.log_start_offset, 16))


def test_retention_when_not_committed_then_keeps_it(open_log: Callable, clock: Clock) -> None:
    log = open_log(dataclasses.replace(CONFIG, retention_ms=1000), replicated=True)
    fill(log, 12)
    clock.now += 2000
    log.advance_high_watermark(7)
    assert log.enforce_retention() == 1
    assert log.log_start_offset == 4


def test_retention_when_the_clock_jumps_far_ahead_then_waits(open_log: Callable, clock: Clock) -> None:
    log = open_log(dataclasses.replace(CONFIG, retention_ms=7 * DAY_MS))
    fill(log, 12)
    clock.now += 30 * DAY_MS
    assert log.enforce_retention() == 0
    assert log.deletion_suspended
    clock.now -= 30 * DAY_MS
    assert log.enforce_retention() == 0
    assert not log.deletion_suspended


def test_retention_when_the_clock_jumps_far_ahead_then_size_still_counts(open_log: Callable, clock: Clock) -> None:
    log = open_log(dataclasses.replace(CONFIG, retention_bytes=0))
    fill(log, 12)
    clock.now += 30 * DAY_MS
    assert log.enforce_retention() == 2


@pytest.mark.requirement("R8")
def test_retention_when_topic_is_only_compacted_then_deletes_nothing(open_log: Callable, clock: Clock) -> None:
    log = open_log(dataclasses.replace(COMPACTED, retention_ms=1, retention_bytes=0))
    for number in range(12):
        log.append(large(b"x", keys=[b"%d" % number]))
    clock.now += 60_000
    assert log.enforce_retention() == 0
    assert len(offsets(log)) == 12


# --- compaction


def rolled(log: PartitionLog) -> None:
    """Close the active segment, on disk too."""
    log.roll()
    log.flush()


@pytest.mark.requirement("R8")
def test_compaction_when_keys_repeat_then_keeps_the_newest_of_each_at_its_offset(open_log: Callable) -> None:
    log = open_log(COMPACTED)
    for number in range(30):
        log.append(large(b"%d" % number, keys=[b"k%d" % (number % 3)]))
    rolled(log)
    before = log.size_bytes
    result = compact(log, force=True)
    assert result is not None
    assert (result.bytes_before, result.compacted_end_offset) == (before, 30)
    assert result.bytes_after == log.size_bytes < before
    assert [(record.offset, record.key) for record in log.records()] == [(27, b"k0"), (28, b"k1"), (29, b"k2")]
    assert (log.log_start_offset, log.log_end_offset) == (0, 30)
    assert [record.offset for record in log.records(5)] == [27, 28, 29]
    log.flush()
    log.close()
    again = open_log(COMPACTED)
    assert again.recovery.was_clean
    assert offsets(again) == [27, 28, 29]
    assert again.compacted_end_offset == 30
    assert again.append(large(b"", keys=[b"k0"])).base_offset == 30


@pytest.mark.requirement("R8")
def test_compaction_when_a_batch_is_partly_outdated_then_keeps_the_rest_of_it(open_log: Callable) -> None:
    log = open_log(COMPACTED)
    log.append(keyed((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), codec=Codec.LZ4))
    log.append(keyed((b"b", b"2"), (b"long key of more than sixteen bytes", b"2")))
    log.append(keyed((b"long key of more than sixteen bytes", b"3")))
    rolled(log)
    compact(log, force=True)
    assert rows(log) == [
        (0, b"a", b"1"),
        (2, b"c", b"1"),
        (3, b"b", b"2"),
        (5, b"long key of more than sixteen bytes", b"3"),
    ]


def test_compaction_when_records_are_in_the_active_segment_or_uncommitted_then_leaves_them(open_log: Callable) -> None:
    log = open_log(COMPACTED, replicated=True)
    for number in range(12):
        log.append(large(b"%d" % number, keys=[b"k"]))
    log.flush()
    assert compact(log, force=True) is None  # nothing is committed
    log.advance_high_watermark(7)
    compact(log, force=True)
    assert offsets(log) == [3, *range(4, 12)]
    log.advance_high_watermark(12)
    compact(log, force=True)
    assert offsets(log) == [7, *range(8, 12)]


def test_compaction_when_topic_is_not_compacted_or_little_is_new_then_does_nothing(open_log: Callable) -> None:
    log = open_log(CONFIG)
    fill(log, 12)
    assert compact(log, force=True) is None
    log.reconfigure(COMPACTED)
    log.flush()
    assert compact(log) is not None
    assert compact(log) is None


@pytest.mark.requirement("R8")
def test_tombstone_when_compacted_then_stays_for_its_time_and_then_goes(open_log: Callable, clock: Clock) -> None:
    log = open_log(COMPACTED)
    log.append(keyed((b"a", b"1"), (b"b", b"1")))
    log.append(keyed((b"a", None)))
    log.append(keyed((b"c", b"1")))
    rolled(log)
    compact(log, force=True)
    assert rows(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    horizons = [batch.header.delete_horizon_ms for batch in read_batches(log.read(0))]
    assert horizons == [0, START_MS + 1000, 0]
    clock.now += 999
    compact(log, force=True)
    assert offsets(log) == [1, 2, 3]
    clock.now += 1
    compact(log, force=True)
    assert rows(log) == [(1, b"b", b"1"), (3, b"c", b"1")]
    assert log.log_end_offset == 4


@pytest.mark.requirement("R8", "R15")
def test_compaction_when_a_producers_last_record_is_outdated_then_its_header_stays(
    open_log: Callable, tmp_path: Path
) -> None:
    log = open_log(COMPACTED)
    old = [keyed((b"k", b"%d" % n), producer_id=7, base_sequence=n) for n in range(3)]
    for batch in old:
        log.append(batch)
    log.append(keyed((b"k", b"newest")))
    rolled(log)
    compact(log, force=True)
    assert rows(log) == [(3, b"k", b"newest")]
    headers = [batch.header for batch in read_batches(log.read(0))]
    assert [(header.base_offset, header.record_count, header.producer_id) for header in headers] == [
        (2, 0, 7),
        (3, 1, 0),
    ]
    # Also when nothing but the log is left.
    log.flush()
    copy = tmp_path / "crashed" / "orders-0"
    shutil.copytree(log.path, copy)
    (copy / "checkpoint").unlink()
    for path in copy.glob("*.producers"):
        path.unlink()
    again = open_log(COMPACTED, path=copy)
    assert again.append(old[2]).duplicate
    with pytest.raises(OutOfOrderSequence):
        again.append(keyed((b"k", b""), producer_id=7, base_sequence=5))


def test_compaction_when_a_whole_segment_is_outdated_then_an_empty_batch_holds_its_end(open_log: Callable) -> None:
    log = open_log(dataclasses.replace(COMPACTED, segment_bytes=1024, max_batch_bytes=1024))
    for _ in range(3):
        log.append(keyed((b"k", b"x" * 600)))  # one segment each
    log.append(keyed((b"k", b"newest")))
    rolled(log)
    compact(log, force=True)
    assert rows(log) == [(3, b"k", b"newest")]
    [first] = read_batches(log.read(0))
    assert (first.header.base_offset, first.header.record_count) == (0, 0)
    assert log.offset_for_time(0) == (3, START_MS)
    log.close()
    assert rows(open_log()) == [(3, b"k", b"newest")]


def test_compaction_when_segments_have_become_small_then_merges_them(open_log: Callable) -> None:
    log = open_log(COMPACTED)
    for number in range(24):
        log.append(large(b"%d" % number, keys=[b"k%d" % (number % 2)]))
        if number % 3 == 2:
            rolled(log)
    assert len(log.segments) == 9
    compact(log, force=True)
    compact(log, force=True)
    log.flush()
    assert offsets(log) == [22, 23]
    assert len(log.segments) < 5
    assert names(log) == [segment.path.name for segment in log.segments if segment.path.exists()]
    assert log.segments[0].base_offset == 0
    assert not list(log.path.glob("*.cleaned*")) + list(log.path.glob("*.swap*"))
    log.close()
    assert offsets(open_log()) == [22, 23]


@pytest.mark.requirement("R8")
def test_compaction_when_run_in_another_process_then_gives_the_same(open_log: Callable, tmp_path: Path) -> None:
    results = []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        for executor in (pool, None):
            folder = tmp_path / f"executor-{executor is not None}"
            folder.mkdir()
            log = open_log(COMPACTED, path=folder / "orders-0", topic_id="t")
            for number in range(20):
                log.append(large(b"%d" % number, keys=[b"k%d" % (number % 4)]))
            rolled(log)
            result = compact(log, executor=executor, force=True)
            assert result is not None
            results.append((rows(log), result.bytes_after, result.compacted_end_offset))
    assert results[0] == results[1]
    assert [offset for offset, _, _ in results[0][0]] == [16, 17, 18, 19]


def test_compaction_when_there_are_more_keys_than_it_can_hold_then_goes_on_in_the_next_run(open_log: Callable) -> None:
    log = open_log(COMPACTED)
    for number in range(24):
        log.append(large(b"%d" % number, keys=[b"k%d" % (number % 8)]))
    rolled(log)
    job = compacting.plan(log, force=True)
    assert job is not None
    compacting.install(log, compacting.run(dataclasses.replace(job, max_keys=5)))
    assert log.compacted_end_offset == 5
    assert offsets(log) == list(range(24))
    for _ in range(2):
        compact(log, force=True)
    assert offsets(log) == list(range(16, 24))


def test_compaction_when_segments_were_deleted_meanwhile_then_leaves_them_deleted(open_log: Callable) -> None:
    log = open_log(dataclasses.replace(COMPACTED, cleanup_policy=CleanupPolicy.COMPACT_DELETE))
    for number in range(16):
        log.append(large(b"%d" % number, keys=[b"k%d" % number]))
    rolled(log)
    job = compacting.plan(log, force=True)
    assert job is not None
    result = compacting.run(job)
    log.delete_records(9)
    compacting.install(log, result)
    assert offsets(log) == list(range(9, 16))
    assert not list(log.path.glob("*.cleaned*"))


@pytest.mark.requirement("R3")
def test_compaction_when_the_log_was_truncated_and_written_again_meanwhile_then_keeps_what_is_new(
    open_log: Callable,
) -> None:
    log = open_log(COMPACTED)
    for number in range(4):
        log.append(keyed((b"k%d" % (number % 2), b"old")))
    rolled(log)
    job = compacting.plan(log, force=True)
    assert job is not None
    result = compacting.run(job)
    log.truncate(2)
    for _ in range(2):
        log.append(keyed((b"n", b"new")))
    rolled(log)
    compacting.install(log, result)
    assert [value for offset, _, value in rows(log) if offset >= 2] == [b"new", b"new"]


@pytest.mark.requirement("R8")
def test_compaction_when_the_log_was_truncated_below_what_was_compacted_then_new_records_are_compacted(
    open_log: Callable,
) -> None:
    log = open_log(COMPACTED)
    for _ in range(8):
        log.append(keyed((b"k", b"old")))
    rolled(log)
    compact(log, force=True)
    log.truncate(2)
    assert log.compacted_end_offset <= log.log_end_offset
    for _ in range(4):
        log.append(keyed((b"k", b"new")))
    rolled(log)
    compact(log, force=True)
    assert len(rows(log)) == 1


# --- interrupted compactions


def compacted_copy(log: PartitionLog, folder: Path) -> tuple[Path, Path]:
    """A copy of the log's directory with the result of a compaction beside the segments."""
    job = compacting.plan(log, force=True)
    assert job is not None
    result = compacting.run(job)
    copy = folder / "crashed" / log.path.name
    shutil.copytree(log.path, copy)
    cleaned = [Path(group.cleaned_path).name for group in result.groups if group.cleaned_path]
    assert len(cleaned) == 1
    return copy, copy / cleaned[0]


@pytest.mark.requirement("R8", "R9")
@pytest.mark.parametrize("moment", ["cleaned", "swap", "one removed", "all removed"])
def test_compaction_when_a_crash_interrupts_it_then_the_old_or_the_new_is_there(
    open_log: Callable, tmp_path: Path, moment: str
) -> None:
    log = open_log(COMPACTED)
    for number in range(3):
        log.append(keyed((b"k", b"%d" % number)))
        rolled(log)
    copy, cleaned = compacted_copy(log, tmp_path)
    if moment != "cleaned":
        cleaned.rename(copy / f"{0:020d}.log.swap-{3:020d}")
        for base in {"swap": [], "one removed": [1], "all removed": [1, 2]}[moment]:
            (copy / f"{base:020d}.log").unlink()
    again = open_log(COMPACTED, path=copy)
    assert offsets(again) == ([0, 1, 2] if moment == "cleaned" else [2])
    assert again.log_end_offset == 3
    assert not list(copy.glob("*.cleaned*")) + list(copy.glob("*.swap*"))


# --- readers beside the owner


class Interrupting(Disk):
    """Does something in the middle of an operation, as another thread might just then."""

    def __init__(self) -> None:
        self.before_read: Callable[[], None] | None = None
        self.after_remove: Callable[[Path], None] | None = None

    def read(self, file: int, size: int, position: int) -> bytes:
        if self.before_read is not None:
            action, self.before_read = self.before_read, None
            action()
        return super().read(file, size, position)

    def remove(self, path: Path) -> None:
        super().remove(path)
        if self.after_remove is not None:
            self.after_remove(path)


@pytest.mark.requirement("R5")
def test_read_when_its_segment_is_deleted_just_then_then_gives_no_other_file(open_log: Callable) -> None:
    disk = Interrupting()
    log = open_log(disk=disk)
    fill(log, 12)
    log.read(0)
    log.flush()

    def delete_and_open_another() -> None:
        log.delete_records(4)
        log.read(8)  # takes the descriptor that has become free

    # The first read of the disk finds the place, the second reads the batches.
    disk.before_read = lambda: setattr(disk, "before_read", delete_and_open_another)
    try:
        data = log.read(0)
    except OffsetOutOfRange:
        data = b""
    assert [batch.header.base_offset for batch in read_batches(data)] in ([0, 1, 2, 3], [])


@pytest.mark.requirement("R5")
def test_read_when_the_log_is_truncated_just_then_then_does_not_speak_of_corruption(open_log: Callable) -> None:
    disk = Interrupting()
    log = open_log(LogConfig(), disk=disk)
    fill(log, 6)
    disk.before_read = lambda: setattr(disk, "before_read", lambda: log.truncate(3))
    try:
        data = log.read(4)
    except OffsetOutOfRange:
        data = b""
    assert [batch.header.base_offset for batch in read_batches(data)] in ([4, 5], [])


@pytest.mark.requirement("R5", "R8")
def test_read_when_compaction_swaps_segments_just_then_then_finds_the_old_or_the_new(
    open_log: Callable, clock: Clock
) -> None:
    disk = Interrupting()
    log = open_log(COMPACTED, disk=disk)
    for number in range(4):
        log.append(keyed((b"k%d" % (number % 2), b"%d" % number)))
        rolled(log)
    log.close()
    log = open_log(COMPACTED, disk=disk)  # no file is open for reading yet
    log.append(keyed((b"other", b"4")))
    rolled(log)
    newest = {2: b"2", 3: b"3", 4: b"4"}
    seen: list[dict[int, bytes | None]] = []

    def look(path: Path) -> None:
        if path.suffix == ".log":
            seen.append({record.offset: record.value for record in log.records()})

    disk.after_remove = look
    compact(log, force=True)
    disk.after_remove = None
    look(log.segments[0].path)
    assert all(newest.items() <= found.items() for found in seen)
    assert len(seen) > 1
    assert seen[-1] == newest


def test_index_when_dropped_while_a_reader_asks_for_it_then_the_reader_gets_one(open_log: Callable) -> None:
    log = open_log()
    fill(log, 8)
    segment = log.segments[0]
    found = segment.builder  # loaded

    def trace(frame, event, argument):
        if frame.f_code.co_name == "builder":
            if event == "line" and frame.f_lineno > frame.f_code.co_firstlineno + 3:
                segment.drop_index()  # as the writer thread may do at any moment
            return trace
        return None

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        found = segment.builder
    finally:
        sys.settrace(previous)
    assert found is not None


@contextmanager
def readers(count: int, read: Callable[[], None]) -> Iterator[list[BaseException]]:
    """Threads that read again and again until the block ends; what they raised."""
    raised: list[BaseException] = []
    over = threading.Event()

    def run() -> None:
        try:
            while not over.is_set():
                read()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for thread in threads:
        thread.start()
    try:
        yield raised
    finally:
        over.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)


def check_run(found: Sequence[Record], value_of: Callable[[int], bytes]) -> None:
    assert all(a.offset < b.offset for a, b in pairwise(found))
    assert all(record.value == value_of(record.offset) for record in found)


@pytest.mark.requirement("R5")
def test_reads_when_appends_and_deletions_go_on_then_see_only_whole_ordered_records(open_log: Callable) -> None:
    log = open_log(dataclasses.replace(CONFIG, retention_ms=None, retention_bytes=3000))
    fill(log, 4)

    def read() -> None:
        try:
            start = log.log_start_offset
            found = list(log.records(start, end_offset=log.high_watermark))
        except OffsetOutOfRange:
            return  # deleted meanwhile
        check_run(found, lambda offset: (b"%d" % offset).ljust(150, b"."))

    with readers(3, read) as raised:
        for _ in range(30):
            fill(log, 4)
            log.enforce_retention()
    assert raised == []
    assert log.log_end_offset == 124


@pytest.mark.requirement("R5", "R8")
def test_reads_when_compaction_goes_on_then_always_find_the_newest_of_each_key(open_log: Callable) -> None:
    log = open_log(COMPACTED)
    newest: dict[bytes, int] = {}

    def append() -> None:
        offset = log.log_end_offset
        key = b"k%d" % (offset % 5)
        log.append(large(b"%d" % offset, keys=[key]))
        newest[key] = offset

    for _ in range(10):
        append()

    def read() -> None:
        end = log.high_watermark
        known = {key: offset for key, offset in newest.copy().items() if offset < end}
        found = list(log.records())
        check_run(found, lambda offset: (b"%d" % offset).ljust(150, b"."))
        last = {record.key: record.offset for record in found}
        assert all(last[key] >= offset for key, offset in known.items())

    with readers(2, read) as raised:
        for _ in range(10):
            for _ in range(6):
                append()
            rolled(log)
            compact(log, force=True)
    assert raised == []
    assert offsets(log) == sorted(newest.values())


# --- opening


def test_log_when_opened_without_a_clean_close_then_finds_everything_and_says_so(
    open_log: Callable, tmp_path: Path
) -> None:
    log = open_log()
    fill(log, 10)
    copy = tmp_path / "crashed" / "orders-0"
    shutil.copytree(log.path, copy)
    with (copy / "00000000000000000008.log").open("ab") as file:
        file.write(canonical(10)[:-20])
    again = open_log(path=copy)
    assert not again.recovery.was_clean
    [cut] = again.recovery.cuts
    assert (Path(cut.path).name, cut.cut_bytes, again.cut_bytes) == (
        "00000000000000000008.log",
        len(canonical(10)) - 20,
        len(canonical(10)) - 20,
    )
    assert cut.kept_as is not None
    assert Path(cut.kept_as).read_bytes() == canonical(10)[:-20]
    assert any("cut" in line for line in again.recovery.lines())
    assert offsets(again) == list(range(10))
    again.close()
    # Said again until somebody has taken note.
    third = open_log(path=copy)
    assert third.recovery.was_clean
    assert third.cut_bytes == cut.cut_bytes
    third.acknowledge_cut()
    third.close()
    assert open_log(path=copy).cut_bytes == 0


def test_log_when_files_of_others_are_there_then_names_and_leaves_them(open_log: Callable) -> None:
    log = open_log()
    fill(log, 2)
    log.close()
    others = {"notes.txt", "1.log", "00000000000000000000.bak", "photo.jpg"}
    for name in others:
        (log.path / name).write_bytes(b"mine")
    (log.path / "checkpoint.tmp").write_bytes(b"left by a crash")
    again = open_log()
    assert {Path(path).name for path in again.recovery.unknown_files} == others
    assert all((log.path / name).read_bytes() == b"mine" for name in others)
    assert not (log.path / "checkpoint.tmp").exists()
    assert again.recovery.was_clean


@pytest.mark.requirement("R32")
def test_log_when_a_small_file_is_of_a_newer_version_then_stops_and_changes_nothing(open_log: Callable) -> None:
    log = open_log()
    fill(log, 2)
    log.close()
    for name, kind in (("checkpoint", Kind.CHECKPOINT), ("partition.meta", Kind.PARTITION_META)):
        path = log.path / name
        sound = path.read_bytes()
        path.write_bytes(newer(kind, sound))
        before = {entry.name: entry.read_bytes() for entry in log.path.iterdir() if entry.name != ".lock"}
        with pytest.raises(UnsupportedVersion):
            open_log()
        assert {entry.name: entry.read_bytes() for entry in log.path.iterdir() if entry.name != ".lock"} == before
        path.write_bytes(sound)
    assert offsets(open_log()) == [0, 1]


def newer(kind: Kind, sound: bytes) -> bytes:
    """A sound small file as version 2 might write it."""
    import struct

    from lograft.contract.batch import crc32c

    body = sound[16:]
    assert encode_small_file(kind, storage_pb2.PartitionMeta())[:4] == sound[:4]
    crc = crc32c(struct.pack("<HHI", 2, kind, len(body)) + body)
    return struct.pack("<4sHHII", sound[:4], 2, kind, len(body), crc) + body


def test_log_when_a_file_is_named_beyond_all_offsets_then_leaves_it_alone(open_log: Callable) -> None:
    log = open_log()
    log.close()
    (log.path / "checkpoint").unlink()
    stranger = log.path / "99999999999999999999.log"
    stranger.write_text("not a segment")
    again = open_log()
    assert again.recovery.unknown_files == [str(stranger)]
    assert stranger.read_text() == "not a segment"
    assert again.append(large(b"a")).base_offset == 0
