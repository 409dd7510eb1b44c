"""The page without a browser: what is in it, what it may load, and what it says of folders that hold little."""

import base64
import csv
import gzip
import hashlib
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from page_material import (
    NASTY,
    write_claims,
    write_everything,
    write_landscapes,
    write_layers,
    write_probe,
    write_runs,
    write_text_run,
)
from topicscope.errors import InputError
from topicscope.report.page import ASSETS, page_html, write_report
from topicscope.report.page.claims import section_of
from topicscope.report.page.folders import Found, find
from topicscope.report.page.probe_figures import probe_figures
from topicscope.report.page.run_folder import classes_of
from topicscope.report.page.runs import evenly, run_sections
from topicscope.report.page.store import Store, script_json
from topicscope.report.page.view import KEPT, film
from topicscope.report.page.views import run_views
from topicscope.training.runs import RunFolder


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page_html(write_everything(tmp_path_factory.mktemp("everything")))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_runs(tmp_path_factory.mktemp("page") / "runs")


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return dict(json.loads(found[1]))


def arrays_of(page: str) -> bytes:
    found = re.search(r'<script type="text/plain" id="arrays">(.*?)</script>', page, re.DOTALL)
    assert found
    return gzip.decompress(base64.b64decode(found[1]))


def test_the_page_loads_nothing_and_its_policy_forbids_it(everything: str) -> None:
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
    assert "unsafe-inline" not in policy[1].split("style-src")[0]


def test_the_policy_allows_the_scripts_of_the_page_and_no_other(everything: str) -> None:
    scripts = re.findall(r"<script>(.*?)</script>", everything, re.DOTALL)
    assert len(scripts) == 1

    def allowed(script: str) -> bool:
        return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in everything

    assert allowed(scripts[0])
    assert not allowed(scripts[0] + " ")


def test_words_from_outside_never_become_markup(everything: str) -> None:
    assert NASTY not in everything
    assert "alert(" in everything
    assert "&lt;script&gt;alert" in everything


def test_json_in_a_script_cannot_end_it() -> None:
    text = script_json({"word": "</script><!--\u2028"})
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text) == {"word": "</script><!--\u2028"}


def test_frames_are_exact_to_half_a_step_of_their_own_range() -> None:
    frames = np.random.default_rng(0).normal(size=(3, 5, 5)) * np.array([1e-3, 1.0, 50.0])[:, None, None]
    store = Store()
    entry = store.index[store.frames(frames)["$"]]
    packed = np.frombuffer(store.chunks[0][: entry["bytes"]], dtype=np.uint8).reshape(3, 5, 5)
    low, scale = (np.array(entry[name])[:, None, None] for name in ("low", "scale"))
    error = abs(low + scale * packed - frames).max(axis=(1, 2))
    np.testing.assert_array_less(error, 0.5001 * scale.ravel())
    # One range for all would lose the first frame.
    assert error[0] < 1e-5 < 50 / 255 / 2


def test_halves_are_exact_to_a_two_thousandth_above_the_least() -> None:
    values = np.random.default_rng(0).uniform(1e6, 2e6, size=100)
    store = Store()
    entry = store.index[store.halves(values)["$"]]
    packed = np.frombuffer(store.chunks[0][: entry["bytes"]], dtype="<f2").astype(np.float64)
    back = entry["low"] + entry["scale"] * packed
    assert (abs(back - values) <= (values - values.min()) / 2000 + 1e-6 * entry["scale"]).all()
    # As they are, float16 could not hold them.
    assert values.min() > np.finfo(np.float16).max


def test_arrays_begin_where_the_browser_can_read_them(everything: str) -> None:
    content = arrays_of(everything)
    for entry in data_of(everything)["arrays"]:
        assert entry["at"] % 4 == 0
        assert entry["at"] + entry["bytes"] <= len(content)


def test_seeds_of_one_setting_are_one_run_with_frames_of_the_first(runs: Path) -> None:
    found = find([runs])
    (view,) = run_views(found.runs, found)
    assert view.seeds == (0, 1)
    (matrix,) = view.matrices
    assert matrix.label == "W^V"
    assert matrix.classes.shape == (2, len(view.frame_steps), 5)
    np.testing.assert_allclose(matrix.classes[0], classes_of(matrix.frames, view.word_topics))
    assert not np.allclose(matrix.classes[0], matrix.classes[1])
    assert matrix.theory is not None
    assert view.loss.shape == (2, len(view.steps))


