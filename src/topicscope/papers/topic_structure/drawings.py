"""The figures of claims.toml: from results by name, and the caption as title, to what ``reporting.figures`` draws."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from topicscope.measure.blocks import centred_columns
from topicscope.measure.run import Run
from topicscope.measure.stages import run_stages
from topicscope.papers.claim import Results, row_names
from topicscope.papers.topic_structure import language, trained
from topicscope.papers.topic_structure import stages as measured
from topicscope.papers.topic_structure.exact import Matrix, gains, paper_moments
from topicscope.papers.topic_structure.experiments import (
    BERT,
    EPSILON,
    FRACTIONS,
    LDA,
    LOSSES,
    MILD_L2,
    PAPER_MODELS,
    T,
    V,
)
from topicscope.records import Comparison, PredictedStages, ProbeRow
from topicscope.reporting import figures
from topicscope.reporting.figures import Cells, Panel, Series
from topicscope.reporting.figures.probe import head_maps, ratio_table, word_maps
from topicscope.reporting.palette import BLUE, CLASSES, GREEN, GREY, ORANGE, PALETTE
from topicscope.reporting.symbols import LOSS_WORDS, OPTIMIZER_WORDS
from topicscope.settings import Settings
from topicscope.theory.dynamics import gradient_ratio
from topicscope.theory.finite_documents import finite_optimum

ROTATION = "rotation of W^V\nin 10 steps"
DISTANCE = "a: attention,\nfrom uniform"
SYMBOLS = {"embedding": "W^E⊤W^E", "value": "W^E⊤W^V W^E"}


def stepping(settings: Settings) -> str:
    """Optimiser, rate and ε."""
    training = settings.training
    epsilon = "" if training.adam_epsilon == EPSILON else f", ε = {training.adam_epsilon:g}"
    return f"{OPTIMIZER_WORDS[training.optimizer]} at {training.learning_rate:g}{epsilon}"


# Matrices.


def matrix_of(run: Run, of: str = "value") -> Matrix:
    """The first seed's matrix as it is drawn, of [MASK] and words; "trained" is W^E⊤W^E if embeddings are trained.

    Columns of W^V are centred under cross-entropy, which does not see their means. START and END, which only the
    released code has, come last.
    """
    if of == "trained":
        of = "embedding" if run.settings.model.embedding.train else "value"
    matrix: np.ndarray = trained.products(run, of)[0][: T * V + 1, : T * V + 1]
    return centred_columns(matrix) if of == "value" and run.settings.training.loss == "cross_entropy" else matrix


def matrices(
    results: Results, *, title: str, of: Sequence[str] = ("value",), columns: int = 4, same_scale: bool = False
) -> Figure:
    """Heat maps of all runs; with ``same_scale``, those of one loss can be compared."""
    names, panels, groups = row_names(list(results)), dict[str, Matrix](), dict[str, list[str]]()
    for matrix in of:
        for name, run in zip(names, results.values(), strict=True):
            label = f"{SYMBOLS[matrix]}\n{name}" if len(of) > 1 else name
            panels[label] = matrix_of(run, matrix)
            groups.setdefault(run.settings.training.loss, []).append(label)
    return figures.heat_maps(
        panels, words=LDA.words, columns=columns, same_scale=[*groups.values()] if same_scale else (), title=title
    )


def theorem1(results: Results, *, title: str) -> Figure:
    """The trained W^E⊤W^E beside the optimum."""
    squared, cross_entropy = (
        results[f"theorem1/{loss}-adam"].embedding_products for loss in ("squared", "cross-entropy")
    )
    panels = {
        "trained, squared loss": squared[0],
        "trained, mean over seeds": squared.mean(axis=0),
        "best W^E⊤W^E (theory)": trained.best_embedding().matrix,
        "trained, cross-entropy": cross_entropy[0],
    }
    return figures.heat_maps(panels, words=LDA.words, same_scale=[tuple(panels)[:3]], title=title)


def figure2(results: Results, *, title: str) -> Figure:
    """The four heat maps, in the paper's order, and the optima below."""
    cross_entropy = centred_columns(trained.convex_optimum(MILD_L2).matrix(T, V))
    panels = {name: matrix_of(run) for name, run in zip(row_names(list(results)), results.values(), strict=True)} | {
        "optimum, as for SGD": cross_entropy,
        "optimum": cross_entropy,
        "gradient descent at this step": trained.exact_value(results["figure2/squared-sgd"].settings),
        "ridge optimum": finite_optimum(paper_moments(), MILD_L2),
    }
    names = list(panels)
    pairs = [(names[column], names[column + 4]) for column in range(4)]
    return figures.heat_maps(panels, words=LDA.words, same_scale=pairs, title=title)


