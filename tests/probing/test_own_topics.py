from pathlib import Path

import pytest

from support.planted import word_tokenizer
from topicscope.errors import InputError
from topicscope.probing.topics import read_own_topics

TOKENIZER = word_tokenizer(3, 3)


def written(folder: Path, *rows: str) -> Path:
    path = folder / "topics.csv"
    path.write_text("\n".join(("word,topic", *rows)), encoding="utf-8-sig")
    return path


def test_own_topics_label_the_words_that_are_kept_whole(tmp_path: Path) -> None:
    own, split_words = read_own_topics(
        written(tmp_path, "aax,first", "abx,first", "aaxs,first", "bax, second", "bbx,second"), TOKENIZER
    )
    assert own.topic_names == ("first", "second")
    assert own.tokens.tolist() == [TOKENIZER.token(word) for word in ("aax", "abx", "bax", "bbx")]
    assert own.topic.tolist() == [0, 0, 1, 1]
    assert split_words == ["aaxs"]
    assert (own.assignment, own.name) == ("one", "own/one")


def test_a_word_on_several_lines_has_several_topics(tmp_path: Path) -> None:
    own, _ = read_own_topics(written(tmp_path, "aax,first", "aax,second", "bax,second"), TOKENIZER)
    assert own.membership.tolist() == [[True, True], [False, True]]
    assert own.assignment == "several"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["aax,first", "abx,first", "xxs,second"], 'Topic "second" of .* has no word that the tokenizer'),
        (["aax,first", "abx,first"], "has 1 topic: give two or more"),
        (["aax,first", "bax,second"], "has no topic with two words"),
        (["aax,first", "abx,"], "line 3, has no topic"),
        (["aax,first", "abx"], "line 3, has no topic"),
        ([",first"], "line 2, has no word"),
        ([], "has 0 topics"),
        (['"aax,first'], "cannot be read"),
    ],
)
def test_own_topics_that_say_nothing_are_refused(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_own_topics(written(tmp_path, *rows), TOKENIZER)


def test_files_that_are_no_such_table_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "topics.csv"
    with pytest.raises(InputError, match="cannot be read"):
        read_own_topics(path, TOKENIZER)
    path.write_text("token;topic\nfrog;1\n")
    with pytest.raises(InputError, match="has the columns token;topic: give a CSV file with word and topic"):
        read_own_topics(path, TOKENIZER)
    path.write_bytes(b"word,topic\n\xff,1\n")
    with pytest.raises(InputError, match="cannot be read"):
        read_own_topics(path, TOKENIZER)
