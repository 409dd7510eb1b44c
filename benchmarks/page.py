"""The page's size, how long it takes to build and to open, and from its sliders to the last panel.

    python benchmarks/page.py FOLDER …     a page of each folder: results of reproduce, runs, a probe

Times are from this machine, with whatever else runs on it: let it be quiet.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.browser import browser, missing
from topicscope.reporting.page import write_report

REPEATS = 5
# Until the panels are painted: the browser's next frame after the one in which they were changed.
SLIDE = """
document.querySelectorAll("details").forEach((each) => { each.open = true; });
const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
const slider = document.querySelector("%s"), last = Number(slider?.max || 0), times = [];
for (let move = 0; last && move < 40; move++) {
  const began = performance.now();
  slider.value = (7 * move) %% (last + 1);
  slider.dispatchEvent(new Event("input"));
  await painted();
  await painted();
  times.push(performance.now() - began);
}
return times;
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    with tempfile.TemporaryDirectory() as name:
        for folder in parser.parse_args().folders:
            measure(folder, Path(name) / "report.html")


def measure(folder: Path, file: Path) -> None:
    """Print the page's numbers."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        write_report([folder], file)
        times.append(time.perf_counter() - began)
    print(f"{folder}: {file.stat().st_size / 1e6:.2f} MB, built in {spread(times)} s ({REPEATS} times)")
    if reason := missing():
        print(f"{folder}: not opened: {reason}")
        return
    with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as opened:
        print(f"{folder}: opened in {spread([opened.open(file) for _ in range(REPEATS)])} s ({REPEATS} times)")
        for section in (".player .bar input", "#landscape input"):
            moved: list[Any] = opened.run(SLIDE % section)
            if moved:
                print(f"{folder}: from {section} to the last panel {spread(moved)} ms ({len(moved)} moves)")


def spread(values: list[float]) -> str:
    """The median, and the least and the largest."""
    return f"{statistics.median(values):.3g} (from {min(values):.3g} to {max(values):.3g})"


if __name__ == "__main__":
    main()
