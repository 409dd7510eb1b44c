import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.helpers import small_settings
from topicscope.errors import InputError
from topicscope.settings import TEXT_MODEL, TEXT_TRAINING, Masking, Settings, TextData
from topicscope.settings.toml import (
    PACKAGED,
    comparable,
    dump_settings,
    load_settings,
    settings_from_table,
    with_absolute_paths,
)
from topicscope.text.corpora import SAMPLE
from topicscope.text.tokenizers import MINILM


def test_settings_survive_toml() -> None:
    settings = small_settings(model={"value": {"start": "theorem", "train": False}}, training={"l2": 0.5})
    assert settings_from_table(tomllib.loads(dump_settings(settings))) == settings


def test_what_the_released_code_does_differently_survives_toml() -> None:
    settings = small_settings(
        model={
            "token_types": 1.0,
            "embedding_norm": True,
            "tied": False,
            "prediction": {"start": "uniform", "train": False},
            "value": {"start": "positive", "scale": 0.001},
        },
    )
    assert settings_from_table(tomllib.loads(dump_settings(settings))) == settings
    assert "prediction" not in settings.model.trained_parts
    assert {"token_types", "embedding_norm"} <= set(settings.model.trained_parts)


def test_files_named_in_toml_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[data]\ntopic_words = "matrix.npy"\n')
    assert load_settings(tmp_path / "run.toml").documents.topic_words == str(tmp_path / "matrix.npy")


def test_settings_are_compared_by_name_and_files_by_their_content(tmp_path: Path) -> None:
    changed = comparable(small_settings(data={"topics": 4}, training={"learning_rate": 0.5}))
    others = comparable(small_settings())
    assert {name for name in others if changed[name] != others[name]} == {"data.topics", "training.learning_rate"}
    tables = {}
    for name, size in (("first", 7), ("copy", 7), ("other", 8)):
        np.save(tmp_path / name, np.eye(size))
        part = {"start": "file", "file": str(tmp_path / f"{name}.npy")}
        tables[name] = comparable(small_settings(model={"value": part}))
    assert tables["first"] == tables["copy"] != tables["other"]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"masking": {"keep": 0.6, "random": 0.5}}, "masking.keep + masking.random = 1.1"),
    ({"masking": {"mask": 1.5}}, "masking.mask = 1.5"),
    ({"masking": {"mask": float("nan")}}, "masking.mask = nan"),
    ({"masking": {"mask": 0.0}}, "masking.mask = 0.0"),
    ({"masking": {"random": -0.1}}, "masking.random = -0.1"),
    ({"data": {"sampler": "topics", "per_document": 4}}, "data.per_document = 4"),
    ({"data": {"topics": 0}}, "data.topics = 0"),
    ({"data": {"words": 0}}, "data.words = 0"),
    ({"data": {"length": [0, 3]}}, "data.length = [0, 3]"),
    ({"data": {"length": [9, 4]}}, "data.length = [9, 4]"),
    ({"data": {"length": [9]}}, "data.length = [9]"),
    ({"data": {"dirichlet": [0.1, 0.2]}}, "data.dirichlet = [0.1, 0.2]"),
    ({"data": {"dirichlet": [-1.0]}}, "data.dirichlet = [-1.0]"),
    (
        {"data": {"dirichlet": [1e308]}},
        "data.dirichlet = [1e+308] is not allowed: give numbers from 1e-100 up, with a sum",
    ),
    ({"data": {"dirichlet": []}}, "data.dirichlet = []"),
    ({"data": {"sampler": "lda"}}, 'data.sampler = "lda"'),
    ({"data": {"topcs": 3}}, "did you mean data.topics?"),
    ({"modle": {}}, "did you mean model?"),
    ({"data": {"topics": "three"}}, 'data.topics = "three"'),
    ({"data": {"topics": True}}, "data.topics = True"),
    ({"data": 3}, "data = 3"),
    ({"model": {"embedding": {"start": "identity"}, "dimension": 5}}, "model.dimension = 5"),
    ({"model": {"heads": 2, "dimension": 5}}, "model.heads = 2"),
    ({"model": {"heads": 2}}, "model.heads = 2"),
    ({"model": {"value": {"start": "file"}}}, "model.value.file"),
    ({"training": {"learning_rate": 0.0}}, "training.learning_rate = 0.0"),
    ({"training": {"l2": -1.0}}, "training.l2 = -1.0"),
    ({"training": {"steps": 0}}, "training.steps = 0"),
    ({"training": {"batch": 0}}, "training.batch = 0"),
    ({"seed": -1}, "seed = -1"),
    ({"masking": {"mask": 1.0}, "model": {"masked_keys": "hidden"}}, "masking.mask = 1.0"),
    ({"masking": {"mask": 1e-6}}, "masking.mask = 1e-06"),
    ({"masking": {"fixed": True}, "data": {"fresh": True}}, "masking.fixed = True"),
    ({"data": {"topic_words": "matrix.npy"}}, "data.topics = 3"),
    ({"data": {"per_document": 5}}, "data.per_document = 5"),
    ({"data": {"length": [1, 3_000_000_000]}}, "data.length = [1, 3000000000]"),
    ({"training": {"adam_betas": [0.9, 1.0]}}, "training.adam_betas = [0.9, 1.0]"),
    ({"training": {"stage_steps": 10**6}}, "training.stage_steps"),
    ({"learning_rate": 0.1}, "did you mean training.learning_rate?"),
    ({"model": {"value": {"start": "finite"}, "masked_keys": "hidden"}}, "model.value.start"),
    ({"model": {"prediction": {"start": "identity"}}}, "set model.tied to false"),
    ({"model": {"tied": False, "prediction": {"start": "theorem"}}}, "model.prediction.start"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_bad_settings_are_refused_in_one_sentence_that_names_them(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        small_settings(**changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_freezing_everything_is_refused() -> None:
    parts = ("embedding", "value", "key", "query", "key_bias", "query_bias", "value_bias", "prediction_bias")
    with pytest.raises(InputError, match="every part is frozen"):
        small_settings(model={name: {"train": False} for name in parts})
    small_settings(model={name: {"train": False} for name in parts[1:]})


def test_training_what_uniform_attention_ignores_is_refused() -> None:
    frozen = {name: {"train": False} for name in ("embedding", "value", "key_bias", "value_bias", "prediction_bias")}
    zero_key = frozen | {"key": {"start": "zero", "train": False}}
    with pytest.raises(InputError, match="attention is uniform"):
        small_settings(model=zero_key)
    small_settings(model=zero_key | {"value": {"train": True}})
    with pytest.raises(InputError, match=r"training\.schedule"):
        small_settings(model=zero_key | {"value": {"train": True}}, training={"schedule": "two_stage"})


@pytest.mark.parametrize("schedule", ["two_stage", "alternating"])
def test_stages_need_something_to_train_in_each(schedule: str) -> None:
    frozen = {name: {"train": False} for name in ("key", "query", "key_bias", "query_bias")}
    with pytest.raises(InputError, match=r"training\.schedule"):
        small_settings(model=frozen, training={"schedule": schedule})
    small_settings(training={"schedule": schedule})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data]\ntopics = \n", "line 2"),
        ("[data\n", "line 1"),
        ("[data]\nlength = [1,", "line 2"),
        ("\x80", "not UTF-8"),
    ],
)
def test_toml_that_does_not_parse_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=message):
        load_settings(path)


