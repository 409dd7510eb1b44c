"""The page without a browser: what is in it, what it may load, and what it says of folders that hold little."""

import base64
import gzip
import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from support.page_material import (
    NASTY,
    draw,
    two_stages,
    with_theory,
    write_claims,
    write_everything,
    write_landscapes,
    write_layers,
    write_probe,
    write_sweep,
    write_text_run,
)
from topicscope.measure.blocks import averages_by_class
from topicscope.measure.run import Run, read_run, run_bytes, write_run
from topicscope.records import Comparison, PredictedStages
from topicscope.reporting.page import page_of, write_report
from topicscope.reporting.page import runs as page_runs
from topicscope.reporting.page.material import Material, evenly, gather
from topicscope.reporting.page.runs import run_sections, shown_runs, take_offs, theory_run, two_stage_run
from topicscope.reporting.page.sections import ratio_text
from topicscope.reporting.palette import CLASSES
from topicscope.training.folder import cut


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_everything(tmp_path_factory.mktemp("everything"))


@pytest.fixture(scope="module")
def everything(written: list[Path]) -> str:
    return page_of(written).html


@pytest.fixture(scope="module")
def runs(written: list[Path]) -> Path:
    return written[0].parent / "runs"


def element(page: str, identifier: str) -> str:
    found = re.search(rf'<script type="[a-z/]+" id="{identifier}">(.*?)</script>', page, re.DOTALL)
    assert found
    return found[1]


def data_of(page: str) -> Any:
    return json.loads(element(page, "data"))


def arrays_of(page: str) -> bytes:
    return gzip.decompress(base64.b64decode(element(page, "arrays")))


def numbers(page: str, reference: dict[str, int]) -> np.ndarray:
    entry = data_of(page)["arrays"][reference["$"]]
    count = int(np.prod(entry["shape"]))
    return np.frombuffer(arrays_of(page), "<f4", count, entry["at"]).reshape(entry["shape"])


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


def test_text_in_the_pages_data_cannot_end_its_element(tmp_path: Path, runs: Path) -> None:
    folder = tmp_path / "<script> & --> x"
    shutil.copytree(runs / "seed-0", folder)
    html = page_of([folder]).html
    assert data_of(html)["runs"][0]["name"] == str(folder)
    assert str(folder) not in html


def test_arrays_begin_where_the_browser_can_read_them_and_equal_ones_are_kept_once(everything: str) -> None:
    content = arrays_of(everything)
    for entry in data_of(everything)["arrays"]:
        assert entry["at"] % 4 == 0
        assert entry["at"] + np.prod(entry["shape"]) <= len(content)
    found = Material()
    assert found.numbers(np.arange(3)) == found.numbers(np.arange(3.0)) != found.numbers(np.arange(3)[None])


def test_frames_are_exact_to_half_a_step_of_their_own_range() -> None:
    frames = np.random.default_rng(0).normal(size=(3, 5, 5)) * np.array([1e-3, 1.0, 50.0])[:, None, None]
    found = Material()
    entry = found.arrays[found.frames(frames)["$"]]
    packed = np.frombuffer(bytes(found.content), np.uint8, frames.size).reshape(3, 5, 5)
    low, scale = (np.array(entry[name])[:, None, None] for name in ("low", "scale"))
    error = abs(low + scale * packed - frames).max(axis=(1, 2))
    np.testing.assert_array_less(error, 0.5001 * scale.ravel())
    # One range for all would lose the first frame.
    assert error[0] < 1e-5 < 50 / 255 / 2


# Folders.


def test_folders_inside_are_found_once_but_work_is_not_looked_through(tmp_path: Path) -> None:
    write_claims(tmp_path / "results")
    write_claims(tmp_path / "results" / "work" / "old")
    write_probe(tmp_path / "more" / "probe")
    (tmp_path / "more" / "again").symlink_to(tmp_path / "more")
    (tmp_path / "empty").mkdir()
    found = gather([tmp_path / name for name in ("results", "more", "results", "empty")])
    assert [path.name for path in found.folders["claims"]] == ["results"]
    assert [path.name for path in found.folders["probes"]] == ["probe"]
    assert found.notes == [f"{tmp_path / 'empty'} is empty."]


