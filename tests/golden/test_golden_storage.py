"""The bytes of the files around the segments, and a whole partition's directory, as they were when they were frozen.

``LOGRAFT_REWRITE_GOLDEN=1`` writes the files again, which is right only together with a new version of the format.
"""

import os
import re
import shutil
from array import array
from pathlib import Path

import pytest
from google.protobuf.message import Message

from lograft.contract.codecs import Codec
from lograft.contract.errors import StorageCorrupted, UnsupportedVersion
from lograft.contract.records import Record, encode_batch
from lograft.contract.small_files import Kind, decode_small_file, encode_small_file
from lograft.storage import LogConfig, PartitionLog
from lograft.storage.core.producer_state import ProducerEntry, RememberedBatch
from lograft.storage.index import KIND_OFFSETS, KIND_TIMES, SegmentSummary, decode_index, encode_index
from lograft.storage.inspect import PartitionChecked, inspect
from lograft.v1 import storage_pb2

pytestmark = pytest.mark.requirement("R32")

ROOT = Path(__file__).parents[2]
FILES = Path(__file__).parent / "files"
REWRITE = os.environ.get("LOGRAFT_REWRITE_GOLDEN") == "1"
NOW_MS = 1_700_000_000_000

SUMMARY = SegmentSummary(1000, 1234, 56_789, NOW_MS, NOW_MS + 5, NOW_MS + 9)
PLACES = [0 << 32 | 0, 100 << 32 | 16_400, 201 << 32 | 33_000]
TIMES = [0, NOW_MS + 1, NOW_MS + 9]
INDEXES = {"offsets": (KIND_OFFSETS, PLACES), "times": (KIND_TIMES, TIMES), "empty": (KIND_OFFSETS, [])}

_BATCHES = [
    storage_pb2.ProducerBatch(
        base_sequence=5, last_sequence=7, base_offset=1100, last_offset_delta=2, append_timestamp_ms=NOW_MS
    ),
    storage_pb2.ProducerBatch(
        base_sequence=8, last_sequence=8, base_offset=1103, last_offset_delta=0, append_timestamp_ms=NOW_MS + 1
    ),
]
_PRODUCERS = [storage_pb2.ProducerEntry(producer_id=42, producer_epoch=3, batches=_BATCHES)]
SMALL_FILES: dict[str, tuple[Kind, Message]] = {
    "directory.meta": (
        Kind.DIRECTORY_META,
        storage_pb2.DirectoryMeta(cluster_id="cluster-1", broker_id=7, directory_id="0123456789abcdef" * 2),
    ),
    "partition.meta": (
        Kind.PARTITION_META,
        storage_pb2.PartitionMeta(topic_id="fedcba9876543210" * 2, topic="orders", partition=12),
    ),
    "checkpoint": (
        Kind.CHECKPOINT,
        storage_pb2.PartitionCheckpoint(
            flushed_end_offset=1234,
            flushed_segment_base=1000,
            flushed_position=56_789,
            log_start_offset=10,
            high_watermark=1200,
            compacted_end_offset=900,
            epochs=[
                storage_pb2.EpochStart(epoch=1, start_offset=10),
                storage_pb2.EpochStart(epoch=4, start_offset=1100),
            ],
            close_state=storage_pb2.CLOSE_STATE_OPEN,
            producers=_PRODUCERS,
            cut_bytes=77,
        ),
    ),
    "checkpoint-clean": (
        Kind.CHECKPOINT,
        storage_pb2.PartitionCheckpoint(close_state=storage_pb2.CLOSE_STATE_CLEAN),
    ),
    "checkpoint-sync-failed": (
        Kind.CHECKPOINT,
        storage_pb2.PartitionCheckpoint(close_state=storage_pb2.CLOSE_STATE_SYNC_FAILED, trusted_end_offset=1100),
    ),
    "producers": (Kind.PRODUCERS, storage_pb2.ProducerSnapshot(offset=1000, producers=_PRODUCERS)),
}


