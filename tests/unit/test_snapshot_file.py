"""The snapshot file: whole or refused, and replaced in one step."""

import asyncio
import errno
from pathlib import Path

import pytest

from lograft.contract.disk import Disk
from lograft.contract.errors import StorageCorrupted, UnsupportedVersion
from lograft.metadata_quorum.core.model import ClusterState, Member
from lograft.metadata_quorum.core.snapshot import capture, encode_pieces
from lograft.metadata_quorum.journal import METADATA
from lograft.metadata_quorum.raft_node import RaftNode, SnapshotLimits
from lograft.metadata_quorum.snapshot_file import SNAPSHOT, framed, load_snapshot, read_pieces, write_snapshot
from lograft.v1 import metadata_pb2

pytestmark = pytest.mark.requirement("R24", "R27")


def state(version: int = 7) -> ClusterState:
    made = ClusterState(version=version, term=3, cluster_id="c1", members=(Member("q1", "d1", "q1.test:1"),))
    made.answered = {b"command %d" % n: b"" for n in range(20)}
    return made


def pieces(version: int = 7) -> list[bytes]:
    return list(encode_pieces(capture(state(version)), piece_bytes=64))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_snapshot(Disk(), tmp_path, pieces())
    return tmp_path / SNAPSHOT


def test_snapshot_when_written_then_is_read_back(path: Path) -> None:
    assert len(pieces()) > 3
    assert list(read_pieces(path)) == pieces()
    assert load_snapshot(path) == state()
    assert path.read_bytes() == b"".join(framed(pieces()))


def test_snapshot_when_large_then_its_size_is_told(tmp_path: Path) -> None:
    size = write_snapshot(Disk(), tmp_path, [bytes(300_000)] * 10)
    assert size == (tmp_path / SNAPSHOT).stat().st_size > 3_000_000
    assert [len(piece) for piece in read_pieces(tmp_path / SNAPSHOT)] == [300_000] * 10


def test_snapshot_when_cut_anywhere_then_is_refused(path: Path) -> None:
    data = path.read_bytes()
    for end in range(len(data)):
        path.write_bytes(data[:end])
        with pytest.raises(StorageCorrupted):
            load_snapshot(path)


def test_snapshot_when_any_byte_is_damaged_then_is_refused(path: Path) -> None:
    data = path.read_bytes()
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :])
        with pytest.raises((StorageCorrupted, UnsupportedVersion)):
            load_snapshot(path)


def test_snapshot_when_a_piece_is_missing_repeated_or_misplaced_then_is_refused(path: Path) -> None:
    whole = pieces()
    mixed_up = {
        "nothing": [],
        "the first is missing": whole[1:],
        "the last is missing": whole[:-1],
        "one twice": [*whole[:2], *whole[1:]],
        "two headers": [whole[0], *whole],
        "something after the end": [*whole, whole[1]],
    }
    for given in mixed_up.values():
        path.write_bytes(b"".join(framed(given)))
        with pytest.raises(StorageCorrupted):
            load_snapshot(path)


def test_snapshot_when_of_a_newer_version_then_says_so(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4] + (2).to_bytes(4, "little") + data[8:])
    with pytest.raises(UnsupportedVersion, match="version 2"):
        load_snapshot(path)


@pytest.mark.parametrize("failing", ["write", "sync_file", "rename"])
def test_write_snapshot_when_the_disk_refuses_then_the_old_one_stays(path: Path, failing: str) -> None:
    class Full(Disk):
        pass

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    disk = Full()
    setattr(disk, failing, refuse)
    with pytest.raises(OSError, match="no space"):
        write_snapshot(disk, path.parent, pieces(9))
    assert load_snapshot(path).version == 7
    # What was left behind is in nobody's way.
    write_snapshot(Disk(), path.parent, pieces(9))
    assert load_snapshot(path).version == 9
    assert [file.name for file in path.parent.iterdir()] == [SNAPSHOT]


def test_raft_node_when_entries_are_large_then_is_not_busy_with_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def counted(*arguments) -> int:
        written.append(write_snapshot(*arguments))
        return written[-1]

    monkeypatch.setattr("lograft.metadata_quorum.raft_node.write_snapshot", counted)

    async def main() -> None:
        me = Member("q1", "d1", "")
        # History of so many entries would be far more than the bytes that make a snapshot wanted.
        limits = SnapshotLimits(entries=10_000, bytes=20_000, history_entries=1_000)
        node = RaftNode(me, (me,), tmp_path, disk=Disk(), send=lambda *_: None, limits=limits)
        node.start()
        while not node.machine.leading:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for number in range(60):
            done = asyncio.get_running_loop().create_future()
            entry = metadata_pb2.MetadataEntry(changes=[metadata_pb2.Change(command_id=b"%d" % number + bytes(1_000))])
            entry.changes[0].barrier.SetInParent()
            node.propose(METADATA, entry.SerializeToString(), lambda *_, done=done: done.set_result(None))
            await done
            while node._snapshot_task is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await node.close()

    asyncio.run(main())
    # 60 kB in all, and each snapshot makes room for 10.
    assert 2 <= len(written) <= 10
