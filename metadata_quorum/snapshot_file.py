"""The snapshot file: pieces of the state, each with its length and CRC, replaced atomically and durably.

Its bytes are described in docs/formats/journal.md. They are also what a lagging node is sent. A snapshot that is not
whole is refused with `StorageCorrupted` before anything looks into it: a node that went on without it would start
empty, could win an election, and would commit with nothing applied.
"""

import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from lograft.contract.batch import crc32c
from lograft.contract.disk import Disk
from lograft.contract.errors import StorageCorrupted, UnsupportedVersion
from lograft.metadata_quorum.core.model import ClusterState
from lograft.metadata_quorum.core.snapshot import SnapshotLoader

SNAPSHOT = "snapshot"
INCOMING = "snapshot.incoming"
MAGIC = b"LGRS"
VERSION = 1
_HEADER = struct.Struct("<4sI")
# number of the piece, its length, CRC-32C of number and piece
_FRAME = struct.Struct("<III")
_NUMBER = struct.Struct("<I")
# Gives other threads of the process a turn, and the disk something to do, while a large state is encoded.
_WRITE_BYTES = 1 << 20


def framed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of a snapshot file."""
    yield _HEADER.pack(MAGIC, VERSION)
    for number, piece in enumerate(pieces):
        yield _FRAME.pack(number, len(piece), crc32c(_NUMBER.pack(number) + piece)) + piece


def write_snapshot(disk: Disk, directory: Path, pieces: Iterable[bytes]) -> int:
    """Replace the snapshot; returns its size. Blocks, so it runs in a thread."""
    temporary = directory / (SNAPSHOT + ".tmp")
    disk.remove(temporary)
    file = disk.open_file(temporary, create=True)
    position = 0
    try:
        buffers: list[bytes] = []
        for part in framed(pieces):
            buffers.append(part)
            if sum(map(len, buffers)) >= _WRITE_BYTES:
                disk.write(file, buffers, position)
                position += sum(map(len, buffers))
                buffers = []
        disk.write(file, buffers, position)
        position += sum(map(len, buffers))
        disk.sync_file(file)
    finally:
        os.close(file)
    disk.rename(temporary, directory / SNAPSHOT)
    disk.sync_directory(directory)
    return position


def read_pieces(path: Path) -> Iterator[bytes]:
    """The pieces of a snapshot file, each checked."""
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size or header[:4] != MAGIC:
            raise StorageCorrupted(str(path), 0, "not a snapshot of the quorum")
        version = _HEADER.unpack(header)[1]
        if version != VERSION:
            raise UnsupportedVersion(str(path), version, VERSION)
        number = 0
        while frame := file.read(_FRAME.size):
            position = file.tell() - len(frame)
            if len(frame) < _FRAME.size:
                raise StorageCorrupted(str(path), position, "the file ends inside a piece")
            found, length, crc = _FRAME.unpack(frame)
            piece = file.read(length)
            if len(piece) < length or crc32c(_NUMBER.pack(found) + piece) != crc:
                raise StorageCorrupted(str(path), position, "a piece is cut short or its checksum is wrong")
            if found != number:
                raise StorageCorrupted(str(path), position, f"piece {found} stands where piece {number} belongs")
            yield piece
            number += 1


def load_snapshot(path: Path) -> ClusterState:
    """The state in a snapshot file. Raises `StorageCorrupted` if it is not whole."""
    loader = SnapshotLoader()
    try:
        for piece in read_pieces(path):
            loader.add(piece)
        return loader.finish()
    except ValueError as error:
        raise StorageCorrupted(str(path), 0, str(error)) from None
