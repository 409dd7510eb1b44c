"""The figures of claims.toml: from results by name to what ``reporting.figures`` draws."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from topicscope.measure.blocks import centred_columns
from topicscope.measure.run import Run
from topicscope.papers.claim import Results
from topicscope.papers.topic_structure import language, trained
from topicscope.papers.topic_structure.exact import gain, paper_moments
from topicscope.papers.topic_structure.experiments import (
    BERT,
    EPSILON,
    FRACTIONS,
    LDA,
    LOSSES,
    MASKING,
    MILD_L2,
    PAPER_MODELS,
    SADDLE_SGD,
)
from topicscope.records import AttentionComparison, Comparison, PredictedStages, ProbeRow
from topicscope.reporting import figures
from topicscope.reporting.figures import Cells, Panel, Series
from topicscope.reporting.figures.probe import head_maps, ratio_table, word_maps
from topicscope.reporting.palette import BLUE, CLASSES, GREEN, GREY, ORANGE, PALETTE
from topicscope.settings import Settings
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.dynamics import gradient_ratio
from topicscope.theory.finite_documents import finite_optimum

ROTATION = "rotation of W^V\nin 10 steps"
LOSS_WORDS = {"cross_entropy": "cross-entropy", "squared": "squared loss"}
OPTIMIZER_WORDS = {"sgd": "SGD", "adam": "Adam"}
# Uniform attention between two positions, at the average length.
UNIFORM_ATTENTION = 2 / sum(LDA.length)
# Documents and masks as labels; where there is none the experiment's own name says enough.
DOCUMENT_WORDS = {
    "many-topics": "T = 20, v = 5",
    "few-topics": "T = 5, v = 20",
    "more-topics": "T = 20, v = 10",
    "more-words": "T = 10, v = 20",
    "dirichlet-": "α = ",
    "short": "N from 30 to 50",
    "shorter": "N from 10 to 20",
    "long": "N from 250 to 300",
    "unequal-words": "word probabilities as 1/rank",
    "overlap-": "topics overlapping by ",
    "topic-sets": "documents of τ = 2 topics",
    "squared-adam": "the paper's",
    "cross-entropy-adam": "the paper's",
    "all-masked": "p_c = p_r = 0",
    "hidden-keys": "masked keys hidden",
    "joint": "the paper's masking",
}


def combination(settings: Settings) -> str:
    """Loss and optimiser: "squared loss, Adam"."""
    training = settings.training
    return f"{LOSS_WORDS[training.loss]}, {OPTIMIZER_WORDS.get(training.optimizer, training.optimizer)}"


def stepping(settings: Settings) -> str:
    """Optimiser, rate and ε."""
    training = settings.training
    epsilon = "" if training.adam_epsilon == EPSILON else f", ε = {training.adam_epsilon:g}"
    optimizer = OPTIMIZER_WORDS.get(training.optimizer, training.optimizer)
    return f"{optimizer} at {training.learning_rate:g}{epsilon}"


def cell_words(settings: Settings) -> str:
    """A setting of Figure 4's map."""
    loss, scale = LOSS_WORDS[settings.training.loss], settings.model.value.scale
    return f"{loss}, {stepping(settings)}, weights from N(0, {scale:g}²)"


def document_words(name: str) -> str:
    """Documents or masks in words, from their part of an experiment's name."""
    exact = DOCUMENT_WORDS.get(name)
    beginning = next((key for key in DOCUMENT_WORDS if key.endswith("-") and name.startswith(key)), "")
    return exact or DOCUMENT_WORDS.get(beginning, "") + name.removeprefix(beginning)


def shown_value(run: Any) -> np.ndarray:
    """The first seed's W^V as it is drawn: columns centred under cross-entropy, which does not see their means."""
    matrix: np.ndarray = run.value_products[0]
    return centred_columns(matrix) if run.settings.training.loss == "cross_entropy" else matrix


def levels(loss: str) -> dict[str, float]:
    """The Bayes floor and the best constant prediction."""
    unit = gain(LDA, MASKING, loss)  # type: ignore[arg-type]
    return {"Bayes floor": unit.floor, "best constant prediction": unit.constant}


def figure1(results: Results) -> Figure:
    """Both products of all four combinations."""
    panels = {
        f"{matrix}\n{combination(run.settings)}": trained.products(run, of)[0]
        for of, matrix in (("embedding", "W^E⊤W^E"), ("value", "W^E⊤W^V W^E"))
        for run in results.values()
    }
    steps = results["figure1/squared-adam"].settings.training.steps
    title = f"Figure 1: all parts trained ({SADDLE_SGD.words}; Adam at 0.01, {steps:,} steps)"
    return figures.heat_maps(panels, words=LDA.words, title=title)


