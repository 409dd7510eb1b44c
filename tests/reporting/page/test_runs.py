"""Training runs on the page: finished, half-finished and damaged ones, their seeds, layers and frames."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from support.page_data import data_of
from support.page_material import write_layers, write_runs
from topicscope.measure.film import classes_of, film
from topicscope.reporting.page import page_html
from topicscope.reporting.page.runs import KEPT, evenly, run_sections, run_views
from topicscope.reporting.page.store import Store, find
from topicscope.training.runs import RunFolder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_runs(tmp_path_factory.mktemp("page") / "runs")


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


def test_what_theory_predicts_of_the_stages_is_taken_from_the_runs_reference(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs / "seed-0", run)
    known = json.loads((run / "reference.json").read_text())
    stages = {"take_off": 7.5, "steps": [0, 6, 12], "norms": {"value": [0.1, 0.4, 0.9]}, "note": "A note."}

    def predicted() -> object:
        return data_of(page_html([run]))["runs"][0]["predicted"]

    for there, shown in (({}, {}), ({"stages": stages}, stages), ({"stages": stages | {"take_off": None}}, None)):
        (run / "reference.json").write_text(
            json.dumps({name: each for name, each in known.items() if name != "stages"} | there)
        )
        assert predicted() == (there["stages"] if shown is None else shown)
    # A reference that is not of this form is left out, and named.
    (run / "reference.json").write_text(json.dumps(known | {"stages": stages | {"steps": "many"}}))
    assert predicted() == {}
    assert "reference.json cannot be read" in page_html([run])


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
