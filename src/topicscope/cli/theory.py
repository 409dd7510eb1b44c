"""``topicscope theory``: options and tables."""

from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.table import Table

from topicscope.cli.main import parse
from topicscope.cli.terminal import console, print_json, progress_bar
from topicscope.commands.setting import TheorySetting
from topicscope.commands.theory import SAMPLES, Part, Theory, theory

DESCRIPTION = """Closed forms, exact optima and floors for one setting: what training should lead to.

examples:
  topicscope theory
  topicscope theory --topics 100 --per-document 10 --json
  topicscope theory --mask 0.3 --keep 0.2 --random 0.05 --samples 10000
  topicscope theory --dirichlet 1.0 --length 20 40 --samples 0
"""

# Parts in the order shown: name, title, and the rows' names with the paper's symbols.
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
]
NOT_ATTAINED = "not attained: the loss still falls at the largest weights searched; its infimum is at infinite weights"
FLOORS = {"": "all masked positions", "mask_queries": "[MASK] queries", "query_blind": "blind to the query"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    setting: Annotated[TheorySetting, tyro.conf.arg(name="")] = TheorySetting()

    samples: int = SAMPLES
    """How many documents to draw for each Bayes floor; 0 leaves the floors out."""

    seed: int = 0
    """Seed of those documents."""

    json: bool = False
    """Print JSON."""

    quiet: bool = False
    """No progress bar."""


def main(words: list[str]) -> None:
    """Parse, compute, print."""
    options = parse(lambda: tyro.cli(Options, args=words, prog="topicscope theory", description=DESCRIPTION))
    with progress_bar("Bayes floors", quiet=options.quiet) as report:
        found = theory(options.setting, samples=options.samples, seed=options.seed, report=report)
    if options.json:
        print_json(found.to_dict())
    else:
        print_theory(found)


def print_theory(found: Theory) -> None:
    """One table a part, with the paper's symbols; the reason where a part is not defined."""
    screen, setting = console(), found.setting
    screen.print(
        f"T = {setting.topics}, v = {setting.words}, τ = {setting.per_document}, p_m = {setting.mask}, "
        f"p_c = {setting.keep}, p_r = {setting.random}"
    )
    for name, title, rows in TABLES:
        part = found[name]
        if part is None:
            screen.print(f"\n{title}\n  not defined: {found.reasons[name]}")
            continue
        table = Table(title=title, title_justify="left", show_header=False)
        for key, label in rows.items():
            table.add_row(label, _number(part, key))
        screen.print()
        screen.print(table)
        for note in _notes(part):
            screen.print(f"  {note}")
    for name, documents in [("bayes", "LDA"), ("bayes_topics", "τ-topic")]:
        screen.print()
        _print_floors(found, name, f"Bayes floor, finite {documents} documents")


def _print_floors(found: Theory, name: str, title: str) -> None:
    part, screen = found[name], console()
    if part is None:
        screen.print(f"{title}\n  not computed: {found.reasons[name]}")
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


def _number(part: Part, key: str) -> str:
    value: Any = part[key]
    return f"not defined: {part[f'{key}_reason']}" if value is None else f"{value:.8g}"


def _notes(part: Part) -> list[str]:
    notes = [f"does not hold: {text}" for text in part.get("violated", [])]
    if not part.get("attained", True):
        notes.append(NOT_ATTAINED)
    if part.get("flat"):
        notes.append(f"flat: {part['flat']}")
    if "wider_family" in part:
        wider = part["wider_family"]
        notes.append(
            f"a free weight of word queries on [MASK] keys, best at {wider['mask_key']:.6g}, "
            f"lowers the loss to {wider['loss']:.8g} (§5.3)"
        )
    return notes
