"""The records inside a batch: columns from and to Python lists, per batch and never per record.

Pure. ``encode_batch`` builds what a producer sends, ``decode_batch`` opens what a consumer received, and
``check_produced_records`` is the leader's look into a batch that a client sent.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress as select
from itertools import pairwise
from typing import NamedTuple

from google.protobuf.message import DecodeError

from lograft.contract.batch import FLAG_APPEND_TIME, SEQUENCE_LIMIT, Batch, BatchHeader, crc32c
from lograft.contract.codecs import Codec, compress, decompress
from lograft.contract.errors import CorruptBatch, InvalidRequest
from lograft.v1 import log_pb2

Headers = Sequence[tuple[str, bytes | None]]
# What a batch may unpack to unless the topic says otherwise.
DEFAULT_UNCOMPRESSED_LIMIT_BYTES = 16 << 20
_PLAIN = int(Codec.NONE)
_INT64_LIMIT = 1 << 63


class Record(NamedTuple):
    """One record, for those who look at them one by one."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The records of one batch, column by column: entry i of each column belongs to record i."""

    offsets: Sequence[int]
    timestamps_ms: Sequence[int]
    values: Sequence[bytes | None]
    # None when no record has a key.
    keys: Sequence[bytes | None] | None = None
    # Only the records that have headers, by index.
    headers: Mapping[int, Headers] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)

    def rows(self) -> list[Record]:
        """The records one by one."""
        keys = self.keys if self.keys is not None else [None] * len(self.values)
        if not self.headers:
            return list(map(Record, self.offsets, self.timestamps_ms, keys, self.values))
        get = self.headers.get
        headers = [get(index, ()) for index in range(len(self.values))]
        return list(map(Record, self.offsets, self.timestamps_ms, keys, self.values, headers))

    def where(self, keep: Sequence[bool]) -> "RecordColumns":
        """Only the records whose entry in ``keep`` is true, with their offsets."""
        kept_indexes = list(select(range(len(keep)), keep))
        return RecordColumns(
            offsets=list(select(self.offsets, keep)),
            timestamps_ms=list(select(self.timestamps_ms, keep)),
            values=list(select(self.values, keep)),
            keys=None if self.keys is None else list(select(self.keys, keep)),
            headers={new: self.headers[old] for new, old in enumerate(kept_indexes) if old in self.headers},
        )


def encode_batch(
    values: Sequence[bytes | None],
    *,
    timestamps_ms: Sequence[int] | int,
    keys: Sequence[bytes | None] | None = None,
    headers: Mapping[int, Headers] | None = None,
    codec: Codec = Codec.NONE,
    producer_id: int = 0,
    producer_epoch: int = 0,
    base_sequence: int = 0,
) -> Batch:
    """Build a batch as a producer sends it: the leader sets offsets, epoch and append time.

    ``timestamps_ms`` is one time for all records, or one per record. A value of None is a tombstone.
    """
    count = len(values)
    if count == 0:
        raise InvalidRequest("a batch needs at least one record")
    if keys is not None and len(keys) != count:
        raise InvalidRequest(f"{len(keys)} keys for {count} values")
    _check_number("producer_id", producer_id, _INT64_LIMIT)
    _check_number("producer_epoch", producer_epoch, 1 << 32)
    _check_number("base_sequence", base_sequence, SEQUENCE_LIMIT)
    message = _message_of(values, keys)
    base_ms, max_ms = _fill_timestamps(message, timestamps_ms, count)
    if headers:
        _fill_headers(message, headers, count)
    plain = message.SerializeToString()
    records = compress(codec, plain)
    header = BatchHeader(
        base_offset=0,
        last_offset_delta=count - 1,
        leader_epoch=0,
        append_timestamp_ms=0,
        record_count=count,
        base_timestamp_ms=base_ms,
        max_timestamp_ms=max_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        codec=codec,
        flags=0,
        delete_horizon_ms=0,
        uncompressed_bytes=len(plain),
        records_crc32c=crc32c(records),
        records_bytes=len(records),
    )
    return Batch(header, records)


