"""What a reader sees of the page in a browser, for tests: every panel's state, its pixels, and where a key leads."""

import base64
import io
import time
from pathlib import Path

import numpy as np

from support.browser import Browser

# The player of all runs, which an article has near its end; the one at its head plays by itself.
PLAYER = "runs"
PLAYING = f"PLAYERS['{PLAYER}']"
PANELS = tuple(f"{PLAYER}-{name}" for name in ("map-0-trained", "map-0-difference", "norms", "loss"))
# What a reader sees of each panel that the slider drives.
SEEN = f"""Object.fromEntries({list(PANELS)}.map((id) => {{
  const panel = document.getElementById(id);
  const image = panel.querySelector(".heatmaplayer image"), line = panel.querySelector(".now");
  return [id, image ? image.getAttribute("href") : line.style.left + panel.querySelector(".said").textContent];
}}))"""
# Files that would be saved, by name.
CATCH = """(
  window.saved = {},
  window.download = (name, url) => { saved[name] = url; },
  window.downloadText = (name, text) => { saved[name] = text; },
  0
)"""


def open_training(chromium: Browser, page: Path) -> None:
    """Open the page at its training runs, drawn."""
    chromium.open(page)
    chromium.scroll_to("training")
    chromium.wait(
        f"document.querySelector('.now') && document.querySelector('#{PLAYER}-map-0-trained .heatmaplayer image')"
    )


def slide(chromium: Browser, place: int) -> None:
    """Move the slider over steps, as a reader does."""
    chromium.value(
        f"(() => {{ const frame = {PLAYING}.part('frame'); frame.value = {place};"
        " frame.dispatchEvent(new Event('input')); })()"
    )
    chromium.wait(f"{PLAYING}.frame === {place}")


def still(chromium: Browser) -> list[str]:
    """Panels that the slider drives and that do not change between its two ends."""
    last = chromium.value(f"Number({PLAYING}.part('frame').max)")
    slide(chromium, last)
    before = chromium.value(SEEN)
    slide(chromium, 0)
    after = chromium.value(SEEN)
    return [name for name in PANELS if before[name] == after[name]]


def look_at_everything(chromium: Browser) -> None:
    """Scroll through the page, then have drawn what was passed by too quickly."""
    for section in chromium.value("[...document.querySelectorAll('section[id]')].map((each) => each.id)"):
        chromium.scroll_to(section)
        time.sleep(0.2)
    chromium.value("[...WAITING.keys()].forEach(drawWaiting)")
    chromium.wait("WAITING.size === 0 && document.querySelectorAll('.js-plotly-plot').length > 5")
    time.sleep(0.5)


def colours_of(chromium: Browser, panel: str) -> int:
    """How many colours a panel shows, each on more than a few pixels: one or two if nothing is drawn."""
    pixels = pixels_of(chromium, panel).reshape(-1, 3)
    # Shades that are as good as one are counted once.
    _, counts = np.unique(pixels // 32, axis=0, return_counts=True)
    return int((counts > 20).sum())


def cut_off(chromium: Browser, panel: str) -> bool:
    """Whether what is drawn in the upper half of a panel goes up to its left or right edge."""
    pixels = pixels_of(chromium, panel).astype(int)
    upper = pixels[: len(pixels) // 2]
    return bool((abs(upper[:, [1, -2]] - upper[1, 1]) > 32).any())


def pixels_of(chromium: Browser, panel: str) -> np.ndarray:
    """What is drawn in a panel: row × column × channel."""
    from PIL import Image

    # What sticks to the window would lie over a panel.
    chromium.value("document.querySelectorAll('.bar').forEach((bar) => { bar.style.position = 'static'; })")
    # Scrolled into view: in a window that is made as high as the page, what is laid out by its height would move.
    element = chromium.driver.find_element("css selector", f"#{panel} .plot, [data-image='{panel}'] .picture")
    # The driver scrolls as little as it can, and cuts off what is still below the window.
    chromium.driver.execute_script("arguments[0].scrollIntoView({ block: 'center', behavior: 'instant' })", element)
    content = element.screenshot_as_base64
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content))).convert("RGB"))
