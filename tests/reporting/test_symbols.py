"""Symbols of the paper in plain text, typeset."""

import pytest

from topicscope.reporting.symbols import mathtext, typeset


@pytest.mark.parametrize(
    ("plain", "latex"),
    [
        ("W^E⊤W^V W^E", r"${W}^{E\top}{W}^{V}{W}^{E}$"),
        ("‖W^K‖² of p_c = 0", "‖${W}^{K}$‖² of ${p}_{c}$ = 0"),
        ("((v − 1)α̂ + β)/v", r"((v − 1)${\hat{\alpha}}$ + ${\beta}$)/v"),
        ("λ₁(τ − 1)", r"${\lambda}_{1}$(${\tau}$ − 1)"),
        ("b^pred", r"${b}^{\mathrm{pred}}$"),
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
    assert typeset("<b>W^E⊤</b> & more") == (
        "&lt;b&gt;<math><msup><mi>W</mi><mrow><mi>E</mi><mi>⊤</mi></mrow></msup></math>&lt;/b&gt; &amp; more"
    )
    assert typeset("p_c") == "<math><msub><mi>p</mi><mi>c</mi></msub></math>"
    assert typeset("α̂") == '<math><mover accent="true"><mi>α</mi><mo>^</mo></mover></math>'
    assert typeset("λ₁ = 1e-05") == "<math><msub><mi>λ</mi><mi>1</mi></msub></math> = 10⁻⁵"
    # A line does not end between a formula and the comma after it.
    assert typeset("with W^V, so").endswith("</math>,</span> so")
    assert "<span" not in typeset("with W^V so")