def test_a_kept_experiment_is_read_as_it_was_seen(runs: Path, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    found = find([runs])
    (view,) = run_views(found.runs, found)
    (tmp_path / "kept").mkdir()
    save_file(film(view), tmp_path / "kept" / KEPT)
    again = find([tmp_path])
    (kept,) = run_views(again.runs, again)
    assert (kept.name, kept.seeds, kept.total, kept.done) == (view.name, view.seeds, view.total, view.done)
    np.testing.assert_array_equal(kept.loss, view.loss)
    np.testing.assert_array_equal(kept.matrices[0].frames, view.matrices[0].frames)
    np.testing.assert_array_equal(kept.matrices[0].classes, view.matrices[0].classes)
    assert kept.levels == view.levels


def test_few_frames_are_kept_where_many_would_not_fit() -> None:
    assert evenly(40, 3).tolist() == [0, 20, 39]
    assert evenly(5, 100).tolist() == [0, 1, 2, 3, 4]
    assert evenly(1, 10).tolist() == [0]


def test_an_empty_folder_is_said_to_be_empty(tmp_path: Path) -> None:
    page = page_html([tmp_path])
    assert "is empty" in page
    assert "There is nothing to show yet" in page


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        page_html([tmp_path / "nowhere"])
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        page_html([tmp_path / "file"])


def test_half_finished_folders_say_how_far_they_are(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs / "seed-0", run)
    whole = page_html([run])
    assert "is not finished" not in whole
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join(lines[:3]) + '\n{"step": 8, "lo')
    (run / "snapshots.safetensors").write_bytes(b"cut")
    page = page_html([run])
    assert "is not finished: step 4 of 12" in page
    assert "snapshots.safetensors cannot be read" in page
    begun = tmp_path / "begun"
    begun.mkdir()
    shutil.copy(runs / "seed-0" / "settings.toml", begun)
    assert "has logged nothing yet" in page_html([begun])


def test_seeds_at_different_progress_are_grouped_by_what_they_have_recorded(tmp_path: Path) -> None:
    runs = write_runs(tmp_path / "runs", seeds=4)
    # Seed 1 is behind, seed 2 was stopped before its first snapshot, and seed 3 has a row that is not whole.
    for seed, rows in ((1, 3), (2, 2)):
        metrics = runs / f"seed-{seed}" / "metrics.jsonl"
        metrics.write_text("\n".join(metrics.read_text().splitlines()[:rows]) + "\n")
    (runs / "seed-2" / "snapshots.safetensors").unlink()
    (runs / "seed-3" / "metrics.jsonl").write_text('{"step": 0}\n')
    found = find([runs])
    together, *apart = run_views(found.runs, found)
    assert together.seeds == (0, 1)
    assert together.loss.shape == (2, 3)
    assert {view.seeds for view in apart} == {(2,), (3,)}
    said = " ".join(found.notes)
    assert f"{runs / 'seed-1'} is not finished: step 4 of 12" in said
    assert f"topicscope train --out {runs / 'seed-1'} --resume" in said
    assert f"{runs / 'seed-2'} has not recorded what other seeds" in said
    assert f"{runs / 'seed-3'} holds a run that has logged nothing yet" in said
    assert len(data_of(page_html([runs]))["runs"]) == 2


def test_a_run_on_text_has_loss_norms_by_layer_and_topic_structure(tmp_path: Path) -> None:
    folder = write_text_run(tmp_path / "text")
    page = page_html([folder])
    figures = {figure["title"]: figure["traces"] for figure in data_of(page)["figures"]}
    assert list(figures) == [
        "Loss", "Norm of W^K by layer", "Norm of W^Q by layer", "Norm of W^V by layer", "Topic structure",
    ]  # fmt: skip
    assert [trace["name"] for trace in figures["Loss"]] == ["loss of the batch", "held-out loss"]
    assert figures["Norm of W^V by layer"][1]["y"] == [2.0, 2.0, 4.0]
    embedding, attention = figures["Topic structure"]
    assert embedding["x"] == [0, 2]
    assert embedding["y"] == [None, pytest.approx(np.log(3))]
    assert attention["y"] == pytest.approx([0.0, np.log(2)])
    assert "is not finished: step 2 of 14" in page
    (folder / "metrics.jsonl").unlink()
    assert "logged nothing yet" in page_html([folder])


