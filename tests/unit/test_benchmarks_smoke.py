"""The storage benchmarks run, and their results have the promised shape. Their figures are not looked at."""

import json
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_quick_storage_benchmarks_when_run_write_rows_and_remove_their_files(tmp_path: Path) -> None:
    data, results = tmp_path / "data", tmp_path / "results"
    done = _run("storage", "--quick", "--data", str(data), "--results", str(results))
    assert done.returncode == 0, done.stderr
    rows = json.loads((results / "storage.json").read_text())
    assert len(rows) == 10
    for row in rows:
        assert {"measure", "value", "unit", "bar", "holds"} <= row.keys()
        assert isinstance(row["measure"], str)
        assert isinstance(row["value"], float)
        assert row["value"] > 0
        assert isinstance(row["holds"], bool)
        assert row["bar"].split()[0] in (">=", "<=", "<")
    assert len({row["measure"] for row in rows}) == len(rows)
    meta = json.loads((results / "storage.meta.json").read_text())
    assert meta["quick"] is True
    assert list(data.iterdir()) == []


def test_benchmarks_when_the_name_is_unknown_list_those_there_are() -> None:
    done = _run("storge")
    assert done.returncode == 2
    assert "storge" in done.stderr
    assert "all, storage" in done.stderr