# Every kind of folder, and the files that its part of the page is read from.
FILES = {
    "results": ("claims.json", "settings.json", "article.json"),
    "runs/seed-0": ("settings.toml", "run.safetensors"),
    "text": ("settings.toml", "run.safetensors", "passages/passages.json"),
    "landscapes": ("landscapes.json",),
    "probe": ("probe.json", "topics.csv", "words.json", "corpus.json", "comparisons.json"),
    "sweep": ("sweep.json",),
}  # fmt: skip


def test_whatever_is_in_a_file_the_page_is_written(written: list[Path], tmp_path: Path) -> None:
    for number, content in enumerate([b"", b"\xff\xfe\x00", b"[]", b"{}", b"[{}]", b"3\n4\n"]):
        for folder, names in FILES.items():
            for name in names:
                spoilt = tmp_path / str(number) / folder / name.replace("/", "-")
                shutil.copytree(written[0].parent / folder, spoilt)
                (spoilt / name).parent.mkdir(exist_ok=True)
                (spoilt / name).write_bytes(content)
        assert "cannot be read" in page_of([tmp_path / str(number)]).html


def test_a_page_is_little_more_than_what_it_shows(tmp_path: Path, runs: Path) -> None:
    page = write_report([write_claims(tmp_path / "results")], tmp_path / "deep" / "report.html")
    assert page.stat().st_size < 350_000
    assert len(page_of([runs]).html.encode()) < 400_000


# Landscapes, probes, sweeps.


def test_landscapes_are_in_the_page_at_each_setting_once(tmp_path: Path) -> None:
    folder = write_landscapes(tmp_path / "one")
    shutil.copytree(folder, tmp_path / "two")
    entries = data_of(page_of([tmp_path / "one", tmp_path / "two"]).html)["landscapes"]
    assert [(each["topics"], each["per_document"]) for each in entries] == [(10, 2), (20, 2), (20, 4)]
    assert entries[0]["loss"] == pytest.approx(0.94610274, abs=5e-9)


def test_probes_have_ratios_and_drawings_in_order_and_a_spoilt_corpus_is_left_out(tmp_path: Path) -> None:
    folder = write_probe(tmp_path / "probe")
    page = page_of([folder]).html
    assert "2.00 [1.90, 2.10] *" in page
    assert "no ratio; difference 0.5" in page
    assert data_of(page)["drawings"] == {}
    (folder / "figures").mkdir(exist_ok=True)
    for name in ("heads.svg", "topics-1.svg", "ratios-one.svg", "depth.svg", "depth.png", "mine.svg"):
        (folder / "figures" / name).write_text('<svg viewBox="0 0 3 3"></svg>')
    drawn = re.findall(r'aria-label="([a-z0-9-]+)" style', page_of([folder]).html)
    assert drawn == ["depth", "topics-1", "ratios-one", "heads"]
    (folder / "corpus.json").write_text('[{"other": 1}]')
    page = page_of([folder]).html
    assert "corpus.json cannot be read" in page
    assert "2.00 [1.90, 2.10] *" in page


def test_a_difference_in_place_of_a_ratio_has_its_interval_and_its_star() -> None:
    difference = Comparison(difference=0.5, difference_low=0.25, difference_high=0.75, p=0.01)
    assert ratio_text(difference) == "no ratio; difference 0.50 [0.25, 0.75] *"
    assert ratio_text(Comparison(difference=0.5, p=0.5)) == "no ratio; difference 0.5 (no interval)"
    assert ratio_text(Comparison(ratio=2.0, low=1.9, high=2.1, p=0.01)) == "2.00 [1.90, 2.10] *"
    assert ratio_text(Comparison()) == "–"


