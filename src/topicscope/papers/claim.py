"""A claim: a statement, a rule that was fixed beforehand, a measurement, and the verdict that follows from the two.

Claims are entries of a paper's ``claims.toml`` (:mod:`topicscope.papers.paper`). A measuring function gets the results
of the claim's needs by name and returns a :class:`Measurement`, or one for each row if the claim is about several
settings::

    @per_run
    def contrast(run: Run) -> Measurement:
        return over_seeds(run.metrics["contrast/value"][:, -1, 0])

A number ``holds`` if its 95 % interval lies inside the rule, ``fails`` if it lies outside, and is ``undecided`` if it
straddles an end, if a run has no such number, or if rounding or leaving out one seed would turn the verdict.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any

import msgspec
import numpy as np

from topicscope.measure.uncertainty import CONFIDENCE, Interval, interval_p, student_interval
from topicscope.records import ClaimRecord, ClaimRowRecord, DiagnosisRecord, Kind, Verdict

Number = float | int | np.floating[Any] | np.integer[Any]
# A number beside the one that is measured; of several, such as one per seed, their mean is shown.
Detail = Number | np.ndarray | str | None
# What a measuring function gets: results of the claim's needs by name.
Results = Mapping[str, Any]
# A number that should be zero must be below this; excess losses that should be zero are below 10⁻¹⁵.
ROUNDING = 1e-10
# Sums in another order move a number by about this share of itself.
RELATIVE_ROUNDING = 1e-9
UNEXPLAINED = "It is not known why: in the runs that this version was released with, the claim did not fail."
NUMBER = r"[-+−]?(?:\d+/\d+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of claims.toml."""

    id: str
    """A unique name in small letters with slashes, subject first: "figure2/blocks"."""

    source: str
    """As in the paper, in the singular: "Figure 2", "Theorem 3", "§4"."""

    statement: str
    """One sentence that can be understood alone, and that the measured number can show to be wrong."""

    rule: str
    """"> 1", "< 2/3", "0.9 .. 1.1" or "= 0.5 ± 0.01"."""

    quantity: str
    """The measuring function, as module.function of the paper's folder."""

    kind: Kind = "paper"
    needs: tuple[str, ...] = ()
    """Names of the experiments that it rests on, or patterns of names; none if it is exact."""

    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    """Keyword arguments of the measuring function."""

    expected: float | str | None = None
    """The number that the paper prints or that theory gives, if there is one; by default the rule."""

    unit: str = ""
    figure: str = ""
    diagnosis: DiagnosisRecord | None = None
    """Why it fails or stays undecided, as far as that is known; shown only if it does."""

    def __post_init__(self) -> None:
        Rule.parse(self.rule)


@dataclass(frozen=True)
class Rule:
    """The claim holds if the true number is strictly between these two."""

    low: float = -np.inf
    high: float = np.inf

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """From "> x", "< x", "x .. y" or "= x ± y"."""
        forms: dict[str, Callable[..., Rule]] = {
            rf"> ({NUMBER})": lambda low: cls(low=low),
            rf"< ({NUMBER})": lambda high: cls(high=high),
            rf"({NUMBER}) \.\. ({NUMBER})": cls,
            rf"= ({NUMBER}) ± ({NUMBER})": lambda target, tolerance: cls(target - tolerance, target + tolerance),
        }
        for pattern, make in forms.items():
            if match := re.fullmatch(pattern, text):
                rule = make(*(float(Fraction(number.replace("−", "-"))) for number in match.groups()))
                if rule.low < rule.high:
                    return rule
        raise ValueError(f'"{text}" is no rule: write "> x", "< x", "x .. y" or "= x ± y".')

    def margin(self, value: float) -> float:
        """How far a number is from the nearest end, negative if it is outside."""
        return min(value - self.low, self.high - value)

    def nearest_end(self, value: float) -> float:
        """The end that a number is nearest to."""
        return min((self.low, self.high), key=lambda end: abs(end - value))


