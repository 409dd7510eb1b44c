"""``topicscope theory``."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topicscope.cli import main
from topicscope.commands.theory import print_theory, theory
from topicscope.commands.theory_setting import TheorySetting

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "own-topics" / "topics.csv")

# Without what is drawn.
EXACT: dict[str, Any] = {"samples": 0, "take_off": False}


def printed_json(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["theory", *words, "--json"]) == 0
    out = capsys.readouterr().out
    assert "NaN" not in out
    assert "Infinity" not in out
    found: dict[str, Any] = json.loads(out)
    return found


def test_theory_prints_the_papers_numbers_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed_json(["--samples", "200", "--no-take-off"], capsys)
    assert found["theorem1"]["diagonal"] == pytest.approx(1 / 0.865)
    assert found["theorem1"]["block_sum_gap"] == pytest.approx(1 / 0.865)
    assert found["theorem1"]["bias"] == pytest.approx(-0.015 / 0.865 / 100)
    block = found["theorem2"]
    assert (block["mask_column"], block["same_topic"], block["different_topic"]) == pytest.approx(
        (0.0541908, 0.1080202, -0.0075867), abs=5e-8
    )
    assert block["loss"] == pytest.approx(0.95)
    assert {"c1", "c2", "c3"} <= block.keys()
    assert found["theorem3"]["lambda2"] == pytest.approx(5866.67, abs=5e-3)
    assert found["theorem3"]["violated"] == []
    assert found["attention_optimum"]["loss"] == pytest.approx(0.94610274, abs=5e-9)
    assert found["attention_optimum"]["loss_uniform"] == pytest.approx(0.95)
    assert found["finite"]["same_word"] == pytest.approx(0.2152863, abs=5e-8)
    assert found["finite"]["loss"] == pytest.approx(0.94532184, abs=5e-9)
    assert found["finite"]["loss_of_theorem2"] == pytest.approx(0.94562537, abs=5e-9)
    assert found["finite_topics"].keys() == found["finite"].keys()
    assert found["finite_topics"]["loss"] != pytest.approx(found["finite"]["loss"], abs=1e-4)
    bayes = found["bayes"]
    for estimate in (bayes["cross_entropy"], bayes["squared"], bayes["mask_queries"], bayes["query_blind"]):
        assert estimate["low"] < estimate["value"] < estimate["high"]
    assert bayes["squared"]["value"] < bayes["query_blind"]["squared"]["value"]
    assert "Monte-Carlo" in bayes["method"]


def test_the_same_seed_gives_the_same_floor_and_another_seed_another(capsys: pytest.CaptureFixture[str]) -> None:
    first, again, other = (
        printed_json(["--samples", "50", "--no-take-off", "--length", "5", "9", "--seed", seed], capsys)["bayes"]
        for seed in "112"
    )
    assert first == again
    assert first["squared"] != other["squared"]


def test_theory_prints_tables_with_the_papers_symbols(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", "--samples", "50", "--no-take-off"]) == 0
    out = capsys.readouterr().out
    for text in ("λ₁(τ−1)", "0.10802023", "5.7629128", "0.94606882", "blind to the query", "0.94532184"):
        assert text in out


@pytest.mark.parametrize(
    ("words", "empty", "reason"),
    [
        (["--topics", "2"], ["theorem1", "theorem2", "attention_optimum"], "only one set of topics"),
        (["--keep", "0.5", "--random", "0.5"], ["theorem1", "theorem2", "attention_optimum"], "no position becomes"),
        (["--keep", "0.7", "--random", "0.3"], ["theorem1", "theorem2", "attention_optimum"], "no position becomes"),
        (["--keep", "0.58", "--random", "0.42"], ["theorem1", "theorem2", "attention_optimum"], "no position becomes"),
        (["--topics", "5000"], ["bayes", "bayes_topics"], "too many to sample"),
        (["--mask", "1e-7"], ["bayes", "bayes_topics"], "almost never has a masked position"),
        (["--mask", "1", "--keep", "0", "--random", "0"], ["theorem2", "theorem3"], "no word of the document"),
    ],
)
def test_a_part_that_is_not_defined_is_null_with_a_reason(
    words: list[str], empty: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = printed_json([*words, "--samples", "20", "--no-take-off"], capsys)
    for name in empty:
        assert found[name] is None
        assert reason in found[f"{name}_reason"]
    defined = {name for name in found if name != "setting" and found[name] is not None}
    assert defined, "something is always defined"
    assert main(["theory", *words, "--samples", "20", "--no-take-off"]) == 0
    assert "not defined" in capsys.readouterr().out or "bayes" in empty


@pytest.mark.parametrize(
    ("words", "part", "name"),
    [
        (["--random", "0"], "theorem3", "lambda2"),
        (["--random", "0"], "theorem3", "high"),
        (["--keep", "0"], "theorem3", "limit"),
        (["--words", "1"], "finite", "same_topic"),
        (["--topics", "1", "--per-document", "1"], "finite", "different_topic"),
        (["--topics", "2"], "finite", "loss_of_theorem2"),
        (["--keep", "0.7", "--random", "0.3"], "bayes", "mask_queries"),
        (["--words", "1"], "theorem3", "limit_fixed"),
    ],
)
def test_a_number_that_is_not_defined_is_null_with_a_reason(
    words: list[str], part: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = printed_json([*words, "--samples", "20", "--no-take-off", "--length", "10", "12"], capsys)
    assert found[part][name] is None
    assert found[part][f"{name}_reason"]
    assert main(["theory", *words, "--samples", "20", "--no-take-off", "--length", "10", "12"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--keep", "0.58", "--random", "0.42"], "since p_c + p_r = 1"),
        # A [MASK] can occur, but rarely: 1 % of masked positions, and about one masked position a document.
        (["--keep", "0.98", "--random", "0.01"], "of 200 sampled documents had a [MASK], and an interval needs 30"),
    ],
)
def test_a_missing_floor_at_mask_queries_has_its_true_reason(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rare = ["--mask", "0.01", "--length", "10", "12", "--samples", "200", "--no-take-off"]
    bayes = printed_json([*words, *rare], capsys)["bayes"]
    assert bayes["mask_queries"] is None
    assert reason in bayes["mask_queries_reason"]
    assert main(["theory", *words, *rare]) == 0
    assert "[MASK] queries not computed" in capsys.readouterr().out
    often = printed_json(["--keep", "0.1", *rare], capsys)["bayes"]
    assert often["mask_queries"] is not None
    assert "mask_queries_reason" not in often


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topics", "0"], "topics = 0 is not allowed"),
        (["--topics", "1"], "per_document = 2 is not allowed"),
        (["--mask", "0"], "mask = 0.0 is not allowed"),
        (["--keep", "0.7", "--random", "0.7"], "keep + random"),
        (["--dirichlet", "0"], "dirichlet = 0.0 is not allowed"),
        (["--length", "9", "5"], "length = [9, 5] is not allowed"),
        (["--samples", "-1"], "samples = -1 is not allowed: give a whole number, 2 or more, or 0 to leave the Bayes"),
        (["--samples", "1"], "samples = 1 is not allowed"),
        (["--seed", "-1"], "seed = -1 is not allowed"),
        (["--topix", "3"], "--topix"),
    ],
)
def test_bad_options_exit_with_2_and_one_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["theory", *words, "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_unequal_dirichlet_parameters_agree_with_equal_ones_in_the_limit() -> None:
    equal = theory(TheorySetting(topics=3, words=2, dirichlet=(0.4,)), **EXACT)["finite"]
    dense = theory(
        TheorySetting(topics=3, words=2, dirichlet=(0.4, 0.4, 0.4 * (1 + 1e-12))), samples=0, take_off=False
    )["finite"]
    far = theory(TheorySetting(topics=3, words=2, dirichlet=(0.4, 0.4, 4.0)), **EXACT)["finite"]
    assert equal is not None
    assert dense is not None
    assert far is not None
    for name, value in equal.items():
        assert dense[name] == pytest.approx(value, rel=1e-7)
    sets = theory(TheorySetting(topics=3, words=2, dirichlet=(0.4, 0.4, 4.0)), **EXACT)["finite_topics"]
    assert sets is not None
    assert sets == theory(TheorySetting(topics=3, words=2), **EXACT)["finite_topics"]
    assert far["same_topic"] != pytest.approx(equal["same_topic"], rel=1e-2)


def test_an_optimum_that_is_not_attained_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    found = theory(TheorySetting(), **EXACT)
    print_theory(found)
    assert "not attained" not in capsys.readouterr().out
    optimum = found["attention_optimum"]
    assert optimum is not None
    print_theory(replace(found, parts={**found.parts, "attention_optimum": {**optimum, "attained": False}}))
    assert "not attained" in capsys.readouterr().out


def test_theory_without_sampling_works_at_any_size() -> None:
    found = theory(TheorySetting(topics=10**8, per_document=3000), **EXACT)
    optimum = found["attention_optimum"]
    assert optimum is not None
    assert math.isclose(optimum["weighted_average"] / 3000, 7.406, abs_tol=5e-4)


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["theory", "--help"])
    assert not stop.value.code
    out = capsys.readouterr().out
    assert "topicscope theory --topics 100" in out
    assert "--per-document" in out


def test_the_dynamics_are_in_the_json_and_a_number_that_is_not_defined_has_its_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = printed_json(["--samples", "0", "--no-take-off"], capsys)["dynamics"]
    assert found["stage1_topic_rate"] == pytest.approx(2 * 0.865**2 * 8 / (2 * 10 * 10 * 9))
    assert found["stage2_topic_rate"] == pytest.approx(5.5748234e-5, rel=1e-8)
    assert found["time_ratio"] == pytest.approx(
        found["stage1_topic_rate"] / found["stage2_topic_rate"] * math.sqrt(101)
    )
    assert found["prediction"] is None
    assert "no-take-off" in found["prediction_reason"]
    narrow = printed_json(["--samples", "0", "--no-take-off", "--width", "16"], capsys)["dynamics"]
    assert narrow["time_ratio"] == pytest.approx(found["time_ratio"] * math.sqrt(16 / 101))
    for words in (["--keep", "0"], ["--per-document", "1"]):
        never = printed_json(["--samples", "0", "--no-take-off", *words], capsys)["dynamics"]
        assert never["stage2_topic_rate"] == 0
        assert never["time_ratio"] is None
        assert "never takes off at infinite length" in never["time_ratio_reason"]
        assert abs(never["finite"]["stage2"]["mask"]) > 1e-6
    all_topics = printed_json(["--samples", "0", "--no-take-off", "--per-document", "10"], capsys)["dynamics"]
    assert all_topics["stage1_topic_rate"] is None
    assert "only one set of topics" in all_topics["stage1_topic_rate_reason"]


def test_a_take_off_is_predicted_for_the_given_optimiser(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--topics", "3", "--words", "3", "--length", "10", "20", "--samples", "0", "--keep", "0.4"]
    slow, fast = (printed_json([*small, "--rate", rate, "--scale", "0.1"], capsys) for rate in ("0.1", "0.2"))
    first, second = (each["dynamics"]["prediction"]["take_off"] for each in (slow, fast))
    assert first == pytest.approx(2 * second, rel=0.05)
    assert 0 < fast["dynamics"]["prediction"]["gain_at_take_off"] <= 1
    assert main(["theory", *small, "--rate", "0.2", "--scale", "0.1"]) == 0
    assert "predicted take-off" in capsys.readouterr().out
    assert main(["theory", *small, "--optimizer", "lion"]) == 2
    too_fast = printed_json([*small, "--rate", "100"], capsys)["dynamics"]
    assert too_fast["prediction"] is None
    assert "W^V diverges" in too_fast["prediction_reason"]


def test_a_free_weight_on_mask_keys_is_told_with_what_it_gains(capsys: pytest.CaptureFixture[str]) -> None:
    print_theory(theory(TheorySetting(), **EXACT))
    assert "lowers the loss to 0.94606882" in " ".join(capsys.readouterr().out.split())
    # Without kept words attention can gain nothing.
    print_theory(theory(TheorySetting(keep=0.0), **EXACT))
    out = " ".join(capsys.readouterr().out.split())
    assert "does not lower the loss" in out
    assert "lowers the loss to" not in out


def test_every_option_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["theory", "--help"])
    out = capsys.readouterr().out
    for option in ("--loss CHOICE", "--optimizer CHOICE", "--rate FLOAT", "--momentum FLOAT"):
        assert not out.partition(option)[2].lstrip().startswith("["), option


OVERLAPPING = np.array([[0.5, 0.3, 0.2, 0.0, 0.0], [0.0, 0.1, 0.2, 0.3, 0.4], [0.25, 0.0, 0.25, 0.0, 0.5]])


@pytest.fixture
def own_topics(tmp_path: Path) -> str:
    np.savetxt(tmp_path / "my data.csv", OVERLAPPING, delimiter=",")
    return str(tmp_path / "my data.csv")


def sampled_frequencies_and_labels(
    draw: np.random.Generator, *, of_two: bool, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Masked documents of 4 to 6 words, drawn by the book: x̃ of each, and the mean of y over its masked positions."""
    lengths = draw.integers(4, 7, size=count)
    inside = np.arange(6) < lengths[:, None]
    theta = draw.dirichlet([0.4] * 3, size=count)
    if of_two:
        theta = 0.5 * (1 - np.eye(3)[draw.integers(3, size=count)])
    topic = (draw.random((count, 6, 1)) > theta.cumsum(axis=1)[:, None, :-1]).sum(axis=2)
    word = 1 + (draw.random((count, 6, 1)) > OVERLAPPING.cumsum(axis=1)[topic][:, :, :-1]).sum(axis=2)
    masked = inside & (draw.random((count, 6)) < 0.3)
    fate = draw.random((count, 6))
    replaced = np.where(fate < 0.2, word, np.where(fate < 0.3, draw.integers(1, 6, size=(count, 6)), 0))
    token = np.where(masked, replaced, word)
    used = masked.any(axis=1)
    one_hot = np.eye(6)
    seen = (one_hot[token] * inside[:, :, None]).sum(axis=1) / lengths[:, None]
    label = (one_hot[word] * masked[:, :, None]).sum(axis=1) / np.maximum(masked.sum(axis=1), 1)[:, None]
    return seen[used], label[used]


