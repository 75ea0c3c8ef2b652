"""The records inside a batch: every column, every null, and whatever does not fit together."""

from collections.abc import Sequence
from typing import Any

import pytest
import zstandard

from lograft.contract.batch import (
    FLAG_APPEND_TIME,
    SEQUENCE_LIMIT,
    Batch,
    crc32c,
    parse_message,
    read_batch,
    stamped,
)
from lograft.contract.codecs import Codec, compress
from lograft.contract.errors import CorruptBatch, InvalidRequest
from lograft.contract.records import (
    Record,
    RecordColumns,
    check_produced_records,
    decode_batch,
    encode_batch,
    encode_compacted,
)
from lograft.v1 import log_pb2

CODECS = list(Codec)
INT64_MAX = (1 << 63) - 1


def rows_of(batch: Batch) -> list[Record]:
    return decode_batch(batch).rows()


def with_records(message: log_pb2.Records, codec: Codec = Codec.NONE, **changes: int) -> Batch:
    """A batch around ``message`` with sound checksums, whatever is inside."""
    plain = message.SerializeToString()
    records = compress(codec, plain)
    count = len(message.values)
    header = encode_batch([b""], timestamps_ms=1000).header._replace(
        last_offset_delta=max(count - 1, 0),
        record_count=count,
        codec=codec,
        uncompressed_bytes=len(plain),
        records_crc32c=crc32c(records),
        records_bytes=len(records),
    )
    return Batch(header._replace(**changes), records)


# --- there and back


@pytest.mark.requirement("R4")
@pytest.mark.parametrize("codec", CODECS)
def test_records_with_everything_encoded_and_decoded_are_the_same(codec: Codec) -> None:
    values = [b"value", None, b"", b"\x00\xff" * 50, None]
    keys = [b"key", b"", None, b"key", b"tombstone"]
    headers = {
        0: [("a", b"1"), ("a", b"2"), ("ключ-鍵", None)],
        3: [("", b""), ("n", None)],
        4: [("z", b"\x00")],
    }
    batch = encode_batch(values, timestamps_ms=[50, 40, 60, 50, 0], keys=keys, headers=headers, codec=codec)
    placed = Batch(stamped(batch.header, 1000, 5, 99), batch.records)
    assert rows_of(read_batch(placed.frame())) == [
        Record(1000, 50, b"key", b"value", headers[0]),
        Record(1001, 40, b"", None, ()),
        Record(1002, 60, None, b"", ()),
        Record(1003, 50, b"key", b"\x00\xff" * 50, headers[3]),
        Record(1004, 0, b"tombstone", None, headers[4]),
    ]
    assert check_produced_records(batch) == batch
    assert (batch.header.base_timestamp_ms, batch.header.max_timestamp_ms) == (50, 60)


@pytest.mark.requirement("R4")
def test_empty_and_null_stay_apart_in_keys_values_and_headers() -> None:
    headers = {0: [("h", b"")], 1: [("h", None)]}
    columns = decode_batch(encode_batch([b"", None], keys=[b"", None], timestamps_ms=1, headers=headers))
    assert columns.values == [b"", None]
    assert columns.keys == [b"", None]
    assert columns.headers == headers


@pytest.mark.parametrize("keys", [None, [None, None]])
def test_records_without_any_key_have_no_key_column(keys: Sequence[None] | None) -> None:
    batch = encode_batch([b"a", None], keys=keys, timestamps_ms=1)
    assert decode_batch(batch).keys is None
    assert [row.key for row in rows_of(batch)] == [None, None]
    assert not log_pb2.Records.FromString(batch.records).keys


def test_values_without_null_and_keys_with_some_are_both_kept() -> None:
    columns = decode_batch(encode_batch([b"a", b"b"], keys=[None, b"k"], timestamps_ms=1))
    assert (columns.values, columns.keys) == ([b"a", b"b"], [None, b"k"])