def notes_of(page: str) -> list[str]:
    _, _, notes = page.partition('<section class="notes"')
    return re.findall(r"<li>(.*?)</li>", notes.split("</section>")[0])


def test_a_sweep_has_its_table_in_four_digits_and_all_and_says_where_the_measure_is_smallest(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "sweep")
    for name in ("runs", "figures"):
        (folder / name).mkdir()
    draw(folder / "figures" / "sweep", "")
    page = page_of([folder, folder, tmp_path]).html
    assert '<td data-full="0.30000000000000004">0.3</td>' in page
    assert f"topicscope report {folder}/runs --out runs.html" in page
    assert 'data-drawing="sweep-0-0"' in page
    best = "training.learning_rate = 0.001 and data.topics = 20 and training.optimizer = adam: 0.2 on average"
    assert page.count(f"3 runs. The excess loss over the Bayes floor is smallest at {best}") == 1
    assert notes_of(page) == []
    (folder / "sweep.json").unlink()
    (note,) = notes_of(page_of([folder]).html)
    assert f"the sweep is not finished; topicscope sweep --out {folder} --resume" in note


# Training runs.


def read(*folders: Path) -> list[Run]:
    return shown_runs(gather(folders))


def test_seeds_of_one_setting_are_one_run_with_frames_of_the_first(runs: Path) -> None:
    (both,) = read(runs)
    page = page_of([runs]).html
    (run,) = data_of(page)["runs"]
    (matrix,) = run["matrices"]
    assert (both.seeds, run["seeds"], matrix["label"]) == ((0, 1), [0, 1], "W^V")
    classes = numbers(page, matrix["classes"])
    last = both.frames["value_products"][0, -1, 0]
    np.testing.assert_allclose(classes[0, -1], averages_by_class(last, both.word_topics), rtol=1e-5)
    assert not np.allclose(classes[0], classes[1])
    assert [chart["id"] for chart in run["charts"]] == ["norms", "loss"]
    (batch, held_out) = run["charts"][-1]["lines"]
    np.testing.assert_array_equal(numbers(page, batch["values"]), both.metrics["loss"].astype(np.float32))
    assert numbers(page, held_out["values"]).shape == (2, 4)
    assert run["charts"][-1]["levels"][0]["label"] == "Bayes floor"
    assert len(matrix["theoryClasses"]) == 5


