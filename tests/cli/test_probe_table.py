"""The table that ``topicscope probe`` prints shows no number without its uncertainty, and explains its signs."""

from pathlib import Path
from typing import Any

import pytest

from topicscope.commands.probe import STAR, Probed, contrast_text, print_table

RATIO: dict[str, Any] = {
    "ratio": 1.5167,
    "low": 1.402,
    "high": 1.633,
    "difference": 0.112,
    "difference_low": 0.09,
    "difference_high": 0.134,
    "p": 0.2,
    "ratio_note": None,
    "replicates_left_out": 0,
}
NONE = RATIO | {"ratio": None, "low": None, "high": None, "p": 0.01, "ratio_note": "the denominator is not above 0"}


def row(embedding: str, **contrasts: dict[str, Any]) -> dict[str, Any]:
    labels = {"model": "tiny", "revision": "", "fraction": None, "assignment": "one", "centred": False}
    return labels | {"embedding": embedding, "cosine": RATIO, "dot": RATIO, "attention": RATIO} | contrasts


def printed(capsys: pytest.CaptureFixture[str], *rows: dict[str, Any]) -> str:
    print_table(Probed(list(rows), [Path("a.png")], ["a note"]), Path("out"))
    return " ".join(capsys.readouterr().out.split())


def test_where_there_is_no_ratio_the_difference_has_its_interval_and_the_reason_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert contrast_text(NONE) == "Δ 0.112* [0.090, 0.134]"
    assert contrast_text(RATIO) == "1.52 [1.40, 1.63]"
    assert contrast_text(RATIO | {"low": None, "high": None}) == "1.517 (no interval)"
    assert contrast_text(NONE | {"difference": None}) == "–"
    said = printed(capsys, row("matrix", cosine=NONE))
    assert "Δ: same minus different [95 % interval], where there is no ratio (the denominator is not above 0)." in said
    assert STAR in said
    bare = RATIO | {"low": None, "high": None, "ratio_note": "too many have no pair"}
    assert "no interval, or none with an upper end: too many have no pair." in printed(capsys, row("matrix", dot=bare))
    empty = NONE | {"difference": None, "difference_low": None, "difference_high": None, "replicates_left_out": 50}
    nothing = printed(capsys, row("matrix", attention=empty))
    assert "–: no pair to average over." in nothing
    assert "left out" not in nothing
    # The control: signs that the table does not have are not explained.
    plain = printed(capsys, row("matrix"))
    assert "Δ" not in plain
    assert "–" not in plain
    assert "*" not in plain
    assert "left out" not in plain
    assert "no interval" not in plain


def test_replicates_that_were_left_out_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Up to 1,234 bootstrap replicates" in printed(capsys, row("layer", dot=NONE | {"replicates_left_out": 1234}))


def test_attention_stands_once_for_all_embeddings(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = RATIO, RATIO | {"ratio": 2.0, "low": 1.9, "high": 2.1}
    said = printed(capsys, row("matrix", attention=other), row("layer", attention=other))
    assert said.count("2.00 [1.90, 2.10]") == 1
    # The control: of another assignment it is another number.
    several = row("matrix", attention=other) | {"assignment": "several"}
    assert printed(capsys, row("matrix", attention=other), several).count("2.00 [1.90, 2.10]") == 2
    assert one["ratio"] != other["ratio"]


def test_long_names_are_folded_and_not_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    names = [f"/models/{'a' * 40}/{end}" for end in ("first", "second")]
    print_table(Probed([row("matrix") | {"model": name} for name in names], [], []), Path("out"))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    # Cells of the first column, one under the other.
    column = "".join(line.split("│")[1].strip() for line in lines)
    assert column == "".join(names)
    assert names[0] not in " ".join(lines), "the control: they do not fit into one line"


def test_all_files_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "out/report.html, probe.json, probe.csv, topics.csv, corpus.json, words.json, figures/ (1 files)" in printed(
        capsys, row("matrix")
    )
