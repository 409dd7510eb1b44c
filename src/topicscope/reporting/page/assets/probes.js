// Probes: one choice of threshold for the maps of heads of all their models.

// A figure as it is at the threshold that is chosen.
function viewOf(spec) {
  if (!spec.views) return spec;
  const chosen = $(spec.id).closest("section").querySelector("[data-thresholds]").value;
  return { ...spec, ...(spec.views[chosen] || { traces: [], text: `Not measured at ${chosen}.` }) };
}

function showProbes() {
  for (const select of document.querySelectorAll("[data-thresholds]")) {
    const panels = DATA.figures.filter((spec) => spec.views && $(spec.id).closest("section").contains(select));
    select.addEventListener("change", () => {
      for (const spec of panels) if (!WAITING.has($(spec.id))) draw($(spec.id), { ...viewOf(spec), title: undefined });
    });
  }
}