@pytest.mark.parametrize("timestamps_ms", [0, 5, INT64_MAX, [7, 7, 7], (7, 7, 7)])
def test_timestamps_that_are_all_equal_need_no_column(timestamps_ms: int | Sequence[int]) -> None:
    batch = encode_batch([b""] * 3, timestamps_ms=timestamps_ms)
    expected = timestamps_ms if isinstance(timestamps_ms, int) else 7
    assert list(decode_batch(batch).timestamps_ms) == [expected] * 3
    assert not log_pb2.Records.FromString(batch.records).timestamp_deltas
    assert batch.header.base_timestamp_ms == batch.header.max_timestamp_ms == expected


@pytest.mark.parametrize(
    "timestamps_ms", [[5, 6, 7], [7, 6, 5], [0, INT64_MAX, 3], [INT64_MAX, 0, 0], [6, 6, 5], range(10, 40, 10)]
)
def test_timestamps_that_vary_are_kept_one_by_one(timestamps_ms: Sequence[int]) -> None:
    batch = encode_batch([b""] * 3, timestamps_ms=timestamps_ms)
    assert list(decode_batch(batch).timestamps_ms) == list(timestamps_ms)
    assert batch.header.max_timestamp_ms == max(timestamps_ms)
    assert check_produced_records(batch) == batch


def test_append_time_flag_when_set_replaces_every_timestamp() -> None:
    batch = encode_batch([b"a", b"b"], timestamps_ms=[1, 2])
    header = stamped(batch.header, 0, 0, 555)._replace(flags=FLAG_APPEND_TIME, max_timestamp_ms=555)
    assert list(decode_batch(Batch(header, batch.records)).timestamps_ms) == [555, 555]


def test_producer_fields_are_put_into_the_header() -> None:
    last = SEQUENCE_LIMIT - 1
    header = encode_batch([b"a"], timestamps_ms=1, producer_id=9, producer_epoch=8, base_sequence=last).header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 8, last)


@pytest.mark.requirement("R28")
def test_records_parsed_by_protobuf_are_the_columns_that_the_proto_describes() -> None:
    batch = encode_batch(
        [b"v", None], keys=[None, b"k"], timestamps_ms=[10, 7], headers={1: [("h", None), ("h", b"x")]}
    )
    parsed = log_pb2.Records.FromString(log_pb2.RecordBatch.FromString(batch.message()).records)
    assert (list(parsed.values), list(parsed.null_values)) == ([b"v", b""], [1])
    assert (list(parsed.keys), list(parsed.null_keys)) == ([b"", b"k"], [0])
    assert (list(parsed.timestamp_deltas), list(parsed.offset_deltas)) == ([0, -3], [])
    assert [(h.record_index, h.key, h.HasField("value"), h.value) for h in parsed.headers] == [
        (1, "h", False, b""),
        (1, "h", True, b"x"),
    ]


# --- compaction


@pytest.mark.requirement("R8")
@pytest.mark.parametrize("codec", CODECS)
def test_compacted_batch_keeps_offsets_times_and_sequence_range(codec: Codec) -> None:
    batch = encode_batch(
        [b"a", b"b", None, b"d"],
        keys=[b"1", b"2", b"3", b"4"],
        timestamps_ms=[10, 30, 20, 25],
        headers={1: [("gone", b"")], 3: [("kept", None)]},
        codec=codec,
        producer_id=4,
        base_sequence=100,
    )
    header = stamped(batch.header, 500, 2, 99)
    columns = decode_batch(Batch(header, batch.records)).where([True, False, True, True])
    compacted = encode_compacted(header, columns, delete_horizon_ms=12345)
    assert rows_of(read_batch(compacted.frame())) == [
        Record(500, 10, b"1", b"a", ()),
        Record(502, 20, b"3", None, ()),
        Record(503, 25, b"4", b"d", [("kept", None)]),
    ]
    new = compacted.header
    assert (new.base_offset, new.last_offset, new.next_offset) == (500, 503, 504)
    assert (new.base_sequence, new.last_sequence) == (100, 103)
    assert (new.record_count, new.max_timestamp_ms, new.delete_horizon_ms) == (3, 25, 12345)
    assert (new.base_timestamp_ms, new.append_timestamp_ms, new.leader_epoch) == (10, 99, 2)


