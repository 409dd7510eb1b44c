"""The page without a browser: what is in it, what it may load, and what it says of folders that hold little."""

import base64
import csv
import dataclasses
import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from support.page_data import arrays_of, contrast, data_of
from support.page_material import (
    NASTY,
    two_stages,
    with_theory,
    write_article,
    write_claims,
    write_everything,
    write_landscapes,
    write_layers,
    write_probe,
    write_runs,
    write_text_run,
)
from support.small_sweeps import small_sweep
from topicscope.commands.sweep import sweep
from topicscope.errors import InputError
from topicscope.measure.blocks import averages_by_class
from topicscope.measure.run import read_run, run_bytes, write_run
from topicscope.records import PredictedStages
from topicscope.reporting.page import page_html, write_report
from topicscope.reporting.page.runs import (
    evenly,
    matrices,
    run_sections,
    shown_runs,
    take_offs,
    theory_run,
    two_stage_run,
    where_things_happen,
)
from topicscope.reporting.page.store import Found, Store, find, script_json
from topicscope.reporting.palette import CLASSES, COLOURS, PARTS
from topicscope.reporting.playground import asset
from topicscope.training.folder import cut


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_everything(tmp_path_factory.mktemp("everything"))


@pytest.fixture(scope="module")
def everything(written: list[Path]) -> str:
    return page_html(written)


@pytest.fixture(scope="module")
def runs(written: list[Path]) -> Path:
    return written[0].parent / "runs"


def numbers(page: str, reference: dict[str, int]) -> np.ndarray:
    entry = data_of(page)["arrays"][reference["$"]]
    content = arrays_of(page)[entry["at"] : entry["at"] + entry["bytes"]]
    return np.frombuffer(content, {"float32": "<f4", "uint8": "u1"}[entry["kind"]]).reshape(entry["shape"])


# What is packed, and what may run.


def test_the_page_loads_nothing_and_its_policy_allows_its_one_script_alone(everything: str) -> None:
    loads = re.compile(
        r'(?:src|srcset|poster|data|action)\s*=\s*["\']?\s*(?:https?:)?//|@import|(?<![a-z])url\(', re.IGNORECASE
    )
    assert not loads.search(everything)
    assert loads.search('<img src="https://example.org/x.png">')
    assert not re.search(r"<link\b", everything)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', everything)
    assert policy
    assert policy[1].startswith("default-src &#39;none&#39;")
    assert "http" not in policy[1]
    assert "unsafe" not in policy[1].split("style-src")[0].replace("wasm-unsafe-eval", "")
    (script,) = re.findall(r"<script>(.*?)</script>", everything, re.DOTALL)
    assert "eval(" not in script

    def allowed(text: str) -> bool:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy[1]

    assert allowed(script)
    assert not allowed(script + " ")


def test_words_from_outside_never_become_markup(everything: str) -> None:
    assert NASTY not in everything
    assert "&lt;script&gt;alert" in everything
    text = script_json({"word": "</script><!--\u2028"})
    assert not set("<\u2028") & set(text)
    assert json.loads(text) == {"word": "</script><!--\u2028"}


def test_arrays_begin_where_the_browser_can_read_them(everything: str) -> None:
    content = arrays_of(everything)
    for entry in data_of(everything)["arrays"]:
        assert entry["at"] % 4 == 0
        assert entry["at"] + entry["bytes"] <= len(content)


def test_frames_are_exact_to_half_a_step_of_their_own_range_and_maps_to_a_two_thousandth() -> None:
    frames = np.random.default_rng(0).normal(size=(3, 5, 5)) * np.array([1e-3, 1.0, 50.0])[:, None, None]
    store = Store()
    entry = store.index[store.frames(frames)["$"]]
    packed = np.frombuffer(store.chunks[0][: entry["bytes"]], dtype=np.uint8).reshape(3, 5, 5)
    low, scale = (np.array(entry[name])[:, None, None] for name in ("low", "scale"))
    error = abs(low + scale * packed - frames).max(axis=(1, 2))
    np.testing.assert_array_less(error, 0.5001 * scale.ravel())
    # One range for all would lose the first frame.
    assert error[0] < 1e-5 < 50 / 255 / 2
    values = np.random.default_rng(0).uniform(1e6, 2e6, size=100)
    entry = store.index[store.halves(values)["$"]]
    back = entry["low"] + entry["scale"] * np.frombuffer(store.chunks[1], dtype="<f2").astype(np.float64)
    assert (abs(back - values) <= (values - values.min()) / 2000 + 1e-6 * entry["scale"]).all()
    # As they are, float16 could not hold them.
    assert values.min() > np.finfo(np.float16).max


