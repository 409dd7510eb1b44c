"""``topicscope theory``: every closed form, exact optimum and floor of one setting."""

import io
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float
from rich.table import Table

from topicscope.commands.folders import check_empty
from topicscope.commands.options import INLINE, keywords, parse
from topicscope.commands.terminal import console, print_json, progress_bar
from topicscope.commands.theory_setting import (
    NOT_ATTAINED,
    NOT_FLAT,
    TheorySetting,
    errors_with_option_names,
    option_names,
    theorem_3_part,
)
from topicscope.errors import InputError, check_at_least, path_of, refuse
from topicscope.files import flat_row, frame_of, write_atomically
from topicscope.measure.blocks import pattern
from topicscope.randomness import Purpose, generator
from topicscope.reporting.rounding import powers, readable
from topicscope.scale import Report
from topicscope.settings import RAREST_USABLE_MASK
from topicscope.settings.data import Sampler
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.bayes import FEWEST_DOCUMENTS, Floor, bayes_floors
from topicscope.theory.check import class_statistics
from topicscope.theory.classes import six
from topicscope.theory.dynamics import stage1_rates, stage1_topic_rate, stage2_rates, stage2_topic_rate, time_ratio
from topicscope.theory.finite_documents import (
    class_loss,
    class_moments,
    class_optimum,
    finite_optimum,
    infinite_moments,
    moments,
    population_loss,
)
from topicscope.theory.landscape import Landscape, minimise
from topicscope.theory.lemma1 import constants, require_topic_sets
from topicscope.theory.take_off import Stepping, predict
from topicscope.theory.theorem2 import Pattern, theorem2_of

DESCRIPTION = """Closed forms, exact optima and floors for one setting: what training should lead to.

Topics of your own (--topic-words), which may overlap, have exact optima too, and Theorem 2's question has an answer for
them; the closed forms are about disjoint topics of equally likely words. With --out the optima are drawn beside Theorem
2's matrix: optimum.png and optimum.svg, theory.json, and the matrices themselves in theory.npz.

examples:
  topicscope theory
  topicscope theory --topics 100 --per-document 10 --json
  topicscope theory --mask 0.3 --keep 0.2 --random 0.05 --samples 10000
  topicscope theory --dirichlet 1.0 --length 20 40 --samples 0
  topicscope theory --topic-words topics.csv --length 40 60 --out own-topics
  topicscope theory --loss cross_entropy --rate 30 --scale 0.02
"""

# A part's numbers by name, ready for JSON.
Part = dict[str, Any]

# Parts that are about disjoint topics of equally many, equally likely words.
OF_EQUAL_TOPICS = ("theorem1", "theorem3", "attention_optimum", "attention_optimum_diagonal", "dynamics")

LIKELIEST = "averages over entries; a word counts for the topic that makes it likeliest"

# The matrices that can be drawn, and what they are.
MATRICES = {
    "finite": "finite LDA documents: exact optimum",
    "finite_topics": "finite τ-topic documents: exact optimum",
    "theorem2": "infinite documents, λ → 0: Theorem 2",
}

# Dense matrices of more tokens than this take over a second.
MOST_DENSE_TOKENS = 2_001

# Each sampled document takes a table row of as many numbers as there are tokens.
MOST_SAMPLED_TOKENS = 20_001

SAMPLES = 2_000