def encode_compacted(header: BatchHeader, columns: RecordColumns, *, delete_horizon_ms: int) -> Batch:
    """The batch with only the records of ``columns`` left; offsets, sequence numbers and times stay what they were."""
    message = _message_of(columns.values, columns.keys)
    base_ms = header.base_timestamp_ms
    if not header.flags & FLAG_APPEND_TIME and any(moment != base_ms for moment in columns.timestamps_ms):
        message.timestamp_deltas.extend([moment - base_ms for moment in columns.timestamps_ms])
    if len(columns) != header.last_offset_delta + 1:
        message.offset_deltas.extend([offset - header.base_offset for offset in columns.offsets])
    _fill_headers(message, columns.headers, len(columns))
    plain = message.SerializeToString()
    records = compress(Codec(header.codec), plain)
    new_header = header._replace(
        record_count=len(columns),
        max_timestamp_ms=max(columns.timestamps_ms, default=0),
        delete_horizon_ms=delete_horizon_ms,
        uncompressed_bytes=len(plain),
        records_crc32c=crc32c(records),
        records_bytes=len(records),
    )
    return Batch(new_header, records)


def decode_batch(batch: Batch, *, limit_bytes: int = DEFAULT_UNCOMPRESSED_LIMIT_BYTES) -> RecordColumns:
    """Open a batch whose checksums were checked; raises `CorruptBatch` if its inside is not sound."""
    header = batch.header
    message = _parsed(header, _unpacked(batch, limit_bytes))
    count = header.record_count
    base_offset = header.base_offset
    offsets: Sequence[int] = range(base_offset, base_offset + count)
    timestamps = [header.append_timestamp_ms if header.flags & FLAG_APPEND_TIME else header.base_timestamp_ms] * count
    values: list[bytes | None] = message.values[:]  # type: ignore[assignment] # a fresh list
    if _has_values_only(message):
        return RecordColumns(offsets, timestamps, values)
    for index in message.null_values:
        values[index] = None
    keys: list[bytes | None] | None = message.keys[:] or None  # type: ignore[assignment]
    for index in message.null_keys:
        keys[index] = None  # type: ignore[index] # checked: no null keys without keys
    if message.timestamp_deltas and not header.flags & FLAG_APPEND_TIME:
        timestamps = [header.base_timestamp_ms + delta for delta in message.timestamp_deltas]
    if message.offset_deltas:
        offsets = [base_offset + delta for delta in message.offset_deltas]
    return RecordColumns(offsets, timestamps, values, keys, _read_headers(message))


def decode_stored(batch: Batch) -> RecordColumns:
    """Open a batch of our own log: it passed the limit of its day, which may have been another."""
    return decode_batch(batch, limit_bytes=batch.header.uncompressed_bytes)


def check_produced_records(
    batch: Batch, *, limit_bytes: int = DEFAULT_UNCOMPRESSED_LIMIT_BYTES, keys_required: bool = False
) -> Batch:
    """Check a batch that a producer sent, inside and out, and fill in what the producer may leave to the leader.

    Raises `CorruptBatch` or `InvalidRequest`: a batch that passes can be opened by every consumer.
    """
    header = batch.header
    _check_produced_header(header)
    if header.uncompressed_bytes:
        plain = _unpacked(batch, limit_bytes)
    else:  # not said
        plain = decompress(Codec(header.codec), batch.records, limit_bytes)
        if len(plain) > limit_bytes:
            raise CorruptBatch(f"the batch has {len(plain)} bytes unpacked, above the limit of {limit_bytes}")
        header = header._replace(uncompressed_bytes=len(plain))
    message = _parsed(header, plain)
    newest_ms = oldest_ms = header.base_timestamp_ms
    if not _has_values_only(message):
        if message.offset_deltas:
            raise InvalidRequest("offset_deltas are set by compaction, not by producers")
        newest_ms += max(message.timestamp_deltas, default=0)
        oldest_ms += min(message.timestamp_deltas, default=0)
    if oldest_ms < 0:
        raise InvalidRequest("a record's timestamp lies before 1970")
    if newest_ms >= _INT64_LIMIT:
        raise InvalidRequest(f"a record's timestamp ({newest_ms}) is not below 2^63")
    if header.max_timestamp_ms != newest_ms:
        if header.max_timestamp_ms:
            raise CorruptBatch(f"max_timestamp_ms is {header.max_timestamp_ms}, the records say {newest_ms}")
        header = header._replace(max_timestamp_ms=newest_ms)
    if keys_required and (len(message.keys) != header.record_count or message.null_keys):
        raise InvalidRequest("every record of a compacted topic needs a key")
    return Batch(header, batch.records) if header is not batch.header else batch