@pytest.mark.parametrize("name", ["finite", "finite_topics"])
def test_the_optimum_for_overlapping_topics_leaves_no_gradient_over_sampled_documents(
    own_topics: str, name: str
) -> None:
    setting = TheorySetting(
        topic_words=own_topics, mask=0.3, keep=0.2, random=0.1, dirichlet=(0.4,), length=(4, 6), per_document=2
    )
    matrices = theory(setting, **EXACT).matrices()
    draw = np.random.default_rng(11)
    seen, label = sampled_frequencies_and_labels(draw, of_two=name == "finite_topics", count=60_000)

    def errors(matrix: np.ndarray) -> float:
        """The largest entry of E[(W x̃ − y) x̃⊤], in standard errors over documents."""
        gradients = (seen @ matrix.T - label)[:, :, None] * seen[:, None, :]
        spread = gradients.std(axis=0) / math.sqrt(len(gradients))
        return float((abs(gradients.mean(axis=0)) / np.where(spread > 0, spread, np.inf)).max())

    assert errors(matrices[name]) < 5
    # Controls: Theorem 2's matrix, the optimum for the other documents, and no matrix at all.
    other = "finite" if name == "finite_topics" else "finite_topics"
    assert min(errors(matrices["theorem2"]), errors(matrices[other]), errors(0 * matrices[name])) > 10


