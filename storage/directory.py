"""All partitions of one broker on one disk: who owns them, which are open, and where the damaged ones go.

Nothing here deletes a replica on its own judgement. A directory that does not belong is refused or set aside under
another name, a damaged one is quarantined, a deleted one is renamed first and removed after a delay.
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from lograft.contract.directories import LOCK_FILE, DirectoryLock, create_directory, open_failure
from lograft.contract.disk import Disk, going_on_without_space
from lograft.contract.errors import DirectoryUnusable, InvalidRequest, LogError, StorageCorrupted, WrongDirectory
from lograft.contract.ids import TopicPartition, random_id
from lograft.contract.small_files import Kind, read_small_file, write_small_file
from lograft.storage.clocks import wall_clock_ms
from lograft.storage.config import LogConfig
from lograft.storage.log import PartitionLog
from lograft.storage.ownership import check_name_length
from lograft.storage.small_files import DIRECTORY_META, PARTITION_META
from lograft.storage.writer import GroupCommitWriter, PendingAppend
from lograft.v1 import storage_pb2

CLEAN_STOP = "clean-stop"
DELETED = "deleted"
QUARANTINED = "quarantined"
STRAY = "stray"
# No topic name has an "@": a live partition can never look like one of these.
SET_ASIDE_NAME = re.compile(rf"(?P<name>.+)@(?P<why>{DELETED}|{QUARANTINED}|{STRAY})-[0-9]+")
# A longer name is cut short, so that the suffix fits; `partition.meta` inside has it in full.
MAX_KEPT_NAME = 200
REASON_FILE = "why-quarantined.json"
DEFAULT_DELETE_DELAY_S = 60.0


class DataDirectory:
    """One broker's data directory, locked while open."""

    def __init__(
        self,
        path: Path | str,
        *,
        cluster_id: str,
        broker_id: int,
        disk: Disk | None = None,
        on_group: Callable[[Sequence[PendingAppend]], None] | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """Open or create. Raises `WrongDirectory` for another cluster's or broker's, `DirectoryLocked` if in use."""
        self.path = Path(path).absolute()
        self.disk = disk or Disk()
        self._now_ms = now_ms
        if not self.path.is_dir():
            create_directory(self.path, self.disk)
        self._lock = DirectoryLock(self.path)
        try:
            meta = self._claim(cluster_id, broker_id)
            self.directory_id = meta.directory_id
            self.was_clean = self._take_clean_stop()
            self.writer = GroupCommitWriter(self.path, self.disk, on_group=on_group)
        except BaseException as error:
            self._lock.release()
            if isinstance(error, OSError):
                raise open_failure(self.path, error) from error
            raise
        self.logs: dict[TopicPartition, PartitionLog] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _claim(self, cluster_id: str, broker_id: int) -> storage_pb2.DirectoryMeta:
        path = self.path / DIRECTORY_META
        meta = read_small_file(path, Kind.DIRECTORY_META, storage_pb2.DirectoryMeta)
        if meta is None:
            if self.partitions():
                raise StorageCorrupted(str(path), 0, "the file is missing beside partitions")
            meta = storage_pb2.DirectoryMeta(cluster_id=cluster_id, broker_id=broker_id, directory_id=random_id())
            write_small_file(self.disk, path, Kind.DIRECTORY_META, meta)
        if meta.cluster_id != cluster_id:
            raise WrongDirectory(str(self.path), "cluster", meta.cluster_id, cluster_id)
        if meta.broker_id != broker_id:
            raise WrongDirectory(str(self.path), "broker", str(meta.broker_id), str(broker_id))
        return meta

    def _take_clean_stop(self) -> bool:
        """Whether the last owner stopped in good order; from now on a crash will show."""
        marker = self.path / CLEAN_STOP
        was_clean = marker.exists()
        self.disk.remove(marker)
        self.disk.sync_directory(self.path)
        return was_clean

    def partitions(self) -> list[TopicPartition]:
        """Every partition that has a directory here."""
        found = (TopicPartition.from_directory_name(path.name) for path in self.path.iterdir() if path.is_dir())
        return sorted(partition for partition in found if partition is not None)

    def unknown_entries(self) -> list[Path]:
        """What lies here and is not ours, by name: left alone, and worth a warning."""
        return sorted(
            path
            for path in self.path.iterdir()
            if path.name not in (DIRECTORY_META, LOCK_FILE, CLEAN_STOP)
            and (not path.is_dir() or TopicPartition.from_directory_name(path.name) is None)
            and not SET_ASIDE_NAME.fullmatch(path.name)
        )

    def topic_id_of(self, partition: TopicPartition) -> str | None:
        """The topic id in a partition's directory; None if there is no such directory."""
        path = self.path / partition.directory_name / PARTITION_META
        meta = read_small_file(path, Kind.PARTITION_META, storage_pb2.PartitionMeta)
        return meta.topic_id if meta is not None else None

    def open_log(
        self,
        partition: TopicPartition,
        topic_id: str,
        config: LogConfig | None = None,
        *,
        replicated: bool = True,
    ) -> PartitionLog:
        """Open or create the log of a partition.

        A directory of another topic id (a topic deleted and created again meanwhile) is set aside first. One that is
        damaged below what was safe is quarantined, and `StorageCorrupted` raised: the caller re-replicates it.
        """
        known = self.logs.get(partition)
        if known is not None:
            if known.topic_id != topic_id:
                raise WrongDirectory(str(known.path), "topic id", known.topic_id, topic_id)
            return known
        path = self.path / partition.directory_name
        check_name_length(path)
        if path.is_dir() and path.stat().st_dev != self.path.stat().st_dev:
            # One sync of the file system is to cover all partitions.
            raise DirectoryUnusable(str(path), f"it lies on another file system than {self.path}")
        try:
            if path.is_dir() and self.topic_id_of(partition) not in (None, topic_id):
                self._rename_away(path, STRAY)
            log = PartitionLog.open(
                path,
                config,
                topic_id=topic_id,
                disk=self.disk,
                writer=self.writer,
                replicated=replicated,
                now_ms=self._now_ms,
            )
        except StorageCorrupted as error:
            self._quarantine_path(path, error)
            raise
        self.logs[partition] = log
        return log

    def quarantine(self, partition: TopicPartition, reason: LogError) -> Path:
        """Close a damaged replica and put it aside with all its files; where it lies now."""
        log = self.logs.pop(partition, None)
        if log is not None:
            log.close()
        return self._quarantine_path(self.path / partition.directory_name, reason)

    def _quarantine_path(self, path: Path, reason: LogError) -> Path:
        facts = {"error": type(reason).__name__, "message": str(reason), **reason.facts()}
        kept = self._rename_away(path, QUARANTINED)
        with suppress(OSError):  # for people; the error itself goes on its way
            (kept / REASON_FILE).write_text(json.dumps(facts, indent=2) + "\n")
        return kept

    def delete(self, partition: TopicPartition, topic_id: str) -> None:
        """Take a replica out of service because its topic id was removed; `purge_deleted` removes its files later."""
        log = self.logs.get(partition)
        found = log.topic_id if log is not None else self.topic_id_of(partition)
        if found is None:
            return
        if found != topic_id:
            raise WrongDirectory(str(self.path / partition.directory_name), "topic id", found, topic_id)
        if log is not None:
            del self.logs[partition]
            log.close()
        self._rename_away(self.path / partition.directory_name, DELETED)

    def purge_deleted(self, delay_s: float = DEFAULT_DELETE_DELAY_S) -> int:
        """Remove the files of replicas that were deleted at least ``delay_s`` ago; how many replicas."""
        due = [
            path for path in self.path.iterdir() if _was_deleted(path) and time.time() - path.stat().st_ctime >= delay_s
        ]
        for path in due:
            shutil.rmtree(path)
        return len(due)

    def _rename_away(self, path: Path, why: str) -> Path:
        for number in range(1, 1_000_000):
            target = path.with_name(f"{path.name[:MAX_KEPT_NAME]}@{why}-{number}")
            if not target.exists():
                self.disk.rename(path, target)
                self.disk.sync_directory(self.path)
                return target
        raise InvalidRequest(f"{self.path} holds a million directories set aside for {path.name}: clear them away")

    def close(self) -> None:
        """Close every log in good order, and say so on disk."""
        try:
            with ExitStack() as closing:  # every one, whatever happens to another
                for log in self.logs.values():
                    closing.callback(log.close)
            self.logs.clear()
            if self.writer.failure is None:
                self._leave_clean_stop()
        finally:
            self.writer.close()
            self._lock.release()

    def _leave_clean_stop(self) -> None:
        with going_on_without_space(self.path):  # the next start then counts as one after a crash
            self.disk.replace_file(self.path / CLEAN_STOP, b"")


def _was_deleted(path: Path) -> bool:
    match = SET_ASIDE_NAME.fullmatch(path.name)
    return match is not None and match["why"] == DELETED and path.is_dir()
