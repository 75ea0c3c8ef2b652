"""``lograft log``: look into the logs on a disk, check them, and bring them into order after a crash."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import assert_never

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from lograft.cli.dump import DumpOptions, dump
from lograft.cli.text import counted, shown_size
from lograft.contract.errors import DirectoryLocked, DirectoryUnusable, LogError, StorageCorrupted
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
from lograft.storage.log import PartitionLog
from lograft.storage.small_files import PARTITION_META

_PATH = click.Path(path_type=Path)
_KEPT = "nothing was changed, its files are kept: let the cluster replicate it again, or restore it from a copy"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def log() -> None:
    """Look into logs on this machine's disk.

    These commands work on files: no broker needs to run. dump and verify only read, and may be used while one does.
    """


@log.command("dump", short_help="Show the batches or records of a log.")
@click.argument("path", metavar="FILE|DIR", type=_PATH)
@click.option("--records", is_flag=True, help="Show records instead of batches.")
@click.option("--from", "from_offset", type=click.IntRange(min=0), default=0, metavar="OFFSET", help="Begin here.")
@click.option("--max", "limit", type=click.IntRange(min=0), metavar="N", help="Stop after N lines.")
@click.option("--full", is_flag=True, help="Do not shorten long keys and values.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, never shortened.")
def dump_command(path: Path, records: bool, from_offset: int, limit: int | None, full: bool, as_json: bool) -> None:
    """Show what is in a log.

    DIR is a partition directory; FILE a segment (.log), or one of the files beside it: .index, .timeindex, .producers,
    checkpoint, partition.meta, directory.meta. Only sound batches are shown; at the first damaged one it stops with
    its file and position.

    Keys and values are "text" in quotes, hex:00ff if they are not printable UTF-8, or null. In JSON there is "value"
    (a string, or null) if the bytes are valid UTF-8, and otherwise "value_base64" instead; the same for "key".

    \b
    Examples:
      lograft log dump /data/orders-0
      lograft log dump /data/orders-0 --records --from 1000 --max 10
      lograft log dump /data/orders-0 --records --json | jq .value
      lograft log dump /data/orders-0/checkpoint
    """
    dump(path, DumpOptions(records=records, as_json=as_json, from_offset=from_offset, limit=limit, full=full))


@log.command("verify", short_help="Check every byte of a log, or of a whole disk.")
@click.argument("directory", metavar="DIR", type=_PATH)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def verify_command(ctx: click.Context, directory: Path, as_json: bool) -> None:
    """Check every byte of a partition directory, or of a data directory with all its partitions.

    Reads only. Checks all checksums, that records open, that offsets and epochs never go back, that segments follow
    each other, and that indexes and small files agree with the log.

    Each problem is one line, FILE: position N: damage or warning. A warning is what the next opening mends by itself:
    a stale index, or a torn tail, which recovery cuts. Exit code 1 if there is any damage.

    \b
    Examples:
      lograft log verify /data/orders-0
      lograft log verify /data --json | jq .damage
    """
    ctx.exit(_verify(directory, as_json=as_json))


@log.command("recover", short_help="Bring logs into order after a crash.")
@click.argument("directory", metavar="DIR", type=_PATH)
@click.option("--dry-run", is_flag=True, help="Change nothing: show what verify finds.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def recover_command(ctx: click.Context, directory: Path, dry_run: bool, as_json: bool) -> None:
    """Bring a partition directory, or all of a data directory, into order after a crash.

    Does what a broker does when it starts: cuts a torn tail (the bytes are kept beside the log), makes stale indexes
    again, and leaves a clean checkpoint. Damage below what was safe is never cut: the partition is left as it is, and
    the exit code is 1. Like a broker it believes what the checkpoint vouches for: verify is what reads every byte.
    The broker must be stopped.

    \b
    Examples:
      lograft log recover /data/orders-0 --dry-run
      lograft log recover /data
    """
    ctx.exit(_verify(directory, as_json=as_json) if dry_run else _recover(directory, as_json=as_json))


# -- verify --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Tally:
    """What one run of verify has seen."""

    damage: list[Damage] = field(default_factory=list)
    warnings: list[StaleCache | TornTail | Remark] = field(default_factory=list)
    partitions: list[PartitionChecked] = field(default_factory=list)

    def add(self, seen: Finding | PartitionChecked) -> None:
        """Put it where it belongs."""
        match seen:
            case PartitionChecked():
                self.partitions.append(seen)
            case Damage():
                self.damage.append(seen)
            case StaleCache() | TornTail() | Remark():
                self.warnings.append(seen)
            case _:
                assert_never(seen)


def _verify(directory: Path, *, as_json: bool) -> int:
    began = time.monotonic()
    tally = _Tally()
    with _progress(log_bytes(partition_directories(directory))) as advance:
        for seen in inspect(directory, on_progress=advance):
            tally.add(seen)
            if not as_json and not isinstance(seen, PartitionChecked):
                _show(seen)
    seconds = time.monotonic() - began
    totals: dict[str, float] = {
        "partitions": len(tally.partitions),
        "segments": sum(one.segments for one in tally.partitions),
        "batches": sum(one.batches for one in tally.partitions),
        "records": sum(one.records for one in tally.partitions),
        "bytes": sum(one.size_bytes for one in tally.partitions),
        "seconds": round(seconds, 3),
    }
    if as_json:
        _write_json(
            {
                "path": str(directory),
                "sound": not tally.damage,
                "damage": [_finding_fields(finding) for finding in tally.damage],
                "warnings": [_finding_fields(finding) for finding in tally.warnings],
                "partitions": [_plain(asdict(one)) for one in tally.partitions],
                "totals": totals,
            }
        )
    else:
        _show_summary(tally, totals)
    return 1 if tally.damage else 0


def _show(finding: Finding) -> None:
    label = click.style("damage:", fg="red", bold=True)
    if not isinstance(finding, Damage):
        label = click.style("warning:", fg="yellow")
    click.echo(f"{finding.path}: position {finding.position}: {label} {_what(finding)}")


def _what(finding: Finding) -> str:
    match finding:
        case Damage(problem=problem) | Remark(problem=problem):
            return problem
        case StaleCache(problem=problem, remedy=remedy):
            return f"{problem}; {remedy}"
        case TornTail(cut_bytes=cut_bytes, problem=problem):
            return f"torn tail, {counted(cut_bytes, 'byte')}, recover will cut it ({problem})"
        case _:
            assert_never(finding)


def _finding_fields(finding: Finding) -> dict[str, object]:
    return {"kind": type(finding).__name__, **_plain(asdict(finding)), "message": _what(finding)}


def _show_summary(tally: _Tally, totals: dict[str, float]) -> None:
    size, seconds = totals["bytes"], totals["seconds"]
    looked_at = ", ".join(
        [
            counted(int(totals["partitions"]), "partition"),
            counted(int(totals["segments"]), "segment"),
            counted(int(totals["batches"]), "batch", "batches"),
            counted(int(totals["records"]), "record"),
        ]
    )
    verdict = click.style("no damage", fg="green", bold=True)
    if tally.damage:
        verdict = click.style(f"{counted(len(tally.damage), 'damaged place')}", fg="red", bold=True)
    if tally.warnings:
        verdict += f", {counted(len(tally.warnings), 'warning')}"
    speed = f" ({shown_size(size / seconds)}/s)" if seconds > 0 and size else ""
    click.echo(f"{verdict} in {looked_at}, {shown_size(size)}, {seconds:.1f} s{speed}")


@contextmanager
def _progress(total_bytes: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr if that is a terminal; nothing otherwise."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("checking"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    # rich may take over a stdout that is the same terminal, but never one that goes to a file.
    with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as progress:
        task = progress.add_task("checking", total=total_bytes)
        yield lambda done: progress.advance(task, done)


# -- recover -------------------------------------------------------------------------------------------------------


def _recover(directory: Path, *, as_json: bool) -> int:
    partitions = [path for path in partition_directories(directory) if _is_used(path)]
    if not partitions:
        # Opening would create a partition where there is none.
        raise DirectoryUnusable(str(directory), "it holds no partition, so there is nothing to recover")
    results = []
    for path in partitions:
        result = _recover_one(path)
        results.append(result)
        if not as_json:
            _show_recovered(path.name, result)
    if as_json:
        _write_json({"path": str(directory), "partitions": results})
    return 1 if any("error" in result for result in results) else 0


def _is_used(path: Path) -> bool:
    return (path / PARTITION_META).exists() or any(path.glob("*.log"))


def _recover_one(path: Path) -> dict[str, object]:
    try:
        # `replicated`: else the log would take its whole end for committed, and the checkpoint would say so.
        with PartitionLog.open(path, replicated=True) as opened:
            return {
                "path": str(path),
                "lines": opened.recovery.lines(),
                **_plain(asdict(opened.recovery)),
                "start_offset": opened.log_start_offset,
                "end_offset": opened.log_end_offset,
                "segments": len(opened.segments),
                "size_bytes": opened.size_bytes,
            }
    except DirectoryLocked:
        raise  # the lock is the whole data directory's
    except LogError as error:
        told = f"{error}; {_KEPT}" if isinstance(error, StorageCorrupted) else str(error)
        return {"path": str(path), "error": type(error).__name__, "message": told}


def _show_recovered(name: str, result: dict[str, object]) -> None:
    if "error" in result:
        click.echo(f"{click.style('error:', fg='red', bold=True)} {name}: {result['message']}", err=True)
        return
    lines = result["lines"]
    if isinstance(lines, list):
        for line in lines:
            click.echo(f"{name}: {line}")
    size = result["size_bytes"]
    offsets = f"offsets {result['start_offset']} to {result['end_offset']} (exclusive)"
    click.echo(f"{name}: {offsets}, {shown_size(size if isinstance(size, int) else 0)}")


def _plain(fields: dict[str, object]) -> dict[str, object]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in fields.items()}


def _write_json(fields: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(fields, indent=2) + "\n")
