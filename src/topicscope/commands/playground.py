"""``topicscope playground``: a page that trains the paper's transformer live in the browser."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float

from topicscope.commands.options import POSITIONAL, keywords, parse
from topicscope.commands.report import check_page, say_where
from topicscope.errors import InputError
from topicscope.settings import Settings
from topicscope.settings.toml import load_settings

DESCRIPTION = """A page that trains the paper's transformer live in any browser, with theory beside it.

Without a file it opens on the paper's Figure 2; with one, on that setting, which must
be eq. 7 with one-hot embeddings. The page needs no network.

examples:
  topicscope playground --out playground.html
  topicscope playground examples/figure2.toml --out figure2.html
"""

FILE = "playground.html"
# A browser trains no larger vocabulary at a speed that is worth watching; the page says so too.
MOST_WORDS, MOST_TOPICS, LONGEST, MOST_DOCUMENTS = 256, 64, 400, 200
# How far a topic-word matrix may be from one whose topics overlap alike: text files hold rounded numbers.
ROUNDING = 1e-6


def playground(settings: Settings | Path | str | None = None, *, out: Path | str = FILE) -> Path:
    """Write a page that trains live and opens on these settings, or those of a TOML file."""
    from topicscope.reporting.page import write_page
    from topicscope.reporting.playground import playground_html

    file = Path(out)
    check_page(file, FILE)
    if isinstance(settings, Path | str):
        settings = load_settings(Path(settings))
    write_page(playground_html(None if settings is None else page_settings(settings)), file)
    return file


def page_settings(settings: Settings) -> dict[str, Any]:
    """The settings by the page's names; refuse what the page cannot train."""
    data, masking, model, training = settings.documents, settings.masking, settings.model, settings.training
    topics, words, overlap = _topics(settings)
    _check_the_page_can(settings)
    return {
        "seed": settings.seed,
        "topics": topics,
        "words": words,
        "sampler": data.sampler,
        "per_document": min(data.per_document, topics),
        "dirichlet": data.dirichlet[0],
        "overlap": overlap,
        "shortest": data.length[0],
        "longest": data.length[1],
        **{name: getattr(masking, name) for name in ("mask", "keep", "random")},
        "masked_keys": model.masked_keys,
        **{
            name: getattr(training, name)
            for name in ("loss", "optimizer", "learning_rate", "adam_epsilon", "batch", "l2")
        },
        "scale": _scale(settings),
        "parts": _parts(settings),
    }


def _check_the_page_can(settings: Settings) -> None:
    data, model, training = settings.documents, settings.model, settings.training
    shortest, longest = data.length
    equation_7 = model.equation_7 and not model.dimension and not model.attention_dimension
    fixed = training.momentum == 0.9 and training.adam_betas == (0.9, 0.999)
    of_all = not training.l2 or set(model.trained_parts) <= set(training.l2_parts)
    few = training.batch <= MOST_DOCUMENTS
    own = training.average == "document"
    checks = {
        "model: the playground trains eq. 7, one layer and head with one-hot embeddings and no biases": equation_7,
        f"data.length: documents of the playground have 2 to {LONGEST} words": 2 <= shortest <= longest <= LONGEST,
        f"training.batch: the playground takes at most {MOST_DOCUMENTS} documents per step": few,
        "data.ends: documents of the playground have no START and END": not data.ends,
        "data.dirichlet: the playground has one number for all topics": len(set(data.dirichlet)) == 1,
        "training.average: the playground takes each document's mean over its own masked positions": own,
        "training.schedule: the playground trains all parts at once": training.schedule == "joint",
        "training.decay: the playground's learning rate is constant": training.decay == "constant",
        "training.optimizer: the playground has sgd, momentum and adam": training.optimizer != "adamw",
        "training.momentum and adam_betas: the playground has 0.9, and 0.9 with 0.999": fixed,
        "training.l2_parts: the playground applies L2 to everything that is trained": of_all,
        "masking.fixed: the playground draws fresh masks": not settings.masking.fixed,
    }
    for sentence, met in checks.items():
        if not met:
            raise InputError(f"{sentence}; change it, or train it with `topicscope train`.")


def _topics(settings: Settings) -> tuple[int, int, float]:
    """T, v and how far topics overlap; the topics of a topic-word matrix must overlap alike."""
    from topicscope.synthetic.topics import TopicModel, equal_topics

    matrix: Float[np.ndarray, "topic word"] = TopicModel.from_settings(settings.documents).topic_words
    topics, count = matrix.shape
    words, remainder = divmod(count, topics)
    overlap = 0.0
    if settings.documents.topic_words:
        overlap = round(float(matrix.min()) * count, 6)
        alike = not remainder and np.allclose(
            matrix, (1 - overlap) * equal_topics(topics, words) + overlap / count, rtol=0, atol=ROUNDING
        )
        if not alike:
            raise InputError(
                "data.topic_words is not allowed here: the words of each of the playground's topics are equally "
                "likely, and all topics give the same share of probability evenly to all words; use `topicscope train`."
            )
    if not (2 <= topics <= MOST_TOPICS and words <= MOST_TOPICS and count <= MOST_WORDS):
        raise InputError(
            f"data.topics = {topics} with data.words = {words} is not allowed here: the playground has 2 to "
            f"{MOST_TOPICS} topics and at most T·v = {MOST_WORDS} words; use `topicscope train` for more."
        )
    return topics, words, overlap


def _parts(settings: Settings) -> str:
    parts = [settings.model.part(name) for name in ("value", "key", "query")]
    trained, starts = tuple(part.train for part in parts), [part.start for part in parts]
    if settings.model.uniform and trained[0] and starts[0] == "normal":
        return "uniform"
    names: dict[tuple[tuple[bool, ...], str], str] = {
        ((True, True, True), "normal"): "all",
        ((True, False, False), "normal"): "value",
        ((False, True, True), "theorem"): "theorem",
    }
    name = names.get((trained, starts[0])) if starts[1:] == ["normal", "normal"] else None
    if name is None:
        raise InputError(
            "model.value, model.key, model.query: the playground trains all three from normal starts; W^V with key and "
            "query at zero; W^V alone; or key and query with value.start = theorem; use `topicscope train` for others."
        )
    return name


def _scale(settings: Settings) -> float:
    """The scale that all drawn matrices share."""
    parts = [settings.model.part(name) for name in ("value", "key", "query")]
    scales = {part.scale for part in parts if part.start == "normal"}
    if len(scales) > 1:
        raise InputError("model.*.scale: the playground draws all matrices at one scale; give them the same.")
    return scales.pop() if scales else Settings().model.value.scale


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    settings: Annotated[Path | None, POSITIONAL] = None
    """A TOML file with the setting to open on; by default the paper's Figure 2."""

    out: Path = Path(FILE)
    """The file to write."""

    json: bool = False
    """Print the file's path and size as JSON."""


def main(words: list[str]) -> None:
    """Parse, write, print where the page is."""
    options = parse(Options, words, command="playground", description=DESCRIPTION)
    say_where(playground(**keywords(options)), as_json=options.json)
