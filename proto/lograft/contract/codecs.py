"""Compression of record bytes, with a hard limit on what comes out.

Pure: bytes in, bytes out. A compressed batch says how large it is inside; whatever turns out larger is refused before
the memory is spent, so a decompression bomb costs its sender a `CorruptBatch` and nobody else anything.
"""

import threading
import zlib
from collections.abc import Callable
from enum import IntEnum

import lz4.frame
import zstandard

from lograft.contract.errors import CorruptBatch, InvalidRequest
from lograft.v1 import log_pb2


class Codec(IntEnum):
    """How the records of a batch are compressed; the numbers are those of ``lograft.v1.Codec``."""

    NONE = log_pb2.CODEC_NONE
    ZSTD = log_pb2.CODEC_ZSTD
    LZ4 = log_pb2.CODEC_LZ4
    GZIP = log_pb2.CODEC_GZIP

    @classmethod
    def named(cls, name: str) -> "Codec":
        """The codec a user means by ``name`` ("none", "zstd", "lz4" or "gzip")."""
        try:
            return cls[name.upper()]
        except KeyError:
            known = ", ".join(codec.name.lower() for codec in cls)
            raise InvalidRequest(f"unknown codec {name!r}: choose one of {known}") from None


class _ThreadContexts(threading.local):
    """zstd contexts are costly to make and must not be shared between threads."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=3)
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _ThreadContexts()
# An empty frame: 18 bytes of header, an empty block of 3 and a checksum of 4, at most.
_EMPTY_ZSTD_FRAME_BYTES = 25
_GZIP_WINDOW = 31  # zlib's 15 bits of window plus 16 for the gzip wrapper


def compress(codec: Codec, data: bytes) -> bytes:
    """Compress ``data`` as one frame of ``codec``."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.ZSTD:
            return _contexts.compressor.compress(data)
        case Codec.LZ4:
            compressed: bytes = lz4.frame.compress(data)
            return compressed
        case Codec.GZIP:
            return zlib.compress(data, level=6, wbits=_GZIP_WINDOW)
        case _:
            raise InvalidRequest(f"unknown codec {codec!r}: pass a Codec")


def decompress(codec: Codec, data: bytes, limit_bytes: int) -> bytes:
    """Undo `compress`. At most ``limit_bytes`` may come out, and nothing may follow the frame."""
    if codec is Codec.NONE:
        return data
    try:
        plain, complete = _DECOMPRESS[codec](data, limit_bytes)
    except (zstandard.ZstdError, RuntimeError, zlib.error, EOFError) as error:
        raise CorruptBatch(f"the records are not sound {codec.name.lower()} data ({error})") from None
    if len(plain) > limit_bytes:
        raise CorruptBatch(f"the records unpack to more than the declared limit of {limit_bytes} bytes")
    if not complete:
        raise CorruptBatch(f"the records are not exactly one {codec.name.lower()} frame")
    return plain


def _decompress_zstd(data: bytes, limit_bytes: int) -> tuple[bytes, bool]:
    declared = zstandard.frame_content_size(data)
    if declared > limit_bytes:
        # `max_output_size` does not hold for frames that declare their size: zstandard would allocate it.
        raise CorruptBatch(f"the records declare {declared} bytes, above the declared limit of {limit_bytes}")
    if declared == 0:  # zstandard answers b"" without a look at the rest
        return b"", _is_empty_zstd_frame(data)
    decompressor, room = _contexts.decompressor, max(limit_bytes, 1)  # 0 would mean no limit
    # Without a declared size, a frame that unpacks to more than the limit is a ZstdError.
    plain = decompressor.decompress(data, max_output_size=room, allow_extra_data=False)
    if declared < 0 and len(plain) < room:
        # zstandard notices extra data only when there is no room left for output, so give it none.
        if not plain:
            return plain, _is_empty_zstd_frame(data)
        decompressor.decompress(data, max_output_size=len(plain), allow_extra_data=False)
    return plain, True


def _is_empty_zstd_frame(data: bytes) -> bool:
    if len(data) > _EMPTY_ZSTD_FRAME_BYTES or not data.startswith(zstandard.FRAME_HEADER):
        return False
    frame = _contexts.decompressor.decompressobj()
    return not frame.decompress(data) and frame.eof and not frame.unused_data


def _decompress_lz4(data: bytes, limit_bytes: int) -> tuple[bytes, bool]:
    decompressor = lz4.frame.LZ4FrameDecompressor()
    plain: bytes = decompressor.decompress(data, max_length=limit_bytes + 1)
    return plain, decompressor.eof and not decompressor.unused_data


def _decompress_gzip(data: bytes, limit_bytes: int) -> tuple[bytes, bool]:
    decompressor = zlib.decompressobj(_GZIP_WINDOW)
    plain = decompressor.decompress(data, limit_bytes + 1)
    return plain, decompressor.eof and not decompressor.unused_data


_DECOMPRESS: dict[Codec, Callable[[bytes, int], tuple[bytes, bool]]] = {
    Codec.ZSTD: _decompress_zstd,
    Codec.LZ4: _decompress_lz4,
    Codec.GZIP: _decompress_gzip,
}
