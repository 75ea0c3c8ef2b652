"""A broker's data directory: whose it is, what lies in it, and where damaged, stray and deleted replicas go."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lograft.contract.errors import (
    DirectoryLocked,
    DirectoryUnusable,
    InvalidRequest,
    StorageCorrupted,
    WrongDirectory,
)
from lograft.contract.ids import MAX_TOPIC_NAME_LENGTH, TopicPartition
from lograft.contract.records import encode_batch
from lograft.storage import DataDirectory, LogConfig, PartitionLog
from lograft.storage.inspect import Damage, inspect

CONFIG = LogConfig(segment_bytes=1200, max_batch_bytes=1200)
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def open_directory(tmp_path: Path) -> Iterator[Callable[..., DataDirectory]]:
    """Opens a data directory in this test's folder; whatever is still open at the end is closed."""
    opened: list[DataDirectory] = []

    def open_one(**options) -> DataDirectory:
        options = {"cluster_id": "c1", "broker_id": 1} | options
        directory = DataDirectory(options.pop("path", tmp_path / "data"), **options)
        opened.append(directory)
        return directory

    yield open_one
    for directory in opened:
        directory.close()


def fill(log: PartitionLog, count: int = 10) -> None:
    for number in range(log.log_end_offset, log.log_end_offset + count):
        log.append(encode_batch([b"%d" % number * 100], timestamps_ms=0))


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in log.records()]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x20
    path.write_bytes(data)


def damage(directory: DataDirectory, partition: TopicPartition = ORDERS) -> Path:
    """Fill a log, close the directory, and damage a header far below its end; where."""
    fill(directory.open_log(partition, "t1", CONFIG))
    directory.close()
    path = directory.path / partition.directory_name / "00000000000000000000.log"
    for stale in path.parent.glob("*index"):
        stale.unlink()
    flip(path, 20)
    return path


# --- ids and the lock


def test_directory_when_new_then_gets_an_id_that_stays(open_directory: Callable) -> None:
    first = open_directory()
    assert len(first.directory_id) == 32
    first.close()
    assert open_directory().directory_id == first.directory_id


def test_directory_when_of_another_cluster_or_broker_then_is_refused_and_left_alone(open_directory: Callable) -> None:
    first = open_directory()
    first.close()
    before = {path.name: path.read_bytes() for path in first.path.iterdir() if path.name != ".lock"}
    with pytest.raises(WrongDirectory, match="belongs to cluster c1, not c2"):
        open_directory(cluster_id="c2")
    with pytest.raises(WrongDirectory, match="belongs to broker 1, not 2"):
        open_directory(broker_id=2)
    assert {path.name: path.read_bytes() for path in first.path.iterdir() if path.name != ".lock"} == before
    assert open_directory().was_clean


def test_directory_when_its_meta_is_gone_but_partitions_are_there_then_is_refused(open_directory: Callable) -> None:
    first = open_directory()
    fill(first.open_log(ORDERS, "t1"))
    first.close()
    (first.path / "directory.meta").unlink()
    with pytest.raises(StorageCorrupted, match="missing beside partitions"):
        open_directory()
    assert not (first.path / "directory.meta").exists()


def test_directory_when_its_meta_is_damaged_then_is_refused(open_directory: Callable) -> None:
    first = open_directory()
    first.close()
    flip(first.path / "directory.meta", 18)
    with pytest.raises(StorageCorrupted, match=r"directory\.meta"):
        open_directory()


