"""The batch header: its bytes, its checks, and every other encoding that protobuf allows."""

import struct

import pytest

from lograft.contract.batch import (
    FLAG_APPEND_TIME,
    FLAG_CONTROL,
    FLAG_TRANSACTIONAL,
    FRAME_PREFIX_SIZE,
    HEADER_SIZE,
    MAX_BATCH_BYTES,
    SEQUENCE_LIMIT,
    Batch,
    BatchHeader,
    check_records_crc,
    crc32c,
    pack_header,
    parse_message,
    read_batch,
    read_batches,
    read_header,
    stamped,
)
from lograft.contract.codecs import Codec
from lograft.contract.errors import CorruptBatch
from lograft.v1 import log_pb2

RECORDS = b"the records are not looked at here"
U32 = (1 << 32) - 1
U64 = (1 << 64) - 1
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def header_of(records: bytes = RECORDS, **changes: int) -> BatchHeader:
    return BatchHeader(
        base_offset=1001,
        last_offset_delta=6,
        leader_epoch=12,
        append_timestamp_ms=1_700_000_000_123,
        record_count=7,
        base_timestamp_ms=1_700_000_000_001,
        max_timestamp_ms=1_700_000_000_099,
        producer_id=77,
        producer_epoch=3,
        base_sequence=500,
        codec=Codec.NONE,
        flags=0,
        delete_horizon_ms=0,
        uncompressed_bytes=len(records),
        records_crc32c=crc32c(records),
        records_bytes=len(records),
    )._replace(**changes)


def batch_of(records: bytes = RECORDS, **changes: int) -> Batch:
    return Batch(header_of(records, **changes), records)


def varint(number: int, size: int = 0) -> bytes:
    """``number`` as a varint, padded to ``size`` bytes."""
    out = bytearray()
    while number > 127 or len(out) + 1 < size:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, value: int | bytes, wire_type: int, padded: int = 0) -> bytes:
    """One protobuf field, with its tag and length or varint padded to ``padded`` bytes."""
    tag = varint(number << 3 | wire_type, padded)
    if isinstance(value, bytes):
        return tag + varint(len(value), padded) + value
    match wire_type:
        case 0:
            return tag + varint(value, padded)
        case 1:
            return tag + struct.pack("<Q", value)
        case _:
            return tag + struct.pack("<I", value)


def fields_of(batch: Batch, padded: int = 0) -> dict[int, bytes]:
    """Each field of the message in an encoding of its own, by number; the header's checksum is left out."""
    h = batch.header
    numbers = [
        (2, h.base_offset, FIXED64),
        (3, h.last_offset_delta, FIXED32),
        (4, h.leader_epoch, FIXED32),
        (5, h.append_timestamp_ms, FIXED64),
        (6, h.record_count, FIXED32),
        (7, h.base_timestamp_ms, FIXED64),
        (8, h.max_timestamp_ms, FIXED64),
        (9, h.producer_id, FIXED64),
        (10, h.producer_epoch, FIXED32),
        (11, h.base_sequence, FIXED32),
        (12, h.codec, VARINT),
        (13, h.flags, FIXED32),
        (14, h.delete_horizon_ms, FIXED64),
        (15, h.uncompressed_bytes, FIXED32),
        (16, h.records_crc32c, FIXED32),
    ]
    encoded = {number: field(number, value, wire_type, padded) for number, value, wire_type in numbers}
    return encoded | {17: field(17, batch.records, BYTES, padded)}


def header_crc(batch: Batch) -> int:
    return int.from_bytes(batch.message()[1:5], "little")


# --- the canonical bytes


@pytest.mark.parametrize(
    "changes",
    [
        {},
        dict.fromkeys(("last_offset_delta", "leader_epoch", "base_sequence", "producer_id", "record_count"), 0),
        {"last_offset_delta": U32, "record_count": U32, "leader_epoch": U32, "producer_epoch": U32},
        {"producer_id": U64, "append_timestamp_ms": U64, "base_timestamp_ms": U64, "max_timestamp_ms": U64},
        {"base_offset": (1 << 63) - 7, "base_sequence": SEQUENCE_LIMIT - 1, "delete_horizon_ms": U64},
        {"flags": FLAG_APPEND_TIME, "codec": Codec.GZIP, "uncompressed_bytes": U32},
        {"base_offset": 0x0102030405060708, "records_crc32c": 0x0A0B0C0D},
    ],
)
def test_header_packed_and_read_gives_the_same_values_at_a_constant_size(changes: dict[str, int]) -> None:
    header = header_of(**changes)
    packed = pack_header(header)
    assert len(packed) == HEADER_SIZE == 115
    assert read_header(packed) == header
    assert read_header(b"before" + packed + b"after", 6) == header


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 2097152, 268435456, MAX_BATCH_BYTES - 200])
def test_header_with_records_of_any_size_keeps_its_own_size(size: int) -> None:
    header = header_of()._replace(records_bytes=size)
    packed = pack_header(header)
    assert len(packed) == HEADER_SIZE
    assert read_header(packed).records_bytes == size
    assert header.size_bytes == HEADER_SIZE + size


