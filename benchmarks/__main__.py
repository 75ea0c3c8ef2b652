"""``python -m benchmarks storage``: measure, print a table, write the results."""

import argparse
import re
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType, ModuleType

from benchmarks import quorum, storage
from benchmarks.harness import Reporter, print_table, write_results
from benchmarks.machine import ROOT, machine_facts

SUITES: dict[str, ModuleType] = {"storage": storage, "quorum": quorum}
# Named here so that the error for a typo lists what will exist, too.
PLANNED = ("broker", "sdk", "spark")
_COMMITTED_RESULTS = ROOT / "benchmarks" / "results"
_OTHER_RESULTS = ROOT / "build" / "bench-results"
_DEFAULT_DATA = ROOT / "build" / "bench-data"


def main(arguments: list[str] | None = None) -> int:
    """Run the suites asked for. Not 0 only if something went wrong: a missed bar is a result."""
    options = _options(arguments)
    if options.suite in PLANNED:
        return _refuse(f"there are no benchmarks of {options.suite!r} yet")
    if options.suite != "all" and options.suite not in SUITES:
        return _refuse(f"unknown benchmark {options.suite!r}")
    asked = SUITES if options.suite == "all" else {options.suite: SUITES[options.suite]}
    chosen = [name for name, suite in asked.items() if any(options.only.lower() in m.lower() for m in suite.MEASURES)]
    if not chosen:
        measures = "\n  ".join(name for suite in asked.values() for name in suite.MEASURES)
        return _refuse(f"no measure has {options.only!r} in its name; there are:\n  {measures}")
    # Like Ctrl-C: the files are removed.
    signal.signal(signal.SIGTERM, _stop)
    for name in chosen:
        _run_suite(name, options)
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure Lograft. See benchmarks/README.md."
    )
    parser.add_argument("suite", help=f"all, {', '.join(SUITES)} (later: {', '.join(PLANNED)})")
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, to see that everything works: no real figures"
    )
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="only the measures with this in their name")
    parser.add_argument(
        "--large", type=_size, metavar="SIZE", help="size of the large log, such as 512MB (default 10GB)"
    )
    parser.add_argument("--slices", type=int, metavar="N", help="at most so many slices of each side")
    parser.add_argument(
        "--data", type=Path, default=_DEFAULT_DATA, metavar="DIR", help="where to put files, removed afterwards"
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help="where to write the results (default: benchmarks/results for a full run, else build/bench-results)",
    )
    return parser.parse_args(arguments)


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([kMG]?)B?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"not a size: {text!r}; write it as 512MB or 10GB")
    return int(match[1]) * {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}[match[2]]


def _refuse(problem: str) -> int:
    print(f"{problem}; choose one of: all, {', '.join(SUITES)} (later: {', '.join(PLANNED)})", file=sys.stderr)
    return 2


def _stop(_signal: int, _frame: FrameType | None) -> None:
    sys.exit("stopped")


def _run_suite(name: str, options: argparse.Namespace) -> None:
    reporter = Reporter()
    options.data.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"lograft-bench-{name}-", dir=options.data))
    begin = time.monotonic()
    try:
        facts = machine_facts(folder)
        rows = SUITES[name].run(
            folder,
            quick=options.quick,
            large_bytes=options.large,
            slices=options.slices,
            only=options.only,
            reporter=reporter,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if options.data == _DEFAULT_DATA and not any(_DEFAULT_DATA.iterdir()):
            _DEFAULT_DATA.rmdir()
    facts |= {"quick": options.quick, "seconds": round(time.monotonic() - begin, 1)}
    print_table(f"{name} benchmarks{' (quick: no real figures)' if options.quick else ''}", rows)
    # Figures that are committed come from complete runs of the full size only.
    partial = options.quick or options.only or options.large is not None or options.slices is not None
    written = write_results(options.results or (_OTHER_RESULTS if partial else _COMMITTED_RESULTS), name, rows, facts)
    reporter.say(f"{facts['seconds']} s; results: {written}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
