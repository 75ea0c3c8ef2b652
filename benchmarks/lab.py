"""Where a storage benchmark works: sizes, a folder that is removed again, progress, and the one large log."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.harness import Reporter, size_text
from benchmarks.machine import ROOT
from benchmarks.workload import MIB
from lograft.storage import LogConfig

MB = 10**6
GB = 10**9
KEEP_FREE_BYTES = 5 * GB
# What the measures without the large log need at a time.
_OTHER_BYTES = 6 * GB


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured. The quick ones show that everything works; their figures mean nothing."""

    # A slice holds a checkpoint of the log, so that the medians count it.
    append_slice_bytes: int = 64 * MIB
    append_slices: int = 24
    read_log_bytes: int = 512 * MIB
    read_slice_bytes: int = 128 * MIB
    read_slices: int = 16
    large_bytes: int = 10 * GB
    # The log to which the large one is compared.
    reference_bytes: int = 10 * MB
    growth_append_slice_bytes: int = 8 * MIB
    growth_append_slices: int = 40
    growth_reads_per_slice: int = 2_000
    growth_read_slices: int = 40
    partitions: int = 1_000
    few_partitions: int = 6
    partition_rounds: int = 25
    codec_slices: int = 20
    codec_slice_records: int = 100_000
    opens: int = 5
    # After how much of the checkpoint interval the appender is killed.
    kill_after_shares: tuple[float, ...] = (0.3, 0.6, 0.95)
    memory_sample_bytes: int = 256 * MB
    config: LogConfig = field(default_factory=LogConfig)

    @classmethod
    def quick(cls) -> "Sizes":
        """Seconds instead of minutes."""
        return cls(
            append_slice_bytes=4 * MIB,
            append_slices=2,
            read_log_bytes=8 * MIB,
            read_slice_bytes=4 * MIB,
            read_slices=2,
            large_bytes=80 * MB,
            reference_bytes=2 * MB,
            growth_append_slice_bytes=MIB,
            growth_append_slices=3,
            growth_reads_per_slice=100,
            growth_read_slices=3,
            partitions=30,
            partition_rounds=2,
            codec_slices=3,
            codec_slice_records=10_000,
            opens=2,
            kill_after_shares=(0.5,),
            memory_sample_bytes=8 * MB,
            config=LogConfig(segment_bytes=16 * MIB, checkpoint_interval_bytes=4 * MIB),
        )

    def with_slices(self, slices: int) -> "Sizes":
        """The same with at most so many slices of each measure."""
        names = ("append_slices", "read_slices", "growth_append_slices", "growth_read_slices", "partition_rounds")
        return replace(self, **{name: min(getattr(self, name), slices) for name in (*names, "codec_slices")})

    def with_large_bytes(self, large_bytes: int) -> "Sizes":
        """The same with another size of the large log; memory is sampled as often over its length."""
        sample_bytes = min(self.memory_sample_bytes, large_bytes // 8)
        return replace(self, large_bytes=large_bytes, memory_sample_bytes=sample_bytes)


@dataclass(slots=True)
class Fill:
    """The large log, and what its making showed."""

    path: Path
    size_bytes: int
    seconds: float
    resident_mb: list[float]


class Lab:
    """One run of the storage benchmarks, in a folder that the caller removes however the run ends."""

    def __init__(self, data: Path, sizes: Sizes, reporter: Reporter) -> None:
        self.folder = data
        self.sizes = sizes
        self.reporter = reporter
        self._fill: Fill | None = None

    @property
    def large_bytes(self) -> int:
        """Size of the large log: what was asked for, or what the disk has room for."""
        if self._fill is not None:
            return self._fill.size_bytes
        free_bytes = shutil.disk_usage(self.folder).free
        return max(min(self.sizes.large_bytes, free_bytes - KEEP_FREE_BYTES - _OTHER_BYTES), self.sizes.reference_bytes)

    @property
    def large_note(self) -> str:
        """Says so if the large log is not as large as it should be."""
        wanted = Sizes().large_bytes
        if self.large_bytes == wanted:
            return ""
        why = "as asked" if self.large_bytes == self.sizes.large_bytes else "little free disk"
        return f"{size_text(self.large_bytes)} instead of {size_text(wanted)}: {why}"

    @contextmanager
    def workplace(self, name: str) -> Iterator[Path]:
        """An empty folder for one measure, and a disk that has nothing left to do for the one before."""
        folder = self.folder / name
        folder.mkdir()
        os.sync()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def fill(self) -> Fill:
        """The large log, made at the first call by a process of its own and closed in good order."""
        if self._fill is None:
            path = self.folder / "large-0"
            size_bytes = self.large_bytes
            os.sync()
            every = self.sizes.memory_sample_bytes
            with self.reporter.task(f"filling {size_text(size_bytes)}", size_bytes // every) as tick:
                resident, taken_s = [], 0.0
                with self.child("fill", path, size_bytes, every) as child:
                    for line in child:
                        resident.append(float(line["resident_mb"]))
                        taken_s = float(line["seconds"])
                        tick()
            self._fill = Fill(path, size_bytes, taken_s, resident)
        return self._fill

    @contextmanager
    def child(self, *arguments: object) -> Iterator["ChildLines"]:
        """A fresh interpreter that runs `benchmarks.storage_child`; killed if it still runs at the end."""
        config = self.sizes.config
        settings = json.dumps(
            {"segment_bytes": config.segment_bytes, "checkpoint_interval_bytes": config.checkpoint_interval_bytes}
        )
        command = [sys.executable, "-m", "benchmarks.storage_child", settings, *map(str, arguments)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield ChildLines(process)
            finally:
                if process.poll() is None:
                    process.kill()


class ChildLines:
    """The JSON lines that a child prints."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def __iter__(self) -> Iterator[dict[str, float]]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield json.loads(line)
        if self._process.wait() != 0:
            raise RuntimeError(f"the child process ended with {self._process.returncode}")

    def kill(self) -> None:
        """SIGKILL, and wait until it is dead."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
