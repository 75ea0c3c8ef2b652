"""Compression: each codec there and back, exactly one frame, and no more memory than the limit."""

import json
import subprocess
import sys
import zlib
from typing import Any

import lz4.frame
import pytest
import zstandard

from lograft.contract.codecs import Codec, compress, decompress
from lograft.contract.errors import CorruptBatch, InvalidRequest
from lograft.v1 import log_pb2

COMPRESSING = [Codec.ZSTD, Codec.LZ4, Codec.GZIP]
SAMPLES = [b"", b"a", b"abc" * 1000, bytes(range(256)) * 300, b"\x00" * 1_000_000]


def test_codec_numbers_are_those_of_the_proto() -> None:
    assert {f"CODEC_{codec.name}": codec.value for codec in Codec} | {"CODEC_UNSPECIFIED": 0} == dict(
        log_pb2.Codec.items()
    )


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_data_compressed_and_decompressed_is_the_same(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("name", ["zstd", "ZSTD", "Zstd"])
def test_codec_named_in_any_case_is_found(name: str) -> None:
    assert Codec.named(name) is Codec.ZSTD


@pytest.mark.parametrize("name", ["snappy", "", "unspecified"])
def test_codec_named_wrongly_is_refused_with_the_choices(name: str) -> None:
    with pytest.raises(InvalidRequest, match="choose one of none, zstd, lz4, gzip"):
        Codec.named(name)


@pytest.mark.parametrize("codec", [0, 5, "zstd", None])
def test_compress_with_an_unknown_codec_is_refused(codec: Any) -> None:
    with pytest.raises(InvalidRequest, match="unknown codec"):
        compress(codec, b"abc")


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_frame_with_anything_behind_it_is_refused(codec: Codec, data: bytes) -> None:
    frame = compress(codec, data)
    for trailing in (b"\x00", b"trailing", frame, compress(codec, b"more"), frame * 5):
        with pytest.raises(CorruptBatch, match=codec.name.lower()):
            decompress(codec, frame + trailing, 2_000_000)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("data", [b"", b"abc" * 1000], ids=len)
def test_frame_cut_anywhere_is_refused(codec: Codec, data: bytes) -> None:
    frame = compress(codec, data)
    for size in range(len(frame)):
        with pytest.raises(CorruptBatch):
            decompress(codec, frame[:size], len(data))


@pytest.mark.parametrize("codec", COMPRESSING)
def test_frame_that_unpacks_to_one_byte_above_the_limit_is_refused(codec: Codec) -> None:
    data = b"abc" * 1000
    frame = compress(codec, data)
    assert decompress(codec, frame, 3000) == decompress(codec, frame, 3001) == data
    for limit in (2999, 1, 0):
        with pytest.raises(CorruptBatch, match=f"limit of {limit}"):
            decompress(codec, frame, limit)


def test_zstd_frame_without_a_declared_size_is_read_within_the_limit_and_refused_above() -> None:
    data = b"abc" * 1000
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    assert zstandard.frame_content_size(frame) == -1
    assert decompress(Codec.ZSTD, frame, 3000) == data
    for limit in (2999, 1, 0):
        with pytest.raises(CorruptBatch):
            decompress(Codec.ZSTD, frame, limit)
    for wrong in (frame[:-1], frame + b"\x00", frame + frame):
        for limit in (3000, 3001, 10_000):
            with pytest.raises(CorruptBatch):
                decompress(Codec.ZSTD, wrong, limit)


def test_zstd_frame_that_is_empty_without_a_declared_size_is_read() -> None:
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(b"")
    assert zstandard.frame_content_size(frame) == -1
    for limit in (0, 1, 100):
        assert decompress(Codec.ZSTD, frame, limit) == b""
        with pytest.raises(CorruptBatch):
            decompress(Codec.ZSTD, frame + frame, limit)


def test_zstd_frame_with_a_checksum_is_read_and_its_damage_seen() -> None:
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(b"abc" * 1000)
    assert decompress(Codec.ZSTD, frame, 3000) == b"abc" * 1000
    with pytest.raises(CorruptBatch):
        decompress(Codec.ZSTD, frame[:-1] + bytes([frame[-1] ^ 1]), 3000)
    empty = zstandard.ZstdCompressor(write_checksum=True).compress(b"")
    assert decompress(Codec.ZSTD, empty, 0) == b""


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.LZ4])
def test_skippable_frame_beside_another_is_refused(codec: Codec) -> None:
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    for data in (skippable + compress(codec, b"abc"), compress(codec, b"abc") + skippable):
        with pytest.raises(CorruptBatch):
            decompress(codec, data, 100)