@dataclass(frozen=True)
class Measurement:
    """A number and what its uncertainty comes from; made with ``exact``, ``over_seeds`` or ``interval_given``."""

    values: tuple[float, ...]
    """One number per seed, of which it is the mean; otherwise the number itself."""

    interval: Interval
    """The number with its 95 % interval, of no width if it is exact."""

    seeds: int = 0
    """How many runs it is the mean of."""

    details: Mapping[str, str | float | None] = field(default_factory=dict)
    """Numbers shown beside it, on which no verdict rests; None where one is not finite."""

    p: float = np.nan
    """Two-sided p-value of the hypothesis that the number is ``null`` (of a permutation, say); NaN without a test."""

    null: float = np.nan
    resolution: float = 0.0
    """The least amount by which the number could change on another machine: one case, if it counts cases."""

    def beside(self, **details: Detail) -> "Measurement":
        """The same with these numbers shown beside it."""
        plain = {name: value if isinstance(value, str) else _finite(value) for name, value in details.items()}
        return replace(self, details={**self.details, **plain})

    @property
    def value(self) -> float:
        """The number."""
        return self.interval.value

    @property
    def exact(self) -> bool:
        """Whether it has no interval."""
        return not self.seeds and self.interval.low == self.interval.high

    @property
    def finite(self) -> bool:
        """Whether all runs have a number, and the interval has ends."""
        ends = (self.interval.low, self.interval.high)
        return len(self.values) > 0 and bool(np.isfinite(self.values).all() and not np.isnan(ends).any())

    @property
    def one_seed(self) -> float:
        """How far leaving out one seed moves the mean at most: the largest of (x̄ − x_k)/(K − 1)."""
        return float(abs(np.array(self.values) - self.value).max()) / (self.seeds - 1) if self.seeds > 1 else 0.0


def exact(value: Number, *, resolution: Number = 0.0, **details: Detail) -> Measurement:
    """A number without uncertainty; ``resolution`` is what one case counts, if the number counts cases."""
    number = float(value)
    return Measurement((number,), Interval(number, number, number), resolution=float(resolution)).beside(**details)


def over_seeds(values: Sequence[float] | np.ndarray, **details: Detail) -> Measurement:
    """One number per seed; the claim is about their mean."""
    numbers = np.array(values, dtype=float)
    return Measurement(tuple(numbers.tolist()), student_interval(numbers), len(numbers)).beside(**details)


def interval_given(
    value: Number | None,
    low: Number | None,
    high: Number | None,
    *,
    p: Number | None = None,
    null: Number = 0.0,
    **details: Detail,
) -> Measurement:
    """A number whose 95 % interval, and p-value of being ``null``, come from outside: a bootstrap, a permutation.

    An interval that excludes its own value (a skewed bootstrap may) is widened to include it; None is not known.
    """
    number, least, most, chance = (np.nan if each is None else float(each) for each in (value, low, high, p))
    ends = float(np.minimum(least, number)), float(np.maximum(most, number))
    return Measurement((number,), Interval(number, *ends), p=chance, null=float(null)).beside(**details)


def _finite(value: Number | np.ndarray | None) -> float | None:
    """As JSON has it: no NumPy numbers, and null for what is not finite."""
    return None if value is None or not np.isfinite(np.mean(value)) else float(np.mean(value))


def per_run(measure: Callable[..., Measurement]) -> Callable[..., dict[str, Measurement]]:
    """Turn a function of one result into one of all results: a row for each, named by what distinguishes them."""

    @functools.wraps(measure)
    def measure_all(results: Results, **arguments: Any) -> dict[str, Measurement]:
        names = row_names(list(results))
        return {name: measure(run, **arguments) for name, run in zip(names, results.values(), strict=True)}

    return measure_all


def row_names(names: Sequence[str]) -> list[str]:
    """Names without the folders that all of them share: "figure2/squared-adam" is "squared-adam"."""
    parts, shared = [PurePosixPath(name).parts for name in names], 0
    while all(len(name) > shared + 1 for name in parts) and len({name[shared] for name in parts}) == 1:
        shared += 1
    return ["/".join(name[shared:]) for name in parts]


def verdict(rule: Rule, measurement: Measurement) -> Verdict:
    """What follows from the rule and the 95 % interval, if neither rounding nor one seed would turn it."""
    if not measurement.finite:
        return "undecided"
    interval, end = measurement.interval, rule.nearest_end(measurement.value)
    rounding = RELATIVE_ROUNDING * max(abs(measurement.value), abs(end) if np.isfinite(end) else 0.0)
    slack = max(rounding, measurement.resolution, measurement.one_seed)
    # A test of this very end must reject it too.
    if measurement.null in (rule.low, rule.high) and measurement.p >= 1 - CONFIDENCE:
        return "undecided"
    low, high = interval.low - slack, interval.high + slack
    if rule.low < low and high < rule.high:
        return "holds"
    return "fails" if high <= rule.low or low >= rule.high else "undecided"


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """A claim's verdict from those of its rows: it fails if one fails, and holds if all hold."""
    order: tuple[Verdict, ...] = ("not run", "fails", "undecided", "holds")
    return min(verdicts, key=order.index, default="not run")


def weakest(rule: Rule, measurements: Sequence[Measurement]) -> int:
    """Which of several numbers decides: that nearest to the rule, or farthest outside, with the overall verdict."""
    verdicts = [verdict(rule, measurement) for measurement in measurements]
    decided = overall(verdicts)
    # One without a number is undecided before all others.
    margins = [rule.margin(one.value) if one.finite else -np.inf for one in measurements]
    return min(range(len(measurements)), key=lambda place: (verdicts[place] != decided, margins[place]))


