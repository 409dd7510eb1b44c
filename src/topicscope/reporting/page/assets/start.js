// Everything begins here.

const FEW_PANELS = 12;

function wireSave(panel) {
  for (const button of panel.querySelectorAll("[data-save]")) button.addEventListener("click", () => save(panel, button.dataset.save));
}

// Figures and sliders alone, in large type.
function setPresent(wanted) {
  const root = document.documentElement;
  if (root.classList.contains("present") === wanted) return;
  root.classList.toggle("present", wanted);
  redrawAll();
  if (!wanted) return;
  // From the first figure on, and with its slider under the arrow keys.
  scrollTo({ top: 0, behavior: "instant" });
  document.querySelector(".player input[type=range]")?.focus({ preventScroll: true });
}

// Without a font for mathematics superscripts stand on top of their letters: the style sheet brings them down.
function lowerSuperscripts() {
  const found = document.querySelector("msup");
  if (!found) return;
  const [base, up] = [...found.children].map((each) => each.getBoundingClientRect());
  document.documentElement.classList.toggle("high-superscripts", up.bottom < base.top + base.height / 4);
}

async function start() {
  lowerSuperscripts();
  showTables();
  BUFFER = await unpacked("arrays");
  if (DATA.runs.length || DATA.landscapes.length || DATA.figures.length || DATA.sweeps.length) await loadLibrary();
  for (const panel of document.querySelectorAll(".panel")) wireSave(panel);
  showPictures();
  showPlayers();
  showLandscapes();
  showFigures();
  showProbes();
  DARK.addEventListener("change", redrawAll);
  PRINT.addEventListener("change", redrawAll);
  addEventListener("beforeprint", () => {
    for (const panel of [...WAITING.keys()]) drawWaiting(panel);
    for (const claim of document.querySelectorAll("details")) claim.open = true;
  });
  $("present")?.addEventListener("click", () => setPresent(true));
  $("whole-page").addEventListener("click", () => {
    if (location.hash === "#present") history.replaceState(null, "", location.pathname);
    setPresent(false);
  });
  if (location.hash) openTarget();
  // A short page is drawn at once: there is nothing to wait for, and a picture of it is whole.
  if (WAITING.size <= FEW_PANELS) for (const panel of [...WAITING.keys()]) drawWaiting(panel);
  document.documentElement.dataset.ready = "yes";
}

start();