def test_lz4_frame_with_checksums_and_declared_size_is_read_and_its_damage_seen() -> None:
    data = b"abc" * 1000
    frame = lz4.frame.compress(data, content_checksum=True, block_checksum=True, store_size=True)
    assert decompress(Codec.LZ4, frame, 3000) == data
    with pytest.raises(CorruptBatch):
        decompress(Codec.LZ4, frame[:-1] + bytes([frame[-1] ^ 1]), 3000)
    without_size = lz4.frame.compress(data, store_size=False)
    assert decompress(Codec.LZ4, without_size, 3000) == data


def test_gzip_data_with_another_wrapper_is_refused() -> None:
    for wbits in (15, -15):
        with pytest.raises(CorruptBatch, match="gzip"):
            decompress(Codec.GZIP, zlib.compress(b"abc" * 1000, wbits=wbits), 3000)


def test_gzip_member_with_a_wrong_checksum_or_size_is_refused() -> None:
    frame = compress(Codec.GZIP, b"abc" * 1000)
    for position in (-8, -1):
        damaged = bytearray(frame)
        damaged[position] ^= 1
        with pytest.raises(CorruptBatch, match="gzip"):
            decompress(Codec.GZIP, bytes(damaged), 3000)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_data_of_one_codec_read_as_another_is_refused(codec: Codec) -> None:
    for other in COMPRESSING:
        if other is not codec:
            with pytest.raises(CorruptBatch):
                decompress(other, compress(codec, b"abc" * 100), 300)


# Each bomb unpacks to about a gigabyte. In a process of its own: the memory that the libraries take is not Python's.
_BOMBS = """
import json, resource, struct, sys, zlib
import lz4.frame, zstandard
from lograft.contract.codecs import Codec, decompress
from lograft.contract.errors import CorruptBatch

MEGA = bytes(1 << 20)
LIMIT = 8 << 20

def zstd(size, **options):
    stream = zstandard.ZstdCompressor(**options).compressobj(**size)
    return b"".join([stream.compress(MEGA) for _ in range(1024)] + [stream.flush()])

def zstd_wide():
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=27, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return b"".join([stream.compress(MEGA) for _ in range(256)] + [stream.flush()])

def gzip():
    stream = zlib.compressobj(9, wbits=31)
    head = stream.compress(MEGA) + stream.flush(zlib.Z_FULL_FLUSH)
    block = stream.compress(MEGA) + stream.flush(zlib.Z_FULL_FLUSH)
    return head + block * 1024

def lz4_frame(**options):
    stream = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False, auto_flush=True)
    begin = stream.begin(**options)
    return begin + stream.compress(MEGA * 4) * 256 + bytes(4)

honest = zstd({"size": 1 << 30})
bombs = {
    "zstd, declared": (Codec.ZSTD, honest),
    "zstd, not declared": (Codec.ZSTD, zstd({}, write_content_size=False)),
    "zstd, wide window": (Codec.ZSTD, zstd_wide()),
    # A single-segment frame header whose size field lies: far too much, nothing, and just within the limit.
    "zstd, declares 2^60": (Codec.ZSTD, struct.pack("<IBQ", 0xFD2FB528, 0xE0, 1 << 60) + honest[16:]),
    "zstd, declares 0": (Codec.ZSTD, struct.pack("<IBBI", 0xFD2FB528, 0x80, 0x88, 0) + honest[10:]),
    "zstd, declares the limit": (Codec.ZSTD, struct.pack("<IBBI", 0xFD2FB528, 0x80, 0x88, LIMIT) + honest[10:]),
    "lz4": (Codec.LZ4, lz4_frame()),
    "lz4, declared": (Codec.LZ4, lz4_frame(source_size=1 << 30)),
    "gzip": (Codec.GZIP, gzip()),
}
del MEGA
report = {}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
# Should a limit not hold, the process dies here instead of the machine.
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
for name, (codec, bomb) in bombs.items():
    for _ in range(3):
        try:
            decompress(codec, bomb, LIMIT)
        except CorruptBatch as error:
            report[name] = str(error)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"refused": report, "bombs": list(bombs), "grown_kb": peak - before}))
"""


@pytest.mark.requirement("R27")
def test_decompression_bombs_are_refused_in_bounded_memory() -> None:
    done = subprocess.run([sys.executable, "-c", _BOMBS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert sorted(report["refused"]) == sorted(report["bombs"])
    assert report["grown_kb"] < 64 << 10
