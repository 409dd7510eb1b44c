"""``topicscope playground``: a page that trains the paper's transformer live in the browser."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from topicscope.commands.options import POSITIONAL, keywords, parse
from topicscope.commands.report import check_page, print_page
from topicscope.errors import InputError, refuse, shown
from topicscope.settings import BIASES, Model, Part, Settings, Training
from topicscope.settings.model import Start
from topicscope.settings.toml import flat, load_settings, to_table

DESCRIPTION = """A page that trains the paper's transformer live in any browser, with theory beside it.

Without a file it opens on the paper's Figure 2; with one, on that setting, which must
be eq. 7 with one-hot embeddings. The page needs no network.

examples:
  topicscope playground --out playground.html
  topicscope playground examples/figure2.toml --out figure2.html
"""

FILE = "playground.html"
# A browser trains nothing larger at a speed that is worth watching; the page says so too.
MOST_WORDS = 256
LIMITS = {"topics": (2, 64), "words": (1, 64), "shortest": (2, 400), "longest": (2, 400), "batch": (1, 200)}
# What the page can train: how W^V, W^K and W^Q start, and which of them are trained.
TRAINED: dict[str, tuple[tuple[Start, bool], ...]] = {
    "all": (("normal", True), ("normal", True), ("normal", True)),
    "uniform": (("normal", True), ("zero", False), ("zero", False)),
    "value": (("normal", True), ("normal", False), ("normal", False)),
    "theorem": (("theorem", False), ("normal", True), ("normal", True)),
}
# Settings that the page has under their own names, and those of training that have their defaults there.
MASKING = ("mask", "keep", "random")
TRAINING = ("loss", "optimizer", "learning_rate", "adam_epsilon", "batch", "l2")
DEFAULTS = ("average", "decay", "schedule")


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
    data, training = settings.documents, settings.training
    if data.topic_words:
        raise InputError("data.topic_words is not allowed here: leave it out, or use `topicscope train`.")
    parts = [settings.model.part(name) for name in ("value", "key", "query")]
    starts = tuple((part.start, part.train) for part in parts)
    values = {
        "seed": settings.seed,
        "topics": data.topics,
        "words": data.words,
        "sampler": data.sampler,
        "per_document": min(data.per_document, data.topics),
        "dirichlet": data.dirichlet[0],
        "overlap": 0.0,
        "shortest": data.length[0],
        "longest": data.length[1],
        **{name: getattr(settings.masking, name) for name in MASKING},
        "masked_keys": settings.model.masked_keys,
        **{name: getattr(training, name) for name in TRAINING},
        "scale": next((part.scale for part in parts if part.start == "normal"), Part.scale),
        "parts": next((name for name, known in TRAINED.items() if known == starts), "all"),
    }
    own = flat(to_table(_on_the_page(settings, values["scale"], TRAINED[values["parts"]])))
    for name, value in flat(to_table(settings)).items():
        if value != own[name]:
            remedy = f"the playground has {shown(own[name])}; change it, or use `topicscope train`"
            raise refuse(name, value, remedy)
    for name, (low, high) in LIMITS.items():
        if not low <= values[name] <= high:
            raise refuse(name, values[name], f"the playground has {low} to {high}; use `topicscope train` for others")
    if (count := data.topics * data.words) > MOST_WORDS:
        raise refuse("T·v", count, f"the playground has at most {MOST_WORDS} words; use `topicscope train` for more")
    return values


def _on_the_page(given: Settings, scale: float, trained: Sequence[tuple[Start, bool]]) -> Settings:
    """These settings with whatever the page cannot change as it is there."""
    data, training = given.documents, given.training
    model: dict[str, Any] = dict.fromkeys(BIASES, Part(start="zero", train=False))
    for name, (start, train) in zip(("value", "key", "query"), trained, strict=True):
        # The scale matters only where a matrix is drawn.
        own = scale if start == "normal" else given.model.part(name).scale
        model[name] = Part(start=start, train=train, scale=own)
    embedding = Part(start="identity", train=False)
    return replace(
        given,
        data=replace(data, dirichlet=data.dirichlet[:1] * len(data.dirichlet), ends=False),
        masking=replace(given.masking, fixed=False),
        model=Model(masked_keys=given.model.masked_keys, embedding=embedding, **model),
        training=replace(training, **{name: getattr(Training, name) for name in DEFAULTS}),
    )


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
    print_page(playground(**keywords(options)), as_json=options.json)
