"""The events that ``shim.c`` records, and their reader.

Owns the record format on the Python side: a header (magic, length, kind, flags, pid, two numbers) and a
payload, all little-endian, one after the other. Paths are relative to the traced root, with "" for the root
itself. The position of an event in the list is its place in the one total order of everything the traced
processes did.
"""

import enum
import struct
from dataclasses import dataclass
from pathlib import Path

_MAGIC = 0x3153474C
_HEADER = struct.Struct("<IIHHIQQ")

_CREATED = 1
_DIRECTORY = 2
_NAMELESS = 4
_EXCHANGE = 1


class SyncScope(enum.IntEnum):
    """What a sync call covers; the numbers are those of the trace."""

    FILE = 0
    FILE_DATA = 1
    FILESYSTEM = 2


@dataclass(frozen=True, slots=True)
class Opened:
    """A descriptor was opened. ``path`` is None for an O_TMPFILE file, which has no name yet."""

    inode: int
    path: str | None
    created: bool = False
    directory: bool = False


@dataclass(frozen=True, slots=True)
class Wrote:
    """Bytes that the kernel accepted, at the position where they really went."""

    inode: int
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resized:
    """truncate, O_TRUNC on a file with content, or fallocate beyond the end."""

    inode: int
    size: int


@dataclass(frozen=True, slots=True)
class Renamed:
    """``exchange`` is RENAME_EXCHANGE: both names stay and swap what they mean."""

    old: str
    new: str
    exchange: bool = False


@dataclass(frozen=True, slots=True)
class Unlinked:
    """A name of a file went away."""

    path: str


@dataclass(frozen=True, slots=True)
class Linked:
    """A file got a further name (or, for O_TMPFILE, its first)."""

    inode: int
    source: str
    path: str


@dataclass(frozen=True, slots=True)
class DirectoryMade:
    """A directory was made."""

    inode: int
    path: str


@dataclass(frozen=True, slots=True)
class DirectoryRemoved:
    """An empty directory was removed."""

    path: str


@dataclass(frozen=True, slots=True)
class SyncBegan:
    """A sync was about to be called: it covers only what stands before this event."""

    sync_id: int
    inode: int
    scope: SyncScope = SyncScope.FILE


@dataclass(frozen=True, slots=True)
class SyncEnded:
    """The sync returned success."""

    sync_id: int


@dataclass(frozen=True, slots=True)
class SyncFailed:
    """The sync returned an error, real or injected."""

    sync_id: int
    errno: int


@dataclass(frozen=True, slots=True)
class Marked:
    """A write to the marks file: the test's own note in the total order."""

    payload: bytes


TraceEvent = (
    Opened
    | Wrote
    | Resized
    | Renamed
    | Unlinked
    | Linked
    | DirectoryMade
    | DirectoryRemoved
    | SyncBegan
    | SyncEnded
    | SyncFailed
    | Marked
)


class TraceCorrupted(Exception):
    """The trace is damaged before its end, as by a second writer that was not the shim."""

    def __init__(self, path: str, position: int) -> None:
        super().__init__(path, position)
        self.path = path
        self.position = position

    def __str__(self) -> str:
        return f"{self.path}: no event at byte {self.position}"


def read_trace(path: Path) -> list[TraceEvent]:
    """All whole events. A torn last one is dropped: ``kill -9`` may hit the shim inside its own write."""
    content = path.read_bytes()
    events: list[TraceEvent] = []
    position = 0
    while position + _HEADER.size <= len(content):
        magic, length, kind, flags, _pid, first, second = _HEADER.unpack_from(content, position)
        if magic != _MAGIC or length < _HEADER.size:
            raise TraceCorrupted(str(path), position)
        if position + length > len(content):
            break
        event = _decode(kind, flags, first, second, content[position + _HEADER.size : position + length])
        if event is None:
            raise TraceCorrupted(str(path), position)
        events.append(event)
        position += length
    return events


def _decode(  # noqa: PLR0912 - one branch per kind is the format
    kind: int, flags: int, first: int, second: int, payload: bytes
) -> TraceEvent | None:
    match kind:
        case 1:
            name = None if flags & _NAMELESS else _text(payload)
            return Opened(first, name, bool(flags & _CREATED), bool(flags & _DIRECTORY))
        case 2:
            return Wrote(first, second, payload)
        case 3:
            return Resized(first, second)
        case 4:
            old, _, new = payload.partition(b"\0")
            return Renamed(_text(old), _text(new), bool(flags & _EXCHANGE))
        case 5:
            return Unlinked(_text(payload))
        case 6:
            source, _, path = payload.partition(b"\0")
            return Linked(first, _text(source), _text(path))
        case 7:
            return DirectoryMade(first, _text(payload))
        case 8:
            return DirectoryRemoved(_text(payload))
        case 9:
            return SyncBegan(first, second, SyncScope(flags))
        case 10:
            return SyncEnded(first)
        case 11:
            return SyncFailed(first, second)
        case 12:
            return Marked(payload)
        case _:
            return None


def _text(path: bytes) -> str:
    # The same rule as os.fsdecode, so that any file name survives the round trip.
    return path.decode("utf-8", "surrogateescape")