def test_colours_are_one_palette_and_have_contrast_with_both_papers(everything: str) -> None:
    script = re.search(r"const PALETTE = (\{.*?\});\n", everything)
    assert script
    palette = json.loads(script[1])
    assert palette["classes"] == CLASSES
    # No script has a colour of its own but for shades of grey.
    style = asset("topicscope.reporting.playground", "playground.css")
    for name in ("player.js", "widgets.js", "page.js"):
        assert set(re.findall(r"#[0-9a-f]{6}", asset("topicscope.reporting.page", name))) <= {"#808080"}
    papers = re.findall(r"--paper: (#[0-9a-f]{6})", style)
    assert len(papers) == 2
    for colour in {*COLOURS, *CLASSES.values(), *PARTS.values()}:
        assert min(contrast(colour.lower(), paper) for paper in papers) >= 3
    for part in style.split("@media", 2)[:2]:
        theme = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", part))
        for ink, paper in (("ink", "paper"), ("soft", "paper"), ("link", "raised")):
            assert contrast(theme[ink], theme[paper]) >= 4.5
    # The controls: the extremes, and the sky blue that would be too light.
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#56b4e9", "#ffffff") < 3


def distance(one: str, other: str, seen: np.ndarray) -> float:
    """How different two colours are (CIE 1976), as an eye sees them that lacks a kind of cones."""

    def lab(colour: str) -> np.ndarray:
        channels = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
        xyz = to_xyz @ np.clip(seen @ linear, 0, 1) / [0.9505, 1, 1.089]
        f = np.where(xyz > 0.008856, np.cbrt(np.maximum(xyz, 0)), 7.787 * xyz + 16 / 116)
        return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])

    return float(np.linalg.norm(lab(one) - lab(other)))


def test_classes_differ_for_colour_blind_readers() -> None:
    # Machado, Oliveira and Fernandes (2009): protanopia and deuteranopia.
    seen = [
        np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
        np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]),
    ]
    pairs = [(one, other) for one in CLASSES.values() for other in CLASSES.values() if one < other]
    assert min(distance(*pair, eye) for pair in pairs for eye in seen) > 15
    # The control: two colours that seem different to others.
    assert distance("#D55E00", "#8C6D00", np.eye(3)) > 40 > 5 > distance("#D55E00", "#8C6D00", seen[0])


# Folders.


def test_folders_inside_are_found_but_work_is_not_looked_through(tmp_path: Path) -> None:
    write_claims(tmp_path / "results")
    write_claims(tmp_path / "results" / "work" / "old")
    write_probe(tmp_path / "more" / "probe")
    found = find([tmp_path / "results", tmp_path / "more"])
    assert [path.name for path in found.claims] == ["results"]
    assert [path.name for path in found.probes] == ["probe"]
    assert not Found()


def test_what_is_not_there_is_said_or_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "is empty" in page_html([tmp_path / "empty"])
    with pytest.raises(InputError, match="does not exist"):
        page_html([tmp_path / "nowhere"])
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        page_html([tmp_path / "file"])


# Every kind of folder, and the files that its part of the page is read from.
FILES = {
    "results": ("claims.json", "settings.json", "article.json"),
    "runs/seed-0": ("settings.toml", "run.safetensors"),
    "text": ("settings.toml", "run.safetensors", "passages/passages.json"),
    "landscapes": ("landscapes.json", "landscapes.npz"),
    "probe": ("probe.json", "topics.csv", "words.json", "corpus.json"),
    "sweep": ("sweep.csv",),
}  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"[]", b"{}", b"[{}]", b"3\n4\n"])
def test_whatever_is_in_a_file_the_page_is_written(written: list[Path], tmp_path: Path, content: bytes) -> None:
    for folder, names in FILES.items():
        for name in names:
            spoilt = tmp_path / folder / name.replace("/", "-")
            shutil.copytree(written[0].parent / folder, spoilt)
            (spoilt / name).parent.mkdir(exist_ok=True)
            (spoilt / name).write_bytes(content)
    assert "cannot be read" in page_html([tmp_path])


