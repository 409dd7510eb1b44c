"""What should be known beside a probe's numbers: its corpus, what is left out, and its topics' quality."""

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
# Words that a note lists.
LISTED = 20


def probe_notes(corpora: Sequence[Row], rows: Sequence[Row]) -> list[str]:
    """Sentences from rows of corpus.json; with several tokenizers or lengths, each begins with the models it is for.

    rows: of probe.json, which say what each model was measured on.
    """
    return [
        (f"{_models(about, rows)}: " if len(corpora) > 1 else "") + sentence
        for about in corpora
        for sentence in _sentences(about)
    ]


def _sentences(about: Row) -> list[str]:
    size = f"{about['articles']:,} articles, {about['passages']:,} passages; measured on {about['measured']:,}"
    found = [f"{about['source']}: {size}.", *about["problems"]]
    if left_out := about["words_left_out"]:
        found.append(
            f'own topics: the tokenizer of "{about["tokenizer_name"]}" splits these words, which are left out: '
            f"{_listed(left_out)}."
        )
    if absent := about["words_without_attention"]:
        found.append(
            f"own topics: {len(absent):,} of {about['words']:,} words are in no passage that is measured, and have no "
            f"attention: {_listed(absent)}."
        )
    known = {name: value for name, value in (about["topic_quality"] or {}).items() if value is not None}
    if known:
        found.append("topics: " + ", ".join(f"{name} {value:.3f}" for name, value in known.items()) + ".")
    return found


def _listed(words: Sequence[str]) -> str:
    more = len(words) - LISTED
    return ", ".join(words[:LISTED]) + (f" and {more:,} more" if more > 0 else "")


def _models(about: Row, rows: Sequence[Row]) -> str:
    """``for bert and 2 more (tokenizer 0ca024b4, passages of 126 tokens)``."""
    ground = (about["tokenizer"], about["length"])
    alike = [row for row in rows if (row.get("tokenizer"), row.get("length")) == ground]
    names = list(dict.fromkeys(f"{row['model']} {row['revision']}".strip() for row in alike))
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"for {names[0] if names else 'no model'}{more} (tokenizer {ground[0][:8]}, passages of {ground[1]} tokens)"
