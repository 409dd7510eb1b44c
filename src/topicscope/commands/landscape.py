"""``topicscope landscape``: the exact loss over attention's weights, as numbers and as a figure."""

import io
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from jaxtyping import Float

from topicscope.commands.folders import check_empty
from topicscope.commands.options import INLINE, check_out_is_given, keywords, parse
from topicscope.commands.terminal import console, print_json
from topicscope.commands.theory_setting import (
    NOT_ATTAINED,
    NOT_FLAT,
    TheorySetting,
    errors_with_option_names,
    theorem_3_part,
)
from topicscope.errors import InputError, check_at_least, path_of
from topicscope.files import flat_row, frame_of, write_atomically
from topicscope.randomness import Purpose, generator
from topicscope.reporting.rounding import readable
from topicscope.theory.classes import ClassMatrix
from topicscope.theory.finite_attention import Optimum, Weights, attention_optimum, sampled_counts
from topicscope.theory.landscape import AttentionOptimum, Landscape, minimise
from topicscope.theory.theorem2 import Pattern
from topicscope.theory.theorem3 import Theorem3, theorem3

if TYPE_CHECKING:
    from topicscope.reporting.figures.landscape import LandscapeData

DESCRIPTION = """The exact loss over attention's weights α and β: grid, numbers and figure.

The command writes landscape.npz, landscape.json, landscape.png and landscape.svg.

examples:
  topicscope landscape --out landscape
  topicscope landscape --value diagonal --out landscape-diagonal
  topicscope landscape --topics 100000000 --per-document 3000 --out limit
  topicscope landscape --finite --length 100 150 --out finite
"""

POINTS = 200

# The grid begins here; it ends beyond the interval of Theorem 3, so that both its bounds are in the figure.
LEAST_WEIGHT = 1e-2
BEYOND = 10.0

# The parts of a landscape that a notebook shows.
SHOWN = ("optimum", "word_optimum", "theorem3")

# How many documents --finite draws, the most words of their vocabulary and of a document, and its grid, which is
# coarser because each of its losses is a mean over all documents.
FINITE_DOCUMENTS = 2_000
FINITE_WORDS = 2_000
FINITE_LENGTH = 5_000
FINITE_POINTS = 40


@dataclass(frozen=True, eq=False)
class FiniteLandscape:
    """The loss over sampled finite documents, and the best weights for them."""

    length: tuple[int, int]
    weights: Float[np.ndarray, " point"]
    """The values of α and of β on its grid."""
    loss: Float[np.ndarray, "point point"]
    """One row per α and one column per β, for Assumption 2's weights."""
    optimum: Optimum
    """The optimum of Assumption 2's weights."""
    free: Optimum
    """The optimum with the two weights on [MASK] keys free, besides α and β."""
    by_topics: Optimum
    """The same among weights that treat all words of a topic alike."""

    def to_dict(self) -> dict[str, Any]:
        """The numbers, for JSON."""
        return {
            "documents": FINITE_DOCUMENTS,
            "length": self.length,
            "optimum": _sampled_part(self.optimum),
            "optimum_with_free_mask_weights": _sampled_part(self.free),
            "optimum_by_topics_alone": _sampled_part(self.by_topics),
        }


