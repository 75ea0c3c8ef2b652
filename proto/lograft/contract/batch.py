"""The record batch: a fixed-size canonical header in front of record bytes that are stored as they came.

Pure. The bytes are described in docs/formats/batch.md and ``log.proto``: a canonical batch is one field of a serialized
``Segment`` whose header has every field, in order, at a fixed width, so that reading it is one ``unpack_from`` and
writing it one ``pack``. Nothing here opens the records; that is ``lograft.contract.records``.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import google_crc32c
from google.protobuf.message import DecodeError

from lograft.contract.codecs import Codec
from lograft.contract.errors import CorruptBatch
from lograft.v1 import log_pb2

# Tags are the wire bytes of field number and type; ``x`` skips them when reading.
_FRAME = struct.Struct("<B5sBI")
_FRAME_PREFIX = struct.Struct("<B5s")
_BODY = struct.Struct("<BQBIBIBQBIBQBQBQBIBIBBBIBQBIBBIBB5s")
_READ = struct.Struct("<BIxQxIxIxQxIxQxQxQxIxIxBxIxQxIxxIxx5s")

FRAME_TAG = 0x0A
# Everything the frame's length does not count: its own tag and length.
FRAME_PREFIX_SIZE = _FRAME_PREFIX.size
_MESSAGE_HEADER_SIZE = _READ.size
HEADER_SIZE = FRAME_PREFIX_SIZE + _MESSAGE_HEADER_SIZE
# The checksum's own tag and value come first in the message.
_CRC_TAG = 0x0D
_CRC_COVERS_FROM = 5
# Lengths take five padded varint bytes, and one batch must fit a protobuf message.
MAX_BATCH_BYTES = (1 << 31) - 1

FLAG_APPEND_TIME = 1 << 0
FLAG_CONTROL = 1 << 1
FLAG_TRANSACTIONAL = 1 << 2
_KNOWN_FLAGS = FLAG_APPEND_TIME

SEQUENCE_LIMIT = 1 << 31
_CODECS = frozenset(Codec)


class BatchHeader(NamedTuple):
    """The header of one batch. The meaning of each field stands in ``log.proto``."""

    base_offset: int
    last_offset_delta: int
    leader_epoch: int
    append_timestamp_ms: int
    record_count: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    codec: int
    flags: int
    delete_horizon_ms: int
    uncompressed_bytes: int
    records_crc32c: int
    records_bytes: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch on disk."""
        return HEADER_SIZE + self.records_bytes

    @property
    def last_offset(self) -> int:
        """Offset of the last record, kept even when compaction removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset of whatever follows this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record."""
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_LIMIT


class Batch(NamedTuple):
    """A batch in memory: its header, and its record bytes as they are on disk."""

    header: BatchHeader
    records: bytes

    def frame(self) -> bytes:
        """The canonical bytes, as in a segment file: concatenated frames are a serialized ``Segment``."""
        return pack_header(self.header) + self.records

    def message(self) -> bytes:
        """The canonical bytes of the ``RecordBatch`` message alone, to put into a request."""
        return self.frame()[FRAME_PREFIX_SIZE:]


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), in hardware where there is any."""
    value: int = google_crc32c.value(data)
    return value


@lru_cache(maxsize=4096)
def _padded_varint(number: int) -> bytes:
    return bytes(
        (
            number & 127 | 128,
            number >> 7 & 127 | 128,
            number >> 14 & 127 | 128,
            number >> 21 & 127 | 128,
            number >> 28,
        )
    )


@lru_cache(maxsize=4096)
def _read_padded_varint(data: bytes) -> int:
    """The number, or -1 if the bytes are not a varint padded to five bytes."""
    a, b, c, d, e = data
    if not a & b & c & d & 128 or e > 7:
        return -1
    return a & 127 | (b & 127) << 7 | (c & 127) << 14 | (d & 127) << 21 | e << 28


def pack_header(header: BatchHeader) -> bytes:
    """The canonical header bytes, frame tag and length included."""
    (base_offset, last_offset_delta, leader_epoch, append_ms, count, base_ms, max_ms, producer_id, producer_epoch,
     base_sequence, codec, flags, horizon_ms, uncompressed_bytes, records_crc, records_bytes) = header  # fmt: skip
    body = _BODY.pack(
        0x11, base_offset, 0x1D, last_offset_delta, 0x25, leader_epoch, 0x29, append_ms, 0x35, count, 0x39, base_ms,
        0x41, max_ms, 0x49, producer_id, 0x55, producer_epoch, 0x5D, base_sequence, 0x60, codec, 0x6D, flags,
        0x71, horizon_ms, 0x7D, uncompressed_bytes, 0x85, 0x01, records_crc, 0x8A, 0x01, _padded_varint(records_bytes),
    )  # fmt: skip
    length = _padded_varint(_MESSAGE_HEADER_SIZE + records_bytes)
    return _FRAME.pack(FRAME_TAG, length, _CRC_TAG, google_crc32c.value(body)) + body


def read_header(data: bytes, position: int = 0) -> BatchHeader:
    """Read and check the canonical header at ``position``; its records may lie beyond ``data``.

    Raises `CorruptBatch` for anything that is not one.
    """
    header = _read_message_header(data, position + FRAME_PREFIX_SIZE)
    if header is None:
        cut_short = len(data) < position + HEADER_SIZE
        raise CorruptBatch(
            "the header is cut short" if cut_short else "the header's checksum is wrong", position=position
        )
    tag, length = _FRAME_PREFIX.unpack_from(data, position)
    if tag != FRAME_TAG or _read_padded_varint(length) != _MESSAGE_HEADER_SIZE + header.records_bytes:
        raise CorruptBatch("the lengths in the header disagree", position=position)
    problem = header_problem(header)
    if problem:
        raise CorruptBatch(problem, position=position)
    return header


def _read_message_header(data: bytes, start: int) -> BatchHeader | None:
    """The header of the canonical message at ``start``; None if it is not one.

    Tags need no look of their own, but for the checksum's: the checksum covers all others.
    """
    end = start + _MESSAGE_HEADER_SIZE
    if len(data) < end:
        return None
    fields = _READ.unpack_from(data, start)
    if fields[0] != _CRC_TAG or google_crc32c.value(data[start + _CRC_COVERS_FROM : end]) != fields[1]:
        return None
    return BatchHeader._make((*fields[2:17], _read_padded_varint(fields[17])))


def header_problem(header: BatchHeader) -> str | None:
    """What is wrong with the values of a header, in words; None if nothing is."""
    if header.records_bytes < 0:
        return "the length of the records is not padded to five bytes"
    if header.codec not in _CODECS:
        return f"unknown codec {header.codec}"
    if header.flags & ~_KNOWN_FLAGS:
        return f"unknown flags {header.flags:#x}"
    if header.record_count > header.last_offset_delta + 1:
        return f"{header.record_count} records in {header.last_offset_delta + 1} offsets"
    if header.base_sequence >= SEQUENCE_LIMIT:
        return f"sequence {header.base_sequence} is not below {SEQUENCE_LIMIT}"
    if header.base_offset + header.last_offset_delta >= 1 << 63:
        return f"offset {header.base_offset} is too large"
    return None


def read_batch(data: bytes, position: int = 0) -> Batch:
    """Read the canonical batch at ``position`` and check both of its checksums."""
    header = read_header(data, position)
    start = position + HEADER_SIZE
    records = data[start : start + header.records_bytes]
    check_records_crc(header, records, position)
    return Batch(header, records)


def check_records_crc(header: BatchHeader, records: bytes, position: int = 0) -> None:
    """Raise `CorruptBatch` unless ``records`` are all of the header's records, undamaged."""
    if len(records) != header.records_bytes:
        raise CorruptBatch("the records are cut short", position=position)
    if google_crc32c.value(records) != header.records_crc32c:
        raise CorruptBatch("the records' checksum is wrong", position=position)


