"""The ``lograft`` command itself: global options, the look of the help, and how every command ends.

Exit codes: 0 done; 1 it failed, or damage was found; 2 wrong usage; 130 interrupted; 141 nobody reads the output.
"""

import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from lograft import __version__
from lograft.cli.log import log
from lograft.cli.metadata import metadata
from lograft.cli.quorum import quorum
from lograft.contract.errors import LogError, StorageCorrupted
from lograft.metadata_quorum.identity import NODE_META
from lograft.metadata_quorum.journal import JOURNAL
from lograft.metadata_quorum.snapshot_file import SNAPSHOT

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
# What the shell reports for a program ended by SIGPIPE: `verify | head` must not look like "no damage".
EXIT_BROKEN_PIPE = 141
_QUORUM_FILES = (NODE_META, JOURNAL, SNAPSHOT)
_QUORUM_GUIDE = "docs/quorum.md"


class _Formatter(click.HelpFormatter):
    """click's help with a little colour; click strips it where there is no terminal."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, click.style(prefix or "Usage: ", bold=True))

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{click.style(heading, bold=True)}\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(click.style(term, fg="cyan"), text) for term, text in rows], col_max, col_spacing)


class _Context(click.Context):
    formatter_class = _Formatter

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Here and not in the command: `--help` ends before any command runs.
        if os.environ.get("NO_COLOR"):
            self.color = False


class Root(click.Group):
    """Turns whatever a command ends with into an exit code and, at most, one line."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            _discard_output()
            ctx.exit(EXIT_BROKEN_PIPE)
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)
        except (LogError, OSError) as error:
            if ctx.params.get("debug"):
                traceback.print_exc()
            click.echo(f"{click.style('error:', fg='red', bold=True)} {_told(error)}", err=True)
            if isinstance(error, OSError) and error.filename is None:
                _discard_output()
            ctx.exit(EXIT_FAILED)


def _discard_output() -> None:
    """Let the interpreter's last flush go nowhere instead of failing once more."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # not a real file, as in tests
        return


def _told(error: LogError | OSError) -> str:
    """One line: what is wrong, and what to do."""
    match error:
        case StorageCorrupted(path=path) if Path(path).name in _QUORUM_FILES:
            text = str(error)
            if _QUORUM_GUIDE not in text:
                text += (
                    f"; this quorum node must not vote any more: 'A damaged node' in {_QUORUM_GUIDE} is the way back"
                )
        case StorageCorrupted():
            text = f"{error}; 'lograft log verify' on its directory shows all that is damaged"
        case LogError():
            text = str(error)
        case FileNotFoundError(filename=name) if name is not None:
            text = f"{name}: no such file or directory: check the path"
        case PermissionError(filename=name) if name is not None:
            text = f"{name}: permission denied: run as the user who owns it"
        case OSError(filename=None):
            text = f"the output could not be written: {error.strerror or error}"
        case _:
            text = f"{error.filename}: {error.strerror}"
    return " ".join(text.splitlines())


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 failed or damage found, 2 wrong usage.",
)
@click.version_option(__version__, "--version", prog_name="lograft", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, envvar="LOGRAFT_DEBUG", help="Show the traceback of an error (LOGRAFT_DEBUG=1).")
def root(debug: bool) -> None:
    """Lograft, a distributed commit log that coordinates itself.

    \b
    lograft log dump orders-0      see what is in a log
    lograft log verify /data       check every byte of a broker's disk
    lograft quorum status          who leads the quorum, and how far each node is
    lograft metadata dump          everything the quorum knows, as JSON
    """


def _give_look(command: click.Command) -> None:
    command.context_class = _Context
    for child in command.commands.values() if isinstance(command, click.Group) else ():
        _give_look(child)


root.add_command(log)
root.add_command(quorum)
root.add_command(metadata)
_give_look(root)
