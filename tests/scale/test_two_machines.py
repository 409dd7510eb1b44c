"""A Ray cluster of two machines, as far as one computer can have them: two raylets with an object store each, on two
addresses of its loopback, and a disk that they share but for folders hidden from one of them."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support import scale_work
from support.helpers import SMALL, overlay, start_program, start_python
from support.ray_cluster import LONGEST_WAIT, Cluster, cluster_of, hiding_is_possible, wait_for
from support.scale_work import calls, finished
from support.small_probe import SMALL as SMALL_PROBE
from support.small_probe import WORDS, without
from support.small_sweeps import small_sweep
from support.tiny_models import save_tiny, save_tokenizer
from topicscope.settings.sweep import dump_sweep

# Small versions, without a Ray: test_ray_engine.py.
pytestmark = pytest.mark.slow

# The address of the machine that joins first.
SECOND = "127.0.0.3"
REPRODUCE = """
import sys
from pathlib import Path
from support.small_registry import SMALL
from topicscope.commands import reproduce as command
command.registry = lambda preset: SMALL
engine, address = (sys.argv[2], sys.argv[3]) if len(sys.argv) > 2 else ("local", None)
command.reproduce(Path(sys.argv[1]), seeds=2, engine=engine, address=address)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two machines of one core."""
    with cluster_of(1, RAY_AUTH_MODE="disabled") as cluster:
        cluster.join("second")
        yield cluster


def on(cluster: Cluster) -> tuple[str, ...]:
    return ("--engine", "ray", "--address", cluster.address)


def start_map(folder: Path, cluster: Cluster, function: str = "held", count: int = 6) -> "subprocess.Popen[str]":
    """A map of items, of which the third and those after it wait for the file ``go``."""
    folder.mkdir(exist_ok=True)
    words = (scale_work.__file__, function, "ray", "2", str(folder), str(count), cluster.address)
    return start_python(*words, **cluster.environment)


def ended(program: "subprocess.Popen[str]") -> tuple[str, str]:
    """What it printed, and its errors."""
    try:
        return program.communicate(timeout=LONGEST_WAIT)
    finally:
        program.kill()


def machines(folder: Path) -> set[str]:
    """That compute what is held."""
    return {path.read_text() for path in folder.glob("machine-of-*")} - {""}


def files(folder: Path, *patterns: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for pattern in patterns
        for path in sorted(folder.glob(pattern))
        if path.is_file()
    }


def untimed(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_items_are_computed_on_both_machines(tmp_path: Path, cluster: Cluster) -> None:
    program = start_map(tmp_path, cluster)
    wait_for(lambda: len(machines(tmp_path)) == 2, program)
    (tmp_path / "go").touch()
    output, errors = ended(program)
    assert output.endswith(" 6\n"), errors
    assert calls(tmp_path) == [0, 1, 2, 3, 4, 5]


def test_a_sweep_has_the_runs_of_the_local_engine_to_the_byte(tmp_path: Path, cluster: Cluster) -> None:
    (tmp_path / "sweep.toml").write_text(dump_sweep(small_sweep(seeds=(0, 3))))
    for name, where in (("local", ()), ("ray", on(cluster))):
        words = (str(tmp_path / "sweep.toml"), "--out", str(tmp_path / name), "--quiet", *where)
        assert ended(start_program("sweep", *words, **cluster.environment)) == ("", "")
    local, ray = (files(tmp_path / name, "runs/**/*") for name in ("local", "ray"))
    assert local == ray
    assert sum(name.endswith("metrics.jsonl") for name in ray) == 8
    assert len({content for name, content in ray.items() if name.endswith("metrics.jsonl")}) == 8


def test_a_trained_claim_has_the_numbers_of_the_local_engine(tmp_path: Path, cluster: Cluster) -> None:
    claims = []
    for name, where in (("local", ()), ("ray", ("ray", cluster.address))):
        _, errors = ended(start_python("-c", REPRODUCE, str(tmp_path / name), *where, **cluster.environment))
        assert "Traceback" not in errors, errors
        claims.append(untimed(json.loads((tmp_path / name / "claims.json").read_text())))
    assert claims[0] == claims[1]
    assert [row["verdict"] for row in claims[0]] == ["holds"] * 3
    drawn = [files(tmp_path / name, "figures/*.csv", "figures/*.svg") for name in ("local", "ray")]
    assert drawn[0] == drawn[1] != {}


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus and a model, each in a folder that can be hidden."""
    folder = tmp_path_factory.mktemp("material")
    (folder / "corpus").mkdir()
    draw = np.random.default_rng(0)
    halves = np.array_split(np.array(WORDS), 2)
    lines = [" ".join(draw.choice(halves[number % 2], size=60)) for number in range(40)]
    (folder / "corpus" / "corpus.txt").write_text("\n".join(lines) + "\n")
    save_tiny("bert", folder / "bert")
    save_tokenizer(folder / "bert", WORDS)
    return folder


