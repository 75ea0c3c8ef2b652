"""The quorum node's journal: what was synced is there after any crash, and damage is never taken for one."""

import errno
import os
import random
from itertools import pairwise
from pathlib import Path

import pytest

from lograft.contract.disk import Disk
from lograft.contract.errors import StorageCorrupted, UnsupportedVersion
from lograft.metadata_quorum.core.overlap import Entry
from lograft.metadata_quorum.journal import _HEADER, FIRST_ENTRY, MEMBERS, METADATA, NO_OP, SECTOR, Journal

pytestmark = pytest.mark.requirement("R9", "R24", "R27")
SEED = int(os.environ.get("LOGRAFT_TEST_SEED", "20261118"))


class FullDisk(Disk):
    """Fails the n-th write from now, after half of it. Syncs nothing: no power is lost here."""

    fails_in = 0

    def sync_file(self, file):
        pass

    def sync_directory(self, path):
        pass

    def write_some(self, file, buffers, position, flags):
        if self.fails_in:
            self.fails_in -= 1
            if not self.fails_in:
                half = b"".join(buffers)
                os.pwrite(file, half[: len(half) // 2], position)
                raise OSError(errno.ENOSPC, "no space left")
        return super().write_some(file, buffers, position, 0)


@pytest.fixture
def disk() -> FullDisk:
    return FullDisk()


def entry(index: int, term: int = 1, payload: bytes = b"") -> Entry:
    return Entry(METADATA + (payload or b"entry %d" % index), index, term)


def sync(journal: Journal) -> None:
    journal.write_block(journal.take_block())


def contents(directory: Path, **options) -> tuple[list[Entry], int, str | None]:
    journal = Journal(directory, FullDisk(), **options)
    journal.close()
    return journal.entries, journal.term, journal.voted_for


def write_three_blocks(directory: Path, disk: Disk) -> list[int]:
    """Entries 2 to 7 in three blocks after the first; where each block begins, and the end."""
    journal = Journal(directory, disk)
    places = [0, journal.size]
    for block in range(3):
        journal.setCurrentTerm(block + 1, f"q{block + 1}:d")
        for index in (2 * block + 2, 2 * block + 3):
            journal.add(*entry(index, block + 1, random.Random(index).randbytes(700)))
        sync(journal)
        places.append(journal.size)
    journal.close()
    return places


# Round trip


def test_journal_when_reopened_then_holds_log_term_and_vote(tmp_path: Path, disk: FullDisk) -> None:
    journal = Journal(tmp_path, disk)
    assert (journal.entries, journal.term, journal.voted_for) == ([FIRST_ENTRY], 0, None)
    journal.setCurrentTerm(3, "q2:d")
    for index, tag in enumerate((NO_OP, METADATA, MEMBERS), 2):
        journal.add(tag + b"x" * (tag != NO_OP), index, 3)
    assert journal.dirty
    sync(journal)
    assert not journal.dirty
    journal.deleteEntriesFrom(2)
    journal.add(*entry(3, 4))
    sync(journal)
    journal.close()
    for _ in range(2):
        assert contents(tmp_path) == ([FIRST_ENTRY, Entry(NO_OP, 2, 3), entry(3, 4)], 3, "q2:d")


def test_journal_when_a_block_was_not_written_then_knows_nothing_of_it(tmp_path: Path, disk: FullDisk) -> None:
    journal = Journal(tmp_path, disk)
    journal.setCurrentTerm(3, "q2:d")
    journal.take_block()
    journal.close()
    assert contents(tmp_path) == ([FIRST_ENTRY], 0, None)


def test_journal_when_entries_are_cut_and_written_in_one_block_then_replays_them_in_order(
    tmp_path: Path, disk: FullDisk
) -> None:
    journal = Journal(tmp_path, disk)
    for index in range(2, 6):
        journal.add(*entry(index))
    journal.deleteEntriesFrom(2)
    journal.add(*entry(3, 2))
    sync(journal)
    journal.close()
    assert contents(tmp_path)[0] == [FIRST_ENTRY, entry(2), entry(3, 2)]


def test_stored_index_when_entries_come_and_go_then_never_names_one_that_is_not_on_disk(
    tmp_path: Path, disk: FullDisk
) -> None:
    journal = Journal(tmp_path, disk)
    assert journal.stored_index == 1
    journal.add(*entry(2))
    journal.add(*entry(3))
    assert journal.stored_index == 1
    sync(journal)
    assert journal.stored_index == 3
    journal.deleteEntriesFrom(2)
    journal.add(*entry(3, 2))
    assert journal.stored_index == 2
    sync(journal)
    assert journal.stored_index == 3
    journal.close()


def test_on_members_changed_when_their_entry_comes_or_goes_then_is_called(tmp_path: Path, disk: FullDisk) -> None:
    journal = Journal(tmp_path, disk)
    calls: list[int] = []
    journal.on_members_changed = lambda: calls.append(journal.last_index)
    journal.add(*entry(2))
    journal.add(MEMBERS + b"x", 3, 1)
    journal.add(*entry(4))
    journal.deleteEntriesFrom(3)
    journal.deleteEntriesFrom(2)
    assert calls == [3, 2]
    journal.close()


# Torn tails and damage


def test_journal_when_cut_at_any_byte_of_the_last_block_then_loses_just_that_block(
    tmp_path: Path, disk: FullDisk
) -> None:
    places = write_three_blocks(tmp_path, disk)
    path = tmp_path / "journal"
    data = path.read_bytes()
    for end in range(places[-2], places[-1]):
        path.write_bytes(data[:end])
        journal = Journal(tmp_path, disk)
        journal.close()
        assert journal.cut_bytes == end - places[-2]
        assert (journal.last_index, journal.term) == (5, 2)


def test_journal_when_a_sector_of_the_last_block_was_never_written_then_loses_just_that_block(
    tmp_path: Path, disk: FullDisk
) -> None:
    places = write_three_blocks(tmp_path, disk)
    path = tmp_path / "journal"
    data = path.read_bytes()
    first = places[-2] - places[-2] % SECTOR
    for sector in range(first, len(data), SECTOR):
        torn = bytearray(data)
        begin, end = max(sector, places[-2]), min(sector + SECTOR, len(data))
        torn[begin:end] = bytes(end - begin)
        path.write_bytes(torn)
        journal = Journal(tmp_path, disk)
        journal.close()
        assert (journal.last_index, journal.term, journal.cut_bytes) == (5, 2, len(data) - places[-2])


def test_journal_when_any_bit_is_flipped_then_is_refused(tmp_path: Path, disk: FullDisk) -> None:
    places = write_three_blocks(tmp_path, disk)
    path = tmp_path / "journal"
    data = path.read_bytes()
    chance = random.Random(SEED)
    # All of every header and of the first body, and some of the long bodies.
    positions = {p for place in places[:-1] for p in range(place, place + _HEADER.size)}
    positions |= set(range(places[1])) | set(chance.sample(range(len(data)), 150)) | {len(data) - 1}
    for position in sorted(positions):
        bit = chance.randrange(8)
        path.write_bytes(data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :])
        with pytest.raises(StorageCorrupted):
            Journal(tmp_path, disk)
    path.write_bytes(data)
    assert contents(tmp_path)[1] == 3


def test_journal_when_a_length_was_damaged_then_is_not_taken_for_torn(tmp_path: Path, disk: FullDisk) -> None:
    places = write_three_blocks(tmp_path, disk)
    path = tmp_path / "journal"
    data = path.read_bytes()
    for bit in range(32):
        position = places[-2] + 8 + bit // 8
        path.write_bytes(data[:position] + bytes([data[position] ^ 1 << bit % 8]) + data[position + 1 :])
        with pytest.raises(StorageCorrupted):
            Journal(tmp_path, disk)


def test_journal_when_a_block_before_the_last_is_gone_then_is_refused(tmp_path: Path, disk: FullDisk) -> None:
    places = write_three_blocks(tmp_path, disk)
    path = tmp_path / "journal"
    data = path.read_bytes()
    for place, end in pairwise(places[1:-1]):
        path.write_bytes(data[:place] + data[end:])
        with pytest.raises(StorageCorrupted):
            Journal(tmp_path, disk)
        path.write_bytes(data[:place] + bytes(end - place) + data[end:])
        with pytest.raises(StorageCorrupted, match="a later block is whole"):
            Journal(tmp_path, disk)


@pytest.mark.parametrize("content", [b"", b"LGRJ", bytes(100), b"x" * 100])
def test_journal_when_no_block_is_whole_then_is_refused(tmp_path: Path, disk: FullDisk, content: bytes) -> None:
    (tmp_path / "journal").write_bytes(content)
    with pytest.raises(StorageCorrupted):
        Journal(tmp_path, disk)


def test_journal_when_of_a_newer_version_then_says_so(
    tmp_path: Path, disk: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("lograft.metadata_quorum.journal.VERSION", 2)
        Journal(tmp_path, disk).close()
    with pytest.raises(UnsupportedVersion, match="version 2"):
        Journal(tmp_path, disk)


# With a snapshot


@pytest.fixture
def trimmed(tmp_path: Path, disk: FullDisk) -> Journal:
    """Entries 8 to 20, a snapshot of 10 in terms of its last entry; closed."""
    journal = Journal(tmp_path, disk)
    for index in range(2, 21):
        journal.add(*entry(index))
    sync(journal)
    journal.trim(8)
    journal.close()
    return journal


def test_trimmed_journal_when_reopened_with_its_snapshot_then_holds_what_lies_above(
    tmp_path: Path, trimmed: Journal
) -> None:
    assert (trimmed.first_index, trimmed.last_index) == (8, 20)
    entries, _, _ = contents(tmp_path, keep_from=9, placeholder=Entry(NO_OP, 10, 1))
    assert entries == [entry(index) for index in range(9, 21)]


def test_trimmed_journal_when_its_snapshot_is_missing_or_too_old_then_is_refused(
    tmp_path: Path, trimmed: Journal
) -> None:
    for placeholder in (FIRST_ENTRY, Entry(NO_OP, 7, 1)):
        with pytest.raises(StorageCorrupted, match="entries between them are missing"):
            contents(tmp_path, placeholder=placeholder)


@pytest.mark.parametrize("installed", [Entry(NO_OP, 30, 5), Entry(NO_OP, 15, 5)], ids=["ahead", "of another term"])
def test_journal_when_a_snapshot_was_installed_that_it_does_not_hold_then_begins_there(
    tmp_path: Path, trimmed: Journal, installed: Entry
) -> None:
    assert contents(tmp_path, placeholder=installed)[0] == [installed]


def test_trim_when_all_could_go_then_two_entries_stay(tmp_path: Path, disk: FullDisk, trimmed: Journal) -> None:
    journal = Journal(tmp_path, disk, placeholder=Entry(NO_OP, 20, 1))
    journal.trim(100)
    assert [each.index for each in journal.entries] == [19, 20]
    journal.close()


# A full disk


def test_write_block_when_the_disk_is_full_then_may_be_tried_again(tmp_path: Path, disk: FullDisk) -> None:
    journal = Journal(tmp_path, disk)
    journal.setCurrentTerm(1, "q1:d")
    journal.add(*entry(2, 1, b"x" * 5000))
    block = journal.take_block()
    size = journal.size
    for _ in range(2):
        disk.fails_in = 1
        with pytest.raises(OSError, match="no space"):
            journal.write_block(block)
        assert (journal.path.stat().st_size, journal.size) == (size, size)
    journal.write_block(block)
    journal.add(*entry(3))
    sync(journal)
    journal.close()
    entries, term, _ = contents(tmp_path)
    assert ([each.index for each in entries], term) == ([1, 2, 3], 1)


def test_write_block_when_half_of_it_is_left_behind_then_is_a_torn_tail(tmp_path: Path, disk: FullDisk) -> None:
    journal = Journal(tmp_path, disk)
    journal.add(*entry(2, 1, b"x" * 5000))
    disk.fails_in = 1
    disk.truncate = lambda file, size: None  # type: ignore[method-assign] # the process ends before it comes to that
    with pytest.raises(OSError, match="no space"):
        sync(journal)
    journal.close()
    assert contents(tmp_path)[0] == [FIRST_ENTRY]


def test_trim_when_the_disk_is_full_then_the_old_file_serves_on(tmp_path: Path, disk: FullDisk) -> None:
    write_three_blocks(tmp_path, disk)
    journal = Journal(tmp_path, disk)
    disk.fails_in = 1
    with pytest.raises(OSError, match="no space"):
        journal.trim(5)
    journal.add(*entry(8, 3))
    sync(journal)
    journal.close()
    assert [each.index for each in contents(tmp_path)[0]] == list(range(1, 9))


def test_restart_at_when_the_disk_is_full_then_nothing_has_changed(tmp_path: Path, disk: FullDisk) -> None:
    write_three_blocks(tmp_path, disk)
    journal = Journal(tmp_path, disk)
    disk.fails_in = 1
    with pytest.raises(OSError, match="no space"):
        journal.restart_at(Entry(NO_OP, 50, 9))
    assert journal.last_index == 7
    journal.add(*entry(8, 3))
    sync(journal)
    journal.close()
    assert [each.index for each in contents(tmp_path)[0]] == list(range(1, 9))


def test_restart_at_when_it_succeeds_then_term_and_vote_stay(tmp_path: Path, disk: FullDisk) -> None:
    write_three_blocks(tmp_path, disk)
    journal = Journal(tmp_path, disk)
    journal.restart_at(Entry(NO_OP, 50, 9))
    journal.add(*entry(51, 9))
    sync(journal)
    journal.close()
    expected = [Entry(NO_OP, 50, 9), entry(51, 9)]
    assert contents(tmp_path, placeholder=Entry(NO_OP, 50, 9)) == (expected, 3, "q3:d")


def test_rewrite_when_killed_at_any_operation_then_old_or_new_is_there(tmp_path: Path, disk: FullDisk) -> None:
    class Killed(BaseException):
        pass

    class Dying(Disk):
        left = 0

        def __getattribute__(self, name: str):
            if name in {"open_file", "write", "sync_file", "rename", "sync_directory", "remove"}:
                self.left -= 1
                if self.left < 0:
                    raise Killed
            return super().__getattribute__(name)

    seen = set()
    for left in range(15):
        folder = tmp_path / str(left)
        folder.mkdir()
        write_three_blocks(folder, disk)
        dying = Dying()
        dying.left = 10**9
        journal = Journal(folder, dying)
        dying.left = left
        try:
            journal.trim(5)
            seen.add("done")
        except Killed:
            pass
        finally:
            journal.close()
        entries, term, vote = contents(folder, placeholder=Entry(NO_OP, 6, 3))
        assert (entries[-1].index, term, vote) == (7, 3, "q3:d")
        seen.add(entries[0].index)
    assert seen == {1, 5, "done"}
