"""What users install: the package from its sdist, whole, with the SDK's dependencies alone."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PARTS = ["v1", "contract", "storage", "metadata_quorum", "broker", "sdk", "chaos"]


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from that sdist (not from the checkout)."""
    folder = tmp_path_factory.mktemp("dist")
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", folder)
    run(*build, "--sdist", ROOT, cwd=ROOT)
    sdist = next(folder.glob("*.tar.gz"))
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    run(*build, "--wheel", folder / sdist.name.removesuffix(".tar.gz"), cwd=folder)
    return sdist, next(folder.glob("*.whl"))


def test_wheel_when_built_from_the_sdist_then_holds_every_part(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        names = wheel.namelist()
    for part in PARTS:
        assert f"lograft/{part}/__init__.py" in names
    assert "lograft/py.typed" in names
    assert "lograft/v1/log.proto" in names
    assert "lograft/chaos/power_loss/shim.c" in names
    top = {name.split("/")[0] for name in names if ".dist-info" not in name}
    # `import storage` or `import proto` must never be ours: other packages have those names.
    assert top == {"lograft"}


def test_plain_install_when_described_then_needs_only_what_the_sdk_needs(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        metadata = wheel.read(next(name for name in wheel.namelist() if name.endswith("/METADATA"))).decode()
    required = [line.split(": ", 1)[1] for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    plain = {Requirement(entry).name for entry in required if "extra ==" not in entry}
    assert plain == {"grpcio", "protobuf", "google-crc32c", "zstandard", "lz4"}
    extras = {line.split(": ")[1] for line in metadata.splitlines() if line.startswith("Provides-Extra: ")}
    assert extras == {"server", "spark", "chaos", "bench", "dev"}


def test_sdist_when_installed_by_pip_then_works_without_the_checkout(built: tuple[Path, Path], tmp_path: Path) -> None:
    install = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    run(*install, "--target", tmp_path / "site", built[0], cwd=tmp_path)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from lograft.contract.records import encode_batch\n"
        "from lograft.storage import PartitionLog\n"
        "import lograft.sdk, lograft\n"
        "assert lograft.__file__.startswith(sys.argv[1]), lograft.__file__\n"
        "with PartitionLog.open(sys.argv[2]) as log:\n"
        "    log.append(encode_batch([b'hello'], timestamps_ms=1))\n"
        "    print([record.value for record in log.records()])\n"
    )
    printed = run(sys.executable, "-c", program, tmp_path / "site", tmp_path / "orders-0", cwd=tmp_path)
    assert printed == "[b'hello']\n"
