"""A claim of the paper: its source, a statement, a rule fixed beforehand, a measurement, and the verdict that follows.

A module of claims offers ``claims(preset) -> tuple[Claim, ...]`` and ``drawings(preset) -> tuple[Drawing, ...]``;
``paper.registry()`` gathers them. For example::

    def claims(preset: Preset) -> tuple[Claim, ...]:
        return (
            Claim(
                id="figure2/squared-adam/contrast",
                statement="W^V trained with squared loss and Adam is larger within topics than between them.",
                rule=above(0),
                needs=(SQUARED_ADAM,),
                measure=lambda trained: over_seeds(trained[SQUARED_ADAM.name].contrasts["value"][:, -1]),
                figure="figure2",
            ),
        )

The verdict depends only on the measurement and the rule: ``holds`` if the 95 % interval is inside the rule's,
``fails`` if it is outside on one side, ``undecided`` if it straddles an end (or a run diverged).

Claims and figures rest on a ``Need``: work that is done once, in any process, kept on disk and read back as a result.
Training an experiment is one kind (``paper.experiment``), probing a language model another
(``paper.probe_experiment``). A new kind is a frozen dataclass at the top of a module (it is pickled for the worker)
with the members of ``Need``; nothing else has to know about it.
"""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np

from topicscope.measure.uncertainty import (
    CONFIDENCE,
    Interval,
    holm,
    interval_p,
    student_interval,
    student_p,
)
from topicscope.scale import Item

if TYPE_CHECKING:
    from topicscope.reporting.figures import Drawn as Drawn
else:
    # Drawing is imported where something is drawn.
    Drawn = Any

Seeds = tuple[int, ...]
NeedItem = Item[Callable[[], bytes]]
# What ``Need.restore`` returned, by the need's name.
Results = Mapping[str, Any]
Verdict = Literal["holds", "fails", "undecided", "not run"]
# Whose statement a claim is: the paper's; the paper's, on a model or a corpus that is not the paper's; ours, beside it.
# A check cannot fail if the program is right (it follows from the mathematics), and is not counted.
Kind = Literal["paper", "elsewhere", "ours", "check"]
# Why a claim does not hold: an error in the paper, its wording, settings (or a model, a corpus) in which it does not
# while it does in others, too few runs to tell; unknown, if nobody has looked into it yet.
Cause = Literal["error", "wording", "settings", "power", "unknown"]
Number = float | int | np.floating[Any] | np.integer[Any]
Detail = Number | str | None
UNEXPLAINED = "It is not known why: in the runs that this version was released with the claim did not fail."
# A threshold that was chosen here is moved by these factors, to see which verdicts depend on it.
SENSITIVITY = {"third": 1 / 3, "triple": 3.0}
# A number that should be zero must be below this; excess losses that should be zero are below 10⁻¹⁵.
ROUNDING = 1e-10
# Parts of the package that a measurement or a figure depends on, beside what it needs.
MEASURING = ("settings", "synthetic", "theory", "measure", "paper", "reporting", "randomness.py")


@dataclass(frozen=True)
class Preset:
    """How much is run: ``quick`` for everyone, ``paper`` for a number to cite."""

    name: str
    seeds: int
    models: tuple[str, ...] = ()
    """Language models to probe, as ``--models`` names them; by default the claims' own choice."""

    @property
    def full(self) -> bool:
        """Whether grids are the fuller ones."""
        return self.name == "paper"


PRESETS = {"quick": Preset("quick", 10), "paper": Preset("paper", 20)}


@dataclass(frozen=True)
class Rule:
    """The claim holds if the true number is strictly between these two."""

    low: Number = -np.inf
    high: Number = np.inf
    origin: Number | None = None
    """The point from which a threshold chosen here is measured; None if the statement itself has it ("larger than")."""

    share: bool = False
    """Whether the number is a share of something, so that three times a threshold means three times its odds."""

    def __post_init__(self) -> None:
        assert self.low < self.high

    def scaled(self, factor: float) -> "Rule":
        """The same with its thresholds so many times as far from the origin, or shares with so many times the odds."""
        assert self.origin is not None

        def moved(end: Number, origin: Number) -> Number:
            if self.share and 0 < end < 1:
                return factor * end / (1 - end + factor * end)
            return origin + factor * (end - origin)

        return replace(self, low=moved(self.low, self.origin), high=moved(self.high, self.origin))


