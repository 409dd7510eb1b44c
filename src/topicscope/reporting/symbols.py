"""Names of settings as words; the paper's symbols, such as ``W^E⊤W^E`` or ``p_c``, as MathML and as mathtext."""

import itertools
import re
from functools import lru_cache

from markupsafe import Markup, escape

from topicscope.reporting.rounding import powers

LOSS_WORDS = {"cross_entropy": "cross-entropy", "squared": "squared loss"}
OPTIMIZER_WORDS = {"sgd": "SGD", "momentum": "SGD with momentum", "adam": "Adam"}
GREEK = {
    "α": r"\alpha", "β": r"\beta", "γ": r"\gamma", "δ": r"\delta", "ε": r"\varepsilon", "η": r"\eta",
    "λ": r"\lambda", "μ": r"\mu", "σ": r"\sigma", "τ": r"\tau",
}  # fmt: skip
LOW = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")

# A matrix or bias of the model, a probability of the masking scheme, or a Greek letter, perhaps with a hat or an index.
ATOM = r"[Wb]\^(?:pred|[A-Z](?![a-z]))⊤?|\b[pd]_[a-z]\b|(?<![^\W\d_])[αβγδεηλμστ]\u0302?[₀-₉]?|\bc[₀-₉]"
ATOMS = re.compile(ATOM)
SYMBOLS = re.compile(rf"(?:{ATOM})(?: ?(?:{ATOM}))*")

# Characters that a line break must not separate from a formula before them.
CLOSING = re.compile(r"[,.;:)!?’'”]+")


@lru_cache(maxsize=4096)
def typeset(text: object) -> Markup:
    """Plain text for HTML: escaped, its symbols as MathML; a formula and the comma after it stay on one line."""
    plain, pieces, at = powers(str(text)), list[Markup](), 0
    for found in SYMBOLS.finditer(plain):
        formula = Markup("<math>{}</math>").format(Markup("").join(map(_mathml, ATOMS.findall(found[0]))))
        pieces += [escape(plain[at : found.start()]), formula]
        at = found.end()
    pieces.append(escape(plain[at:]))
    for place, (formula, after) in enumerate(itertools.pairwise(pieces)):
        if formula.endswith("</math>") and (closing := CLOSING.match(after)):
            pieces[place] = Markup('<span class="whole">{}{}</span>').format(formula, closing[0])
            pieces[place + 1] = after[closing.end() :]
    return Markup("").join(pieces)


def mathtext(text: str) -> str:
    """Plain text for a figure: its symbols between dollar signs; text with dollar signs of its own stays as it is."""
    if "$" in text:
        return text
    return SYMBOLS.sub(lambda found: f"${''.join(map(_latex, ATOMS.findall(found[0])))}$", powers(text))


def _parts(atom: str) -> tuple[str, str, str]:
    """A letter, what is above it, what is below it: ``("W", "E⊤", "")``, ``("λ", "", "1")``; a hat stays a hat."""
    for mark in "^_":
        if mark in atom:
            letter, _, rest = atom.partition(mark)
            return (letter, rest, "") if mark == "^" else (letter, "", rest)
    low = atom[-1].translate(LOW)
    return atom[0], "\u0302" * ("\u0302" in atom), low if low.isdigit() else ""


def _mathml(atom: str) -> Markup:
    letter, up, low = _parts(atom)
    base = Markup("<mi>{}</mi>").format(letter)
    if up == "\u0302":
        base, up = Markup('<mover accent="true">{}<mo>^</mo></mover>').format(base), ""
    if up:
        name, turned = up.rstrip("⊤"), Markup("<mi>⊤</mi>") if "⊤" in up else ""
        return Markup("<msup>{}<mrow><mi>{}</mi>{}</mrow></msup>").format(base, name, turned)
    return Markup("<msub>{}<mi>{}</mi></msub>").format(base, low) if low else base


def _latex(atom: str) -> str:
    letter, up, low = _parts(atom)
    symbol = GREEK.get(letter, letter)
    if up == "\u0302":
        symbol, up = rf"\hat{{{symbol}}}", ""
    above = {"pred": r"\mathrm{pred}"}.get(up, up.replace("⊤", r"\top"))
    return f"{{{symbol}}}" + (f"^{{{above}}}" if up else "") + (f"_{{{low}}}" if low else "")
