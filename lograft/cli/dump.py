"""``lograft log dump``: what stands in a log, batch by batch or record by record.

Takes no lock and holds one batch at a time, so it may look at a log in use and at one of any size.
"""

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import click

from lograft.cli.dump_files import dump_file
from lograft.cli.text import bytes_field, compact_json, shown_bytes, shown_size, shown_time
from lograft.contract.batch import FLAG_APPEND_TIME, MAX_BATCH_BYTES, Batch, BatchHeader
from lograft.contract.codecs import Codec
from lograft.contract.disk import Disk
from lograft.contract.errors import CorruptBatch, InvalidRequest, StorageCorrupted
from lograft.contract.records import Headers, Record, decode_batch
from lograft.storage.index import read_index
from lograft.storage.inspect import is_data_directory, partition_directories
from lograft.storage.segment import base_offset_of, scan_batches, scan_headers

_SHORT = 100
_LOOK_AGAIN_S = 0.1
_BATCH_HEADING = (
    f"{'position':>10}  {'base offset':>12}  {'last offset':>12}  {'records':>8}  {'bytes':>9}  codec  {'epoch':>5}  "
    f"{'appended (UTC)':<24}  {'producer/epoch/sequence':<23}  flags"
)
_RECORD_HEADING = f"{'offset':>12}  {'timestamp (UTC)':<24}  {'key':<20}  value, headers"


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """What the user asked for."""

    records: bool = False
    as_json: bool = False
    from_offset: int = 0
    limit: int | None = None
    full: bool = False


class _Located(NamedTuple):
    path: Path
    position: int
    batch: Batch


def dump(path: Path, options: DumpOptions) -> None:
    """Print what a file or a partition directory holds."""
    if path.is_dir():
        if is_data_directory(path):
            raise InvalidRequest(f"{path} holds several partitions: name one of them, such as {_example(path)}")
        _dump_segments(_segments_from(partition_directories(path)[0], options.from_offset), options)
        return
    if not dump_file(path, as_json=options.as_json, from_offset=options.from_offset, limit=options.limit):
        _dump_segments([path], options)


def _example(path: Path) -> str:
    return str(next(iter(partition_directories(path)), path / "orders-0"))


def _segments_from(directory: Path, offset: int) -> list[Path]:
    """The segments in order, from the one that holds ``offset`` on."""
    segments = sorted(path for path in directory.glob("*.log") if base_offset_of(path.name) is not None)
    holding = [path for path in segments if (base_offset_of(path.name) or 0) <= offset]
    return segments[max(len(holding) - 1, 0) :]


def _dump_segments(segments: list[Path], options: DumpOptions) -> None:
    shown = 0
    current: Path | None = None
    if options.limit == 0:
        return
    for located in _batches(segments, options.from_offset):
        if not options.as_json and current != located.path and (current is None or not options.records):
            _begin(located.path, options)
        current = located.path
        for line in _lines(located, options):
            sys.stdout.write(line)
            shown += 1
            if shown == options.limit:
                return
    if current is None and not options.as_json:
        where = f" from offset {options.from_offset} on" if options.from_offset else ""
        click.echo(f"nothing there{where}: no batch in {len(segments)} segment(s)", err=True)


def _begin(path: Path, options: DumpOptions) -> None:
    if options.records:
        click.secho(_RECORD_HEADING, bold=True)
        return
    click.secho(f"{path.name}  ({shown_size(path.stat().st_size)})", fg="cyan")
    click.secho(_BATCH_HEADING, bold=True)


def _batches(segments: list[Path], from_offset: int) -> Iterator[_Located]:
    disk = Disk()
    for number, path in enumerate(segments):
        try:
            file = disk.open_for_reading(path)
        except FileNotFoundError:
            if number == 0:
                raise
            click.echo(f"note: {path} went away while the log was read", err=True)
            continue
        try:
            for position, batch in _sound_batches(disk, file, _start_position(disk, file, path, from_offset)):
                if batch.header.last_offset >= from_offset:
                    yield _Located(path, position, batch)
        except CorruptBatch as error:
            if error.position == 0 and base_offset_of(path.name) is None:
                raise InvalidRequest(f"{path}: position 0: not a segment file ({error.problem})") from None
            raise StorageCorrupted(str(path), error.position, error.problem) from None
        finally:
            os.close(file)