def above(low: Number, *, origin: Number | None = None) -> Rule:
    """Larger than ``low``."""
    return Rule(low=low, origin=origin)


def below(high: Number, *, origin: Number | None = None) -> Rule:
    """Smaller than ``high``."""
    return Rule(high=high, origin=origin)


def share_above(low: Number) -> Rule:
    """A share larger than ``low``, a threshold that was chosen here."""
    return Rule(low=low, origin=0, share=True)


def share_below(high: Number) -> Rule:
    """A share smaller than ``high``, a threshold that was chosen here."""
    return Rule(high=high, origin=0, share=True)


def within(low: Number, high: Number) -> Rule:
    """Between the two."""
    return Rule(low, high)


def near(target: Number, tolerance: Number) -> Rule:
    """Less than ``tolerance`` from ``target``."""
    # A tolerance for rounding alone was not chosen by anybody.
    return Rule(target - tolerance, target + tolerance, target if tolerance > ROUNDING else None)


@dataclass(frozen=True)
class Diagnosis:
    """Why a claim fails or stays undecided; shown only if it does."""

    cause: Cause
    explanation: str
    """What explains it, in whole sentences."""

    holds: str = ""
    """The nearest setting at which the verdict changes; empty if there is none."""

    see: tuple[str, ...] = ()
    """Claims that show this."""


@dataclass(frozen=True)
class Before:
    """What an earlier version asked for, so that a changed rule shows what it changed."""

    asked: str
    """In words."""

    verdict: Verdict | None = None
    """The verdict at that time, if it rested on other runs; None if it follows from the same runs."""

    rule: Rule | None = None
    measure: Callable[[Mapping[str, Any]], "Measurement"] | None = None
    """The earlier rule and measurement, from which the earlier verdict is computed."""


@dataclass(frozen=True)
class Measurement:
    """A number and what its uncertainty comes from.

    Make one with ``exact``, ``over_seeds`` or ``interval_given``.
    """

    values: tuple[float, ...]
    """The number itself if it is exact or has a given interval; otherwise one per seed."""

    kind: Literal["exact", "mean", "given"]

    details: Mapping[str, Detail] = field(default_factory=dict)
    """Numbers shown beside it, on which no verdict rests."""

    low: float = np.nan
    high: float = np.nan
    """Ends of a given 95 % interval, which was computed elsewhere (a bootstrap, say)."""

    p: float = np.nan
    """Two-sided p-value of the hypothesis that the number is ``null`` (of a permutation, say); NaN without a test."""

    null: float = np.nan

    seconds: float = 0.0
    """Seconds that measuring took, with the work that it needed."""

    verdict_before: Verdict | None = None
    """The verdict by the earlier rule, if the claim has one."""

    varied: Mapping[str, Verdict] = field(default_factory=dict)
    """Verdicts with other thresholds inside the measurement, if the claim has one."""

    @property
    def finite(self) -> bool:
        """Whether all runs have a number, and a given interval has ends."""
        ends = (self.low, self.high) if self.kind == "given" else ()
        return bool(np.isfinite(self.values).all() and not np.isnan(ends).any())

    def dump(self) -> bytes:
        """As JSON, with NaN for a run without a number."""
        return json.dumps(asdict(self), ensure_ascii=False, default=float).encode()

    @classmethod
    def restore(cls, content: bytes) -> "Measurement":
        """What ``dump`` wrote."""
        fields = json.loads(content)
        return cls(**fields | {"values": tuple(fields["values"])})

    @property
    def value(self) -> float:
        """The number."""
        return float(np.mean(self.values))

    def interval(self) -> Interval:
        """The number with its 95 % interval, of no width if exact."""
        if self.kind == "exact":
            return Interval(self.value, self.value, self.value)
        if self.kind == "given":
            return Interval(self.value, self.low, self.high)
        return student_interval(np.array(self.values))

    def p_value(self, threshold: Number) -> float:
        """How well the measurement agrees with a true number exactly at the threshold."""
        if self.kind == "exact":
            return float(self.value == threshold)
        if self.kind == "given":
            p = interval_p(self.interval(), float(threshold))
            # If this very threshold was tested, both the test and the interval must reject it.
            return max(p, self.p) if threshold == self.null else p
        return student_p(np.array(self.values), float(threshold))