# Numbers by setting.


def held_out(results: Results, *, title: str, labels: Mapping[str, str]) -> Figure:
    """Held-out losses, a panel per loss, between the Bayes floor and the best constant; a row per folder of names."""
    rows, numbers, levels = list(labels), {}, {}
    for loss in LOSSES:
        own = {name: run for name, run in results.items() if run.settings.training.loss == loss}
        values = {rows.index(str(PurePosixPath(name).parent)): run.final["held_out_loss"] for name, run in own.items()}
        label = f"held-out {LOSS_WORDS[loss]}"
        numbers[label] = [figures.by_row(values)]
        levels[label] = {"Bayes floor": gains()[loss].floor, "best constant prediction": gains()[loss].constant}
    return figures.dots(title, [*labels.values()], numbers, levels=levels)


def attention(results: Results, *, title: str) -> Figure:
    """Average attention × 100 by class of word pairs, a dot per run."""
    label = "average attention of a pair of positions × 100"
    series = [
        figures.by_row(
            {row: 100 * run.final["attention"][:, at] for row, run in enumerate(results.values())},
            label=kind,
            colour=colour,
        )
        for at, (kind, colour) in enumerate(list(CLASSES.items())[:3])
    ]
    # Between two positions, at the average length.
    levels = {label: {"uniform attention": 100 * 2 / sum(LDA.length)}}
    return figures.dots(title, row_names(list(results)), {label: series}, levels=levels, size=(9.0, 0.42))


def robustness(results: Results, *, title: str) -> Figure:
    """How far blocks stand out, and attention's average, for every kind of documents, with the rules' ends."""
    blocks, average = "blocks of W^V, in standard\ndeviations of the background", "attention, ((v − 1)α̂ + β̂)/v"
    runs = [*results.values()]
    numbers = {
        blocks: {row: trained.standing_out(run, "value", centred=True) for row, run in enumerate(runs)},
        average: {row: trained.topic_averages(run) for row, run in enumerate(runs)},
    }
    ends = {blocks: {"the rule's end": 1.0}, average: {"the rule's end": 1.05}}
    series = {label: [figures.by_row(values)] for label, values in numbers.items()}
    return figures.dots(title, row_names(list(results)), series, levels=ends)


# Stages.


def figure4(results: Results, *, title: str) -> Figure:
    """Norms, attention and gain of the settings that claims look at, beside the reduced model's."""
    columns = [_stages_of(run) for run in results.values()]
    shown = [column[row] for row in range(len(columns[0])) for column in columns]
    return figures.curves(title, shown, columns=len(columns), size=(4.2, 1.9), sharex="col")


