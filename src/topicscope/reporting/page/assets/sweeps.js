// A sweep: any number of its runs against any other.

// Middle greys of Cividis and what is darker, or lighter: each has 3:1 contrast with its paper.
const ON_LIGHT = ["#00224e", "#1d3a6c", "#434e6c", "#5f636e", "#7c7b78", "#8f8a77"], ON_DARK = ["#7c7b78", "#9a9376", "#bbaf71", "#dec958", "#fde737"];
const evenScale = (colours) => colours.map((colour, place) => [place / (colours.length - 1), colour]);
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x"];

const distinct = (values) => [...new Set(values.filter((value) => value !== null && value !== undefined && value !== ""))].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));

// Numbers that span decades: settings from a factor of 8 as in the drawings, measures from one of 100.
function decades(values, factor) {
  const known = values.filter((value) => value !== null), least = Math.min(...known);
  return least > 0 && Math.max(...known) >= factor * least;
}

// A measure's or a setting's name, to be read.
const spaced = (name) => name.replace(/_/g, " ");

function sweepColumn(sweep, name) {
  return sweep.numbers[name] || sweep.texts[name];
}

function sweepAxis(sweep, name) {
  const values = sweepColumn(sweep, name), setting = sweep.settings.includes(name), title = { text: plain(spaced(name)) };
  if (sweep.texts[name]) return { title, type: "category", tickangle: 0, automargin: true };
  if (!decades(values, setting ? 8 : 100)) return { title, tickangle: 0, nticks: narrow() ? 4 : 8 };
  const marks = distinct(values), few = setting && marks.length <= 5;
  return { title, type: "log", tickangle: 0, ...(few ? { tickvals: marks, ticktext: marks.map(shown) } : { dtick: 1, exponentformat: "power" }) };
}

// Every run's settings and seed, then what is drawn.
function sweepTable(sweep, drawn) {
  const all = [...sweep.settings, "seed", ...drawn, "run"], names = [...new Set(all)].filter((name) => sweepColumn(sweep, name));
  return [names, ...sweepColumn(sweep, names[0]).map((_, place) => names.map((name) => sweepColumn(sweep, name)[place]))];
}

function sweepSpec(sweep, across, up, colour) {
  const x = sweepColumn(sweep, across), y = sweepColumn(sweep, up), shade = sweepColumn(sweep, colour);
  const names = [...sweep.settings, "seed"].filter((name) => sweepColumn(sweep, name));
  const text = x.map((_, place) => names.map((name) => { const value = sweepColumn(sweep, name)[place]; return `${plain(name)} = ${typeof value === "number" ? shown(value) : plain(value)}`; }).join("<br>"));
  const trace = { type: "scatter", mode: "markers", hovertemplate: `%{text}<br>${sweep.texts[across] ? "" : "%{x:.4g}, "}%{y:.4g}<extra></extra>` };
  const ring = { width: 1, color: "#808080" }, values = distinct(shade);
  const apart = values.length <= COLOURS.length || sweep.texts[colour];
  const pick = (value) => shade.flatMap((each, place) => (each === value ? [place] : []));
  const traces = apart
    ? values.map((value, kind) => ({ ...trace, name: `${plain(colour)} ${typeof value === "number" ? shown(value) : plain(value)}`,
      ...Object.fromEntries(Object.entries({ x, y, text }).map(([name, column]) => [name, pick(value).map((place) => column[place])])),
      marker: { size: 9, color: COLOURS[kind % COLOURS.length], symbol: SYMBOLS[kind % SYMBOLS.length], line: ring } }))
    : [shadedTrace({ ...trace, x, y, text, name: plain(up) }, shade, colour, ring)];
  return {
    title: `${spaced(up)} against ${spaced(across)}, coloured by ${spaced(colour)}`, traces,
    file: () => [sweep.name, up, "by", across].map(slug).join("-"),
    table: () => sweepTable(sweep, [across, up, colour]),
    layout: { xaxis: sweepAxis(sweep, across), yaxis: sweepAxis(sweep, up), showlegend: Boolean(apart), margin: { b: apart ? 115 : 55 } },
    narrow: { margin: { b: apart ? 70 + 20 * values.length : 55 } },
  };
}

function shadedTrace(trace, shade, colour, line) {
  const log = decades(shade, 8), color = log ? shade.map((value) => (value === null ? null : Math.log10(value))) : shade;
  const ends = log ? distinct(color) : [], ticks = log ? [0, 0.5, 1].map((share) => ends[0] + share * (ends.at(-1) - ends[0])) : null;
  const colorbar = { title: { text: plain(colour), side: "right" }, thickness: 12, ...(log ? { tickvals: ticks, ticktext: ticks.map((value) => shown(10 ** value)) } : {}) };
  return { ...trace, marker: { size: 9, color, colorscale: evenScale(DARK.matches && !PRINT.matches ? ON_DARK : ON_LIGHT), showscale: true, line, colorbar } };
}

function showSweep(sweep) {
  const section = $(sweep.anchor), names = Object.keys(sweep.numbers);
  const [across, up, colour] = ["x", "y", "colour"].map((axis) => section.querySelector(`[data-axis=${axis}]`));
  for (const select of [across, up, colour]) for (const name of names) select.add(new Option(name, name));
  for (const select of [across, colour]) for (const name of sweep.settings) if (sweep.texts[name]) select.add(new Option(name, name));
  const measures = names.filter((name) => !sweep.settings.includes(name) && name !== "seed");
  // What people sweep for, against what was varied: numbers first; a seed is no setting.
  up.value = [...sweep.first, ...measures, ...names].find((name) => names.includes(name));
  across.value = [...sweep.settings.filter((name) => names.includes(name)), ...sweep.settings, ...measures.filter((name) => name !== up.value), ...names][0];
  colour.value = sweep.settings.find((name) => name !== across.value) || (names.includes("seed") ? "seed" : across.value);
  const panel = $(sweep.anchor + "-figure");
  const show = () => draw(panel, sweepSpec(sweep, across.value, up.value, colour.value));
  for (const select of [across, up, colour]) select.addEventListener("change", show);
  // Its colours are those of the paper.
  for (const paper of [DARK, PRINT]) paper.addEventListener("change", () => { if (SPECS.has(panel)) show(); });
  drawLater(panel, show);
}