def why_undecided(rule: Rule, measurement: Measurement) -> str:
    """Which end of the rule is too near, and about how many runs would decide it."""
    value, interval, end = measurement.value, measurement.interval, rule.nearest_end(measurement.value)
    if not measurement.finite:
        without = int(np.sum(~np.isfinite(measurement.values)))
        return f"{without} of {len(measurement.values)} runs have no such number."
    if measurement.resolution:
        return f"One case more or less moves {value:.4g} to the other side of the rule's end {end:.4g}."
    if measurement.exact:
        return f"{value:.4g} is so near to the rule's end {end:.4g} that rounding could turn the verdict."
    if not interval.low <= end <= interval.high:
        if not measurement.seeds and interval_p(interval, end) < 1 - CONFIDENCE:
            return f"The permutation test does not reject {end:.4g} (p = {measurement.p:.2g})."
        return f"Leaving out one run could move the 95 % interval to the rule's end {end:.4g}."
    sentence = f"The rule's end {end:.4g} is in the 95 % interval from {interval.low:.4g} to {interval.high:.4g}."
    if measurement.seeds < 2 or value == end:
        return sentence
    # The interval narrows at least as the square root of the number of runs.
    reach = max(interval.high - value, value - interval.low) / abs(value - end)
    runs = f"about {int(np.ceil(measurement.seeds * reach**2)):,} runs instead of {measurement.seeds}"
    return f"{sentence} If the mean stays where it is, {runs} decide it."


def record(
    claim: Claim, paper: str, measured: Measurement | Mapping[str, Measurement], seconds: float | None = None
) -> ClaimRecord:
    """The claim's record in claims.json; of several rows the one that decides is nearest to the rule, or beyond it."""
    rule = Rule.parse(claim.rule)
    by_name = {"": measured} if isinstance(measured, Measurement) else dict(measured)
    rows = [_row(name, rule, measurement) for name, measurement in by_name.items()]
    decided = overall([row.verdict for row in rows])
    shown = rows[weakest(rule, list(by_name.values()))]
    return msgspec.structs.replace(
        _unmeasured(claim, paper),
        measured=shown.measured,
        low=shown.low,
        high=shown.high,
        verdict=decided,
        margin=shown.margin,
        diagnosis=_diagnosis(claim, decided, rule, by_name[shown.name]),
        rows=rows if len(rows) > 1 else [],
        seeds=max(row.seeds for row in rows),
        seconds=None if seconds is None else round(seconds, 3),
        details={"row": shown.name} if len(rows) > 1 else shown.details,
    )


def not_run(claim: Claim, paper: str, reason: str) -> ClaimRecord:
    """The record of a claim whose needs are missing, with the reason."""
    diagnosis = DiagnosisRecord(cause="settings", explanation=reason)
    return msgspec.structs.replace(_unmeasured(claim, paper), diagnosis=diagnosis)


def _unmeasured(claim: Claim, paper: str) -> ClaimRecord:
    copied = {name: getattr(claim, name) for name in ("id", "source", "kind", "statement", "rule", "unit", "figure")}
    expected = claim.rule if claim.expected is None else claim.expected
    return ClaimRecord(**copied, paper=paper, expected=expected, measured=None, verdict="not run")


def _row(name: str, rule: Rule, measurement: Measurement) -> ClaimRowRecord:
    """One number; its ends are null where it is exact, and where a single seed leaves it without an interval."""
    finite, interval = measurement.finite, measurement.interval
    known = finite and not measurement.exact and bool(np.isfinite([interval.low, interval.high]).all())
    return ClaimRowRecord(
        name=name,
        measured=measurement.value if finite else None,
        low=interval.low if known else None,
        high=interval.high if known else None,
        verdict=verdict(rule, measurement),
        margin=rule.margin(measurement.value) if finite else None,
        seeds=measurement.seeds,
        details=dict(measurement.details),
    )


def _diagnosis(claim: Claim, decided: Verdict, rule: Rule, measurement: Measurement) -> DiagnosisRecord | None:
    """Why a claim fails or is undecided: a reason known beforehand, or what its own numbers say."""
    if decided in ("holds", "not run"):
        return None
    power = why_undecided(rule, measurement) if decided == "undecided" else ""
    if claim.diagnosis is None:
        return DiagnosisRecord(cause="power" if power else "unknown", explanation=power or UNEXPLAINED)
    explanation = f"{claim.diagnosis.explanation} {power}".strip()
    return msgspec.structs.replace(claim.diagnosis, explanation=explanation)
