"""Whose directory this is: locks against other processes, and the ids of cluster, broker, disk and topic."""

import os
from dataclasses import dataclass
from pathlib import Path

from lograft.contract.directories import DirectoryLock, create_directory, open_failure
from lograft.contract.disk import Disk
from lograft.contract.errors import (
    InvalidRequest,
    StorageCorrupted,
    WrongDirectory,
)
from lograft.contract.ids import TopicPartition, random_id
from lograft.contract.small_files import Kind, read_small_file, write_small_file
from lograft.storage.small_files import DIRECTORY_META, PARTITION_META
from lograft.v1 import storage_pb2

MAX_NAME_BYTES = 255


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