def probe(material: Path, out: Path, *where: str, **environment: str) -> "subprocess.Popen[str]":
    model, corpus = str(material / "bert"), str(material / "corpus" / "corpus.txt")
    words = (model, f"random:{model}", "--corpus", corpus, "--out", str(out), "--quiet")
    return start_program("probe", *words, *without(SMALL_PROBE, {"--workers"}), *where, **environment)


def test_a_probe_has_the_rows_of_the_local_engine_though_one_machine_lacks_the_corpus(
    tmp_path: Path, material: Path
) -> None:
    needs_own_disks()
    with cluster_of(1, RAY_AUTH_MODE="disabled") as cluster:
        cluster.join("second", hidden=[material / "corpus"])
        for name, where in (("local", ()), ("ray", on(cluster))):
            program = probe(material, tmp_path / name, *where, **cluster.environment)
            assert ended(program)[1] == ""
            assert program.returncode == 0
    local, ray = (files(tmp_path / name, "*.json", "*.csv", "topics-*/*") for name in ("local", "ray"))
    assert local == ray
    assert "probe.json" in ray


def test_what_a_machine_lacks_on_its_disk_is_one_sentence(tmp_path: Path, material: Path) -> None:
    needs_own_disks()
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (tmp_path / "sweep.toml").write_text(dump_sweep(small_sweep(seeds=(0, 3))))
    # The head has no core, so that all is computed on the other machine.
    with cluster_of(0, RAY_AUTH_MODE="disabled") as cluster:
        cluster.join("second", hidden=[hidden, material / "bert"])
        without_folder = start_program(
            "sweep", str(tmp_path / "sweep.toml"), "--out", str(hidden / "out"), *on(cluster), **cluster.environment
        )
        assert ended(without_folder)[1].splitlines()[-1].endswith("use a folder on a disk that all workers share.")
        assert without_folder.returncode == 4
        without_model = probe(material, tmp_path / "probe", *on(cluster), **cluster.environment)
        _, errors = ended(without_model)
        assert without_model.returncode == 2, errors
        assert errors.startswith(f"topicscope: model {material / 'bert'} cannot be loaded")
        assert errors.count("\n") == 1


def needs_own_disks() -> None:
    if not hiding_is_possible():
        pytest.skip("no machine can have a disk of its own here: this process may mount nothing")


def test_a_machine_that_dies_costs_only_what_it_had_under_way(tmp_path: Path) -> None:
    with cluster_of(1, RAY_AUTH_MODE="disabled") as cluster:
        cluster.join("second")
        program = start_map(tmp_path, cluster)
        wait_for(lambda: len(machines(tmp_path)) == 2 and finished(tmp_path) == [0, 1], program)
        lost = next(number for number in (2, 3) if (tmp_path / f"machine-of-{number}").read_text() == SECOND)
        cluster.kill("second")
        (tmp_path / "go").touch()
        output, errors = ended(program)
        assert output.endswith(" 6\n"), errors
    assert calls(tmp_path) == sorted([0, 1, 2, 3, 4, 5, lost])


