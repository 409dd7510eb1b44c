"""What all claims together say: counts by source, the findings, and what does not hold and why.

Everything is a function of the rows of claims.json, so that the terminal, LaTeX and the documents say the same.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topicscope.files import Row
from topicscope.reporting.rounding import NOTHING, claim_number, powers, readable

# Whose a claim is, and why one does not hold, in words.
KINDS = {
    "paper": "the paper's",
    "elsewhere": "the paper's, on another model or corpus",
    "ours": "ours",
    "check": "checks, not counted",
}
CAUSES = {
    "error": "an error in the paper",
    "wording": "a matter of wording",
    "settings": "a matter of settings",
    "power": "too few runs to tell",
    "unknown": "not explained",
}
# Each verdict, in words for one claim and for several.
VERDICTS = {
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "undecided": ("is undecided", "are undecided"),
    "not run": ("is not run", "are not run"),
}
# Sources that are reported together, in the paper's order; an unknown source has its own line.
GROUPS = {
    "Lemma 1, Theorems 1 to 3, remarks, §3.1, §5.3, §6.1, D.4": (
        "Lemma 1", "Theorem 1", "Theorem 2", "Theorem 3", "Remark 1", "Remark 2", "Remark 3", "Remark 4", "Remark 5",
        "Remark 7", "Remark 8", "§3.1", "§5.3", "§6.1", "D.4",
    ),
    "Figures 6 to 9 (landscapes)": ("Figure 6", "Figure 7", "Figure 8", "Figure 9"),
    "Figure 1, §4 (embeddings)": ("Figure 1", "§4"),
    "Figures 2 and 10 (W^V)": ("Figure 2", "Figure 10"),
    "Figure 4, §8.1 (two stages)": ("Figure 4", "§8.1"),
    "Table 3, Assumption 2 (attention)": ("Table 3", "Assumption 2"),
    "§2, §5.2 (what a part costs)": ("§2", "§5.2"),
    "§2.3 (other documents)": ("§2.3",),
    "§3.2 (masking)": ("§3.2",),
    "Figure 5 (two stages on Wikipedia)": ("Figure 5",),
    "Figure 3, Tables 1, 2, 5, §1, §8.2 (language models)": (
        "Figure 3", "Table 1", "Table 2", "Table 5", "§1", "§8.2",
    ),
}  # fmt: skip
# Letters and symbols of statements, as LaTeX has them.
LATEX_LETTERS = {each: rf"\{each}" for each in "&%$#_{}"} | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}
LATEX_SYMBOLS = {
    "§": r"\S{}", "−": "$-$", "⊤": r"${}^{\top}$", "‖": r"$\|$", "√": r"$\surd{}$", "×": r"$\times{}$",
    "→": r"$\to{}$", "≥": r"$\ge{}$", "≤": r"$\le{}$", "±": r"$\pm{}$", "…": r"\dots{}", "⁻": "${}^{-}$",
    "α": r"$\alpha{}$", "β": r"$\beta{}$", "ε": r"$\varepsilon{}$", "λ": r"$\lambda{}$", "τ": r"$\tau{}$",
    "Δ": r"$\Delta{}$", "·": r"$\cdot{}$", "–": "--",
    **{letter: f"${{}}_{{{place}}}$" for place, letter in enumerate("₀₁₂₃₄₅₆₇₈₉")},
    **{letter: f"${{}}^{{{place}}}$" for place, letter in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """A sentence that rests on some claims: it is used if they have these verdicts."""

    title: str
    claims: Mapping[str, str]
    """Claims and the verdicts that the sentence needs."""

    said: str
    """The sentence, with ``{id}`` for what a claim measured, ``{id|name}`` for a detail, and ``%`` after a share."""


FINDINGS = (
    Finding(
        "The loss decides whether training is two-stage.",
        {"figure4/loss-decides": "holds", "figure4/two-stages": "holds"},
        "Among settings in which attention takes off, {figure4/loss-decides|squared}% are two-stage with the squared "
        "loss and {figure4/loss-decides|cross_entropy}% with cross-entropy.",
    ),
    Finding(
        "SGD converges to Theorem 2's block, Adam to another optimum.",
        {"figure2/squared-sgd/theorem2": "holds", "figure2/squared-adam/theorem2": "fails"},
        "With the squared loss W^V ends {figure2/squared-sgd/theorem2}% of Theorem 2's contrast away from it under SGD "
        "and {figure2/squared-adam/theorem2}% under Adam, which reaches the optimum of finite documents.",
    ),
    Finding(
        "Jointly trained, the squared loss leaves the block for a diagonal.",
        {"figure10/joint/squared-adam/uniform": "fails", "figure10/joint/cross-entropy-adam/uniform": "holds"},
        "Two words of a topic have {figure10/joint/squared-adam/uniform}% of what a word has with itself, "
        "{figure10/joint/cross-entropy-adam/uniform}% with cross-entropy: attention looks up a kept word.",
    ),
    Finding(
        "Language models attend to topics.",
        {"table1/minilm/attention-0.0005": "holds", "table1/random-minilm/attention-0.0005": "holds"},
        "The ratio of attention within topics to that between them is {table1/minilm/attention-0.0005} in MiniLM and "
        "{table1/random-minilm/attention-0.0005} in the same network untrained.",
    ),
    Finding(
        "As released, Figure 1's diagonal is the one that it started with.",
        {"as-released/figure1/cross-entropy-sgd/start-kept": "holds"},
        "With cross-entropy and SGD at 0.01 W^E⊤W^E moves by {as-released/figure1/cross-entropy-sgd/start-kept}% of "
        "its norm in 1,000 steps.",
    ),
)


def counts(rows: Sequence[Row], verdict: str = "verdict") -> str:
    """How many claims have each verdict: "19 hold, 1 fails"."""
    found = {name: sum(row[verdict] == name for row in rows) for name in VERDICTS}
    return ", ".join(f"{count} {VERDICTS[name][count > 1]}" for name, count in found.items() if count)


def by_kind(rows: Sequence[Row]) -> str:
    """The counts of each kind of claim in one sentence; checks are not counted."""
    said = {"paper": "the paper's claims", "elsewhere": "the paper's on another model or corpus", "ours": "ours"}
    parts = [f"of {words} {counts(some)}" for kind, words in said.items() if (some := _of_kind(rows, kind))]
    return "; ".join(parts) + "." if parts else "no claim is counted."


def source_lines(rows: Sequence[Row]) -> list[str]:
    """One sentence per group of sources, with counts."""
    known = [source for sources in GROUPS.values() for source in sources]
    others = dict.fromkeys(row["source"] for row in rows if row["source"] not in known)
    groups = GROUPS | {source: (source,) for source in others}
    found = {name: [row for row in rows if row["source"] in sources] for name, sources in groups.items()}
    return [f"{name}: {by_kind(some)}" for name, some in found.items() if any(row["kind"] != "check" for row in some)]


def headline(rows: Sequence[Row]) -> list[str]:
    """The result of all claims, and what it depends on, in a few sentences."""
    said = by_kind(rows)
    lines = [said[0].upper() + said[1:]]
    broken = [row["id"] for row in _of_kind(rows, "check") if row["verdict"] != "holds"]
    if broken:
        lines.append(f"Checks that should always hold do not: {', '.join(broken)}.")
    counted = [row for row in rows if row["kind"] != "check"]
    if any(row["verdict_corrected"] != row["verdict"] for row in counted):
        corrected = counts(counted, "verdict_corrected")
        lines.append(f"After correction for the number of claims within a source, in all: {corrected}.")
    chosen = [row for row in counted if row["sensitivity"]]
    if chosen:
        lines.append(
            f"{len(chosen)} verdicts rest on a threshold that was chosen here; with a third of it or three times it "
            f"{len(turning(rows))} of them change."
        )
    return lines


def turning(rows: Sequence[Row]) -> list[Row]:
    """Claims whose verdict changes if a threshold is a third or three times as far out."""
    counted = [row for row in rows if row["kind"] != "check" and row["sensitivity"]]
    return [row for row in counted if set(row["sensitivity"].values()) != {row["verdict"]}]


def findings(rows: Sequence[Row]) -> list[str]:
    """The most interesting findings, each a sentence with its numbers, or a note that these rows do not confirm it."""
    known = {row["id"]: row for row in rows if row["verdict"] != "not run"}
    found = []
    for finding in FINDINGS:
        if all(name in known for name in finding.claims):
            other = [name for name, wanted in finding.claims.items() if known[name]["verdict"] != wanted]
            if other:
                found.append(f"Not confirmed here ({', '.join(other)}): {finding.title}")
            else:
                found.append(f"{finding.title} {_filled(finding.said, known)}")
    return found


def _filled(said: str, rows: Mapping[str, Row]) -> str:
    def number(match: re.Match[str]) -> str:
        name, _, detail = match["name"].partition("|")
        value = rows[name]["details"][detail] if detail else rows[name]["measured"]
        return f"{claim_number(float(f'{100 * value:.2g}'))} %" if match["share"] else readable(value, 3)

    return re.sub(r"\{(?P<name>[^}]+)\}(?P<share>%?)", number, said)


def what_does_not_hold(rows: Sequence[Row]) -> list[tuple[Row, str]]:
    """Each claim that fails or is undecided, first the paper's, with why in whole sentences."""
    order = list(KINDS)
    found = [row for row in rows if row["verdict"] in ("fails", "undecided")]
    found.sort(key=lambda row: (row["verdict"] != "fails", order.index(row["kind"])))
    return [(row, why(row)) for row in found]


