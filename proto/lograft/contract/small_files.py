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

MAGIC = b"LGRF"
VERSION = 1
# magic, version, kind, length of the body, CRC-32C of version, kind, length and body
_ENVELOPE = struct.Struct("<4sHHII")
_COVERED = struct.Struct("<HHI")


class Kind(IntEnum):
    """What a small file holds. Numbers are never reused."""

    DIRECTORY_META = 1
    PARTITION_META = 2
    CHECKPOINT = 3
    PRODUCERS = 4
    NODE_META = 5


_AnyMessage = TypeVar("_AnyMessage", bound=Message)


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
