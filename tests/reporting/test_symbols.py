"""Symbols of the paper in plain text, typeset."""

import pytest

from topicscope.reporting.symbols import mathtext, prose, typeset


@pytest.mark.parametrize(
    ("plain", "latex"),
    [
        ("W^E⊤W^V W^E", r"$W^{E\top}W^{V}W^{E}$"),
        ("‖W^K‖² of p_c = 0", "‖$W^{K}$‖² of $p_{c}$ = 0"),
        ("((v − 1)α̂ + β)/v", r"((v − 1)$\hat{\alpha}$ + ${\beta}$)/v"),
        ("λ₁(τ − 1)", r"${\lambda}_1$(${\tau}$ − 1)"),
        ("b^pred", r"$b^{\mathrm{pred}}$"),
        ("λ = 1e-05, 3.4e+10 but adam-1e-06, v1e5", r"${\lambda}$ = 10⁻⁵, 3.4·10¹⁰ but adam-1e-06, v1e5"),
        # Not symbols: names of settings, words.
        (
            "excess_loss at top_p, alpha, 2^10, a $5 note with W^V",
            "excess_loss at top_p, alpha, 2^10, a $5 note with W^V",
        ),
    ],
)
def test_symbols_in_figures_are_mathtext(plain: str, latex: str) -> None:
    assert mathtext(plain) == latex


def test_symbols_on_the_page_are_mathml_and_all_else_is_escaped() -> None:
    page = typeset("<b>W^V</b> & more")
    assert page.startswith(
        '&lt;b&gt;<math display="inline"><mrow><msup><mi>W</mi><mrow><mi>V</mi></mrow></msup></mrow>'
    )
    assert page.endswith("</math>&lt;/b&gt; &amp; more")
    assert "<mfrac>" in prose(r"so $\frac{a}{b}$ <i>")
    assert "<i>" not in prose(r"so $\frac{a}{b}$ <i>")
    # A line does not end between a formula and the comma after it.
    assert prose("with W^V, so").endswith("</math>,</span> so")
    assert "<span" not in prose("with W^V so")
    # What comes from outside is never LaTeX.
    assert "<mfrac>" not in typeset(r"so $\frac{a}{b}$")
