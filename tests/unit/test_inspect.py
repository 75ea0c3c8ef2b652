"""What `lograft.storage.inspect` says of sound and of damaged directories, and that it never writes."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from lograft.contract.batch import HEADER_SIZE, Batch
from lograft.contract.codecs import Codec
from lograft.contract.disk import Disk
from lograft.contract.errors import DirectoryUnusable
from lograft.contract.ids import TopicPartition
from lograft.contract.records import encode_batch
from lograft.contract.small_files import Kind, read_small_file, write_small_file
from lograft.storage import CleanupPolicy, DataDirectory, LogConfig, PartitionLog
from lograft.storage.compaction import compact
from lograft.storage.index import SparseIndex, read_index, write_index
from lograft.storage.inspect import (
    Damage,
    Finding,
    PartitionChecked,
    Remark,
    StaleCache,
    TornTail,
    inspect,
    log_bytes,
    partition_directories,
)
from lograft.storage.segment import scan_headers
from lograft.v1 import storage_pb2

CONFIG = LogConfig(segment_bytes=1500, max_batch_bytes=1500, index_interval_bytes=300)
NOW_MS = 1_700_000_000_000
SEGMENT_0 = "00000000000000000000.log"


def batch(number: int, *, codec: Codec = Codec.NONE) -> Batch:
    return encode_batch(
        [b"value %d" % number, None, b"\xff\x00"],
        timestamps_ms=[NOW_MS + number, NOW_MS, NOW_MS],
        keys=[b"k%d" % (number % 3), b"x", b"y"],
        codec=codec,
        producer_id=9,
        base_sequence=number * 3,
    )


def fill(log: PartitionLog, count: int = 30) -> None:
    for number in range(count):
        log.append(batch(number, codec=list(Codec)[number % 4]), leader_epoch=number // 10)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Four or so segments, closed in good order."""
    path = tmp_path / "orders-0"
    with PartitionLog.open(path, CONFIG, now_ms=lambda: NOW_MS) as log:
        fill(log)
    return path


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("*.log"))


def findings(path: Path) -> list[Finding]:
    return [seen for seen in inspect(path) if not isinstance(seen, PartitionChecked)]


def totals(path: Path) -> list[PartitionChecked]:
    return [seen for seen in inspect(path) if isinstance(seen, PartitionChecked)]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)


def positions(path: Path) -> list[int]:
    with path.open("rb") as file:
        return [at for at, _ in scan_headers(Disk(), file.fileno(), 0, path.stat().st_size)]


def change_checkpoint(path: Path, change: Callable[[storage_pb2.PartitionCheckpoint], None]) -> None:
    stored = read_small_file(path / "checkpoint", Kind.CHECKPOINT, storage_pb2.PartitionCheckpoint)
    assert stored is not None
    change(stored)
    write_small_file(Disk(), path / "checkpoint", Kind.CHECKPOINT, stored)


def said(found: Iterable[Finding]) -> list[tuple[type[Finding], str, int]]:
    return [(type(finding), finding.path.name, finding.position) for finding in found]


def test_a_sound_partition_has_no_findings_and_is_counted(partition: Path) -> None:
    read: list[int] = []
    seen = list(inspect(partition, on_progress=read.append))
    [checked] = seen
    assert isinstance(checked, PartitionChecked)
    assert (checked.batches, checked.records, checked.start_offset, checked.end_offset) == (30, 90, 0, 90)
    assert checked.segments == len(segments(partition)) > 2
    assert sum(read) == checked.size_bytes == log_bytes([partition])


def test_inspection_changes_nothing(partition: Path) -> None:
    flip(segments(partition)[0], 100)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in partition.iterdir()}
    findings(partition)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in partition.iterdir()} == before


