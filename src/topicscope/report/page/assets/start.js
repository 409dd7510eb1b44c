// Everything begins here.

function wireSave(panel) {
  for (const button of panel.querySelectorAll("[data-save]")) button.addEventListener("click", () => save(panel, button.dataset.save));
}

async function start() {
  showTables();
  await unpack();
  if (DATA.runs.length || DATA.landscapes.length || DATA.figures.length || DATA.sweeps.length) await loadLibrary();
  for (const panel of document.querySelectorAll(".panel")) wireSave(panel);
  showPictures();
  showTraining();
  showLandscapes();
  showFigures();
  showProbes();
  DARK.addEventListener("change", redrawAll);
  PRINT.addEventListener("change", redrawAll);
  addEventListener("beforeprint", () => {
    for (const panel of [...WAITING.keys()]) drawWaiting(panel);
    for (const claim of document.querySelectorAll("details")) claim.open = true;
  });
  openTarget();
  document.documentElement.dataset.ready = "yes";
}

start();
