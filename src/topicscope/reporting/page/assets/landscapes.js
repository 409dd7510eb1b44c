// The loss over attention's weights, at each T and τ that was computed.

const landscape = { topics: [], perDocument: [], now: null, settling: null };

function choices(name, value) {
  return [...new Set(DATA.landscapes.filter((each) => each.value === value).map((each) => each[name]))].sort((a, b) => a - b);
}

// Marks have a black edge with a white one around it: one of the two differs from any colour of the map.
const MARKS = { optimum: "#d55e00", uniform: "#ffffff", bound: "#cc79a7", limit: "#3a96cc", edge: "#000000", halo: "#ffffff" };

// A colour bar above a map, where there is no room beside it.
const ABOVE = (bar) => ({ ...bar, orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", title: { ...bar.title, side: "top" } });

const SMALL = { tickfont: { size: 10 }, title: { font: { size: 11 } } };
// Far enough for the names of all three axes to be inside the picture.
const camera = (distance) => ({ eye: { x: 1.45 * distance, y: -1.75 * distance, z: 1.4 * distance }, center: { x: 0, y: 0, z: -0.15 } });

function landscapeSpecs(each) {
  const weights = Array.from(numbers(each.weights)), size = weights.length, loss = numbers(each.grid);
  const least = Math.min(...loss, each.loss), most = Math.max(...loss);
  // Losses closer to the least than this share of the range look alike.
  const floor = 1e-4 * (most - least);
  const excess = rows(Float64Array.from(loss, (value) => Math.log10(Math.max(value - least, floor))), size);
  const ticks = Array.from({ length: 5 }, (_, place) => Math.log10(most - least) - place);
  const bar = { title: { text: "loss − least", side: "right" }, thickness: 12, tickvals: ticks, ticktext: ticks.map((value) => powers((10 ** value).toExponential(0))) };
  const map = { name: "log10 of the loss above its least", x: weights, y: weights, z: excess, colorscale: "Cividis", colorbar: bar, showlegend: false,
    hovertemplate: "α = %{x:.4g}<br>β = %{y:.4g}<br>log₁₀ excess %{z:.3f}<extra></extra>" };
  const inside = (value) => Math.min(Math.max(value, weights[0]), weights[size - 1]);
  const marks = [
    { name: `optimum${each.attained ? "" : " (not attained)"}`, at: [inside(each.alpha), inside(each.beta)], symbol: "circle", colour: MARKS.optimum },
    { name: "uniform attention", at: [1, 1], symbol: "square", colour: MARKS.uniform },
  ];
  const bounds = boundsOf(each, weights);
  const log = (text) => ({ type: "log", title: { text, standoff: 8 }, exponentformat: "power", dtick: 1, tickangle: 0 });
  const range = [Math.log10(weights[0]), Math.log10(weights[size - 1])];
  const axes = { xaxis: { ...log("α (other words of the topic)"), range }, yaxis: { ...log("β (the same word)"), range } };
  const height = (point) => excessAt(excess, weights, ...point);
  const setting = `T = ${each.topics}, τ = ${each.perDocument}, W^V ${each.value}`;
  const file = (kind) => () => ["landscape", kind, each.value, "T", each.topics, "tau", each.perDocument].map(slug).join("-");
  return [
    { title: `Loss above its minimum, over α and β: ${setting}`, file: file("map"), traces: [{ ...map, type: "contour", ncontours: 24, line: { width: 0.4 }, ...(narrow() ? { colorbar: ABOVE(bar) } : {}) }, ...flatTraces(bounds, marks, weights)],
      layout: { ...axes, showlegend: true, margin: { b: 130 } }, narrow: { xaxis: { dtick: 2 }, margin: { b: 200, t: 70 } } },
    { title: `Loss above its minimum, as a surface: ${setting}`, file: file("surface"), traces: [{ ...map, type: "surface", showscale: false }, ...raisedTraces(bounds, marks, height)],
      layout: { margin: { l: 0, r: 0, b: 60 }, showlegend: true,
        scene: { xaxis: { ...log("α"), dtick: 2 }, yaxis: { ...log("β"), dtick: 2 }, zaxis: { title: { text: "log₁₀ excess loss" } }, camera: camera(1) } },
      narrow: { margin: { b: 130 }, scene: { xaxis: { dtick: 4, ...SMALL }, yaxis: { dtick: 4, ...SMALL }, zaxis: { dtick: 1, ...SMALL }, camera: camera(1.5) } } },
  ];
}

// Theorem 3: the optimum's weighted average ((v − 1)α + β)/v is between two bounds, each a curve in (α, β).
function boundsOf(each, weights) {
  const names = { low: "Theorem 3's lower bound", high: "Theorem 3's upper bound", limit: "limit of the average" };
  const known = Object.keys(names).filter((name) => each[name] !== null && each[name] !== undefined);
  return known.map((name) => ({ name, label: `${names[name]}: ${shown(each[name])}`, points: curveOf(each[name], each.words, weights) }))
    .filter((bound) => bound.points.length > 1);
}

function curveOf(average, words, weights) {
  const first = weights[0], last = weights[weights.length - 1];
  const beta = (alpha) => words * average - (words - 1) * alpha;
  const end = (words * average - first) / (words - 1);
  const alphas = [...weights];
  // The curve falls steeply at its end, between two points of the grid.
  for (let share = 0.9; share < 1; share += 0.005) alphas.push(end * share);
  const points = alphas.filter((alpha) => alpha >= first && alpha <= last && beta(alpha) >= first && beta(alpha) <= last).map((alpha) => [alpha, beta(alpha)]);
  if (end >= first && end <= last) points.push([end, first]);
  return points.sort((a, b) => a[0] - b[0]);
}

const across = (points) => ({ x: points.map((point) => point[0]), y: points.map((point) => point[1]) });

function flatTraces(bounds, marks, weights) {
  const fades = bounds.filter((bound) => bound.name !== "limit").map((bound) => faded(bound, weights));
  const lines = bounds.flatMap(({ name, label, points }) => {
    const line = { type: "scatter", mode: "lines", name: label, legendgroup: name, ...across(points) };
    const behind = (color, width) => ({ ...line, line: { color, width }, showlegend: false, hoverinfo: "skip" });
    return [
      behind(MARKS.halo, 7), behind(MARKS.edge, 5),
      { ...line, line: name === "limit" ? { color: MARKS.limit, width: 3, dash: "dash" } : { color: MARKS.bound, width: 3 } },
    ];
  });
  const points = marks.flatMap((mark) => {
    const point = { type: "scatter", mode: "markers", name: mark.name, ...across([mark.at]), cliponaxis: false };
    return [
      { ...point, marker: { size: 20, symbol: mark.symbol, color: MARKS.halo }, showlegend: false, hoverinfo: "skip" },
      { ...point, marker: { size: 13, symbol: mark.symbol, color: mark.colour, line: { width: 2, color: MARKS.edge } } },
    ];
  });
  return [...fades, ...lines, ...points];
}

// The same on the surface, a little above it.
function raisedTraces(bounds, marks, height) {
  const raised = (points) => ({ ...across(points), z: points.map((point) => height(point) + 0.1) });
  return [
    ...bounds.map(({ name, label, points }) => ({ type: "scatter3d", mode: "lines", name: label, ...raised(points),
      line: { color: name === "limit" ? MARKS.limit : MARKS.bound, width: 6, dash: name === "limit" ? "dash" : "solid" } })),
    ...marks.map((mark) => ({ type: "scatter3d", mode: "markers", name: mark.name, ...raised([mark.at]),
      marker: { size: 7, symbol: mark.symbol, color: mark.colour, line: { width: 2, color: MARKS.edge } } })),
  ];
}

// The map between its points, straight in the logarithms of both weights.
function excessAt(excess, weights, alpha, beta) {
  const place = (value) => {
    const share = Math.log(value / weights[0]) / Math.log(weights[weights.length - 1] / weights[0]) * (weights.length - 1);
    const below = Math.min(Math.max(Math.floor(share), 0), weights.length - 2);
    return [below, share - below];
  };
  const [column, right] = place(alpha), [line, up] = place(beta);
  const between = (low, high, share) => low + (high - low) * share;
  return between(between(excess[line][column], excess[line][column + 1], right), between(excess[line + 1][column], excess[line + 1][column + 1], right), up);
}

// What is outside a bound: between its curve and the corner of the map.
function faded({ name, points }, weights) {
  const first = weights[0], last = weights[weights.length - 1];
  const corners = name === "low" ? [[first, first]] : [[last, first], [last, last], [first, last]];
  return { type: "scatter", mode: "lines", name: "outside Theorem 3's interval", ...across([...points, ...corners, points[0]]),
    fill: "toself", fillcolor: "rgba(255,255,255,0.5)", line: { width: 0 }, hoverinfo: "skip", showlegend: false };
}

function chooseLandscape() {
  const value = $("landscape-value").value, topics = landscape.topics[Number($("topics").value)];
  const wanted = landscape.perDocument[Number($("per-document").value)];
  const same = DATA.landscapes.filter((each) => each.value === value && each.topics === topics);
  // Not every τ goes with every T: the nearest that does.
  const each = same.reduce((best, next) => (Math.abs(next.perDocument - wanted) < Math.abs(best.perDocument - wanted) ? next : best));
  landscape.now = each;
  $("topics-shown").textContent = each.topics.toLocaleString("en");
  $("per-document-shown").textContent = each.perDocument.toLocaleString("en") + (each.perDocument === wanted ? "" : ` (nearest to ${wanted})`);
  const bound = each.high === null || each.high === undefined ? "∞" : shown(each.high);
  const weights = numbers(each.weights), far = each.high > weights[weights.length - 1];
  const average = ((each.words - 1) * each.alpha + each.beta) / each.words;
  typeset($("landscape-said"), `Least loss ${each.loss.toPrecision(7)} at α = ${shown(each.alpha)}, β = ${shown(each.beta)} (weighted average ${shown(average)}); uniform attention ${each.uniform.toPrecision(7)}.`
    + (each.low === null || each.low === undefined ? "" : ` Theorem 3's interval: (${shown(each.low)}, ${bound}); faded outside${far ? ", its upper end beyond the map" : ""}.`));
  const [contour, surface] = landscapeSpecs(each);
  draw($("contour"), contour);
  // A surface takes longer: while a slider moves it waits until that rests.
  clearTimeout(landscape.settling);
  if (SPECS.has($("surface"))) landscape.settling = setTimeout(() => draw($("surface"), surface), 200);
  else draw($("surface"), surface);
}

function showLandscapes() {
  if (!DATA.landscapes.length) return;
  const values = [...new Set(DATA.landscapes.map((each) => each.value))];
  for (const value of values) $("landscape-value").add(new Option(value, value));
  const fill = () => {
    const value = $("landscape-value").value;
    landscape.topics = choices("topics", value);
    landscape.perDocument = choices("perDocument", value);
    $("topics").max = landscape.topics.length - 1;
    $("per-document").max = landscape.perDocument.length - 1;
    // With one value there is nothing to slide: its text says it.
    $("topics").hidden = landscape.topics.length < 2;
    $("per-document").hidden = landscape.perDocument.length < 2;
    $("landscape-value").parentElement.hidden = values.length < 2;
    chooseLandscape();
  };
  $("topics").value = $("per-document").value = 0;
  $("landscape-value").addEventListener("change", fill);
  for (const id of ["topics", "per-document"]) $(id).addEventListener("input", oncePerFrame(chooseLandscape));
  drawLater($("landscape"), fill);
}
