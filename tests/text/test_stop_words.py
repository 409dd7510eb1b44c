"""Stop words go by the corpus's language, which its own stop words give away."""

from pathlib import Path

import pytest

from topicscope.errors import InputError
from topicscope.text.stop_words import LanguageGuess, stop_word_list

SENTENCES = {
    "en": "The committee said on Monday that it would not change the rules before the end of the year, although many "
    "members had asked for it.",
    "de": "Der Ausschuss sagte am Montag, dass er die Regeln nicht vor dem Ende des Jahres ändern werde, obwohl viele "
    "Mitglieder darum gebeten hatten.",
    "fr": "Le comité a déclaré lundi qu'il ne changerait pas les règles avant la fin de l'année, bien que de nombreux "
    "membres l'aient demandé.",
    "es": "El comité dijo el lunes que no cambiaría las reglas antes del final del año, aunque muchos "
    "miembros lo habían pedido.",
    None: "bana bene giri dolo fusu kana lene miri bolo dusu",
}


@pytest.mark.parametrize(("language", "text"), list(SENTENCES.items()))
def test_a_sentence_tells_its_language(language: str | None, text: str) -> None:
    guess = LanguageGuess()
    guess.see(text)
    assert guess.language() == language


def test_lists_go_by_language_name_and_file(tmp_path: Path) -> None:
    english, german = stop_word_list("auto", "en"), stop_word_list("auto", "de")
    assert english == stop_word_list("gensim") == stop_word_list("en") == stop_word_list("auto", None)
    assert "the" in english
    assert "the" not in german
    assert {"der", "und", "nicht"} <= german == stop_word_list("de")
    assert stop_word_list("none", "de") == frozenset()
    (tmp_path / "mine").write_text("Frog\n\ntoad \n")
    assert stop_word_list(str(tmp_path / "mine")) == {"frog", "toad"}
    with pytest.raises(InputError, match="give auto, gensim, none, the code of a language such as de, or a UTF-8 file"):
        stop_word_list(str(tmp_path / "other"))
