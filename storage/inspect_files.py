"""The files beside the segments, for `lograft.storage.inspect`: whose directory it is, snapshots, leftovers."""

from collections.abc import Iterator
from pathlib import Path

from lograft.contract.directories import LOCK_FILE
from lograft.contract.errors import StorageCorrupted, UnsupportedVersion
from lograft.contract.ids import TopicPartition
from lograft.contract.small_files import Kind, read_small_file
from lograft.storage.directory import MAX_KEPT_NAME, REASON_FILE, SET_ASIDE_NAME
from lograft.storage.inspect_segment import Damage, Finding, Remark, StaleCache
from lograft.storage.segment import base_offset_of
from lograft.storage.small_files import CHECKPOINT, PARTITION_META
from lograft.v1 import storage_pb2

_KNOWN_NAMES = (CHECKPOINT, PARTITION_META, LOCK_FILE, REASON_FILE)
_UNFINISHED = {
    ".tmp": "left by a crash: removed on open",
    ".cleaned": "left by an interrupted compaction: removed on open",
    ".swap": "left by an interrupted compaction: opening completes it",
}
_IGNORED = "will be ignored, the log says the same"
_REMOVE_IT = "a truncation would trust it: remove the file"


def partition_named_by(path: Path) -> TopicPartition | None:
    """The partition a directory is named for, also when it was set aside under a longer name."""
    set_aside = SET_ASIDE_NAME.fullmatch(path.name)
    return TopicPartition.from_directory_name(set_aside["name"] if set_aside else path.name)


def _is_named_for(path: Path, partition: TopicPartition) -> bool:
    set_aside = SET_ASIDE_NAME.fullmatch(path.name)
    name = partition.directory_name
    return (set_aside["name"] == name[:MAX_KEPT_NAME]) if set_aside else path.name == name


def damage_of(path: Path, error: StorageCorrupted | UnsupportedVersion) -> Damage:
    """The finding that says what the error says."""
    if isinstance(error, StorageCorrupted):
        return Damage(path, error.position, error.problem)
    return Damage(path, 0, f"has version {error.found}, and this release knows up to {error.supported}")


def inspect_meta(directory: Path, *, has_segments: bool) -> Iterator[Finding]:
    """Whether the directory is that of the partition it is named for."""
    path = directory / PARTITION_META
    try:
        meta = read_small_file(path, Kind.PARTITION_META, storage_pb2.PartitionMeta)
    except (StorageCorrupted, UnsupportedVersion) as error:
        yield damage_of(path, error)
        return
    if meta is None:
        if has_segments:
            yield Damage(path, 0, "the file is missing beside segments")
        else:
            yield Remark(path, 0, "the file is missing: the partition was never used")
    elif not _is_named_for(directory, TopicPartition(meta.topic, meta.partition)):
        problem = f"says {meta.topic}-{meta.partition}, but the directory is named {directory.name}"
        yield Damage(path, 0, problem)


def inspect_other_files(directory: Path, segments: list[Path]) -> Iterator[Finding]:
    """Producer snapshots, and files that belong to nothing."""
    newest = max(segments).name if segments else ""
    for path in sorted(directory.iterdir()):
        stem, _, rest = path.name.partition(".")
        base = base_offset_of(f"{stem}.log")
        unfinished = _UNFINISHED.get(path.suffix.partition("-")[0])
        if unfinished is not None:
            yield Remark(path, 0, unfinished)
        elif base is None:
            if path.name not in _KNOWN_NAMES:
                yield Remark(path, 0, "not a file of ours: left alone")
        elif rest == "producers":
            yield from _inspect_producers(path, base)
        elif rest in ("index", "timeindex"):
            # (A segment with a later name was begun after the list was made.)
            if path.with_suffix(".log") not in segments and path.name < newest:
                yield Remark(path, 0, "belongs to no segment")
        elif not rest.startswith("log"):
            yield Remark(path, 0, "not a file of ours: left alone")


def _inspect_producers(path: Path, base: int) -> Iterator[Finding]:
    try:
        stored = read_small_file(path, Kind.PRODUCERS, storage_pb2.ProducerSnapshot)
    except (StorageCorrupted, UnsupportedVersion) as error:
        found = damage_of(path, error)
        yield StaleCache(path, found.position, found.problem, _IGNORED)
        return
    if stored is None:  # removed meanwhile
        return
    newest = max((batch.base_offset for entry in stored.producers for batch in entry.batches), default=-1)
    if stored.offset != base:
        yield StaleCache(path, 0, f"made for offset {stored.offset}", _REMOVE_IT)
    elif newest >= base:
        yield StaleCache(path, 0, f"knows of a batch at offset {newest}, which comes later", _REMOVE_IT)
