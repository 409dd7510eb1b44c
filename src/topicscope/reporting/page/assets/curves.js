// Attention, norms and loss over steps, with a line at the step that is shown.

// Lines of all seeds, the chosen one in bold; `meta` is their name in a table.
function curves(name, x, values, colour, dash) {
  return training.run.seeds.map((seed, place) => {
    const chosen = place === training.seed;
    return { type: "scatter", mode: "lines", name, meta: `${name}, seed ${seed}`, x, y: row(values, place), legendgroup: name,
      showlegend: chosen, opacity: chosen ? 1 : 0.3, line: { color: colour, width: chosen ? 2.5 : 1, dash } };
  });
}

// A part's bias has its colour, dashed.
const PART_COLOURS = { embedding: 0, value: 1, key: 2, query: 3, prediction: 4, position: 5 };

function normCurves(name, steps, values, place) {
  const bias = name.endsWith("_bias"), colour = PART_COLOURS[bias ? name.slice(0, -5) : name] ?? place;
  return curves(`‖${PART_NAMES[name] || plain(name)}‖`, steps, values, COLOURS[colour % COLOURS.length], bias ? "dash" : "solid");
}

// Room for a legend of many short lines.
const HIGH = { margin: { b: 165 }, height: 440 };

function curveLayout(label, more) {
  return merged({ showlegend: true, legend: BELOW,
    xaxis: { title: { text: "step", standoff: 5 } }, yaxis: { title: { text: label } }, margin: { b: 125 }, height: 400 }, more);
}

function drawCurves() {
  const { run } = training, steps = Array.from(numbers(run.steps));
  const losses = curves("loss of the batch", steps, run.loss, COLOURS[0]);
  if (run.heldOut) losses.push(...curves("held-out loss", Array.from(numbers(run.heldOutSteps)), run.heldOut, COLOURS[1]));
  const levels = run.levels.map((level, place) => ({ type: "scatter", mode: "lines", name: `${level.label}: ${shown(level.loss)}`,
    x: [steps[0], steps.at(-1)], y: [level.loss, level.loss], line: { color: COLOURS[2 + place], dash: ["dash", "dashdot", "dot"][place], width: 2 } }));
  draw($("loss"), { file: () => fileOf(seedName(), "loss"), traces: [...losses, ...levels], layout: curveLayout("loss"), narrow: HIGH });
  const norms = Object.entries(run.norms).flatMap(([name, values], place) => normCurves(name, steps, values, place));
  draw($("norms"), { file: () => fileOf(seedName(), "norms"), traces: norms, layout: curveLayout("Frobenius norm"), narrow: HIGH });
  const snapshots = Array.from(numbers(run.attentionSteps)), several = shape(run.attention)[2] > 1;
  const lines = CLASS_NAMES.slice(0, 3).flatMap((name, kind) => run.seeds.map((seed, place) => {
    const chosen = place === training.seed;
    return { type: "scatter", mode: "lines+markers", name, meta: `${name}, seed ${seed}`, legendgroup: name, showlegend: chosen, opacity: chosen ? 1 : 0.3,
      x: snapshots, y: snapshots.map((_, at) => 100 * attentionAt(place, at)[kind]),
      line: { color: COLOURS[kind], width: chosen ? 2.5 : 1 }, marker: { size: chosen ? 4 : 2, symbol: ["circle", "square", "diamond"][kind] } };
  }));
  const which = training.layer < 0 ? "all layers" : `layer ${training.layer + 1}`;
  if (snapshotCount()) draw($("attention"), { file: () => fileOf(seedName(), ...layerName(), "attention"), title: "Average attention × 100" + (several ? `, ${which}` : ""), traces: lines, layout: curveLayout("attention × 100"), narrow: HIGH });
  updateCurves();
}

const CURVES = ["loss", "norms", "attention"];

function sayCurves() {
  const { run } = training, step = frameStep();
  const at = nearest(numbers(run.steps), step);
  $("loss").querySelector(".said").textContent = `Step ${numbers(run.steps)[at].toLocaleString("en")}: loss ${shown(row(run.loss, training.seed)[at])}.`;
  const parts = Object.entries(run.norms).map(([name, values]) => `‖${PART_NAMES[name] || name}‖ ${shown(row(values, training.seed)[at])}`);
  $("norms").querySelector(".said").textContent = parts.join(", ") + ".";
  if (!snapshotCount()) return;
  const classes = attentionAt(training.seed, nearest(numbers(run.attentionSteps), step));
  $("attention").querySelector(".said").textContent = CLASS_NAMES.slice(0, 3).map((name, kind) => `${name} ${shown(100 * classes[kind])}`).join(", ") + ".";
}

function nearest(values, wanted) {
  let best = 0;
  values.forEach((value, place) => { if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = place; });
  return best;
}

function updateCurves() {
  for (const name of CURVES) markStep($(name));
  sayCurves();
}

// A line at the step that is shown, over the plot: moving it redraws nothing.
function markStep(panel) {
  const plot = panel.querySelector(".plot"), full = plot._fullLayout;
  if (!full || !full.xaxis) return;
  let line = panel.querySelector(".now");
  if (!line) {
    line = document.createElement("div");
    line.className = "now";
    panel.append(line);
    plot.on("plotly_afterplot", () => markStep(panel));
  }
  const { xaxis, yaxis } = full, step = frameStep();
  SPECS.get(panel).step = step;
  const left = plot.offsetLeft + xaxis._offset + xaxis.d2p(step);
  line.style.cssText = `left: ${left}px; top: ${plot.offsetTop + yaxis._offset}px; height: ${yaxis._length}px`;
}
