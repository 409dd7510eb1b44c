"""The page's size, how long it takes to build and to open, and from slider to last panel.

    python benchmarks/page.py [FOLDER …]

Without folders it makes its own: the quick preset of ``reproduce`` and a probe of three models, which takes a while.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from browser import browser, missing
from topicscope.probe.sources import FILES, find_model
from topicscope.report.page import write_report

REPEATS = 5
MOVES = 40
MODELS = ("minilm", "random:minilm")
# A third, untrained, of another architecture: the first with half of its layers.
HALF = "half"
# Until the panels are painted: the browser's next frame after the one in which they were changed.
SLIDE = """
const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
const last = Number(document.getElementById("frame").max), times = [];
for (let move = 0; move < %d; move++) {
  const slider = document.getElementById("frame"), began = performance.now();
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
    given = parser.parse_args().folders
    with tempfile.TemporaryDirectory() as name:
        for title, folders in ({"given": given} if given else _own(Path(name))).items():
            _measure(title, folders, Path(name) / f"{title}.html")


def _own(folder: Path) -> dict[str, list[Path]]:
    program = [sys.executable, "-m", "topicscope"]
    subprocess.run(
        [*program, "reproduce", "--out", str(folder / "quick"), "--quiet"], check=True, stdout=subprocess.DEVNULL
    )
    models = [*MODELS, f"random:{_half(folder / HALF)}"]
    command = [*program, "probe", *models, "--corpus", "wiki-sample", "--out", str(folder / "probe")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return {"quick": [folder / "quick"], "probe": [folder / "probe"]}


def _half(folder: Path) -> Path:
    """Settings and tokenizer of a model with half the layers; its weights are drawn when it is probed."""
    source = find_model(MODELS[0]).folder
    folder.mkdir()
    for path in (path for pattern in FILES for path in source.glob(pattern)):
        shutil.copy(path, folder)
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    settings["num_hidden_layers"] //= 2
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def _measure(title: str, folders: list[Path], file: Path) -> None:
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        write_report(folders, file)
        times.append(time.perf_counter() - began)
    print(f"{title}: {file.stat().st_size / 1e6:.2f} MB, built in {_spread(times)} s ({REPEATS} times)")
    if reason := missing():
        print(f"{title}: not opened: {reason}")
        return
    with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as opened:
        opened_in = [opened.open(file) for _ in range(REPEATS)]
        print(f"{title}: opened in {_spread(opened_in)} s ({REPEATS} times)")
        if opened.value("DATA.runs.length"):
            opened.scroll_to("training")
            opened.wait("document.querySelector('.heatmaplayer image') !== null")
            moved = opened.run(SLIDE % MOVES)
            print(f"{title}: from slider to last panel {_spread(moved)} ms ({MOVES} moves)")


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} (from {min(values):.3g} to {max(values):.3g})"


if __name__ == "__main__":
    main()
