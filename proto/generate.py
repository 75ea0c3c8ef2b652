"""Generate the Python code of ``proto/lograft/v1`` beside its sources, or check that it is fresh.

Run by ``make proto`` and, with ``--check``, by ``make check``.
"""

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent
SOURCES = ROOT / "lograft" / "v1"


def generate(output: Path) -> None:
    """Write the generated modules of every proto file below ``output``."""
    well_known = Path(protoc.__file__).parent / "_proto"
    protos = sorted(str(path) for path in SOURCES.glob("*.proto"))
    arguments = [
        "protoc",
        f"-I{ROOT}",
        f"-I{well_known}",
        f"--python_out={output}",
        f"--pyi_out={output}",
        *protos,
    ]
    services = [path for path in protos if "\nservice " in Path(path).read_text()]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed")
    if services and protoc.main([*arguments[:3], f"--grpc_python_out={output}", *services]) != 0:
        raise SystemExit("protoc failed for the services")


def stale_files(fresh: Path) -> list[str]:
    """Names of the committed modules that differ from, or are missing in, the fresh ones."""
    made = {path.name: path.read_bytes() for path in (fresh / "lograft" / "v1").iterdir()}
    committed = {path.name: path.read_bytes() for path in SOURCES.glob("*_pb2*")}
    return sorted(name for name in made.keys() | committed.keys() if made.get(name) != committed.get(name))


def main() -> None:
    """Generate in place, or compare when called with ``--check``."""
    if sys.argv[1:] != ["--check"]:
        generate(ROOT)
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        stale = stale_files(Path(folder))
    if stale:
        raise SystemExit(f"generated code is stale: {', '.join(stale)}. Run 'make proto'.")


if __name__ == "__main__":
    main()
