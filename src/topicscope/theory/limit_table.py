"""Where Theorem 3's interval, the limit and the exact optimum lie as T grows.

``python -m topicscope.theory.limit_table`` prints the table of docs/theory.md, for the paper's masking and v = 10.
"""

import sys

from topicscope.theory.attention import InfiniteDocuments, Landscape
from topicscope.theory.attention_optimum import minimise
from topicscope.theory.classes import theorem_2_classes
from topicscope.theory.theorem3 import theorem_3

# (T, τ): on the way of Assumption 3, τ = o(T); then with τ held fixed; then with τ a share of T.
SETTINGS = (
    *((10, 2), (100, 10), (1_000, 10), (10_000, 30), (100_000, 100), (1_000_000, 300), (10_000_000, 1_000)),
    *((100_000_000, 3_000), (100_000_000, 100_000)),
    *((100_000_000, 2), (100_000_000, 10)),
    *((100_000_000, 10_000_000), (100_000_000, 50_000_000)),
)
WORDS = 10
HEADER = ("T", "τ", "λ₁(τ−1)", "exact optimum", "limit", "λ₂T", "optimum / limit", "loss, uniform", "loss, optimum")


def limit_row(topics: int, per_document: int, words: int = WORDS) -> tuple[float, ...]:
    """One row: T, τ, lower bound, exact optimal average, limit, upper bound, ratio, losses."""
    documents = InfiniteDocuments(topics=topics, per_document=per_document, words=words)
    optimum = minimise(Landscape(documents, theorem_2_classes(topics, words, documents.masking)))
    theorem = theorem_3(documents)
    if theorem.high is None or theorem.limit is None:
        raise AssertionError("the paper's masking has both bounds and a limit")
    average = optimum.weighted_average
    ratio = average / theorem.limit
    return (
        *(float(topics), float(per_document), theorem.low, average, theorem.limit, theorem.high, ratio),
        *(optimum.loss_uniform, optimum.loss),
    )


def limit_table() -> str:
    """The table in Markdown."""
    formats = ("{:,.0f}", "{:,.0f}", "{:,.3f}", "{:,.3f}", "{:,.3f}", "{:,.0f}", "{:.5f}", "{:.8f}", "{:.8f}")
    rows = [[form.format(value) for form, value in zip(formats, limit_row(*at), strict=True)] for at in SETTINGS]
    lines = [HEADER, ["---:"] * len(HEADER), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(limit_table())
