"""What training on text refuses, and that it leaves folders as they were."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.text_corpus import contents, small_text_settings, trained
from topicscope.errors import InputError
from topicscope.training.loop import train

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"vocabulary": 5_000}}, r"data.vocabulary = 5000 .* supports \d+ tokens at most"),
        ({"data": {"vocabulary": 20}}, r"data.vocabulary = 20 .* letters alone take \d+"),
        ({"data": {"length": 1}}, "data.length = 1 .* 2 tokens or more"),
        ({"data": {"corpus": ""}}, 'data.corpus = "" .* name a corpus'),
        ({"data": {"held_out": 1.0}}, "data.held_out = 1.0"),
        ({"data": {"tokenizer": "minilm", "vocabulary": 70}}, "data.tokenizer has a vocabulary already"),
        ({"data": {"corpsu": "x"}}, "data.corpsu is not a setting: did you mean data.corpus?"),
        ({"model": {"heads": 3}}, "model.heads = 3 .* must divide model.width = 8"),
        ({"model": {"scale": -1.0}}, "model.scale = -1.0"),
        ({"training": {"accumulate": 7}}, "training.accumulate = 7 .* only training.batch = 6"),
        ({"training": {"batch": 0}}, "training.batch = 0"),
        ({"masking": {"fixed": True}}, "masking.fixed"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(
    changes: dict[str, Any], message: str, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        train(small_text_settings(corpus, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").iterdir())


def test_bad_input_leaves_an_empty_folder_empty_and_others_as_they_were(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, out = small_text_settings(corpus), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("topicscope.training.machine.available_bytes", lambda: 10_000)
        with pytest.raises(InputError, match=r"lower the vocabulary \(80 tokens\)"):
            trained(settings, out)
    assert not list(out.iterdir())
    before = contents(trained(settings, out).path)
    other = small_text_settings(corpus, data={"vocabulary": 5_000})
    with pytest.raises(InputError, match="is not empty"):
        trained(other, out)
    with pytest.raises(InputError, match=r"data\.vocabulary"):
        trained(other, out, resume=True)
    assert contents(out) == before


def test_a_corpus_of_single_words_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("a\nb\nc\n")
    with pytest.raises(InputError, match="has no passage of 2 tokens or more"):
        train(small_text_settings(path, data={"vocabulary": 11}), tmp_path / "run")


@pytest.mark.parametrize("missing", ["mask", "cls"])
def test_a_tokenizer_without_a_special_token_is_refused(missing: str, corpus: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    run = trained(small_text_settings(corpus, training={"steps": 1}), tmp_path / "run")
    tokenizer: Any = AutoTokenizer.from_pretrained(run.tokenizer_path)
    tokenizer.save_pretrained(tmp_path / "without")
    path = tmp_path / "without" / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config[f"{missing}_token"]
    path.write_text(json.dumps(config))
    table = {"tokenizer": str(tmp_path / "without"), "vocabulary": 8_000}
    with pytest.raises(InputError, match=f"has no {missing} token"):
        train(small_text_settings(corpus, data=table), tmp_path / "other")
    whole = {"tokenizer": str(run.tokenizer_path), "vocabulary": 8_000}
    again = train(small_text_settings(corpus, data=whole, training={"steps": 1}), tmp_path / "given")
    assert again.metrics()[-1]["loss"] == run.metrics()[-1]["loss"]
