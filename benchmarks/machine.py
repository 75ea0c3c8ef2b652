"""On what machine, code and settings a result was measured: a number without these says nothing."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def machine_facts(data: Path) -> dict[str, object]:
    """Everything about the run that is not a measurement. ``data`` is where the files were."""
    status = _git("status", "--porcelain")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": None if status is None else bool(status),
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in ("protobuf", "google-crc32c")},
        "kernel": platform.release(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "file_system": _file_system(data),
    }


def available_memory_bytes() -> int:
    """What the page cache may take without swapping or killing."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def resident_bytes() -> int:
    """Resident memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmRSS: the benchmarks need Linux")


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(path: Path) -> str:
    """Device, type and options of the mount that holds ``path``."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    holding = [mount for mount in mounts if path.resolve().is_relative_to(mount[1])]
    device, point, kind, options = max(holding, key=lambda mount: len(mount[1]))[:4]
    return f"{device} on {point}, {kind} ({options})"
