"""Measures the bars in seconds of everyday use, one after the other, and tells the load of the machine next to each.

    python -m tools.everyday [NAME...] [--model FILE.gguf] [--other spark] [--json]

Without names all bars are measured, which takes some minutes. The figures mean something only on a machine that does
nothing else: the load before each measurement is printed.
"""

from __future__ import annotations

import argparse
import json
import os

from tools.everyday.bars import BARS, NOT_HERE, measured


def main() -> None:
    """Prints one line for each bar: the load, the figure, the bar, and whether it is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *BARS], help="the bars to measure; none for all")
    parser.add_argument("--model", default="spark", help="the model of bars for 1 B or 8 B")
    parser.add_argument("--other", default="spark", help="a small second model")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    shown = []
    for name in asked.names or BARS:
        bar, load = BARS[name], os.getloadavg()[0]
        try:
            figure, words = measured(name, asked.model, asked.other)
            row = {"figure": figure, "met": figure <= bar.limit, "words": words}
        except (RuntimeError, OSError, KeyError, TimeoutError) as error:
            row = {"figure": None, "met": False, "words": f"could not be measured: {error}"}
        shown.append({"bar": name, "section": bar.section, "limit": bar.limit, "unit": bar.unit, "load": load, **row})
        if not asked.json:
            told = "-" if row["figure"] is None else f"{row['figure']:.3g}"
            met = "met " if row["met"] else "MISS"
            print(
                f"{met} {name:<11} {told:>8} {bar.unit:<11} bar {bar.limit:g}; load {load:.2f}; {row['words']}",
                flush=True,
            )
    if asked.json:
        print(json.dumps({"model": asked.model, "bars": shown, "not_measured": NOT_HERE}, indent=1))


if __name__ == "__main__":
    main()
