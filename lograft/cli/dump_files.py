"""The files beside the segments, decoded, for ``lograft log dump``."""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click
from google.protobuf.message import Message

from lograft.cli.text import compact_json, fields_of, shown_time
from lograft.contract import small_files
from lograft.contract.errors import StorageCorrupted
from lograft.storage import index as index_files
from lograft.storage.small_files import CHECKPOINT, DIRECTORY_META, PARTITION_META
from lograft.v1 import storage_pb2

_MESSAGES: dict[small_files.Kind, type[Message]] = {
    small_files.Kind.DIRECTORY_META: storage_pb2.DirectoryMeta,
    small_files.Kind.PARTITION_META: storage_pb2.PartitionMeta,
    small_files.Kind.CHECKPOINT: storage_pb2.PartitionCheckpoint,
    small_files.Kind.PRODUCERS: storage_pb2.ProducerSnapshot,
}
_KIND_BY_NAME = {
    DIRECTORY_META: small_files.Kind.DIRECTORY_META,
    PARTITION_META: small_files.Kind.PARTITION_META,
    CHECKPOINT: small_files.Kind.CHECKPOINT,
}


def dump_file(path: Path, *, as_json: bool, from_offset: int, limit: int | None) -> bool:
    """Print an index or a small file; False if it is neither, by its name and by its first bytes."""
    with path.open("rb") as file:
        magic = file.read(4)
    if path.suffix in (".index", ".timeindex") or magic == index_files.MAGIC:
        _dump_index(path, as_json=as_json, from_offset=from_offset, limit=limit)
    elif path.name in _KIND_BY_NAME or path.suffix == ".producers" or magic == small_files.MAGIC:
        _dump_small_file(path, as_json=as_json)
    else:
        return False
    return True


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")


def _write_json(fields: dict[str, object]) -> None:
    _write(compact_json(fields))


def _dump_small_file(path: Path, *, as_json: bool) -> None:
    data = path.read_bytes()
    named = small_files.Kind.PRODUCERS if path.suffix == ".producers" else _KIND_BY_NAME.get(path.name)
    message: Message | None = None
    # Under another name (a copy, say) the file itself tells its kind.
    kinds = [named] if named is not None else list(_MESSAGES)
    for kind in kinds:
        try:
            message = small_files.decode_small_file(data, kind, _MESSAGES[kind], path)
        except StorageCorrupted:
            if kind is kinds[-1]:
                raise
        else:
            break
    if message is None:
        return
    if as_json:
        _write_json({"file": str(path), "kind": message.DESCRIPTOR.name, **fields_of(message)})
        return
    click.secho(message.DESCRIPTOR.name, bold=True)
    for line in _shown_fields(fields_of(message), "  "):
        _write(line)


def _shown_fields(fields: dict[str, object], indent: str) -> Iterator[str]:
    for name, value in fields.items():
        if isinstance(value, list):
            yield f"{indent}{name}: {len(value) or 'none'}"
            for entry in value:
                yield f"{indent}  - " + ", ".join(f"{key} {one}" for key, one in entry.items() if key != "batches")
                if "batches" in entry:
                    yield from _shown_fields({"batches": entry["batches"]}, indent + "    ")
        elif name.endswith("_ms") and isinstance(value, int):
            yield f"{indent}{name}: {value} ({shown_time(value)})"
        else:
            yield f"{indent}{name}: {value}"


def _dump_index(path: Path, *, as_json: bool, from_offset: int, limit: int | None) -> None:
    data = path.read_bytes()
    by_offset = index_files.decode_index(data, index_files.KIND_OFFSETS)
    decoded = by_offset or index_files.decode_index(data, index_files.KIND_TIMES)
    if decoded is None:
        raise StorageCorrupted(str(path), 0, "not a sound index (it is made again when the log is opened)")
    summary, rows = decoded
    kind = "OffsetIndex" if by_offset else "TimeIndex"
    if as_json:
        _write_json({"file": str(path), "kind": kind, **summary._asdict(), "rows": len(rows)})
    else:
        click.secho(f"{kind}, {len(rows)} rows", bold=True)
        for line in _shown_fields(dict(summary._asdict()), "  "):
            _write(line)
        click.secho(f"{'offset':>12}  {'position':>10}" if by_offset else "largest timestamp before", bold=True)
    for row in islice(rows, limit) if by_offset is None else ():
        _write_json({"max_timestamp_before_ms": row}) if as_json else _write(f"{row}  ({shown_time(row)})")
    places = ((summary.base_offset + (row >> 32), row & 0xFFFFFFFF) for row in rows) if by_offset else iter(())
    for offset, position in islice((place for place in places if place[0] >= from_offset), limit):
        line = f"{offset:>12}  {position:>10}"
        _write_json({"offset": offset, "position": position}) if as_json else _write(line)
