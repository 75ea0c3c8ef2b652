"""Is what lies on disk sound? Looks at everything, changes nothing, takes no lock.

`inspect` goes through a partition directory or a whole data directory and yields typed findings, then for each
partition a `PartitionChecked`. Damage is told apart from what the next opening mends by itself, by the rules of
`lograft.storage.recovery`. A log in use may be inspected: what changes meanwhile is recognised and said.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from lograft.contract.directories import LOCK_FILE
from lograft.contract.disk import Disk
from lograft.contract.errors import DirectoryUnusable, StorageCorrupted, UnsupportedVersion
from lograft.contract.ids import TopicPartition
from lograft.contract.small_files import Kind, read_small_file
from lograft.storage.directory import QUARANTINED, SET_ASIDE_NAME
from lograft.storage.inspect_files import damage_of, partition_named_by
from lograft.storage.inspect_partition import PartitionChecked, PartitionInspection
from lograft.storage.inspect_segment import Damage, Finding, Remark, StaleCache, TornTail
from lograft.storage.segment import base_offset_of
from lograft.storage.small_files import DIRECTORY_META, PARTITION_META
from lograft.v1 import storage_pb2

__all__ = [
    "Damage",
    "Finding",
    "PartitionChecked",
    "Remark",
    "StaleCache",
    "TornTail",
    "inspect",
    "is_data_directory",
    "log_bytes",
    "partition_directories",
]


def is_data_directory(path: Path) -> bool:
    """Whether the directory holds partitions rather than being one."""
    if (path / DIRECTORY_META).exists():
        return True
    return not _looks_like_partition(path) and any(_partition_paths(path))


def partition_directories(path: Path) -> list[Path]:
    """The partition directory itself, or those of a data directory; `DirectoryUnusable` if it is neither."""
    path = path.absolute()
    if not path.is_dir():
        raise DirectoryUnusable(str(path), "it is not a directory" if path.exists() else "it does not exist")
    if is_data_directory(path):
        return _partition_paths(path)
    if not _looks_like_partition(path) and partition_named_by(path) is None:
        raise DirectoryUnusable(
            str(path), "it is neither a partition directory (<topic>-<partition>) nor a data directory that holds some"
        )
    return [path]


def log_bytes(directories: list[Path]) -> int:
    """How many bytes of segments there are, for a progress display."""
    total = 0
    for directory in directories:
        for path in directory.glob("*.log"):
            try:
                total += path.stat().st_size
            except FileNotFoundError:  # deleted meanwhile by the log's owner
                continue
    return total


def inspect(
    path: Path, *, disk: Disk | None = None, on_progress: Callable[[int], None] = lambda _: None
) -> Iterator[Finding | PartitionChecked]:
    """Check a partition directory or a data directory. ``on_progress`` is told how many more bytes were read."""
    directories = partition_directories(path)
    if is_data_directory(path):
        yield from _inspect_data_directory(path.absolute(), has_partitions=bool(directories))
    for directory in directories:
        yield from PartitionInspection(directory, disk or Disk(), on_progress).run()


def _looks_like_partition(path: Path) -> bool:
    return (path / PARTITION_META).exists() or any(base_offset_of(child.name) is not None for child in path.iterdir())


def _partition_paths(path: Path) -> list[Path]:
    found = ((TopicPartition.from_directory_name(child.name), child) for child in path.iterdir() if child.is_dir())
    return [child for _, child in sorted((name, child) for name, child in found if name is not None)]


def _inspect_data_directory(path: Path, *, has_partitions: bool) -> Iterator[Finding]:
    meta_path = path / DIRECTORY_META
    try:
        meta = read_small_file(meta_path, Kind.DIRECTORY_META, storage_pb2.DirectoryMeta)
        if meta is None and has_partitions:
            if (path / LOCK_FILE).exists():
                yield Damage(meta_path, 0, "the file is missing beside partitions")
            else:
                yield Remark(meta_path, 0, "the file is missing: partitions, but not those of a broker")
    except (StorageCorrupted, UnsupportedVersion) as error:
        yield damage_of(meta_path, error)
    for child in sorted(path.iterdir()):
        set_aside = SET_ASIDE_NAME.fullmatch(child.name)
        if set_aside and set_aside["why"] == QUARANTINED:
            yield Remark(child, 0, "quarantined: not checked here; to check it, name it")
