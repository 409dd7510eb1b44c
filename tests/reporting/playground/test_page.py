"""The playground in a browser: it trains, keeps within its limits, and every scene shows what its caption says."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.browser import Browser, require_browser
from support.wasm import Core, Setting
from topicscope.commands.playground import page_settings, playground
from topicscope.measure.run import read_run
from topicscope.reporting.page import write_report
from topicscope.settings import Settings
from topicscope.settings.toml import load_settings
from topicscope.training.loop import train

API = "window.topicscope.playground"
EXAMPLE = Path(__file__).parents[3] / "examples/figure2.toml"


class Page:
    """The playground's page, open in a browser."""

    def __init__(self, chromium: Browser, file: Path) -> None:
        self.chromium, self.file = chromium, file

    def open(self, hash_: str = "", *, width: int = 1400, dark: bool = False, seen: bool = True) -> None:
        """Open it anew and wait until it trains, which it begins by itself where it is seen."""
        ready = f"window.topicscope !== undefined && {API}.state().value !== undefined"
        if seen:
            ready += f" && ({API}.state().running || {API}.state().scene !== null)"
        self.chromium.open(self.file, hash_, width=width, dark=dark, ready=ready)

    def wait(self, condition: str) -> None:
        self.chromium.wait(condition)

    def call(self, name: str, *arguments: Any) -> Any:
        return self.chromium.value(f"{API}.{name}({', '.join(map(json.dumps, arguments))})")

    @property
    def state(self) -> Any:
        return self.call("state")

    def until(self, step: int) -> Any:
        """Train to this step; the state there."""
        self.call("run", {"until": step})
        self.wait(f"{API}.state().step >= {step} && !{API}.state().running")
        return self.state

    def reset(self, **settings: Any) -> None:
        """These settings, paused at step 0."""
        self.call("pause")
        self.call("set", settings)
        self.call("restart")
        self.wait(f"{API}.state().step === 0")


