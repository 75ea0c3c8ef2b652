"""The log of one partition: append, read, look up, truncate, clean.

One thread (the owner) calls everything here but the reads, which any thread may call at any time: they take no lock
that an append holds, and see what is flushed. Appends change the state in memory and queue the bytes; the group-commit
writer makes them durable and reports back (`PendingAppend`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from lograft.contract.batch import Batch, BatchHeader, pack_header, read_batches
from lograft.contract.directories import open_failure
from lograft.contract.disk import Disk, going_on_without_space, is_no_space
from lograft.contract.errors import (
    DiskFull,
    FencedEpoch,
    InvalidRequest,
    OffsetOutOfRange,
    ShuttingDown,
    StorageCorrupted,
    StorageFailed,
)
from lograft.contract.records import Record, decode_stored
from lograft.storage import trimming
from lograft.storage.checkpoints import StoredIndex, producer_snapshot
from lograft.storage.clocks import steady_clock_ms, wall_clock_ms
from lograft.storage.config import Durability, LogConfig
from lograft.storage.core.admission import LogEnd, admit, admit_replica
from lograft.storage.core.epoch_history import EpochHistory
from lograft.storage.core.producer_state import Duplicate, ProducerStates
from lograft.storage.core.retention import ClockWatch
from lograft.storage.index import MAX_OFFSET_DELTA, remove_index
from lograft.storage.ownership import OwnedPartition, claim_partition
from lograft.storage.recovery import Recovery, RecoveryReport
from lograft.storage.segment import Segment, SegmentFile
from lograft.storage.state import LogState
from lograft.storage.swap import remove_segment_files
from lograft.storage.writer import AfterFlush, GroupCommitWriter, PendingAppend
from lograft.v1 import storage_pb2


class PartitionLog:
    """One partition's log on disk. Use `open`; as a context manager it closes itself."""

    def __init__(
        self,
        owned: OwnedPartition,
        config: LogConfig,
        disk: Disk,
        writer: GroupCommitWriter,
        *,
        owns_writer: bool,
        replicated: bool,
        now_ms: Callable[[], int],
    ) -> None:
        """Recover what the directory holds. Callers use `open`."""
        self.path = owned.path
        self.topic_partition = owned.topic_partition
        self.topic_id = owned.topic_id
        self.disk = disk
        self.writer = writer
        self.now_ms = now_ms
        # For the writer thread: see `WritableLog`.
        self.generation = 0
        self.refused = False
        self._subject = str(owned.topic_partition)
        self._owned = owned
        self._owns_writer = owns_writer
        self._closed = False
        self._clock = ClockWatch(now_ms(), steady_clock_ms())
        self._bytes_since_checkpoint = 0
        # Out of the log, their files not yet removed. The owner adds, the writer thread takes out.
        self._doomed: dict[Segment, None] = {}
        found = Recovery(owned.path, config, disk).run()
        self.recovery: RecoveryReport = found.report
        self._state = LogState.recovered(owned.path, disk, config, found, replicated=replicated)
        # A crash from now on must be recognised as one, and must not scan again what was just scanned.
        if found.checkpoint.close_state == storage_pb2.CLOSE_STATE_SYNC_FAILED:
            # Or the next opening would cut what comes now, too, as written around the failed sync.
            self._state.store_checkpoint()
        else:
            self._store_if_there_is_space(storage_pb2.CLOSE_STATE_OPEN)

    @classmethod
    def open(
        cls,
        path: Path | str,
        config: LogConfig | None = None,
        *,
        topic_id: str | None = None,
        disk: Disk | None = None,
        writer: GroupCommitWriter | None = None,
        replicated: bool = False,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> "PartitionLog":
        """Open (or create) the log in a directory named ``<topic>-<partition>``.

        Without a ``writer`` the log brings its own and locks its directory against other processes; a `DataDirectory`
        passes the one all its logs share. ``replicated`` says that the high watermark is told by the cluster; otherwise
        it is whatever is flushed. Raises `StorageCorrupted` if bytes that were safe are damaged: see `lograft log
        verify`.
        """
        disk = disk or Disk()
        owned = claim_partition(Path(path), topic_id, disk, lock=writer is None)
        used = writer
        try:
            used = used or GroupCommitWriter(owned.path, disk)
            return cls(
                owned,
                config or LogConfig(),
                disk,
                used,
                owns_writer=writer is None,
                replicated=replicated,
                now_ms=now_ms,
            )
        except BaseException as error:
            if writer is None and used is not None:
                used.close()
            owned.release()
            if isinstance(error, OSError):
                raise open_failure(owned.path, error) from error
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- Where the log stands ------------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        """The settings in force."""
        return self._state.config

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read. It never goes back."""
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get."""
        return self._state.log_end_offset

    @property
    def flushed_end_offset(self) -> int:
        """Everything below is durable (or with the operating system, if the topic is content with that)."""
        return self._state.flushed_end_offset

    @property
    def high_watermark(self) -> int:
        """Everything below is committed: on every in-sync replica. Cleaning stays below it."""
        return self._state.high_watermark

    @property
    def compacted_end_offset(self) -> int:
        """Everything below was compacted."""
        return self._state.compacted_end_offset

    @property
    def closed_end_offset(self) -> int:
        """Segments below are closed on disk too: the checkpoint speaks of a later one, so they may be rewritten."""
        return self._state.checkpoints.latest.flushed_segment_base

    @property
    def epochs(self) -> EpochHistory:
        """Which leader epoch began where."""
        return self._state.epochs

    @property
    def producers(self) -> ProducerStates:
        """The idempotent producers."""
        return self._state.producers

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first; the last is the active one."""
        return self._state.segments.all

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, what is still queued included."""
        return self._state.segments.size_bytes

    @property
    def cut_bytes(self) -> int:
        """What openings have cut off the end since `acknowledge_cut`: a replica that was cut must catch up first."""
        return self._state.cut_bytes

    def acknowledge_cut(self) -> None:
        """The owner has taken note that the end of the log was cut: forget it."""
        self._state.cut_bytes = 0
        self.checkpoint()

    def advance_high_watermark(self, offset: int) -> None:
        """Raise the high watermark; it never goes back and never passes what is flushed here."""
        state = self._state
        state.committed_end_offset = max(state.committed_end_offset, min(offset, state.flushed_end_offset))

    def reconfigure(self, config: LogConfig) -> None:
        """Take over changed settings; they hold from the next append or cleaning on."""
        self._state.config = config

    # -- Appending -----------------------------------------------------------------------------------------------

    def append(self, batch: Batch, *, leader_epoch: int | None = None, timeout_s: float | None = None) -> PendingAppend:
        """Append a producer's batch and wait until it is durable. Raises what `submit` raises, and `DiskFull`."""
        return self.submit(batch, leader_epoch=leader_epoch).wait(timeout_s)

    def submit(self, batch: Batch, *, leader_epoch: int | None = None) -> PendingAppend:
        """Check a producer's batch, give it offsets, and queue it. Never blocks.

        Raises `RecordTooLarge`, `CorruptBatch`, `InvalidRequest`, `FencedEpoch`, `OutOfOrderSequence`,
        `ProducerFenced`; then nothing has changed. A repeated batch is answered with the offsets it got the first time.
        """
        self._prepare_to_change()
        state = self._state
        now_ms = self.now_ms()
        end = LogEnd(self._subject, state.log_end_offset, state.epochs.latest)
        header = admit(batch, state.config, end, state.producers, leader_epoch=leader_epoch, now_ms=now_ms)
        if isinstance(header, Duplicate):
            next_offset, appended_ms = header.last_offset + 1, header.append_timestamp_ms
            return self._queue(state.segments.active.file, 0, (), header.base_offset, next_offset, appended_ms, True)
        segment = self._segment_for(header, now_ms)
        position = state.note(segment, header)
        buffers = (pack_header(header), batch.records)
        return self._queue(segment.file, position, buffers, header.base_offset, header.next_offset, now_ms)

    def submit_replica(self, data: bytes) -> list[PendingAppend]:
        """Queue batches as the leader has them: canonical bytes, stored unchanged.

        All are checked before the first is taken (`CorruptBatch`). Usually one pending append comes back; more if
        segments are rolled in between.
        """
        self._prepare_to_change()
        pending: list[PendingAppend] = []
        run: list[tuple[Segment, int, BatchHeader]] = []
        start = end = 0
        # A newer epoch that was noted here and wrote nothing is no obstacle: another leader may be right.
        end_offset = self._state.log_end_offset
        log_end = LogEnd(self._subject, end_offset, self._state.epochs.epoch_at(end_offset - 1))
        for header in admit_replica(data, log_end):
            if run and self._must_roll(header, header.append_timestamp_ms):
                # Before the roll, whose checkpoint speaks of these bytes as written.
                pending.append(self._queue_run(run, data[start:end]))
                run, start = [], end
            segment = self._segment_for(header, header.append_timestamp_ms)
            run.append((segment, self._state.note(segment, header), header))
            end += header.size_bytes
        if run:
            pending.append(self._queue_run(run, data[start:end] if start else data))
        return pending

    def _queue_run(self, run: Sequence[tuple[Segment, int, BatchHeader]], data: bytes) -> PendingAppend:
        segment, position, first = run[0]
        last = run[-1][2]
        return self._queue(segment.file, position, (data,), first.base_offset, last.next_offset)

    def note_leader_epoch(self, epoch: int) -> None:
        """Record that a leader epoch begins at the end of the log."""
        self._prepare_to_change()
        latest = self.epochs.latest
        if latest is not None and epoch < latest:
            raise FencedEpoch(self._subject, epoch, latest)
        self.epochs.note(epoch, self.log_end_offset)

    def _prepare_to_change(self) -> None:
        self._check_open()
        if self.writer.failure is not None:
            raise self.writer.failure
        if self.refused:
            self._roll_back()

    def _roll_back(self) -> None:
        """Forget the appends that the writer refused, and let the writer forget them too."""
        self.generation += 1
        self._state.roll_back_to_flushed()
        self.refused = False

    def _must_roll(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether the batch goes to a new segment."""
        active = self._state.segments.active
        if active.size_bytes == 0:
            return False
        config = self._state.config
        return (
            active.size_bytes + header.size_bytes > config.segment_bytes
            or now_ms - active.builder.first_append_ms > config.segment_ms
            or header.last_offset - active.base_offset > MAX_OFFSET_DELTA
        )

    def _segment_for(self, header: BatchHeader, now_ms: int) -> Segment:
        """The segment that takes the batch: the active one, or a new one."""
        return self.roll() if self._must_roll(header, now_ms) else self._state.segments.active

    def _queue(
        self,
        file: SegmentFile,
        position: int,
        buffers: tuple[bytes, ...],
        base_offset: int,
        next_offset: int,
        append_timestamp_ms: int = 0,
        duplicate: bool = False,
    ) -> PendingAppend:
        pending = PendingAppend(
            self.writer,
            self,
            file,
            position,
            buffers,
            base_offset=base_offset,
            next_offset=next_offset,
            append_timestamp_ms=append_timestamp_ms,
            duplicate=duplicate,
        )
        self.writer.submit(pending)
        self._bytes_since_checkpoint += pending.size_bytes
        if self._bytes_since_checkpoint >= self._state.config.checkpoint_interval_bytes:
            self.checkpoint()
        return pending

    def roll(self) -> Segment:
        """Close the active segment and begin a new one at the end of the log."""
        state = self._state
        closed = state.segments.active
        if closed.size_bytes == 0:
            return closed
        stored = StoredIndex(closed.path, *closed.seal())
        producers = producer_snapshot(state.log_end_offset, state.producers)
        segment = state.new_segment(state.log_end_offset)
        segment.file.predecessor = closed.file
        state.segments.add(segment)
        self._after_flush(partial(state.checkpoints.store_closed, closed, stored, segment.path, producers))
        self._after_flush(partial(state.checkpoints.remove_old_snapshots, state.segments.all))
        self.checkpoint()
        return segment

    # -- Called by the writer thread -----------------------------------------------------------------------------

    @property
    def syncs_before_ack(self) -> bool:
        """Whether appends wait for the disk."""
        return self._state.config.durability is Durability.FSYNC

    def note_flushed(self, end_offset: int) -> None:
        """Everything below ``end_offset`` may be acknowledged."""
        self._state.flushed_end_offset = max(self._state.flushed_end_offset, end_offset)

    def note_sync_failure(self) -> None:
        """Leave word for the next opening: nothing above what is flushed may be trusted."""
        self._state.checkpoints.store_sync_failure(self._state.flushed_end_offset)

    # -- Checkpoints and closing ---------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Have the writer store, once all that was submitted is durable, what a restart need not find out again."""
        self._bytes_since_checkpoint = 0
        state = self._state
        active = state.segments.active
        index = StoredIndex.of_active(active)
        self._after_flush(partial(state.checkpoints.store, state.checkpoint_message(), active.file, index))

    def _after_flush(self, work: Callable[[], None]) -> None:
        self._check_open()
        self.writer.submit(AfterFlush(self, self.generation, work))

    def flush(self) -> None:
        """Block until everything submitted is durable."""
        self.writer.drain()

    def _settle(self) -> None:
        """Wait for the writer; afterwards memory and disk say the same."""
        self._check_open()
        self.writer.drain()
        self._prepare_to_change()

    def _store_if_there_is_space(self, close_state: storage_pb2.CloseState) -> None:
        """Without space for a checkpoint a log can be opened, read and closed; the next opening scans a little more."""
        with going_on_without_space(self.path):
            self._state.store_checkpoint(close_state)

    def close(self) -> None:
        """Finish what is queued, leave a clean checkpoint, and let go of the directory."""
        if self._closed:
            return
        try:
            with suppress(StorageFailed):  # a log on a failed disk can be closed all the same, but not cleanly
                # Also after a failure elsewhere: the writer may be in the middle of writing to our files.
                self._settle()
                self._store_if_there_is_space(storage_pb2.CLOSE_STATE_CLEAN)
        finally:
            self._closed = True
            for segment in (*self.segments, *self._doomed):
                segment.close()
            if self._owns_writer:
                self.writer.close()
            self._owned.release()

    # -- Reading: any thread -------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int = 1 << 20, *, end_offset: int | None = None) -> bytes:
        """Whole batches, checked, from the one that holds ``offset`` on: a piece of a serialized ``Segment``.

        At most ``max_bytes``, but at least one batch if there is any below ``end_offset`` (by default, all that is
        flushed). Empty at the end. Raises `OffsetOutOfRange`, or `StorageCorrupted` instead of serving damaged bytes.
        """
        state = self._state
        while True:
            self._check_open()
            flushed_end = state.flushed_end_offset
            if not state.log_start_offset <= offset <= state.log_end_offset:
                raise OffsetOutOfRange(self._subject, offset, state.log_start_offset, flushed_end)
            end = flushed_end if end_offset is None else min(end_offset, flushed_end)
            if offset >= end:
                return b""
            with self._only_while_open():
                data = state.segments.read(offset, max_bytes, end)
            if data is not None:
                return data

    def records(self, offset: int | None = None, *, end_offset: int | None = None) -> Iterator[Record]:
        """The records from ``offset`` (by default, the first) up to ``end_offset``, one by one."""
        at = self.log_start_offset if offset is None else offset
        while data := self.read(at, end_offset=end_offset):
            for batch in read_batches(data):
                yield from (record for record in decode_stored(batch).rows() if record.offset >= at)
                at = batch.header.next_offset

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first flushed record that is not older than ``timestamp_ms``; None if all are."""
        self._check_open()
        with self._only_while_open():
            return self._state.segments.first_not_older(timestamp_ms, self.log_start_offset)

    @contextmanager
    def _only_while_open(self) -> Iterator[None]:
        """Once the log is closed its files may be gone, or those of another log may have their names."""
        try:
            yield
        except StorageCorrupted:
            self._check_open()
            raise
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise ShuttingDown(f"the log of {self._subject}")

    # -- Trimming ------------------------------------------------------------------------------------------------

    def truncate(self, end_offset: int, *, unclean: bool = False) -> int:
        """Cut off everything from the batch that holds ``end_offset`` on, durably; the new end of the log. Blocks.

        Below the high watermark lies what was promised: only an ``unclean`` election may cut there.
        """
        self._settle()
        state = self._state
        if end_offset < state.high_watermark and state.is_replicated and not unclean:
            problem = f"would cut below its high watermark {state.high_watermark}"
            raise InvalidRequest(f"truncating {self._subject} to {end_offset} {problem}")
        if end_offset >= state.log_end_offset:
            pass
        elif end_offset <= state.log_start_offset:
            trimming.restart_at(state, state.log_start_offset, self.writer.close_for_writing)
        else:
            trimming.truncate(state, end_offset, self.writer.close_for_writing)
        return state.log_end_offset

    def restart_at(self, offset: int) -> None:
        """Drop everything and go on at ``offset``: for a follower that ends below the leader's log start. Blocks."""
        self._settle()
        if offset < self.log_start_offset:
            raise InvalidRequest(f"{self._subject} cannot restart at {offset}, below its start {self.log_start_offset}")
        trimming.restart_at(self._state, offset, self.writer.close_for_writing)

    def delete_records(self, before_offset: int) -> int:
        """Move the log start up to ``before_offset``, durably: what lies below is gone. The new log start. Blocks."""
        if before_offset > self.high_watermark:
            raise OffsetOutOfRange(self._subject, before_offset, self.log_start_offset, self.high_watermark)
        if before_offset > self._state.checkpoints.latest.log_start_offset:
            self._settle()
            self._state.raise_log_start(before_offset)
            self._drop_expired(now_ms=0, retention_ms=None, retention_bytes=None)
            self._store_and_remove()
            self.writer.drain()
            if self._state.checkpoints.latest.log_start_offset < before_offset:
                raise DiskFull(str(self.path))
        return self.log_start_offset

    def enforce_retention(self) -> int:
        """Delete closed segments that are too old or too many, as the settings say; how many. Never blocks."""
        self._prepare_to_change()
        now_ms = self.now_ms()
        config = self.config
        self._clock = self._clock.observe(now_ms, steady_clock_ms())
        self.producers.settle_to(self.flushed_end_offset)
        self.producers.forget_idle(now_ms, config.producer_expiration_ms)
        if not config.cleanup_policy.deletes:
            return 0
        retention_ms = config.retention_ms if self._clock.may_delete else None
        count = self._drop_expired(now_ms=now_ms, retention_ms=retention_ms, retention_bytes=config.retention_bytes)
        if self._doomed:  # also those of an earlier turn, if there was no space to store the log start then
            self._store_and_remove()
        return count

    @property
    def deletion_suspended(self) -> bool:
        """Whether deletion by age waits because the clock has jumped ahead."""
        return not self._clock.may_delete

    def _drop_expired(self, *, now_ms: int, retention_ms: int | None, retention_bytes: int | None) -> int:
        expired = trimming.take_expired(
            self._state, now_ms=now_ms, retention_ms=retention_ms, retention_bytes=retention_bytes
        )
        self._doomed.update(dict.fromkeys(expired))
        return len(expired)

    def _store_and_remove(self) -> None:
        """Have the writer store the log start and then remove the files below it, in this order.

        A crash in between finds files too many, never a log that begins later than it was told.
        """
        state = self._state
        active = state.segments.active
        index = StoredIndex.of_active(active)
        # Those of now: the checkpoint does not speak of any that come later.
        doomed = tuple(self._doomed)
        self._after_flush(partial(self._remove_doomed, doomed, state.checkpoint_message(), active.file, index))

    def _remove_doomed(
        self,
        doomed: tuple[Segment, ...],
        message: storage_pb2.PartitionCheckpoint,
        active: SegmentFile,
        index: StoredIndex | None,
    ) -> None:
        try:
            self._state.checkpoints.store(message, active, index)
        except OSError as error:
            if not is_no_space(error):
                raise
            # No space for the few bytes that would set much free: the indexes of what goes are not needed any more.
            for segment in doomed:
                remove_index(self.disk, segment.path)
            self._state.checkpoints.store(message, active, None)
        for segment in doomed:
            remove_segment_files(self.disk, segment.path)
            segment.close()
            self._doomed.pop(segment, None)

    # -- Compaction: see `lograft.storage.compaction` ------------------------------------------------------------

    @property
    def cuts(self) -> int:
        """How often the end was cut since opening: a compaction planned before a cut must not be installed after it."""
        return self._state.cuts

    def replace_segments(self, old: tuple[Segment, ...], new: Segment) -> None:
        """Put a compacted segment, already in place on disk, where ``old`` were."""
        self._state.segments.replace(old, new)

    def note_compacted(self, end_offset: int) -> None:
        """Remember up to where the log is compacted."""
        self._state.compacted_end_offset = end_offset
        self.checkpoint()

    def check_writable(self) -> None:
        """Raise unless the log may be changed now."""
        self._prepare_to_change()
