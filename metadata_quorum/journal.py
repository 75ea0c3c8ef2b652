"""The quorum node's journal: the Raft log, the term and the vote, on disk before anything leaves the node.

One append-only file. What happens between two syncs is one block, written and synced in one call; the file's bytes are
described in docs/formats/journal.md. Only one block is ever being written, so every block before the last was synced:
a bad block before the last is damage, and a bad last block is either a torn write (the file ends in it, or a sector of
it was never written) or damage. A damaged journal is refused: a node that has forgotten a vote or an entry must never
vote or acknowledge again.

Opening writes the whole journal anew and syncs it, without what the snapshot stands for: what was read may have come
from the cache of a disk whose last sync failed.

All methods are for the thread that runs Raft, but `write_block`, which blocks and runs in a thread of its own.
"""

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import overload

from google.protobuf.message import DecodeError

from lograft.contract.batch import crc32c
from lograft.contract.disk import Disk
from lograft.contract.errors import StorageCorrupted, UnsupportedVersion
from lograft.metadata_quorum.core.overlap import Entry
from lograft.v1 import quorum_pb2

JOURNAL = "journal"
MAGIC = b"LGRJ"
VERSION = 1
# magic, version, length of the body, number of the block, CRC-32C of the body, CRC-32C of the header up to here. Two,
# so that a damaged length is not taken for a block that the file ends in.
_HEADER = struct.Struct("<4sIIQII")
_COVERED = struct.Struct("<4sIIQI")
SECTOR = 512

# The library's own byte for its no-op; ours lie beside it. They never leave the process.
NO_OP = b"\x01"
METADATA = b"\x10"
MEMBERS = b"\x11"
_KIND_OF_TAG = {
    NO_OP: quorum_pb2.ENTRY_KIND_NO_OP,
    METADATA: quorum_pb2.ENTRY_KIND_METADATA,
    MEMBERS: quorum_pb2.ENTRY_KIND_MEMBERS,
}
_TAG_OF_KIND = {kind: tag for tag, kind in _KIND_OF_TAG.items()}
FIRST_ENTRY = Entry(NO_OP, 1, 0)


def entry_to_proto(entry: Entry, message: quorum_pb2.LogEntry) -> None:
    """Fill the message that carries an entry on the wire and in the journal."""
    message.index = entry.index
    message.term = entry.term
    message.kind = _KIND_OF_TAG[entry.command[:1]]
    message.payload = entry.command[1:]


def entry_from_proto(message: quorum_pb2.LogEntry) -> Entry:
    """The entry in a message. Raises `UnsupportedVersion` for a kind that this release does not know."""
    tag = _TAG_OF_KIND.get(message.kind)
    if tag is None:
        raise UnsupportedVersion("an entry of the quorum's log", message.kind, max(_TAG_OF_KIND))
    return Entry(tag + message.payload, message.index, message.term)