@pytest.fixture(scope="module")
def page(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Page:
    require_browser()
    file = playground(out=tmp_path_factory.mktemp("playground") / "playground.html")
    return Page(chromium, file)


def assert_quiet(page: Page) -> None:
    assert page.chromium.console_errors() == []
    assert page.chromium.requests() == []


def test_it_trains_as_it_opens_and_to_the_bit_as_elsewhere(page: Page) -> None:
    page.open()
    page.wait(f"{API}.state().step > 5")
    assert page.state["scene"] == "figure2"
    assert page.file.stat().st_size < 300_000
    page.reset(seed=3, parts="all", batch=8, loss="cross_entropy")
    found = page.until(60)
    core = Core(Setting(parts=0, batch=8, loss=0, l2=1e-5), seed=3)
    core.call("train", 60)
    expected = core.measure()
    # WebAssembly without relaxed SIMD computes the same everywhere, so this is equality and not closeness.
    assert found["value"] == {name: expected[name] for name in found["value"]}
    assert found["norms"]["key"] == expected["norm_key"]
    assert_quiet(page)


@pytest.mark.slow
def test_settings_are_changed_while_it_runs_and_kept_in_the_address(page: Page) -> None:
    page.open()
    page.reset(topics=6, words=5, sampler="topics", per_document=3)
    before = page.until(20)
    page.call("run")
    assert page.call("set", {"mask": 0.3, "keep": 0.2})["problems"] == []
    assert page.state["step"] >= 20
    assert page.state["theory"]["optimum"] != before["theory"]["optimum"]
    page.wait("location.hash.includes('mask=0.3')")
    hash_ = page.chromium.value("location.hash")
    page.open(hash_)
    assert page.state["settings"]["per_document"] == 3
    assert page.state["settings"]["mask"] == 0.3
    assert page.state["problems"] == []
    assert_quiet(page)


BAD_ADDRESSES = {
    "#playground?mask=NaN": "mask = NaN is not allowed",
    "#playground?topics=64&words=64": "T·v = 4096 is too large",
    "#playground?loss=%3Cscript%3E&&&=&x=1": "is not a setting",
    "#playground?shortest=&longest=%E0%A4%A": "shortest = NaN",
}


@pytest.mark.slow
def test_a_bad_address_is_explained_and_defaults_are_taken(page: Page) -> None:
    page.open(next(iter(BAD_ADDRESSES)))
    for hash_, sentence in BAD_ADDRESSES.items():
        page.chromium.value(f"void (location.hash = {json.dumps(hash_)})")
        page.wait(f"document.querySelector('.playground .message').textContent.includes({json.dumps(sentence)})")
        assert page.state["settings"]["topics"] == 10
    assert_quiet(page)


@pytest.mark.slow
def test_sliders_stop_where_a_browser_would_be_too_slow_or_settings_do_not_go_together(page: Page) -> None:
    def slide(name: str, value: float) -> Any:
        page.chromium.value(
            f"(() => {{ const slider = document.getElementById('playground-{name}'); slider.value = {value};"
            " slider.dispatchEvent(new Event('input')); })()"
        )
        return page.state

    page.open()
    assert "T·v may be at most 256" in slide("topics", 64)["problems"][0]
    assert page.state["settings"]["topics"] == 25
    # What belongs together moves along.
    assert slide("shortest", 300)["settings"]["longest"] == 300
    assert slide("keep", 1.0)["settings"]["random"] == 0
    assert "words = 500 is not allowed: give a whole" in page.call("set", {"words": 500})["problems"][0]


@pytest.mark.slow
def test_it_can_be_used_by_keyboard_and_on_a_phone(page: Page) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    page.open(width=390, dark=True)
    page.call("pause")
    assert page.chromium.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    driver = page.chromium.driver
    driver.find_element(By.ID, "playground-per_document").send_keys(Keys.ARROW_RIGHT)
    page.wait(f"{API}.state().settings.per_document === 3")
    step = page.state["step"]
    driver.find_element(By.CSS_SELECTOR, ".playground .go").send_keys(Keys.ENTER)
    page.wait(f"{API}.state().step > {step}")
    assert_quiet(page)


def shown_text(page: Page) -> str:
    return str(page.chromium.value("document.querySelector('.playground').innerText"))


@pytest.mark.slow
def test_theory_that_takes_a_while_comes_for_the_cross_entropy_and_adam_too(page: Page) -> None:
    page.open()
    small = {"topics": 3, "words": 2, "shortest": 20, "longest": 30}
    page.reset(**small, loss="cross_entropy", parts="all")
    page.wait(f"{API}.state().theory.optimum !== null && {API}.state().theory.optimum.documents >= 20000")
    page.wait(f"{API}.state().prediction !== null && {API}.state().floor !== null")
    state = page.state
    optimum = state["theory"]["optimum"]
    assert state["floor"]["cross_entropy"][1] < optimum["low"] < optimum["loss"] < optimum["high"] < 1.94591
    assert 0 < state["prediction"]["low"] <= state["prediction"]["high"]
    assert optimum["same_topic"] > optimum["different_topic"]
    assert "optimum under uniform attention 1." in shown_text(page)
    # Without L2 the optimum is at infinity, and its loss is not.
    page.reset(l2=0.0)
    page.wait(f"{API}.state().theory.optimum !== null")
    assert "same_word" not in page.state["theory"]["optimum"]
    assert "the optimum is at infinity" in shown_text(page)
    # Back to a closed form: what was sampled is forgotten.
    page.reset(loss="squared")
    assert "low" not in page.state["theory"]["optimum"]
    assert page.state["uniform_loss"] is not None
    assert_quiet(page)


@pytest.mark.slow
def test_where_there_is_no_theory_the_page_says_why(page: Page) -> None:
    page.open()
    page.reset(topics=4, words=3, parts="all", overlap=0.3)
    page.wait(f"{API}.state().step === 0 && document.querySelector('.playground').innerText.includes('no landscape')")
    for words in ("Bayes floor: not computed for overlapping topics", "No take-off is predicted: the equations are"):
        assert words in shown_text(page)
    page.reset(overlap=0.0, masked_keys="hidden")
    page.wait("document.querySelector('.playground').innerText.includes('visible masked keys')")
    assert "Bayes floor: not computed where masked keys are hidden" in shown_text(page)
    assert_quiet(page)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"sampler": "topics", "loss": "cross_entropy", "optimizer": "sgd"}, marks=pytest.mark.slow),
        pytest.param({"parts": "theorem", "masked_keys": "hidden", "scale": 0.01, "l2": 0.0}, marks=pytest.mark.slow),
        {"overlap": 0.25, "topics": 4, "words": 3, "parts": "all", "adam_epsilon": 1e-6},
    ],
)
def test_the_saved_settings_are_run_by_train_and_open_the_same_page(
    page: Page, tmp_path: Path, settings: dict[str, Any]
) -> None:
    page.open()
    page.reset(**settings)
    for name, text in page.call("files").items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    loaded = load_settings(tmp_path / "settings.toml")
    state = page.state["settings"]
    # Topics that overlap are a matrix, which a page cannot open on.
    if not state["overlap"]:
        found = page_settings(loaded)
        assert {name: found[name] for name in state} == pytest.approx(state)
    run = train(_short(loaded), tmp_path / "run")
    assert read_run(run.path).steps[-1] == 2


