"""``topicscope probe`` in a folder that holds something: what is finished is found again, or refused."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from support.small_probe import SMALL, WORDS, rows, run, without
from support.tiny_models import save_tiny, save_tokenizer
from topicscope import scale
from topicscope.cli import main
from topicscope.probing import study
from topicscope.probing.models import HuggingFaceModel
from topicscope.text.corpora import open_corpus


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    attention = HuggingFaceModel.attention

    def counted(self: HuggingFaceModel, passages: Any) -> Any:
        calls.append(len(passages))
        return attention(self, passages)

    monkeypatch.setattr(HuggingFaceModel, "attention", counted)
    monkeypatch.setattr(study, "PASSAGES", 16)
    return calls


@pytest.mark.usefixtures("without_figures")
def test_nothing_is_measured_twice(
    finished: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = count_calls(monkeypatch)
    before = (finished / "probe.json").read_bytes()
    assert run(tiny, finished, str(tiny / "bert"), "--json") == 0
    assert not calls
    # Of one model only, but the folder keeps the others.
    assert {row["model"] for row in json.loads(capsys.readouterr().out)} == {str(tiny / "bert")}
    assert sorted(map(str, json.loads(before))) == sorted(map(str, rows(finished)))


@pytest.mark.usefixtures("without_figures")
def test_a_lost_shard_alone_is_measured_again(finished: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_calls(monkeypatch)
    measured = finished / "work" / "measured"
    shards = sorted(measured.glob("*bert-attention-1-*.bin"))
    content = shards[0].read_bytes()
    shards[0].write_bytes(content[:-1])
    for summary in measured.glob("*summary*"):
        summary.unlink()
    before = rows(finished)
    models = [str(tiny / "bert"), f"random:{tiny / 'bert'}", str(tiny / "gpt2")]
    assert run(tiny, finished, *models) == 0
    assert sum(calls) == 16
    assert shards[0].read_bytes() == content
    assert sorted(map(str, before)) == sorted(map(str, rows(finished)))


@pytest.mark.usefixtures("without_figures")
def test_another_version_of_a_library_measures_anew(
    finished: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count_calls(monkeypatch)
    before = rows(finished)
    assert run(tiny, finished, str(tiny / "bert")) == 0
    assert not calls, "the control: nothing is measured with the same libraries"
    versions = scale.versions()
    monkeypatch.setattr(scale, "versions", lambda: versions | {"torch": "0.1"})
    assert run(tiny, finished, str(tiny / "bert")) == 0
    assert sum(calls) == before[0]["passages"]
    assert sorted(map(str, before)) == sorted(map(str, rows(finished)))


@pytest.mark.usefixtures("without_figures")
def test_new_weights_in_a_folder_are_measured_in_the_same_process(tiny: Path, tmp_path: Path) -> None:
    def cosine(model: Path, out: str) -> float:
        assert run(tiny, tmp_path / "out" / out, str(model), "--fits", "1") == 0
        return float(rows(tmp_path / "out" / out)[0]["cosine"]["same"])

    for name, seed in (("model", 3), ("other", 9)):
        save_tiny("bert", tmp_path / name, seed=seed)
        save_tokenizer(tmp_path / name, WORDS)
    expected = cosine(tmp_path / "other", "other")
    before = cosine(tmp_path / "model", "model")
    save_tiny("bert", tmp_path / "model", seed=9)
    assert cosine(tmp_path / "model", "model") == expected != before


@pytest.mark.usefixtures("without_figures")
def test_a_corpus_that_changed_is_refused_in_the_same_folder(
    finished: Path, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes((tiny / "corpus.txt").read_bytes())
    given = ["probe", str(tiny / "bert"), "--corpus", str(corpus), "--out", str(tmp_path / "out"), *SMALL]
    assert main(given) == 0
    assert main(given) == 0, "the control: the same corpus is taken"
    before = rows(tmp_path / "out")
    # The content counts in rows, wherever it is.
    assert {row["corpus_digest"] for row in [*before, *rows(finished)]} == {open_corpus(str(corpus)).digest}
    corpus.write_text(corpus.read_text() + "frog toad lizard\n")
    given[1] = str(tiny / "gpt2")
    capsys.readouterr()
    assert main(given) == 2
    assert f"holds a study of other settings (text.corpus {corpus} (" in " ".join(capsys.readouterr().err.split())
    assert rows(tmp_path / "out") == before


@pytest.mark.usefixtures("without_figures")
def test_topics_of_two_passage_lengths_are_kept_apart(tiny: Path, tmp_path: Path) -> None:
    save_tiny("bert", tmp_path / "short", max_position_embeddings=14)
    save_tokenizer(tmp_path / "short", WORDS)
    out = tmp_path / "out"
    kept: list[dict[str, set[tuple[str, ...]]]] = []
    for model in (tiny / "bert", tmp_path / "short"):
        assert run(tiny, out, str(model), "--fits", "1") == 0
        with (out / "topics.csv").open() as file:
            table = list(csv.DictReader(file))
        kept.append({})
        for row in table:
            kept[-1].setdefault(row["length"], set()).add(tuple(row.values()))
    assert [set(each) for each in kept] == [{"18"}, {"18", "12"}]
    assert kept[0]["18"] == kept[1]["18"]
    saved = {path.name.rpartition("-")[2]: path / "topics.safetensors" for path in out.glob("topics-*")}
    assert set(saved) == {"18", "12"}
    assert saved["18"].read_bytes() != saved["12"].read_bytes()
    lengths = {(Path(row["model"]).name, row["length"], row["tokenizer"]) for row in rows(out)}
    [tokenizer] = {each for _, _, each in lengths}
    assert lengths == {("bert", 18, tokenizer), ("short", 12, tokenizer)}


def test_other_settings_in_the_same_folder_are_refused(
    finished: Path, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (finished / "probe.json").read_bytes()
    assert run(tiny, finished, str(tiny / "bert"), "--seed", "1") == 2
    assert "seed 0 there, 1 here" in capsys.readouterr().err
    assert (finished / "probe.json").read_bytes() == before


@pytest.mark.usefixtures("without_figures")
def test_a_refused_study_leaves_its_folder_to_the_corrected_one(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.txt").write_text("")
    options = [*without(SMALL, {"--fits"}), "--fits", "1", "--out", str(tmp_path / "out"), "--json"]
    assert main(["probe", str(tiny / "bert"), "--corpus", str(tmp_path / "empty.txt"), *options]) == 2
    corrected = ["probe", str(tiny / "bert"), "--corpus", str(tiny / "corpus.txt"), *options]
    assert main(corrected) == 0
    capsys.readouterr()
    # The control: what is measured belongs to its settings.
    assert main([*corrected, "--seed", "1"]) == 2
    assert "seed 0 there, 1 here" in capsys.readouterr().err
