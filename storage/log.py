"""The log of one partition: append, read, look up, truncate, clean.

One thread (the owner) calls everything here but the reads, which any thread may call at any time: they take no lock
that an append holds, and see what is flushed. Appends change the state in memory and queue the bytes; the group-commit
writer makes them durable and reports back (`PendingAppend`).

Invariants between calls:
- ``log_start_offset <= high_watermark <= flushed_end_offset <= log_end_offset``; none but the last goes back, except
  by `truncate` and `restart_at`.
- segments follow each other without a gap; the last one is the active one.
- epochs and producers are a function of the batches up to ``log_end_offset``.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from lograft.contract.batch import Batch, BatchHeader, pack_header, read_batches
from lograft.contract.disk import Disk, is_no_space
from lograft.contract.errors import DiskFull, FencedEpoch, InvalidRequest, OffsetOutOfRange, ShuttingDown
from lograft.contract.records import Record, decode_batch
from lograft.storage.checkpoints import Checkpoints, StoredIndex, producer_snapshot
from lograft.storage.config import Durability, LogConfig
from lograft.storage.core.admission import LogEnd, admit, admit_replica
from lograft.storage.core.producer_state import Duplicate, ProducerStates
from lograft.storage.core.retention import ClockWatch, expired_segments
from lograft.storage.index import remove_index
from lograft.storage.ownership import OwnedPartition, claim_partition, open_failure
from lograft.storage.recovery import Recovery, RecoveryReport, remove_segment_files
from lograft.storage.segment import Segment, SegmentFile
from lograft.storage.segments import Segments
from lograft.storage.small_files import epochs_to_proto, producers_to_proto
from lograft.storage.writer import AfterFlush, GroupCommitWriter, PendingAppend
from lograft.v1 import storage_pb2

_MAX_OFFSET_DELTA = (1 << 32) - 1


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def steady_clock_ms() -> int:
    """A clock that nobody can set and that counts while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


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
        self._subject = str(owned.topic_partition)
        self.config = config
        self.disk = disk
        self.writer = writer
        # For the writer thread: see `WritableLog`.
        self.generation = 0
        self.refused = False
        self._owned = owned
        self._owns_writer = owns_writer
        self._replicated = replicated
        self.now_ms = now_ms
        self._closed = False
        self._clock = ClockWatch(now_ms(), steady_clock_ms())
        found = Recovery(owned.path, config, disk).run()
        self.recovery: RecoveryReport = found.report
        # What openings have cut off, also earlier ones, until `acknowledge_cut`: a cut replica must catch up first.
        self.cut_bytes = found.checkpoint.cut_bytes + found.report.cut_bytes
        self.epochs = found.epochs
        self.producers = found.producers
        self.compacted_end_offset = found.compacted_end_offset
        self.log_start_offset = found.log_start_offset
        self.log_end_offset = found.segments[-1].next_offset
        self._segments = Segments(found.segments)
        self._flushed_end_offset = self.log_end_offset
        self._high_watermark = found.high_watermark
        self._bytes_since_checkpoint = 0
        self._checkpoints = Checkpoints(owned.path, disk, found.checkpoint)
        # A crash from now on must be recognised as one, and must not scan again what was just scanned.
        self._store_checkpoint()

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
        own_writer = None
        try:
            own_writer = GroupCommitWriter(owned.path, disk) if writer is None else None
            used = own_writer or writer
            assert used is not None  # noqa: S101 - for the type checker
            return cls(
                owned,
                config or LogConfig(),
                disk,
                used,
                owns_writer=own_writer is not None,
                replicated=replicated,
                now_ms=now_ms,
            )
        except BaseException as error:
            if own_writer is not None:
                own_writer.close()
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
    def flushed_end_offset(self) -> int:
        """Everything below is durable (or with the operating system, if the topic is content with that)."""
        return self._flushed_end_offset

    @property
    def high_watermark(self) -> int:
        """Everything below is committed: on every in-sync replica. Cleaning stays below it."""
        return self._high_watermark if self._replicated else self._flushed_end_offset

    def advance_high_watermark(self, offset: int) -> None:
        """Raise the high watermark; it never goes back and never passes what is flushed here."""
        self._high_watermark = max(self._high_watermark, min(offset, self._flushed_end_offset))

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, what is still queued included."""
        return self._segments.size_bytes

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first; the last is the active one."""
        return self._segments.all

    @property
    def closed_end_offset(self) -> int:
        """Segments below are closed on disk too: the checkpoint speaks of a later one, so they may be rewritten."""
        return self._checkpoints.latest.flushed_segment_base

    def reconfigure(self, config: LogConfig) -> None:
        """Take over changed settings; they hold from the next append or cleaning on."""
        self.config = config

    # -- Appending -----------------------------------------------------------------------------------------------

    def append(self, batch: Batch, *, leader_epoch: int | None = None, timeout_s: float | None = None) -> PendingAppend:
        """Append a producer's batch and wait until it is durable. Raises what `submit` raises, and `DiskFull`."""
        return self.submit(batch, leader_epoch=leader_epoch).wait(timeout_s)

    def submit(self, batch: Batch, *, leader_epoch: int | None = None) -> PendingAppend:
        """Check a producer's batch, give it offsets, and queue it. Never blocks.

        Raises `RecordTooLarge`, `CorruptBatch`, `InvalidRequest`, `FencedEpoch`, `OutOfOrderSequence`,
        `ProducerFenced`; then nothing has changed. A repeated batch is answered with the offsets it got the first time.
        """
        self._prepare_to_append()
        now_ms = self.now_ms()
        header = admit(batch, self.config, self._end, self.producers, leader_epoch=leader_epoch, now_ms=now_ms)
        if isinstance(header, Duplicate):
            next_offset, appended_ms = header.last_offset + 1, header.append_timestamp_ms
            return self._queue(self._segments.active.file, 0, (), header.base_offset, next_offset, appended_ms, True)
        segment = self._segment_for(header, now_ms)
        position = self._note(segment, header)
        buffers = (pack_header(header), batch.records)
        return self._queue(segment.file, position, buffers, header.base_offset, header.next_offset, now_ms)

    def submit_replica(self, data: bytes) -> list[PendingAppend]:
        """Queue batches as the leader has them: canonical bytes, stored unchanged.

        All are checked before the first is taken (`CorruptBatch`). Usually one pending append comes back; more if
        segments are rolled in between.
        """
        self._prepare_to_append()
        return self._submit_run(admit_replica(data, self._end), data)

    def _submit_run(self, headers: Sequence[BatchHeader], data: bytes) -> list[PendingAppend]:
        pending: list[PendingAppend] = []
        start = end = 0
        run: list[tuple[Segment, int, BatchHeader]] = []

        def queue_run() -> None:
            segment, position, first = run[0]
            buffer = data if start == 0 and end == len(data) else data[start:end]
            last = run[-1][2]
            pending.append(self._queue(segment.file, position, (buffer,), first.base_offset, last.next_offset))
            run.clear()

        for header in headers:
            segment = self._segment_for(header, header.append_timestamp_ms)
            if run and run[0][0] is not segment:
                queue_run()
                start = end
            run.append((segment, self._note(segment, header), header))
            end += header.size_bytes
        if run:
            queue_run()
        return pending

    def note_leader_epoch(self, epoch: int) -> None:
        """Record that a leader epoch begins at the end of the log."""
        if self.epochs.latest is not None and epoch < self.epochs.latest:
            raise FencedEpoch(self._subject, epoch, self.epochs.latest)
        self.epochs.note(epoch, self.log_end_offset)

    def _prepare_to_append(self) -> None:
        if self._closed:
            raise ShuttingDown(f"the log of {self.topic_partition}")
        if self.writer.failure is not None:
            raise self.writer.failure
        if self.refused:
            self._roll_back()

    @property
    def _end(self) -> LogEnd:
        return LogEnd(self._subject, self.log_end_offset, self.epochs.latest)

    def _segment_for(self, header: BatchHeader, now_ms: int) -> Segment:
        """The segment that takes the batch: the active one, or a new one."""
        active = self._segments.active
        if active.size_bytes == 0:
            return active
        config = self.config
        full = active.size_bytes + header.size_bytes > config.segment_bytes
        old = now_ms - active.builder.first_append_ms > config.segment_ms
        far = header.last_offset - active.base_offset > _MAX_OFFSET_DELTA
        return self.roll() if full or old or far else active

    def _note(self, segment: Segment, header: BatchHeader) -> int:
        """Take the batch into the state in memory; its position in the segment."""
        self.epochs.note(header.leader_epoch, header.base_offset)
        self.producers.note(header)
        self.log_end_offset = header.next_offset
        return segment.note(header)

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
        if self._bytes_since_checkpoint >= self.config.checkpoint_interval_bytes:
            self.checkpoint()
        return pending

    def roll(self) -> Segment:
        """Close the active segment and begin a new one at the end of the log."""
        closed = self._segments.active
        if closed.size_bytes == 0:
            return closed
        segment = Segment.create(self.disk, self.path, self.log_end_offset, self.config.index_interval_bytes)
        stored = StoredIndex(closed.path, *closed.seal())
        producers = producer_snapshot(self.log_end_offset, self.producers)
        self._segments.add(segment)
        self._after_flush(partial(self._checkpoints.store_closed, closed, stored, segment.path, producers))
        self._after_flush(partial(self._checkpoints.remove_old_snapshots, self._segments.all))
        self.checkpoint()
        return segment

    def _roll_back(self) -> None:
        """Forget the appends that the writer refused: the log ends where it is flushed."""
        self.generation += 1
        end = self._flushed_end_offset
        self._segments.all = tuple(segment for segment in self._segments.all if segment.base_offset <= end)
        active = self._segments.active
        active.roll_back(end, active.file.flushed_bytes)
        self.log_end_offset = end
        self.epochs.truncate_end(end + 1)
        self.producers.undo_to(end)
        self.refused = False

    # -- Called by the writer thread -----------------------------------------------------------------------------

    @property
    def syncs_before_ack(self) -> bool:
        """Whether appends wait for the disk."""
        return self.config.durability is Durability.FSYNC

    def note_flushed(self, end_offset: int) -> None:
        """Everything below ``end_offset`` may be acknowledged."""
        self._flushed_end_offset = max(self._flushed_end_offset, end_offset)

    def note_sync_failure(self) -> None:
        """Leave word for the next opening: nothing above what is flushed may be trusted."""
        self._checkpoints.store_sync_failure(self._flushed_end_offset)

    # -- Checkpoints ---------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Have the writer store, once all that was submitted is durable, what a restart need not find out again."""
        self._bytes_since_checkpoint = 0
        self.producers.settle_to(self._flushed_end_offset)
        active = self._segments.active
        message = self._checkpoint_message(storage_pb2.CLOSE_STATE_OPEN)
        self._after_flush(partial(self._checkpoints.store, message, active.file, StoredIndex.of_active(active)))

    def _store_checkpoint(self, close_state: storage_pb2.CloseState = storage_pb2.CLOSE_STATE_OPEN) -> None:
        """The same at once, from the owner's thread: only while nothing is queued."""
        active = self._segments.active
        self._checkpoints.store(self._checkpoint_message(close_state), active.file, StoredIndex.of_active(active))

    def _after_flush(self, work: Callable[[], None]) -> None:
        self.writer.submit(AfterFlush(self, self.generation, work))

    def _checkpoint_message(self, close_state: storage_pb2.CloseState) -> storage_pb2.PartitionCheckpoint:
        active = self._segments.active
        return storage_pb2.PartitionCheckpoint(
            flushed_end_offset=self.log_end_offset,
            flushed_segment_base=active.base_offset,
            flushed_position=active.size_bytes,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            compacted_end_offset=self.compacted_end_offset,
            epochs=epochs_to_proto(self.epochs),
            close_state=close_state,
            cut_bytes=self.cut_bytes,
            producers=producers_to_proto(self.producers),
        )

    def acknowledge_cut(self) -> None:
        """The owner has taken note that the end of the log was cut: forget it."""
        self.cut_bytes = 0
        self.checkpoint()

    def flush(self) -> None:
        """Block until everything submitted is durable."""
        self.writer.drain()

    def close(self) -> None:
        """Finish what is queued, leave a clean checkpoint, and let go of the directory."""
        if self._closed:
            return
        self._closed = True
        try:
            if self.writer.failure is None:
                self.writer.drain()
                if self.refused:
                    self._roll_back()
                self._store_checkpoint(storage_pb2.CLOSE_STATE_CLEAN)
        finally:
            for segment in self._segments.all:
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
        while True:
            if not self.log_start_offset <= offset <= self.log_end_offset:
                raise OffsetOutOfRange(self._subject, offset, self.log_start_offset, self._flushed_end_offset)
            end = self._flushed_end_offset if end_offset is None else min(end_offset, self._flushed_end_offset)
            if offset >= end:
                return b""
            data = self._segments.read(offset, max_bytes, end)
            if data is not None:
                return data

    def records(self, offset: int | None = None, *, end_offset: int | None = None) -> Iterator[Record]:
        """The records from ``offset`` (by default, the first) up to ``end_offset``, one by one."""
        at = self.log_start_offset if offset is None else offset
        while data := self.read(at, end_offset=end_offset):
            for batch in read_batches(data):
                columns = decode_batch(batch, limit_bytes=self.config.max_uncompressed_bytes)
                yield from (record for record in columns.rows() if record.offset >= at)
                at = batch.header.next_offset

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first flushed record that is not older than ``timestamp_ms``; None if all are."""
        limit_bytes = self.config.max_uncompressed_bytes
        return self._segments.first_not_older(timestamp_ms, self.log_start_offset, limit_bytes)

    # -- Truncating and cleaning: these block --------------------------------------------------------------------

    def truncate(self, end_offset: int, *, unclean: bool = False) -> int:
        """Cut off everything from the batch that holds ``end_offset`` on, durably; the new end of the log.

        Below the high watermark lies what was promised: only an ``unclean`` election may cut there.
        """
        self._settle()
        if end_offset >= self.log_end_offset:
            return self.log_end_offset
        if end_offset < self.high_watermark and self._replicated and not unclean:
            raise InvalidRequest(
                f"truncating {self.topic_partition} to {end_offset} would cut below its high watermark "
                f"{self.high_watermark}"
            )
        if end_offset <= self.log_start_offset:
            self.restart_at(self.log_start_offset)
            return self.log_end_offset
        index = self._segments.holding(end_offset)
        kept, dropped = self._segments.all[: index + 1], self._segments.all[index + 1 :]
        segment = kept[-1]
        position = segment.position_of(end_offset)
        header = self._segments.header_at(segment, position)
        end_offset = min(end_offset, header.base_offset) if header is not None else end_offset
        producers = self._checkpoints.producers_before(kept, position, self.config.remembered_batches)
        # The checkpoint goes first: once it is lower, whatever a crash leaves above it is a torn tail, not corruption.
        self._lower_checkpoint(end_offset, segment.base_offset, position, producers)
        segment.roll_back(end_offset, position)
        segment.file.flushed_bytes = position
        self._segments.all = kept
        self._set_end(end_offset, producers)
        with self._final_failures():
            for later in reversed(dropped):
                later.close()
                remove_segment_files(self.disk, later.path)
            # An index of the old tail must not come back and be taken for one of the new.
            remove_index(self.disk, segment.path)
            self.disk.sync_directory(self.path)
            file = segment.file.open(self.disk)
            self.disk.truncate(file, position)
            self.disk.sync_file(file)
        return self.log_end_offset

    def restart_at(self, offset: int) -> None:
        """Drop everything and go on at ``offset``: for a follower whose log ends below the leader's log start."""
        self._settle()
        dropped = self._segments.all
        producers = ProducerStates(self.config.remembered_batches)
        self._lower_checkpoint(offset, offset, 0, producers, log_start_offset=offset)
        self.log_start_offset = offset
        self.compacted_end_offset = min(self.compacted_end_offset, offset)
        self._segments.all = (Segment.create(self.disk, self.path, offset, self.config.index_interval_bytes),)
        self.epochs.truncate_end(0)
        self._set_end(offset, producers)
        self._high_watermark = offset
        with self._final_failures():
            for segment in reversed(dropped):
                segment.close()
                remove_segment_files(self.disk, segment.path)
            self.disk.sync_directory(self.path)

    def _lower_checkpoint(
        self,
        end_offset: int,
        segment_base: int,
        position: int,
        producers: ProducerStates,
        log_start_offset: int | None = None,
    ) -> None:
        """Store a checkpoint of the log as it will be when it ends at ``end_offset``."""
        message = self._checkpoint_message(storage_pb2.CLOSE_STATE_OPEN)
        message.flushed_end_offset = end_offset
        message.flushed_segment_base = segment_base
        message.flushed_position = position
        message.high_watermark = min(message.high_watermark, end_offset)
        if log_start_offset is not None:
            message.log_start_offset = log_start_offset
        epochs = self.epochs.copy()
        epochs.truncate_end(end_offset + 1 if position else 0)
        del message.epochs[:], message.producers[:]
        message.epochs.extend(epochs_to_proto(epochs))
        message.producers.extend(producers_to_proto(producers))
        try:
            self._checkpoints.store(message, self._segments.active.file, None)
        except OSError as error:
            if is_no_space(error):  # nothing has changed yet
                raise DiskFull(str(self.path)) from error
            raise self.writer.close_for_writing(error) from error

    @contextmanager
    def _final_failures(self) -> Iterator[None]:
        """In the middle of a change on disk there is no way back: whatever fails now closes the disk."""
        try:
            yield
        except OSError as error:
            raise self.writer.close_for_writing(error) from error

    def _settle(self) -> None:
        """Wait for the writer; afterwards memory and disk say the same."""
        self.writer.drain()
        if self.refused:
            self._roll_back()

    def _set_end(self, end_offset: int, producers: ProducerStates) -> None:
        self.log_end_offset = self._flushed_end_offset = end_offset
        self._high_watermark = min(self._high_watermark, end_offset)
        self.epochs.truncate_end(end_offset + 1)
        producers.settle_to(end_offset)
        self.producers = producers

    def delete_records(self, before_offset: int) -> int:
        """Move the log start up to ``before_offset``, durably: what lies below is gone. The new log start."""
        if before_offset > self.high_watermark:
            raise OffsetOutOfRange(self._subject, before_offset, self.log_start_offset, self.high_watermark)
        if before_offset > self.log_start_offset:
            self._settle()
            self._move_log_start(before_offset)
            self.checkpoint()
            self._drop_expired(now_ms=0, retention_ms=None, retention_bytes=None)
            self.writer.drain()
        return self.log_start_offset

    def enforce_retention(self) -> int:
        """Delete closed segments that are too old or too many, as the settings say; how many."""
        self._clock = self._clock.observe(self.now_ms(), steady_clock_ms())
        self.producers.forget_idle(self.now_ms(), self.config.producer_expiration_ms)
        if not self.config.cleanup_policy.deletes:
            return 0
        return self._drop_expired(
            now_ms=self.now_ms(),
            retention_ms=self.config.retention_ms if self._clock.may_delete else None,
            retention_bytes=self.config.retention_bytes,
        )

    @property
    def deletion_suspended(self) -> bool:
        """Whether deletion by age waits because the clock has jumped ahead."""
        return not self._clock.may_delete

    def _drop_expired(self, *, now_ms: int, retention_ms: int | None, retention_bytes: int | None) -> int:
        self._prepare_to_append()
        segments = self._segments.all
        count = expired_segments(
            [segment.facts() for segment in segments],
            now_ms=now_ms,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            high_watermark=self.high_watermark,
            log_start_offset=self.log_start_offset,
        )
        if count:
            self._segments.all = segments[count:]
            self._move_log_start(segments[count].base_offset)
            self.checkpoint()
            self._after_flush(partial(self._remove_files, segments[:count]))
        return count

    def _move_log_start(self, offset: int) -> None:
        self.log_start_offset = max(self.log_start_offset, offset)
        self._high_watermark = max(self._high_watermark, self.log_start_offset)
        self.epochs.truncate_start(self.log_start_offset)

    def _remove_files(self, segments: tuple[Segment, ...]) -> None:
        for segment in segments:
            segment.close()
            remove_segment_files(self.disk, segment.path)

    def replace_segments(self, old: tuple[Segment, ...], new: Segment) -> None:
        """Put a compacted segment, already in place on disk, where ``old`` were."""
        self._segments.replace(old, new)

    def note_compacted(self, end_offset: int) -> None:
        """Remember up to where the log is compacted."""
        self.compacted_end_offset = max(self.compacted_end_offset, end_offset)
        self.checkpoint()
