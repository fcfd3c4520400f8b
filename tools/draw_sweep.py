"""Make docs/sweep.svg and docs/sweep.json: start a server, walk it by `twostroke bench sweep`, and stop it.

    python -m tools.draw_sweep                     # random weights of Llama 3.2 1B's shape, int4
    python -m tools.draw_sweep --model spark       # the embedded model
    python -m tools.draw_sweep --quick --out /tmp  # few points, one round: to see the picture, not for its figures

Needs a quiet machine. The prediction comes from the calibration that `twostroke doctor` keeps. With --fresh, or when
there is no calibration, the doctor is run first. The last line names the files. The exit code is 1 when the server did
not start, otherwise that of the walk.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twostroke.assembly.settings.env import read_machine
from twostroke.lab.bench.checkpoints import SHAPES, shape_folder, write_checkpoint
from twostroke.lab.planner.doctor.machine import ThisMachine

PROGRAM = [sys.executable, "-P", "-m", "twostroke"]
WALK = ["--users", "1,2,4,8,16", "--prompts", "64,128,256,512,1024,1900", "--prompt", "256", "--output", "64"]
QUICK = ["--users", "1,2,4", "--prompts", "64,256,512", "--prompt", "128", "--output", "16"]
CONTEXT = "2048"


def folder_of(model: str) -> str:
    """Returns the folder of one of the shapes, which is written when it does not exist yet. Other names are returned
    unchanged."""
    if model not in SHAPES:
        return model
    return str(write_checkpoint(model, shape_folder(model, read_machine().cache_folder)))


@contextmanager
def served(model: str, asked: argparse.Namespace) -> Iterator[str]:
    """Start a server and give its address. The server is ended afterwards. Raises SystemExit when it does not start."""
    words = [*PROGRAM, "serve", model, "--weights", asked.weights, "--context", CONTEXT, "--port", "0", "--json"]
    if asked.threads:
        words += ["--threads", str(asked.threads)]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        if server.stdout is None or not (line := server.stdout.readline()):
            raise SystemExit(1)
        text = line
        while not text.rstrip().endswith("}"):
            text += server.stdout.readline()
        yield str(json.loads(text)["url"])
    finally:
        server.terminate()
        server.wait(60)


def main() -> int:
    """Run the doctor where it is needed, start the server and walk it. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="llama-3.2-1b", help=f"a folder, a hub id, spark or {', '.join(SHAPES)}")
    parser.add_argument("--weights", default="int4")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="few points, one round")
    parser.add_argument("--fresh", action="store_true", help="ask the doctor again first")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    asked = parser.parse_args()
    model = folder_of(asked.model)
    threads = ["--threads", str(asked.threads)] if asked.threads else []
    if asked.fresh or ThisMachine.read(asked.threads or None).kept() is None:
        subprocess.run([*PROGRAM, "doctor", *threads, *(["--fresh"] if asked.fresh else [])], check=True)
    plot, save = asked.out / "sweep.svg", asked.out / "sweep.json"
    with served(model, asked) as url:
        walk = [*(QUICK if asked.quick else WALK), "--rounds", "1" if asked.quick else str(asked.rounds)]
        words = ["bench", "sweep", url, *walk, "--route", "completions", "--predict", model, "--weights", asked.weights]
        code = subprocess.run([*PROGRAM, *words, *threads, "--plot", str(plot), "--save", str(save)]).returncode
    if code == 0:
        print(f"{plot} and {save}")
    return code


if __name__ == "__main__":
    sys.exit(main())
