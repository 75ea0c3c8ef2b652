"""The bytes of the batch format, as they were when it was frozen.

What is not compressed must be written byte for byte as the files say. Compressors may change from version to version,
so for the codecs only reading is frozen. ``LOGRAFT_REWRITE_GOLDEN=1`` writes the files again, which is right only
together with a new version of the format.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lograft.contract.batch import HEADER_SIZE, Batch, BatchHeader, parse_message, read_batch, read_batches, stamped
from lograft.contract.codecs import Codec
from lograft.contract.records import Record, decode_batch, encode_batch, encode_compacted
from lograft.v1 import log_pb2

ROOT = Path(__file__).parents[2]
FILES = Path(__file__).parent / "files"
REWRITE = os.environ.get("LOGRAFT_REWRITE_GOLDEN") == "1"

RICH_HEADERS = {0: [("trace", b"\x01\x02"), ("trace", None)], 3: [("schlüssel", b"")]}
RICH_ROWS = [
    Record(7, 1_700_000_000_500, b"key", b"value", RICH_HEADERS[0]),
    Record(8, 1_700_000_000_400, b"", None, ()),
    Record(9, 1_700_000_000_500, None, b"", ()),
    Record(10, 1_700_000_000_900, b"key", b"\x00\xff", RICH_HEADERS[3]),
]
CODEC_ROWS = [Record(20 + index, 1_700_000_001_000, b"key %d" % index, b"value " * 10) for index in range(3)]


def placed(batch: Batch, base_offset: int) -> Batch:
    return Batch(stamped(batch.header, base_offset, 5, 1_700_000_002_000), batch.records)


def plain() -> Batch:
    return placed(encode_batch([b"one", b"two"], timestamps_ms=1_700_000_000_000), 5)


def rich() -> Batch:
    batch = encode_batch(
        [row.value for row in RICH_ROWS],
        keys=[row.key for row in RICH_ROWS],
        timestamps_ms=[row.timestamp_ms for row in RICH_ROWS],
        headers=RICH_HEADERS,
        producer_id=42,
        producer_epoch=2,
        base_sequence=100,
    )
    return placed(batch, 7)


def compacted() -> Batch:
    columns = decode_batch(rich()).where([False, True, False, True])
    return encode_compacted(rich().header, columns, delete_horizon_ms=1_700_000_009_000)


def emptied() -> Batch:
    columns = decode_batch(rich()).where([False] * 4)
    return encode_compacted(rich().header, columns, delete_horizon_ms=0)


def packed(codec: Codec) -> Batch:
    batch = encode_batch(
        [row.value for row in CODEC_ROWS],
        keys=[row.key for row in CODEC_ROWS],
        timestamps_ms=1_700_000_001_000,
        codec=codec,
    )
    return placed(batch, 20)


# name: (what it shows, how it is made, what it holds)
EXACT = {
    "plain": (
        "two values, one timestamp, nothing else",
        plain,
        [Record(5, 1_700_000_000_000, None, b"one"), Record(6, 1_700_000_000_000, None, b"two")],
    ),
    "rich": ("keys, nulls, empties, headers, timestamps, an idempotent producer", rich, RICH_ROWS),
    "compacted": (
        "'rich' with its first and third record removed",
        compacted,
        [RICH_ROWS[1], RICH_ROWS[3]],
    ),
    "emptied": ("'rich' with every record removed", emptied, []),
}


def golden(name: str, lines: dict[str, tuple[str, str]]) -> dict[str, str]:
    """The frozen lines of a file; ``lines`` (name: comment, content) is what a rewrite puts there."""
    path = FILES / name
    if REWRITE:
        path.parent.mkdir(exist_ok=True)
        text = "".join(f"# {comment}\n{key} {content}\n" for key, (comment, content) in lines.items())
        path.write_text(f"# Written by tests/golden/test_golden_batch.py: name and bytes in hex.\n{text}")
    content = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split(" ", 1) for line in content)


@pytest.fixture(scope="module")
def exact() -> dict[str, str]:
    return golden("batches.hex", {name: (shows, make().frame().hex()) for name, (shows, make, _) in EXACT.items()})


@pytest.fixture(scope="module")
def codecs() -> dict[str, str]:
    lines = {
        codec.name.lower(): (f"three records, codec {codec.value}", packed(codec).frame().hex()) for codec in Codec
    }
    return golden("codecs.hex", lines)


@pytest.fixture(scope="module")
def segment() -> bytes:
    path = FILES / "segment.log"
    if REWRITE:
        path.write_bytes(b"".join(make().frame() for make in (plain, compacted, lambda: packed(Codec.NONE))))
    return path.read_bytes()


# --- exact bytes


@pytest.mark.requirement("R32")
def test_golden_files_hold_exactly_the_known_cases(exact: dict[str, str], codecs: dict[str, str]) -> None:
    assert list(exact) == list(EXACT)
    assert list(codecs) == [codec.name.lower() for codec in Codec]


@pytest.mark.requirement("R32")
@pytest.mark.parametrize("name", EXACT)
def test_golden_batch_is_written_and_read_as_it_was(name: str, exact: dict[str, str]) -> None:
    _, make, rows = EXACT[name]
    frame = bytes.fromhex(exact[name])
    assert make().frame().hex() == exact[name]
    assert read_batch(frame) == make()
    assert decode_batch(read_batch(frame)).rows() == rows


@pytest.mark.requirement("R32")
def test_golden_header_has_the_documented_bytes(exact: dict[str, str]) -> None:
    # Field by field as in docs/formats/batch.md.
    expected = (
        "0a f780808000"  # batches = 1, length 119
        "0d 3de6c614"  # header_crc32c
        "11 0500000000000000"  # base_offset
        "1d 01000000"  # last_offset_delta
        "25 05000000"  # leader_epoch
        "29 d06fe5cf8b010000"  # append_timestamp_ms
        "35 02000000"  # record_count
        "39 0068e5cf8b010000"  # base_timestamp_ms
        "41 0068e5cf8b010000"  # max_timestamp_ms
        "49 0000000000000000"  # producer_id
        "55 00000000"  # producer_epoch
        "5d 00000000"  # base_sequence
        "60 01"  # codec
        "6d 00000000"  # flags
        "71 0000000000000000"  # delete_horizon_ms
        "7d 0a000000"  # uncompressed_bytes
        "8501 768043cf"  # records_crc32c
        "8a01 8a80808000"  # records, length 10
        "0a03 6f6e65 0a03 74776f"  # Records: values = "one", "two"
    )
    assert exact["plain"] == expected.replace(" ", "")


DOCUMENTED_ROW = re.compile(r"\| (\d+) \| `([0-9a-f]+)` \| (\d+) \| (\d+) \| (.+) \|")


def test_documented_table_says_where_each_field_lies(exact: dict[str, str]) -> None:
    frame = bytes.fromhex(exact["rich"])
    batch = read_batch(frame)
    rows = DOCUMENTED_ROW.findall((ROOT / "docs" / "formats" / "batch.md").read_text())
    end = 0
    named = []
    for position, tag, value_at, size, field in rows:
        assert int(position) == end
        assert frame[end : int(value_at)].hex() == tag
        end = int(value_at) + int(size)
        value = int.from_bytes(frame[int(value_at) : end], "little")
        named.append(field.strip("`"))
        if named[-1] in BatchHeader._fields:
            assert value == getattr(batch.header, named[-1]), field
    assert end == HEADER_SIZE
    assert set(BatchHeader._fields) - set(named) == {"records_bytes"}


def crc32c_bit_by_bit(data: bytes) -> int:
    """CRC-32C from its definition, independent of the library that the code uses."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize("name", EXACT)