def _check_produced_header(header: BatchHeader) -> None:
    count = header.record_count
    if count == 0:
        raise InvalidRequest("a batch needs at least one record")
    if header.last_offset_delta != count - 1:
        raise CorruptBatch(f"{count} records in {header.last_offset_delta + 1} offsets")
    if header.delete_horizon_ms:
        raise InvalidRequest("delete_horizon_ms is set by compaction, not by producers")
    if header.flags:
        # Set by a producer, the flag would leave the records' time and `max_timestamp_ms` in disagreement.
        raise InvalidRequest("flags are set by the leader, not by producers")
    if header.producer_id >= _INT64_LIMIT:
        raise InvalidRequest(f"producer_id {header.producer_id} is not below 2^63")


def _unpacked(batch: Batch, limit_bytes: int) -> bytes:
    """The serialized records, if they are as large as the header says."""
    declared = batch.header.uncompressed_bytes
    if declared > limit_bytes:
        raise CorruptBatch(f"the batch declares {declared} bytes unpacked, above the limit of {limit_bytes}")
    plain = batch.records
    if batch.header.codec != _PLAIN:
        plain = decompress(Codec(batch.header.codec), plain, declared)
    if len(plain) != declared:
        raise CorruptBatch(f"the batch declares {declared} bytes unpacked and has {len(plain)}")
    return plain


def _parsed(header: BatchHeader, plain: bytes) -> log_pb2.Records:
    """The columns, if they fit the header and each other."""
    try:
        message = log_pb2.Records.FromString(plain)
    except DecodeError:
        raise CorruptBatch("the records are not a Records message") from None
    problem = _columns_problem(header, message)
    if problem:
        raise CorruptBatch(problem)
    return message


def _has_values_only(message: log_pb2.Records) -> bool:
    """Whether a message with values has no other column: most have not, and looking at each costs more than parsing."""
    return len(message.ListFields()) == 1


def _columns_problem(header: BatchHeader, message: log_pb2.Records) -> str | None:
    count = header.record_count
    if len(message.values) != count:
        return f"the header says {count} records and there are {len(message.values)}"
    if count and count == header.last_offset_delta + 1 and _has_values_only(message):
        return None
    for name in ("keys", "timestamp_deltas", "offset_deltas"):
        size = len(getattr(message, name))
        if size not in (0, count):
            return f"{size} {name} for {count} records"
    deltas = message.offset_deltas
    if deltas:
        if deltas[-1] > header.last_offset_delta or any(a >= b for a, b in pairwise(deltas)):
            return "the offset deltas do not ascend within the batch"
    elif count not in (0, header.last_offset_delta + 1):
        return f"{count} records for {header.last_offset_delta + 1} offsets, and no offset deltas"
    for name in ("null_values", "null_keys"):
        indexes = getattr(message, name)
        if indexes and (indexes[-1] >= count or any(a >= b for a, b in pairwise(indexes))):
            return f"the indexes in {name} do not ascend within the batch"
    if message.null_keys and not message.keys:
        return "null_keys without keys"
    if message.headers:
        owners = [entry.record_index for entry in message.headers]
        if owners[-1] >= count or any(a > b for a, b in pairwise(owners)):
            return "the headers are not ordered by record within the batch"
    return None