def exact(value: Number, **details: Detail) -> Measurement:
    """A number without uncertainty."""
    return Measurement((float(value),), "exact", details)


def over_seeds(values: Sequence[float] | np.ndarray, **details: Detail) -> Measurement:
    """One number per seed; the claim is about their mean."""
    return Measurement(tuple(float(value) for value in values), "mean", details)


def interval_given(
    value: Number,
    low: Number,
    high: Number,
    *,
    p: Number | None = None,
    null: Number = 0.0,
    **details: Detail,
) -> Measurement:
    """A number whose 95 % interval, and p-value of being ``null``, come from outside: a bootstrap, a permutation.

    An interval that excludes its own value (a skewed bootstrap may) is widened to include it.
    """
    low, high = float(np.minimum(low, value)), float(np.maximum(high, value))
    found = Measurement((float(value),), "given", details, low, high)
    return found if p is None else replace(found, p=float(p), null=float(null))


@runtime_checkable
class Need(Protocol):
    """One piece of work."""

    @property
    def name(self) -> str:
        """Readable and unique, with slashes: "figure2/squared-adam"."""

    @property
    def cost(self) -> float:
        """Rough seconds on one idle core with the quick preset's seeds, to order work and to estimate the time left."""

    @property
    def suffix(self) -> str:
        """Ending of the file that keeps it."""

    def key(self, seeds: Seeds) -> dict[str, Any]:
        """Everything that the result depends on, as plain values, without the name. Equal keys mean the same work."""

    def compute(self, seeds: Seeds) -> bytes:
        """Do the work."""

    def restore(self, content: bytes) -> Any:
        """The result from what ``compute`` returned; its attribute ``seconds``, if any, is the time that it took."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement of the paper (or of ours beside it), and how it is decided."""

    id: str
    """A unique name in small letters with slashes, subject first: "figure2/squared-adam/same-topic"."""

    statement: str
    """One sentence that the measured number can show to be wrong."""

    rule: Rule

    measure: Callable[[Results], Measurement]
    """The function from the results of ``needs``, by name, to the number; an exact claim takes none."""

    needs: tuple[Need, ...] = ()

    source: str = ""
    """As in the paper, in the singular: "Figure 2", "Theorem 3", "Table 3", "§4"; by default from the id."""

    expected: float | int | str | None = None
    """What the number should be, or the condition on it in words; by default the rule's ("> 0")."""

    unit: str = ""
    figure: str = ""
    """Name of the figure that shows it."""

    kind: Kind = "paper"

    diagnosis: Diagnosis | None = None
    """Why it does not hold, as far as that is known, if it does not."""

    before: Before | None = None
    """The verdict by its earlier rule, if that was different."""

    varied: Mapping[str, Callable[[Results], Measurement]] = field(default_factory=dict)
    """The measurement with an inner threshold, such as that of take-off, at a third or three times its value."""

    unavailable: str = ""
    """Why it cannot be run here (a model that is not on this machine), in one sentence; it is then ``not run``."""

    def __post_init__(self) -> None:
        if not self.source:
            words = {"section": "§", "d": "D."}
            found = re.fullmatch(r"([a-z]+)([0-9.]+)/.*", self.id)
            if found is None:
                raise ValueError(f"{self.id}: give a source, since the id does not begin with one.")
            kind, number = found.groups()
            object.__setattr__(self, "source", words.get(kind, f"{kind.capitalize()} ") + number)

    @property
    def cost(self) -> float:
        """Seconds that its needs take; 0 for theory."""
        return sum((need.cost for need in self.needs), start=0.0)


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure of the paper's: drawn once what it needs is done, into figures/NAME.png, .svg and .csv."""

    name: str
    draw: Callable[[Results], Drawn]
    needs: tuple[Need, ...] = ()


