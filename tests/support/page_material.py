"""Small folders of every kind for tests of the page, with words in them that must not become markup."""

import dataclasses
import json
from pathlib import Path

import msgspec
import numpy as np

from support.helpers import ONE_HOT_UNIFORM, small_settings
from support.text_corpus import small_text_settings
from topicscope.measure.blocks import averages_by_class
from topicscope.measure.run import Run, run_bytes, write_run
from topicscope.papers.claim import Claim, not_run, over_seeds, record
from topicscope.papers.paper import article, paper
from topicscope.papers.topic_structure.experiments import ONE_HOT, UNIFORM
from topicscope.records import ARTICLES, CLAIMS, LANDSCAPES, SWEEP, ClaimRecord, Level, Reference, SweepRow
from topicscope.reporting.figures import by_row, dots, save_figure
from topicscope.settings import Data, Settings, Training
from topicscope.settings.sweep import Sweep, dump_sweep
from topicscope.settings.toml import dump_settings
from topicscope.training.loop import train

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
    settings = small_settings(model=ONE_HOT_UNIFORM, training={"loss": "squared", "l2": 1e-3, "learning_rate": 0.05})
    for seed in range(seeds):
        train(dataclasses.replace(settings, seed=seed), folder / f"seed-{seed}")
    return folder


def write_layers(folder: Path) -> Path:
    """W^V of two layers, with one-hot embeddings, a few steps."""
    model = {"layers": 2, "embedding": {"start": "identity", "train": False}}
    train(small_settings(model=model), folder)
    return folder


def write_text_run(folder: Path) -> Path:
    """Three rows of a run on text that was to have more, of two layers."""
    nan = np.nan
    run = Run(
        name="text",
        settings=small_text_settings(),
        seeds=(0,),
        steps=np.arange(3),
        metrics={
            "loss": np.array([[5.0, 4.0, 3.0]]),
            "validation_loss": np.array([[6.0, nan, 4.0]]),
            "norm/key": np.array([[[0.1, 0.2]] * 3]),
            "norm/query": np.array([[[0.1, 0.2]] * 3]),
            "norm/value": np.array([[[1.0, 2.0], [1.0, 2.0], [1.0, 4.0]]]),
            "rotation": np.array([[[nan, nan], [nan, nan], [0.25, 0.125]]]),
        },
    )
    folder.mkdir(parents=True)
    (folder / "settings.toml").write_text(dump_settings(run.settings))
    (folder / "run.safetensors").write_bytes(run_bytes(run))
    return folder


def made_claim(
    name: str, source: str, number: float | None, figure: str = "", statement: str = "It is so."
) -> ClaimRecord:
    """A claim that holds if its number is above 0, and is not run without one; three seeds."""
    claim = Claim(id=name, source=source, statement=statement, rule="> 0", quantity="none", figure=figure)
    if number is None:
        return not_run(claim, "topic_structure", "It was not tried.")
    return record(claim, "topic_structure", over_seeds([number, number, 1.02 * number]))


def write_records(folder: Path, records: list[ClaimRecord]) -> None:
    CLAIMS.write(folder, records)
    ARTICLES.write(folder, [article(paper(), records)])


def draw(stem: Path, name: str) -> None:
    numbers = {"contrast": [by_row({0: np.array([1.0, 1.1, 1.2]), 1: np.array([0.5])})]}
    save_figure(dots("Figure 2", ["squared loss", name], numbers), stem)


def write_claims(folder: Path, *, statement: str = NASTY) -> Path:
    """Three claims: one holds, one fails, one was not run; a figure for two."""
    (folder / "figures").mkdir(parents=True)
    records = [
        made_claim("figure2/a", "Figure 2", 1.0, "figure2", statement),
        made_claim("theorem2/b", "Theorem 2", -2.0),
        made_claim("figure2/c", "Figure 2", None, "figure2"),
    ]
    write_records(folder, records)
    (folder / "settings.json").write_text(json.dumps({"preset": "quick", "seeds": 3, "seed": 0}))
    draw(folder / "figures" / "figure2", statement)
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
    runs = [(0.001, 10, "adam", 0, 0.9), (0.001, 20, "adam", 0, 0.8), (0.1, 20, "sgd", 1, 0.81)]
    rows = [
        SweepRow(
            settings={"training.learning_rate": rate, "data.topics": topics, "training.optimizer": optimizer},
            seed=seed,
            diverged=False,
            last_step=12,
            measures={"loss": loss, "excess_loss": loss - 0.6},
            train_seconds=1.0,
            run=f"runs/{place}",
        )
        for place, (rate, topics, optimizer, seed, loss) in enumerate(runs)
    ]
    (folder / "sweep.toml").write_text(dump_sweep(Sweep(vary={"data.topics": [10, 20]})))
    SWEEP.write(folder, rows)
    return folder