def read_batches(data: bytes) -> Iterator[Batch]:
    """All batches of a run of whole canonical batches, each checked."""
    position = 0
    while position < len(data):
        batch = read_batch(data, position)
        yield batch
        position += batch.header.size_bytes


def parse_message(message: bytes) -> Batch:
    """Read a ``RecordBatch`` in any legal protobuf encoding, canonical or from another language's library.

    A canonical one is recognised by its sound header checksum. In any other encoding a missing or zero checksum,
    ``last_offset_delta`` or uncompressed size means "not said"; all but the last are then filled in. A checksum that is
    said must be right, so that a damaged canonical message is not taken for another encoding. Which records there are
    is not looked at.
    """
    canonical = _read_message_header(message, 0)
    # Bytes that follow a canonical message may still be legal: fields given again, or unknown ones.
    if canonical is None or len(message) != _MESSAGE_HEADER_SIZE + canonical.records_bytes:
        return _parse_any_encoding(message)
    problem = header_problem(canonical)
    if problem:
        raise CorruptBatch(problem)
    records = message[_MESSAGE_HEADER_SIZE:]
    check_records_crc(canonical, records)
    return Batch(canonical, records)


def _parse_any_encoding(message: bytes) -> Batch:
    try:
        parsed = log_pb2.RecordBatch.FromString(message)
    except DecodeError:
        raise CorruptBatch("the bytes are not a RecordBatch message") from None
    records = parsed.records
    actual_crc = crc32c(records)
    sent = BatchHeader(
        base_offset=parsed.base_offset,
        last_offset_delta=parsed.last_offset_delta,
        leader_epoch=parsed.leader_epoch,
        append_timestamp_ms=parsed.append_timestamp_ms,
        record_count=parsed.record_count,
        base_timestamp_ms=parsed.base_timestamp_ms,
        max_timestamp_ms=parsed.max_timestamp_ms,
        producer_id=parsed.producer_id,
        producer_epoch=parsed.producer_epoch,
        base_sequence=parsed.base_sequence,
        codec=parsed.codec,
        flags=parsed.flags,
        delete_horizon_ms=parsed.delete_horizon_ms,
        uncompressed_bytes=parsed.uncompressed_bytes,
        records_crc32c=parsed.records_crc32c,
        records_bytes=len(records),
    )
    if sent.records_crc32c not in (0, actual_crc):
        raise CorruptBatch("the records' checksum is wrong")
    header = sent._replace(
        last_offset_delta=sent.last_offset_delta or max(sent.record_count - 1, 0), records_crc32c=actual_crc
    )
    problem = header_problem(header)
    if problem:
        raise CorruptBatch(problem)
    if parsed.header_crc32c not in (0, _header_crc(sent)):
        raise CorruptBatch("the header's checksum is wrong")
    return Batch(header, records)


def _header_crc(header: BatchHeader) -> int:
    crc: int = _FRAME.unpack_from(pack_header(header))[3]
    return crc


def stamped(header: BatchHeader, base_offset: int, leader_epoch: int, append_timestamp_ms: int) -> BatchHeader:
    """The header as the leader appends it. (``_replace`` does the same in three times the time.)"""
    return BatchHeader(base_offset, header[1], leader_epoch, append_timestamp_ms, *header[4:])