def test_an_open_log_and_its_rolled_and_compacted_segments_are_sound(tmp_path: Path) -> None:
    config = LogConfig(
        segment_bytes=1500, max_batch_bytes=1500, index_interval_bytes=300, cleanup_policy=CleanupPolicy.COMPACT
    )
    path = tmp_path / "orders-0"
    with PartitionLog.open(path, config) as log:
        for number in range(40):
            log.append(batch(number))
            if number % 10 == 0:
                log.flush()
                assert findings(path) == []
        assert compact(log, force=True) is not None
        log.flush()
        assert findings(path) == []
        log.truncate(60)
        log.append(encode_batch([b"after"], keys=[b"k"], timestamps_ms=1))
        log.delete_records(30)
        log.flush()
        assert findings(path) == []
    assert findings(path) == []


def test_flipped_header_byte_is_damage_and_the_rest_is_still_read(partition: Path) -> None:
    first = segments(partition)[0]
    bad = positions(first)[2]
    flip(first, bad + 20)
    found = findings(partition)
    assert said(found) == [(Damage, SEGMENT_0, bad)]
    assert "checksum" in found[0].problem
    # The index led behind the bad batch: at most one stretch of it is lost.
    assert totals(partition)[0].batches >= 27


def test_every_damaged_batch_is_named(partition: Path) -> None:
    first, second = segments(partition)[:2]
    at = positions(first)
    for path, position in ((first, at[1]), (first, at[4]), (second, 0)):
        flip(path, position + HEADER_SIZE)
    assert said(findings(partition)) == [
        (Damage, first.name, at[1]),
        (Damage, first.name, at[4]),
        (Damage, second.name, 0),
    ]
    assert totals(partition)[0].batches == 27