def golden(name: str, lines: dict[str, bytes]) -> dict[str, bytes]:
    """The frozen lines of a file; ``lines`` is what a rewrite puts there."""
    path = FILES / name
    if REWRITE:
        text = "".join(f"{key} {content.hex()}\n" for key, content in lines.items())
        path.write_text(f"# Written by tests/golden/test_golden_storage.py: name and bytes in hex.\n{text}")
    content = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return {name: bytes.fromhex(hexadecimal) for name, hexadecimal in (line.split(" ") for line in content)}


@pytest.fixture(scope="module")
def indexes() -> dict[str, bytes]:
    return golden(
        "indexes.hex", {name: encode_index(kind, SUMMARY, array("Q", rows)) for name, (kind, rows) in INDEXES.items()}
    )


@pytest.fixture(scope="module")
def small_files() -> dict[str, bytes]:
    lines = {name: encode_small_file(kind, message) for name, (kind, message) in SMALL_FILES.items()}
    return golden("small-files.hex", lines)


# --- indexes


def test_golden_files_when_listed_then_hold_exactly_the_known_cases(
    indexes: dict[str, bytes], small_files: dict[str, bytes]
) -> None:
    assert list(indexes) == list(INDEXES)
    assert list(small_files) == list(SMALL_FILES)


@pytest.mark.parametrize("name", INDEXES)
def test_golden_index_when_written_and_read_then_is_as_it_was(name: str, indexes: dict[str, bytes]) -> None:
    kind, rows = INDEXES[name]
    assert encode_index(kind, SUMMARY, array("Q", rows)).hex() == indexes[name].hex()
    assert decode_index(indexes[name], kind) == (SUMMARY, array("Q", rows))
    assert decode_index(indexes[name], 3 - kind) is None
    assert decode_index(indexes[name][:-1], kind) is None
    assert decode_index(indexes[name] + b"\0", kind) is None


def test_golden_index_when_read_by_its_table_then_has_the_documented_bytes(indexes: dict[str, bytes]) -> None:
    values = documented(ROOT / "docs" / "formats" / "index.md", indexes["offsets"])
    assert values == {
        "magic": int.from_bytes(b"LGIX", "little"),
        "version": 1,
        "kind": 1,
        "crc32c": crc32c_bit_by_bit(indexes["offsets"][12:]),
        "row_count": 3,
        **SUMMARY._asdict(),
    }


# --- small files


@pytest.mark.parametrize("name", SMALL_FILES)
def test_golden_small_file_when_written_and_read_then_is_as_it_was(name: str, small_files: dict[str, bytes]) -> None:
    kind, message = SMALL_FILES[name]
    content = small_files[name]
    assert encode_small_file(kind, message).hex() == content.hex()
    assert decode_small_file(content, kind, type(message), Path("file")) == message
    for other in set(Kind) - {kind}:
        with pytest.raises(StorageCorrupted, match="instead of"):
            decode_small_file(content, other, type(message), Path("file"))


@pytest.mark.parametrize("name", SMALL_FILES)
def test_golden_small_file_when_read_by_its_table_then_has_the_documented_bytes(
    name: str, small_files: dict[str, bytes]
) -> None:
    kind, message = SMALL_FILES[name]
    content = small_files[name]
    assert documented(ROOT / "docs" / "formats" / "small-files.md", content) == {
        "magic": int.from_bytes(b"LGRF", "little"),
        "version": 1,
        "kind": kind,
        "body_bytes": len(content) - 16,
        "crc32c": crc32c_bit_by_bit(content[4:12] + content[16:]),
    }
    assert type(message).FromString(content[16:]) == message


def test_small_file_when_of_a_newer_version_then_says_so(small_files: dict[str, bytes]) -> None:
    content = small_files["partition.meta"]
    covered = (2).to_bytes(2, "little") + content[6:12]
    crc = crc32c_bit_by_bit(covered + content[16:])
    newer = content[:4] + covered + crc.to_bytes(4, "little") + content[16:]
    with pytest.raises(UnsupportedVersion, match="version 2"):
        decode_small_file(newer, Kind.PARTITION_META, storage_pb2.PartitionMeta, Path("file"))


DOCUMENTED_ROW = re.compile(r"^\| (\d+) \| (\d+) \| `(\w+)` \|", re.MULTILINE)