@dataclass(frozen=True, eq=False)
class LandscapeResult:
    """The grid, and what theory says beside it."""

    setting: TheorySetting
    value: Pattern
    classes: ClassMatrix
    weights: Float[np.ndarray, " point"]
    """The values of α and of β on the grid."""
    loss: Float[np.ndarray, "point point"]
    """One row per α and one column per β."""
    word_loss: Float[np.ndarray, "point point"] | None
    """The same without [MASK] queries; None if there are no others."""
    average: Float[np.ndarray, "point point"]
    optimum: AttentionOptimum
    word_optimum: AttentionOptimum | None
    """Without [MASK] queries."""
    theorem3: Theorem3
    finite: FiniteLandscape | None = None

    def to_dict(self) -> dict[str, Any]:
        """The numbers, for JSON; a part that is null has its reason beside it."""
        words: dict[str, Any] = {"optimum_without_mask_queries": None}
        if self.word_optimum is None:
            words["optimum_without_mask_queries_reason"] = "there are no other queries, since p_c = p_r = 0"
        else:
            words["optimum_without_mask_queries"] = _optimum_part(self.word_optimum)
        return {
            "setting": asdict(self.setting),
            "value": self.value,
            "classes": asdict(self.classes),
            "optimum": _optimum_part(self.optimum),
            **words,
            "theorem3": theorem_3_part(self.setting),
            "grid": {"points": len(self.weights), "least": self.weights[0], "largest": self.weights[-1]},
            "smallest_loss_on_grid": float(self.loss.min()),
            **({} if self.finite is None else {"finite": self.finite.to_dict()}),
        }

    def to_frame(self) -> Any:
        """The grid as a pandas DataFrame, a row per pair of α and β."""
        alpha, beta = np.meshgrid(self.weights, self.weights, indexing="ij")
        columns = {"alpha": alpha, "beta": beta, "weighted_average": self.average, "loss": self.loss}
        if self.word_loss is not None:
            columns["loss_without_mask_queries"] = self.word_loss
        values = zip(*(column.ravel().tolist() for column in columns.values()), strict=True)
        return frame_of(dict(zip(columns, row, strict=True)) for row in values)

    def _repr_html_(self) -> str:
        from topicscope.reporting.notebook import table_html

        numbers = flat_row({name: getattr(self, name) and asdict(getattr(self, name)) for name in SHOWN})
        s = self.setting
        caption = f"landscape of {self.value} W^V, T = {s.topics}, τ = {s.per_document}, v = {s.words}"
        return table_html(("quantity", "value"), list(numbers.items()), caption)

    def figure_data(self) -> "LandscapeData":
        """What the figure needs."""
        from topicscope.reporting.figures.landscape import FinitePanel, LandscapeData

        s, finite = self.setting, self.finite
        return LandscapeData(
            alpha=self.weights,
            beta=self.weights,
            loss=self.loss,
            word_loss=self.word_loss,
            average=self.average,
            optimum=(self.optimum.alpha, self.optimum.beta),
            attained=self.optimum.attained,
            low=self.theorem3.low,
            high=self.theorem3.high,
            limit=self.theorem3.limit,
            title=f"{self.value} $W^V$, T = {s.topics}, τ = {s.per_document}, v = {s.words}",
            finite=None
            if finite is None
            else FinitePanel(
                f"documents of {finite.length[0]} to {finite.length[1]} words",
                finite.weights,
                finite.loss,
                (finite.optimum.weights.alpha, finite.optimum.weights.beta),
            ),
        )


def landscape(
    setting: TheorySetting | None = None,
    *,
    value: Pattern = "block",
    points: int = POINTS,
    finite: bool = False,
    out: Path | str | None = None,
) -> LandscapeResult:
    """The exact loss over α and β for Theorem 2's W^V ("block") or D.4's ("diagonal").

    ``finite`` adds the loss over sampled documents of the setting's length and τ topics, and their best weights.
    With ``out``, a new or empty folder, landscape.npz, .json, .png and .svg are written to it.
    """
    if out is not None:
        out = path_of(out, "out")
        check_empty(out)
    check_at_least("points", points, 2)
    setting = setting or TheorySetting()
    if not setting.equal_topics:
        raise InputError(
            f"topic_words = {setting.topic_words} has topics that overlap or differ, for which α and β, the weights of "
            "words of the same topic, are not defined: give disjoint topics of equally many, equally likely words, or "
            "see the optimum under uniform attention with topicscope theory."
        )
    with errors_with_option_names():
        classes = setting.value(value)
    whole, bounds = Landscape(setting.infinite, classes), theorem3(setting.infinite)
    word_queries = setting.keep + setting.random > 0
    words = Landscape(setting.infinite, classes, mask_queries=False) if word_queries else None
    optimum = minimise(whole)
    largest = max(optimum.alpha, optimum.beta, 100.0, bounds.high or 0.0, (bounds.limit or 0.0) * setting.words)
    weights = np.geomspace(LEAST_WEIGHT, BEYOND * largest, points)
    alpha, beta = weights[:, None], weights[None, :]
    result = LandscapeResult(
        setting=setting,
        value=value,
        classes=classes,
        weights=weights,
        loss=whole.loss(alpha, beta),
        word_loss=None if words is None else words.loss(alpha, beta),
        average=whole.weighted_average(alpha, beta),
        optimum=optimum,
        word_optimum=None if words is None else minimise(words),
        theorem3=bounds,
    )
    if finite:
        result = replace(result, finite=_finite(setting, classes, weights[[0, -1]]))
    if out is not None:
        _write(result, out)
    return result