def theorem1(results: Results) -> Figure:
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
    title = "Theorem 1 in training: W^E⊤W^E of the embedding trained alone (W^V = I, uniform attention)"
    return figures.heat_maps(panels, words=LDA.words, same_scale=[tuple(panels)[:3]], title=title)


def losses(results: Results) -> Figure:
    """Held-out losses of all models that are compared, by loss."""
    models = {
        "figure1": "all parts",
        "theorem1": "embedding alone",
        "losses": "attention, one-hot words",
        "figure10": "W^V, uniform attention",
    }
    named = {name: models[name.split("/")[0]] for name in results}
    return _held_out(results, named, title="§2, §4, §5.2: what training a part alone costs (Adam)")


def _held_out(results: Results, named: Mapping[str, str], *, title: str) -> Figure:
    """Held-out losses, a panel per loss, each run's row by its result's name."""
    rows, numbers = list(dict.fromkeys(named.values())), {}
    for loss in LOSSES:
        own = {name: run for name, run in results.items() if run.settings.training.loss == loss}
        values = {rows.index(named[name]): run.final["held_out_loss"] for name, run in own.items()}
        numbers[f"held-out {LOSS_WORDS[loss]}"] = [figures.by_row(values)]
    lines = {label: levels(loss) for label, loss in zip(numbers, LOSSES, strict=True)}
    return figures.dots(title, rows, numbers, levels=lines)


def figure2(results: Results) -> Figure:
    """The four heat maps, in the paper's order, and the optima below."""
    cross_entropy = centred_columns(trained.convex_optimum(MILD_L2).matrix(LDA.topics, LDA.words))
    panels = {combination(run.settings): shown_value(run) for run in results.values()} | {
        "optimum, as for SGD": cross_entropy,
        "optimum": cross_entropy,
        "gradient descent at this step": trained.exact_value(results["figure2/squared-sgd"].settings),
        "ridge optimum": finite_optimum(paper_moments(), MILD_L2),
    }
    names = list(panels)
    return figures.heat_maps(
        panels,
        words=LDA.words,
        same_scale=[(names[column], names[column + 4]) for column in range(4)],
        title="Figure 2: W^V at convergence (above), and theory (below); cross-entropy with columns centred",
    )


def figure10(results: Results) -> Figure:
    """Four heat maps without L2, four with attention trained."""
    panels = {}
    for run in results.values():
        kind = "uniform attention" if run.settings.model.uniform else "W^K, W^Q trained"
        panels[f"{kind}\n{combination(run.settings)}"] = shown_value(run)
    title = "Figure 10: W^V without L2, attention uniform (above) and trained (below); cross-entropy centred"
    return figures.heat_maps(panels, words=LDA.words, title=title)


def figure4(results: Results) -> Figure:
    """Norms, attention and gain of the settings that claims look at, beside the reduced model's."""
    columns = [_stages_of(run) for run in results.values()]
    title = "Figure 4: norms, attention and gain; one faint line per run, the reduced model's thin and black"
    shown = [column[row] for row in range(len(columns[0])) for column in columns]
    return figures.curves(title, shown, columns=len(columns), size=(4.2, 1.9), sharex="col")


def _stages_of(run: Run) -> list[Panel]:
    """A column of Figure 4: orange is where attention takes off, black where it was predicted to."""
    theory = run.reference.stages if run.reference else PredictedStages()
    ends = [one.take_off for one in trained.stages_of(run) if one.take_off is not None]
    marks = [(float(end), ORANGE) for end in ends]
    state = "attention takes off (dashed)" if ends else "attention does not take off"
    if theory.take_off is not None:
        marks.append((theory.take_off, "black"))
        state += f", predicted at {theory.take_off:,.0f} (black)"
    norms = {
        f"norm of {matrix}": {
            f"norm of {matrix}": f"norm/{part}",
            **({"its part that tells topics apart": f"modes/{part}-topics"} if part != "value" else {}),
            **({"its column of [MASK]": f"modes/{part}-mask"} if part != "value" else {}),
        }
        for matrix, part in (("W^K", "key"), ("W^Q", "query"), ("W^V", "value"))
    }
    rows = norms | {
        ROTATION: {ROTATION: "rotation"},
        "a: attention,\nfrom uniform": {"word queries": "attention/words", "[MASK] queries": "attention/mask"},
        "g: gain of W^V\nunder uniform attention": {"g": "uniform_gain"},
    }
    column = list[Panel]()
    for label, curves in rows.items():
        series = [
            Series(x=run.steps, y=trained.curve(run, metric), label=name, colour=colour)
            for (name, metric), colour in zip(curves.items(), (BLUE, GREEN, GREY), strict=False)
        ]
        part = next(iter(curves.values())).removeprefix("norm/")
        if values := theory.norms.get(part):
            thin = {"linewidth": 0.8}
            series.append(Series(x=theory.steps, y=values, label="the reduced model", colour="black", style=thin))
        title = "" if column else f"{cell_words(run.settings)}\n{state}"
        x = "step" if len(column) == len(rows) - 1 else ""
        log = "y" if label == ROTATION else ""
        column.append(Panel(series=series, title=title, x=x, y=label, marks=marks, log=log, from_zero=not log))
    return column


