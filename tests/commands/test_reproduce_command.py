import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import topicscope
from support.helpers import start_program
from topicscope.cli import main
from topicscope.commands import reproduce as command
from topicscope.commands.reproduce import Reproduction
from topicscope.paper.claim import PRESETS, above, over_seeds, row
from topicscope.paper.registry import registry


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


def test_reproduce_prints_a_table_with_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--out", str(tmp_path / "results"), "--only", "remark8", "--quiet"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert "remark8/rank-corrected (check)" in output.out
    assert "the paper's: 1 holds, 1 fails." in output.out
    assert "remark8/rank fails (" in " ".join(output.out.split())


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
    output = capsys.readouterr().out
    assert "the paper's: 2 holds, 1 not run." in output
    assert "checks apart: 1 holds, 1 undecided, 1 not run." in " ".join(output.split())
    (line,) = [line for line in output.splitlines() if "Figure 9" in line]
    assert [cell.strip() for cell in line.split("│")[1:3]] == ["Figure 9", "2 holds, 1 not run"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "figure99"], '--only "figure99" is no claim'),
        (["--seeds", "0"], "--seeds = 0 is not allowed"),
        (["--preset", "huge"], "--preset"),
        (["--timeout", "0"], "--timeout = 0.0 is not allowed"),
        (["--address", "auto"], "add --engine ray"),
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
