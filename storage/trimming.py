"""Taking something off a log: its end (truncate), all of it (restart), or its beginning (expired segments).

The first two block, and need the writer to be idle for this log. Each is ordered so that a crash in the middle leaves
either the old log or the new one, or something that the next opening completes.
"""

from collections.abc import Callable

from lograft.contract.disk import is_no_space
from lograft.contract.errors import DiskFull, LogError
from lograft.storage.core.epoch_history import EpochHistory
from lograft.storage.core.producer_state import ProducerStates
from lograft.storage.core.retention import expired_segments
from lograft.storage.index import remove_index
from lograft.storage.segment import Segment
from lograft.storage.small_files import epochs_to_proto, producers_to_proto
from lograft.storage.state import LogState
from lograft.storage.swap import remove_segment_files
from lograft.v1 import storage_pb2

# Closes the disk for writing after a failure that cannot be undone, and returns what to raise.
CloseDisk = Callable[[Exception], LogError]


def truncate(state: LogState, end_offset: int, close_disk: CloseDisk) -> None:
    """Cut off everything from the batch that holds ``end_offset`` on, durably."""
    index = state.segments.holding(end_offset)
    kept, dropped = state.segments.all[: index + 1], state.segments.all[index + 1 :]
    old = kept[-1]
    position, new_end = old.cut_point(end_offset)
    if new_end <= state.log_start_offset:
        restart_at(state, state.log_start_offset, close_disk)
        return
    segment = old.cut_at(new_end, position)
    producers = state.checkpoints.producers_before(kept, position, state.config.remembered_batches)
    epochs = state.epochs.copy()
    epochs.truncate_end(new_end)
    message = state.checkpoint_message()
    message.flushed_segment_base = segment.base_offset
    message.flushed_position = position
    _store_lowered(state, message, new_end, epochs, producers, close_disk)
    state.segments.all = (*kept[:-1], segment)
    state.epochs = epochs
    state.set_end(new_end, producers)
    try:
        _remove(state, dropped)
        # An index of the old tail must not come back and be taken for one of the new.
        remove_index(state.disk, segment.path)
        state.disk.sync_directory(state.directory)
        old.close()
        file = segment.file.open(state.disk)
        state.disk.truncate(file, position)
        state.disk.sync_file(file)
    except OSError as error:
        raise close_disk(error) from error


def restart_at(state: LogState, offset: int, close_disk: CloseDisk) -> None:
    """Drop everything and go on at ``offset``."""
    dropped = state.segments.all
    producers, epochs = ProducerStates(state.config.remembered_batches), EpochHistory()
    message = state.checkpoint_message()
    message.flushed_segment_base = message.log_start_offset = offset
    message.flushed_position = 0
    _store_lowered(state, message, offset, epochs, producers, close_disk)
    state.log_start_offset = offset
    state.segments.all = (state.new_segment(offset),)
    state.epochs = epochs
    state.set_end(offset, producers)
    state.committed_end_offset = offset
    try:
        _remove(state, dropped)
        state.disk.sync_directory(state.directory)
    except OSError as error:
        raise close_disk(error) from error


def _store_lowered(
    state: LogState,
    message: storage_pb2.PartitionCheckpoint,
    end_offset: int,
    epochs: EpochHistory,
    producers: ProducerStates,
    close_disk: CloseDisk,
) -> None:
    """Store the checkpoint of the log as it will be.

    It goes first: once it is lower, whatever a crash leaves above it is a torn tail and not corruption.
    """
    message.flushed_end_offset = end_offset
    message.high_watermark = min(message.high_watermark, end_offset)
    message.compacted_end_offset = min(message.compacted_end_offset, end_offset)
    del message.epochs[:], message.producers[:]
    message.epochs.extend(epochs_to_proto(epochs))
    message.producers.extend(producers_to_proto(producers))
    try:
        state.checkpoints.store(message, state.segments.active.file, None)
    except OSError as error:
        if is_no_space(error):  # nothing has changed yet
            raise DiskFull(str(state.directory)) from error
        raise close_disk(error) from error


def _remove(state: LogState, segments: tuple[Segment, ...]) -> None:
    """Newest first, so that what a crash leaves is a log without a gap."""
    for segment in reversed(segments):
        remove_segment_files(state.disk, segment.path)
        segment.close()


def take_expired(
    state: LogState, *, now_ms: int, retention_ms: int | None, retention_bytes: int | None
) -> tuple[Segment, ...]:
    """Take the segments that may go out of the log. Their files are for the caller to remove, after a checkpoint."""
    segments = state.segments.all
    count = expired_segments(
        [segment.facts() for segment in segments],
        now_ms=now_ms,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        high_watermark=state.high_watermark,
        log_start_offset=state.log_start_offset,
    )
    if count:
        # First the bound, then the segments: a reader in between is told that the offset is gone.
        state.raise_log_start(segments[count].base_offset)
        state.segments.all = segments[count:]
    return segments[:count]
