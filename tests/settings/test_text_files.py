"""Files that settings of a run on text name: found from any folder."""

from pathlib import Path

import pytest

from support.text_corpus import small_text_settings, write_corpus
from topicscope.errors import InputError
from topicscope.settings.text import PACKAGED, TextSettings, found_from, with_absolute_paths
from topicscope.settings.toml import load_any_settings
from topicscope.text.corpora import SAMPLE
from topicscope.text.tokenizers import MINILM


def loaded(path: Path) -> TextSettings:
    settings = load_any_settings(path)
    assert isinstance(settings, TextSettings)
    return settings


def test_a_corpus_and_tokenizer_beside_a_toml_file_are_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, toml = write_corpus(tmp_path), tmp_path / "settings.toml"
    (tmp_path / "own").mkdir()
    toml.write_text('[data]\ncorpus = "corpus.txt"\ntokenizer = "own"\n')
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert loaded(Path("../settings.toml")).data.corpus == str(corpus)
    assert loaded(toml).data.tokenizer == str(tmp_path / "own")
    # What is not beside the file is left as it is: it may be found from here, or on the hub.
    toml.write_text('[data]\ncorpus = "other.txt"\ntokenizer = "bert-base-uncased"\n')
    assert loaded(toml).data.corpus == "other.txt"
    assert loaded(toml).data.tokenizer == "bert-base-uncased"


def test_names_of_packages_are_never_taken_for_folders(tmp_path: Path) -> None:
    assert PACKAGED == {"corpus": SAMPLE, "tokenizer": MINILM}
    for name in (SAMPLE, MINILM, "mine"):
        (tmp_path / name).mkdir()
    assert found_from(tmp_path, {"corpus": SAMPLE, "tokenizer": MINILM}) == {}
    assert found_from(tmp_path, {"corpus": "mine"}) == {"corpus": str(tmp_path / "mine")}
    # A tokenizer is a folder, a corpus may be a file.
    (tmp_path / "file").touch()
    assert found_from(tmp_path, {"corpus": "file", "tokenizer": "file"}) == {"corpus": str(tmp_path / "file")}


def test_a_run_on_a_corpus_by_its_relative_name_is_resumed_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    from topicscope.training.text import train_on_text as train

    corpus, out = write_corpus(tmp_path), tmp_path / "run"
    monkeypatch.chdir(tmp_path)
    settings = small_text_settings("corpus.txt", training={"steps": 1, "measures": 0})
    train(settings, out)
    assert loaded(train(settings, out, resume=True).settings_path).data.corpus == str(corpus)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert train(loaded(out / "settings.toml"), out, resume=True).settings().training.steps == 1
    with pytest.raises(InputError, match=r"data\.corpus"):
        train(settings, out, resume=True)
    assert with_absolute_paths(settings) == settings