def _sound_batches(disk: Disk, file: int, position: int) -> Iterator[tuple[int, Batch]]:
    size = os.fstat(file).st_size
    while True:
        try:
            for at, batch in scan_batches(disk, file, position, size):
                yield at, batch
                position = at + batch.header.size_bytes
        except CorruptBatch:
            # The last batch of a log in use may be half written: look again, as long as the file grows.
            time.sleep(_LOOK_AGAIN_S)
            now = os.fstat(file).st_size
            if now <= size:
                raise
            size = now
        else:
            return


def _start_position(disk: Disk, file: int, path: Path, from_offset: int) -> int:
    """Where to begin to look for an offset. An index that leads astray is ignored: it must not hide anything."""
    base, size = base_offset_of(path.name), os.fstat(file).st_size
    stored = read_index(path) if base is not None and from_offset > base else None
    if stored is None or base is None or stored[0].base_offset != base:
        return 0
    position = stored[1].position_for_offset(min(from_offset - base, (1 << 32) - 1))
    try:
        first = next(scan_headers(disk, file, position, size), None)
    except CorruptBatch:
        return 0
    return position if first is not None and first[1].base_offset <= from_offset else 0


def _lines(located: _Located, options: DumpOptions) -> Iterator[str]:
    if not options.records:
        yield (_batch_json(located) if options.as_json else _batch_row(located)) + "\n"
        return
    try:
        columns = decode_batch(located.batch, limit_bytes=MAX_BATCH_BYTES)
    except CorruptBatch as error:
        raise StorageCorrupted(str(located.path), located.position, error.problem) from None
    for record in columns.rows():
        if record.offset >= options.from_offset:
            yield (_record_json(record) if options.as_json else _record_row(record, full=options.full)) + "\n"


def _flags(header: BatchHeader) -> list[str]:
    flags = ["append-time"] if header.flags & FLAG_APPEND_TIME else []
    return flags + (["compacted"] if header.record_count <= header.last_offset_delta else [])


def _batch_row(located: _Located) -> str:
    header = located.batch.header
    producer = f"{header.producer_id}/{header.producer_epoch}/{header.base_sequence}" if header.producer_id else "-"
    return (
        f"{located.position:>10}  {header.base_offset:>12}  {header.last_offset:>12}  {header.record_count:>8}  "
        f"{header.size_bytes:>9}  {Codec(header.codec).name.lower():<5}  {header.leader_epoch:>5}  "
        f"{shown_time(header.append_timestamp_ms):<24}  {producer:<23}  {','.join(_flags(header)) or '-'}"
    )


def _batch_json(located: _Located) -> str:
    header = located.batch.header
    fields = {
        "file": str(located.path),
        "position": located.position,
        "size_bytes": header.size_bytes,
        "last_offset": header.last_offset,
        **header._asdict(),
        "codec": Codec(header.codec).name.lower(),
        "flags": _flags(header),
    }
    return compact_json(fields)


def _record_row(record: Record, *, full: bool) -> str:
    limit = None if full else _SHORT
    row = (
        f"{record.offset:>12}  {shown_time(record.timestamp_ms):<24}  {shown_bytes(record.key, limit):<20}  "
        f"{shown_bytes(record.value, limit)}"
    )
    return row + (f"  {{{_shown_headers(record.headers, limit)}}}" if record.headers else "")


def _shown_headers(headers: Headers, limit: int | None) -> str:
    return ", ".join(f"{shown_bytes(key.encode(), limit)}: {shown_bytes(value, limit)}" for key, value in headers)


def _record_json(record: Record) -> str:
    fields = {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **bytes_field("key", record.key),
        **bytes_field("value", record.value),
        "headers": [{"name": key, **bytes_field("value", value)} for key, value in record.headers],
    }
    return compact_json(fields)
