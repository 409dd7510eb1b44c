"""What all claims together say: counts, what does not hold and why, and the same as LaTeX and as a table.

Everything is a function of the records of claims.json, so that the terminal, LaTeX, the page and the documents agree.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from topicscope.records import ClaimRecord, SourceGroup, Verdict
from topicscope.reporting.rounding import powers, readable

# Whose a claim is, and why one does not hold, in words.
KINDS = {
    "paper": "the paper's claims",
    "elsewhere": "the paper's on another model or corpus",
    "ours": "ours, beside them",
}
CAUSES = {
    "error": "an error in the paper",
    "wording": "a matter of wording",
    "settings": "a matter of settings",
    "power": "too few runs to tell",
    "unknown": "not explained",
}
# Each verdict, in words for one claim and for several.
VERDICTS: dict[Verdict, tuple[str, str]] = {
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "undecided": ("is undecided", "are undecided"),
    "not run": ("was not run", "were not run"),
}
# A sign beside the word, so that nothing depends on colour alone.
SIGNS: dict[Verdict, str] = {"holds": "✓", "fails": "✗", "undecided": "?", "not run": "–"}
# Letters and symbols of statements, as LaTeX has them.
LATEX_LETTERS = {each: rf"\{each}" for each in "&%$#_{}"} | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}
LATEX_SYMBOLS = {
    "§": r"\S{}", "−": "$-$", "⊤": r"${}^{\top}$", "‖": r"$\|$", "√": r"$\surd{}$", "×": r"$\times{}$",
    "→": r"$\to{}$", "≥": r"$\ge{}$", "≤": r"$\le{}$", "±": r"$\pm{}$", "…": r"\dots{}", "⁻": "${}^{-}$",
    "α": r"$\alpha{}$", "β": r"$\beta{}$", "ε": r"$\varepsilon{}$", "η": r"$\eta{}$", "λ": r"$\lambda{}$",
    "τ": r"$\tau{}$", "Δ": r"$\Delta{}$", "·": r"$\cdot{}$", "–": "--",
    **{letter: f"${{}}_{{{place}}}$" for place, letter in enumerate("₀₁₂₃₄₅₆₇₈₉")},
    **{letter: f"${{}}^{{{place}}}$" for place, letter in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
}  # fmt: skip


def counts(records: Sequence[ClaimRecord]) -> dict[Verdict, int]:
    """How many claims have each verdict, the verdicts that none has left out."""
    numbers = {verdict: sum(record.verdict == verdict for record in records) for verdict in VERDICTS}
    return {verdict: number for verdict, number in numbers.items() if number}


def counts_text(records: Sequence[ClaimRecord]) -> str:
    """The same in words: "19 hold, 1 fails"."""
    return ", ".join(f"{number} {VERDICTS[verdict][number > 1]}" for verdict, number in counts(records).items())


def of_kind(records: Sequence[ClaimRecord], *kinds: str) -> list[ClaimRecord]:
    """The claims of these kinds."""
    return [record for record in records if record.kind in kinds]


def headline(records: Sequence[ClaimRecord]) -> list[str]:
    """What came out, in a few sentences: each kind's counts, and why the paper's claims do not hold."""
    kinds = [f"{words}: {counts_text(some)}" for kind, words in KINDS.items() if (some := of_kind(records, kind))]
    lines = [f"Of {'; of '.join(kinds)}." if kinds else "No claim is counted."]
    for verdict in ("fails", "undecided", "not run"):
        some = [record for record in of_kind(records, "paper") if record.verdict == verdict and record.diagnosis]
        causes = [record.diagnosis.cause for record in some if record.diagnosis]
        if some and verdict == "not run":
            lines.append(f"Not run: {', '.join(record.id for record in some)}.")
        elif some:
            reasons = ", ".join(
                f"{words} ({causes.count(cause)})" for cause, words in CAUSES.items() if cause in causes
            )
            lines.append(f"Why {len(some)} of the paper's {VERDICTS[verdict][len(some) > 1]}: {reasons}.")
    return lines


def source_table(records: Sequence[ClaimRecord], groups: Sequence[SourceGroup]) -> list[dict[str, Any]]:
    """Verdicts by group of sources, the paper's claims and all others: a row per group, in the paper's order."""
    known = [source for group in groups for source in group.sources]
    others = dict.fromkeys(record.source for record in records if record.source not in known)
    every = [*groups, *(SourceGroup(title=source, sources={source: ""}) for source in others)]
    rows = []
    for group in every:
        if some := [record for record in records if record.source in group.sources]:
            own, rest = of_kind(some, "paper"), of_kind(some, "elsewhere", "ours")
            row = {"sources": group.title, "the paper's": counts_text(own), "elsewhere and ours": counts_text(rest)}
            rows.append(row)
    return rows


def what_does_not_hold(records: Sequence[ClaimRecord]) -> list[ClaimRecord]:
    """Each claim that fails or is undecided, those that fail and the paper's first."""
    order = list(KINDS)
    broken = [record for record in records if record.verdict in ("fails", "undecided")]
    return sorted(broken, key=lambda record: (record.verdict != "fails", order.index(record.kind)))


def why(record: ClaimRecord) -> str:
    """The diagnosis of a claim that does not hold; empty if it has none."""
    known = record.diagnosis
    if known is None:
        return ""
    if record.verdict == "not run":
        return known.explanation
    holds = f" It holds {known.holds}." if known.holds else ""
    see = f" See {', '.join(known.see)}." if known.see else ""
    return f"{CAUSES[known.cause].capitalize()}. {known.explanation}{holds}{see}"


