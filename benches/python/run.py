"""Times this package beside plain torch over dicts and, with `--reference DIR`, beside the package it replaces.

    python benches/python/run.py [--reference DIR] [--only TEXT]

benches/README.md says how to read the table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROWS = Path(__file__).with_name("rows.py")
Times = dict[str, list[float]]


def measure(path: str | None, args: argparse.Namespace) -> Times:
    """The rows in a fresh process, which imports tensordict from `path` or, without one, as this process would."""
    environment = {**os.environ, "PYTHONPATH": path} if path else dict(os.environ)
    command = [sys.executable, str(ROWS), str(args.seconds), args.only]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    times: Times = json.loads(done.stdout)
    return times


def best(rounds: list[Times]) -> Times:
    """The best time of each row over the rounds."""
    return {row: [min(times) for times in zip(*(one[row] for one in rounds), strict=True)] for row in rounds[0]}


def show(ours: Times, theirs: Times) -> None:
    """Prints the table: microseconds, and how many times as long the others take."""
    print(f"{'':32} {'us':>10} {'reference':>10} {'plain':>10}")
    for row, (mine, *plain) in ours.items():
        others = [theirs[row][0]] if row in theirs else [None]
        ratios = (f"{other / mine:10.2f}" if other else f"{'-':>10}" for other in [*others, *(plain or [None])])
        print(f"{row:32} {mine * 1e6:10.1f}", *ratios)


def main() -> None:
    """Measures the sides in turn, so that a slow moment of the machine meets all of them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--reference", help="folder with the package to compare with")
    parser.add_argument("--only", default="", help="only rows whose name holds this text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each piece of work in a round")
    args = parser.parse_args()
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours.append(measure(None, args))
        if args.reference:
            theirs.append(measure(args.reference, args))
    show(best(ours), best(theirs) if theirs else {})


if __name__ == "__main__":
    main()
