import io
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import topicscope
from support.helpers import start_program
from topicscope.cli import main
from topicscope.commands import reproduce as command
from topicscope.commands.reproduce import Reproduction
from topicscope.paper import registry
from topicscope.paper.claim import PRESETS, above, over_seeds, row


def test_reproduce_prints_claims_as_json_alone_and_keeps_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results"
    words = ["reproduce", "--out", str(out), "--only", "theorem2", "lemma1/minimisers", "--json"]
    assert main(words) == 0
    output = capsys.readouterr()
    rows = json.loads(output.out)
    assert {row["source"] for row in rows} == {"Theorem 2", "Lemma 1"}
    assert json.loads((out / "claims.json").read_text()) == rows
    # One line a claim on standard error.
    assert len(output.err.splitlines()) == len(rows)
    assert "theorem2/finite-ratio" in output.err


def test_reproduce_ends_with_the_answer_and_not_with_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "--out", str(tmp_path / "results"), "--only", "remark8", "--quiet"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    said = " ".join(output.out.split())
    assert said.startswith("Of the paper's claims 1 holds, 1 fails.")
    # What fails is named with its number, its sentence and why; what holds is in the files.
    assert "fails remark8/rank 1010, asked for between 0.5 and 1.5 The Hessian of the loss" in said
    assert "An error in the paper. Attention is of rank 1 in each document" in said
    assert "remark8/ridge" not in said
    assert "claims.tex" in said
    assert (tmp_path / "results" / "claims.tex").read_text().startswith("% Written by topicscope reproduce")


def test_the_live_display_says_how_far_it_is_what_runs_and_how_long_it_will_be() -> None:
    display = command._Display()
    claim = registry(PRESETS["quick"]).claims[0]
    shown = row(claim, over_seeds((1.0, 1.1, 1.2)), "holds")
    display.show(command.Progress(3, 40, shown, 600.0, ("figure5/adam", "probe/minilm")))
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(display)
    text = console.export_text()
    assert "3 of 40 claims, about 10 min left" in text
    assert "now  figure5/adam, probe/minilm" in text
    assert claim.id in text


def test_strict_exits_with_1_if_a_claim_fails_and_only_then(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "results")
    assert main(["reproduce", "--out", out, "--only", "remark8", "--strict", "--quiet"]) == 1
    assert main(["reproduce", "--out", out, "--only", "theorem2", "--strict", "--quiet"]) == 0


def test_list_names_every_claim_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [claim["id"] for claim in listed] == [claim.id for claim in registry(PRESETS["quick"]).claims]
    assert not list(tmp_path.iterdir())
    assert main(["reproduce", "--list", "--only", "theorem2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    chosen = [claim for claim in registry(PRESETS["quick"]).claims if claim.source == "Theorem 2"]
    # Three lines a claim, however long, and how many there are.
    assert len(lines) == 3 * len(chosen) + 1
    assert lines[1].strip() == chosen[0].statement
    assert lines[-1].startswith(f"{len(chosen)} claims. ")


def test_verdicts_are_shown_before_and_after_correction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fabricated(out: Path, **options: object) -> Reproduction:
        claims = registry(PRESETS["quick"]).claims[:3]
        first, second, third = (replace(claim, source="Figure 9", kind="paper", rule=above(0)) for claim in claims)
        wide, narrow = over_seeds((0.2, 1.0, 1.2, 0.6, 0.1)), over_seeds((1.0, 1.0, 1.01))
        rows = [
            row(first, wide, "undecided"),
            row(second, narrow, "holds"),
            row(third, None, "not run"),
        ]
        return Reproduction(rows, [])

    monkeypatch.setattr(command, "reproduce", fabricated)
    assert main(["reproduce", "--out", str(tmp_path / "results")]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "Of the paper's claims 2 hold, 1 is not run." in output
    assert "within a source, in all: 1 holds, 1 is undecided, 1 is not run." in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "figure99"], '--only "figure99" is no claim'),
        (["--seeds", "0"], "--seeds = 0 is not allowed"),
        (["--preset", "huge"], "--preset"),
        (["--timeout", "0"], "--timeout = 0.0 is not allowed"),
        (["--address", "auto"], "add --engine ray"),
        (["--models", "nope/nope", "--only", "table1"], "nope/nope"),
        (["--models", ""], "--models"),
    ],
)
def test_bad_options_are_one_sentence_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["reproduce", "--out", str(tmp_path / "results"), *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_theory_is_decided_and_drawn_without_torch(tmp_path: Path) -> None:
    code = "import sys; from topicscope.cli import main; main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    words = ["reproduce", "--out", str(tmp_path / "results"), "--only", "figure6", "--quiet"]
    environment = os.environ | {"PYTHONPATH": str(Path(topicscope.__file__).parents[1])}
    assert subprocess.run([sys.executable, "-c", code, *words], env=environment, check=False).returncode == 0
    assert (tmp_path / "results" / "figures" / "figure6-10-2.png").exists()


@pytest.mark.slow
def test_results_do_not_depend_on_how_many_processes_train(tmp_path: Path) -> None:
    words = ["reproduce", "--only", "figure2", "--seeds", "2", "--quiet"]
    rows = []
    for workers in ("1", "2"):
        out = tmp_path / workers
        assert main([*words, "--out", str(out), "--workers", workers]) == 0
        rows.append([{**row, "seconds": 0} for row in json.loads((out / "claims.json").read_text())])
    assert rows[0] == rows[1]


@pytest.mark.slow
def test_killed_and_run_again_it_ends_with_the_same_claims(tmp_path: Path) -> None:
    words = ["reproduce", "--only", "figure2", "--seeds", "2", "--workers", "2", "--quiet"]
    assert main([*words, "--out", str(tmp_path / "whole")]) == 0
    for seconds in (6, 12):
        program = start_program(*words, "--out", str(tmp_path / "killed"))
        time.sleep(seconds)
        program.kill()
        program.communicate()
    assert main([*words, "--out", str(tmp_path / "killed")]) == 0
    first, second = (
        [{**row, "seconds": 0} for row in json.loads((tmp_path / name / "claims.json").read_text())]
        for name in ("whole", "killed")
    )
    assert first == second
