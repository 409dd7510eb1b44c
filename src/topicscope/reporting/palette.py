"""One colour per class of word pairs, and one scale for matrices, in figures, pages and the playground."""

import json

import numpy as np
from jaxtyping import Float

# Okabe and Ito's colours, which colour-blind readers can distinguish, yellow and sky blue darker than theirs: each has
# a contrast of 3:1 with white and with the dark page.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8C6D00", "#3A96CC")
BLUE, ORANGE, GREEN, PURPLE, OCHRE, SKY = COLOURS
GREY = "#737373"
PALETTE = (*COLOURS, "#000000")

# Pairs of words, whatever is shown of them: W^V, attention, embeddings.
CLASSES = {"same word": ORANGE, "same topic": BLUE, "different topic": GREEN, "[MASK]": PURPLE}

# The trained matrices, whose norms are drawn.
PARTS = {
    "embedding": OCHRE, "value": BLUE, "key": ORANGE, "query": GREEN, "prediction": PURPLE, "position": SKY,
}  # fmt: skip

# Matrices around zero, from blue to red, which colour-blind readers can read; zero has the colour of the paper.
DIVERGING = "RdBu_r"
DIVERGING_STOPS = {
    "light": ("#053061", "#4393C3", "", "#D6604D", "#67001F"),
    "dark": ("#B9E3FF", "#3787C0", "", "#D6604D", "#FFD9C4"),
}

# Losses and measures, from the least to the largest.
SEQUENTIAL = "cividis"


def colour_limit(matrix: Float[np.ndarray, "row column"]) -> float:
    """The end of a matrix's colour scale: its largest entry, but at most three times the largest off the diagonal."""
    sizes = np.abs(np.nan_to_num(matrix, posinf=0.0, neginf=0.0))
    return float(min(sizes.max(), 3 * sizes[~np.eye(len(sizes), dtype=bool)].max(initial=0.0)))


def palette_script() -> str:
    """The colours for scripts of pages."""
    colours = {"colours": COLOURS, "blue": BLUE, "orange": ORANGE, "purple": PURPLE, "classes": CLASSES, "parts": PARTS}
    return f"const PALETTE = {json.dumps(colours | {'diverging': DIVERGING_STOPS})};\n"