@pytest.mark.requirement("R8")
@pytest.mark.parametrize("codec", CODECS)
def test_compacted_batch_with_no_record_left_still_holds_its_offsets(codec: Codec) -> None:
    batch = encode_batch([b"a", b"b"], keys=[b"k", b"k"], timestamps_ms=[1, 2], codec=codec)
    header = stamped(batch.header, 500, 2, 99)
    columns = decode_batch(Batch(header, batch.records)).where([False, False])
    compacted = encode_compacted(header, columns, delete_horizon_ms=0)
    reread = read_batch(compacted.frame())
    assert rows_of(reread) == []
    assert reread.header.next_offset == 502
    assert (reread.header.record_count, reread.header.uncompressed_bytes) == (0, 0)
    assert rows_of(parse_message(log_pb2.RecordBatch.FromString(compacted.message()).SerializeToString())) == []


@pytest.mark.requirement("R8")
def test_compacting_twice_gives_the_same_as_once() -> None:
    header = stamped(encode_batch([b"v"] * 6, timestamps_ms=range(6)).header, 40, 1, 1)
    records = encode_batch([b"v"] * 6, timestamps_ms=range(6)).records
    columns = decode_batch(Batch(header, records))
    once = encode_compacted(header, columns.where([0, 1, 0, 1, 0, 0]), delete_horizon_ms=0)
    first = encode_compacted(header, columns.where([1, 1, 0, 1, 0, 1]), delete_horizon_ms=0)
    again = encode_compacted(first.header, decode_batch(first).where([0, 1, 1, 0]), delete_horizon_ms=0)
    assert again == once
    assert [row.offset for row in rows_of(again)] == [41, 43]


def test_compacted_batch_with_append_time_keeps_the_append_time() -> None:
    batch = encode_batch([b"a", b"b"], timestamps_ms=[1, 2])
    header = stamped(batch.header, 0, 0, 555)._replace(flags=FLAG_APPEND_TIME, max_timestamp_ms=555)
    columns = decode_batch(Batch(header, batch.records)).where([False, True])
    compacted = encode_compacted(header, columns, delete_horizon_ms=0)
    assert rows_of(compacted) == [Record(1, 555, None, b"b")]
    assert compacted.header.max_timestamp_ms == 555


def test_columns_where_keeps_headers_with_their_records() -> None:
    columns = RecordColumns([5, 6, 7], [1, 2, 3], [b"a", b"b", b"c"], None, {0: [("x", None)], 2: [("z", b"")]})
    kept = columns.where([False, True, True])
    assert len(kept) == 2
    assert kept.rows() == [Record(6, 2, None, b"b", ()), Record(7, 3, None, b"c", [("z", b"")])]