def test_half_finished_claims_say_so(tmp_path: Path) -> None:
    folder = write_claims(tmp_path / "results")
    assert "is not finished" not in page_html([folder])
    (folder / "progress.json").write_text('{"asked": 9, "measured": 3}')
    (folder / "figures" / "figure2.svg").unlink()
    page = page_html([folder])
    assert "3 of 9 claims are measured" in page
    assert "is not drawn yet" in page
    (folder / "claims.json").write_text("[{")
    assert "claims.json cannot be read" in page_html([folder])
    for content in ('{"claims": []}', "[3]"):
        (folder / "claims.json").write_text(content)
        assert "claims.json is not a list of claims" in page_html([folder])


def test_claims_have_numbers_commands_and_places_in_the_paper(tmp_path: Path) -> None:
    page = page_html([write_claims(tmp_path / "results")])
    assert "✓ holds" in page
    assert "✗ fails" in page
    assert "– not run" in page
    assert "[0.85159, 1.3484]" in page
    assert "topicscope reproduce --only figure2/a --preset quick --seeds 3 --seed 0" in page
    assert "1 holds" in page


def test_the_command_of_a_claim_names_the_models_that_were_probed(tmp_path: Path) -> None:
    folder = write_claims(tmp_path / "results")
    settings = {"preset": "quick", "seeds": 3, "seed": 0, "models": ["minilm", "my model"]}
    (folder / "settings.json").write_text(json.dumps(settings))
    assert "--seed 0 --models minilm &#39;my model&#39; --out" in page_html([folder])