# Parts in the order shown: name, title, and for each row the dotted names of its number and its label.
TABLES: list[tuple[str, str, dict[str, str]]] = [
    (
        "theorem1",
        "Theorem 1: E = W^E⊤W^E, uniform attention",
        {"diagonal": "diagonal example, E_ii = c₃", "bias": "b_i", "block_sum_gap": "Σ own topic − Σ other topic"},
    ),
    (
        "theorem2",
        "Theorem 2: W^V, uniform attention, λ → 0",
        {
            "c1": "c₁",
            "c2": "c₂",
            "c3": "c₃",
            "mask_column": "W_i0, [MASK] column",
            "same_word": "same word",
            "same_topic": "same topic",
            "different_topic": "different topic",
            "loss": "loss, infinite documents",
        },
    ),
    (
        "theorem3",
        "Theorem 3: the average ((v−1)α + β)/v",
        {
            "lambda1": "λ₁",
            "lambda2": "λ₂",
            "low": "λ₁(τ−1), lower bound",
            "high": "λ₂T, upper bound",
            "limit": "limit, Assumption 3: τ/((1−p_c)p_m)",
            "limit_fixed": "limit, T → ∞ with τ fixed",
        },
    ),
    *(
        (
            name,
            f"Exact optimum of attention, {value} W^V",
            {
                "alpha": "α, same topic",
                "beta": "β, same word",
                "weighted_average": "((v−1)α + β)/v",
                "loss": "loss",
                "loss_uniform": "loss at α = β = 1",
            },
        )
        for name, value in [("attention_optimum", "Theorem 2's"), ("attention_optimum_diagonal", "diagonal")]
    ),
    *(
        (
            name,
            f"Optimum for finite {documents} documents (eq. 1, no bias, λ = 0)",
            {
                "mask_column": "W_i0, [MASK] column",
                "same_word": "same word",
                "same_topic": "same topic",
                "different_topic": "different topic",
                "loss": "loss",
                "loss_of_theorem2": "loss of Theorem 2's matrix",
            },
        )
        for name, documents in [("finite", "LDA"), ("finite_topics", "τ-topic")]
    ),
    (
        "dynamics",
        "Dynamics: rates per unit of learning rate × steps (squared loss), and take-off with {optimizer} at {rate:g}"
        "{adam}, {objective}, weights from N(0, {scale:g}²), d_a = {width}",
        {
            "stage1_topic_rate": "stage 1, infinite τ-topic documents: W^V's topic mode",
            "stage2_topic_rate": "stage 2, infinite τ-topic documents: attention's topic mode, over √d_a",
            "time_ratio": "how much longer stage 2's topic mode takes than stage 1's",
            "finite.stage1.topic": "stage 1, finite LDA documents: topics",
            "finite.stage1.mean": "    mean word",
            "finite.stage1.same_word": "    same word (the diagonal)",
            "finite.stage2.topic": "stage 2, finite LDA documents: topics",
            "finite.stage2.same_word": "    same word",
            "finite.stage2.mask": "    [MASK]",
            "prediction.take_off": "predicted take-off, in steps",
            "prediction.gain_at_take_off": "g at take-off: how far stage 1 has come",
            "prediction.mask_take_off": "[MASK] queries' own take-off, in steps",
        },
    ),
]

# The two kinds of finite documents.
FINITE: dict[str, Sampler] = {"finite": "dirichlet", "finite_topics": "topics"}

PATTERNS = {
    "block": "blocks of topics stand out",
    "diagonal": "a diagonal stands out, and no blocks of topics",
    "none": "neither blocks of topics nor a diagonal stand out",
    None: "there is one topic, so nothing can stand out",
}

FLOORS = {"": "all masked positions", "mask_queries": "[MASK] queries", "query_blind": "blind to the query"}