def write_landscapes(folder: Path) -> Path:
    """Three small landscapes."""
    from topicscope.papers.topic_structure.landscapes import page_landscape
    from topicscope.theory.landscape import InfiniteDocuments

    folder.mkdir(parents=True)
    sizes = [(10, 2), (20, 2), (20, 4)]
    settings = [InfiniteDocuments(topics=topics, per_document=per_document, words=10) for topics, per_document in sizes]
    LANDSCAPES.write(folder, [page_landscape(setting, "block", points=15) for setting in settings])
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

    two = made_claim("figure2/theorem2", "Figure 2", -0.82, "figure2", "W^V converges to Theorem 2's, with p_c.")
    rows = over_seeds([0.5, 0.5, 0.51]), over_seeds([-0.5, -0.5, -0.51])
    blocks = Claim(id="figure2/blocks", source="Figure 2", statement="Blocks are seen.", rule="> 0", quantity="none")
    records = [
        made_claim("section6.1/topics", "§6.1", 0.7),
        made_claim("theorem1/example", "Theorem 1", -0.019),
        made_claim("theorem2/finite-excess", "Theorem 2", 0.0068),
        record(blocks, "topic_structure", {"Adam": rows[0], "SGD": rows[1]}),
        two,
        made_claim("figure2/sgd-lingers", "Figure 2", 1.6, "figure2"),
        made_claim("figure2/class-averages", "Figure 2", 0.5),
        made_claim("figure4/two-stages", "Figure 4", 0.98),
        msgspec.structs.replace(made_claim("figure4/loss-decides", "Figure 4", 0.6, "other"), verdict="undecided"),
    ]
    write_records(folder, records)
    for name in ("figure2", "other"):
        draw(folder / "figures" / name, "W^V")
    write_run(with_theory(), folder / "runs" / "figure2" / "squared-adam")
    write_run(two_stages(), folder / "runs" / "figure4" / "squared" / "adam" / "scale-0.001")
    return folder


def with_theory() -> Run:
    """A matrix that grows into its theory, of three topics of two words; attention stays as it is."""
    word_topics = np.array([0, 1, 1, 2, 2, 3, 3])
    theory = (word_topics[:, None] == word_topics).astype(np.float32)
    steps = np.arange(0, 2001, 100)
    frames = ((steps / 2000)[:, None, None] * theory).astype(np.float32)
    training = Training(loss="squared", optimizer="adam", steps=2000)
    settings = Settings(data=Data(topics=3, words=2), model=UNIFORM, training=training)
    return Run(
        name="figure2/squared-adam",
        settings=settings,
        seeds=(0,),
        steps=steps,
        metrics={
            "loss": np.exp(-steps / 500)[None],
            "norm/value": steps[None, :, None] / 1000.0,
            "norm/key": np.zeros((1, len(steps), 1)),
        },
        theory={"word_topics": word_topics, "value_products": theory},
        frame_steps=steps,
        frames={
            "value_products": frames[None, :, None],
            "averages/value_products": np.array([averages_by_class(frame, word_topics) for frame in frames])[
                None, :, None
            ],
            "attention": np.full((1, len(steps), 3, 1, 1), 0.01),
        },
        reference=Reference(bayes_floor=Level(loss=0.1), matrices={"value_products": "The optimum."}),
    )


def two_stages() -> Run:
    """W^V first, then attention, which takes off at step 1,200."""
    run = with_theory()
    late = np.clip((run.steps - 1100) / 1000, 0, None)[None]
    modes = {
        f"modes/{part}-{mode}": 0.01 + late * (1.0 if mode == "topics" else 0.01)
        for mode in ("topics", "mask")
        for part in ("key", "query")
    }
    return dataclasses.replace(
        run,
        name="figure4/squared/adam/scale-0.001",
        settings=dataclasses.replace(run.settings, model=ONE_HOT),
        metrics={
            "loss": run.metrics["loss"],
            "norm/value": run.metrics["norm/value"] + 0.1,
            "norm/key": 0.01 + late[:, :, None],
            "norm/query": 0.01 + late[:, :, None],
            "attention/words": late[:, :, None],
            "attention/mask": 0 * late[:, :, None],
            "uniform_gain": np.minimum(run.steps / 500, 0.98)[None],
            **modes,
        },
        theory={"word_topics": run.word_topics},
        frames={
            **run.frames,
            "attention": 0.01 + 0.05 * late[:, :, None, None, None] * np.array([1.0, 0.8, 0.0])[:, None, None],
        },
        reference=Reference(matrices={"value_products": "There is no theory."}),
    )