def test_offsets_and_sequences_of_a_header_count_from_its_bases() -> None:
    header = header_of()
    assert (header.last_offset, header.next_offset, header.last_sequence) == (1007, 1008, 506)
    wrapping = header._replace(base_sequence=SEQUENCE_LIMIT - 3)
    assert wrapping.last_sequence == 3


def test_stamped_header_changes_what_the_leader_sets_and_nothing_else() -> None:
    header = header_of()
    assert stamped(header, 5, 6, 7) == header._replace(base_offset=5, leader_epoch=6, append_timestamp_ms=7)


@pytest.mark.requirement("R28")
def test_frame_parsed_by_protobuf_gives_the_same_values() -> None:
    batch = batch_of()
    segment = log_pb2.Segment.FromString(batch.frame() * 3)
    assert len(segment.batches) == 3
    for parsed in segment.batches:
        assert parsed.records == RECORDS
        assert parsed.header_crc32c == header_crc(batch)
        for name in set(BatchHeader._fields) - {"records_bytes"}:
            assert getattr(parsed, name) == getattr(batch.header, name), name
    assert log_pb2.RecordBatch.FromString(batch.message()) == segment.batches[0]


def test_header_checksum_covers_everything_between_itself_and_the_records() -> None:
    message = batch_of().message()
    assert message[0] == 1 << 3 | FIXED32
    assert header_crc(batch_of()) == crc32c(message[5 : HEADER_SIZE - FRAME_PREFIX_SIZE])


def test_crc32c_of_the_standard_check_string_is_the_castagnoli_one() -> None:
    assert crc32c(b"123456789") == 0xE3069283


# --- reading canonical bytes


def test_read_batches_of_a_run_gives_every_batch() -> None:
    batches = [batch_of(b""), batch_of(b"x" * 300), batch_of()]
    assert list(read_batches(b"".join(batch.frame() for batch in batches))) == batches
    assert list(read_batches(b"")) == []


def test_read_batches_with_damage_in_the_second_gives_the_first_and_says_where() -> None:
    frame = batch_of().frame()
    run = read_batches(frame + frame[:-1])
    assert next(run) == batch_of()
    with pytest.raises(CorruptBatch, match="cut short") as caught:
        next(run)
    assert caught.value.position == len(frame)


@pytest.mark.parametrize("size", [0, 1, 5, 6, 7, HEADER_SIZE - 1])
def test_read_header_of_too_few_bytes_says_cut_short(size: int) -> None:
    with pytest.raises(CorruptBatch, match="the header is cut short"):
        read_header(batch_of().frame()[:size])
    with pytest.raises(CorruptBatch, match="the header is cut short") as caught:
        read_header(b"12" + batch_of().frame()[:size], 2)
    assert caught.value.position == 2


def test_read_header_of_zeros_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="checksum"):
        read_header(bytes(4096))


def test_read_batch_with_every_cut_is_refused() -> None:
    frame = batch_of().frame()
    for size in range(len(frame)):
        with pytest.raises(CorruptBatch):
            read_batch(frame[:size])


def test_read_batch_with_wrong_records_says_that_their_checksum_is_wrong() -> None:
    frame = batch_of().frame()
    with pytest.raises(CorruptBatch, match="the records' checksum is wrong"):
        read_batch(frame[:-1] + b"?")
    with pytest.raises(CorruptBatch, match="the records' checksum is wrong"):
        check_records_crc(header_of(), bytes(len(RECORDS)))


def test_read_batch_with_any_single_bit_flipped_is_refused() -> None:
    frame = batch_of(b"tiny").frame()
    for position in range(len(frame)):
        for bit in range(8):
            damaged = bytearray(frame)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptBatch):
                read_batch(bytes(damaged))