@dataclass(frozen=True)
class Theory:
    """What theory says about one setting; a part that it does not define is None, with its reason beside it."""

    setting: TheorySetting
    parts: Part

    def __getitem__(self, name: str) -> Any:
        return self.parts[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; a part that is null has its reason beside it."""
        return {"setting": asdict(self.setting), **self.parts}

    def to_frame(self) -> Any:
        """All numbers as a pandas DataFrame of one row, by dotted names such as ``finite.same_word``."""
        return frame_of([flat_row(self.to_dict())])

    def _repr_html_(self) -> str:
        from topicscope.reporting.notebook import table_html

        numbers = flat_row({name: part for name, part in self.parts.items() if isinstance(part, dict)})
        return table_html(("quantity", "value"), list(numbers.items()), _title_of(self.setting))

    def matrices(self) -> dict[str, Float[np.ndarray, "token token"]]:
        """The exact optima for finite documents and Theorem 2's W^V, V × V, by the names of their parts."""
        setting = self.setting
        models = {name: _dense_model(setting, sampler) for name, sampler in FINITE.items()}
        found = {name: finite_optimum(moments(model, setting.masking)) for name, model in models.items()}
        if self.parts["theorem2"] is not None:
            found["theorem2"] = theorem2_of(models["finite"].topic_words, setting.masking)
        return found


def theory(
    setting: TheorySetting | None = None,
    *,
    stepping: Stepping | None = None,
    take_off: bool = True,
    samples: int = SAMPLES,
    seed: int = 0,
    out: Path | str | None = None,
    report: Report | None = None,
) -> Theory:
    """All closed forms and exact optima of a setting (by default the paper's), its dynamics and its Bayes floors.

    ``samples`` documents are drawn for each of the floors; 0 leaves them out. ``take_off`` predicts when attention
    takes off under the optimiser that ``stepping`` describes, which takes some seconds. With ``out``, a new or empty
    folder, theory.json, theory.npz, optimum.png and optimum.svg are written to it.
    """
    setting = setting or TheorySetting()
    if out is not None:
        out = path_of(out, "out")
        check_empty(out)
        with errors_with_option_names():
            _dense_model(setting, "dirichlet")
    if not isinstance(samples, int) or (samples < 2 and samples != 0):
        raise refuse("samples", samples, "give a whole number, 2 or more, or 0 to leave the Bayes floors out")
    check_at_least("seed", seed, 0)
    makers: dict[str, Callable[[], Any]] = {
        "theorem1": lambda: _theorem1(setting),
        "theorem2": lambda: _theorem2(setting),
        "theorem3": lambda: theorem_3_part(setting),
        "attention_optimum": lambda: _attention_optimum(setting, "block"),
        "attention_optimum_diagonal": lambda: _attention_optimum(setting, "diagonal"),
        "finite": lambda: _finite(setting, "dirichlet"),
        "finite_topics": lambda: _finite(setting, "topics"),
        "dynamics": lambda: _dynamics(setting, stepping or Stepping(), predicted=take_off),
        "bayes": lambda: _bayes(setting, "dirichlet", samples, seed, report),
        "bayes_topics": lambda: _bayes(setting, "topics", samples, seed, report),
    }
    if not setting.equal_topics:
        makers |= dict.fromkeys(OF_EQUAL_TOPICS, setting.require_equal_topics)
    found = Theory(setting, _made(makers))
    if out is not None:
        _write(found, out)
    return found


def _write(found: Theory, out: Path) -> None:
    """The numbers, the matrices and their picture."""
    from topicscope.reporting.figures import save_pictures
    from topicscope.reporting.figures.training import heat_maps

    out.mkdir(parents=True, exist_ok=True)
    matrices, word_topics = found.matrices(), _dense_model(found.setting, "dirichlet").word_topics
    arrays = io.BytesIO()
    np.savez_compressed(arrays, allow_pickle=False, word_topics=word_topics, **matrices)
    write_atomically(out / "theory.npz", arrays.getvalue())
    panels = {MATRICES[name]: matrix for name, matrix in matrices.items()}
    setting = found.setting
    own = f", topics of {Path(setting.topic_words).name}" if setting.topic_words else ""
    drawn = heat_maps(
        panels,
        word_topics=word_topics,
        columns=len(panels),
        title=f"$W^V$ under uniform attention{own}: T = {setting.topics}, τ = {setting.per_document}, "
        f"N = {setting.length[0]} … {setting.length[1]}",
        same_scale=[tuple(panels)],
        tabled=False,
    )
    save_pictures(drawn.figure, out / "optimum")
    text = json.dumps(found.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)
    write_atomically(out / "theory.json", text + "\n")


def _made(makers: dict[str, Callable[[], Any]]) -> Part:
    """Each part's result under its name; where it is undefined, None, with the reason under NAME_reason."""
    part: Part = {}
    for name, make in makers.items():
        try:
            part[name] = make()
        except InputError as error:
            part[name], part[f"{name}_reason"] = None, option_names(str(error))
    return part


def _theorem1(setting: TheorySetting) -> Part:
    """The corrected example diag(0, c₃, …, c₃), b_i, and by how much a topic's own block sum exceeds the others'."""
    require_topic_sets(setting.topics, setting.per_document)
    c3 = constants(setting.topics, setting.words, setting.masking).c3
    noise = setting.mask * setting.random * c3 / (setting.topics * setting.words)
    return {"diagonal": c3, "bias": -noise, "block_sum_gap": c3}


def _theorem2(setting: TheorySetting) -> Part:
    if not setting.equal_topics:
        require_topic_sets(setting.topics, setting.per_document)
        model = _dense_model(setting, "topics")
        value_of_own = theorem2_of(model.topic_words, setting.masking)
        loss = population_loss(value_of_own, infinite_moments(model, setting.masking))
        return _dense_classes(value_of_own, model) | {"loss": loss}
    value = setting.value()
    numbers = asdict(constants(setting.topics, setting.words, setting.masking)) | asdict(value)
    # Theorem 2 does not distinguish a word from others of its topic.
    del numbers["same_word"]
    return numbers | {"loss": float(Landscape(setting.infinite, value).loss(1.0, 1.0))}


def _attention_optimum(setting: TheorySetting, pattern: Pattern) -> Part:
    landscape = Landscape(setting.infinite, setting.value(pattern))
    found, wider = minimise(landscape), minimise(landscape, free_mask_key=True)
    names = ("alpha", "beta", "weighted_average", "loss", "loss_uniform", "flat", "attained")
    return {
        **{name: getattr(found, name) for name in names},
        **({"flat_reason": NOT_FLAT} if found.flat is None else {}),
        "wider_family": {name: getattr(wider, name) for name in ("alpha", "beta", "mask_key", "loss")},
    }


def _dynamics(setting: TheorySetting, stepping: Stepping, *, predicted: bool) -> Part:
    """Rates of both stages, infinite documents in closed form and finite ones exactly, and the predicted take-off."""
    sizes = (setting.topics, setting.words, setting.per_document, setting.masking)
    width = stepping.width or setting.topics * setting.words + 1
    makers: dict[str, Callable[[], Any]] = {
        "stage1_topic_rate": lambda: stage1_topic_rate(*sizes),
        "stage2_topic_rate": lambda: stage2_topic_rate(*sizes),
        "time_ratio": lambda: time_ratio(*sizes, width),
        "finite": lambda: _finite_rates(setting),
        "prediction": lambda: _prediction(setting, stepping, predicted=predicted),
    }
    return {"stepping": {**asdict(stepping), "width": width}, **_made(makers)}


def _finite_rates(setting: TheorySetting) -> Part:
    """Both stages' rates for LDA documents, stage 2's at their own optimum of W^V; squared loss."""
    data = setting.data("dirichlet")
    value = six(class_optimum(class_moments(data, setting.masking)))
    return {
        "stage1": asdict(stage1_rates(data, setting.masking)),
        "stage2": asdict(stage2_rates(value, data, setting.masking)),
    }


def _prediction(setting: TheorySetting, stepping: Stepping, *, predicted: bool) -> Part:
    if not predicted:
        raise InputError("left out by --no-take-off")
    found = predict(setting.data("dirichlet"), setting.masking, stepping)
    part: Part = {}
    for name in ("take_off", "gain_at_take_off", "mask_take_off"):
        part[name] = getattr(found, name)
        if part[name] is None:
            part[f"{name}_reason"] = f"not within {readable(found.steps[-1], 2)} steps"
    if stepping.optimizer == "adam":
        part["note"] = (
            "Adam's noise is taken as it is on average; from starts as large as 0.02 it takes off up to three times "
            "earlier or later (docs/theory-dynamics.md)"
        )
    return part


def _finite(setting: TheorySetting, sampler: Sampler) -> Part:
    """The optimum for finite documents: no bias, eq. 1, λ = 0."""
    alike = setting.equal_topics and (sampler == "topics" or len(set(setting.dirichlet)) == 1)
    part, loss_of_theorem2 = (_symmetric_finite if alike else _dense_finite)(setting, sampler)
    if setting.words == 1:
        part["same_topic"], part["same_topic_reason"] = None, "a topic has one word (v = 1)"
    if setting.topics == 1:
        part["different_topic"], part["different_topic_reason"] = None, "there is one topic (T = 1)"
    return part | _made({"loss_of_theorem2": loss_of_theorem2})


def _symmetric_finite(setting: TheorySetting, sampler: Sampler) -> tuple[Part, Callable[[], float]]:
    """The optimum for topics that are all alike: by classes, for any number of them."""
    population = class_moments(setting.data(sampler), setting.masking)
    optimum = class_optimum(population)
    part: Part = {**asdict(optimum), "loss": class_loss(optimum, population)}
    return part, lambda: class_loss(setting.value(), population)


def _dense_finite(setting: TheorySetting, sampler: Sampler) -> tuple[Part, Callable[[], float]]:
    """The optimum for topics that overlap or have their own Dirichlet parameters: means over classes of entries."""
    model = _dense_model(setting, sampler)
    population = moments(model, setting.masking)
    optimum = finite_optimum(population)
    part = _dense_classes(optimum, model) | {"loss": population_loss(optimum, population)}

    def loss_of_theorem2() -> float:
        if setting.equal_topics:
            return population_loss(setting.value().matrix(setting.topics, setting.words), population)
        require_topic_sets(setting.topics, setting.per_document)
        return population_loss(theorem2_of(model.topic_words, setting.masking), population)

    return part, loss_of_theorem2


def _dense_model(setting: TheorySetting, sampler: Sampler) -> TopicModel:
    """The topic model, if matrices over its tokens are not too large."""
    model = TopicModel.from_settings(setting.data(sampler))
    if model.vocabulary > MOST_DENSE_TOKENS:
        raise InputError(
            f"{model.vocabulary:,} tokens need matrices too large to be quick: give at most "
            f"{MOST_DENSE_TOKENS - 1:,} words in all, or, without --out, equal topics and one Dirichlet parameter."
        )
    return model


def _dense_classes(matrix: Float[np.ndarray, "token token"], model: TopicModel) -> Part:
    """Means over classes of entries, with the reason where a class is empty; for your own topics also the pattern."""
    averages = class_statistics(matrix, model.word_topics)
    part: Part = {}
    for name in ("mask_column", "same_word", "same_topic", "different_topic"):
        average = averages[name]
        part[name] = average.mean if average else None
        if average is None:
            part[f"{name}_reason"] = "there is no such pair of words"
    if model.equal_words is None:
        part["pattern"] = pattern(matrix, model.word_topics) if averages["different_topic"] else None
        part["note"] = LIKELIEST
    return part


def _bayes(setting: TheorySetting, sampler: Sampler, samples: int, seed: int, report: Report | None) -> Part:
    if samples == 0:
        raise InputError("samples = 0: no documents were drawn for the Bayes floor.")
    data = setting.data(sampler)
    # Equal topics are counted, not made: the matrix of very many takes gigabytes.
    tokens = TopicModel.from_settings(data).vocabulary if setting.topic_words else data.topics * data.words + 1
    if tokens > MOST_SAMPLED_TOKENS:
        raise InputError(
            f"topics · words + 1 = {tokens} tokens are too many to sample documents of: at most {MOST_SAMPLED_TOKENS}."
        )
    usable = -np.expm1(setting.length[0] * np.log1p(-setting.mask)) if setting.mask < 1 else 1.0
    if usable < RAREST_USABLE_MASK:
        raise InputError(
            f"mask = {setting.mask} is too small to sample: a document of length = {setting.length[0]} words almost "
            "never has a masked position; raise mask or lengthen documents."
        )
    model, draws = TopicModel.from_settings(data), generator(seed, Purpose.THEORY)
    floors = bayes_floors(model, setting.masking, samples=samples, generator=draws, report=report)
    part: Part = {
        **asdict(floors.masked),
        "mask_queries": None,
        "query_blind": _with_squared_first(floors.query_blind),
        "documents": floors.documents,
        "method": floors.method,
    }
    if floors.mask_queries is not None:
        part["mask_queries"] = _with_squared_first(floors.mask_queries)
    elif setting.masking.replaced > 0:
        part["mask_queries_reason"] = (
            f"only {floors.documents_with_mask} of {floors.documents} sampled documents had a [MASK], and an interval "
            f"needs {FEWEST_DOCUMENTS}; raise --samples"
        )
    else:
        part["mask_queries_reason"] = "no position becomes [MASK], since p_c + p_r = 1"
    return part


def _with_squared_first(floor: Floor) -> Part:
    """Both losses by name; ``value``, ``low``, ``high`` are those of the squared loss, which theory is about."""
    return asdict(floor.squared) | asdict(floor)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    setting: Annotated[TheorySetting, INLINE] = TheorySetting()

    stepping: Annotated[Stepping, INLINE] = Stepping()

    samples: int = SAMPLES
    """How many documents to draw for each Bayes floor; 0 leaves the floors out."""

    take_off: bool = True
    """Predict when attention takes off, which takes some seconds."""

    seed: int = 0
    """Seed of the documents drawn for the Bayes floors."""

    out: Path | None = None
    """A new or empty folder to write the numbers, the matrices and their picture to."""

    json: bool = False
    """Print JSON."""

    quiet: bool = False
    """No progress bar."""


def main(words: list[str]) -> None:
    """Parse, compute, print."""
    options = parse(Options, words, command="theory", description=DESCRIPTION)
    with progress_bar("Bayes floors", quiet=options.quiet) as report:
        found = theory(**keywords(options), report=report)
    if options.json:
        print_json(found.to_dict())
    else:
        print_theory(found)
        if options.out:
            console().print(f"\n{options.out}: optimum.png, optimum.svg, theory.json, theory.npz")


def print_theory(found: Theory) -> None:
    """One table per part, with the paper's symbols, or the reason why a part is not defined."""
    screen, setting = console(), found.setting
    screen.print(_title_of(setting))
    for name, title, rows in TABLES:
        if not setting.equal_topics and name in OF_EQUAL_TOPICS:
            continue
        part = found[name]
        screen.print()
        if part is None:
            screen.print(f"{title}\n  not defined: {found[f'{name}_reason']}")
            continue
        table = Table(title=_title(title, part), title_justify="left", show_header=False)
        for path, label in rows.items():
            # Theorem 2 does not distinguish a word from others of its topic, and has no constants for your own topics.
            if path.partition(".")[0] not in part:
                continue
            table.add_row(label, _number(part, path, digits=6 if name == "dynamics" else 8))
        screen.print(table)
        for note in _notes(part):
            screen.print(f"  {note}")
    if not setting.equal_topics:
        screen.print("\nTheorems 1 and 3, attention's optima and the dynamics")
        screen.print(f"  not defined: {found['theorem1_reason']}")
    for name, documents in [("bayes", "LDA"), ("bayes_topics", "τ-topic")]:
        screen.print()
        _print_floors(found, name, f"Bayes floor, finite {documents} documents")


def _title_of(setting: TheorySetting) -> str:
    """The setting in the paper's symbols."""
    words = f"v = {setting.words}, " if setting.equal_topics else f"topics of {setting.topic_words}, "
    return (
        f"T = {setting.topics}, {words}τ = {setting.per_document}, p_m = {setting.mask}, p_c = {setting.keep}, "
        f"p_r = {setting.random}"
    )


def _title(title: str, part: Part) -> str:
    if "stepping" not in part:
        return title
    how = part["stepping"]
    adam = f", ε = {how['epsilon']:g}" if how["optimizer"] == "adam" else ""
    objective = "squared loss" if how["loss"] == "squared" else "cross-entropy"
    return powers(title.format(**how, adam=adam, objective=objective))


def _print_floors(found: Theory, name: str, title: str) -> None:
    part, screen = found[name], console()
    if part is None:
        screen.print(f"{title}\n  not computed: {found[f'{name}_reason']}")
        return
    table = Table("95 % interval in brackets", "cross-entropy", "squared", title=title, title_justify="left")
    for key, label in FLOORS.items():
        floor = part[key] if key else part
        if floor is not None:
            table.add_row(label, *(_interval(floor[loss]) for loss in ("cross_entropy", "squared")))
    screen.print(table)
    if part["mask_queries"] is None:
        screen.print(f"  {FLOORS['mask_queries']} not computed: {part['mask_queries_reason']}", markup=False)
    screen.print(f"  {part['documents']} documents; {part['method']}")


def _interval(estimate: dict[str, float]) -> str:
    return f"{estimate['value']:.4f} ({estimate['low']:.4f} … {estimate['high']:.4f})"


def _number(part: Part, path: str, digits: int) -> str:
    """The number that dotted names lead to, or the reason at the first that is null."""
    value: Any = part
    for name in path.split("."):
        if value[name] is None:
            return f"not defined: {value[f'{name}_reason']}"
        value = value[name]
    return readable(value, digits)


def _notes(part: Part) -> list[str]:
    notes = [f"does not hold: {text}" for text in part.get("violated", [])]
    if not part.get("attained", True):
        notes.append(NOT_ATTAINED)
    if "pattern" in part:
        notes.append(f"{PATTERNS[part['pattern']]}; {part['note']}")
    if part.get("flat"):
        notes.append(f"flat: {part['flat']}")
    if "note" in (part.get("prediction") or {}):
        notes.append(part["prediction"]["note"])
    if "wider_family" in part:
        wider = part["wider_family"]
        gains = f"{wider['loss']:.8g}" != f"{part['loss']:.8g}"
        notes.append(
            f"a free weight of word queries on [MASK] keys, best at {readable(wider['mask_key'], 6)}, "
            + (f"lowers the loss to {readable(wider['loss'], 8)} (§5.3)" if gains else "does not lower the loss (§5.3)")
        )
    return notes