def test_colours_of_curves_have_three_to_one_contrast_with_both_papers() -> None:
    found = re.search(r"const COLOURS = \[(.*?)\]", (ASSETS / "core.js").read_text())
    assert found
    colours = re.findall(r"#[0-9a-f]{6}", found[1])
    papers = re.findall(r"--paper: (#[0-9a-f]{6})", (ASSETS / "page.css").read_text())
    assert len(colours) == 6
    assert len(papers) == 2
    assert min(contrast(colour, paper) for colour in colours for paper in papers) >= 3
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#56b4e9", "#ffffff") < 3


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2: relative luminances, 0.05 added for stray light."""

    def luminance(colour: str) -> float:
        channels = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_a_checkpoint_without_a_measure_leaves_a_gap(tmp_path: Path) -> None:
    rows = json.loads((write_probe(tmp_path / "probe") / "probe.json").read_text())
    revisions = [{**rows[0], "revision": "first", "attention": None}, {**rows[0], "revision": "second"}]
    (figure,) = (each for each in probe_figures(revisions, [], "probe") if "over checkpoints" in each["title"])
    assert {trace["name"]: trace["y"] for trace in figure["traces"]}["attention"] == [None, 1.3]
    # The dot product has no ratio in any of them.
    assert figure["text"].endswith("Not defined: dot product.")


@pytest.mark.parametrize(
    ("source", "section", "anchor"),
    [
        ("Theorem 2", "§5.2", "#S5.SS2"),
        ("§8.1", "§8.1", "#S8.SS1"),
        ("Lemma 1", "§A.1", "#A1.SS1"),
        ("§4", "§4", "#S4"),
    ],
)
def test_sources_lead_to_sections(source: str, section: str, anchor: str) -> None:
    shown, link = section_of(source)
    assert shown == section
    assert link.endswith(anchor)


def test_landscapes_are_in_the_page_at_each_setting_once(tmp_path: Path) -> None:
    folder = write_landscapes(tmp_path / "one")
    shutil.copytree(folder, tmp_path / "two")
    entries = data_of(page_html([tmp_path / "one", tmp_path / "two"]))["landscapes"]
    assert [(each["topics"], each["perDocument"]) for each in entries] == [(10, 2), (20, 2), (20, 4)]
    assert entries[0]["loss"] == pytest.approx(0.94610274, abs=5e-9)


def test_probes_have_ratios_heads_and_topics(tmp_path: Path) -> None:
    page = page_html([write_probe(tmp_path / "probe")])
    assert "2.00 [1.90, 2.10] *" in page
    assert "no ratio; difference 0.5" in page
    figures = data_of(page)["figures"]
    heads = next(figure for figure in figures if "by layer and head" in figure["title"])
    ratios = np.array([[1.0, 1.01, 1.02], [1.1, 1.11, 1.12]])
    assert heads["traces"][0]["z"] == pytest.approx(np.log(ratios) / np.log(2), abs=1e-5)
    assert heads["traces"][0]["text"] == [["*", "", ""], ["*", "", ""]]
    words = next(figure for figure in figures if "Figure 3" in figure["title"])
    assert words["traces"][0]["x"] == ["frog", "&lt;script&gt;"]


def test_a_page_of_small_work_is_the_library_and_little_more(tmp_path: Path) -> None:
    folder = write_claims(tmp_path / "results")
    assert write_report([folder], tmp_path / "deep" / "report.html").stat().st_size < 2_500_000


def test_folders_inside_are_found_but_work_is_not_looked_through(tmp_path: Path) -> None:
    write_claims(tmp_path / "results")
    write_claims(tmp_path / "results" / "work" / "old")
    write_probe(tmp_path / "more" / "probe")
    found = find([tmp_path / "results", tmp_path / "more"])
    assert [path.name for path in found.claims] == ["results"]
    assert [path.name for path in found.probes] == ["probe"]
    assert not Found()


def numbers_of(page: str, reference: dict[str, int]) -> np.ndarray:
    """An array of a page that is kept as planes of bytes, as the script unpacks it."""
    entry = data_of(page)["arrays"][reference["$"]]
    assert entry["kind"] == "planes"
    content = np.frombuffer(arrays_of(page), dtype=np.uint8)[entry["at"] : entry["at"] + entry["bytes"]]
    return np.ascontiguousarray(content.reshape(4, -1).T).view("<f4").ravel()


def test_numbers_of_tables_are_exact_to_four_digits_and_whole_ones_wholly() -> None:
    values = np.concatenate([np.random.default_rng(0).normal(size=200) * np.geomspace(1e-9, 1e9, 200), [np.nan, 0.0]])
    store = Store()
    entry = store.index[store.rounded(values)["$"]]
    back = np.ascontiguousarray(np.frombuffer(store.chunks[0][: entry["bytes"]], np.uint8).reshape(4, -1).T)
    np.testing.assert_allclose(back.view("<f4").ravel(), values, rtol=2.0**-13)
    # Not more exactly than it says: that is what makes it small.
    assert (back[:-2, 0] == 0).all()
    steps = np.array([123_457.0, 3.0, np.nan])
    store.rounded(steps)
    again = np.ascontiguousarray(np.frombuffer(store.chunks[1], np.uint8).reshape(4, -1).T)
    np.testing.assert_array_equal(again.view("<f4").ravel(), steps)


def test_the_points_of_a_drawing_are_in_the_page(tmp_path: Path) -> None:
    folder = write_claims(tmp_path / "results")
    (image,) = data_of(page_html([folder]))["images"].values()
    assert image["numbers"] is not None
    written = (folder / "figures" / "figure2.csv").read_text(encoding="utf-8")
    rows = list(csv.reader(io.StringIO(written)))[1:]
    page = page_html([folder])
    series = image["numbers"]["series"]
    assert [name for panel, name, count in series for _ in range(count)] == [row[1] for row in rows]
    for place, axis in ((2, "x"), (3, "y")):
        wanted = [float(row[place]) if row[place] else np.nan for row in rows]
        np.testing.assert_array_equal(numbers_of(page, image["numbers"][axis]), np.array(wanted, dtype=np.float32))
    assert [text for _, text in image["numbers"]["texts"]] == [row[5] for row in rows if row[5]]


def test_many_points_of_a_drawing_have_four_digits_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_claims(tmp_path / "results")
    assert "CSV to four digits" not in page_html([folder])
    monkeypatch.setattr("topicscope.report.page.images.MOST_EXACT", 0)
    page = page_html([folder])
    assert "CSV to four digits; all are in figures/figure2.csv" in page
    (image,) = data_of(page)["images"].values()
    assert image["numbers"]["digits"] == 4
    shown = numbers_of(page, image["numbers"]["x"])
    rows = list(csv.reader(io.StringIO((folder / "figures" / "figure2.csv").read_text(encoding="utf-8"))))[1:]
    wanted = np.array([float(row[2]) if row[2] else np.nan for row in rows])
    np.testing.assert_allclose(shown, wanted, rtol=2.0**-13)
    assert not np.array_equal(shown, np.float32(wanted), equal_nan=True)


def test_points_that_cannot_be_read_are_left_out_with_a_note(tmp_path: Path) -> None:
    folder = write_claims(tmp_path / "results")
    (folder / "figures" / "figure2.csv").write_text("panel,series,x,y,value,text\na,b,no number,1,2,\n")
    page = page_html([folder])
    assert "its numbers are left out" in page
    (image,) = data_of(page)["images"].values()
    assert image["numbers"] is None
    (folder / "figures" / "figure2.csv").unlink()
    assert "its numbers are left out" not in page_html([folder])


def test_a_page_that_would_be_too_large_leaves_the_points_of_drawings_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_claims(tmp_path / "results")
    whole = page_html([folder])
    assert "would be too large" not in whole
    monkeypatch.setattr("topicscope.report.page.MOST_BYTES", len(whole.encode()) - 1)
    page = page_html([folder])
    assert "would be too large" in page
    (image,) = data_of(page)["images"].values()
    assert image["numbers"] is None
    assert len(arrays_of(page)) < len(arrays_of(whole))


def test_each_layer_has_its_own_matrix_and_attention(tmp_path: Path) -> None:
    folder = write_layers(tmp_path / "layers")
    found = find([folder])
    (view,) = run_views(found.runs, found)
    assert [(matrix.label, matrix.layer) for matrix in view.matrices] == [("W^V, layer 1", 0), ("W^V, layer 2", 1)]
    snapshot = RunFolder(folder).snapshots()[12]
    for layer, matrix in enumerate(view.matrices):
        np.testing.assert_array_equal(matrix.frames[-1], snapshot["value"][layer])
        np.testing.assert_allclose(
            view.attention[0, -1, layer], snapshot["attention"][:, layer].mean(axis=1), rtol=1e-6
        )
    assert not np.array_equal(view.matrices[0].frames[-1], view.matrices[1].frames[-1])
    (run,) = data_of(page_html([folder]))["runs"]
    assert [matrix["layer"] for matrix in run["matrices"]] == [0, 1]


def test_an_experiment_kept_before_layers_were_told_apart_is_still_read(runs: Path, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    found = find([runs])
    (view,) = run_views(found.runs, found)
    old = film(view)
    old["attention"] = old["attention"].mean(axis=2)
    (tmp_path / "kept").mkdir()
    save_file(old, tmp_path / "kept" / KEPT)
    again = find([tmp_path])
    (kept,) = run_views(again.runs, again)
    np.testing.assert_allclose(kept.attention, view.attention)


def test_frames_take_no_more_room_than_there_is(runs: Path) -> None:
    found = find([runs])
    views = run_views(found.runs, found)
    size = views[0].matrices[0].frames[0].size

    def frames(room: int) -> int:
        store = Store()
        (section,) = run_sections(views, store, room)
        reference = section["matrices"][0]["frames"]
        return 0 if reference is None else int(store.index[reference["$"]]["shape"][0])

    assert frames(10 * size) == len(views[0].frame_steps)
    assert frames(3 * size) == 3
    assert frames(size) == 0
    assert frames(-1) == 0


def test_marks_on_the_landscape_have_an_edge_that_differs_from_every_colour_of_its_map() -> None:
    found = re.search(r"const MARKS = \{(.*?)\}", (ASSETS / "landscapes.js").read_text())
    assert found
    marks = dict(re.findall(r'(\w+): "(#[0-9a-f]{6})"', found[1]))
    # Cividis, as the plotting library has it: dark blue, grey, yellow.
    cividis = ["#00224e", "#1d3a6c", "#434e6c", "#5f636e", "#7c7b78", "#9a9376", "#bbaf71", "#dec958", "#fde737"]
    edge, halo = marks.pop("edge"), marks.pop("halo")
    assert len(marks) == 4
    assert min(max(contrast(colour, edge), contrast(colour, halo)) for colour in cividis) >= 3
    # Neither edge alone would do.
    assert min(contrast(colour, edge) for colour in cividis) < 3
    assert min(contrast(colour, halo) for colour in cividis) < 3
    papers = re.findall(r"--paper: (#[0-9a-f]{6})", (ASSETS / "page.css").read_text())
    # In the legend, a mark or its edge is seen on either paper.
    for mark in (marks["optimum"], marks["bound"], marks["limit"]):
        assert min(contrast(mark, paper) for paper in papers) >= 3
    assert min(max(contrast(marks["uniform"], paper), contrast(edge, paper)) for paper in papers) >= 3


def test_text_in_figures_has_contrast_with_both_papers() -> None:
    style = (ASSETS / "page.css").read_text()
    light, dark = (dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", part)) for part in style.split("@media", 2)[:2])
    for colours in (light, dark):
        # Figures are written in ink and ruled in soft.
        assert contrast(colours["ink"], colours["paper"]) >= 4.5
        assert contrast(colours["soft"], colours["paper"]) >= 4.5
        assert contrast(colours["link"], colours["raised"]) >= 4.5
    assert contrast(light["ink"], dark["paper"]) < 4.5