class Journal:
    """The log in memory, and what of it is not on disk yet.

    Between two calls: ``entries[0]`` stands for everything up to its index (its command may be a placeholder), indexes
    rise by one, and `pending` holds every change since the last block was taken.
    """

    def __init__(self, directory: Path, disk: Disk, *, keep_from: int = 0, placeholder: Entry = FIRST_ENTRY) -> None:
        """Open, or create; drop entries below ``keep_from``, and all of them if none reaches ``placeholder``.

        ``placeholder`` is the last entry that the snapshot stands for: if the log does not reach it, it begins there.
        """
        self.path = directory / JOURNAL
        self._disk = disk
        self.entries: list[Entry] = []
        self.term = 0
        self.voted_for: str | None = None
        self.cut_bytes = 0
        self.pending: list[quorum_pb2.JournalRecord] = []
        # The newest entry that no crash can take away, once the block that was taken last is written.
        self.stored_index = 0
        # Called when an entry with new voters came or went: they count from the moment they are in the log.
        self.on_members_changed: Callable[[], None] = lambda: None
        self._block = 0
        self._file = -1
        self.size = 0
        if self.path.exists():
            self._read()
        self._fit_to(placeholder)
        self._drop_below(keep_from)
        self.rewrite()

    def _fit_to(self, placeholder: Entry) -> None:
        """Make the log begin at, or hold, the last entry that the snapshot stands for."""
        if not self.entries:
            self.entries = [placeholder]
        elif self.first_index > placeholder.index:
            problem = f"the journal begins after entry {self.first_index} and the snapshot ends at {placeholder.index}"
            raise StorageCorrupted(str(self.path), 0, f"{problem}: entries between them are missing")
        elif not self.holds(placeholder.index, placeholder.term):
            # A snapshot was installed and the process ended before the journal began anew.
            self.entries = [placeholder]

    # Reading the file

    def _read(self) -> None:
        data = self.path.read_bytes()
        position, blocks = 0, 0
        while position < len(data):
            body_or_problem = _block_at(data, position, self._block)
            if isinstance(body_or_problem, str):
                self._cut_tail(data, position, body_or_problem)
                break
            self._replay(body_or_problem, position)
            position += _HEADER.size + len(body_or_problem)
            self._block += 1
            blocks += 1
        if not blocks:
            raise StorageCorrupted(str(self.path), 0, "no block of the journal is whole")

    def _cut_tail(self, data: bytes, position: int, problem: str) -> None:
        """Decide whether a bad block is a torn last write, which never left the node, or damage."""
        after = data.find(MAGIC, position + 1)
        while after >= 0:
            if isinstance(_block_at(data, after, None), bytes):
                raise StorageCorrupted(str(self.path), position, f"{problem}, and a later block is whole")
            after = data.find(MAGIC, after + 1)
        if not _looks_torn(data, position):
            raise StorageCorrupted(str(self.path), position, problem)
        self.cut_bytes = len(data) - position

    def _replay(self, body: bytes, position: int) -> None:
        try:
            block = quorum_pb2.JournalBlock.FromString(body)
        except DecodeError:
            raise StorageCorrupted(str(self.path), position, "a block cannot be read") from None
        for record in block.records:
            match record.WhichOneof("kind"):
                case "append":
                    entry = entry_from_proto(record.append)
                    if self.entries and entry.index != self.entries[-1].index + 1:
                        raise StorageCorrupted(str(self.path), position, f"entry {entry.index} does not follow")
                    self.entries.append(entry)
                case "truncate_from":
                    first = self.entries[0].index if self.entries else 0
                    del self.entries[max(record.truncate_from - first, 0) :]
                case "hard_state":
                    self.term = record.hard_state.term
                    self.voted_for = record.hard_state.voted_for or None
                case _:
                    raise UnsupportedVersion(str(self.path), VERSION + 1, VERSION)

    # Writing it

    @property
    def dirty(self) -> bool:
        """Whether something happened that is not in a block yet."""
        return bool(self.pending)

    def take_block(self) -> bytes:
        """Everything pending as one block, to be given to `write_block` before anything else happens."""
        data = _encode_block(self.pending, self._block)
        self._block += 1
        self.pending = []
        self.stored_index = self.last_index
        return data

    def write_block(self, data: bytes) -> None:
        """Write and sync one block; blocks the calling thread. On failure nothing counts, and it may be tried again."""
        try:
            self._disk.write(self._file, [data], self.size, durable=True)
        except OSError:
            # Half a block must not stand before the next try's bytes, should that one be shorter.
            self._disk.truncate(self._file, self.size)
            raise
        self.size += len(data)

    def rewrite(self) -> None:
        """Replace the file by one that holds just what is in memory, synced; blocks."""
        self.pending = []
        hard_state = quorum_pb2.JournalRecord()
        hard_state.hard_state.term = self.term
        hard_state.hard_state.voted_for = self.voted_for or ""
        data = _encode_block([hard_state, *map(_append_record, self.entries)], 0)
        self._disk.replace_file(self.path, data)
        self.close()
        self._file = self._disk.open_file(self.path)
        self.size = len(data)
        self._block = 1
        self.stored_index = self.last_index

    def trim(self, keep_from: int) -> None:
        """Forget entries below ``keep_from``, which a snapshot stands for, but for the last two; blocks."""
        self._drop_below(keep_from)
        self.rewrite()

    def restart_at(self, placeholder: Entry) -> None:
        """Begin anew after a snapshot was installed; blocks. Term and vote stay. On failure nothing has changed."""
        former, self.entries = self.entries, [placeholder]
        try:
            self.rewrite()
        except OSError:
            # The file still holds the old log: what is appended next must follow it.
            self.entries = former
            raise

    def _drop_below(self, keep_from: int) -> None:
        first = self.entries[0].index
        # Two stay, as the library looks at the first two of its log.
        cut = min(keep_from - first, len(self.entries) - 2)
        if cut > 0:
            del self.entries[:cut]

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    # What the log says

    @property
    def first_index(self) -> int:
        """Index of the entry that stands for everything up to it."""
        return self.entries[0].index

    @property
    def last_index(self) -> int:
        """Index of the newest entry."""
        return self.entries[-1].index

    def term_at(self, index: int) -> int:
        """Term of the entry at ``index``."""
        return self.entries[index - self.entries[0].index].term

    def holds(self, index: int, term: int) -> bool:
        """Whether the log has this very entry, and so agrees with its leader up to there."""
        return self.first_index <= index <= self.last_index and self.term_at(index) == term

    def from_index(self, index: int) -> list[Entry]:
        """The entries from ``index`` on. It must lie above the first."""
        return self.entries[index - self.entries[0].index :]

    # The face that the library expects of a journal

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry."""
        entry = Entry(command, idx, term)
        self.entries.append(entry)
        self.pending.append(_append_record(entry))
        if command[:1] == MEMBERS:
            self.on_members_changed()

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803
        """Cut the log at a position in it."""
        index = self.entries[entryFrom].index
        gone = self.entries[entryFrom:]
        del self.entries[entryFrom:]
        self.stored_index = min(self.stored_index, index - 1)
        self.pending.append(quorum_pb2.JournalRecord(truncate_from=index))
        if any(entry.command[:1] == MEMBERS for entry in gone):
            self.on_members_changed()

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803
        """Remember term and vote."""
        self.term = term
        self.voted_for = votedForNodeId
        record = quorum_pb2.JournalRecord()
        record.hard_state.term = term
        record.hard_state.voted_for = votedForNodeId or ""
        self.pending.append(record)

    def getCurrentTerm(self) -> int:  # noqa: N802
        """The term."""
        return self.term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        """The vote."""
        return self.voted_for

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803
        """Not kept: a restarted node learns from the leader what is committed."""

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        """What is known to be committed at the start."""
        return self.first_index

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Nothing is left to be done later."""

    def _destroy(self) -> None:
        self.close()

    @overload
    def __getitem__(self, item: int) -> Entry: ...
    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...
    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        return self.entries[item]

    def __len__(self) -> int:
        return len(self.entries)