def verdict(rule: Rule, measurement: Measurement) -> Verdict:
    """What follows from rule and 95 % interval."""
    return _decided(rule, measurement, decision_p(rule, measurement))


def decision_p(rule: Rule, measurement: Measurement) -> float:
    """The p-value behind the verdict: below 0.05 if and only if the interval straddles no end.

    Inside the rule, both ends must be refuted, so the larger of their p-values counts; outside, the end that was
    crossed. An exact number is certain.
    """
    if not measurement.finite:
        return 1.0
    if measurement.kind == "exact":
        return 0.0
    low, high = measurement.p_value(rule.low), measurement.p_value(rule.high)
    if rule.low < measurement.value < rule.high:
        return max(low, high)
    return low if measurement.value <= rule.low else high


def corrected_verdicts(claims: Sequence[Claim], measured: Mapping[str, Measurement]) -> dict[str, Verdict]:
    """Verdicts, by id, that hold together: the probability that one of a source's is wrong is 5 % (Holm).

    Exact numbers have no uncertainty and do not count among the many.
    """
    known = [claim for claim in claims if claim.id in measured]
    p_values = dict.fromkeys(measured, 0.0)
    for source in {claim.source for claim in known}:
        uncertain = [claim for claim in known if claim.source == source and measured[claim.id].kind != "exact"]
        alone = [decision_p(claim.rule, measured[claim.id]) for claim in uncertain]
        p_values |= zip([claim.id for claim in uncertain], holm(np.array(alone, dtype=np.float64)), strict=True)
    return {claim.id: _decided(claim.rule, measured[claim.id], p_values[claim.id]) for claim in known}


def _decided(rule: Rule, measurement: Measurement, p: float) -> Verdict:
    if not measurement.finite or p >= 1 - CONFIDENCE:
        return "undecided"
    return "holds" if rule.low < measurement.value < rule.high else "fails"


def row(claim: Claim, measurement: Measurement | None, corrected: Verdict, *, seeds: int = 0) -> dict[str, Any]:
    """One row of claims.json; ``measurement`` is None for a claim that was not run.

    ``seeds`` is how many runs were asked for, and is kept for an exact number that rests on runs; a mean knows its own
    number, which may be smaller. The row has 0 for an interval from outside, and where nothing is trained. ``low`` and
    ``high`` are null where the number is exact, and where a single seed leaves it without an interval.
    """
    found = measurement or exact(np.nan)
    interval = found.interval() if found.finite else None
    ends = (interval.low, interval.high) if interval and found.kind != "exact" else (np.nan, np.nan)
    low, high = ends if np.isfinite(ends).all() else (None, None)
    over = {"given": 0, "exact": seeds}.get(found.kind, len(found.values)) if measurement and claim.needs else 0
    decided = verdict(claim.rule, measurement) if measurement else "not run"
    varied = {**sensitivity(claim.rule, measurement), **measurement.varied} if measurement else {}
    return {
        "id": claim.id,
        "source": claim.source,
        "kind": claim.kind,
        "statement": claim.statement,
        "expected": rule_text(claim.rule) if claim.expected is None else claim.expected,
        "measured": interval.value if interval else None,
        "low": low,
        "high": high,
        "unit": claim.unit,
        "verdict": decided,
        "verdict_corrected": corrected if measurement else "not run",
        "verdict_before": found.verdict_before,
        "asked_before": claim.before.asked if claim.before else None,
        "diagnosis": diagnosis(claim, decided, found),
        "sensitivity": varied or None,
        "rule": rule_text(claim.rule),
        "seeds": over,
        "seconds": round(found.seconds, 3),
        "figure": claim.figure,
        # As JSON has them: no NumPy numbers, and null for what is not finite.
        "details": {
            name: value if value is None or isinstance(value, str) else float(value) if np.isfinite(value) else None
            for name, value in found.details.items()
        },
    }