def test_every_byte_of_a_small_partition_matters(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    with PartitionLog.open(path, CONFIG, now_ms=lambda: NOW_MS) as log:
        fill(log, 2)
    for file in [path / SEGMENT_0, path / "checkpoint", path / "partition.meta"]:
        whole = file.read_bytes()
        for position in range(len(whole)):
            flip(file, position)
            assert any(isinstance(finding, Damage) and finding.path == file for finding in findings(path)), position
            file.write_bytes(whole)
    for suffix in (".index", ".timeindex"):
        file = (path / SEGMENT_0).with_suffix(suffix)
        whole = file.read_bytes()
        for position in range(len(whole)):
            flip(file, position)
            assert said(findings(path)) == [(StaleCache, file.name, 0)], position
            file.write_bytes(whole)


def test_records_that_do_not_open_are_damage_though_their_checksum_is_right(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    sound = batch(0)
    lying = Batch(sound.header._replace(record_count=2), sound.records)
    with PartitionLog.open(path, CONFIG) as log:
        for pending in log.submit_replica(lying.frame()):
            pending.wait()
    [found] = findings(path)
    assert isinstance(found, Damage)
    assert "2 records" in found.problem


def test_indexes_missing_or_lying_are_warnings(partition: Path) -> None:
    first, second, third = segments(partition)[:3]
    first.with_suffix(".index").unlink()
    stored = read_index(second)
    assert stored is not None
    wrong = SparseIndex(stored[1].places[:], stored[1].times_before[:])
    wrong.places[1] += 1
    write_index(Disk(), second, stored[0], wrong)
    stored = read_index(third)
    assert stored is not None
    stored[1].times_before[1] = 0
    write_index(Disk(), third, *stored)
    found = findings(partition)
    assert said(found) == [
        (StaleCache, first.with_suffix(".index").name, 0),
        (StaleCache, second.with_suffix(".index").name, 0),
        (StaleCache, third.with_suffix(".timeindex").name, 0),
    ]
    remedies = [finding.remedy for finding in found if isinstance(finding, StaleCache)]
    assert remedies[0] == "will be rebuilt on open"
    assert "remove" in remedies[1]
    assert "remove" in remedies[2]


def test_torn_tail_above_the_checkpoint_is_told_apart_from_damage_below(partition: Path) -> None:
    last = segments(partition)[-1]
    size = last.stat().st_size
    with last.open("ab") as file:
        file.write(b"torn!")
    assert said(findings(partition)) == [(TornTail, last.name, size)]
    [torn] = [finding for finding in findings(partition) if isinstance(finding, TornTail)]
    assert torn.cut_bytes == 5
    with last.open("r+b") as file:
        file.truncate(size - 1)
    assert [kind for kind, _, _ in said(findings(partition))] == [StaleCache, Damage, Damage]


def test_what_inspection_calls_a_torn_tail_recovery_cuts(partition: Path) -> None:
    last = segments(partition)[-1]
    with last.open("ab") as file:
        file.write(last.read_bytes()[:50])
    [torn] = findings(partition)
    assert isinstance(torn, TornTail)
    with PartitionLog.open(partition, CONFIG) as log:
        [cut] = log.recovery.cuts
        assert (cut.path, cut.position, cut.cut_bytes) == (str(torn.path), torn.position, torn.cut_bytes)
    assert findings(partition) == []


def test_missing_segment_is_damage(partition: Path) -> None:
    segments(partition)[1].unlink()
    assert any(isinstance(finding, Damage) and "ends at offset" in finding.problem for finding in findings(partition))
    segments(partition)[0].unlink()
    assert any(isinstance(finding, Damage) and "missing before" in finding.problem for finding in findings(partition))


def test_missing_last_segments_are_damage_when_the_checkpoint_knows_of_them(partition: Path) -> None:
    end = totals(partition)[0].end_offset

    def just_rolled(stored: storage_pb2.PartitionCheckpoint) -> None:
        stored.flushed_segment_base, stored.flushed_position = end, 0

    change_checkpoint(partition, just_rolled)
    assert findings(partition) == []
    segments(partition)[-1].unlink()
    assert any(isinstance(finding, Damage) and "were synced" in finding.problem for finding in findings(partition))


def test_a_restart_interrupted_before_the_old_segments_were_removed_is_no_damage(partition: Path) -> None:
    def restarted(stored: storage_pb2.PartitionCheckpoint) -> None:
        stored.flushed_segment_base = stored.flushed_end_offset = stored.log_start_offset = stored.high_watermark = 500
        stored.flushed_position = 0
        del stored.epochs[:]

    change_checkpoint(partition, restarted)
    found = findings(partition)
    assert found
    assert {type(finding) for finding in found} == {Remark}


def test_offsets_that_go_back_are_damage(partition: Path) -> None:
    first, second = segments(partition)[:2]
    swapped = second.read_bytes() + first.read_bytes()
    for path in segments(partition):
        path.unlink()
    (partition / SEGMENT_0).write_bytes(swapped)

    def all_in_one(stored: storage_pb2.PartitionCheckpoint) -> None:
        stored.flushed_segment_base, stored.flushed_position = 0, len(swapped)

    change_checkpoint(partition, all_in_one)
    problems = [finding.problem for finding in findings(partition) if isinstance(finding, Damage)]
    assert any("offset 0 goes back" in problem for problem in problems)


def test_epochs_that_go_back_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    with PartitionLog.open(path, CONFIG, now_ms=lambda: NOW_MS) as log:
        log.append(batch(0), leader_epoch=5)
    older = batch(1)
    frame = Batch(older.header._replace(base_offset=3, leader_epoch=4), older.records).frame()
    with (path / SEGMENT_0).open("ab") as file:
        file.write(frame)
    found = [finding for finding in findings(path) if isinstance(finding, Damage)]
    assert [finding.problem for finding in found] == ["leader epoch 4 goes back behind 5"]


def test_checkpoint_that_disagrees_with_the_log_is_damage(partition: Path) -> None:
    def other_epochs(stored: storage_pb2.PartitionCheckpoint) -> None:
        stored.epochs[1].start_offset += 3

    change_checkpoint(partition, other_epochs)
    [found] = findings(partition)
    assert (type(found), found.path.name) == (Damage, "checkpoint")
    assert "epoch" in found.problem

    def beyond(stored: storage_pb2.PartitionCheckpoint) -> None:
        stored.epochs[1].start_offset -= 3
        stored.flushed_end_offset += 1

    change_checkpoint(partition, beyond)
    [found] = findings(partition)
    assert "says offset 91" in found.problem

    def above(stored: storage_pb2.PartitionCheckpoint) -> None:
        stored.flushed_end_offset -= 1
        stored.high_watermark = 1000

    change_checkpoint(partition, above)
    [found] = findings(partition)
    assert "do not ascend" in found.problem


def test_batches_around_a_failed_sync_will_be_cut(partition: Path) -> None:
    last = segments(partition)[-1]
    at = positions(last)[-1]

    def failed(stored: storage_pb2.PartitionCheckpoint) -> None:
        stored.close_state = storage_pb2.CLOSE_STATE_SYNC_FAILED
        stored.trusted_end_offset = stored.flushed_end_offset = stored.high_watermark = 87
        stored.flushed_position = at

    change_checkpoint(partition, failed)
    found = findings(partition)
    assert (TornTail, last.name, at) in said(found)
    assert not any(isinstance(finding, Damage) for finding in found)


def test_missing_checkpoint_is_a_remark_and_missing_meta_is_damage(partition: Path) -> None:
    (partition / "checkpoint").unlink()
    assert said(findings(partition)) == [(Remark, "checkpoint", 0)]
    (partition / "partition.meta").unlink()
    assert (Damage, "partition.meta", 0) in said(findings(partition))


def test_directory_of_another_name_is_damage_unless_it_was_set_aside(partition: Path, tmp_path: Path) -> None:
    other = tmp_path / "payments-0"
    shutil.copytree(partition, other)
    [found] = findings(other)
    assert (type(found), found.path.name) == (Damage, "partition.meta")
    aside = tmp_path / "orders-0@quarantined-1"
    shutil.copytree(partition, aside)
    assert findings(aside) == []


def test_producer_snapshots_are_checked_and_leftovers_named(partition: Path) -> None:
    snapshot = max(partition.glob("*.producers"))
    flip(snapshot, 20)
    (partition / "notes.txt").write_text("mine")
    (partition / "checkpoint.tmp").write_bytes(b"")
    assert set(said(findings(partition))) == {
        (StaleCache, snapshot.name, 0),
        (Remark, "notes.txt", 0),
        (Remark, "checkpoint.tmp", 0),
    }


def test_interrupted_compaction_is_read_as_opening_would_finish_it(partition: Path) -> None:
    first, second = segments(partition)[:2]
    swap = f"{SEGMENT_0}.swap-{segments(partition)[2].stem}"
    (partition / swap).write_bytes(first.read_bytes() + second.read_bytes())
    second.unlink()
    found = findings(partition)
    assert not any(isinstance(finding, Damage | TornTail) for finding in found)
    assert (Remark, swap, 0) in said(found)
    assert totals(partition)[0].records == 90


def test_log_that_changes_meanwhile_is_not_called_damaged(partition: Path) -> None:
    seen = inspect(partition)
    change_to = segments(partition)
    flip(change_to[0], 50)
    found = next(seen)
    assert isinstance(found, Damage)
    # The owner deletes the oldest segments while the pass goes on.
    for path in change_to[:2]:
        path.unlink()
    rest = list(seen)
    assert [type(finding) for finding in rest] == [Remark, PartitionChecked]


def test_data_directory_is_checked_as_a_whole(tmp_path: Path) -> None:
    root = tmp_path / "data"
    with DataDirectory(root, cluster_id="c", broker_id=1) as data:
        for number in (0, 1, 10):
            fill(data.open_log(TopicPartition("orders", number), "t", CONFIG), 5)
    assert findings(root) == []
    assert [one.path.name for one in totals(root)] == ["orders-0", "orders-1", "orders-10"]
    flip(root / "directory.meta", 30)
    shutil.copytree(root / "orders-1", root / "orders-1@quarantined-1")
    assert said(findings(root)) == [(Damage, "directory.meta", 0), (Remark, "orders-1@quarantined-1", 0)]
    (root / "directory.meta").unlink()
    assert (Damage, "directory.meta", 0) in said(findings(root))


def test_empty_and_foreign_directories(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    assert said(findings(tmp_path / "orders-0")) == [(Remark, "partition.meta", 0)]
    (tmp_path / "photos").mkdir()
    for path, problem in ((tmp_path / "photos", "neither"), (tmp_path / "nowhere", "not exist")):
        with pytest.raises(DirectoryUnusable, match=problem):
            partition_directories(path)