def _short(settings: Settings) -> Settings:
    return replace(settings, training=replace(settings.training, steps=2, validation_documents=2, batch=2))


@pytest.mark.slow
def test_it_trains_in_the_page_of_a_run_once_it_is_seen(chromium: Browser, tmp_path: Path) -> None:
    require_browser()
    train(_short(load_settings(EXAMPLE)), tmp_path / "run")
    joined = Page(chromium, write_report([tmp_path / "run"], tmp_path / "report.html"))
    joined.open(seen=False)
    chromium.scroll_to("try")
    joined.wait(f"{API}.state().step > 5")
    assert joined.state["scene"] == "figure2"
    assert_quiet(joined)


def _contrast(classes: dict[str, float]) -> float:
    return classes["same_topic"] - classes["different_topic"]


def _is_at_the_optimum(state: Any) -> bool:
    optimum = state["theory"]["optimum"]
    names = ("same_word", "same_topic", "different_topic")
    return all(abs(state["value"][name] - optimum[name]) <= 0.1 * _contrast(optimum) for name in names)


def _topic_ratio(state: Any) -> float:
    return float(state["attention"]["same_topic"] / state["attention"]["different_topic"])


def figure_2_comes_to_rest_at_the_finite_document_optimum(page: Page, state: Any) -> None:
    assert _is_at_the_optimum(state)
    assert 1.7 < state["value"]["same_word"] / state["value"]["same_topic"] < 2.4
    assert abs(state["value"]["same_word"] - state["theory"]["theorem"]["same_word"]) > 0.5 * _contrast(state["value"])
    page.wait(f"{API}.state().floor !== null")
    mean, low, high = page.state["floor"]["squared"]
    assert low < mean < high < state["theory"]["optimum"]["loss"]


def two_stages_come_one_after_the_other(page: Page, state: Any) -> None:
    assert state["take_off"]["gain"] > 2 / 3
    assert _topic_ratio(state) > 1.3


def attention_takes_off_at_the_dashed_line(page: Page, state: Any) -> None:
    page.wait(f"{API}.state().prediction !== null")
    low, high = page.state["prediction"]["low"], page.state["prediction"]["high"]
    assert low <= high
    assert state["take_off"]["step"] == pytest.approx((low + high) / 2, rel=0.1)


def without_kept_words_attention_never_learns_topics(page: Page, state: Any) -> None:
    assert 0.9 < _topic_ratio(state) < 1.1
    assert state["theory"]["landscape"]["alpha"] == pytest.approx(1.0, abs=1e-6)
    page.call("set", {"keep": 0.1})
    assert _topic_ratio(page.until(3_000)) > 2


def sgd_passes_theorem_2_before_the_diagonal(page: Page, state: Any) -> None:
    assert state["value"]["same_word"] > 1.6 * state["value"]["same_topic"]
    page.call("restart")
    page.wait(f"{API}.state().step === 0")
    early = page.until(100)
    block = early["theory"]["theorem"]["same_topic"]
    assert early["value"]["same_word"] == pytest.approx(block, rel=0.15)
    assert early["value"]["same_topic"] == pytest.approx(block, rel=0.15)


def overlapping_topics_form_blocks_that_explain_less(page: Page, state: Any) -> None:
    assert _is_at_the_optimum(state)
    assert _contrast(state["value"]) > 0.05
    assert state["floor"] is None
    page.call("set", {"overlap": 0.0})
    assert 1 - state["theory"]["optimum"]["loss"] < 0.5 * (1 - page.state["theory"]["optimum"]["loss"])


SCENES = {
    "figure2": figure_2_comes_to_rest_at_the_finite_document_optimum,
    "stages": two_stages_come_one_after_the_other,
    "predicted": attention_takes_off_at_the_dashed_line,
    "never": without_kept_words_attention_never_learns_topics,
    "sgd": sgd_passes_theorem_2_before_the_diagonal,
    "overlap": overlapping_topics_form_blocks_that_explain_less,
}


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_shows_what_its_caption_says(page: Page, scene: str) -> None:
    page.open()
    page.call("show", scene)
    page.wait(f"{API}.state().scene === '{scene}' && {API}.state().step > 0 && !{API}.state().running")
    SCENES[scene](page, page.state)
    assert_quiet(page)