# --- what a caller may not pass


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"values": []}, "at least one record"),
        ({"values": [b"a"], "keys": []}, "0 keys for 1 values"),
        ({"values": [b"a"], "keys": [b"k", b"k"]}, "2 keys for 1 values"),
        ({"values": [b"a"], "timestamps_ms": []}, "0 timestamps for 1 values"),
        ({"values": [b"a"], "timestamps_ms": [1, 2]}, "2 timestamps for 1 values"),
        ({"values": [b"a"], "timestamps_ms": -1}, "a timestamp must be at least 0 .* not -1"),
        ({"values": [b"a"], "timestamps_ms": [-1]}, "not -1"),
        ({"values": [b"a", b"b"], "timestamps_ms": [5, -1]}, "not -1"),
        ({"values": [b"a", b"b"], "timestamps_ms": [-(1 << 70), 1 << 70]}, "a timestamp must be at least 0"),
        ({"values": [b"a"], "timestamps_ms": INT64_MAX + 1}, "below 9223372036854775808"),
        ({"values": [b"a", b"b"], "timestamps_ms": [0, INT64_MAX + 1]}, "below 9223372036854775808"),
        ({"values": [b"a"], "headers": {1: [("k", b"")]}}, "headers for record 1 of 1"),
        ({"values": [b"a"], "headers": {-1: [("k", b"")]}}, "headers for record -1 of 1"),
        ({"values": [b"a"], "headers": {0: [("\ud800", b"")]}}, "cannot be written as UTF-8"),
        ({"values": [b"a"], "producer_id": -1}, "producer_id must be at least 0"),
        ({"values": [b"a"], "producer_id": INT64_MAX + 1}, "producer_id must be at least 0 and below"),
        ({"values": [b"a"], "producer_epoch": 1 << 32}, "producer_epoch must be at least 0 and below"),
        ({"values": [b"a"], "base_sequence": SEQUENCE_LIMIT}, "base_sequence must be at least 0 and below"),
    ],
)
def test_encode_batch_with_values_out_of_range_is_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        encode_batch(**{"timestamps_ms": 1} | arguments)


@pytest.mark.parametrize(
    ("arguments", "type_name"),
    [
        ({"values": ["text"]}, "str"),
        ({"values": [b"a", 5]}, "int"),
        ({"values": [None, bytearray(b"a")]}, "bytearray"),
        ({"values": [memoryview(b"a")]}, "memoryview"),
        ({"values": "text"}, "str"),
        ({"values": b"bytes"}, "int"),
        ({"values": [b"a"], "keys": ["key"]}, "str"),
        ({"values": [b"a", None], "keys": [None, 1.5]}, "float"),
        ({"values": [b"a"], "timestamps_ms": 1.5}, "float"),
        ({"values": [b"a"], "timestamps_ms": None}, "NoneType"),
        ({"values": [b"a"], "timestamps_ms": "1"}, "str"),
        ({"values": [b"a"], "timestamps_ms": [1.0]}, "float"),
        ({"values": [b"a", b"b"], "timestamps_ms": [1, 2.0]}, "float"),
        ({"values": [b"a", b"b"], "timestamps_ms": [1.0, 2]}, "float"),
        ({"values": [b"a", b"b"], "timestamps_ms": [1, None]}, "NoneType"),
        ({"values": [b"a", b"b"], "timestamps_ms": ["1", "2"]}, "str"),
        ({"values": [b"a"], "headers": {0: [("k", "v")]}}, "str"),
        ({"values": [b"a"], "headers": {0: [(b"k", b"v")]}}, "bytes"),
        ({"values": [b"a"], "headers": {0: [(None, b"v")]}}, "NoneType"),
        ({"values": [b"a"], "headers": {0: 5}}, "int"),
        ({"values": [b"a"], "headers": {"0": []}}, "str"),
        ({"values": [b"a"], "headers": [("k", b"v")]}, "tuple"),
        ({"values": [b"a"], "producer_id": "7"}, "str"),
        ({"values": [b"a"], "base_sequence": 1.0}, "float"),
        ({"values": [b"a"], "codec": "zstd"}, "'zstd'"),
        ({"values": [b"a"], "codec": 77}, "unknown codec 77"),
    ],
)
def test_encode_batch_with_a_wrong_type_is_refused_and_names_the_type(
    arguments: dict[str, Any], type_name: str
) -> None:
    with pytest.raises(InvalidRequest, match=type_name):
        encode_batch(**{"timestamps_ms": 1} | arguments)


def test_encode_batch_with_headers_that_are_no_pairs_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="pairs of key and value"):
        encode_batch([b"a"], timestamps_ms=1, headers={0: [("k", b"v", b"more")]})  # type: ignore[list-item]


# --- what the inside of a batch may not be