def _append_record(entry: Entry) -> quorum_pb2.JournalRecord:
    record = quorum_pb2.JournalRecord()
    entry_to_proto(entry, record.append)
    return record


def _encode_block(records: list[quorum_pb2.JournalRecord], number: int) -> bytes:
    body = quorum_pb2.JournalBlock(records=records).SerializeToString()
    covered = _COVERED.pack(MAGIC, VERSION, len(body), number, crc32c(body))
    return covered + struct.pack("<I", crc32c(covered)) + body


def _header_at(data: bytes, position: int) -> tuple[int, int, int] | None:
    """Length, number and checksum of the body of the block at ``position``; None if no sound header is there."""
    if position + _HEADER.size > len(data):
        return None
    magic, version, length, number, body_crc, header_crc = _HEADER.unpack_from(data, position)
    if magic != MAGIC or crc32c(data[position : position + _COVERED.size]) != header_crc:
        return None
    if version != VERSION:
        raise UnsupportedVersion("the journal", version, VERSION)
    return length, number, body_crc


def _block_at(data: bytes, position: int, number: int | None) -> bytes | str:
    """The body of the block at ``position``, or what is wrong with it. ``number`` None takes any number."""
    header = _header_at(data, position)
    if header is None:
        return "no block begins here"
    length, found, crc = header
    body = data[position + _HEADER.size : position + _HEADER.size + length]
    if len(body) < length:
        return "the file ends inside a block"
    if crc32c(body) != crc:
        return "the checksum of a block is wrong"
    if number is not None and found != number:
        return f"block {found} stands where block {number} belongs"
    return body


def _looks_torn(data: bytes, position: int) -> bool:
    """Whether the bytes from ``position`` on may be a write that a crash interrupted.

    Then the file ends inside the block, or a whole sector of it was never written. Anything else was once complete.
    """
    if position + _HEADER.size > len(data):
        return True
    header = _header_at(data, position)
    if header is not None and position + _HEADER.size + header[0] > len(data):
        return True
    sector = position - position % SECTOR
    while sector < len(data):
        part = data[max(sector, position) : sector + SECTOR]
        if not any(part):
            return True
        sector += SECTOR
    return False