def test_own_topics_have_their_class_averages_and_the_closed_forms_say_why_not(
    own_topics: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--topic-words", own_topics, "--length", "4", "6", "--samples", "0", "--out", str(tmp_path / "out")]
    found = printed_json(words, capsys)
    assert found == json.loads((tmp_path / "out" / "theory.json").read_text(encoding="utf-8"))
    assert found["setting"]["topics"] == 3
    for name in ("theorem1", "theorem3", "attention_optimum", "attention_optimum_diagonal", "dynamics"):
        assert found[name] is None
        assert "my data.csv has topics that are not disjoint" in found[f"{name}_reason"]
    arrays = np.load(tmp_path / "out" / "theory.npz")
    # The likeliest topic of each word, by hand.
    topics = [1, 1, 3, 2, 3]
    for name in ("finite", "finite_topics", "theorem2"):
        entries: dict[str, list[float]] = {"same_word": [], "same_topic": [], "different_topic": []}
        for i, one in enumerate(topics, start=1):
            for j, other in enumerate(topics, start=1):
                kind = "same_word" if i == j else "same_topic" if one == other else "different_topic"
                entries[kind].append(arrays[name][i, j])
        for kind, values in entries.items():
            assert found[name][kind] == pytest.approx(np.mean(values), rel=1e-9)
        assert found[name]["mask_column"] == pytest.approx(arrays[name][1:, 0].mean())
    assert found["finite"]["loss"] < found["finite"]["loss_of_theorem2"] < 1
    assert (tmp_path / "out" / "optimum.png").read_bytes()[:4] == b"\x89PNG"
    assert "<svg" in (tmp_path / "out" / "optimum.svg").read_text(encoding="utf-8")
    assert main(["theory", *words]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_own_topics_that_are_the_papers_have_the_papers_numbers(tmp_path: Path) -> None:
    np.save(tmp_path / "equal.npy", np.kron(np.eye(3), np.full((1, 2), 0.5)))
    own = TheorySetting(topic_words=str(tmp_path / "equal.npy"))
    assert own == replace(own, mask=0.15)
    assert theory(own, **EXACT).parts == theory(TheorySetting(topics=3, words=2), **EXACT).parts
    assert theory(own, **EXACT).parts != theory(TheorySetting(topics=2, words=3), **EXACT).parts


def test_own_topics_are_printed_with_their_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", "--topic-words", EXAMPLE, "--length", "40", "60", "--samples", "50"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "blocks of topics stand out; averages over entries" in printed
    assert "all topic sets listed" in printed
    assert "Theorems 1 and 3, attention's optima and the dynamics not defined: topic_words" in printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topic-words", "data.csv"], "topic_words = data.csv cannot be read"),
        (["--topic-words", EXAMPLE, "--topics", "3"], "topics = 3 is not allowed: topic_words says how many"),
        (["--topic-words", EXAMPLE, "--dirichlet", "1", "2"], "one for each of the 4 topics of topic_words"),
        (["--topic-words", EXAMPLE, "--per-document", "5"], "topic_words has 4 topics only"),
        (["--topics", "300", "--out", "large"], "3,001 tokens need matrices too large"),
    ],
)
def test_bad_topics_exit_with_2_and_write_nothing(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["theory", *words]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_theory_is_a_table_in_a_notebook() -> None:
    pytest.importorskip("pandas")
    found = theory(TheorySetting(topic_words=EXAMPLE), **EXACT)
    assert found._repr_html_().startswith("<table>")
    assert found.to_frame()["finite.same_word"].tolist() == [found["finite"]["same_word"]]