def columns(**fields: Any) -> log_pb2.Records:
    return log_pb2.Records(**{"values": [b"a", b"b", b"c"]} | fields)


UNSOUND = [
    (columns(), {"record_count": 2, "last_offset_delta": 1}, "the header says 2 records and there are 3"),
    (columns(), {"record_count": 4, "last_offset_delta": 3}, "the header says 4 records and there are 3"),
    (columns(values=[]), {"record_count": 1}, "the header says 1 records and there are 0"),
    (columns(), {"record_count": (1 << 32) - 1, "last_offset_delta": (1 << 32) - 2}, "and there are 3"),
    (columns(), {"last_offset_delta": 3}, "3 records (for|in) 4 offsets"),
    (columns(keys=[b"k"]), {}, "1 keys for 3 records"),
    (columns(keys=[b"k"] * 4), {}, "4 keys for 3 records"),
    (columns(timestamp_deltas=[1, 2]), {}, "2 timestamp_deltas for 3 records"),
    (columns(offset_deltas=[0, 1]), {}, "2 offset_deltas for 3 records"),
    (columns(offset_deltas=[0, 2, 1]), {}, "offset deltas do not ascend"),
    (columns(offset_deltas=[0, 1, 1]), {}, "offset deltas do not ascend"),
    (columns(offset_deltas=[0, 1, 3]), {}, "offset deltas do not ascend"),
    (columns(null_values=[3]), {}, "indexes in null_values do not ascend"),
    (columns(null_values=[1, 1]), {}, "indexes in null_values do not ascend"),
    (columns(null_values=[2, 0]), {}, "indexes in null_values do not ascend"),
    (columns(keys=[b""] * 3, null_keys=[0, 9]), {}, "indexes in null_keys do not ascend"),
    (columns(null_keys=[0]), {}, "null_keys without keys"),
    (columns(headers=[{"record_index": 3}]), {}, "headers are not ordered"),
    (columns(headers=[{"record_index": 2}, {"record_index": 0}]), {}, "headers are not ordered"),
    (columns(), {"uncompressed_bytes": 8}, "declares 8 bytes unpacked"),
    (columns(), {"uncompressed_bytes": 10}, "declares 10 bytes unpacked"),
]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize(("message", "changes", "problem"), UNSOUND)
def test_records_that_do_not_fit_together_are_refused(
    message: log_pb2.Records, changes: dict[str, int], problem: str, codec: Codec
) -> None:
    batch = with_records(message, codec, **changes)
    if "uncompressed_bytes" in changes and codec is not Codec.NONE:
        problem = "declare"
    with pytest.raises(CorruptBatch, match=problem):
        decode_batch(batch)
    with pytest.raises(CorruptBatch, match=problem):
        check_produced_records(batch)


@pytest.mark.parametrize("records", [b"\x0a", b"\x0a\x05abc", b"\x07", b"\x3a\x04\x12\x02\xff\xff"])
def test_records_that_are_no_records_message_are_refused(records: bytes) -> None:
    header = with_records(columns()).header
    header = header._replace(uncompressed_bytes=len(records), records_bytes=len(records))
    with pytest.raises(CorruptBatch, match="not a Records message"):
        decode_batch(Batch(header, records))


def test_decode_with_records_above_the_limit_is_refused_and_at_the_limit_is_not() -> None:
    for codec in CODECS:
        batch = encode_batch([b"x" * 1000], timestamps_ms=1, codec=codec)
        size = batch.header.uncompressed_bytes
        assert len(decode_batch(batch, limit_bytes=size)) == 1
        assert check_produced_records(batch, limit_bytes=size) == batch
        unsaid = Batch(batch.header._replace(uncompressed_bytes=0), batch.records)
        assert check_produced_records(unsaid, limit_bytes=size) == batch
        for opening in (decode_batch, check_produced_records):
            with pytest.raises(CorruptBatch, match=f"above the limit of {size - 1}"):
                opening(batch, limit_bytes=size - 1)
        with pytest.raises(CorruptBatch, match=f"limit of {size - 1}"):
            check_produced_records(unsaid, limit_bytes=size - 1)