def test_settings_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.toml"):
        load_settings(tmp_path / "nowhere.toml")


def test_shares_of_kept_and_random_words_that_add_up_to_one_leave_exactly_nothing_for_mask() -> None:
    pairs = [(k / 100, (100 - k) / 100) for k in range(101)]
    assert all(Masking(keep=keep, random=random).replaced == 0 for keep, random in pairs)
    # Control: rounding makes some of these differences positive, and a small share that is meant is kept.
    assert any(1.0 - keep - random > 0 for keep, random in pairs)
    assert Masking(keep=0.7, random=0.3 - 1e-9).replaced == pytest.approx(1e-9)


def test_a_sentence_about_a_setting_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[training]\nstepz = 3\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"mine\.toml: training\.stepz is not a setting: did you mean training\.steps"):
        load_settings(path)
    with pytest.raises(InputError, match=r"^training\.stepz"):
        settings_from_table({"training": {"stepz": 3}})


# Settings of runs on text.


def test_text_has_its_own_defaults_which_what_is_left_out_keeps() -> None:
    settings = settings_from_table({"data": {"corpus": "x"}, "model": {"layers": 2}, "training": {"batch": 3}})
    assert settings.data == TextData(corpus="x")
    assert settings.model == replace(TEXT_MODEL, layers=2)
    assert settings.training == replace(TEXT_TRAINING, batch=3)
    assert Settings(data=TextData(corpus="x")).model == TEXT_MODEL != Settings().model
    with pytest.raises(InputError, match=r'data.corpus = "x" is not allowed here: .* not about a run on text'):
        _ = settings.documents


def test_a_corpus_and_tokenizer_beside_a_toml_file_are_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corpus.txt").touch()
    toml = tmp_path / "settings.toml"
    for name in ("own", "elsewhere", SAMPLE, MINILM):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    def loaded(corpus: str, tokenizer: str, path: Path = toml) -> tuple[str, str]:
        toml.write_text(f'[data]\ncorpus = "{corpus}"\ntokenizer = "{tokenizer}"\n')
        data = load_settings(path).data
        assert isinstance(data, TextData)
        return data.corpus, data.tokenizer

    found = str(tmp_path / "corpus.txt"), str(tmp_path / "own")
    assert loaded("corpus.txt", "own") == loaded("corpus.txt", "own", Path("../settings.toml")) == found
    # What is not beside the file is left as it is: it may be found from here, or on the hub. A tokenizer is a folder.
    assert loaded("other.txt", "corpus.txt") == ("other.txt", "corpus.txt")
    # Names of packages are never taken for folders.
    assert {"data.corpus": SAMPLE, "data.tokenizer": MINILM} == PACKAGED
    assert loaded(SAMPLE, MINILM) == (SAMPLE, MINILM)
    monkeypatch.chdir(tmp_path)
    relative = Settings(data=TextData(corpus="corpus.txt"))
    assert with_absolute_paths(relative).data == TextData(corpus=found[0])
    assert with_absolute_paths(with_absolute_paths(relative)) == with_absolute_paths(relative)