def documented(page: Path, content: bytes) -> dict[str, int]:
    """The fields of a header as the table of a page says where they lie, without a gap."""
    values = {}
    end = 0
    for position, size, field in DOCUMENTED_ROW.findall(page.read_text()):
        assert int(position) == end
        end += int(size)
        values[field] = int.from_bytes(content[int(position) : end], "little")
    return values


def crc32c_bit_by_bit(data: bytes) -> int:
    """CRC-32C from its definition, independent of the library that the code uses."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


# --- a whole partition

PARTITION = FILES / "golden-0"
TOPIC_ID = "00112233445566778899aabbccddeeff"
CONFIG = LogConfig(segment_bytes=1024, max_batch_bytes=1024, index_interval_bytes=300, retention_ms=None)


def expected_records() -> list[Record]:
    """Offsets 4 to 23: the log start was moved there."""
    return [
        Record(
            offset,
            NOW_MS + offset // 2 * 10 - offset % 2,
            b"key %d" % (offset // 2 % 4) if offset % 2 == 0 else None,
            b"value %d" % offset if offset % 5 else None,
            [("n", b"%d" % offset)] if offset % 2 == 0 else (),
        )
        for offset in range(24)
    ][4:]


def write_partition(path: Path) -> None:
    """Twelve batches of two records: two producers, three epochs, uncompressed (compressors change), log start 4."""
    clock = [NOW_MS]
    with PartitionLog.open(path, CONFIG, topic_id=TOPIC_ID, now_ms=lambda: clock[0]) as log:
        for number in range(12):
            clock[0] = NOW_MS + number * 10
            offset = 2 * number
            batch = encode_batch(
                [b"value %d" % each if each % 5 else None for each in (offset, offset + 1)],
                keys=[b"key %d" % (number % 4), None],
                timestamps_ms=[clock[0], clock[0] - 1],
                headers={0: [("n", b"%d" % offset)]},
                codec=Codec.NONE,
                producer_id=1 + number % 2,
                base_sequence=number // 2 * 2,
            )
            log.append(batch, leader_epoch=number // 5)
        log.delete_records(4)
    (path / ".lock").unlink()


@pytest.fixture(scope="module")
def partition() -> Path:
    if REWRITE:
        shutil.rmtree(PARTITION, ignore_errors=True)
        write_partition(PARTITION)
    return PARTITION


@pytest.mark.requirement("R9", "R32")
def test_golden_partition_when_opened_then_holds_exactly_what_was_written(partition: Path, tmp_path: Path) -> None:
    path = tmp_path / "golden-0"
    shutil.copytree(partition, path)
    with PartitionLog.open(path, CONFIG, topic_id=TOPIC_ID, now_ms=lambda: NOW_MS + 1000) as log:
        assert log.recovery.was_clean
        assert (log.recovery.cuts, log.recovery.rebuilt_indexes, log.recovery.unknown_files) == ([], [], [])
        assert list(log.records()) == expected_records()
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (4, 24, 24)
        assert log.epochs.entries() == [(0, 4), (1, 10), (2, 20)]
        assert dict(log.producers.entries())[1] == ProducerEntry(
            0,
            tuple(RememberedBatch(2 * turn, 2 * turn + 1, 4 * turn, 1, NOW_MS + 20 * turn) for turn in range(1, 6)),
        )
        assert log.offset_for_time(NOW_MS + 95) == (20, NOW_MS + 100)
        assert log.append(encode_batch([b"next"], timestamps_ms=NOW_MS)).base_offset == 24


def test_golden_partition_when_inspected_then_is_sound(partition: Path) -> None:
    [checked] = inspect(partition)
    assert isinstance(checked, PartitionChecked)
    assert (checked.batches, checked.records, checked.start_offset, checked.end_offset) == (12, 24, 4, 24)


def test_golden_partition_when_written_again_then_has_the_same_segments(partition: Path, tmp_path: Path) -> None:
    path = tmp_path / "golden-0"
    write_partition(path)
    # When caches are written may change; what is durable may not.
    for pattern in ("*.log", "partition.meta"):
        assert {file.name: file.read_bytes().hex() for file in path.glob(pattern)} == {
            file.name: file.read_bytes().hex() for file in partition.glob(pattern)
        }