# --- the leader's look at what a producer sent


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.LZ4, Codec.GZIP])
def test_produced_batch_of_unsaid_size_with_bytes_behind_its_frame_is_refused(codec: Codec) -> None:
    plain = columns().SerializeToString()
    frame = compress(codec, plain)
    if codec is Codec.ZSTD:
        frame = zstandard.ZstdCompressor(write_content_size=False).compress(plain)
    for trailing in (b"\x00", frame):
        records = frame + trailing
        sizes = {"uncompressed_bytes": 0, "records_bytes": len(records), "records_crc32c": crc32c(records)}
        header = with_records(columns(), codec, **sizes).header
        with pytest.raises(CorruptBatch):
            check_produced_records(Batch(header, records))


@pytest.mark.parametrize("codec", CODECS)
def test_produced_batch_with_only_what_must_be_said_is_filled_in(codec: Codec) -> None:
    full = encode_batch([b"a", b"b"], timestamps_ms=[30, 40], codec=codec)
    bare = log_pb2.RecordBatch(
        record_count=2, base_timestamp_ms=30, codec=int(codec), records=full.records
    ).SerializeToString()
    assert check_produced_records(parse_message(bare)) == full


@pytest.mark.parametrize(
    ("changes", "error", "problem"),
    [
        ({"record_count": 0}, InvalidRequest, "at least one record"),
        ({"last_offset_delta": 5}, CorruptBatch, "3 records in 6 offsets"),
        ({"delete_horizon_ms": 1}, InvalidRequest, "delete_horizon_ms is set by compaction"),
        ({"flags": FLAG_APPEND_TIME}, InvalidRequest, "flags are set by the leader"),
        ({"producer_id": 1 << 63}, InvalidRequest, "producer_id 9223372036854775808"),
        ({"max_timestamp_ms": 999}, CorruptBatch, "max_timestamp_ms is 999, the records say 1000"),
        ({"max_timestamp_ms": 1001}, CorruptBatch, "max_timestamp_ms is 1001, the records say 1000"),
        ({"base_timestamp_ms": 1 << 63, "max_timestamp_ms": 1 << 63}, InvalidRequest, "not below 2\\^63"),
        ({"base_timestamp_ms": (1 << 64) - 1, "max_timestamp_ms": 0}, InvalidRequest, "not below 2\\^63"),
    ],
)
def test_produced_batch_with_a_header_that_no_producer_may_send_is_refused(
    changes: dict[str, int], error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        check_produced_records(with_records(columns(), **changes))


def test_produced_batch_with_timestamps_out_of_range_is_refused() -> None:
    before_1970 = with_records(columns(timestamp_deltas=[0, -1001, 0]))
    with pytest.raises(InvalidRequest, match="before 1970"):
        check_produced_records(before_1970)
    # The sum would not fit the header's 64 bits.
    beyond = with_records(columns(timestamp_deltas=[0, INT64_MAX, 0]), max_timestamp_ms=0)
    with pytest.raises(InvalidRequest, match="not below 2\\^63"):
        check_produced_records(beyond)


def test_produced_batch_with_offset_deltas_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="offset_deltas are set by compaction"):
        check_produced_records(with_records(columns(offset_deltas=[0, 1, 2])))


@pytest.mark.requirement("R8")
def test_produced_batch_without_a_key_is_refused_where_keys_are_required() -> None:
    keyed = encode_batch([b"a", None], keys=[b"k", b""], timestamps_ms=1)
    assert check_produced_records(keyed, keys_required=True) == keyed
    for keys in (None, [b"k", None]):
        batch = encode_batch([b"a", None], keys=keys, timestamps_ms=1)
        assert check_produced_records(batch) == batch
        with pytest.raises(InvalidRequest, match="needs a key"):
            check_produced_records(batch, keys_required=True)