def test_a_page_is_little_more_than_what_it_shows(tmp_path: Path, runs: Path) -> None:
    assert (
        write_report([write_claims(tmp_path / "results")], tmp_path / "deep" / "report.html").stat().st_size < 350_000
    )
    assert len(page_html([runs]).encode()) < 400_000


# Claims.


def test_claims_have_drawings_and_commands_that_name_the_models(tmp_path: Path) -> None:
    folder = write_claims(tmp_path / "results")
    assert list(data_of(page_html([folder]))["drawings"]) == ["figure-0-0"]
    settings = {"preset": "quick", "seeds": 3, "seed": 0, "models": ["minilm", "my model"]}
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "figures" / "figure2.svg").unlink()
    page = page_html([folder])
    assert "--seed 0 --models minilm &#39;my model&#39; --out" in page
    assert "is not drawn yet" in page


def test_an_article_plays_its_runs_and_folds_what_few_want(tmp_path: Path) -> None:
    page = page_html([write_article(tmp_path / "results")])
    (film, stages, whole) = data_of(page)["players"]
    names = [run["name"] for run in data_of(page)["runs"]]
    assert [names[player["run"]].split("/")[0] for player in (film, stages, whole)] == ["figure2", "figure4", "figure2"]
    assert (film["play"], stages["at"], whole["choose"]) == (True, "take-off", True)
    # A drawing is where links lead once, however often it is shown.
    assert page.count('data-drawing="figure-0-0"') == 1 + page.split('id="findings"')[1].split("</ol>")[0].count(
        "figure-0-0"
    )
    assert page.count('id="figure-0-0"') == 1
    for title in ("All training runs", "All claims", "Other figures"):
        assert re.search(rf'<details class="part"><summary><h2>{title}', page)


# Landscapes, probes, sweeps.


def test_landscapes_are_in_the_page_at_each_setting_once(tmp_path: Path) -> None:
    folder = write_landscapes(tmp_path / "one")
    shutil.copytree(folder, tmp_path / "two")
    entries = data_of(page_html([tmp_path / "one", tmp_path / "two"]))["landscapes"]
    assert [(each["topics"], each["perDocument"]) for each in entries] == [(10, 2), (20, 2), (20, 4)]
    assert entries[0]["loss"] == pytest.approx(0.94610274, abs=5e-9)


def test_probes_have_ratios_and_drawings_and_a_spoilt_corpus_is_left_out(tmp_path: Path) -> None:
    folder = write_probe(tmp_path / "probe")
    page = page_html([folder])
    assert "2.00 [1.90, 2.10] *" in page
    assert "no ratio; difference 0.5" in page
    assert data_of(page)["drawings"] == {}
    (folder / "figures").mkdir(exist_ok=True)
    (folder / "figures" / "depth.svg").write_text('<svg viewBox="0 0 3 3"></svg>')
    assert list(data_of(page_html([folder]))["drawings"]) == ["probe-0-image-0"]
    for spoilt in ('"text"', "[1]", '[{"other": 1}]'):
        (folder / "corpus.json").write_text(spoilt)
        page = page_html([folder])
        assert "corpus.json cannot be read" in page
        assert "2.00 [1.90, 2.10] *" in page


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sweep(small_sweep(seeds=(0, 1)), tmp_path_factory.mktemp("page") / "sweep", workers=1).out


@pytest.fixture
def half(finished: Path, tmp_path: Path) -> Path:
    """As a sweep is while it runs: two of its four groups are finished, one of the others is half-way."""
    folder = tmp_path / "half"
    shutil.copytree(finished, folder, ignore=shutil.ignore_patterns("sweep.csv", "figures", "*.html"))
    for path in sorted((folder / "work").glob("*.json"))[2:]:
        path.unlink()
        run = folder / "runs" / path.stem
        (run / "run.safetensors").write_bytes(run_bytes(cut(read_run(run), 4), weights=False))
    return folder


def notes_of(page: str) -> list[str]:
    _, _, notes = page.partition('<section class="notes"')
    return re.findall(r"<li>(.*?)</li>", notes.split("</section>")[0])


