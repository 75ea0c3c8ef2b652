"""Whose directory this is: locks against other processes, and the ids of cluster, broker, disk and topic."""

import errno
import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lograft.contract.disk import Disk, is_no_space
from lograft.contract.errors import (
    DirectoryLocked,
    DirectoryUnusable,
    DiskFull,
    InvalidRequest,
    LogError,
    StorageCorrupted,
    StorageFailed,
    WrongDirectory,
)
from lograft.contract.ids import TopicPartition, random_id
from lograft.storage.recovery import LOCK_FILE
from lograft.storage.small_files import (
    DIRECTORY_META,
    PARTITION_META,
    Kind,
    read_small_file,
    write_small_file,
)
from lograft.v1 import storage_pb2

MAX_NAME_BYTES = 255


class DirectoryLock:
    """Keeps other processes out of a directory for as long as this one lives; a crash releases it."""

    def __init__(self, directory: Path) -> None:
        path = directory / LOCK_FILE
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise open_failure(directory, error) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(self._file, 64, 0).decode(errors="replace").strip()
            os.close(self._file)
            raise DirectoryLocked(str(directory), owner or "process unknown") from None
        with suppress(OSError):  # a hint for people, not worth failing for on a full disk
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"pid {os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others in. The file stays: removing it would race with the next owner."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


@dataclass(slots=True)
class OwnedPartition:
    """A partition's directory that this process may write to."""

    path: Path
    topic_partition: TopicPartition
    topic_id: str
    lock: DirectoryLock | None

    def release(self) -> None:
        """Let others in."""
        if self.lock is not None:
            self.lock.release()


def claim_partition(path: Path, topic_id: str | None, disk: Disk, *, lock: bool) -> OwnedPartition:
    """Check that the directory may be used for this topic, creating it if it is not there.

    Inside a data directory the lock is the data directory's: a running broker owns all of it.
    """
    path = path.absolute()
    topic_partition = TopicPartition.from_directory_name(path.name)
    if topic_partition is None:
        raise InvalidRequest(
            f"{path} is not named like a partition: expected <topic>-<partition>, for example {path.parent}/orders-0"
        )
    check_name_length(path)
    if not path.is_dir():
        create_directory(path, disk)
    in_data_directory = (path.parent / DIRECTORY_META).exists()
    held = DirectoryLock(path.parent if in_data_directory else path) if lock else None
    try:
        found_id = _partition_id(path, topic_partition, topic_id, disk)
    except BaseException as error:
        if held is not None:
            held.release()
        if isinstance(error, OSError):
            raise open_failure(path, error) from error
        raise
    return OwnedPartition(path, topic_partition, found_id, held)


def check_name_length(path: Path) -> None:
    """Raise `InvalidRequest` for a directory name that no file system takes."""
    size = len(os.fsencode(path.name))
    if size > MAX_NAME_BYTES:
        problem = f"of {size} bytes is above the {MAX_NAME_BYTES} that file systems take: choose a shorter topic name"
        raise InvalidRequest(f"the directory name {path.name[:40]}… {problem}")


def _partition_id(path: Path, topic_partition: TopicPartition, topic_id: str | None, disk: Disk) -> str:
    meta_path = path / PARTITION_META
    meta = read_small_file(meta_path, Kind.PARTITION_META, storage_pb2.PartitionMeta)
    if meta is None:
        if any(path.glob("*.log")):
            # Always written before the first segment.
            raise StorageCorrupted(str(meta_path), 0, "the file is missing beside segments")
        meta = storage_pb2.PartitionMeta(
            topic_id=topic_id or random_id(), topic=topic_partition.topic, partition=topic_partition.partition
        )
        write_small_file(disk, meta_path, Kind.PARTITION_META, meta)
    if (meta.topic, meta.partition) != topic_partition:
        raise WrongDirectory(str(path), "partition", f"{meta.topic}-{meta.partition}", str(topic_partition))
    if topic_id is not None and meta.topic_id != topic_id:
        raise WrongDirectory(str(path), "topic id", meta.topic_id, topic_id)
    return meta.topic_id


def open_failure(path: Path, error: OSError) -> LogError:
    """What it means for the user that the system refused something while a directory was opened."""
    if is_no_space(error):
        return DiskFull(str(path))
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return DirectoryUnusable(str(path), f"{error.strerror}: it must be writable")
    return StorageFailed(str(path), str(error))


def create_directory(path: Path, disk: Disk) -> None:
    """Create a directory durably; its parent must be there."""
    try:
        disk.make_directory(path)
    except FileExistsError:
        raise DirectoryUnusable(str(path), "it is not a directory") from None
    except FileNotFoundError:
        raise DirectoryUnusable(str(path), f"{path.parent} does not exist") from None
    except OSError as error:
        raise open_failure(path, error) from error