def test_golden_checksums_are_crc32c_of_the_documented_ranges(name: str, exact: dict[str, str]) -> None:
    frame = bytes.fromhex(exact[name])
    assert frame[7:11] == crc32c_bit_by_bit(frame[11:115]).to_bytes(4, "little")
    assert frame[104:108] == crc32c_bit_by_bit(frame[115:]).to_bytes(4, "little")


@pytest.mark.requirement("R28")
@pytest.mark.parametrize("name", EXACT)
def test_golden_batch_in_the_standard_encoding_becomes_the_canonical_bytes(name: str, exact: dict[str, str]) -> None:
    frame = bytes.fromhex(exact[name])
    (parsed,) = log_pb2.Segment.FromString(frame).batches
    assert parse_message(parsed.SerializeToString()).frame() == frame


@pytest.mark.requirement("R32")
@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_golden_compressed_batch_is_read_as_it_was(codec: Codec, codecs: dict[str, str]) -> None:
    batch = read_batch(bytes.fromhex(codecs[codec.name.lower()]))
    assert batch.header.codec == codec
    assert decode_batch(batch).rows() == CODEC_ROWS


# --- a segment file


@pytest.mark.requirement("R32")
def test_golden_segment_is_read_as_it_was(segment: bytes) -> None:
    batches = list(read_batches(segment))
    assert batches == [plain(), compacted(), packed(Codec.NONE)]
    assert [row for batch in batches for row in decode_batch(batch).rows()] == [
        *EXACT["plain"][2],
        *EXACT["compacted"][2],
        *CODEC_ROWS,
    ]


def header_lines(header: BatchHeader) -> dict[str, str]:
    """The fields of a header as protoc prints them; it leaves out zeros."""
    names = set(BatchHeader._fields) - {"records_bytes", "codec"}
    fields = {name: str(getattr(header, name)) for name in names if getattr(header, name)}
    return fields | {"codec": f"CODEC_{Codec(header.codec).name}"}


@pytest.mark.requirement("R6", "R28")
def test_golden_segment_decoded_by_protoc_shows_every_batch(segment: bytes) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", "--decode=lograft.v1.Segment", "-Iproto"]
    done = subprocess.run(
        [*command, "proto/lograft/v1/log.proto"], cwd=ROOT, input=segment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    blocks = done.stdout.decode().split("batches {")[1:]
    printed = [dict(line.strip().split(": ", 1) for line in block.splitlines() if ": " in line) for block in blocks]
    assert len(printed) == 3
    for shown, batch in zip(printed, read_batches(segment), strict=True):
        assert shown.pop("header_crc32c") == str(int.from_bytes(batch.message()[1:5], "little"))
        records = shown.pop("records")
        assert shown == header_lines(batch.header)
        assert records.startswith('"\\n')  # the tag of the first value
    assert "one" in blocks[0]
    assert "two" in blocks[0]
