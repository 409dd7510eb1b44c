"""``topicscope probe`` on small models and a small corpus: what it writes, says and prints, and what it refuses."""

import csv
import gzip
import html
import itertools
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.made_up_tokenizers import byte_level
from support.small_probe import OF_LDA, SMALL, WORDS, rows, run, without
from support.tiny_models import SPECIAL, VOCABULARY, save_tiny, save_tokenizer
from topicscope.cli import main
from topicscope.commands.probe import STAR, Probed, contrast_text, print_table, probe
from topicscope.errors import InputError
from topicscope.probing import study
from topicscope.probing.models import Outputs
from topicscope.probing.settings import CorpusSettings, Machine, MeasureSettings, ProbeSettings, TopicOptions
from topicscope.text import hub

CONTRAST = {
    "same",
    "different",
    "ratio",
    "low",
    "high",
    "difference",
    "difference_low",
    "difference_high",
    "auc",
    "auc_low",
    "auc_high",
    "p",
    "ratio_note",
    "replicates_left_out",
}


def test_every_row_has_what_the_design_says(finished: Path, tiny: Path) -> None:
    found = rows(finished)
    # Models × thresholds × assignments × embeddings × centred or not.
    assert len(found) == 3 * 2 * 2 * 2 * 2
    for row in found:
        for name in ("cosine", "dot", "attention"):
            assert set(row[name]) >= CONTRAST
            assert row[name]["difference"] == pytest.approx(row[name]["same"] - row[name]["different"])
            assert row[name]["ratio"] is not None or row[name]["ratio_note"]
            assert row[name]["low"] is not None or row[name]["ratio_note"]
        assert len(row["attention_by_layer_head"]) == 2
        assert {len(layer) for layer in row["attention_by_layer_head"]} == {2}
        assert row["lda_seeds"] == 2
        heads = [head["same"] for layer in row["attention_by_layer_head"] for head in layer]
        assert row["attention"]["same"] == pytest.approx(np.mean(heads))
    sinks = {Path(row["model"]).name: row["sink"] for row in found}
    assert sinks["bert"] is None
    assert np.shape(sinks["gpt2"]) == (2, 2)
    with (finished / "probe.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(found)
    assert float(table[0]["attention.same"]) == found[0]["attention"]["same"]
    # With three topics, some replicates draw but one of them; articles always have pairs.
    assert {row["attention.ratio_note"] for row in table} == {""}
    assert {row["attention.replicates_left_out"] for row in table} == {"0"}
    assert all(0 < int(row["cosine.replicates_left_out"]) <= 10 for row in table)
    assert all(row["cosine.difference_low"] for row in table)
    with (finished / "topics.csv").open() as file:
        words = list(csv.DictReader(file))
    assert {row["word"] for row in words} <= set(WORDS)
    assert {row["topic"] for row in words} == {"0", "1", "2"}


def test_figures_are_written(finished: Path) -> None:
    names = {path.name for path in (finished / "figures").iterdir()}
    assert {"ratios-one-matrix.png", "ratios-one-matrix.txt", "ratios-several-layer.svg", "heads-0.1.png"} <= names
    assert {"words.png", "words.svg", "topic-map.svg", "sink.png"} <= names
    with (finished / "figures" / "topic-map.csv").open() as file:
        mapped = list(csv.DictReader(file))
    # The same words of the same topics for all three models.
    models = {row["model"] for row in mapped}
    assert len(models) == 3
    assert len({(row["topic"], row["word"]) for row in mapped}) * 3 == len(mapped) > 30
    with (finished / "figures" / "sink.csv").open() as file:
        sinks = list(csv.DictReader(file))
    assert {Path(row["model"]).name for row in sinks} == {"gpt2"}
    assert [0 < float(row["sink"]) < 1 for row in sinks] == [True] * 4
    assert "checkpoints.png" not in names
    assert "0.2" in (finished / "figures" / "ratios-one-matrix.txt").read_text()


def test_the_page_has_the_topic_map_the_sink_comparisons_and_the_words_left_out(finished: Path) -> None:
    page = html.unescape((finished / "report.html").read_text())
    assert "gpt2: topic map of word embeddings" in page
    assert "gpt2: attention sink" in page
    assert "Left out, as the tokenizer splits them: beethoven, schubert, arithmetic, calculus." in page
    assert re.search(r"gpt2 against \S*bert\. Attention: (more|less|not told apart), ", page)
    assert '<table class="sortable" data-name="comparisons">' in page
    assert page.count("<td>Hidden states, layer 2</td>") == 2


def news(folder: Path, kind: str, documents: int, words: list[str]) -> Path:
    """Articles with a headline and a body, each mostly of one topic out of four, as people have them."""
    draw, path = np.random.default_rng(4), folder / f"news.{kind}"
    topics = np.array_split(np.array(words), 4)
    articles = []
    for number, topic in enumerate(draw.integers(4, size=documents)):
        chosen = [str(draw.choice(topics[topic] if draw.random() < 0.8 else words)) for _ in range(40)]
        articles.append({"headline": f"number {number}", "body": " ".join(chosen) + "."})
    lines = "\n".join(map(json.dumps, articles))
    if kind == "csv":
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, ["headline", "body"])
            table.writeheader()
            table.writerows(articles)
    elif kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("news.jsonl", lines)
    else:
        path.write_text(lines)
    return path


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("kind", ["zip", *(pytest.param(each, marks=pytest.mark.slow) for each in ("jsonl", "csv"))])
def test_news_run_to_the_end_with_topics_and_thresholds_by_default_and_thirty_short_ones_lack_all_that_is_named(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["".join(each) for each in itertools.product("bdgklmnp", "aeiou", "rstvz", "o")][:200]
    words = [f"{word}{end}" for word in words for end in ("n", "m")]
    save_tiny("bert", tmp_path / "model", vocab_size=len(SPECIAL) + len(words) + 1)
    save_tokenizer(tmp_path / "model", [*words, "."])
    few = without(SMALL, {"--topics", "--fractions", "--fits"})
    given = ["probe", str(tmp_path / "model"), "--field", "body", *few, "--fits", "1"]
    assert main([*given, "--corpus", str(news(tmp_path, kind, 120, words)), "--out", str(tmp_path / "out")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"\d topics at thresholds 0\.01\d*, 0\.0\d+, 0\.0\d+, which keep 5, 10, 20 words per topic", printed
    )
    assert "120 articles" in printed
    short = news(tmp_path, kind, 30, words[:9])
    assert main([*given, "--corpus", str(short), "--out", str(tmp_path / "short")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    for missing in ("15 articles to fit topics on", "15 articles to measure on", "9 different words to fit"):
        assert missing in said
    assert not (tmp_path / "short").exists()


@pytest.mark.usefixtures("without_figures")
def test_progress_names_what_is_being_done(
    finished: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    states: list[str] = []

    @contextmanager
    def recorded(title: str, *, quiet: bool = False, lines: bool = False) -> Iterator[Callable[[int, int, str], None]]:
        yield lambda done, total, state: states.append(state)

    monkeypatch.setattr("topicscope.commands.probe.progress_bar", recorded)
    monkeypatch.setattr(study, "PASSAGES", 16)
    assert run(tiny, finished, str(tiny / "bert"), "--json") == 0
    phases = [f"loading {tiny / 'bert'}", f"{tiny / 'bert'}: tests and intervals", "figures and page"]
    assert [state for state in states if state in phases] == phases
    # The control: pieces of work have names of their own.
    assert len(set(states)) > len(phases)


def as_cached(tiny: Path, cache: Path, revisions: list[str]) -> None:
    """A repository of the hub as its cache has it, with checkpoints."""
    repository = cache / "models--someone--bert"
    for number, revision in enumerate(revisions):
        commit = f"{number:040x}"
        snapshot = repository / "snapshots" / commit
        save_tiny("bert", snapshot, seed=number)
        save_tokenizer(snapshot, WORDS)
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / revision).write_text(commit)


def revisions_of(found: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["revision"] for row in found))


def test_revisions_of_one_model_give_topic_structure_over_training(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(hub, "reachable", lambda: False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    as_cached(tiny, tmp_path / "cache", ["step1", "step20"])
    out = tmp_path / "out"
    assert run(tiny, out, "someone/bert", "--revision", "step20", "step1", "--fits", "1", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert revisions_of(found) == revisions_of(rows(out)) == ["step20", "step1"]
    # A checkpoint that is measured already is finished first, but stays in its place.
    as_cached(tiny, tmp_path / "cache", ["step1", "step20", "step300"])
    assert run(tiny, out, "someone/bert", "--revision", "step300", "step20", "step1", "--fits", "1", "--json") == 0
    assert (
        revisions_of(json.loads(capsys.readouterr().out)) == revisions_of(rows(out)) == ["step300", "step20", "step1"]
    )
    assert found[0]["cosine"]["same"] != found[len(found) // 2]["cosine"]["same"]
    assert (out / "figures" / "checkpoints.png").exists()
    # The first checkpoint is the one that is compared, if none is named.
    compared = Probed(rows(out), [], [], out).compare("someone/bert step1")
    assert {(row["model"], row["against"]) for row in compared} == {("someone/bert step300", "someone/bert step1")}


def test_a_model_that_is_added_leaves_topics_words_and_figures_of_the_others(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_tiny("bert", tmp_path / "other")
    save_tokenizer(tmp_path / "other", WORDS[::-1])
    tokenizers = []
    for model in (tiny / "bert", tmp_path / "other"):
        assert run(tiny, tmp_path / "out", str(model), "--fits", "1", "--json") == 0
        with (tmp_path / "out" / "topics.csv").open() as file:
            tokenizers.append({row["tokenizer"] for row in csv.DictReader(file)})
    assert tokenizers[0] < tokenizers[1]
    assert len(tokenizers[1]) == 2
    models = [str(tiny / "bert"), str(tmp_path / "other")]
    assert [each["model"] for each in json.loads((tmp_path / "out" / "words.json").read_text())] == models
    table = (tmp_path / "out" / "figures" / "ratios-one-matrix.txt").read_text()
    assert all(model in table for model in models)
    assert {about["tokenizer"] for about in json.loads((tmp_path / "out" / "corpus.json").read_text())} == tokenizers[1]


def test_what_could_not_be_read_of_the_corpus_is_said(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = gzip.compress((tiny / "corpus.txt").read_bytes() * 2)
    (tmp_path / "cut.txt.gz").write_bytes(packed[: len(packed) - 200])
    given = [str(tiny / "bert"), "--fits", "1", *without(SMALL, {"--fits"}), "--corpus", str(tmp_path / "cut.txt.gz")]
    # The second time passages are found, not read; with --json, notes are beside the JSON.
    for more in ([], ["--json"]):
        assert main(["probe", *given, "--out", str(tmp_path / "out"), *more]) == 0
        printed = capsys.readouterr()
        said = " ".join((printed.err if more else printed.out).split())
        assert "what comes before is used" in said
        assert not more or json.loads(printed.out)
    # It stays with the results, in a file and on the page.
    [about] = json.loads((tmp_path / "out" / "corpus.json").read_text())
    problem, *_ = about["problems"]
    assert "what comes before is used" in problem
    assert {"c_npmi", "c_v", "diversity"} <= {name for name, value in about["topic_quality"].items() if value}
    page = (tmp_path / "out" / "report.html").read_text()
    for said in (problem, f"topics: c_npmi {about['topic_quality']['c_npmi']:.3f}"):
        assert html.escape(said) in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "No model is given"),
        (["no-such/model"], "is not in the local cache and the hub cannot be reached: give minilm or a local folder"),
        (["BERT", "BERT"], "given twice"),
        (["BERT", "--revision", "step1"], "--revision step1 is no folder in"),
        (["BERT", "--show-words", "frog", "unheardof"], '--show-words "unheardof" is not one token of'),
        (["BERT", "--device", "cuda"], "--device cuda is not available here"),
        (["BERT", "--device", "abacus"], "--device abacus is not allowed: give one of auto, cpu, cuda, mps"),
        (["BERT", "--engine", "cloud"], '--engine = "cloud" is not allowed'),
        (["BERT", "--address", "auto"], '--address = "auto" is not allowed with --engine local: add --engine ray'),
        (["BERT", "--fractions", "0"], "fractions = [0.0] is not allowed: give numbers above 0 and below 1"),
        (["BERT", "--fractions", "0.1", "1"], "fractions = [0.1, 1.0] is not allowed"),
        (["BERT", "--fractions", "0.1", "0.1"], "give each value once"),
        (["BERT", "--topics", "1000"], "topics = 1000 is not allowed with"),
        (["BERT", "--fits", "1001"], "fits = 1001 is not allowed: give at most 1000"),
        (["BERT", "--word-topics", "own.csv", "--fractions", "0.1"], "fractions = [0.1] is not allowed: --word-topics"),
        (
            ["BERT", "--topics-from", "saved", "--topics", "77"],
            "topics = 77 is not allowed: --topics-from brings topics",
        ),
        (
            ["BERT", "--topics-from", "saved", "--stop-words", "none"],
            '--stop-words = "none" is not allowed: --topics-from',
        ),
        (["BERT", "--stop-words", "/no/such/list"], "cannot be read: give auto, gensim, none"),
        (["EMPTY"], "has no config.json"),
        (["PICKLED"], "--allow-bin"),
        (["WORDLESS"], "has no tokenizer: its folder must hold tokenizer.json"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    words: list[str],
    said: str,
    tiny: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(hub, "reachable", lambda: False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    places = {"BERT": tiny / "bert"}
    for name in ("EMPTY", "PICKLED", "WORDLESS"):
        if name in words:
            places[name] = tmp_path / name.lower()
            places[name].mkdir()
    if "PICKLED" in words:
        (places["PICKLED"] / "config.json").write_text((tiny / "bert" / "config.json").read_text())
        (places["PICKLED"] / "pytorch_model.bin").write_bytes(b"")
    if "WORDLESS" in words:
        save_tiny("bert", places["WORDLESS"])
    given = [str(places.get(word, word)) for word in words]
    names = {word for word in words if word.startswith("--")}
    if names & {"--topics-from", "--word-topics"}:
        names |= {*OF_LDA, "--fractions"}
    assert (
        main(
            [
                "probe",
                *given,
                *without(SMALL, names),
                "--corpus",
                str(tiny / "corpus.txt"),
                "--out",
                str(tmp_path / "out"),
            ]
        )
        == 2
    )
    printed = capsys.readouterr()
    *before, sentence = printed.err.splitlines()
    assert said in sentence, "one sentence"
    assert all(line.startswith("topicscope: probing: loading ") for line in before), "what was going on, and no more"
    assert len(before) <= 1
    assert not printed.out
    assert not (tmp_path / "out").exists(), "nothing is left of what was refused"


WRONG = {
    "--length": ["3"],
    "--every": ["0"],
    "--topics": ["1"],
    "--fits": ["0"],
    "--iterations": ["0"],
    "--most-tokens": ["0"],
    "--fractions": ["2"],
    "--assignments": ["one", "one"],
    "--replicates": ["1"],
    "--permutations": ["0"],
    "--head-permutations": ["0"],
    "--seed": ["-1"],
    "--batch": ["0"],
    "--workers": ["0"],
    "--timeout": ["0"],
}


@pytest.fixture(scope="module")
def options_of_help() -> set[str]:
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("sys.stdout.write", printed.append)
        with pytest.raises(SystemExit):
            main(["probe", "--help"])
    return {word.strip(",") for word in "".join(printed).split() if word.startswith("--")}


@pytest.mark.parametrize("option", WRONG)
def test_a_wrong_value_is_said_under_the_name_that_help_has(
    option: str, options_of_help: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert option in options_of_help
    assert main(["probe", "minilm", "--out", str(tmp_path / "out"), option, *WRONG[option]]) == 2
    assert capsys.readouterr().err.startswith(f"topicscope: {option} = ")
    # The control: Python's name of an option with several words is none of the command line's.
    assert not options_of_help & {"--most_tokens", "--head_permutations"}
    assert not (tmp_path / "out").exists()


def test_an_option_that_says_nothing_beside_given_topics_has_that_name_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["probe", "minilm", "--out", str(tmp_path / "out"), "--word-topics", str(tmp_path / "own.csv")]
    assert main([*words, "--most-tokens", "5"]) == 2
    assert capsys.readouterr().err.startswith("topicscope: --most-tokens = 5 is not allowed: --word-topics brings ")
    # The control: without it, what is wrong is the file.
    assert main(words) == 2
    assert "own.csv cannot be read" in capsys.readouterr().err


CALL = """
import sys
from topicscope.cli import main
code = main(["probe", *sys.argv[1:]])
print(code, "torch" in sys.modules)
"""


def answered(*words: str) -> tuple[str, str]:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CALL, *words], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.strip(), done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["m", "--out", "FILE"], "is a file: give a folder"),
        (["m", "n", "--revision", "a"], "--revision goes with one model, and 2 are given"),
        (["m", "--corpus", "/no/such.txt"], 'corpus = "/no/such.txt" does not exist'),
        (["m", "--topics-from", "/no/such"], "--topics-from /no/such cannot be read (No such file or directory)"),
        (["m", "--word-topics", "FILE"], "has the columns wort, thema"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_said_before_torch_is_loaded(
    tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "file.csv").write_text("wort,thema\nfrog,animals\n")
    given = [str(tmp_path / "file.csv") if word == "FILE" else word for word in words]
    out = [] if "--out" in words else ["--out", str(tmp_path / "out")]
    answer, errors = answered(*given, *out)
    assert answer == "2 False"
    assert said in errors
    assert not (tmp_path / "out").exists()


def test_a_model_that_is_not_there_is_found_with_torch(tmp_path: Path) -> None:
    """The control of the tests above."""
    answer, errors = answered(str(tmp_path / "nothing"), "--out", str(tmp_path / "out"))
    assert answer == "2 True"
    assert "nothing" in errors


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


def printed_row(embedding: str, **contrasts: dict[str, Any]) -> dict[str, Any]:
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
    said = printed(capsys, printed_row("matrix", cosine=NONE))
    assert "Δ: same minus different [95 % interval], where there is no ratio (the denominator is not above 0)." in said
    assert STAR in said
    bare = RATIO | {"low": None, "high": None, "ratio_note": "too many have no pair"}
    assert "no interval, or none with an upper end: too many have no pair." in printed(
        capsys, printed_row("matrix", dot=bare)
    )
    empty = NONE | {"difference": None, "difference_low": None, "difference_high": None, "replicates_left_out": 50}
    nothing = printed(capsys, printed_row("matrix", attention=empty))
    assert "–: no pair to average over." in nothing
    assert "left out" not in nothing
    # The control: signs that the table does not have are not explained.
    plain = printed(capsys, printed_row("matrix"))
    assert "Δ" not in plain
    assert "–" not in plain
    assert "*" not in plain
    assert "left out" not in plain
    assert "no interval" not in plain


def test_replicates_that_were_left_out_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Up to 1,234 bootstrap replicates" in printed(
        capsys, printed_row("layer", dot=NONE | {"replicates_left_out": 1234})
    )


def test_attention_stands_once_for_all_embeddings(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = RATIO, RATIO | {"ratio": 2.0, "low": 1.9, "high": 2.1}
    said = printed(capsys, printed_row("matrix", attention=other), printed_row("layer", attention=other))
    assert said.count("2.00 [1.90, 2.10]") == 1
    # The control: of another assignment it is another number.
    several = printed_row("matrix", attention=other) | {"assignment": "several"}
    assert printed(capsys, printed_row("matrix", attention=other), several).count("2.00 [1.90, 2.10]") == 2
    assert one["ratio"] != other["ratio"]


def test_long_names_are_folded_and_not_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    names = [f"/models/{'a' * 40}/{end}" for end in ("first", "second")]
    print_table(Probed([printed_row("matrix") | {"model": name} for name in names], [], []), Path("out"))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    # Cells of the first column, one under the other.
    column = "".join(line.split("│")[1].strip() for line in lines)
    assert column == "".join(names)
    assert names[0] not in " ".join(lines), "the control: they do not fit into one line"


def test_all_files_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    files = "probe.json, probe.csv, probe.tex, heads.csv, topics.csv, corpus.json, words.json, figures/ (1 files)"
    assert f"out/report.html, {files}" in printed(capsys, printed_row("matrix"))


@pytest.mark.usefixtures("without_figures")
def test_from_python_options_are_keywords_and_the_answer_is_an_object(
    finished: Path, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small: dict[str, Any] = {
        "topics": 3,
        "fractions": [0.1, 0.2],
        "fits": 2,
        "iterations": 20,
        "length": 20,
        "replicates": 20,
    }
    more: dict[str, Any] = {"permutations": 19, "head_permutations": 19, "workers": 1, "device": "cpu"}
    models = [str(tiny / "bert"), f"random:{tiny / 'bert'}"]
    found = probe(models, corpus=tiny / "corpus.txt", out=str(finished), labels=["mine", "untrained"], **small, **more)
    assert found.summary.splitlines()[0].startswith("mine. Embeddings: ")
    assert found.summary.splitlines()[-1].startswith("“Yes” means that p < 0.05")
    assert set(found.by_layer) == {"mine", "untrained"}
    assert [layer["layer"] for layer in found.by_layer["mine"]] == [0, 1, 2]
    assert set(found.by_topic["mine"][0]) >= {"topic", "words", "cosine", "attention", "hidden"}
    # Compared with the first, and the other way round with the signs turned.
    assert {(row["model"], row["against"]) for row in found.comparisons} == {(models[1], models[0])}
    assert {row["measure"] for row in found.comparisons} >= {"attention", "cosine matrix", "hidden centred_cosine"}
    turned = found.compare(models[1])
    assert len(turned) == len(found.comparisons)
    assert turned[0]["difference"] == pytest.approx(-found.comparisons[0]["difference"])
    assert turned[0]["p"] == found.comparisons[0]["p"]
    assert found.comparisons[0] in json.loads((finished / "comparisons.json").read_text())
    with (finished / "heads.csv").open() as file:
        heads = list(csv.DictReader(file))
    assert set(heads[0]) >= {
        "layer",
        "head",
        "ratio",
        "p",
        "p_single",
        "q",
        "distance_matched_ratio",
        "sink",
        "examples",
    }
    assert (finished / "probe.tex").read_text().startswith("% Written by topicscope probe")
    with pytest.raises(
        InputError, match=r"other was not probed into .*: name one of .*bert, random:.*bert, or probe it"
    ):
        found.compare("other")
    # Without thousands of numbers.
    assert len(repr(found)) < 10_000 < len(repr(found.rows))
    with pytest.raises(InputError, match=r"bodies is no option of probe: give some of .*corpus.*labels, .*out, "):
        probe(models, out=finished, bodies=3)
    with pytest.raises(InputError, match="--against other is none of the models given"):
        probe(models, out=finished, against="other")
    with pytest.raises(InputError, match="--label names 1 models"):
        probe(models, out=finished, labels=["one"])


class OwnNetwork(torch.nn.Module):
    """A plain module with one layer of attention, as docs/probe.md has it: nothing of transformers."""

    name, layers, heads, causal, first = "own", 1, 1, False, 0

    def __init__(self, tokenizer: str, tokens: int, width: int = 8) -> None:
        super().__init__()
        self.tokenizer, self.words = tokenizer, torch.nn.Embedding(tokens, width)
        self.attend = torch.nn.MultiheadAttention(width, 1, batch_first=True)

    def embedding_matrix(self) -> Any:
        return self.words.weight.detach().numpy()

    def embedding_layer(self, tokens: Any) -> Any:
        return self.embedding_matrix()[tokens]

    @torch.no_grad()
    def run(self, passages: Any) -> Outputs:
        longest = max(map(len, passages))
        tokens = torch.zeros(len(passages), longest, dtype=torch.int64)
        for place, passage in enumerate(passages):
            tokens[place, : len(passage)] = torch.as_tensor(np.array(passage))
        padding = torch.arange(longest) >= torch.tensor([[len(passage)] for passage in passages])
        states = self.words(tokens)
        mixed, weights = self.attend(states, states, states, key_padding_mask=padding, average_attn_weights=False)
        return Outputs([weights], [states, states + mixed])


def test_topics_in_case_variants_alone_are_found_without_merging_and_not_with_it(tmp_path: Path) -> None:
    names = [first + rest for first in "bdgfklmnprst" for rest in ("ana", "olo")]
    spelled = [*names, *(name.capitalize() for name in names)]
    tokenizer = byte_level(*(f" {each}" for each in spelled))
    (tmp_path / "tokenizer").mkdir()
    tokenizer.engine.save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    draw = np.random.default_rng(2)
    (tmp_path / "text.txt").write_text("\n".join(" " + " ".join(draw.choice(spelled, 40)) for _ in range(20)))
    topics = [f"{each},{names.index(each.lower()) % 6}" for each in spelled]
    (tmp_path / "topics.csv").write_text("\n".join(["word,topic", *topics]))
    networks = []
    for name in ("planted", "untrained"):
        torch.manual_seed(3)
        network = OwnNetwork(str(tmp_path / "tokenizer"), tokenizer.size, 48).eval()
        network.name = name
        if name == "planted":
            # Both spellings of a word have one vector; words of a topic have nothing in common.
            tokens = [tokenizer.engine.token_to_id(f"Ġ{each}") for each in spelled]
            network.words.weight.data[tokens[len(names) :]] = network.words.weight.data[tokens[: len(names)]]
        networks.append(network)
    topic_options = TopicOptions(word_topics=tmp_path / "topics.csv")
    measures = MeasureSettings(replicates=20, permutations=99, head_permutations=9)
    p: dict[tuple[str, bool], float] = {}
    for merged in (True, False):
        text = CorpusSettings(corpus=str(tmp_path / "text.txt"), merge_words=merged)
        settings = ProbeSettings(text=text, topics=topic_options, measures=measures)
        work: dict[str, Any] = {"machine": Machine(device="cpu"), "work": tmp_path / f"{merged}", "detailed": False}
        found = [row for each in study.measure_models(networks, settings=settings, **work) for row in each.rows]
        assert {row["words"] for row in found} == {len(names) if merged else len(spelled)}
        p |= {(row["model"], merged): row["cosine"]["p"] for row in found if row["embedding"] == "matrix"}
    assert {key for key, value in p.items() if value <= 0.05} == {("planted", False)}


@pytest.mark.usefixtures("without_figures")
def test_anything_with_embeddings_attention_and_hidden_states_can_be_probed(tiny: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = OwnNetwork(str(tiny / "bert"), VOCABULARY).eval()
    small: dict[str, Any] = {"topics": 3, "fractions": (0.2,), "fits": 1, "iterations": 20, "length": 20}
    more: dict[str, Any] = {"replicates": 20, "permutations": 19, "head_permutations": 19, "assignments": ("one",)}
    found = probe(network, corpus=tiny / "corpus.txt", out=tmp_path / "out", device="cpu", **small, **more)
    assert {row["model"] for row in found.rows} == {"own"}
    assert found.summary.startswith("own. Embeddings: ")
    assert len(found.by_layer["own"]) == 2
    [[head]] = found.rows[0]["attention_by_layer_head"]
    assert head["same"] == pytest.approx(found.rows[0]["attention"]["same"])
