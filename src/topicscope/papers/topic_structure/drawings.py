"""The figures of claims.toml: from results by name to what ``reporting.figures`` draws."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from topicscope.measure.blocks import centred_columns
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
from topicscope.reporting.figures import probe as probe_figures
from topicscope.reporting.figures import training as figures
from topicscope.settings import Settings
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.dynamics import gradient_ratio
from topicscope.theory.finite_documents import finite_optimum

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
    panels = {
        f"held-out {LOSS_WORDS[loss]}": (
            {
                models[name.split("/")[0]]: run.final["held_out_loss"]
                for name, run in results.items()
                if run.settings.training.loss == loss
            },
            levels(loss),
        )
        for loss in LOSSES
    }
    return figures.run_points(panels, title="§2, §4, §5.2: what training a part alone costs (Adam)")


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
    columns, predicted = {}, {}
    for run in results.values():
        name = cell_words(run.settings)
        theory = run.reference.stages if run.reference else PredictedStages()
        names = {"key": "norm of W^K", "query": "norm of W^Q", "value": "norm of W^V"}
        norms = {names[part]: values for part, values in theory.norms.items() if values}
        predicted[name] = (theory.take_off, theory.steps, norms)
        ends = [one.take_off for one in trained.stages_of(run) if one.take_off is not None]
        curves = {
            matrix: {
                f"norm of {matrix}": trained.curve(run, f"norm/{part}"),
                "its part that tells topics apart": trained.curve(run, f"modes/{part}-topics"),
                "its column of [MASK]": trained.curve(run, f"modes/{part}-mask"),
            }
            for matrix, part in (("W^K", "key"), ("W^Q", "query"))
        } | {
            "norm of W^V": {"norm of W^V": trained.curve(run, "norm/value")},
            figures.ROTATION_NAME: {figures.ROTATION_NAME: trained.curve(run, "rotation")},
            "a: attention,\nfrom uniform": {
                "word queries": trained.curve(run, "attention/words"),
                "[MASK] queries": trained.curve(run, "attention/mask"),
            },
            "g: gain of W^V\nunder uniform attention": {"g": trained.curve(run, "uniform_gain")},
        }
        columns[name] = (run.steps, curves, ends)
    title = "Figure 4: norms, attention and gain; one faint line per run, the reduced model's thin and black"
    return figures.norm_trajectories(columns, title=title, predicted=predicted)


def figure4_map(results: Results) -> Figure:
    """Which settings are two-stage, when attention takes off, and what W^V has gained by then."""
    panels: dict[str, dict[tuple[str, str], tuple[float, float, float]]] = {}
    for run in results.values():
        taken_off = [one for one in trained.stages_of(run) if one.take_off is not None]
        numbers = [(one.two, one.take_off, one.gain) for one in taken_off]
        share, when, gained = np.mean(np.array(numbers, dtype=float), axis=0).tolist() if numbers else [np.nan] * 3
        cell = stepping(run.settings), f"{run.settings.model.value.scale:g}"
        panels.setdefault(LOSS_WORDS[run.settings.training.loss], {})[cell] = (share, when, gained)
    title = "Figure 4's map: when attention takes off, and what W^V has gained by then"
    return figures.stage_map(panels, title=title)


def figure4_predicted(results: Results) -> Figure:
    """Predicted against measured take-off and g."""
    both = trained.predicted_and_measured(results)
    settings = [results[name].settings for name in both]
    take_off, gained = np.moveaxis(np.stack(list(both.values())), 2, 0)
    return figures.predicted_against_measured(
        {"step at which attention takes off": take_off, "g at take-off": gained},
        [f"{LOSS_WORDS[each.training.loss]}, {each.training.optimizer}" for each in settings],
        title="Figure 4's map, predicted before training: no constant is fitted",
    )


def first_gradients(results: Results) -> Figure:
    """Ratio of gradients at the start against the initial scale."""
    measured: dict[str, dict[float, np.ndarray]] = {}
    formula = {}
    for run in results.values():
        loss = run.settings.training.loss
        measured.setdefault(LOSS_WORDS[loss], {})[run.settings.model.value.scale] = trained.measured_ratio(run)
    for name, points in measured.items():
        run = next(run for run in results.values() if LOSS_WORDS[run.settings.training.loss] == name)
        scales, bags = np.geomspace(min(points), max(points), 20), trained.gradient_bags(run.settings)
        ratios = [gradient_ratio(bags, run.settings.training.loss, float(scale)) for scale in scales]
        formula[name] = (scales, np.array(ratios))
    title = "§8.1: gradients at the start, measured and ‖E[r x̃⊤]‖/(κ s²)"
    return figures.gradient_ratios(measured, formula, title=title)


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
    panels = {}
    for loss in LOSSES:
        runs = {name: run for name, run in results.items() if run.settings.training.loss == loss}
        held_out = {f"{_schedule(name)} training": run.final["held_out_loss"] for name, run in runs.items()}
        panels[f"held-out {LOSS_WORDS[loss]}"] = (held_out, levels(loss))
    steps = results["figure10/joint/squared-adam"].settings.training.steps
    title = f"§8.1: attention on one-hot words by schedule ({steps:,} steps, Adam)"
    return figures.run_points(panels, title=title)


def table3(results: Results) -> Figure:
    """Attention by class for every setting of the table."""
    rows = {}
    for run in results.values():
        value = "trained" if run.settings.model.value.train else "frozen"
        documents = "" if run.settings.data.sampler == "dirichlet" else ", τ = 2 documents"
        rows[f"{combination(run.settings)}\nW^V {value}{documents}"] = run.final["attention"][:, :3]
    title = "Table 3: average attention of word queries, by what key and query share"
    return figures.attention_bars(rows, uniform=UNIFORM_ATTENTION, title=title)


def robustness(results: Results) -> Figure:
    """How far blocks stand out, and attention's average, for every kind of documents."""
    short = {"squared": "squared", "cross_entropy": "cross-entropy"}
    runs = {
        f"{document_words(name.split('/')[-1])} ({short[run.settings.training.loss]})": run
        for name, run in results.items()
    }
    seen = trained.blocks(runs, centred=True)
    return figures.run_points(
        {
            "blocks of W^V, in standard\ndeviations of the background": (
                {words: np.array(seen[words].values) for words in runs},
                {"the rule's end": 1.0},
            ),
            "attention, ((v − 1)α̂ + β̂)/v": (
                {words: trained.topic_averages(run) for words, run in runs.items()},
                {"the rule's end": 1.05},
            ),
        },
        title="§2.3: the main conclusions under other documents",
    )


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
    return figures.attention_bars(rows, uniform=UNIFORM_ATTENTION, title=title)


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
    curves = {}
    for run in results.values():
        training, scale = run.settings.training, run.settings.model.attention_scale
        metrics = {part: run.metrics[f"norm/{part}"] for part in ("key", "query", "value")}
        metrics |= {"rotation": run.metrics["rotation"], "attention": run.metrics["attention/words"]}
        name = f"Adam at {training.learning_rate:g}, W^K, W^Q, W^V from N(0, {scale:g}²)"
        curves[name] = (run.steps, metrics)
    return figures.layer_trajectories(
        curves, title="Figure 5: two stages in each layer, on Wikipedia; one line per run"
    )


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
    return probe_figures.ratio_table(rows, title=title, reference=reference)


def heads(results: Results) -> Figure:
    """Every head's ratio."""
    panels = {model: language.head_numbers(result) for model, result in language.probed(results).items()}
    title = "Attention by head on wiki-sample, threshold 0.0005 (dots: p < 0.05, all heads together)"
    return probe_figures.head_maps(panels, title=title)


def figure3(results: Results) -> Figure:
    """Cosines of the nine words, for models whose tokenizers keep the same ones whole."""
    maps = {model: result.maps[0] for model, result in language.probed(results).items()}
    words = next(iter(maps.values())).words
    shown = {model: np.array(own.cosine) for model, own in maps.items() if own.words == words}
    return probe_figures.word_maps(shown, words, title="Figure 3: cosine of word embeddings (word-embedding matrix)")
