"""The paper's symbols: plain text such as ``W^E⊤W^E`` or ``p_c`` becomes MathML on a page, mathtext in figures.

Prose of our own may also hold LaTeX between dollar signs; text from outside never does.
"""

import itertools
import re
from functools import lru_cache

from latex2mathml.converter import convert
from markupsafe import Markup, escape

from topicscope.reporting.rounding import powers

GREEK = {
    "α": r"\alpha", "β": r"\beta", "γ": r"\gamma", "δ": r"\delta", "ε": r"\varepsilon", "η": r"\eta",
    "λ": r"\lambda", "μ": r"\mu", "σ": r"\sigma", "τ": r"\tau",
}  # fmt: skip
LOW = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")

# A matrix or bias of the model, a probability of the masking scheme, or a Greek letter, perhaps with a hat or an index.
ATOM = r"[Wb]\^(?:pred|[A-Z](?![a-z]))⊤?|\b[pd]_[a-z]\b|(?<![^\W\d_])[αβγδεηλμστ]\u0302?[₀-₉]?|\bc[₀-₉]"
ATOMS = re.compile(ATOM)
SYMBOLS = re.compile(rf"(?:{ATOM})(?: ?(?:{ATOM}))*")
FORMULA = re.compile(r"\$([^$]+)\$")

# Characters that a line break must not separate from a formula before them.
CLOSING = re.compile(r"[,.;:)!?’'”]+")


def typeset(text: object) -> Markup:
    """Plain text for HTML: escaped, its symbols as MathML."""
    plain = powers(str(text))
    pieces: list[Markup] = []
    at = 0
    for found in SYMBOLS.finditer(plain):
        pieces += [escape(plain[at : found.start()]), mathml(_latex(found[0]))]
        at = found.end()
    return _joined([*pieces, escape(plain[at:])])


@lru_cache(maxsize=1024)
def prose(text: str) -> Markup:
    """Text of our own for HTML: between dollar signs is LaTeX, and everything else is as in ``typeset``."""
    pieces = FORMULA.split(text)
    return _joined([mathml(piece) if place % 2 else typeset(piece) for place, piece in enumerate(pieces)])


def _joined(pieces: list[Markup]) -> Markup:
    """Pieces in a row; a formula and the comma after it stay on one line."""
    for place, (formula, after) in enumerate(itertools.pairwise(pieces)):
        if formula.endswith("</math>") and (closing := CLOSING.match(after)):
            pieces[place] = Markup('<span class="whole">{}{}</span>').format(formula, closing[0])
            pieces[place + 1] = after[closing.end() :]
    return Markup("").join(pieces)


def mathtext(text: str) -> str:
    """Plain text for a figure: its symbols between dollar signs; text with dollar signs of its own stays as it is."""
    return text if "$" in text else SYMBOLS.sub(lambda found: f"${_latex(found[0])}$", powers(text))


@lru_cache(maxsize=1024)
def mathml(latex: str) -> Markup:
    """A formula for HTML."""
    # An operator would have room on both sides: the sign of a transpose is a letter.
    plain = convert(latex).replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "")
    return Markup(plain.replace("<mo>&#x022A4;</mo>", "<mi>&#x022A4;</mi>"))  # noqa: S704 made from our own LaTeX or from symbols that the pattern knows


def _latex(plain: str) -> str:
    """``W^E⊤W^E`` as LaTeX."""
    return "".join(_atom(part) for part in ATOMS.findall(plain))


def _atom(plain: str) -> str:
    head, mark, rest = plain.partition("^") if "^" in plain else plain.partition("_")
    if mark:
        upper = {"pred": r"\mathrm{pred}"}.get(rest, rest.replace("⊤", r"\top"))
        return f"{head}{mark}{{{upper}}}"
    letter, low = plain[0], plain[-1].translate(LOW)
    symbol = GREEK.get(letter, letter)
    hatted = rf"\hat{{{symbol}}}" if "\u0302" in plain else f"{{{symbol}}}"
    return hatted + (f"_{low}" if low.isdigit() else "")