def margin_text(record: ClaimRecord) -> str:
    """How far the number is from its rule: "0.09 from the rule > 1"; on the other side if it is outside."""
    if record.margin is None:
        return ""
    side = "inside" if record.margin >= 0 else "outside"
    return f"{readable(abs(record.margin), 3)} {side} the rule {powers(record.rule)}"


def table(records: Sequence[ClaimRecord]) -> list[dict[str, Any]]:
    """Rows of claims.csv: a line for each claim, and one for each of its rows; what is a list or a mapping is JSON."""
    lines = []
    for record in records:
        plain = msgspec.to_builtins(record)
        rows = plain.pop("rows")
        lines.append({"id": plain.pop("id"), "row": "", **plain})
        lines += [{"id": record.id, "row": row.pop("name"), "paper": record.paper, **row} for row in rows]
    return [
        {
            name: msgspec.json.encode(cell).decode() if isinstance(cell, list | dict) else cell
            for name, cell in line.items()
        }
        for line in lines
    ]


def latex(records: Sequence[ClaimRecord]) -> str:
    r"""The claims as LaTeX to ``\input``: a macro for every number, and booktabs tables, one per source.

    ``\claim{figure2/theorem2}{measured}`` prints a number anywhere in a text; ``low``, ``high``, ``margin`` and
    ``verdict`` are there too, and ``\claim{figure2/uniform/squared-adam}{measured}`` those of a row.
    ``\claimtable{Figure 2}`` prints the table of a source.
    """
    lines = [
        r"% Written by topicscope reproduce, to be \input. The tables need \usepackage{booktabs,longtable}.",
        r"% \claim{ID}{measured} prints a number (low, high, margin and verdict are there too; ID/ROW is a row).",
        r"% \claimtable{SOURCE} prints a table: \claimtable{Figure 2}, \claimtable{Section 8.1}.",
        r"\providecommand{\claim}[2]{\csname claim@#1@#2\endcsname}",
        r"\providecommand{\claimtable}[1]{\csname claimtable@#1\endcsname}",
    ]
    for record in records:
        for name, numbers in ((record.id, record), *((f"{record.id}/{row.name}", row) for row in record.rows)):
            for part in ("measured", "low", "high", "margin", "verdict"):
                value = getattr(numbers, part)
                text = "--" if value is None else value if isinstance(value, str) else _latex_number(value)
                lines.append(rf"\expandafter\def\csname claim@{latex_name(name)}@{part}\endcsname{{{text}}}")
    for source in dict.fromkeys(record.source for record in records):
        lines += [
            rf"\expandafter\def\csname claimtable@{source.replace('§', 'Section ')}\endcsname{{%",
            r"\begin{longtable}{@{}p{0.62\linewidth}lp{0.2\linewidth}@{}}",
            r"\toprule claim & verdict & measured \\ \midrule \endhead",
        ]
        for record in (record for record in records if record.source == source):
            statement = f"{latex_text(record.statement)} ({record.kind})"
            lines.append(_latex_line(statement, record.id, interval=record.low is not None))
            for row in record.rows:
                place = latex_name(f"{record.id}/{row.name}")
                lines.append(_latex_line(rf"\quad {latex_text(row.name)}", place, interval=row.low is not None))
        lines += [r"\bottomrule", r"\end{longtable}}"]
    return "\n".join(lines) + "\n"


def _latex_line(text: str, name: str, *, interval: bool) -> str:
    numbers = rf"\claim{{{name}}}{{measured}}"
    if interval:
        numbers += rf" [\claim{{{name}}}{{low}}, \claim{{{name}}}{{high}}]"
    return rf"{text} & \claim{{{name}}}{{verdict}} & {numbers} \\"


def latex_name(name: str) -> str:
    r"""A name within ``\csname``: plain letters, so that rows' names can be typed."""
    plain = {"τ": "tau", "⊤": "T", "‖": "|", "²": "^2", "%": "percent", "#": "", "\\": "", "{": "", "}": "", "~": ""}
    return "".join(plain.get(letter, letter) for letter in name).encode("ascii", "ignore").decode()


def _latex_number(value: float) -> str:
    r"""Five digits, a power of ten as such: ``\ensuremath{1.2\cdot 10^{-7}}``."""
    mantissa, _, exponent = f"{value:.5g}".partition("e")
    power = rf"\cdot 10^{{{int(exponent)}}}" if exponent else ""
    return rf"\ensuremath{{{mantissa}{power}}}"


def latex_text(text: str) -> str:
    r"""Text as LaTeX: ``W^V`` and symbols in mathematics, commands' own letters escaped, nothing but ASCII."""
    escaped = re.sub(r"[\\&%$#_{}~]", lambda match: LATEX_LETTERS[match[0]], text)
    # The caret of W^V stays one; any other is a letter.
    escaped = re.sub(r"\b([A-Z])\^([A-Z])", "$\\1\0\\2$", escaped).replace("^", r"\textasciicircum{}")
    escaped = escaped.replace("\0", "^")
    escaped = re.sub("(.)\u0302", lambda match: rf"$\hat{{{LATEX_SYMBOLS[match[1]].strip('$')}}}$", escaped)
    # Symbols side by side are one formula; two dollars would begin one on a line of its own.
    return "".join(LATEX_SYMBOLS.get(letter, letter) for letter in escaped).replace("$$", "")
