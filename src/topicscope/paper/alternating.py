"""§8.1: two-stage and alternating training against training all attention matrices jointly."""

from typing import TYPE_CHECKING

from topicscope.paper import figure10
from topicscope.paper.claim import Claim, Drawing, Preset, Results, above
from topicscope.paper.experiment import Experiment
from topicscope.paper.figure2 import centred_contrast
from topicscope.paper.setups import (
    LDA,
    MASKING,
    MORE_ATTENTION,
    ONE_HOT,
    SLIGHTLY,
    extra_loss,
    gain,
    settings,
    steps_of,
)
from topicscope.paper.table3 import same_topic_ratio
from topicscope.settings.training import Schedule

if TYPE_CHECKING:
    from topicscope.reporting.figures import Drawn

SCHEDULES: dict[Schedule, str] = {"two_stage": "two-stage", "alternating": "alternating"}


def experiment(preset: Preset, schedule: Schedule) -> Experiment:
    """W^V, then W^K and W^Q: once, or in turn; as many steps in all as joint training has."""
    return Experiment(
        name=f"section8.1/{SCHEDULES[schedule]}",
        reproduces="§8.1",
        settings=settings(ONE_HOT, "squared", "adam", steps=steps_of(figure10.STEPS, preset.full), schedule=schedule),
    )


def claims(preset: Preset) -> tuple[Claim, ...]:
    """Loss, W^V's blocks and same-topic attention of both schedules.

    §8.1 says that no qualitative aspect of normal training is lost; that the loss is the same would be ours.
    """
    joint = figure10.joint(preset, "squared", "adam")
    found = []
    for schedule, words in SCHEDULES.items():
        run = experiment(preset, schedule)
        found += [
            Claim(
                id=f"{run.name}/loss",
                source="§8.1",
                statement=f"{words.capitalize()} training comes within 10 % of the gain of joint training.",
                expected="< 0.1",
                unit="of the gain",
                rule=SLIGHTLY,
                needs=(run, joint),
                measure=lambda trained, name=run.name: extra_loss(trained[name], trained[joint.name]),  # type: ignore[misc]
                figure="schedules-loss",
                ours=True,
            ),
            Claim(
                id=f"{run.name}/value",
                source="§8.1",
                statement=f"After {words} training W^V is on average larger within topics than between them.",
                expected="> 0",
                rule=above(0.0),
                needs=(run,),
                measure=lambda trained, name=run.name: centred_contrast(trained[name]),  # type: ignore[misc]
                figure="schedules",
            ),
            Claim(
                id=f"{run.name}/attention",
                source="§8.1",
                statement=f"After {words} training words attend more to their own topic than to others.",
                expected="> 1.05",
                unit="ratio of average attention",
                rule=MORE_ATTENTION,
                needs=(run,),
                measure=lambda trained, name=run.name: same_topic_ratio(trained[name]),  # type: ignore[misc]
                figure="schedules",
            ),
        ]
    return tuple(found)


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """W^V after each schedule, and the losses."""
    chosen = {"joint": figure10.joint(preset, "squared", "adam")}
    chosen |= {words: experiment(preset, schedule) for schedule, words in SCHEDULES.items()}
    needs = tuple(chosen.values())
    return (
        Drawing(name="schedules", needs=needs, draw=lambda trained: _draw(trained, chosen)),
        Drawing(name="schedules-loss", needs=needs, draw=lambda trained: _draw_losses(trained, chosen)),
    )


def _draw(trained: Results, chosen: dict[str, Experiment]) -> "Drawn":
    from topicscope.reporting.figures.training import heat_maps

    panels = {words: trained[experiment.name].value_products[0] for words, experiment in chosen.items()}
    title = "§8.1: W^V after joint, two-stage and alternating training (squared loss, Adam)"
    return heat_maps(panels, words=10, columns=3, same_scale=[tuple(panels)], title=title)


def _draw_losses(trained: Results, chosen: dict[str, Experiment]) -> "Drawn":
    from topicscope.reporting.figures.training import loss_levels

    unit = gain(LDA, MASKING, "squared")
    losses = {f"{words} training": trained[experiment.name].held_out_loss for words, experiment in chosen.items()}
    levels = {"Bayes floor": unit.floor, "best constant prediction": unit.constant}
    steps = next(iter(chosen.values())).settings.training.steps
    title = f"§8.1: attention on one-hot words by schedule\n({steps:,} steps, Adam)"
    return loss_levels({"held-out squared loss": (losses, levels)}, title=title)