def _stages_of(run: Run) -> list[Panel]:
    """A column of Figure 4: orange is where attention takes off, black where it was predicted to."""
    theory = run.reference.stages if run.reference else PredictedStages()
    marks = [(float(one.take_off), ORANGE) for one in run_stages(run) if one.take_off is not None]
    state = "attention takes off (dashed)" if marks else "attention does not take off"
    if theory.take_off is not None:
        marks.append((theory.take_off, "black"))
        state += f", predicted at {theory.take_off:,.0f} (black)"
    rows: dict[str, dict[str, str]] = {}
    for symbol, part in (("W^K", "key"), ("W^Q", "query"), ("W^V", "value")):
        rows[f"norm of {symbol}"] = {f"norm of {symbol}": f"norm/{part}"}
        if part != "value":
            parts = {"its part that tells topics apart": "topics", "its column of [MASK]": "mask"}
            rows[f"norm of {symbol}"] |= {label: f"modes/{part}-{mode}" for label, mode in parts.items()}
    rows[ROTATION] = {ROTATION: "rotation"}
    rows[DISTANCE] = {"word queries": "attention/words", "[MASK] queries": "attention/mask"}
    rows["g: gain of W^V\nunder uniform attention"] = {"g": "uniform_gain"}
    heading = f"{LOSS_WORDS[run.settings.training.loss]}, {stepping(run.settings)}, {scale_of(run)}\n{state}"
    column = list[Panel]()
    for label, curves in rows.items():
        series = [
            Series(x=run.steps, y=measured.curve(run, metric), label=name, colour=colour)
            for (name, metric), colour in zip(curves.items(), (BLUE, GREEN, GREY), strict=False)
        ]
        if values := theory.norms.get(next(iter(curves.values())).removeprefix("norm/")):
            thin = {"linewidth": 0.8}
            series.append(Series(x=theory.steps, y=values, label="the reduced model", colour="black", style=thin))
        title, x = "" if column else heading, "step" if len(column) == len(rows) - 1 else ""
        log = "y" if label == ROTATION else ""
        column.append(Panel(series=series, title=title, x=x, y=label, marks=marks, log=log, from_zero=not log))
    return column


def scale_of(run: Run) -> str:
    """What W^K, W^Q and W^V start from."""
    return f"weights from N(0, {run.settings.model.value.scale:g}²)"


def figure4_map(results: Results, *, title: str) -> Figure:
    """When attention takes off, and what W^V has gained by then; dark where all runs are two-stage, grey without."""
    places, tables = measured.map_settings(results), []
    for loss in LOSSES:
        runs = {name: run for name, run in results.items() if run.settings.training.loss == loss}
        cells = {
            (stepping(run.settings), f"{run.settings.model.value.scale:g}"): places[name] for name, run in runs.items()
        }
        rows, columns = (list(dict.fromkeys(place[axis] for place in cells)) for axis in (0, 1))
        own = [cells[row, column] for row in rows for column in columns]
        off = [np.isfinite(one.take_off) for one in own]
        texts = [f"step {one.take_off:.0f}\n{100 * one.gain:.0f} % gained" for one in own]
        values = np.where(off, [float(one.two) for one in own], np.nan).reshape(len(rows), len(columns))
        texts = [text if taken_off else "does not\ntake off" for text, taken_off in zip(texts, off, strict=True)]
        tables.append(Cells(values=values, rows=rows, columns=columns, title=LOSS_WORDS[loss], texts=texts))
    # Below the darkest blue, so that text stays readable.
    return figures.cells(title, tables, x="initial scale", scale=(0.0, 1.6), colours="Blues", cell=(1.15, 0.62))


def figure4_predicted(results: Results, *, title: str) -> Figure:
    """Predicted against measured take-off and g, beside a band of 15 %; a marker per loss and optimiser."""
    places, both = measured.map_settings(results), measured.predicted_and_measured(results)
    groups = np.array([f"{LOSS_WORDS[one.loss]}, {OPTIMIZER_WORDS[one.optimizer]}" for one in places.values()])
    panels = []
    for at, label in enumerate(("step at which attention takes off", "g at take-off")):
        numbers = np.array([own[:, at] for own in both.values()])
        there = np.isfinite(numbers).all(axis=1)
        ends = np.array([numbers[there].min(), numbers[there].max()]) if there.any() else np.ones(2)
        band = Series(x=ends, y=ends, low=ends / 1.15, high=ends * 1.15, colour=GREY, style={"linewidth": 1.0})
        series = [band]
        for kind, colour, marker in zip(dict.fromkeys(groups), cycle((BLUE, ORANGE, GREEN, GREY)), cycle("osD^v<>")):
            predicted, reached = numbers[there & (groups == kind)].T
            style = {"marker": marker, "linestyle": "none", "markersize": 5, "alpha": 0.8}
            series.append(Series(x=reached, y=predicted, label=kind, colour=colour, style=style))
        log = "xy" if ends[0] > 0 and ends[1] > 10 * ends[0] else ""
        panels.append(Panel(series=series, x=f"measured {label}", y=f"predicted {label}", log=log))
    return figures.curves(title, panels, size=(5.2, 4.4))