def figure4_map(results: Results) -> Figure:
    """Which settings are two-stage, when attention takes off, and what W^V has gained by then."""
    panels: dict[str, dict[tuple[str, str], tuple[float, str]]] = {}
    for run in results.values():
        taken_off = [one for one in trained.stages_of(run) if one.take_off is not None]
        numbers = [(one.two, one.take_off, one.gain) for one in taken_off]
        share, when, gained = np.mean(np.array(numbers, dtype=float), axis=0).tolist() if numbers else [np.nan] * 3
        text = f"step {when:.0f}\n{100 * gained:.0f} % gained" if numbers else "does not\ntake off"
        cell = stepping(run.settings), f"{run.settings.model.value.scale:g}"
        panels.setdefault(LOSS_WORDS[run.settings.training.loss], {})[cell] = (share, text)
    tables = []
    for name, found in panels.items():
        rows, columns = (list(dict.fromkeys(place[axis] for place in found)) for axis in (0, 1))
        own = [found[row, column] for row in rows for column in columns]
        shares = np.array([share for share, _ in own]).reshape(len(rows), len(columns))
        tables.append(Cells(values=shares, rows=rows, columns=columns, title=name, texts=[text for _, text in own]))
    title = (
        "Figure 4's map: when attention takes off, and what W^V has gained by then\n"
        "dark: all runs are two-stage; grey: attention has not taken off when the run ends"
    )
    # Below the darkest blue, so that text stays readable.
    return figures.cells(title, tables, x="initial scale", scale=(0.0, 1.6), colours="Blues", cell=(1.15, 0.62))


def figure4_predicted(results: Results) -> Figure:
    """Predicted against measured take-off and g, beside a band of 15 %; a marker per loss and optimiser."""
    both = trained.predicted_and_measured(results)
    names = [results[name].settings.training for name in both]
    groups = np.array([f"{LOSS_WORDS[training.loss]}, {training.optimizer}" for training in names])
    panels = []
    for label, numbers in zip(
        ("step at which attention takes off", "g at take-off"),
        np.moveaxis(np.stack([*both.values()]), 2, 0),
        strict=True,
    ):
        there = np.isfinite(numbers).all(axis=1)
        ends = np.array([numbers[there].min(), numbers[there].max()]) if there.any() else np.ones(2)
        band = Series(x=ends, y=ends, low=ends / 1.15, high=ends * 1.15, colour=GREY, style={"linewidth": 1.0})
        series = [band]
        for kind, colour, marker in zip(dict.fromkeys(groups), cycle((BLUE, ORANGE, GREEN, GREY)), cycle("osD^v<>")):
            x, y = numbers[there & (groups == kind)].T[::-1]
            style = {"marker": marker, "linestyle": "none", "markersize": 5, "alpha": 0.8}
            series.append(Series(x=x, y=y, label=kind, colour=colour, style=style))
        log = "xy" if ends[0] > 0 and ends[1] > 10 * ends[0] else ""
        panels.append(Panel(series=series, x=f"measured {label}", y=f"predicted {label}", log=log))
    return figures.curves("Figure 4's map, predicted before training: no constant is fitted", panels, size=(5.2, 4.4))


