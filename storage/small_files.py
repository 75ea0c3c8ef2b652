"""Small files with an envelope: magic, version, kind, length and CRC in front of one protobuf message.

Their bytes are described in docs/formats/small-files.md. They are replaced atomically and never edited.
"""

import struct
from enum import IntEnum
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from lograft.contract.batch import crc32c
from lograft.contract.disk import Disk
from lograft.contract.errors import StorageCorrupted, UnsupportedVersion
from lograft.storage.core.epoch_history import EpochHistory
from lograft.storage.core.producer_state import ProducerEntry, ProducerStates, RememberedBatch
from lograft.v1 import storage_pb2

MAGIC = b"LGRF"
VERSION = 1
# magic, version, kind, length of the body, CRC-32C of version, kind, length and body
_ENVELOPE = struct.Struct("<4sHHII")
_COVERED = struct.Struct("<HHI")

DIRECTORY_META = "directory.meta"
PARTITION_META = "partition.meta"
CHECKPOINT = "checkpoint"


class Kind(IntEnum):
    """What a small file holds. Numbers are never reused."""

    DIRECTORY_META = 1
    PARTITION_META = 2
    CHECKPOINT = 3
    PRODUCERS = 4


_AnyMessage = TypeVar("_AnyMessage", bound=Message)


def producers_path(log_path: Path) -> Path:
    """Path of the producer snapshot beside a segment."""
    return log_path.with_suffix(".producers")


def encode_small_file(kind: Kind, message: Message) -> bytes:
    """The bytes of a small file. The same message gives the same bytes."""
    body = message.SerializeToString(deterministic=True)
    crc = crc32c(_COVERED.pack(VERSION, kind, len(body)) + body)
    return _ENVELOPE.pack(MAGIC, VERSION, kind, len(body), crc) + body


def decode_small_file(data: bytes, kind: Kind, message_type: type[_AnyMessage], path: Path) -> _AnyMessage:
    """Open the envelope. Raises `StorageCorrupted` or `UnsupportedVersion` with the path."""
    if len(data) < _ENVELOPE.size or data[:4] != MAGIC:
        raise StorageCorrupted(str(path), 0, f"not a {kind.name.lower()} file")
    _, version, found_kind, length, crc = _ENVELOPE.unpack_from(data)
    body = data[_ENVELOPE.size :]
    if crc32c(_COVERED.pack(version, found_kind, length) + body) != crc or length != len(body):
        raise StorageCorrupted(str(path), 0, "the checksum is wrong")
    if version != VERSION:
        raise UnsupportedVersion(str(path), version, VERSION)
    if found_kind != kind:
        raise StorageCorrupted(str(path), 0, f"kind {found_kind} instead of {kind.name.lower()}")
    try:
        return message_type.FromString(body)
    except DecodeError:
        raise StorageCorrupted(str(path), _ENVELOPE.size, "the message cannot be read") from None


def write_small_file(disk: Disk, path: Path, kind: Kind, message: Message) -> None:
    """Replace the file atomically and durably."""
    disk.replace_file(path, encode_small_file(kind, message))


def read_small_file(path: Path, kind: Kind, message_type: type[_AnyMessage]) -> _AnyMessage | None:
    """The message in the file; None if there is no such file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return decode_small_file(data, kind, message_type, path)


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