def test_few_frames_are_kept_where_many_would_not_fit(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert evenly(40, 3).tolist() == [0, 20, 39]
    assert evenly(5, 100).tolist() == [0, 1, 2, 3, 4]
    assert evenly(1, 10).tolist() == [0]
    shown = read(runs)
    size = shown[0].frames["value_products"][0, 0].size

    def frames(room: int) -> int:
        monkeypatch.setattr(page_runs, "FRAME_BYTES", room)
        found = Material()
        (section,) = run_sections(shown, found)
        reference = section["matrices"][0]["frames"]
        return 0 if reference is None else int(found.arrays[reference["$"]]["shape"][0])

    assert [frames(room * size) for room in (10, 3, 1, 0)] == [len(shown[0].frame_steps), 3, 0, 0]


def test_the_page_opens_on_theory_and_plays_a_run_whose_attention_takes_off_after_the_gain() -> None:
    run = two_stages()
    ((step, gain),) = take_offs(run)
    assert step == 1200
    assert gain == pytest.approx(0.98)
    assert two_stage_run([with_theory(), run]) is run
    assert theory_run([run, with_theory()]).name == "figure2/squared-adam"  # type: ignore[union-attr]


def test_half_finished_folders_say_how_far_they_are_and_seeds_are_shown_as_far_as_all_are(
    runs: Path, tmp_path: Path
) -> None:
    for seed in ("seed-0", "seed-1"):
        shutil.copytree(runs / seed, tmp_path / seed)
    run = tmp_path / "seed-1"
    assert "is not finished" not in page_of([tmp_path]).html
    whole = read_run(run)
    (run / "run.safetensors").write_bytes(run_bytes(cut(whole, 6), weights=False))
    assert f"{run} is not finished (step 4 of 12): resume it" in page_of([run]).html
    (both,) = read(tmp_path)
    assert (both.seeds, both.metrics["loss"].shape) == ((0, 1), (2, 3))
    (run / "run.safetensors").write_bytes(run_bytes(cut(whole, 0), weights=False))
    assert "is not finished (step 0 of 12)" in page_of([run]).html
    assert read(tmp_path)[0].seeds == (0,)
    (run / "run.safetensors").write_bytes(b"cut")
    assert "run.safetensors cannot be read" in page_of([run]).html


def test_what_theory_predicts_of_the_stages_is_taken_from_the_runs_reference(runs: Path, tmp_path: Path) -> None:
    run = read_run(runs / "seed-0")
    reference = run.reference
    assert reference is not None

    def shown(stages: PredictedStages) -> tuple[object, list[str]]:
        write_run(replace(run, reference=msgspec.structs.replace(reference, stages=stages)), tmp_path / "run")
        (entry,) = data_of(page_of([tmp_path / "run"]).html)["runs"]
        return entry["predicted"], [line["name"] for line in entry["charts"][0]["lines"] if "thin" in line]

    stages = PredictedStages(take_off=7.5, steps=[0, 6, 12], norms={"value": [0.1, 0.4, 0.9]}, note="A note.")
    assert shown(PredictedStages()) == (None, [])
    assert shown(stages) == (7.5, ["‖W^V‖, predicted"])


def test_each_layer_has_its_own_matrix_norms_and_attention(tmp_path: Path) -> None:
    folder = write_layers(tmp_path / "layers")
    page = page_of([folder]).html
    (run,) = data_of(page)["runs"]
    assert [matrix["layer"] for matrix in run["matrices"]] == [0, 1]
    charts = {chart["id"]: chart for chart in run["charts"]}
    whole = read_run(folder)
    attention = whole.frames["attention"][0, -1]
    for layer in (0, 1):
        chart = charts[f"attention-{layer + 1}"]
        last = [numbers(page, line["values"])[0, -1] for line in chart["lines"]]
        np.testing.assert_allclose(last, 100 * attention[:, layer].mean(axis=1), rtol=1e-5)
        assert (chart["layer"], [line["colour"] for line in chart["lines"]]) == (layer, list(CLASSES.values())[:3])
        norm = numbers(page, charts["norm-value"]["lines"][layer]["values"])[0, -1]
        assert norm == pytest.approx(whole.metrics["norm/value"][0, -1, layer])


def test_a_run_on_text_has_its_loss_and_curves_by_layer_and_no_playground(tmp_path: Path) -> None:
    folder = write_text_run(tmp_path / "text")
    page = page_of([folder]).html
    (run,) = data_of(page)["runs"]
    charts = {chart["title"]: chart for chart in run["charts"]}
    assert list(charts) == [
        *(f"Norm of {matrix}, by layer" for matrix in ("W^K", "W^Q", "W^V")), "Rotation of W^V in 10 steps, by layer",
        "Loss",
    ]  # fmt: skip
    lines = charts["Norm of W^V, by layer"]["lines"]
    assert numbers(page, lines[1]["values"])[0].tolist() == [2.0, 2.0, 4.0]
    # What was not measured at a step leaves it out.
    held_out = charts["Loss"]["lines"][1]
    assert [numbers(page, held_out[name]).ravel().tolist() for name in ("steps", "values")] == [[0, 2], [6.0, 4.0]]
    assert 'id="try"' not in page
    assert "is not finished (step 2 of 14)" in page
