"""Batches under arbitrary records and arbitrary damage.

A failure prints how to repeat it (``@reproduce_failure`` or the falsifying example). ``LOGRAFT_TEST_EFFORT=10`` tries
ten times as much.
"""

import os
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lograft.contract.batch import (
    FLAG_APPEND_TIME,
    SEQUENCE_LIMIT,
    Batch,
    BatchHeader,
    crc32c,
    header_problem,
    pack_header,
    parse_message,
    read_batch,
    read_batches,
    read_header,
    stamped,
)
from lograft.contract.codecs import Codec, compress, decompress
from lograft.contract.errors import CorruptBatch, InvalidRequest, RecordTooLarge
from lograft.contract.records import (
    Record,
    RecordColumns,
    check_produced_records,
    decode_batch,
    encode_batch,
    encode_compacted,
)
from lograft.v1 import log_pb2

EFFORT = int(os.environ.get("LOGRAFT_TEST_EFFORT", "1"))
LIMIT_BYTES = 1 << 20


def thorough(examples: int) -> Callable[[Any], Any]:
    return settings(
        max_examples=examples * EFFORT, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
    )


u32 = st.integers(0, (1 << 32) - 1) | st.integers(0, 20)
u64 = st.integers(0, (1 << 64) - 1) | st.integers(0, 20)
times = st.integers(0, (1 << 63) - 1) | st.integers(1_700_000_000_000, 1_700_000_100_000)
codecs = st.sampled_from(Codec)
small_bytes = st.binary(max_size=40)
header_lists = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), min_size=1, max_size=3)


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, Any]:
    """What `encode_batch` may be called with."""
    count = draw(st.integers(1, 12))
    some = {"min_size": count, "max_size": count}
    return {
        "values": draw(st.lists(st.none() | small_bytes, **some)),
        "keys": draw(st.none() | st.lists(st.none() | small_bytes, **some)),
        "timestamps_ms": draw(times | st.lists(times, **some)),
        "headers": draw(st.dictionaries(st.integers(0, count - 1), header_lists, max_size=3)),
        "codec": draw(codecs),
        "producer_id": draw(st.integers(0, (1 << 63) - 1)),
        "producer_epoch": draw(u32),
        "base_sequence": draw(st.integers(0, SEQUENCE_LIMIT - 1)),
    }


def rows_of(given_arguments: dict[str, Any], base_offset: int) -> list[Record]:
    """The records that a batch of these arguments must hold."""
    values = given_arguments["values"]
    keys = given_arguments["keys"] or [None] * len(values)
    moments = given_arguments["timestamps_ms"]
    if isinstance(moments, int):
        moments = [moments] * len(values)
    headers = given_arguments["headers"]
    return [
        Record(base_offset + index, moments[index], keys[index], value, headers.get(index, ()))
        for index, value in enumerate(values)
    ]


# --- there and back


@pytest.mark.requirement("R3", "R4")
@thorough(200)
@given(arguments(), st.integers(0, 1 << 62), u32, times)
def test_arbitrary_records_through_every_encoding_come_out_the_same(
    given_arguments: dict[str, Any], base_offset: int, epoch: int, append_ms: int
) -> None:
    batch = encode_batch(**given_arguments)
    assert check_produced_records(parse_message(batch.message())) == batch
    placed = Batch(stamped(batch.header, base_offset, epoch, append_ms), batch.records)
    expected = rows_of(given_arguments, base_offset)

    assert read_batch(placed.frame()) == placed
    assert decode_batch(placed).rows() == expected
    assert list(read_batches(placed.frame() * 2)) == [placed] * 2

    parsed = log_pb2.RecordBatch.FromString(placed.message())
    assert parse_message(parsed.SerializeToString()).frame() == placed.frame()
    segment = log_pb2.Segment.FromString(placed.frame() * 2)
    assert list(segment.batches) == [parsed] * 2


@pytest.mark.requirement("R28")
@thorough(100)
@given(arguments())
def test_arbitrary_records_with_only_what_must_be_said_become_the_same_batch(given_arguments: dict[str, Any]) -> None:
    batch = encode_batch(**given_arguments)
    parsed = log_pb2.RecordBatch.FromString(batch.message())
    for name in ("header_crc32c", "records_crc32c", "uncompressed_bytes", "last_offset_delta", "max_timestamp_ms"):
        parsed.ClearField(name)  # type: ignore[arg-type]
    assert check_produced_records(parse_message(parsed.SerializeToString())) == batch