def test_a_half_finished_sweep_says_how_far_it_is_once_and_shows_its_finished_groups(
    finished: Path, half: Path
) -> None:
    page, whole = page_html([half]), page_html([finished, finished, finished.parent])
    (note,) = notes_of(page)
    assert "2 of 4 groups of the sweep&#39;s runs are finished" in note
    assert f"topicscope sweep --out {half} --resume" in note
    # A folder that is given twice is shown once.
    (part,), (every,) = (data_of(each)["sweeps"] for each in (page, whole))
    assert (len(part["numbers"]["loss"]), len(every["numbers"]["loss"])) == (4, 8)
    assert set(part["numbers"]["loss"]) < set(every["numbers"]["loss"])
    assert notes_of(page_html([finished])) == []
    # Its runs resume with the sweep, not alone.
    (note,) = notes_of(page_html([half / "runs"]))
    assert f"{half} holds runs that are not finished; topicscope sweep --out {half} --resume" in note
    menu = re.findall(r"<nav.*?</nav>", page_html([finished, half]), re.DOTALL)[0]
    assert f"Sweep: {half.parent.name}/half" in menu


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "has no column seed"), (b"\xff\xfe\x00", "is not UTF-8 text"), (b"seed,loss\n0\n", "cannot be read")],
)
def test_a_damaged_table_is_left_out_and_the_note_says_why(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "sweep.csv").write_bytes(content)
    page = page_html([tmp_path / "sweep"])
    (note,) = notes_of(page)
    assert f"sweep.csv {reason}" in note
    assert data_of(page)["sweeps"] == []


def test_the_table_of_a_sweep_shows_four_digits_and_keeps_all(finished: Path) -> None:
    page = page_html([finished])
    with (finished / "sweep.csv").open(newline="") as file:
        loss = next(csv.DictReader(file))["loss"]
    assert len(loss) > 8
    assert f'<td data-full="{loss}">{float(loss):.4g}</td>' in page
    assert f"<td>{loss}</td>" not in page
    assert f"topicscope report {finished}/runs --out runs.html" in page


# Training runs.


def test_seeds_of_one_setting_are_one_run_with_frames_of_the_first(runs: Path) -> None:
    found = find([runs])
    (both,) = shown_runs(found.runs, found)
    (matrix,) = matrices(both)
    assert (both.seeds, matrix.label) == ((0, 1), "W^V")
    np.testing.assert_allclose(matrix.classes[0, -1], averages_by_class(matrix.frames[-1], both.word_topics))
    assert not np.allclose(matrix.classes[0], matrix.classes[1])
    page = page_html([runs])
    (run,) = data_of(page)["runs"]
    assert [chart["id"] for chart in run["charts"]] == ["norms", "loss"]
    (batch, held_out) = run["charts"][-1]["lines"]
    np.testing.assert_array_equal(numbers(page, batch["values"]), both.metrics["loss"].astype(np.float32))
    assert numbers(page, held_out["values"]).shape == (2, 4)
    assert run["charts"][-1]["levels"][0]["label"] == "Bayes floor"
    assert len(run["matrices"][0]["theoryClasses"]) == 5


def test_few_frames_are_kept_where_many_would_not_fit(runs: Path) -> None:
    assert evenly(40, 3).tolist() == [0, 20, 39]
    assert evenly(5, 100).tolist() == [0, 1, 2, 3, 4]
    assert evenly(1, 10).tolist() == [0]
    found = find([runs])
    shown = shown_runs(found.runs, found)
    size = matrices(shown[0])[0].frames[0].size

    def frames(room: int) -> int:
        store = Store()
        (section,) = run_sections(shown, store, room)
        reference = section["matrices"][0]["frames"]
        return 0 if reference is None else int(store.index[reference["$"]]["shape"][0])

    assert [frames(room * size) for room in (10, 3, 1, -1)] == [len(shown[0].frame_steps), 3, 0, 0]


def test_snapshots_are_kept_where_things_happen_and_take_off_comes_after_the_gain() -> None:
    run = two_stages()
    kept = run.steps[where_things_happen(run, 6)]
    assert len(kept) <= 6
    assert (kept[0], kept[-1]) == (0, 2000)
    still = dataclasses.replace(run, frames={"attention": 0 * run.frames["attention"]})
    assert np.ptp(np.diff(still.steps[where_things_happen(still, 6)])) <= 100
    ((step, gain),) = take_offs(run)
    assert step == 1200
    assert gain == pytest.approx(0.98)
    assert two_stage_run([with_theory(), run]) is run
    assert theory_run([run, with_theory()]).name == "figure2/squared-adam"  # type: ignore[union-attr]


