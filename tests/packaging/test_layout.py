"""The shape of the repository: folders at the root, links in ``lograft/``, and names that are never imported."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINKS = {
    "v1": "../proto/lograft/v1",
    "contract": "../proto/lograft/contract",
    "storage": "../storage",
    "metadata_quorum": "../metadata_quorum",
    "broker": "../broker",
    "sdk": "../sdk",
    "chaos": "../chaos",
}
BARE_NAMES = {"storage", "broker", "sdk", "chaos", "metadata_quorum", "proto"}


def test_import_package_when_looked_at_then_links_to_the_folders_at_the_root() -> None:
    found = {path.name: str(path.readlink()) for path in (ROOT / "lograft").iterdir() if path.is_symlink()}
    assert found == LINKS


def test_bare_folder_names_when_everything_is_imported_then_were_never_imported() -> None:
    program = (
        "import importlib, pkgutil, sys, lograft\n"
        "for module in pkgutil.walk_packages(lograft.__path__, 'lograft.'):\n"
        "    if not module.name.endswith('__main__'):\n"
        "        importlib.import_module(module.name)\n"
        "print(*sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert "lograft.storage.log" in imported
    assert not BARE_NAMES & imported


def test_sdk_when_imported_then_brings_nothing_of_the_server() -> None:
    program = "import sys, lograft.sdk, lograft.contract.records; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert not {name for name in imported if name.startswith(("lograft.storage", "lograft.broker", "click", "rich"))}
