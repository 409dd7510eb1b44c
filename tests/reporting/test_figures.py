import numpy as np

from topicscope.reporting.figures.base import heat_maps


def test_panels_named_together_share_a_colour_scale_and_others_have_their_own() -> None:
    panels = {name: np.full((5, 5), height) for name, height in (("a", 1.0), ("b", 2.0), ("c", 4.0), ("d", 8.0))}
    figure = heat_maps(panels, words=2, same_scale=[("a", "b")])
    ends = {axes.get_title(): axes.images[0].get_clim() for axes in figure.axes if axes.images and axes.get_title()}
    assert ends == {"a": (-2, 2), "b": (-2, 2), "c": (-4, 4), "d": (-8, 8)}
    two = heat_maps(panels, words=2, same_scale=[("a", "b"), ("c", "d")])
    ends = {axes.get_title(): axes.images[0].get_clim() for axes in two.axes if axes.images and axes.get_title()}
    assert (ends["a"], ends["c"]) == ((-2, 2), (-8, 8))
