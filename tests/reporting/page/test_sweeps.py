"""Sweeps on the page: finished, half-finished and damaged ones."""

import csv
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.page_data import data_of
from support.small_sweeps import small_sweep
from topicscope.commands.sweep import sweep
from topicscope.reporting.page import page_html


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sweep(small_sweep(seeds=(0, 1)), tmp_path_factory.mktemp("page") / "sweep", workers=1).out


@pytest.fixture
def half(finished: Path, tmp_path: Path) -> Path:
    """As a sweep is while it goes on: two of its four groups are finished, one of the others is half-way."""
    folder = tmp_path / "half"
    shutil.copytree(finished, folder, ignore=shutil.ignore_patterns("sweep.csv", "sweep.parquet", "figures", "*.html"))
    for path in sorted((folder / "work").glob("*.json"))[2:]:
        path.unlink()
        for metrics in (folder / "runs" / path.stem).glob("*/metrics.jsonl"):
            metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:2]))
    return folder


def sweeps_of(page: str) -> list[dict[str, Any]]:
    return list(data_of(page)["sweeps"])


def notes_of(page: str) -> list[str]:
    _, _, notes = page.partition('<section class="notes"')
    return re.findall(r"<li>(.*?)</li>", notes.split("</section>")[0])


def test_a_half_finished_sweep_says_how_far_it_is_once_and_shows_its_finished_groups(
    finished: Path, half: Path
) -> None:
    page = page_html([half])
    assert notes_of(page) == [
        f"{half}: 2 of 4 groups of the sweep&#39;s runs are finished; topicscope sweep --out {half} --resume goes on."
    ]
    (part,) = sweeps_of(page)
    (whole,) = sweeps_of(page_html([finished]))
    assert len(part["numbers"]["loss"]) == 4
    assert set(part["numbers"]["loss"]) < set(whole["numbers"]["loss"])
    assert len(whole["numbers"]["loss"]) == 8
    assert notes_of(page_html([finished])) == []


def test_unfinished_runs_of_a_sweep_go_on_with_the_sweep_not_alone(half: Path) -> None:
    page = page_html([half / "runs"])
    assert f"{half} holds runs that are not finished; topicscope sweep --out {half} --resume goes on." in page
    assert "topicscope train" not in " ".join(notes_of(page))
    assert len(notes_of(page)) == 1


DAMAGED = {
    b"": "has no column seed",
    b"\xff\xfe\x00": "is not UTF-8 text",
    b"seed,loss\n0\n": "cannot be read",
    b"nothing\nof ours\n": "has no column seed",
}


@pytest.mark.parametrize(("content", "reason"), DAMAGED.items())
def test_a_damaged_table_is_left_out_and_the_note_says_why(
    finished: Path, tmp_path: Path, content: bytes, reason: str
) -> None:
    folder = tmp_path / "sweep"
    shutil.copytree(finished, folder, ignore=shutil.ignore_patterns("*.html"))
    (folder / "sweep.csv").write_bytes(content)
    page = page_html([folder])
    (note,) = notes_of(page)
    assert f"{folder / 'sweep.csv'} {reason}" in note
    assert note.endswith("It is left out.")
    assert sweeps_of(page) == []


def test_a_folder_that_is_given_twice_is_shown_once(finished: Path) -> None:
    assert len(sweeps_of(page_html([finished, finished, finished.parent]))) == 1


def test_several_sweeps_are_told_apart_by_their_folders(finished: Path, half: Path) -> None:
    def menu(*folders: Path) -> str:
        (found,) = re.findall(r"<nav.*?</nav>", page_html(folders), re.DOTALL)
        return " ".join(re.sub(r"<.*?>", "", found).split())

    assert menu(finished) == "Sweep"
    both = menu(finished, half)
    assert both == f"Sweep: {finished.parent.name}/sweep Sweep: {half.parent.name}/half What is missing"


def test_the_table_shows_four_digits_and_keeps_all(finished: Path) -> None:
    page = page_html([finished])
    with (finished / "sweep.csv").open(newline="") as file:
        loss = next(csv.DictReader(file))["loss"]
    assert len(loss) > 8
    assert f'<td data-full="{loss}">{float(loss):.4g}</td>' in page
    assert f"<td>{loss}</td>" not in page


def test_a_sweep_says_how_to_look_at_its_runs(finished: Path, tmp_path: Path) -> None:
    assert f"topicscope report {finished}/runs --out runs.html" in page_html([finished])
    shutil.copytree(finished, tmp_path / "table", ignore=shutil.ignore_patterns("runs", "*.html"))
    assert "--out runs.html" not in page_html([tmp_path / "table"])


def test_a_folder_with_a_sweep_file_and_no_work_is_no_sweep(half: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    shutil.copy(half / "sweep.toml", tmp_path / "mine")
    assert "holds nothing that a page can show" in page_html([tmp_path / "mine"])
