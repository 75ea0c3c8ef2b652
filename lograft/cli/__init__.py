"""The command line. `main` is the entry point of the ``lograft`` script.

click and rich come with ``lograft[server]``, so nothing here imports them before it is known that they are there.
"""

import os
import sys
from pathlib import Path

from lograft.contract.process import tune_grpc

_SERVER_PACKAGES = ("click", "rich", "pysyncobj", "grpc_health", "grpc_reflection", "uvloop")


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    # A closed stdout (`>&-`) is None: nobody listens, which is no reason to fail.
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - for as long as the process lives
    tune_grpc()
    try:
        from lograft.cli.root import root  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _SERVER_PACKAGES:
            raise
        sys.stderr.write("the command line needs: pip install 'lograft[server]'\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    root(prog_name="lograft")