@pytest.mark.requirement("R8")
@thorough(100)
@given(arguments(), st.integers(0, 1 << 62), st.data())
def test_arbitrary_records_compacted_keep_all_but_those_removed(
    given_arguments: dict[str, Any], base_offset: int, data: st.DataObject
) -> None:
    batch = encode_batch(**given_arguments)
    header = stamped(batch.header, base_offset, 1, 2)
    rows = rows_of(given_arguments, base_offset)
    keep = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    kept: RecordColumns = decode_batch(Batch(header, batch.records)).where(keep)
    compacted = read_batch(encode_compacted(header, kept, delete_horizon_ms=5).frame())
    assert decode_batch(compacted).rows() == [row for row, wanted in zip(rows, keep, strict=True) if wanted]
    assert compacted.header.next_offset == header.next_offset
    assert compacted.header.last_sequence == header.last_sequence


headers = st.builds(
    BatchHeader,
    base_offset=u64,
    last_offset_delta=u32,
    leader_epoch=u32,
    append_timestamp_ms=u64,
    record_count=u32,
    base_timestamp_ms=u64,
    max_timestamp_ms=u64,
    producer_id=u64,
    producer_epoch=u32,
    base_sequence=u32,
    codec=st.integers(0, 255) | codecs.map(int),
    flags=u32 | st.just(0),
    delete_horizon_ms=u64,
    uncompressed_bytes=u32,
    records_crc32c=u32,
    records_bytes=st.integers(0, 1 << 30),
)


@thorough(200)
@given(headers)
def test_arbitrary_header_is_read_back_or_refused_for_what_it_says(header: BatchHeader) -> None:
    problem = header_problem(header)
    if problem is None:
        assert read_header(pack_header(header)) == header
    else:
        with pytest.raises(CorruptBatch, match=re.escape(problem)):
            read_header(pack_header(header))


@thorough(100)
@given(codecs, st.binary(max_size=2000), st.integers(0, 2000))
def test_arbitrary_data_decompressed_is_the_same_or_above_the_limit(codec: Codec, data: bytes, limit: int) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    if codec is not Codec.NONE and limit < len(data):
        with pytest.raises(CorruptBatch):
            decompress(codec, packed, limit)


# --- damage

SOUND = [
    encode_batch([b"value"], timestamps_ms=5),
    encode_batch(
        [b"v", None, b""],
        keys=[b"k", None, b""],
        timestamps_ms=[9, 8, 10],
        headers={0: [("é", None), ("é", b"")], 2: [("x", b"y")]},
        producer_id=3,
        base_sequence=7,
    ),
    *[encode_batch([b"abc" * 20, b"d"], timestamps_ms=[1, 2], codec=codec) for codec in Codec],
]
SOUND.append(
    encode_compacted(SOUND[1].header, RecordColumns([0, 2], [9, 10], [b"v", b""], [b"k", b""]), delete_horizon_ms=1)
)
SOUND.append(encode_compacted(SOUND[1].header, RecordColumns([], [], []), delete_horizon_ms=1))
ENCODED = [
    encoded
    for batch in SOUND
    for encoded in (
        batch.frame(),
        batch.frame() * 2,
        batch.message(),
        log_pb2.RecordBatch.FromString(batch.message()).SerializeToString(),
    )
]


@st.composite
def damaged(draw: st.DrawFn, sound: st.SearchStrategy[bytes]) -> bytes:
    """Sound bytes with a few bits flipped, pieces cut, inserted or repeated."""
    data = draw(sound)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 40)))
        match draw(st.sampled_from(["flip", "cut", "cut off", "insert", "repeat"])):
            case "flip" if start < len(data):
                data = data[:start] + bytes([data[start] ^ 1 << draw(st.integers(0, 7))]) + data[start + 1 :]
            case "cut":
                data = data[:start] + data[end:]
            case "cut off":
                data = data[:start]
            case "insert":
                data = data[:start] + draw(small_bytes) + data[start:]
            case _:
                data = data[:end] + data[start:end] * draw(st.integers(1, 3)) + data[end:]
    return data


def open_everything(data: bytes) -> None:
    """Put the bytes through every door. Only our own errors may come out."""
    for door in (read_header, read_batch, lambda data: list(read_batches(data)), parse_message):
        found = unless_refused(door, data)
        for batch in found if isinstance(found, list) else [found]:
            if isinstance(batch, Batch):
                open_records(batch)


