"""The page's size, how long it takes to build and to open, and from slider to last panel.

    python benchmarks/page.py FOLDER …     a page of each folder: results of reproduce, a probe
    python benchmarks/page.py              its own: the quick preset of reproduce and a probe of three models, a quarter
                                           of an hour on two cores
    python benchmarks/page.py --small      its own, small: one figure of the preset, a probe of a fiftieth of the text
    python benchmarks/page.py --keep DIR   what it makes is kept there, and taken from there the next time

Times are from this machine, with whatever else runs on it: let it be quiet.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.browser import Browser, browser, missing
from topicscope.probing.sources import FILES, find_model
from topicscope.reporting.page import write_report

REPEATS = 5
MOVES = 40
# What is aimed at.
AIMS = {"slider": "aim: 100 ms", "size": "aim: at most 10 MB"}
MODELS = ("minilm", "random:minilm")
# A third, untrained, of another architecture: the first with half of its layers.
HALF = "half"
SMALL_QUICK = ("--only", "theorem2", "figure2", "figure6", "--seeds", "2")
SMALL = {"every": 50, "topics": 10, "fits": 1, "iterations": 20, "fractions": 0.01}
SMALL |= {"replicates": 100, "permutations": 99, "head-permutations": 99}
SMALL_PROBE = [word for name, value in SMALL.items() for word in (f"--{name}", str(value))]
# Until the panels are painted: the browser's next frame after the one in which they were changed.
SLIDE = """
const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
const slider = %s, last = Number(slider.max), times = [];
for (let move = 0; move < %d; move++) {
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
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = asked.keep or Path(name)
        pages = {str(each): each for each in asked.folders} or _own(folder, small=asked.small)
        for title, each in pages.items():
            _measure(title, each, Path(name) / "report.html")


def _own(folder: Path, *, small: bool) -> dict[str, Path]:
    """Results and a probe of its own; what is finished in the folder is not done again."""
    folder.mkdir(parents=True, exist_ok=True)
    models = [*MODELS, f"random:{_half(folder / HALF)}"]
    quick, probe = folder / "quick", folder / "probe"
    _topicscope("reproduce", *(SMALL_QUICK if small else ()), "--out", str(quick), "--quiet")
    _topicscope("probe", *models, "--corpus", "wiki-sample", "--out", str(probe), *(SMALL_PROBE if small else ()))
    shown = " (small)" if small else ""
    return {f"reproduce --preset quick{shown}": quick, f"probe of {len(models)} models{shown}": probe}


def _topicscope(*words: str) -> None:
    source = str(Path(__file__).parents[1] / "src")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "topicscope", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def _half(folder: Path) -> Path:
    """Settings and tokenizer of a model with half the layers; its weights are drawn when it is probed."""
    source = find_model(MODELS[0]).folder
    folder.mkdir(exist_ok=True)
    for path in (path for pattern in FILES for path in source.glob(pattern)):
        shutil.copy(path, folder)
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    settings["num_hidden_layers"] //= 2
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def _measure(title: str, folder: Path, file: Path) -> None:
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        write_report([folder], file)
        times.append(time.perf_counter() - began)
    print(f"{title}: size {file.stat().st_size / 1e6:.2f} MB ({AIMS['size']})")
    print(f"{title}: built in {_spread(times)} s ({REPEATS} times)")
    if reason := missing():
        print(f"{title}: not opened: {reason}")
        return
    with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as opened:
        print(f"{title}: opened in {_spread([opened.open(file) for _ in range(REPEATS)])} s ({REPEATS} times)")
        # All runs of an article; a page of runs alone has them where it opens.
        player = opened.value("(PLAYERS.runs || PLAYERS['film-player'])?.spec.id")
        if player:
            drawn = f"document.querySelector('#{player} .now, #{player} .heatmaplayer image') !== null"
            _print_slides(title, opened, player, f"PLAYERS['{player}'].part('frame')", drawn)
        if opened.value("DATA.landscapes.length"):
            _print_slides(title, opened, "landscape", "$('topics')", "SPECS.has($('surface'))", moves=8)


def _print_slides(title: str, opened: Browser, section: str, slider: str, drawn: str, *, moves: int = MOVES) -> None:
    """Panels that follow the slider at once; a surface is drawn when it rests."""
    opened.scroll_to(section)
    opened.wait(drawn)
    # Let what is drawn after the first look be done with.
    time.sleep(1.0)
    moved: list[Any] = opened.run(SLIDE % (slider, moves))
    print(f"{title}: {section}, from slider to last panel {_spread(moved)} ms ({moves} moves; {AIMS['slider']})")


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} (from {min(values):.3g} to {max(values):.3g})"


if __name__ == "__main__":
    main()