def _message_of(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None) -> log_pb2.Records:
    # Looking for None first would cost as much as the whole encoding, and most batches have none. The constructor takes
    # a list six times as fast as `extend` does.
    try:
        return log_pb2.Records(values=values, keys=keys)  # type: ignore[arg-type]
    except TypeError:
        full_values, null_values = _without_nulls(values, "value")
        if keys is None or all(key is None for key in keys):
            return log_pb2.Records(values=full_values, null_values=null_values)
        full_keys, null_keys = _without_nulls(keys, "key")
        return log_pb2.Records(values=full_values, null_values=null_values, keys=full_keys, null_keys=null_keys)


def _without_nulls(entries: Sequence[bytes | None], name: str) -> tuple[list[bytes], list[int]]:
    """The entries with empty bytes for None, and the indexes where that was so."""
    for entry in entries:
        if not isinstance(entry, bytes | None):
            raise InvalidRequest(f"a {name} must be bytes or None, not {type(entry).__name__}")
    nulls = [index for index, entry in enumerate(entries) if entry is None]
    return [entry or b"" for entry in entries], nulls


def _fill_timestamps(message: log_pb2.Records, timestamps_ms: Sequence[int] | int, count: int) -> tuple[int, int]:
    """Base and largest timestamp."""
    if isinstance(timestamps_ms, int):
        _check_number("a timestamp", timestamps_ms, _INT64_LIMIT)
        return timestamps_ms, timestamps_ms
    # No look at each one: whatever is not an int breaks one of these steps, or equals an int that came first.
    try:
        if len(timestamps_ms) != count:
            raise InvalidRequest(f"{len(timestamps_ms)} timestamps for {count} values")
        base_ms, min_ms, max_ms = timestamps_ms[0], min(timestamps_ms), max(timestamps_ms)
        if min_ms != max_ms and min_ms >= 0 and max_ms < _INT64_LIMIT:
            message.timestamp_deltas.extend([moment - base_ms for moment in timestamps_ms])
    except TypeError:
        entries = timestamps_ms if isinstance(timestamps_ms, Sequence) else [timestamps_ms]
        wrong = {type(entry).__name__ for entry in entries if not isinstance(entry, int)}
        raise InvalidRequest(f"a timestamp must be an int, not {', '.join(sorted(wrong))}") from None
    for moment in (base_ms, min_ms, max_ms):
        _check_number("a timestamp", moment, _INT64_LIMIT)
    return base_ms, max_ms


def _check_number(name: str, number: int, limit: int) -> None:
    if not isinstance(number, int):
        raise InvalidRequest(f"{name} must be an int, not {type(number).__name__}")
    if not 0 <= number < limit:
        raise InvalidRequest(f"{name} must be at least 0 and below {limit}, not {number}")


def _fill_headers(message: log_pb2.Records, headers: Mapping[int, Headers], count: int) -> None:
    try:
        for index in sorted(headers):
            if not 0 <= index < count:
                raise InvalidRequest(f"headers for record {index} of {count}")
            for key, value in headers[index]:
                if not isinstance(key, str):  # protobuf would take None for "" and bytes for text
                    raise InvalidRequest(f"a header's key must be str, not {type(key).__name__}")
                if not isinstance(value, bytes | None):
                    raise InvalidRequest(f"a header's value must be bytes or None, not {type(value).__name__}")
                message.headers.add(record_index=index, key=key, value=value)
    except UnicodeEncodeError:
        raise InvalidRequest(f"a header's key cannot be written as UTF-8: {key!r}") from None
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"headers must map indexes of records to pairs of key and value ({error})") from None


def _read_headers(message: log_pb2.Records) -> dict[int, Headers]:
    headers: dict[int, list[tuple[str, bytes | None]]] = {}
    get_index = operator.attrgetter("record_index")
    for entry in message.headers:
        value = entry.value if entry.HasField("value") else None
        headers.setdefault(get_index(entry), []).append((entry.key, value))
    return dict(headers)
