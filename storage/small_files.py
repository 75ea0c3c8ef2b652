"""The storage's small files: their names, and how epochs and producers are written into them.

Their envelope is `lograft.contract.small_files`; their bytes are described in docs/formats/small-files.md.
"""

from pathlib import Path

from lograft.storage.core.epoch_history import EpochHistory
from lograft.storage.core.producer_state import ProducerEntry, ProducerStates, RememberedBatch
from lograft.v1 import storage_pb2

DIRECTORY_META = "directory.meta"
PARTITION_META = "partition.meta"
CHECKPOINT = "checkpoint"


def producers_path(log_path: Path) -> Path:
    """Path of the producer snapshot beside a segment."""
    return log_path.with_suffix(".producers")


def epochs_to_proto(epochs: EpochHistory) -> list[storage_pb2.EpochStart]:
    """The history as it is stored."""
    return [storage_pb2.EpochStart(epoch=epoch, start_offset=start) for epoch, start in epochs.entries()]


def epochs_from_proto(entries: "list[storage_pb2.EpochStart]") -> EpochHistory:
    """The history as it was stored."""
    return EpochHistory([entry.epoch for entry in entries], [entry.start_offset for entry in entries])


def producers_to_proto(producers: ProducerStates) -> list[storage_pb2.ProducerEntry]:
    """The producers as they are stored."""
    return [
        storage_pb2.ProducerEntry(
            producer_id=producer_id,
            producer_epoch=entry.producer_epoch,
            batches=[storage_pb2.ProducerBatch(**batch._asdict()) for batch in entry.batches],
        )
        for producer_id, entry in producers.entries()
    ]


def producers_from_proto(entries: "list[storage_pb2.ProducerEntry]", remembered_batches: int) -> ProducerStates:
    """The producers as they were stored."""
    return ProducerStates(
        remembered_batches,
        (
            (
                entry.producer_id,
                ProducerEntry(
                    entry.producer_epoch,
                    tuple(
                        RememberedBatch(
                            batch.base_sequence,
                            batch.last_sequence,
                            batch.base_offset,
                            batch.last_offset_delta,
                            batch.append_timestamp_ms,
                        )
                        for batch in entry.batches
                    ),
                ),
            )
            for entry in entries
            if entry.batches
        ),
    )