def first_gradients(results: Results) -> Figure:
    """‖∇W^V‖ over ‖∇W^K‖ at the start against the initial scale, a dot per run and the formula as a line."""
    series = []
    for loss, colour, marker in zip(LOSSES, (BLUE, ORANGE), "os", strict=True):
        runs = [run for run in results.values() if run.settings.training.loss == loss]
        measured = [trained.measured_ratio(run) for run in runs]
        at = np.repeat([run.settings.model.value.scale for run in runs], [len(each) for each in measured])
        scales, bags = np.geomspace(min(at), max(at), 20), trained.gradient_bags(runs[0].settings)
        ratios = [gradient_ratio(bags, loss, float(scale)) for scale in scales]
        style = {"marker": marker, "linestyle": "none", "alpha": 0.5, "markersize": 5}
        name = LOSS_WORDS[loss]
        series += [
            Series(x=scales, y=ratios, label=f"{name}: formula", colour=colour, style={"linewidth": 1.2}),
            Series(x=at, y=np.concatenate(measured), label=f"{name}: measured", colour=colour, style=style),
        ]
    title = "§8.1: gradients at the start, measured and ‖E[r x̃⊤]‖/(κ s²)"
    panel = Panel(series=series, x="initial scale s", y="‖∇W^V‖ / ‖∇W^K‖ at the start", log="xy")
    return figures.curves(title, [panel], size=(5.5, 3.8))


def _schedule(name: str) -> str:
    return name.split("/")[1]


def schedules(results: Results) -> Figure:
    """W^V after each schedule, by loss."""
    panels: dict[str, np.ndarray] = {}
    same_scale = []
    for loss in LOSSES:
        runs = {name: run for name, run in results.items() if run.settings.training.loss == loss}
        named = {f"{_schedule(name)}\n{LOSS_WORDS[loss]}": shown_value(run) for name, run in runs.items()}
        panels |= named
        same_scale.append(tuple(named))
    title = "§8.1: W^V after joint, two-stage and alternating training (Adam)"
    return figures.heat_maps(panels, words=LDA.words, columns=3, same_scale=same_scale, title=title)


def schedules_loss(results: Results) -> Figure:
    """Held-out losses by schedule."""
    steps = results["figure10/joint/squared-adam"].settings.training.steps
    named = {name: f"{_schedule(name)} training" for name in results}
    title = f"§8.1: attention on one-hot words by schedule ({steps:,} steps, Adam)"
    return _held_out(results, named, title=title)


def table3(results: Results) -> Figure:
    """Attention by class for every setting of the table."""
    rows = {}
    for run in results.values():
        value = "trained" if run.settings.model.value.train else "frozen"
        documents = "" if run.settings.documents.sampler == "dirichlet" else ", τ = 2 documents"
        rows[f"{combination(run.settings)}\nW^V {value}{documents}"] = run.final["attention"][:, :3]
    title = "Table 3: average attention of word queries, by what key and query share"
    return _attention(rows, title=title)


def _attention(rows: Mapping[str, np.ndarray], *, title: str) -> Figure:
    """Average attention × 100 by class of word pairs, a dot per run."""
    label = "average attention of a pair of positions × 100"
    series = [
        figures.by_row(
            {row: 100 * values[:, at] for row, values in enumerate(rows.values())}, label=kind, colour=colour
        )
        for at, (kind, colour) in enumerate(list(CLASSES.items())[:3])
    ]
    levels = {label: {"uniform attention": 100 * UNIFORM_ATTENTION}}
    return figures.dots(title, list(rows), {label: series}, levels=levels, size=(9.0, 0.42))


def robustness(results: Results) -> Figure:
    """How far blocks stand out, and attention's average, for every kind of documents."""
    short = {"squared": "squared", "cross_entropy": "cross-entropy"}
    runs = {
        f"{document_words(name.split('/')[-1])} ({short[run.settings.training.loss]})": run
        for name, run in results.items()
    }
    seen = trained.blocks(runs, centred=True)
    blocks, average = "blocks of W^V, in standard\ndeviations of the background", "attention, ((v − 1)α̂ + β̂)/v"
    numbers = {
        blocks: [figures.by_row({row: np.array(seen[words].values) for row, words in enumerate(runs)})],
        average: [figures.by_row({row: trained.topic_averages(run) for row, run in enumerate(runs.values())})],
    }
    ends = {blocks: {"the rule's end": 1.0}, average: {"the rule's end": 1.05}}
    return figures.dots("§2.3: the main conclusions under other documents", list(runs), numbers, levels=ends)


def robustness_embedding(results: Results) -> Figure:
    """W^E⊤W^E with all parts trained on other documents."""
    panels = {document_words(name.split("/")[-1]): run.embedding_products[0] for name, run in results.items()}
    title = "§2.3: W^E⊤W^E with all parts trained, other documents (cross-entropy, Adam)"
    return figures.heat_maps(panels, words=LDA.words, columns=3, title=title)


def masking(results: Results) -> Figure:
    """Attention by class under other masks, beside the paper's."""
    rows = {
        f"{document_words(name.split('/')[1])}\n{LOSS_WORDS[run.settings.training.loss]}": run.final["attention"][:, :3]
        for name, run in results.items()
    }
    title = "Masking: average attention of word queries, W^V trained too (Adam)"
    return _attention(rows, title=title)