def diagnosis(claim: Claim, decided: Verdict, measurement: Measurement) -> dict[str, Any] | None:
    """Why a claim was not run, fails or is undecided: a reason known beforehand, or what its own numbers say."""
    if decided == "holds":
        return None
    if decided == "not run":
        return asdict(Diagnosis("settings", claim.unavailable)) | {"see": []}
    power = why_undecided(claim.rule, measurement) if decided == "undecided" else ""
    otherwise = Diagnosis("power", "") if power else Diagnosis("unknown", UNEXPLAINED)
    known = claim.diagnosis or otherwise
    return asdict(known) | {"explanation": f"{known.explanation} {power}".strip(), "see": list(known.see)}


def why_undecided(rule: Rule, measurement: Measurement) -> str:
    """Which end of the rule the interval straddles, and about how many runs would decide it."""
    if not measurement.finite:
        without = int(np.sum(~np.isfinite(measurement.values)))
        return f"{without} of {len(measurement.values)} runs have no such number."
    found = measurement.interval()
    nearest = min((float(rule.low), float(rule.high)), key=lambda end: abs(end - found.value))
    said = f"The 95 % interval from {found.low:.4g} to {found.high:.4g} has the rule's end {nearest:.4g} inside."
    if measurement.kind != "mean" or len(measurement.values) < 2 or found.value == nearest:
        return said
    reach = max(found.high - found.value, found.value - found.low) / abs(found.value - nearest)
    # The interval narrows at least as the square root of the number of runs.
    runs = int(np.ceil(len(measurement.values) * reach**2))
    return f"{said} If the mean stays where it is, about {runs:,} runs instead of {len(measurement.values)} decide it."


def sensitivity(rule: Rule, measurement: Measurement) -> dict[str, Verdict]:
    """The verdict if a threshold that was chosen here is a third or three times as far out; nothing if none was."""
    if rule.origin is None:
        return {}
    return {name: verdict(rule.scaled(factor), measurement) for name, factor in SENSITIVITY.items()}


def rule_text(rule: Rule) -> str:
    """The rule in words."""
    if np.isinf(rule.low):
        return f"< {rule.high:.6g}"
    if np.isinf(rule.high):
        return f"> {rule.low:.6g}"
    # Enough digits to distinguish the ends from each other and from what is between them.
    digits = max(
        6, int(np.ceil(np.log10(max(abs(float(rule.low)), abs(float(rule.high))) / float(rule.high - rule.low)))) + 2
    )
    return f"between {rule.low:.{digits}g} and {rule.high:.{digits}g}"


def measured(claim: Claim, results: Results) -> Measurement:
    """Measure a claim, also by its earlier rule if it has one, and the time that it takes with the work it needs."""
    began = time.perf_counter()
    found, old = claim.measure(results), claim.before
    before = old.verdict if old else None
    if old and old.rule and old.measure:
        before = verdict(old.rule, old.measure(results))
    varied = {name: verdict(claim.rule, measure(results)) for name, measure in claim.varied.items()}
    seconds = time.perf_counter() - began + sum(getattr(each, "seconds", 0.0) for each in results.values())
    return replace(found, seconds=seconds, verdict_before=before, varied=varied)


def claim_on(need: Need, measure: Callable[[Any], Measurement], **claim: Any) -> Claim:
    """A claim on one result, such as that of an experiment."""
    return Claim(needs=(need,), measure=lambda results: measure(results[need.name]), **claim)


def zero(**claim: Any) -> Claim:
    """A claim that an exact number that is never below zero is zero up to rounding."""
    return Claim(expected=0.0, rule=below(ROUNDING), **claim)


def equal(value: Number, tolerance: float = ROUNDING, **claim: Any) -> Claim:
    """A claim that an exact number is this one."""
    return Claim(expected=float(value), rule=near(value, tolerance), **claim)


def need_item(need: Need, seeds: Seeds) -> NeedItem:
    """A need as work that is done in any process, by calling the item's argument, and kept."""
    return Item(need.name, need.key(seeds), partial(need.compute, seeds), suffix=need.suffix)
