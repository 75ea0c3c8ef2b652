"""The log against a plain dictionary, through rolls, truncations, retention, compaction, crashes and reopening."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lograft.contract.batch import read_batches
from lograft.contract.codecs import Codec
from lograft.contract.errors import OffsetOutOfRange
from lograft.contract.records import encode_batch
from lograft.storage import CleanupPolicy, Durability, LogConfig, PartitionLog
from lograft.storage.compaction import compact

EFFORT = int(os.environ.get("LOGRAFT_TEST_EFFORT", "1"))
KEYS = [b"a", b"b", b"c", b"d", b"a key that is longer than sixteen bytes"]


class LogMachine(RuleBasedStateMachine):
    """Every rule does the same to the log and to the model, then the invariants compare them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="lograft-machine-"))
        self.lives = 0
        self.clock_ms = 1_000_000
        self.records: dict[int, tuple[int, bytes | None, bytes | None]] = {}
        self.start = self.end = self.high_watermark = 0
        self.epoch = 1
        self.sequence = 0
        self.last_batch = None

    @initialize(
        durability=st.sampled_from(list(Durability)),
        policy=st.sampled_from([CleanupPolicy.COMPACT_DELETE, CleanupPolicy.DELETE]),
    )
    def open_new(self, durability: Durability, policy: CleanupPolicy) -> None:
        self.config = LogConfig(
            segment_bytes=2048,
            max_batch_bytes=2048,
            index_interval_bytes=300,
            checkpoint_interval_bytes=3000,
            durability=durability,
            cleanup_policy=policy,
            retention_bytes=6000,
            retention_ms=None,
            delete_retention_ms=50,
        )
        self.path = self.folder / "machine-0"
        self.log = self.open()

    def open(self) -> PartitionLog:
        return PartitionLog.open(self.path, self.config, replicated=True, now_ms=lambda: self.clock_ms)

    @rule(
        entries=st.lists(
            st.tuples(st.sampled_from(KEYS), st.none() | st.binary(max_size=60), st.integers(0, 40)),
            min_size=1,
            max_size=8,
        ),
        codec=st.sampled_from(list(Codec)),
        idempotent=st.booleans(),
    )
    def append(self, entries: list[tuple[bytes, bytes | None, int]], codec: Codec, idempotent: bool) -> None:
        self.clock_ms += 7
        stamps = [self.clock_ms - back for _, _, back in entries]
        batch = encode_batch(
            [value for _, value, _ in entries],
            keys=[key for key, _, _ in entries],
            timestamps_ms=stamps,
            codec=codec,
            producer_id=7 if idempotent else 0,
            base_sequence=self.sequence if idempotent else 0,
        )
        appended = self.log.append(batch, leader_epoch=self.epoch)
        assert (appended.base_offset, appended.next_offset) == (self.end, self.end + len(entries))
        for index, (key, value, _) in enumerate(entries):
            self.records[self.end + index] = (stamps[index], key, value)
        self.end += len(entries)
        if idempotent:
            self.sequence += len(entries)
            self.last_batch = (batch, appended.base_offset)

    @precondition(lambda self: self.last_batch is not None)
    @rule()
    def repeat_last_batch(self) -> None:
        batch, base_offset = self.last_batch
        again = self.log.append(batch, leader_epoch=self.epoch)
        assert again.duplicate
        assert again.base_offset == base_offset

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def new_leader_epoch(self) -> None:
        self.epoch += 1
        self.log.note_leader_epoch(self.epoch)

    @rule(share=st.floats(0, 1))
    def advance_high_watermark(self, share: float) -> None:
        target = int(self.start + share * (self.end - self.start))
        self.log.advance_high_watermark(target)
        self.high_watermark = max(self.high_watermark, target)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        target = round(self.high_watermark + share * (self.end - self.high_watermark))
        new_end = self.log.truncate(target, unclean=True)
        assert new_end <= target
        # A cut in the middle of a batch takes the whole batch.
        assert all(offset < target or offset >= new_end for offset in self.records)
        self.forget(lambda offset: offset >= new_end)
        self.end = new_end
        self.high_watermark = min(self.high_watermark, new_end)
        self.last_batch = None
        # The producer goes on where the log says it is.
        entry = dict(self.log.producers.entries()).get(7)
        self.sequence = entry.batches[-1].last_sequence + 1 if entry else 0

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        target = round(self.start + share * (self.high_watermark - self.start))
        assert self.log.delete_records(target) == max(target, self.start)
        self.start = max(self.start, target)
        self.forget(lambda offset: offset < self.start)

    @rule()
    def enforce_retention(self) -> None:
        self.log.enforce_retention()
        start = self.log.log_start_offset
        assert self.start <= start <= max(self.high_watermark, self.start)
        self.start = start
        self.forget(lambda offset: offset < start)

    @rule(passed_ms=st.sampled_from([0, 60]))
    def compact(self, passed_ms: int) -> None:
        self.clock_ms += passed_ms
        closed_end = self.log.segments[-1].base_offset
        compact(self.log, force=True)
        left = {record.offset for record in self.log.records()}
        assert left <= set(self.records)
        if not self.config.cleanup_policy.compacts:
            assert left == set(self.records)
            return
        newest = {key: offset for offset, (_, key, _) in sorted(self.records.items())}
        for offset, (_, key, value) in self.records.items():
            if offset in left:
                continue
            # Only what has a newer record, or a tombstone whose time has passed, may be gone; never what is not closed.
            assert offset < min(closed_end, self.high_watermark)
            assert newest[key] > offset or value is None
        self.forget(lambda offset: offset not in left)

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = self.open()
        assert self.log.recovery.was_clean
        assert not self.log.recovery.cuts

    @rule()
    def crash(self) -> None:
        """The files as they are this moment, opened by another process, as it were."""
        self.log.flush()
        self.lives += 1
        copy = self.folder / f"life-{self.lives}" / "machine-0"
        shutil.copytree(self.path, copy)
        self.log.close()
        shutil.rmtree(self.path)
        self.path = copy
        self.log = self.open()
        assert not self.log.recovery.cuts
        # The high watermark is a checkpoint: it may be older, never newer.
        assert self.log.high_watermark <= self.high_watermark
        assert self.log.log_start_offset == self.start
        self.log.advance_high_watermark(self.high_watermark)

    def forget(self, gone) -> None:  # type: ignore[no-untyped-def]
        self.records = {offset: record for offset, record in self.records.items() if not gone(offset)}

    @invariant()
    def log_holds_exactly_the_model(self) -> None:
        if not hasattr(self, "log"):
            return
        found = {record.offset: (record.timestamp_ms, record.key, record.value) for record in self.log.records()}
        assert found == self.records
        assert list(found) == sorted(found)
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert self.log.high_watermark == self.high_watermark

    @precondition(lambda self: self.end > self.start)
    @rule(share=st.floats(0, 1), max_bytes=st.integers(1, 3000))
    def read_anywhere(self, share: float, max_bytes: int) -> None:
        offset = min(int(self.start + share * (self.end - self.start)), self.end - 1)
        data = self.log.read(offset, max_bytes)
        batches = list(read_batches(data))
        expected_more = any(present >= offset for present in self.records)
        assert bool(batches) or not expected_more
        if batches:
            assert len(data) <= max_bytes or len(batches) == 1
            assert batches[0].header.last_offset >= offset
        with pytest.raises(OffsetOutOfRange):
            self.log.read(self.end + 1)

    @rule(back_ms=st.integers(0, 100))
    def look_up_time(self, back_ms: int) -> None:
        moment = self.clock_ms - back_ms
        expected = next(
            ((offset, stamp) for offset, (stamp, _, _) in sorted(self.records.items()) if stamp >= moment), None
        )
        assert self.log.offset_for_time(moment) == expected

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
        shutil.rmtree(self.folder)


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=60 * EFFORT, stateful_step_count=40)
TestLog.pytestmark = [pytest.mark.requirement("R3", "R7", "R8", "R9")]