def test_read_header_with_lengths_that_disagree_is_refused() -> None:
    frame = batch_of().frame()
    longer = frame[:1] + varint(len(frame) - FRAME_PREFIX_SIZE + 1, 5) + frame[6:]
    with pytest.raises(CorruptBatch, match="lengths"):
        read_header(longer)


def resealed(frame: bytes, position: int, new: bytes) -> bytes:
    """The frame with other bytes in its header and a checksum that fits them."""
    frame = frame[:position] + new + frame[position + len(new) :]
    crc = crc32c(frame[FRAME_PREFIX_SIZE + 5 : HEADER_SIZE])
    return frame[: FRAME_PREFIX_SIZE + 1] + struct.pack("<I", crc) + frame[FRAME_PREFIX_SIZE + 5 :]


@pytest.mark.parametrize("length", [b"\x22\x00\x00\x00\x00", b"\xa2\x80\x80\x80\x08", b"\xa2\x80\x80\x80\x80"])
def test_read_header_with_a_length_not_padded_to_five_bytes_is_refused(length: bytes) -> None:
    frame = resealed(batch_of().frame(), HEADER_SIZE - 5, length)
    with pytest.raises(CorruptBatch):
        read_batch(frame)
    with pytest.raises(CorruptBatch):
        read_batch(frame[:1] + varint(HEADER_SIZE - FRAME_PREFIX_SIZE - 1, 5) + frame[6:])


BAD_VALUES = [
    ({"codec": 0}, "unknown codec 0"),
    ({"codec": 5}, "unknown codec 5"),
    ({"codec": 255}, "unknown codec 255"),
    ({"flags": FLAG_CONTROL}, "unknown flags 0x2"),
    ({"flags": FLAG_TRANSACTIONAL | FLAG_APPEND_TIME}, "unknown flags 0x5"),
    ({"flags": 1 << 31}, "unknown flags 0x80000000"),
    ({"record_count": 8}, "8 records in 7 offsets"),
    ({"base_sequence": SEQUENCE_LIMIT}, "sequence 2147483648 is not below"),
    ({"base_offset": (1 << 63) - 6}, "is too large"),
]


@pytest.mark.requirement("R32")
@pytest.mark.parametrize(("changes", "problem"), BAD_VALUES)
def test_header_with_values_that_make_no_sense_is_refused_with_sound_checksums(
    changes: dict[str, int], problem: str
) -> None:
    batch = batch_of(**changes)
    with pytest.raises(CorruptBatch, match=problem):
        read_header(batch.frame())
    with pytest.raises(CorruptBatch, match=problem):
        parse_message(batch.message())


@pytest.mark.parametrize(("changes", "problem"), BAD_VALUES)
def test_parse_message_with_values_that_make_no_sense_is_refused_in_any_encoding(
    changes: dict[str, int], problem: str
) -> None:
    with pytest.raises(CorruptBatch, match=problem):
        parse_message(b"".join(fields_of(batch_of(**changes)).values()))


@pytest.mark.parametrize("codec", [-1, 300, (1 << 31) - 1])
def test_parse_message_with_a_codec_beyond_one_byte_is_refused(codec: int) -> None:
    parsed = log_pb2.RecordBatch.FromString(batch_of().message())
    parsed.header_crc32c = 0
    parsed.codec = codec
    with pytest.raises(CorruptBatch, match=f"unknown codec {codec}"):
        parse_message(parsed.SerializeToString())


# --- any legal encoding


def test_parse_message_of_the_canonical_bytes_gives_the_batch() -> None:
    assert parse_message(batch_of().message()) == batch_of()
    assert parse_message(batch_of(b"").message()) == batch_of(b"")


@pytest.mark.requirement("R28")
@pytest.mark.parametrize(
    "changes", [{}, {"base_offset": 0, "leader_epoch": 0, "append_timestamp_ms": 0, "producer_id": 0}]
)
def test_parse_message_of_the_standard_serialization_gives_the_same_canonical_batch(changes: dict[str, int]) -> None:
    batch = batch_of(**changes)
    standard = log_pb2.RecordBatch.FromString(batch.message()).SerializeToString()
    assert standard != batch.message()
    assert parse_message(standard).frame() == batch.frame()


def test_parse_message_with_fields_in_another_order_gives_the_same_batch() -> None:
    encoded = list(fields_of(batch_of()).values())
    for turn in range(len(encoded)):
        assert parse_message(b"".join(encoded[turn:] + encoded[:turn])) == batch_of()
    assert parse_message(b"".join(reversed(encoded))) == batch_of()


