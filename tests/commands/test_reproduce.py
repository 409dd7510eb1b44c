"""``reproduce`` on a small paper: what is asked for, measured, written, kept, resumed and printed."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from safetensors.numpy import load_file
from threadpoolctl import threadpool_info, threadpool_limits

from support.small_paper import DONE, TRAINED, Numbers, read, small_paper
from topicscope.commands import reproduce as command
from topicscope.commands.reproduce import Reproduction, list_claims, main, reproduce
from topicscope.errors import InputError
from topicscope.papers.needs import Preset
from topicscope.papers.reproduction import Progress
from topicscope.records import ARTICLES, ClaimRecord
from topicscope.training import batches, record

VERDICTS = {
    "theorem9/zero": "holds",
    "figure2/numbers": "holds",
    "figure2/rows": "fails",
    "figure2/run": "holds",
    "table1/absent": "not run",
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> list[Preset]:
    """The small paper in place of all others; returns the presets that it was asked for with."""
    asked: list[Preset] = []

    def paper(name: str, preset: Preset) -> Any:
        asked.append(preset)
        return small_paper()

    DONE.clear()
    monkeypatch.setattr(command, "paper", paper)
    monkeypatch.setattr(batches, "HELD_OUT_DOCUMENTS", 40)
    for name, count in {"CHUNK": 20, "ATTENTION_DOCUMENTS": 10}.items():
        monkeypatch.setattr(record, name, count)
    return asked


def run(out: Path, **options: Any) -> Reproduction:
    return reproduce(out, **{"seeds": 3, "workers": 1} | options)


def verdicts(claims: list[ClaimRecord]) -> dict[str, str]:
    return {claim.id: claim.verdict for claim in claims}


def test_everything_is_measured_and_written(tmp_path: Path) -> None:
    seen: list[Progress] = []
    result = run(tmp_path / "out", report=seen.append)
    assert verdicts(result.claims) == VERDICTS
    assert DONE == ["figure2/long", "figure2/short"], "the longest first, and equal work once"
    assert next(each.last.id for each in seen if each.last) == "theorem9/zero", "what needs nothing comes first"
    assert (seen[-1].claims, seen[-1].all_claims, seen[-1].work, seen[-1].all_work) == (5, 5, 4, 4)
    assert read(tmp_path / "out") == result.claims
    with (tmp_path / "out" / "claims.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["row"] for line in lines if line["id"] == "figure2/rows"] == ["", "long", "same", "short"]
    assert float(lines[1]["measured"]) == result.claims[1].measured
    assert r"\csname claim@figure2/rows/short@measured\endcsname" in (tmp_path / "out" / "claims.tex").read_text()
    assert [path.name for path in result.figures] == ["figure2.png", "figure2.svg", "figure2.csv"]
    assert "Numbers are what" in (tmp_path / "out" / "report.html").read_text()
    assert result.failed == ["figure2/rows"]
    kept = load_file(tmp_path / "out" / "runs" / "small" / "run" / "run.safetensors")
    assert len(kept["seeds"]) == 3, "the page plays a run that has matrices"
    assert result.to_frame().shape[0] == 8


def test_findings_have_this_runs_numbers_or_say_which_claims_came_out_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "out")
    (article,) = ARTICLES.read(tmp_path / "out")
    (finding,) = article.findings
    assert finding.confirmed, "that of claims not run is left out"
    assert finding.sentence == "They are 1.010 [0.985, 1.035] and 25.2 % [24.6, 25.9 %], with a note."
    changed = small_paper(Numbers("figure2/long", 0.01), Numbers("figure2/short", 0.02), TRAINED)
    monkeypatch.setattr(command, "paper", lambda name, preset: changed)
    (article,) = run(tmp_path / "other").articles
    assert article.findings[0].sentence == "Not confirmed by this run: figure2/numbers fails."


def test_run_again_it_does_no_work_and_says_the_same_and_another_seed_gives_other_numbers(tmp_path: Path) -> None:
    def plain(claims: list[ClaimRecord]) -> list[ClaimRecord]:
        """Without the time that they took."""
        return [msgspec.structs.replace(claim, seconds=None) for claim in claims]

    first = run(tmp_path / "out").claims
    DONE.clear()
    assert plain(run(tmp_path / "out").claims) == plain(first)
    assert DONE == []
    assert run(tmp_path / "other", seed=1).claims[1].measured != first[1].measured


def test_interrupted_it_keeps_what_is_measured_and_resumes(tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if progress.last and progress.last.id == "figure2/numbers":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", report=stop)
    assert list(verdicts(read(tmp_path / "out"))) == ["theorem9/zero", "figure2/numbers", "table1/absent"]
    assert DONE == ["figure2/long"]
    assert verdicts(run(tmp_path / "out").claims) == VERDICTS
    assert DONE == ["figure2/long", "figure2/short"]


def test_only_some_claims_then_the_rest(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert list(verdicts(run(out, only="theorem9").claims)) == ["theorem9/zero"]
    assert DONE == []
    some = run(out, only="figure2/numbers")
    assert (DONE, some.figures) == (["figure2/long"], []), "a part of a figure's claims does not draw it"
    assert list(verdicts(read(out))) == ["theorem9/zero", "figure2/numbers"], "the file has all that is known"
    assert len(run(out, only=("Figure 2",)).figures) == 3
    # What is there from before is enough to draw it.
    assert len(run(out, only="figure2/numbers").figures) == 3
    assert len(read(out)) == 4


def test_a_claim_that_cannot_be_measured_here_has_the_reason_and_is_measured_once_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = run(tmp_path / "out").claims[-1]
    assert absent.measured is None
    assert absent.diagnosis is not None
    assert absent.diagnosis.explanation == "The model is not on this machine."
    monkeypatch.setattr(command, "paper", lambda name, preset: small_paper(reason=""))
    assert verdicts(run(tmp_path / "out").claims)["table1/absent"] == "holds"


def test_linear_algebra_runs_on_one_thread_and_then_on_as_many_as_before(tmp_path: Path) -> None:
    def threads() -> list[int]:
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        assert run(tmp_path / "out", only="theorem9").claims[0].details["threads"] == 1
        assert threads() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 4}, "--seeds 3 there, 4 here"),
        ({"seed": 1}, "--seed 0 there, 1 here"),
        ({"preset": "paper"}, "--preset quick there, paper here"),
        ({"models": ("minilm",)}, "--models not given there, minilm here"),
    ],
)
def test_a_folder_with_other_settings_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    run(tmp_path / "out", only="theorem9")
    with pytest.raises(InputError, match=message):
        run(tmp_path / "out", **change)


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("something")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").touch()
    for name, message in (("file", "is a file"), ("folder", "holds no claims")):
        with pytest.raises(InputError, match=message):
            run(tmp_path / name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": 0}, "--seeds = 0"),
        ({"seed": -1}, "--seed = -1"),
        ({"workers": 0}, "--workers = 0"),
        ({"engine": "cloud"}, '--engine = "cloud"'),
        ({"address": "10.0.0.1:6379"}, '--address = "10.0.0.1:6379"'),
        ({"models": ("minilm", "minilm")}, "give each model once"),
        ({"models": ("",)}, "--models names no model"),
        ({"only": ("figure99",)}, '"figure99" is no claim'),
        ({"only": ("figure2/number",)}, "did you mean figure2/numbers"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_an_unknown_preset_or_paper_is_refused_with_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    for words, allowed in ((["--preset", "all"], "quick, paper"), (["--paper", "no_such_paper"], "topic_structure")):
        with pytest.raises(InputError, match=f'{words[0]} = "{words[1]}" is not allowed: give one of {allowed}'):
            main([*words, "--out", str(tmp_path / "out")])


def test_only_without_a_claim_does_not_run_all_of_them(tmp_path: Path) -> None:
    for words in (["--only"], ["--only", "--quiet"], ["--only", ""], ["--only="], ["--models"]):
        with pytest.raises(InputError, match=r"^--(only .*no claim|(only|models): expected at least one)"):
            main([*words, "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_presets_seeds_and_models_reach_the_paper(tmp_path: Path, small: list[Preset]) -> None:
    for options in ({"preset": "quick"}, {"preset": "paper"}, {"seeds": 3, "models": ("minilm",)}):
        list_claims(**options)
    assert small == [Preset("quick", 10), Preset("paper", 20), Preset("quick", 3, ("minilm",))]
    assert [preset.full for preset in small] == [False, True, False]


def test_a_model_that_is_named_and_cannot_be_probed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = small_paper()
    absent = named.experiments["absent/model"]

    class Named(Numbers):
        model = "./absent"

    experiments = {**named.experiments, "absent/model": Named(absent.name, 0.5, absent.unavailable)}
    monkeypatch.setattr(command, "paper", lambda name, preset: replace(named, experiments=experiments))
    with pytest.raises(InputError, match="not on this machine"):
        run(tmp_path / "out", models=("./absent",))


def test_the_terminal_gets_the_answer_and_standard_error_a_line_for_each_claim(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--out", str(tmp_path / "out"), "--seeds", "3", "--workers", "1"]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "figure2/numbers" in printed.err
    assert "5/5" in printed.err
    shown = " ".join(printed.out.split())
    assert "Of the paper's claims: 2 hold, 1 was not run" in shown
    assert "Numbers grow. They are 1.010 [0.985, 1.035]" in shown
    assert "fails figure2/rows (ours) 0.2525 [" in shown
    assert "outside the rule > 0.5" in shown
    assert "A matter of settings. It is too short. It holds when it is long. See figure2/numbers." in shown
    assert main([*words, "--strict", "--quiet"]) == 1
    assert capsys.readouterr().err == ""
    assert main([*words, "--json", "--quiet"]) == 0
    printed_json = json.loads(capsys.readouterr().out)
    assert [claim["id"] for claim in printed_json] == list(VERDICTS)


def test_claims_can_be_listed_without_running_them(capsys: pytest.CaptureFixture[str]) -> None:
    listed = list_claims(only="Figure 2")
    assert [claim.id for claim in listed] == ["figure2/numbers", "figure2/rows", "figure2/run"]
    assert main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert "figure2/rows (ours)   Figure 2" in shown
    assert "holds if > 0.5" in shown
    assert "5 claims. the paper's claims: 3" in shown
    assert main(["--list", "--json", "--only", "theorem9"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["verdict"] == "not run"
    assert DONE == []