def test_half_finished_folders_say_how_far_they_are(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs / "seed-0", run)
    assert "is not finished" not in page_html([run])
    whole = read_run(run)
    (run / "run.safetensors").write_bytes(run_bytes(cut(whole, 6), weights=False))
    assert f"is not finished: step 4 of 12; topicscope train --out {run} --resume" in page_html([run])
    (run / "run.safetensors").write_bytes(run_bytes(cut(whole, 0), weights=False))
    assert "has logged nothing yet" in page_html([run])
    (run / "run.safetensors").write_bytes(b"cut")
    assert "run.safetensors cannot be read" in page_html([run])


def test_what_theory_predicts_of_the_stages_is_taken_from_the_runs_reference(runs: Path, tmp_path: Path) -> None:
    run = read_run(runs / "seed-0")
    reference = run.reference
    assert reference is not None

    def shown(stages: PredictedStages) -> tuple[object, list[str]]:
        write_run(replace(run, reference=msgspec.structs.replace(reference, stages=stages)), tmp_path / "run")
        (entry,) = data_of(page_html([tmp_path / "run"]))["runs"]
        return entry["predicted"], [line["name"] for line in entry["charts"][0]["lines"] if line["thin"]]

    stages = PredictedStages(take_off=7.5, steps=[0, 6, 12], norms={"value": [0.1, 0.4, 0.9]}, note="A note.")
    assert shown(PredictedStages()) == (None, [])
    assert shown(stages) == (7.5, ["‖W^V‖, predicted"])


def test_seeds_at_different_progress_are_grouped_by_what_they_have_recorded(tmp_path: Path) -> None:
    runs = write_runs(tmp_path / "runs", seeds=4)
    # Seed 1 is behind, seed 2 has kept no matrices, and seed 3 has recorded nothing.
    for seed, step in ((1, 6), (2, 4), (3, 0)):
        run = cut(read_run(runs / f"seed-{seed}"), step)
        run = replace(run, frames={}, frame_steps=run.frame_steps[:0]) if seed == 2 else run
        (runs / f"seed-{seed}" / "run.safetensors").write_bytes(run_bytes(run, weights=False))
    found = find([runs])
    both, *apart = shown_runs(found.runs, found)
    assert (both.seeds, both.metrics["loss"].shape) == ((0, 1), (2, 3))
    assert {run.seeds for run in apart} == {(2,), (3,)}
    notes = " ".join(found.notes)
    assert f"{runs / 'seed-2'} has not recorded what other seeds" in notes
    assert f"{runs / 'seed-3'} holds a run that has logged nothing yet" in notes


def test_each_layer_has_its_own_matrix_and_attention(tmp_path: Path) -> None:
    folder = write_layers(tmp_path / "layers")
    page = page_html([folder])
    (run,) = data_of(page)["runs"]
    assert [matrix["layer"] for matrix in run["matrices"]] == [0, 1]
    charts = {chart["id"]: chart for chart in run["charts"]}
    attention = read_run(folder).frames["attention"][0, -1]
    for layer in (0, 1):
        chart = charts[f"attention-{layer + 1}"]
        last = [numbers(page, line["values"])[0, -1] for line in chart["lines"]]
        np.testing.assert_allclose(last, 100 * attention[:, layer].mean(axis=1), rtol=1e-5)
        assert (chart["layer"], [line["colour"] for line in chart["lines"]]) == (layer, list(CLASSES.values())[:3])


def test_a_run_on_text_has_its_loss_and_curves_by_layer(tmp_path: Path) -> None:
    folder = write_text_run(tmp_path / "text")
    page = page_html([folder])
    (run,) = data_of(page)["runs"]
    charts = {chart["title"]: chart for chart in run["charts"]}
    assert list(charts) == [
        "Loss", "Norm of W^K by layer", "Norm of W^Q by layer", "Norm of W^V by layer", "Rotation of W^V by layer",
        "Norm of the gradient of W^K by layer",
    ]  # fmt: skip

    def values(title: str, line: int, name: str = "values") -> list[float]:
        return list(numbers(page, charts[title]["lines"][line][name])[0].tolist())

    assert values("Norm of W^V by layer", 1) == [2.0, 2.0, 4.0]
    assert [title for title, chart in charts.items() if chart["log"]] == ["Norm of the gradient of W^K by layer"]
    assert "is not finished: step 2 of 14" in page
    (folder / "run.safetensors").write_bytes(run_bytes(cut(read_run(folder), 0), weights=False))
    assert "logged nothing yet" in page_html([folder])
