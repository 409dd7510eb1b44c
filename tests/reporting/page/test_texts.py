"""Training runs on text: their curves by layer, topic structure over steps, and what could not be read."""

import json
from pathlib import Path

import numpy as np
import pytest

from support.page_data import data_of
from support.page_material import write_text_run
from topicscope.reporting.page import page_html
from topicscope.reporting.page.texts import by_layer, panel


def test_a_run_on_text_has_loss_curves_by_layer_and_topic_structure_over_the_same_steps(tmp_path: Path) -> None:
    folder = write_text_run(tmp_path / "text")
    page = page_html([folder])
    drawn = data_of(page)["figures"]
    figures = {figure["title"]: figure["traces"] for figure in drawn}
    assert list(figures) == [
        "Loss", "Norm of W^K by layer", "Norm of W^Q by layer", "Norm of W^V by layer", "Rotation of W^V by layer",
        "Norm of the gradient of W^K by layer", "Topic structure",
        "Topic structure as a difference: embedding matrix (cosine)", "Topic structure in attention, by layer",
    ]  # fmt: skip
    assert {tuple(figure["layout"]["xaxis"]["range"]) for figure in drawn} == {(-0.06, 2.06)}
    assert [trace["name"] for trace in figures["Loss"]] == ["loss of the batch", "held-out loss"]
    assert figures["Norm of W^V by layer"][1]["y"] == [2.0, 2.0, 4.0]
    assert [(trace["x"], trace["y"]) for trace in figures["Rotation of W^V by layer"]] == [
        ([2], [0.25]),
        ([2], [0.125]),
    ]
    assert figures["Norm of the gradient of W^K by layer"][1]["y"] == pytest.approx([1e-5, 1e-4, 1e-3])
    assert [figure["title"] for figure in drawn if figure["layout"]["yaxis"].get("type") == "log"] == [
        "Norm of the gradient of W^K by layer"
    ]
    assert "is not finished: step 2 of 14" in page
    (folder / "metrics.jsonl").unlink()
    assert "logged nothing yet" in page_html([folder])


def test_topic_structure_of_a_run_on_text_has_intervals_and_is_a_difference_where_there_is_no_ratio(
    tmp_path: Path,
) -> None:
    figures = {figure["title"]: figure for figure in data_of(page_html([write_text_run(tmp_path / "text")]))["figures"]}
    # The embedding matrix has no ratio anywhere: it is drawn apart.
    embedding, attention = figures["Topic structure"]["traces"]
    assert embedding["name"] == "embedding layer's output (cosine)"
    assert (embedding["x"], embedding["y"]) == ([0, 2], [None, pytest.approx(np.log(3))])
    assert attention["y"] == pytest.approx([0.0, np.log(2)])
    for end in ("array", "arrayminus"):
        assert attention["error_y"][end] == pytest.approx([np.log(2)] * 2)
        assert embedding["error_y"][end] == [None, pytest.approx(np.log(2))]
    apart = figures["Topic structure as a difference: embedding matrix (cosine)"]
    (difference,) = apart["traces"]
    assert difference["y"] == [0.5, 0.5]
    assert (difference["error_y"]["arrayminus"], difference["error_y"]["array"]) == ([0.25] * 2, [0.5] * 2)
    assert "2 of 2 steps have no ratio" in apart["text"]
    # One ratio is not above 0, but its difference was not measured; attention has all of its ratios.
    assert sum("as a difference" in title for title in figures) == 1
    first, second, mean = figures["Topic structure in attention, by layer"]["traces"]
    assert (first["name"], second["name"], mean["name"]) == ("layer 1", "layer 2", "mean")
    assert second["y"] == pytest.approx(np.log([2, 4]))
    # Intervals of layers would lie over each other: they are in the table alone.
    assert [trace["error_y"]["visible"] for trace in (first, second, mean)] == [False, False, True]


def test_layers_beyond_the_colours_have_other_dashes() -> None:
    lines = by_layer([{"step": 0, "values": list(range(13))}], lambda row: row["values"])
    assert [line["line"]["dash"] for line in lines] == ["solid"] * 6 + ["dash"] * 6 + ["dot"]
    # A logarithmic axis of a few factors has more ticks than one of many.
    assert panel("", "", lines[1:], logarithmic=True)["layout"]["yaxis"]["dtick"] == "D2"
    lines[1]["y"] = [1e-3]
    assert panel("", "", lines[1:], logarithmic=True)["layout"]["yaxis"]["dtick"] == 1
    # Rows that were written before there was such a number have no curve.
    assert by_layer([{"step": 0}], lambda row: row.get("values")) == []


def test_a_run_on_text_says_what_could_not_be_read_of_its_corpus(tmp_path: Path) -> None:
    folder, note = write_text_run(tmp_path / "text"), "corpus.txt: 2 broken lines were left out."
    assert note not in page_html([folder])
    (folder / "passages").mkdir()
    path = folder / "passages" / "passages.json"
    path.write_text(json.dumps({"source": "corpus.txt", "problems": {"broken_lines": 2}}))
    assert note in page_html([folder])
    path.write_text(json.dumps({"source": "corpus.txt", "problems": {"of another version": 2}}))
    assert "what it says of the corpus is left out" in page_html([folder])