def why(row: Row) -> str:
    """The diagnosis of a claim that does not hold."""
    known = row["diagnosis"]
    holds = f" It holds {known['holds']}." if known["holds"] else ""
    see = f" See {', '.join(known['see'])}." if known["see"] else ""
    return f"{CAUSES.get(known['cause'], known['cause']).capitalize()}. {known['explanation']}{holds}{see}"


def sensitivity_table(rows: Sequence[Row]) -> str:
    """The verdicts that change with thresholds, as tables in Markdown: thresholds of rules, and that of take-off."""
    tables = []
    for words, third, triple in (
        ("threshold of the rule", "third", "triple"),
        ("attention takes off", "take-off at a third", "take-off at three times"),
    ):
        lines = [
            f"| {words} | measured | rule | with a third | verdict | with three times |",
            "|---|---:|---|---|---|---|",
        ]
        for row in turning(rows):
            moved = [row["sensitivity"].get(name) for name in (third, triple)]
            if set(moved) - {row["verdict"], None}:
                measured = NOTHING if row["measured"] is None else readable(row["measured"], 3)
                cells = (f"`{row['id']}`", measured, powers(row["rule"]), moved[0], row["verdict"], moved[1])
                lines.append(f"| {' | '.join(map(str, cells))} |")
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def latex(rows: Sequence[Row]) -> str:
    r"""The claims as LaTeX to ``\input``: a macro for every number, and booktabs tables, one per source.

    ``\claim{figure2/squared-adam/uniform}{measured}`` prints a number anywhere in a text; ``low``, ``high`` and
    ``verdict`` are there too. ``\claimtable{Figure 2}`` prints the table of a source.
    """
    lines = [
        r"% Written by topicscope reproduce, to be \input. The tables need \usepackage{booktabs,longtable}.",
        r"% \claim{ID}{measured} prints a number (low, high and verdict are there too).",
        r"% \claimtable{SOURCE} prints a table: \claimtable{Figure 2}, \claimtable{Section 8.1}.",
        r"\providecommand{\claim}[2]{\csname claim@#1@#2\endcsname}",
        r"\providecommand{\claimtable}[1]{\csname claimtable@#1\endcsname}",
    ]
    for row in rows:
        for name in ("measured", "low", "high", "verdict"):
            value = "--" if row[name] is None else row[name]
            text = value if isinstance(value, str) else _latex_number(value)
            lines.append(rf"\expandafter\def\csname claim@{row['id']}@{name}\endcsname{{{text}}}")
    for source in dict.fromkeys(row["source"] for row in rows):
        lines += [
            rf"\expandafter\def\csname claimtable@{source.replace('§', 'Section ')}\endcsname{{%",
            r"\begin{longtable}{@{}p{0.62\linewidth}lp{0.2\linewidth}@{}}",
            r"\toprule claim & verdict & measured \\ \midrule \endhead",
        ]
        for row in (row for row in rows if row["source"] == source):
            said = f"{latex_text(row['statement'])} ({row['kind']})"
            numbers = rf"\claim{{{row['id']}}}{{measured}}"
            if row["low"] is not None:
                numbers += rf" [\claim{{{row['id']}}}{{low}}, \claim{{{row['id']}}}{{high}}]"
            lines.append(rf"{said} & \claim{{{row['id']}}}{{verdict}} & {numbers} \\")
        lines += [r"\bottomrule", r"\end{longtable}}"]
    return "\n".join(lines) + "\n"


def _latex_number(value: float) -> str:
    r"""Five digits, a power of ten as such: ``\ensuremath{1.2\cdot 10^{-7}}``."""
    mantissa, _, exponent = f"{value:.5g}".partition("e")
    power = rf"\cdot 10^{{{int(exponent)}}}" if exponent else ""
    return rf"\ensuremath{{{mantissa}{power}}}"


def latex_text(text: str) -> str:
    r"""Text as LaTeX: ``W^V`` and symbols in mathematics, commands' own letters escaped, nothing but ASCII."""
    found = re.sub(r"[\\&%$#_{}~]", lambda match: LATEX_LETTERS[match[0]], text)
    # The caret of W^V stays one; any other is a letter.
    found = re.sub(r"\b([A-Z])\^([A-Z])", "$\\1\0\\2$", found).replace("^", r"\textasciicircum{}").replace("\0", "^")
    found = re.sub("(.)\u0302", lambda match: rf"$\hat{{{LATEX_SYMBOLS[match[1]].strip('$')}}}$", found)
    # Symbols side by side are one formula; two dollars would begin one on a line of its own.
    return "".join(LATEX_SYMBOLS.get(letter, letter) for letter in found).replace("$$", "")


def _of_kind(rows: Sequence[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["kind"] == kind]