def _finite(setting: TheorySetting, classes: ClassMatrix, ends: Float[np.ndarray, " 2"]) -> FiniteLandscape:
    if setting.topics * setting.words > FINITE_WORDS:
        raise InputError(
            f"finite is not allowed with topics · words = {setting.topics * setting.words}: its documents are drawn; "
            f"give at most {FINITE_WORDS:,} words, or leave finite out."
        )
    if setting.length[1] > FINITE_LENGTH:
        raise InputError(
            f"finite is not allowed with length = {setting.length[0]} {setting.length[1]}: its documents are drawn; "
            f"give at most {FINITE_LENGTH:,} words per document, or leave finite out, which is their limit."
        )
    draw = generator(0, Purpose.THEORY)
    counts = sampled_counts(setting.data("topics"), setting.masking, FINITE_DOCUMENTS, generator=draw)
    weights = np.geomspace(ends[0], ends[1], FINITE_POINTS)
    loss = [[counts.loss(classes, Weights(alpha, beta, 1.0, beta)) for beta in weights] for alpha in weights]
    optima = (attention_optimum(counts, classes, family) for family in ("assumption 2", "all", "topics"))
    return FiniteLandscape(setting.length, weights, np.array(loss), *optima)


def _sampled_part(optimum: Optimum) -> dict[str, Any]:
    """An optimum on sampled documents; its average has a 95 % interval."""
    return {
        **optimum.weights._asdict(),
        "weighted_average": asdict(optimum.weighted_average),
        "loss": optimum.loss,
        "loss_uniform": optimum.loss_uniform,
        "attained": optimum.attained,
    }


def _optimum_part(optimum: AttentionOptimum) -> dict[str, Any]:
    return asdict(optimum) | ({"flat_reason": NOT_FLAT} if optimum.flat is None else {})


def _write(result: LandscapeResult, out: Path) -> None:
    from topicscope.reporting.figures import save_pictures
    from topicscope.reporting.figures.landscape import landscape_figure

    out.mkdir(parents=True, exist_ok=True)
    arrays = {"alpha": result.weights, "beta": result.weights, "loss": result.loss, "weighted_average": result.average}
    if result.word_loss is not None:
        arrays["loss_without_mask_queries"] = result.word_loss
    if result.finite is not None:
        arrays |= {"finite_weights": result.finite.weights, "finite_loss": result.finite.loss}
    numbers = io.BytesIO()
    np.savez_compressed(numbers, allow_pickle=False, **arrays)
    write_atomically(out / "landscape.npz", numbers.getvalue())
    save_pictures(landscape_figure(result.figure_data()).figure, out / "landscape", dpi=200)
    text = json.dumps(result.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)
    write_atomically(out / "landscape.json", text + "\n")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    out: Path
    """The folder to write to; new or empty."""

    setting: Annotated[TheorySetting, INLINE] = TheorySetting()

    value: Pattern = "block"
    """W^V: "block" is Theorem 2's, "diagonal" that of appendix D.4."""

    points: int = POINTS
    """Grid points along each axis."""

    finite: bool = False
    """Beside infinite documents, also finite ones of `--length` words and τ topics, drawn at random."""

    json: bool = False
    """Print the numbers of landscape.json."""


def main(words: list[str]) -> None:
    """Parse, compute, write, print where and what."""
    check_out_is_given(words, "landscape")
    options = parse(Options, words, command="landscape", description=DESCRIPTION)
    result = landscape(**keywords(options))
    if options.json:
        print_json(result.to_dict())
        return
    best = result.optimum
    screen = console()
    screen.print(
        f"smallest loss {readable(best.loss, 8)} at α = {readable(best.alpha, 6)}, β = {readable(best.beta, 6)} "
        f"(average {readable(best.weighted_average, 6)}); {readable(best.loss_uniform, 8)} at α = β = 1"
    )
    if not best.attained:
        screen.print(NOT_ATTAINED)
    if best.flat:
        screen.print(f"flat: {best.flat}")
    if result.finite is not None:
        low, high = result.finite.length
        screen.print(f"documents of {low} to {high} words, {FINITE_DOCUMENTS:,} of them drawn:")
        for name, found in (
            ("Assumption 2's weights", result.finite.optimum),
            ("weights on [MASK] free", result.finite.free),
            ("the same with β = α", result.finite.by_topics),
        ):
            average, w = found.weighted_average, found.weights
            screen.print(
                f"  {name}: loss {readable(found.loss, 6)} at α = {readable(w.alpha)}, β = {readable(w.beta)} "
                f"(average {readable(average.value)}, 95 % from {readable(average.low)} to {readable(average.high)})"
            )
            if not found.attained:
                screen.print(f"  {NOT_ATTAINED}")
    for text in result.theorem3.violated:
        screen.print(f"Theorem 3 does not apply: {text}")
    screen.print(f"{options.out}: landscape.npz, landscape.json, landscape.png, landscape.svg")