def test_parse_message_without_what_the_leader_sets_reads_it_as_zero() -> None:
    encoded = fields_of(batch_of())
    for number in (2, 4, 5, 14):
        del encoded[number]
    expected = batch_of(base_offset=0, leader_epoch=0, append_timestamp_ms=0)
    assert parse_message(b"".join(encoded.values())) == expected


def test_parse_message_without_what_may_be_left_unsaid_fills_it_in() -> None:
    encoded = fields_of(batch_of())
    for number in (3, 16):
        del encoded[number]
    assert parse_message(b"".join(encoded.values())) == batch_of()


def test_parse_message_without_the_uncompressed_size_leaves_that_to_whoever_opens_the_records() -> None:
    encoded = fields_of(batch_of())
    del encoded[15]
    assert parse_message(b"".join(encoded.values())) == batch_of(uncompressed_bytes=0)


def test_parse_message_with_a_field_twice_takes_the_last() -> None:
    encoded = fields_of(batch_of())
    other = fields_of(batch_of(b"other records", base_sequence=1, codec=Codec.LZ4, producer_id=5))
    assert parse_message(b"".join([*other.values(), *encoded.values()])) == batch_of()


def test_parse_message_with_a_field_after_a_canonical_message_takes_it() -> None:
    batch = batch_of()
    unknown = field(99, b"from a newer client", BYTES)
    assert parse_message(batch.message() + unknown) == batch
    again = field(1, 0, FIXED32) + field(11, 9, FIXED32)
    assert parse_message(batch.message() + again) == batch_of(base_sequence=9)


@pytest.mark.parametrize("padded", [2, 3, 5])
def test_parse_message_with_varints_longer_than_needed_gives_the_same_batch(padded: int) -> None:
    assert parse_message(b"".join(fields_of(batch_of(), padded).values())) == batch_of()


def test_parse_message_with_unknown_fields_anywhere_gives_the_same_batch() -> None:
    group = varint(50 << 3 | 3) + field(1, 5, VARINT) + varint(50 << 3 | 4)
    unknown = [field(18, 5, VARINT), field(200, b"xyz", BYTES), field(19, 1, FIXED64), field(20, 1, FIXED32), group]
    mixed = b"".join(unknown[index % len(unknown)] + part for index, part in enumerate(fields_of(batch_of()).values()))
    assert parse_message(mixed) == batch_of()


def test_parse_message_with_a_known_field_of_another_wire_type_does_not_take_it() -> None:
    encoded = fields_of(batch_of(producer_id=0))
    assert parse_message(b"".join(encoded.values()) + field(9, 5, VARINT)) == batch_of(producer_id=0)


def test_parse_message_of_nothing_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="unknown codec 0"):
        parse_message(b"")


@pytest.mark.parametrize("message", [b"\x8a", b"\x8a\x01\x05abc", b"\x0f", b"\x00\x00", b"\xff" * 200])
def test_parse_message_of_bytes_that_are_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(CorruptBatch, match="not a RecordBatch message"):
        parse_message(message)


def test_parse_message_with_wrong_checksums_is_refused_in_any_encoding() -> None:
    batch = batch_of()
    encoded = b"".join(fields_of(batch).values())
    assert parse_message(field(1, header_crc(batch), FIXED32) + encoded) == batch
    with pytest.raises(CorruptBatch, match="the header's checksum is wrong"):
        parse_message(field(1, header_crc(batch) ^ 1, FIXED32) + encoded)
    with pytest.raises(CorruptBatch, match="the records' checksum is wrong"):
        parse_message(encoded + field(16, crc32c(RECORDS) ^ 1, FIXED32))
    with pytest.raises(CorruptBatch, match="the records' checksum is wrong"):
        parse_message(batch_of(records_crc32c=1).message())


def test_parse_message_with_any_single_bit_flipped_is_refused_or_means_the_same() -> None:
    batch = batch_of(b"tiny")
    for encoded in (batch.message(), log_pb2.RecordBatch.FromString(batch.message()).SerializeToString()):
        for position in range(len(encoded)):
            for bit in range(8):
                damaged = bytearray(encoded)
                damaged[position] ^= 1 << bit
                try:
                    parsed = parse_message(bytes(damaged))
                except CorruptBatch:
                    continue
                # A flip in the tag of a checksum only leaves that checksum unsaid.
                assert parsed == batch, (position, bit)