@pytest.mark.parametrize("kind", ["file", "no parent"])
def test_directory_when_it_cannot_be_made_then_says_why(open_directory: Callable, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "taken"
    if kind == "file":
        path.write_text("mine")
    else:
        path = tmp_path / "nowhere" / "data"
    with pytest.raises(DirectoryUnusable, match="not a directory" if kind == "file" else "does not exist"):
        open_directory(path=path)
    if kind == "file":
        assert path.read_text() == "mine"


def in_another_process(code: str, *arguments: object) -> str:
    """What the code prints when another process runs it."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


OPEN_BOTH = """
    import sys
    from lograft.contract.errors import LogError
    from lograft.storage import DataDirectory, PartitionLog
    for opening in (
        lambda: DataDirectory(sys.argv[1], cluster_id="c1", broker_id=1),
        lambda: PartitionLog.open(sys.argv[1] + "/orders-0"),
    ):
        try:
            opening().close()
            print("opened")
        except LogError as error:
            print(type(error).__name__, error)
"""


def test_directory_when_another_process_has_it_then_is_refused_with_its_name(open_directory: Callable) -> None:
    directory = open_directory()
    fill(directory.open_log(ORDERS, "t1"))
    lines = in_another_process(OPEN_BOTH, directory.path).splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("DirectoryLocked")
        assert f"pid {os.getpid()}" in line
    with pytest.raises(DirectoryLocked):
        open_directory()
    directory.close()
    assert in_another_process(OPEN_BOTH, directory.path).splitlines() == ["opened", "opened"]
    assert offsets(open_directory().open_log(ORDERS, "t1")) == list(range(10))


def test_log_alone_when_another_has_it_then_is_refused(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path / "orders-0"):
        with pytest.raises(DirectoryLocked):
            PartitionLog.open(tmp_path / "orders-0")
        assert "DirectoryLocked" in in_another_process(OPEN_BOTH, tmp_path).splitlines()[1]


READ_ONLY = """
    import os, sys
    from lograft.contract.errors import DirectoryUnusable
    from lograft.storage import DataDirectory, PartitionLog
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    for opening in (
        lambda: DataDirectory(sys.argv[1] + "/data", cluster_id="c1", broker_id=1),
        lambda: DataDirectory(sys.argv[1] + "/new", cluster_id="c1", broker_id=1),
        lambda: PartitionLog.open(sys.argv[1] + "/alone-0"),
        lambda: PartitionLog.open(sys.argv[1] + "/new-0"),
    ):
        try:
            opening()
            print("opened")
        except DirectoryUnusable as error:
            print(error)
"""


def test_directory_when_it_is_read_only_then_says_that_it_must_be_writable(
    open_directory: Callable, tmp_path: Path
) -> None:
    open_directory().close()
    with PartitionLog.open(tmp_path / "alone-0") as log:
        fill(log)
    folders = [tmp_path, tmp_path / "data", tmp_path / "alone-0"]
    parents = [parent for parent in tmp_path.parents if parent != Path("/") and not parent.stat().st_mode & 0o001]
    modes = {path: path.stat().st_mode for path in (*folders, *parents)}
    try:
        for parent in parents:  # pytest's own folders are for the owner only
            parent.chmod(modes[parent] | 0o011)
        for folder in folders:
            folder.chmod(0o555)
        # Our own modules lie in a folder that everybody may read.
        lines = in_another_process(READ_ONLY, tmp_path).splitlines()
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
    assert [line.rpartition(" cannot be used: ")[2] for line in lines] == ["Permission denied: it must be writable"] * 4
    assert [Path(line.partition(" cannot be used")[0]).name for line in lines] == ["data", "new", "alone-0", "new-0"]


# --- what lies in it


def test_directory_when_stopped_in_good_order_then_says_so_once(open_directory: Callable, tmp_path: Path) -> None:
    directory = open_directory()
    assert not directory.was_clean  # new
    directory.close()
    assert (directory.path / "clean-stop").exists()
    second = open_directory()
    assert second.was_clean
    assert not (directory.path / "clean-stop").exists()
    in_another_process(
        """
        import os, sys
        from lograft.storage import DataDirectory
        DataDirectory(sys.argv[1], cluster_id="c1", broker_id=1)
        os._exit(0)  # as if killed
        """,
        tmp_path / "crashed",
    )
    assert not open_directory(path=tmp_path / "crashed").was_clean


@pytest.mark.requirement("R2")
def test_directory_when_it_holds_partitions_then_lists_them_in_order(open_directory: Callable) -> None:
    directory = open_directory()
    for topic, number in (("b-2", 10), ("b-2", 9), ("a", 0)):
        directory.open_log(TopicPartition(topic, number), "t")
    assert directory.partitions() == [("a", 0), ("b-2", 9), ("b-2", 10)]
    assert directory.topic_id_of(TopicPartition("a", 0)) == "t"
    assert directory.topic_id_of(TopicPartition("a", 1)) is None
    log = directory.open_log(TopicPartition("a", 0), "t")
    assert log is directory.logs[TopicPartition("a", 0)]


def test_directory_when_it_holds_what_is_not_ours_then_names_and_leaves_it(open_directory: Callable) -> None:
    directory = open_directory()
    fill(directory.open_log(ORDERS, "t1"))
    (directory.path / "photos").mkdir()
    (directory.path / "photos" / "cat.jpg").write_bytes(b"cat")
    (directory.path / "notes.txt").write_text("mine")
    (directory.path / "orders-7").write_text("a file named like a partition")
    assert [path.name for path in directory.unknown_entries()] == ["notes.txt", "orders-7", "photos"]
    assert directory.partitions() == [ORDERS]
    directory.close()
    again = open_directory()
    assert [path.name for path in again.unknown_entries()] == ["notes.txt", "orders-7", "photos"]
    assert (again.path / "photos" / "cat.jpg").read_bytes() == b"cat"
    with pytest.raises(DirectoryUnusable, match="not a directory"):
        again.open_log(TopicPartition("orders", 7), "t1")
    assert (again.path / "orders-7").read_text() == "a file named like a partition"


def test_logs_when_they_share_a_directory_then_share_its_writer_and_clock(open_directory: Callable) -> None:
    groups = []
    directory = open_directory(now_ms=lambda: 77, on_group=groups.append)
    logs = [directory.open_log(TopicPartition("orders", number), "t1", replicated=False) for number in range(3)]
    assert {id(log.writer) for log in logs} == {id(directory.writer)}
    assert logs[0].append(encode_batch([b""], timestamps_ms=0)).append_timestamp_ms == 77
    logs[0].flush()
    assert [append.base_offset for group in groups for append in group] == [0]
    directory.close()
    assert directory.logs == {}


# --- stray, deleted, quarantined


def test_partition_when_its_topic_was_created_anew_then_the_old_one_is_set_aside(open_directory: Callable) -> None:
    directory = open_directory()
    fill(directory.open_log(ORDERS, "t1", CONFIG))
    directory.close()
    before = {path.name: path.read_bytes() for path in (directory.path / "orders-0").glob("*.log")}
    again = open_directory()
    log = again.open_log(ORDERS, "t2", CONFIG)
    assert (log.topic_id, log.log_end_offset) == ("t2", 0)
    stray = again.path / "orders-0@stray-1"
    assert {path.name: path.read_bytes() for path in stray.glob("*.log")} == before
    assert again.unknown_entries() == []
    again.close()
    third = open_directory()
    assert third.open_log(ORDERS, "t3").topic_id == "t3"
    assert (third.path / "orders-0@stray-2").is_dir()


def test_partition_when_deleted_then_is_renamed_at_once_and_purged_after_the_delay(open_directory: Callable) -> None:
    directory = open_directory()
    fill(directory.open_log(ORDERS, "t1"))
    directory.delete(ORDERS, "t1")
    deleted = directory.path / "orders-0@deleted-1"
    assert deleted.is_dir()
    assert ORDERS not in directory.partitions()
    assert directory.logs == {}
    assert directory.unknown_entries() == []
    assert directory.purge_deleted() == 0
    assert directory.purge_deleted(3600) == 0
    assert deleted.is_dir()
    fresh = directory.open_log(ORDERS, "t1")
    assert fresh.log_end_offset == 0
    assert directory.purge_deleted(0) == 1
    assert not deleted.exists()
    fill(fresh)
    assert offsets(fresh) == list(range(10))


def test_partition_when_deletion_names_another_topic_id_then_is_refused(open_directory: Callable) -> None:
    directory = open_directory()
    for is_open in (True, False):
        if is_open:
            fill(directory.open_log(ORDERS, "t1"))
        with pytest.raises(WrongDirectory, match="belongs to topic id t1, not t2"):
            directory.delete(ORDERS, "t2")
        assert directory.topic_id_of(ORDERS) == "t1"
        directory.close()
        directory = open_directory()
    directory.delete(TopicPartition("orders", 5), "t1")  # nothing there
    directory.delete(ORDERS, "t1")
    assert ORDERS not in directory.partitions()


def test_partitions_when_replicas_were_set_aside_then_does_not_list_them(open_directory: Callable) -> None:
    directory = open_directory()
    directory.open_log(ORDERS, "t1")
    directory.delete(ORDERS, "t1")
    directory.open_log(ORDERS, "t2")
    directory.quarantine(ORDERS, InvalidRequest("by hand"))
    assert directory.partitions() == []


@pytest.mark.requirement("R7", "R9")
def test_purge_when_a_topic_is_named_like_a_deleted_replica_then_keeps_its_log(open_directory: Callable) -> None:
    directory = open_directory()
    partition = TopicPartition("orders.deleted", 0)
    fill(directory.open_log(partition, "t1"))
    assert directory.purge_deleted(0) == 0
    directory.close()
    assert offsets(open_directory().open_log(partition, "t1")) == list(range(10))


@pytest.mark.parametrize("name", ["backup.deleted-by-mistake", "backup@deleted-by-mistake", "orders-0.deleted-1"])
@pytest.mark.parametrize("kind", ["directory", "file"])
def test_purge_when_something_not_ours_is_named_alike_then_leaves_it(
    open_directory: Callable, name: str, kind: str
) -> None:
    directory = open_directory()
    mine = directory.path / name
    if kind == "directory":
        mine.mkdir()
        (mine / "only copy").write_text("precious")
    else:
        mine.write_text("precious")
    assert directory.purge_deleted(0) == 0
    assert mine.exists()


@pytest.mark.requirement("R27")
def test_partition_when_damaged_then_is_quarantined_with_the_reason_and_a_fresh_one_opens(
    open_directory: Callable,
) -> None:
    path = damage(open_directory())
    damaged = path.read_bytes()
    directory = open_directory()
    with pytest.raises(StorageCorrupted) as caught:
        directory.open_log(ORDERS, "t1", CONFIG)
    assert caught.value.path == str(path)
    kept = directory.path / "orders-0@quarantined-1"
    assert (kept / path.name).read_bytes() == damaged
    reason = json.loads((kept / "why-quarantined.json").read_text())
    assert reason == {"error": "StorageCorrupted", "message": str(caught.value)} | caught.value.facts()
    assert directory.logs == {}
    assert ORDERS not in directory.partitions()
    assert directory.unknown_entries() == []
    # No crash loop: the next try finds an empty place.
    log = directory.open_log(ORDERS, "t1", CONFIG)
    assert log.log_end_offset == 0
    fill(log)
    directory.close()
    again = open_directory()
    assert again.was_clean
    assert offsets(again.open_log(ORDERS, "t1", CONFIG)) == list(range(10))
    assert (kept / path.name).read_bytes() == damaged


@pytest.mark.requirement("R27")
def test_partition_when_one_is_damaged_then_its_neighbours_open(open_directory: Callable) -> None:
    first = open_directory()
    fill(first.open_log(TopicPartition("orders", 1), "t1", CONFIG))
    damage(first)
    directory = open_directory()
    with pytest.raises(StorageCorrupted):
        directory.open_log(ORDERS, "t1", CONFIG)
    assert offsets(directory.open_log(TopicPartition("orders", 1), "t1", CONFIG)) == list(range(10))


@pytest.mark.requirement("R27")
def test_partition_when_its_meta_is_damaged_or_gone_then_is_quarantined(open_directory: Callable) -> None:
    directory = open_directory()
    for number, hurt in enumerate(
        (lambda path: flip(path, 18), lambda path: path.unlink(), lambda path: flip(path, 0))
    ):
        partition = TopicPartition("orders", number)
        fill(directory.open_log(partition, "t1"))
        directory.close()
        hurt(directory.path / partition.directory_name / "partition.meta")
        directory = open_directory()
        with pytest.raises(StorageCorrupted, match=r"partition\.meta"):
            directory.open_log(partition, "t1")
        assert (directory.path / f"orders-{number}@quarantined-1" / "00000000000000000000.log").exists()


def test_partition_when_damage_shows_while_it_is_open_then_can_be_quarantined(open_directory: Callable) -> None:
    directory = open_directory()
    log = directory.open_log(ORDERS, "t1", CONFIG)
    fill(log)
    flip(log.segments[0].path, 150)
    with pytest.raises(StorageCorrupted) as caught:
        log.read(0)
    kept = directory.quarantine(ORDERS, caught.value)
    assert kept.name == "orders-0@quarantined-1"
    assert len(list(kept.glob("*.log"))) == 2
    assert directory.open_log(ORDERS, "t1", CONFIG).log_end_offset == 0


def test_partition_when_quarantined_again_and_again_then_every_copy_is_kept(open_directory: Callable) -> None:
    for number in range(1, 4):
        damage(open_directory())
        directory = open_directory()
        with pytest.raises(StorageCorrupted):
            directory.open_log(ORDERS, "t1", CONFIG)
        directory.close()
        assert len(list(directory.path.glob("orders-0@quarantined-*"))) == number


# --- long names

LONG = "x" * MAX_TOPIC_NAME_LENGTH


def test_partition_when_its_topic_has_the_longest_name_then_can_be_used_deleted_and_set_aside(
    open_directory: Callable,
) -> None:
    directory = open_directory()
    for number in (0, 99_999):
        partition = TopicPartition(LONG, number)
        fill(directory.open_log(partition, "t1", CONFIG))
        directory.delete(partition, "t1")
    assert directory.purge_deleted(0) == 2
    partition = TopicPartition(LONG, 7)
    fill(directory.open_log(partition, "t1"))
    directory.close()
    again = open_directory()
    again.open_log(partition, "t2")
    assert sorted(path.name[-8:] for path in again.path.glob("x*")) == ["@stray-1", "x" * 6 + "-7"]


def test_partition_when_a_long_name_is_cut_short_then_neighbours_do_not_collide(open_directory: Callable) -> None:
    directory = open_directory()
    for topic in (LONG, LONG[:-1] + "y"):
        fill(directory.open_log(TopicPartition(topic, 0), topic[-3:]))
        directory.delete(TopicPartition(topic, 0), topic[-3:])
    assert len(list(directory.path.glob("*@deleted-*"))) == 2


def test_inspection_when_a_quarantined_long_name_was_cut_short_then_says_nothing_of_it(
    open_directory: Callable,
) -> None:
    directory = open_directory()
    partition = TopicPartition(LONG, 0)
    fill(directory.open_log(partition, "t1"))
    kept = directory.quarantine(partition, InvalidRequest("by hand"))
    assert not [found for found in inspect(kept) if isinstance(found, Damage)]


def test_partition_when_its_directory_name_is_too_long_for_the_file_system_then_says_so(
    open_directory: Callable,
) -> None:
    directory = open_directory()
    with pytest.raises((InvalidRequest, DirectoryUnusable)):
        directory.open_log(TopicPartition(LONG, 100_000), "t1")