def test_a_machine_that_joins_late_is_given_work(tmp_path: Path) -> None:
    with cluster_of(1, RAY_AUTH_MODE="disabled") as cluster:
        program = start_map(tmp_path, cluster)
        wait_for(lambda: len(machines(tmp_path)) == 1, program)
        assert (tmp_path / "machine-of-2").exists() != (tmp_path / "machine-of-3").exists()
        cluster.join("second")
        wait_for(lambda: SECOND in machines(tmp_path), program)
        (tmp_path / "go").touch()
        output, errors = ended(program)
        assert output.endswith(" 6\n"), errors
    assert calls(tmp_path) == [0, 1, 2, 3, 4, 5]


def test_a_sweep_that_loses_its_head_ends_with_one_sentence_and_exit_code_4_and_goes_on_when_it_is_back(
    tmp_path: Path,
) -> None:
    # Some seconds per group, so that the head dies while both machines work.
    settings = overlay(SMALL, {"training": {"steps": 3000}})
    sweep = small_sweep(settings=settings, vary={"training.learning_rate": (0.01, 0.1)}, seeds=(0, 3, 4), together=1)
    (tmp_path / "sweep.toml").write_text(dump_sweep(sweep))
    where = ("--out", str(tmp_path / "out"), "--quiet")
    patience = {"RAY_gcs_rpc_server_reconnect_timeout_s": "60"}
    with cluster_of(1, RAY_AUTH_MODE="disabled", **patience) as cluster:
        cluster.join("second")
        program = start_program("sweep", str(tmp_path / "sweep.toml"), *where, *on(cluster), **cluster.environment)
        wait_for(lambda: any((tmp_path / "out" / "work").glob("*.sha256")), program)
        cluster.kill("head")
        output, errors = ended(program)
        assert (program.returncode, output) == (4, ""), errors
        last = errors.rstrip("\n").splitlines()[-1]
        assert last.startswith("topicscope: The head of the Ray cluster at "), errors
        # Ray may know it by another address of this computer.
        assert f":{cluster.address.rpartition(':')[2]} is gone; what was finished is kept" in last
        assert last.endswith("start the cluster and run it again.")
        assert "Traceback" not in errors
        cluster.kill("second")
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "work").glob("*.sha256")}
        assert 0 < len(before) < 6
        cluster.start_head(1)
        cluster.join("second")
        again = start_program("sweep", *where, "--resume", *on(cluster), **cluster.environment)
        assert ended(again) == ("", "")
        assert again.returncode == 0
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "work").glob("*.sha256")}
    assert len(after) == 6
    assert before.items() <= after.items()
    assert (tmp_path / "out" / "sweep.csv").read_text().count("\n") == 7


def test_after_a_restart_of_the_head_nothing_finished_is_done_again(tmp_path: Path) -> None:
    # As long as it is by default: after it Ray itself would end the program, with a line of its own.
    patience = {"RAY_gcs_rpc_server_reconnect_timeout_s": "60"}
    with cluster_of(1, RAY_AUTH_MODE="disabled", **patience) as cluster:
        cluster.join("second")
        program = start_map(tmp_path, cluster)
        wait_for(lambda: len(machines(tmp_path)) == 2 and finished(tmp_path) == [0, 1], program)
        cluster.kill("head")
        _, errors = ended(program)
        # Of a command that is one sentence, and exit code 4.
        last = errors.rstrip().splitlines()[-1]
        assert last.startswith("topicscope.errors.LostWorkError: The head of the Ray cluster at "), errors
        assert "what was finished is kept" in last
        assert "Failed to connect to GCS" not in errors
        cluster.kill("second")
        cluster.start_head(1)
        cluster.join("second")
        (tmp_path / "go").touch()
        output, errors = ended(start_map(tmp_path, cluster))
        assert output.endswith(" 6\n"), errors
    assert calls(tmp_path) == [0, 1, 2, 2, 3, 3, 4, 5]
