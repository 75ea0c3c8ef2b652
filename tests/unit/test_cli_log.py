"""The command line's `log` commands: output, exit codes, and behaviour in pipes."""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lograft import __version__
from lograft.cli.root import root
from lograft.contract.batch import HEADER_SIZE
from lograft.contract.codecs import Codec
from lograft.contract.disk import Disk
from lograft.contract.ids import TopicPartition
from lograft.contract.records import encode_batch
from lograft.contract.small_files import Kind, read_small_file
from lograft.storage import DataDirectory, LogConfig, PartitionLog
from lograft.storage.segment import scan_headers
from lograft.v1 import storage_pb2

CONFIG = LogConfig(segment_bytes=1500, max_batch_bytes=1500, index_interval_bytes=300)
NOW_MS = 1_700_000_000_000
BATCHES = 20
ESCAPE = "\x1b"


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(root, [str(argument) for argument in arguments], prog_name="lograft")
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    assert ESCAPE not in result.output
    return result


def fill(log: PartitionLog, count: int = BATCHES) -> None:
    for number in range(count):
        made = encode_batch(
            [b"value %d" % number, b"\xff\x00", None],
            timestamps_ms=NOW_MS + number,
            keys=[b"k", "schlüssel".encode(), None],
            headers={0: [("trace", b"\x1b[31m"), ("none", None)]},
            codec=list(Codec)[number % 4],
            producer_id=9,
            base_sequence=number * 3,
        )
        log.append(made, leader_epoch=number // 10)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    path = tmp_path / "orders-0"
    with PartitionLog.open(path, CONFIG, now_ms=lambda: NOW_MS) as log:
        fill(log)
    return path


@pytest.fixture
def data_directory(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with DataDirectory(path, cluster_id="c", broker_id=1, now_ms=lambda: NOW_MS) as data:
        for number in (0, 1):
            fill(data.open_log(TopicPartition("orders", number), "t", CONFIG))
    return path


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("*.log"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)


def positions(path: Path) -> list[int]:
    with path.open("rb") as file:
        return [at for at, _ in scan_headers(Disk(), file.fileno(), 0, path.stat().st_size)]


def json_lines(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


# -- lograft -------------------------------------------------------------------------------------------------------


def test_help_and_version_are_short() -> None:
    assert run("--version").stdout == f"lograft {__version__}\n"
    for arguments in ((), ("log",), ("log", "dump"), ("log", "verify"), ("log", "recover")):
        text = run(*arguments, "--help").stdout
        assert len(text.splitlines()) < 45
        assert max(map(len, text.splitlines())) <= 100


def test_wrong_usage_exits_2() -> None:
    for arguments in (
        ("nonsense",),
        ("log", "dump"),
        ("log", "dump", "x", "--from", "-1"),
        ("log", "verify", "--what"),
    ):
        assert run(*arguments, code=2).stderr


# -- dump ----------------------------------------------------------------------------------------------------------


def test_dump_shows_one_aligned_line_per_batch(partition: Path) -> None:
    lines = run("log", "dump", partition).stdout.splitlines()
    rows = [line for line in lines if line.split()[0].isdigit()]
    assert len(rows) == BATCHES
    assert len(lines) == BATCHES + 2 * len(segments(partition))
    assert rows[0].split() == [
        "0",
        "0",
        "2",
        "3",
        rows[0].split()[4],
        "none",
        "0",
        "2023-11-14T22:13:20.000Z",
        "9/0/0",
        "-",
    ]
    assert len({line.index("2023-11") for line in rows}) == 1


def test_dump_of_one_segment_shows_only_that(partition: Path) -> None:
    second = segments(partition)[1]
    rows = json_lines(run("log", "dump", second, "--json"))
    assert rows[0]["base_offset"] == int(second.stem)
    assert [row["position"] for row in rows] == positions(second)
    assert {row["file"] for row in rows} == {str(second)}


def test_dump_records_marks_binary_and_null(partition: Path) -> None:
    lines = run("log", "dump", partition, "--records", "--max", 3).stdout.splitlines()
    assert lines[1].endswith('"k"                   "value 0"  {"trace": hex:1b5b33316d, "none": null}')
    assert lines[2].endswith('"schlüssel"           hex:ff00')
    assert lines[3].split()[2:] == ["null", "null"]


def test_dump_records_as_json_is_lossless(partition: Path) -> None:
    rows = json_lines(run("log", "dump", partition, "--records", "--json"))
    assert [row["offset"] for row in rows] == list(range(BATCHES * 3))
    assert rows[0] == {
        "offset": 0,
        "timestamp_ms": NOW_MS,
        "key": "k",
        "value": "value 0",
        "headers": [{"name": "trace", "value": "\x1b[31m"}, {"name": "none", "value": None}],
    }
    assert "value" not in rows[1]
    assert base64.b64decode(str(rows[1]["value_base64"])) == b"\xff\x00"
    assert rows[2]["value"] is None


@pytest.mark.parametrize("offset", [0, 1, 17, 30, 59, 60])
def test_dump_begins_where_asked_and_stops_after_max(partition: Path, offset: int) -> None:
    rows = json_lines(run("log", "dump", partition, "--records", "--json", "--from", offset, "--max", 7))
    assert [row["offset"] for row in rows] == list(range(BATCHES * 3))[offset : offset + 7]
    batches = json_lines(run("log", "dump", partition, "--json", "--from", offset))
    assert all(int(str(row["last_offset"])) >= offset for row in batches)
    assert len(batches) == (BATCHES * 3 - offset + 2) // 3


def test_dump_is_not_led_astray_by_a_wrong_index(partition: Path) -> None:
    for first, other in ((".index", ".index"), (".timeindex", ".timeindex")):
        wrong = segments(partition)[1].with_suffix(other).read_bytes()
        segments(partition)[0].with_suffix(first).write_bytes(wrong)
    [row] = json_lines(run("log", "dump", partition, "--records", "--json", "--from", 10, "--max", 1))
    assert row["offset"] == 10


def test_dump_shortens_long_values_unless_full(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path / "orders-0") as log:
        log.append(encode_batch([b"x" * 1000, b"\0" * 1000], timestamps_ms=1))
    short = run("log", "dump", tmp_path / "orders-0", "--records").stdout
    assert len(short) < 600
    assert short.count("… (1000 bytes)") == 2
    assert "x" * 1000 in run("log", "dump", tmp_path / "orders-0", "--records", "--full").stdout


def test_dump_decodes_the_files_beside_the_segments(data_directory: Path) -> None:
    partition = data_directory / "orders-0"
    names = {path.suffix or path.name for path in partition.iterdir()}
    assert {".index", ".timeindex", ".producers", ".meta", "checkpoint"} <= names
    for path in [data_directory / "directory.meta", *partition.iterdir()]:
        assert run("log", "dump", path).stdout
        assert json_lines(run("log", "dump", path, "--json"))[0]["file"] == str(path)
    [checkpoint] = json_lines(run("log", "dump", partition / "checkpoint", "--json"))
    assert checkpoint["close_state"] == "CLOSE_STATE_CLEAN"
    assert checkpoint["flushed_end_offset"] == BATCHES * 3
    copy = data_directory / "copy-of-checkpoint"
    copy.write_bytes((partition / "checkpoint").read_bytes())
    assert "PartitionCheckpoint" in run("log", "dump", copy).stdout


def test_dump_of_damaged_small_files_and_indexes_names_them(partition: Path) -> None:
    for path in (partition / "checkpoint", segments(partition)[0].with_suffix(".index")):
        flip(path, 14)
        result = run("log", "dump", path, code=1)
        assert result.stderr.startswith(f"error: {path} is damaged at position 0: ")
        assert result.stdout == ""


def test_dump_stops_at_damage_after_everything_before_it(partition: Path) -> None:
    first = segments(partition)[0]
    bad = positions(first)[3]
    flip(first, bad + HEADER_SIZE)
    result = run("log", "dump", partition, "--json", code=1)
    assert len(result.stdout.splitlines()) == 3
    assert result.stderr.startswith(f"error: {first} is damaged at position {bad}: the records' checksum is wrong")
    assert len(result.stderr.splitlines()) == 1


def test_dump_of_something_else_names_file_and_position(tmp_path: Path) -> None:
    other = tmp_path / "photo.log"
    other.write_bytes(os.urandom(500))
    assert run("log", "dump", other, code=1).stderr.startswith(f"error: {other}: position 0: not a segment file")
    assert "no such file" in run("log", "dump", tmp_path / "nowhere.log", code=1).stderr
    (tmp_path / "photos").mkdir()
    assert "neither" in run("log", "dump", tmp_path / "photos", code=1).stderr


def test_dump_of_nothing_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").touch()
    (tmp_path / "orders-0").mkdir()
    for path in (tmp_path / "00000000000000000000.log", tmp_path / "orders-0"):
        result = run("log", "dump", path)
        assert result.stdout == ""
        assert "nothing there" in result.stderr


def test_dump_of_a_data_directory_asks_for_a_partition(data_directory: Path) -> None:
    assert str(data_directory / "orders-0") in run("log", "dump", data_directory, code=1).stderr


def test_dump_and_verify_work_on_a_log_in_use(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path / "orders-0", CONFIG, now_ms=lambda: NOW_MS) as log:
        fill(log)
        assert len(json_lines(run("log", "dump", tmp_path / "orders-0", "--json"))) == BATCHES
        assert "no damage" in run("log", "verify", tmp_path / "orders-0").stdout


# -- verify --------------------------------------------------------------------------------------------------------


def test_verify_of_a_sound_directory_is_one_line(partition: Path, data_directory: Path) -> None:
    one = run("log", "verify", partition)
    assert one.stdout.startswith("no damage in 1 partition, ")
    assert len(one.stdout.splitlines()) == 1
    assert one.stderr == ""
    assert "2 partitions" in run("log", "verify", data_directory).stdout
    assert "40 batches, 120 records" in run("log", "verify", data_directory).stdout


def test_verify_reports_damage_with_file_and_position(partition: Path) -> None:
    first = segments(partition)[0]
    bad = positions(first)[2]
    flip(first, bad + HEADER_SIZE)
    lines = run("log", "verify", partition, code=1).stdout.splitlines()
    assert lines[0] == f"{first}: position {bad}: damage: the records' checksum is wrong"
    assert lines[1].startswith("1 damaged place in ")
    assert len(lines) == 2


def test_verify_exits_0_with_warnings_only(partition: Path) -> None:
    index, last = segments(partition)[0].with_suffix(".index"), segments(partition)[-1]
    size = last.stat().st_size
    flip(index, 40)
    with last.open("ab") as file:
        file.write(b"torn")
    lines = run("log", "verify", partition).stdout.splitlines()
    assert lines[0].startswith(f"{index}: position 0: warning: ")
    assert lines[0].endswith("will be rebuilt on open")
    assert lines[1].startswith(f"{last}: position {size}: warning: torn tail, 4 bytes, recover will cut it")
    assert lines[2].startswith("no damage, 2 warnings in ")


def test_verify_json_is_one_object(partition: Path) -> None:
    sound = json.loads(run("log", "verify", partition, "--json").stdout)
    assert sound["sound"] is True
    assert sound["totals"]["records"] == BATCHES * 3
    assert sound["partitions"][0]["end_offset"] == BATCHES * 3
    flip(partition / "checkpoint", 30)
    (partition / "notes.txt").touch()
    damaged = json.loads(run("log", "verify", partition, "--json", code=1).stdout)
    assert damaged["sound"] is False
    assert damaged["damage"][0]["path"] == str(partition / "checkpoint")
    assert damaged["warnings"][0]["kind"] == "Remark"


def test_verify_of_a_wrong_name_or_place(partition: Path, tmp_path: Path) -> None:
    renamed = partition.rename(tmp_path / "payments-3")
    assert "says orders-0, but the directory is named payments-3" in run("log", "verify", renamed, code=1).stdout
    for path in (tmp_path / "nowhere", segments(renamed)[0]):
        assert run("log", "verify", path, code=1).stderr.startswith(f"error: {path} cannot be used: ")
    (tmp_path / "photos").mkdir()
    assert "neither" in run("log", "verify", tmp_path / "photos", code=1).stderr


# -- recover -------------------------------------------------------------------------------------------------------


def test_recover_cuts_a_torn_tail_and_says_so(partition: Path) -> None:
    last = segments(partition)[-1]
    size = last.stat().st_size
    with last.open("ab") as file:
        file.write(b"torn")
    assert "torn tail, 4 bytes" in run("log", "recover", partition, "--dry-run").stdout
    assert last.stat().st_size == size + 4
    lines = run("log", "recover", partition).stdout.splitlines()
    assert any(line.startswith(f"orders-0: cut 4 bytes from position {size} of {last}") for line in lines)
    assert lines[-1].startswith("orders-0: offsets 0 to 60 (exclusive), ")
    assert last.stat().st_size == size
    assert "no damage" in run("log", "verify", partition).stdout
    again = json.loads(run("log", "recover", partition, "--json").stdout)
    assert again["partitions"][0]["was_clean"] is True
    assert again["partitions"][0]["end_offset"] == 60


def test_recover_leaves_damage_alone_and_goes_on(data_directory: Path) -> None:
    bad = data_directory / "orders-0"
    last = segments(bad)[-1]
    last.write_bytes(last.read_bytes()[:-1])
    before = {path: path.read_bytes() for path in bad.glob("*.log")}
    result = run("log", "recover", data_directory, code=1)
    assert "files are kept" in result.stderr
    assert "orders-1: closed in good order" in result.stdout
    assert {path: path.read_bytes() for path in bad.glob("*.log")} == before
    results = json.loads(run("log", "recover", data_directory, "--json", code=1).stdout)["partitions"]
    assert [result.get("error") for result in results] == ["StorageCorrupted", None]


def test_recover_keeps_the_high_watermark(data_directory: Path) -> None:
    def high_watermark() -> int:
        path = data_directory / "orders-0" / "checkpoint"
        stored = read_small_file(path, Kind.CHECKPOINT, storage_pb2.PartitionCheckpoint)
        assert stored is not None
        return stored.high_watermark

    # Written by a replica that was never told that anything is committed.
    assert high_watermark() == 0
    run("log", "recover", data_directory)
    assert high_watermark() == 0


def test_recover_refuses_a_directory_in_use(data_directory: Path) -> None:
    with DataDirectory(data_directory, cluster_id="c", broker_id=1):
        for path in (data_directory, data_directory / "orders-0"):
            result = run("log", "recover", path, code=1)
            assert "is in use by another process" in result.stderr
            assert str(os.getpid()) in result.stderr
            assert result.stdout == ""


def test_recover_creates_nothing(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    assert "nothing to recover" in run("log", "recover", tmp_path / "orders-0", code=1).stderr
    assert list((tmp_path / "orders-0").iterdir()) == []
    run("log", "recover", tmp_path / "orders-1", code=1)
    assert not (tmp_path / "orders-1").exists()


# -- As a process --------------------------------------------------------------------------------------------------

LOGRAFT = f"'{sys.executable}' -m lograft.cli"


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


def test_process_exit_codes_and_one_line_errors(tmp_path: Path) -> None:
    failed = shell(f"{LOGRAFT} log dump '{tmp_path}/none'")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == f"error: {tmp_path}/none: no such file or directory: check the path\n"
    for command, environment in ((f"{LOGRAFT} --debug", {}), (LOGRAFT, {"LOGRAFT_DEBUG": "1"})):
        assert "Traceback" in shell(f"{command} log dump '{tmp_path}/none'", **environment).stderr
    assert shell(f"{LOGRAFT} log dump").returncode == 2


def test_missing_extra_is_one_line() -> None:
    for missing in ("click", "rich"):
        code = f"import sys; sys.modules['{missing}'] = None; from lograft.cli import main; main()"
        failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
        assert (failed.returncode, failed.stdout) == (2, "")
        assert failed.stderr == "the command line needs: pip install 'lograft[server]'\n"


def test_broken_pipe_and_full_disk_are_quiet(tmp_path: Path) -> None:
    with PartitionLog.open(tmp_path / "orders-0") as log:
        for _ in range(20):
            log.append(encode_batch([b"x" * 100] * 1000, timestamps_ms=1))
    cut = shell(f"{LOGRAFT} log dump '{tmp_path}/orders-0' --records | head -n 2; exit ${{PIPESTATUS[0]}}")
    assert (cut.returncode, cut.stderr) == (141, "")
    assert len(cut.stdout.splitlines()) == 2
    full = shell(f"{LOGRAFT} log dump '{tmp_path}/orders-0' --records > /dev/full")
    assert full.returncode == 1
    assert full.stderr == "error: the output could not be written: No space left on device\n"
    assert shell(f"{LOGRAFT} log dump '{tmp_path}/orders-0' >&-").returncode == 0


@pytest.mark.skipif(shutil.which("script") is None, reason="needs script(1) for a terminal")
def test_colours_only_on_a_terminal(partition: Path) -> None:
    command = f"{LOGRAFT} log verify '{partition}'"
    assert ESCAPE not in shell(f"{command} 2>&1").stdout
    on_terminal = f'script -qec "{command}" /dev/null'
    assert ESCAPE in shell(on_terminal, TERM="xterm").stdout
    coloured = shell(on_terminal, TERM="xterm", NO_COLOR="1").stdout
    assert f"{ESCAPE}[3" not in coloured
    assert "no damage" in coloured


def test_interrupt_exits_130_quietly(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "waits.log")
    process = subprocess.Popen(
        [sys.executable, "-m", "lograft.cli", "log", "dump", str(tmp_path / "waits.log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Returns once the process has opened the pipe; from then on it waits for bytes that never come.
    writer = os.open(tmp_path / "waits.log", os.O_WRONLY)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    os.close(writer)
    assert (process.returncode, stdout, stderr) == (130, "", "")
