"""Small folders of every kind for tests of the page, with words in them that must not become markup."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from support.helpers import small_settings
from support.text_corpus import small_text_settings
from topicscope.measure.film import Matrix, RunView, classes_of, film
from topicscope.paper.claim import Claim, above, exact, over_seeds, row
from topicscope.reporting.figures import save_figure
from topicscope.reporting.figures.training import seed_points
from topicscope.settings.toml import dump_settings
from topicscope.training.loop import Ensemble, train, train_ensemble

NASTY = '<script>alert("x")</script>'

# A row of corpus.json.
CORPUS_ROW = {
    "tokenizer": "t",
    "tokenizer_name": "bert",
    "length": 126,
    "source": "wiki",
    "articles": 3,
    "passages": 9,
    "measured": 4,
    "problems": [],
    "words": 5,
    "words_left_out": [],
    "words_without_attention": ["frog"],
    "topic_quality": {"c_v": 0.5, "stability": None},
}


def write_runs(folder: Path, seeds: int = 2) -> Path:
    """W^V trained alone with one-hot embeddings, a few steps."""
    frozen: dict[str, Any] = {"start": "zero", "train": False}
    model = {
        "embedding": {"start": "identity", "train": False},
        **dict.fromkeys(("key", "query", "key_bias", "query_bias", "value_bias", "prediction_bias"), frozen),
    }
    settings = small_settings(model=model, training={"loss": "squared", "l2": 1e-3, "learning_rate": 0.05})
    train_ensemble(Ensemble(settings=settings, seeds=tuple(range(seeds))), folder)
    return folder


def write_layers(folder: Path) -> Path:
    """W^V of two layers, with one-hot embeddings, a few steps."""
    model = {"layers": 2, "embedding": {"start": "identity", "train": False}}
    train(small_settings(model=model), folder)
    return folder


def write_text_run(folder: Path) -> Path:
    """Three rows of a run on text that was to have more, of two layers."""
    folder.mkdir(parents=True)
    (folder / "settings.toml").write_text(dump_settings(small_text_settings()))

    def contrast(ratio: float) -> dict[str, float]:
        return {"ratio": ratio, "low": ratio / 2, "high": ratio * 2}

    def topics(embedding: float, attention: float) -> dict[str, Any]:
        difference = {"ratio": None, "difference": 0.5, "difference_low": 0.25, "difference_high": 1.0}
        layers = [contrast(attention), contrast(attention * 2)]
        cosines = {"embedding_layer": contrast(embedding), "embedding_matrix": difference}
        return {**cosines, "attention": contrast(attention), "attention_by_layer": layers}

    rows = [
        {
            "step": step,
            "loss": 5.0 - step,
            "validation_loss": None if step == 1 else 6.0 - step,
            "norm": {"key": [0.1, 0.2], "query": [0.1, 0.2], "value": [1.0, 2.0 * max(step, 1)]},
            "rotation": [0.25, 0.125] if step == 2 else None,
            "gradient_norm": {"key": [1e-3, 1e-5 * 10**step]},
            "topics": measured,
        }
        for step, measured in enumerate([topics(-1.0, 1.0), None, topics(3.0, 2.0)])
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def write_claims(folder: Path, *, statement: str = NASTY) -> Path:
    """Three claims: one holds, one fails, one was not run; a figure for two."""
    (folder / "figures").mkdir(parents=True)

    def claim(name: str, source: str, figure: str, words: str) -> Claim:
        return Claim(
            id=name,
            source=source,
            statement=words,
            expected="> 0",
            rule=above(0),
            measure=lambda _: exact(1),
            figure=figure,
        )

    rows = [
        row(
            claim("figure2/a", "Figure 2", "figure2", statement),
            over_seeds([1.0, 1.1, 1.2]),
            "holds",
            seeds=3,
        ),
        row(claim("theorem2/b", "Theorem 2", "", "It is so."), exact(-2.0), "fails"),
        row(claim("figure2/c", "Figure 2", "figure2", "Not tried."), None, "not run"),
    ]
    (folder / "claims.json").write_text(json.dumps(rows))
    (folder / "settings.json").write_text(json.dumps({"preset": "quick", "seeds": 3, "seed": 0}))
    points = {"contrast": ({"squared loss": np.array([1.0, 1.1, 1.2]), statement: np.array([0.5])}, 0.25)}
    save_figure(seed_points(points, title="Figure 2"), folder / "figures" / "figure2")
    return folder


def write_probe(folder: Path) -> Path:
    """Two models, two layers of three heads, and topics with a word that looks like a script."""
    folder.mkdir(parents=True)

    def number(ratio: float, p: float = 0.01) -> dict[str, float]:
        return {"ratio": ratio, "low": ratio - 0.1, "high": ratio + 0.1, "difference": ratio - 1, "p": p}

    heads = [[number(1 + layer / 10 + head / 100, 0.2 if head else 0.01) for head in range(3)] for layer in range(2)]
    common = {"revision": "", "assignment": "one", "embedding": "matrix", "centred": False, "words": 9, "topics": 3}
    rows = [
        {
            **common,
            "model": model,
            "fraction": 0.001,
            "cosine": number(2.0),
            "dot": number(1.5) | {"ratio": None},
            "attention": number(1.3),
            "attention_by_layer_head": heads,
        }
        for model in ("minilm", f"model{NASTY}")
    ]
    (folder / "probe.json").write_text(json.dumps(rows))
    (folder / "topics.csv").write_text(
        f'seed,fraction,assignment,topic,word\n0,0.001,one,0,"{NASTY.replace(chr(34), "")}"\n'
    )
    words = {"model": "minilm", "words": ["frog", "<script>"], "cosine": [[1.0, 0.5], [0.5, 1.0]]}
    (folder / "words.json").write_text(json.dumps([words]))
    return folder


def write_sweep(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "sweep.csv").write_text(
        "training.learning_rate,data.topics,training.optimizer,seed,loss,excess_loss,run\n"
        "0.001,10,adam,0,0.9,0.3,a\n0.001,20,adam,0,0.8,0.2,b\n0.1,20,sgd,1,0.81,0.21,c\n"
    )
    return folder


def write_landscapes(folder: Path) -> Path:
    """Two small landscapes."""
    from topicscope.paper.figures6_9 import landscape_grid
    from topicscope.theory.landscape import InfiniteDocuments

    folder.mkdir(parents=True)
    sizes = [(10, 2), (20, 2), (20, 4)]
    grids = [
        landscape_grid(InfiniteDocuments(topics=topics, per_document=per_document, words=10), "block", points=15)
        for topics, per_document in sizes
    ]
    np.savez(
        folder / "landscapes.npz",
        weights=np.stack([grid[1] for grid in grids]),
        loss=np.stack([grid[2] for grid in grids]),
    )
    (folder / "landscapes.json").write_text(json.dumps([grid[0] for grid in grids]))
    return folder


def write_everything(folder: Path) -> list[Path]:
    """One folder of each kind."""
    return [
        write_claims(folder / "results"),
        write_runs(folder / "runs"),
        write_layers(folder / "layers"),
        write_text_run(folder / "text"),
        write_landscapes(folder / "landscapes"),
        write_probe(folder / "probe"),
        write_sweep(folder / "sweep"),
    ]


def write_article(folder: Path) -> Path:
    """Results as ``reproduce`` leaves them: claims that the article speaks of, two runs, landscapes, two figures."""
    (folder / "figures").mkdir(parents=True)
    write_landscapes(folder / "runs" / "landscapes")

    def claim(name: str, source: str, verdict: str, number: float, figure: str = "") -> dict[str, Any]:
        made = Claim(
            id=name, source=source, statement=f"{name} with W^V and p_c.", expected="> 0", rule=above(0),
            measure=lambda _: exact(1), figure=figure,
        )  # fmt: skip
        return row(made, over_seeds([number, number, 1.02 * number]), "holds", seeds=3) | {"verdict": verdict}

    rows = [
        claim("section6.1/topics", "§6.1", "holds", 0.7),
        claim("theorem1/example", "Theorem 1", "fails", 0.019),
        claim("theorem2/finite-ratio", "Theorem 2", "holds", 2.1),
        claim("figure2/squared-sgd/theorem2", "Figure 2", "holds", 0.044, "figure2"),
        claim("figure2/squared-adam/theorem2", "Figure 2", "fails", 0.82, "figure2"),
        claim("figure4/two-stages", "Figure 4", "holds", 0.98),
        claim("figure4/loss-decides", "Figure 4", "undecided", 0.6, "other"),
    ]
    (folder / "claims.json").write_text(json.dumps(rows))
    points = {"contrast": ({"squared loss": np.array([1.0, 1.1, 1.2])}, 0.25)}
    for name in ("figure2", "other"):
        save_figure(seed_points(points, title="W^V"), folder / "figures" / name)
    save_view(folder / "runs" / "figure2" / "squared-adam", with_theory())
    save_view(folder / "runs" / "figure4" / "squared" / "adam" / "scale-0.001", two_stages())
    return folder


def save_view(folder: Path, view: RunView) -> None:
    folder.mkdir(parents=True)
    save_file(film(view), folder / "trained.safetensors")


def with_theory() -> RunView:
    """A matrix that grows into its theory, of three topics of two words; attention stays as it is."""
    word_topics = np.array([0, 1, 1, 2, 2, 3, 3])
    theory = (word_topics[:, None] == word_topics).astype(np.float32)
    steps = np.arange(0, 2001, 100)
    frames = (steps / 2000)[:, None, None] * theory
    settings = {
        "seed": 0,
        "data": {"topics": 3, "words": 2},
        "model": {part: {"train": part == "value"} for part in ("embedding", "value", "key", "query")},
        "training": {"loss": "squared", "optimizer": "adam", "learning_rate": 0.01, "l2": 0.0, "steps": 2000},
    }
    matrix = Matrix("W^V", frames.astype(np.float32), classes_of(frames, word_topics)[None], theory, "The optimum.")
    return RunView(
        name="figure2/squared-adam",
        settings=settings,
        seeds=(0,),
        steps=steps,
        loss=np.exp(-steps / 500)[None],
        held_out=np.full((1, len(steps)), np.nan),
        norms={"value": steps[None] / 1000.0, "key": np.zeros((1, len(steps)))},
        stages={},
        frame_steps=steps,
        matrices=(matrix,),
        attention=np.full((1, len(steps), 1, 3), 0.01),
        word_topics=word_topics,
        levels={"bayes_floor": {"loss": 0.1}, "matrices": {}},
        total=2000,
    )


def two_stages() -> RunView:
    """W^V first, then attention, which takes off at step 1,200."""
    view = with_theory()
    late = np.clip((view.steps - 1100) / 1000, 0, None)[None]
    matrix = dataclasses.replace(view.matrices[0], theory=None, what="There is no theory.")
    modes = {
        f"{mode} in W^{part}": 0.01 + late * (1.0 if mode == "topics" else 0.01)
        for mode in ("topics", "[MASK]")
        for part in "KQ"
    }
    return dataclasses.replace(
        view,
        name="figure4/squared/adam/scale-0.001",
        norms={"value": view.norms["value"] + 0.1, "key": 0.01 + late, "query": 0.01 + late, **modes},
        stages={"words": late, "mask": 0 * late, "gain": np.minimum(view.steps / 500, 0.98)[None]},
        matrices=(matrix,),
        attention=0.01 + 0.05 * late[:, :, None, None] * np.array([1.0, 0.8, 0.0]),
    )
