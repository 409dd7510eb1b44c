"""Whatever models, corpora and folders of earlier work are like, a study ends in success or in one sentence."""

import bz2
import gzip
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from support.fuzzing import run
from support.small_probe import write_tiny
from support.spoilt import Spoilt, check_files

pytest.importorskip("transformers")
pytest.importorskip("tomotopy")

SMALL = [
    *("--topics=3", "--fractions=0.2", "--fits=1", "--iterations=5", "--length=20", "--replicates=10"),
    *("--permutations=9", "--head-permutations=9", "--workers=1", "--device=cpu", "--quiet"),
]
OF_LDA = ("--topics=3", "--fits=1", "--iterations=5")
PROBE = ["probe", "bert", "--corpus=corpus.txt", "--out=new", *SMALL]
AGAIN = ["probe", "bert", "--corpus=corpus.txt", "--out=probed", *SMALL]
FROM = [
    *("probe", "bert", "--corpus=corpus.txt", "--out=new", "--topics-from=FOLDER"),
    *(word for word in SMALL if word not in OF_LDA),
]
TRAIN = [
    *("train", "--out=new", "--data.corpus=FILE", "--data.vocabulary=80", "--data.length=12", "--model.layers=1"),
    *("--model.heads=2", "--model.width=8", "--model.feed-forward=12", "--training.batch=6", "--training.steps=1"),
    *("--training.validate-every=0", "--training.measures=0", "--device=cpu", "--quiet"),
]
REPRODUCE = ["reproduce", "--out=FOLDER", "--seeds=2", "--workers=1", "--quiet"]

FILES = {
    "json of a model": Spoilt(
        "json",
        {"bert/config.json": [PROBE], "bert/tokenizer.json": [PROBE], "bert/tokenizer_config.json": [PROBE]},
        cases=60,
    ),
    "weights of a model": Spoilt("safetensors", {"bert/model.safetensors": [PROBE]}, cases=30),
    "json of a probe": Spoilt(
        "json",
        {f"probed/{name}.json": [AGAIN] for name in ("probe-settings", "probe", "words", "corpus")},
        cases=50,
    ),
    "topics of a probe": Spoilt("safetensors", {"topics/topics.safetensors": [FROM]}, cases=30),
    "tables of a probe": Spoilt(
        "csv", {"probed/topics.csv": [AGAIN], "words.csv": [[*PROBE, "--word-topics=FILE"]]}, cases=30
    ),
    "json of results": Spoilt(
        "json", {"results/settings.json": [REPRODUCE], "results/claims.json": [REPRODUCE]}, cases=50
    ),
    "corpora in JSON": Spoilt("json", {"corpus.jsonl": [TRAIN]}, cases=50),
    "corpora in tables": Spoilt("csv", {"corpus.csv": [TRAIN]}, cases=40),
    "corpora in bytes": Spoilt(
        "npz",
        {name: [TRAIN] for name in ("corpus.txt", "corpus.txt.gz", "corpus.txt.bz2", "corpus.zip", "corpus.parquet")},
        cases=100,
    ),
}


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory, quick: None) -> Path:
    """A model, a corpus in several formats, and folders of finished work."""
    import pyarrow
    import pyarrow.parquet

    folder = tmp_path_factory.mktemp("material")
    write_tiny(folder)
    shutil.rmtree(folder / "gpt2")
    content = (folder / "corpus.txt").read_text()
    documents = [{"title": f"{place}", "text": text} for place, text in enumerate(content.splitlines())]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(each) + "\n" for each in documents))
    (folder / "corpus.csv").write_text(
        "".join(["title,text\n", *("{title},{text}\n".format(**each) for each in documents)])
    )
    (folder / "corpus.txt.gz").write_bytes(gzip.compress(content.encode(), mtime=0))
    (folder / "corpus.txt.bz2").write_bytes(bz2.compress(content.encode()))
    with zipfile.ZipFile(folder / "corpus.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("corpus.txt", content)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(documents), folder / "corpus.parquet")
    for words in (AGAIN, [word.replace("FOLDER", "results") for word in REPRODUCE]):
        ended = run(words, folder)
        assert ended.code == 0, ended.errors
    [topics] = (folder / "probed").glob("topics-*")
    shutil.copytree(topics, folder / "topics")
    shutil.copy(folder / "probed" / "topics.csv", folder / "words.csv")
    return folder


@pytest.mark.parametrize("what", FILES)
@pytest.mark.usefixtures("quick")
def test_a_few_spoilt_models_corpora_and_folders(what: str, material: Path, tmp_path: Path) -> None:
    check_files(FILES[what], 2, material, tmp_path / "here")


@pytest.mark.slow
@pytest.mark.parametrize("what", FILES)
@pytest.mark.usefixtures("quick", "as_users_run_it")
def test_many_spoilt_models_corpora_and_folders(
    what: str, material: Path, tmp_path: Path, record_property: Any
) -> None:
    counts = check_files(FILES[what], FILES[what].cases, material, tmp_path / "here")
    record_property("fuzzed", json.dumps(counts.endings))