def first_gradients(results: Results, *, title: str) -> Figure:
    """‖∇W^V‖ over ‖∇W^K‖ at the start against the initial scale, a dot per run and the formula as a line."""
    series = []
    for loss, colour, marker in zip(LOSSES, (BLUE, ORANGE), "os", strict=True):
        runs = [run for run in results.values() if run.settings.training.loss == loss]
        ratios = [measured.measured_ratio(run) for run in runs]
        at = np.repeat([run.settings.model.value.scale for run in runs], [len(own) for own in ratios])
        scales, bags = np.geomspace(min(at), max(at), 20), measured.gradient_bags(runs[0].settings)
        formula = [gradient_ratio(bags, loss, float(scale)) for scale in scales]
        style = {"marker": marker, "linestyle": "none", "alpha": 0.5, "markersize": 5}
        name = LOSS_WORDS[loss]
        series += [
            Series(x=scales, y=formula, label=f"{name}: formula", colour=colour, style={"linewidth": 1.2}),
            Series(x=at, y=np.concatenate(ratios), label=f"{name}: measured", colour=colour, style=style),
        ]
    panel = Panel(series=series, x="initial scale s", y="‖∇W^V‖ / ‖∇W^K‖ at the start", log="xy")
    return figures.curves(title, [panel], size=(5.5, 3.8))


def figure5(results: Results, *, title: str) -> Figure:
    """Norms, rotation and attention of every layer, a colour per setting."""
    parts = {
        "norm/key": "‖W^K‖",
        "norm/query": "‖W^Q‖",
        "norm/value": "‖W^V‖",
        "rotation": ROTATION,
        "attention/words": DISTANCE,
    }
    layers, shown = measured.layers_of(next(iter(results.values()))), list[Panel]()
    for metric, label in parts.items():
        for layer in range(layers):
            series = [
                Series(
                    x=run.steps,
                    y=run.metrics[metric][:, :, layer],
                    label=f"{stepping(run.settings)}, {scale_of(run)}",
                    colour=colour,
                )
                for run, colour in zip(results.values(), PALETTE, strict=False)
            ]
            heading = "" if shown[layers - 1 :] else f"layer {layer + 1}"
            x, y = "step" if metric == "attention/words" else "", "" if layer else label
            shown.append(Panel(series=series, title=heading, x=x, y=y, log="y"))
    return figures.curves(title, shown, columns=layers, size=(3.2, 2.35), sharex=True, sharey="row")


# Language models.


def ratios(results: Results, *, title: str, assignment: str) -> Figure:
    """Table 1 or 5 as a picture; beside Table 1's numbers what the paper prints."""
    models = language.probed(results)
    rows = [language.row_of(result, fraction, assignment) for result in models.values() for fraction in FRACTIONS]
    own = [model for model in models if model in PAPER_MODELS] or [BERT]

    def printed(model: str, fraction: float) -> ProbeRow:
        numbers: dict[str, Any] = {name: language.printed(model, fraction, name) for name in language.MEASURES}
        return ProbeRow(
            model=f"{PAPER_MODELS[model]} (paper)",
            revision=None,
            fraction=fraction,
            assignment=assignment,
            embedding="layer",
            cosine=Comparison(ratio=numbers["cosine"]),
            dot=Comparison(ratio=numbers["dot"]),
            attention=Comparison(ratio=numbers["attention"]),
        )

    reference = [printed(model, fraction) for model in own for fraction in FRACTIONS if assignment == "one"]
    return ratio_table(rows, title=title, reference=reference)


def heads(results: Results, *, title: str) -> Figure:
    """Every head's ratio."""
    rows = [language.row_of(result, FRACTIONS[0]) for result in language.probed(results).values()]
    return head_maps(rows, title=title)


def figure3(results: Results, *, title: str) -> Figure:
    """Cosines of the nine words, as far as a model's tokenizer keeps them whole."""
    return word_maps({model: result.maps[0] for model, result in language.probed(results).items()}, title=title)