def as_released(results: Results) -> Figure:
    """Heat maps as written, and as released below them."""
    pairs = {
        "Figure 1, cross-entropy, SGD": "figure1/cross-entropy-sgd",
        "Figure 1, cross-entropy, Adam": "figure1/cross-entropy-adam",
        "Figure 2, cross-entropy, SGD": "figure2/cross-entropy-sgd",
        "Figure 2, cross-entropy, Adam": "figure2/cross-entropy-adam",
        "W^K, W^Q too, squared loss, Adam": "table3/squared-adam",
    }
    written = dict(zip(pairs, [*list(pairs.values())[:-1], "figure10/joint/squared-adam"], strict=True))
    panels, tokens = {}, TopicModel.from_settings(LDA).vocabulary
    for words, prefix, names in (("as written", "", written), ("as released", "as-released/", pairs)):
        for title, name in names.items():
            run = results[f"{prefix}{name}"]
            embedding = run.settings.model.embedding.train
            matrix = run.embedding_products[0] if embedding else centred_columns(run.value_products[0])
            # START and END, which only the released code has, come last.
            panels[f"{title}\n{'W^E⊤W^E' if embedding else 'W^V'}, {words}"] = matrix[:tokens, :tokens]
    title = "As written (above) and as the paper's code was released (below); columns of W^V centred"
    return figures.heat_maps(panels, words=LDA.words, columns=len(pairs), title=title)


# On text, and of language models.


def figure5(results: Results) -> Figure:
    """Norms, rotation and attention of every layer, a colour per setting."""
    parts = {
        "norm/key": "‖W^K‖",
        "norm/query": "‖W^Q‖",
        "norm/value": "‖W^V‖",
        "rotation": ROTATION,
        "attention/words": "a: attention,\nfrom uniform",
    }
    layers = next(iter(results.values())).metrics["rotation"].shape[2]
    shown = list[Panel]()
    for metric, label in parts.items():
        for layer in range(layers):
            series = []
            for run, colour in zip(results.values(), PALETTE, strict=False):
                training, scale = run.settings.training, run.settings.model.value.scale
                name = f"Adam at {training.learning_rate:g}, W^K, W^Q, W^V from N(0, {scale:g}²)"
                series.append(Series(x=run.steps, y=run.metrics[metric][:, :, layer], label=name, colour=colour))
            title = "" if shown[layers - 1 :] else f"layer {layer + 1}"
            x, y = "step" if metric == "attention/words" else "", "" if layer else label
            shown.append(Panel(series=series, title=title, x=x, y=y, log="y"))
    title = "Figure 5: two stages in each layer, on Wikipedia; one faint line per run"
    return figures.curves(title, shown, columns=layers, size=(3.2, 2.35), sharex=True, sharey="row")


def ratios(results: Results, *, assignment: str) -> Figure:
    """Table 1 or 5 as a picture; beside Table 1's numbers what the paper prints."""
    models = language.probed(results)
    rows = [language.row_of(result, fraction, assignment) for result in models.values() for fraction in FRACTIONS]
    own = [model for model in models if model in PAPER_MODELS] or [BERT]
    reference = [
        ProbeRow(
            model=f"{PAPER_MODELS[model]} (paper)",
            revision=None,
            fraction=fraction,
            assignment=assignment,
            embedding="layer",
            cosine=Comparison(ratio=language.printed(model, fraction, "cosine")),
            dot=Comparison(ratio=language.printed(model, fraction, "dot")),
            attention=AttentionComparison(ratio=language.printed(model, fraction, "attention")),
        )
        for model in own
        for fraction in FRACTIONS
        if assignment == "one"
    ]
    table, topics = ("Table 1", "one topic per word") if assignment == "one" else ("Table 5", "several topics per word")
    title = f"{table}: same over different topic on wiki-sample, {topics}"
    return ratio_table(rows, title=title, reference=reference)


def heads(results: Results) -> Figure:
    """Every head's ratio."""
    rows = [language.row_of(result, FRACTIONS[0]) for result in language.probed(results).values()]
    return head_maps(rows, title="Attention by head on wiki-sample, threshold 0.0005")


def figure3(results: Results) -> Figure:
    """Cosines of the nine words, as far as a model's tokenizer keeps them whole."""
    maps = {model: result.maps[0] for model, result in language.probed(results).items()}
    return word_maps(maps, title="Figure 3: cosine of word embeddings (word-embedding matrix)")
