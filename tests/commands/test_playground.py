import json
from dataclasses import replace
from pathlib import Path

import pytest

from topicscope.cli import main
from topicscope.commands.playground import page_settings
from topicscope.errors import InputError
from topicscope.papers.topic_structure.experiments import BIASED, ONE_HOT, UNIFORM, VALUE_FROZEN
from topicscope.settings import Data, Model, Settings, Training

EXAMPLE = Path(__file__).parents[2] / "examples/figure2.toml"
FIGURE_2 = Settings(data=Data(fresh=True), model=UNIFORM, training=Training(loss="squared", l2=1e-5))


def test_the_page_is_one_small_file_that_opens_on_the_setting_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new" / "page.html"
    assert main(["playground", str(EXAMPLE), "--out", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(file), "bytes": file.stat().st_size}
    assert file.stat().st_size < 300_000
    text = file.read_text(encoding="utf-8")
    policy = text.split('Content-Security-Policy" content="')[1].split('"')[0]
    assert "worker-src blob:" in policy
    assert "wasm-unsafe-eval" in policy
    assert "connect-src" not in policy
    assert policy.startswith("default-src &#39;none&#39;")
    given = json.loads(text.split('id="playground-settings">')[1].split("</script>")[0])
    assert given["parts"] == "uniform"
    assert given["l2"] == 1e-5
    assert main(["playground", "--out", str(file)]) == 0, "a page of ours may be written anew"


def test_parts_that_are_trained() -> None:
    models = {"all": ONE_HOT, "uniform": UNIFORM, "theorem": VALUE_FROZEN}
    assert [page_settings(replace(FIGURE_2, model=model))["parts"] for model in models.values()] == list(models)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (replace(FIGURE_2, model=BIASED), "model.key_bias.train = True is not allowed: the playground has False"),
        (replace(FIGURE_2, model=Model()), 'the playground has "identity"'),
        (replace(FIGURE_2, data=Data(topics=50, words=10)), "at most 256 words"),
        (replace(FIGURE_2, data=Data(length=(100, 500))), "longest = 500 is not allowed: the playground has 2 to 400"),
        (replace(FIGURE_2, data=Data(topic_words="topics.npy")), "data.topic_words is not allowed here"),
        (replace(FIGURE_2, training=Training(batch=1_000)), "1 to 200"),
        (replace(FIGURE_2, model=ONE_HOT, training=Training(schedule="two_stage")), 'the playground has "joint"'),
    ],
)
def test_what_the_page_cannot_train_is_refused(changed: Settings, words: str) -> None:
    with pytest.raises(InputError, match=words):
        page_settings(changed)


def test_bad_files_get_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "mine.html"
    other.write_text("<p>mine</p>")
    page, wrong = tmp_path / "page.html", tmp_path / "page.txt"
    for words in ([], ["--out", str(other)], ["--out", str(wrong)], ["none.toml", "--out", str(page)]):
        words = ["playground", *(words or [str(EXAMPLE), str(EXAMPLE), "--out", str(page)])]
        assert main(words) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert other.read_text() == "<p>mine</p>"
    assert not (tmp_path / "page.html").exists()
