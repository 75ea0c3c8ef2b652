"""Whether a batch may be appended, and with what header: the checks that come before anything changes."""

from collections.abc import Sequence
from typing import NamedTuple

from lograft.contract.batch import FLAG_APPEND_TIME, Batch, BatchHeader, read_batches, stamped
from lograft.contract.errors import (
    CorruptBatch,
    FencedEpoch,
    InvalidRequest,
    OutOfOrderSequence,
    ProducerFenced,
    RecordTooLarge,
)
from lograft.contract.records import check_produced_records
from lograft.storage.config import LogConfig
from lograft.storage.core.producer_state import Accepted, Duplicate, Fenced, OutOfOrder, ProducerStates


class LogEnd(NamedTuple):
    """Where the next batch would go."""

    subject: str
    offset: int
    # No older one may write there.
    epoch: int | None


def admit(
    batch: Batch, config: LogConfig, end: LogEnd, producers: ProducerStates, *, leader_epoch: int | None, now_ms: int
) -> BatchHeader | Duplicate:
    """The header with which a producer's batch is appended, or where the same batch was appended before.

    Raises what is wrong with it; see `PartitionLog.submit`.
    """
    header = _checked(batch, config, now_ms)
    epoch = _append_epoch(end, leader_epoch)
    match producers.check(header):
        case Duplicate() as duplicate:
            return duplicate
        case OutOfOrder(expected):
            raise OutOfOrderSequence(header.producer_id, header.base_sequence, expected)
        case Fenced(current):
            raise ProducerFenced(header.producer_id, header.producer_epoch, current)
        case Accepted():
            pass
    header = stamped(header, end.offset, epoch, now_ms)
    if config.append_time:
        return header._replace(flags=header.flags | FLAG_APPEND_TIME, max_timestamp_ms=now_ms)
    return header


def _checked(batch: Batch, config: LogConfig, now_ms: int) -> BatchHeader:
    size_bytes = batch.header.size_bytes
    if size_bytes > config.max_batch_bytes:
        raise RecordTooLarge("the batch", size_bytes, config.max_batch_bytes, "max_batch_bytes")
    header = check_produced_records(
        batch, limit_bytes=config.max_uncompressed_bytes, keys_required=config.cleanup_policy.compacts
    ).header
    ahead_ms = header.max_timestamp_ms - now_ms
    if ahead_ms > config.max_timestamp_ahead_ms:
        raise InvalidRequest(
            f"a record's timestamp is {ahead_ms} ms ahead of the broker's clock, more than "
            f"max_timestamp_ahead_ms ({config.max_timestamp_ahead_ms}): check the clocks"
        )
    return header


def _append_epoch(end: LogEnd, leader_epoch: int | None) -> int:
    if leader_epoch is None:
        return end.epoch or 0
    if end.epoch is not None and leader_epoch < end.epoch:
        raise FencedEpoch(end.subject, leader_epoch, end.epoch)
    return leader_epoch


def admit_replica(data: bytes, end: LogEnd) -> Sequence[BatchHeader]:
    """The headers of canonical batches from the leader, if all are sound and follow the log and each other.

    Offsets may leave gaps, since the leader's log may be compacted, but neither they nor epochs go back.
    """
    headers: list[BatchHeader] = []
    next_offset, epoch = end.offset, end.epoch or 0
    position = 0
    for batch in read_batches(data):
        header = batch.header
        if header.base_offset < next_offset:
            problem = f"offset {header.base_offset} goes back behind {next_offset}"
            raise CorruptBatch(problem, "the leader's answer", position)
        if header.leader_epoch < epoch:
            problem = f"epoch {header.leader_epoch} goes back behind {epoch}"
            raise CorruptBatch(problem, "the leader's answer", position)
        headers.append(header)
        position += header.size_bytes
        next_offset, epoch = header.next_offset, header.leader_epoch
    return headers