def unless_refused(door: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What the door answers, or None if it refuses. Any other exception is a bug and goes on to the test."""
    try:
        return door(*arguments, **options)
    except (CorruptBatch, InvalidRequest, RecordTooLarge):
        return None


def open_records(batch: Batch) -> None:
    """Whatever is opened fits its header; whatever a leader accepts can be stored and opened by everybody."""
    columns = unless_refused(decode_batch, batch, limit_bytes=LIMIT_BYTES)
    if columns is not None:
        offsets = [row.offset for row in columns.rows()]
        assert len(offsets) == batch.header.record_count
        assert offsets == sorted(set(offsets))
        assert all(batch.header.base_offset <= offset <= batch.header.last_offset for offset in offsets)
    accepted = unless_refused(check_produced_records, batch, limit_bytes=LIMIT_BYTES)
    if accepted is not None:
        stored = Batch(stamped(accepted.header, 50, 1, 2), accepted.records)
        assert read_batch(stored.frame()) == stored
        columns = decode_batch(stored, limit_bytes=LIMIT_BYTES)
        assert list(columns.offsets) == list(range(50, stored.header.next_offset))
        assert max(columns.timestamps_ms) == stored.header.max_timestamp_ms


@pytest.mark.requirement("R27")
@thorough(300)
@given(st.binary(max_size=400))
@example(b"")
@example(b"\x0a" * 400)
@example(b"\xff" * 400)
def test_random_bytes_through_every_door_raise_only_our_errors(data: bytes) -> None:
    open_everything(data)


@pytest.mark.requirement("R27")
@thorough(1000)
@given(damaged(st.sampled_from(ENCODED)))
def test_damaged_bytes_through_every_door_raise_only_our_errors(data: bytes) -> None:
    open_everything(data)


@pytest.mark.requirement("R27")
@thorough(1000)
@given(st.sampled_from(SOUND), st.data())
def test_damaged_records_with_sound_checksums_raise_only_our_errors(sound: Batch, data: st.DataObject) -> None:
    plain = decompress(Codec(sound.header.codec), sound.records, LIMIT_BYTES)
    inside = data.draw(damaged(st.just(plain)) | st.just(plain))
    records = compress(Codec(sound.header.codec), inside)
    records = data.draw(damaged(st.just(records)) | st.just(records))
    size = data.draw(st.sampled_from([len(inside), 0, len(inside) + 1, (1 << 32) - 1]))
    header = sound.header._replace(records_crc32c=crc32c(records), records_bytes=len(records), uncompressed_bytes=size)
    open_everything(Batch(header, records).frame())
    open_everything(Batch(header, records).message())


indexes = st.just([]) | st.sets(st.integers(0, 4), max_size=4).map(sorted) | st.lists(u32, max_size=3)
deltas = st.integers(-5, 5) | st.sampled_from([-(1 << 63), (1 << 63) - 1]) | st.integers(-(1 << 63), (1 << 63) - 1)
some_header = st.builds(log_pb2.RecordHeader, record_index=st.integers(0, 4), key=st.text(max_size=2))


@st.composite
def columns_of_any_shape(draw: st.DrawFn) -> log_pb2.Records:
    """Columns of which most, but not all, fit each other."""
    count = draw(st.integers(0, 4))

    def column(entries: st.SearchStrategy[Any]) -> Any:
        fitting = st.lists(entries, min_size=count, max_size=count)
        return draw(st.just([]) | fitting | fitting | st.lists(entries, max_size=4))

    return log_pb2.Records(
        values=[b"v"] * count,
        keys=column(st.binary(max_size=2)),
        timestamp_deltas=column(deltas),
        offset_deltas=draw(indexes),
        null_values=draw(indexes),
        null_keys=draw(indexes),
        headers=draw(st.lists(some_header, max_size=3)),
    )


wild_fields = st.fixed_dictionaries(
    {},
    optional={
        "base_offset": u64,
        "last_offset_delta": u32,
        "append_timestamp_ms": u64,
        "record_count": u32,
        "base_timestamp_ms": u64 | st.sampled_from([(1 << 63) - 1, (1 << 64) - 1]),
        "max_timestamp_ms": u64,
        "producer_id": u64,
        "base_sequence": u32,
        "flags": st.sampled_from([FLAG_APPEND_TIME, 2, 1 << 31]),
        "uncompressed_bytes": u32,
    },
)


@pytest.mark.requirement("R27")
@thorough(600)
@given(columns_of_any_shape(), codecs, wild_fields)
def test_arbitrary_columns_under_an_arbitrary_header_raise_only_our_errors(
    message: log_pb2.Records, codec: Codec, changes: dict[str, int]
) -> None:
    plain = message.SerializeToString()
    records = compress(codec, plain)
    count = len(message.values)
    header = SOUND[0].header._replace(
        last_offset_delta=max(count - 1, 0),
        record_count=count,
        max_timestamp_ms=0,
        codec=codec,
        uncompressed_bytes=len(plain),
        records_crc32c=crc32c(records),
        records_bytes=len(records),
    )
    batch = Batch(header._replace(**changes), records)
    open_everything(batch.frame())
    open_everything(batch.message())


def test_every_frame_with_any_single_bit_flipped_is_refused() -> None:
    for batch in SOUND:
        frame = batch.frame()
        for bit in range(len(frame) * 8):
            flipped = bytearray(frame)
            flipped[bit // 8] ^= 1 << bit % 8
            with pytest.raises(CorruptBatch):
                read_batch(bytes(flipped))
