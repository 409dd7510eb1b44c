// The loss over attention's weights, at each T and τ that was computed.

const landscape = { topics: [], perDocument: [], now: null };

function choices(name, value) {
  return [...new Set(DATA.landscapes.filter((each) => each.value === value).map((each) => each[name]))].sort((a, b) => a - b);
}

function landscapeSpecs(each) {
  const weights = Array.from(numbers(each.weights)), size = weights.length, loss = numbers(each.grid);
  const least = Math.min(...loss, each.loss), most = Math.max(...loss);
  // Losses closer to the least than this share of the range look alike.
  const floor = 1e-4 * (most - least);
  const excess = rows(Float64Array.from(loss, (value) => Math.log10(Math.max(value - least, floor))), size);
  const inside = (value) => Math.min(Math.max(value, weights[0]), weights[size - 1]);
  const ticks = Array.from({ length: 5 }, (_, place) => Math.log10(most - least) - place);
  const bar = { title: { text: "loss − least", side: "right" }, thickness: 12, tickvals: ticks, ticktext: ticks.map((value) => (10 ** value).toExponential(0)) };
  const map = { type: "contour", name: "log10 of the loss above its least", x: weights, y: weights, z: excess, colorscale: "Cividis", ncontours: 24, line: { width: 0.4 }, colorbar: bar,
    hovertemplate: "α = %{x:.4g}<br>β = %{y:.4g}<br>log₁₀ excess %{z:.3f}<extra></extra>" };
  const traces = [map, ...bandTraces(each, weights),
    { type: "scatter", mode: "markers", name: `optimum${each.attained ? "" : " (not attained)"}`, x: [inside(each.alpha)], y: [inside(each.beta)], marker: { size: 13, color: "#d55e00", line: { width: 2, color: "#ffffff" } } },
    { type: "scatter", mode: "markers", name: "uniform attention", x: [1], y: [1], marker: { size: 12, symbol: "square", color: "#ffffff", line: { width: 2, color: "#000000" } } }];
  const log = (text) => ({ type: "log", title: { text }, exponentformat: "power", dtick: 1 });
  const range = [Math.log10(weights[0]), Math.log10(weights[size - 1])];
  const axes = { xaxis: { ...log("α (other words of the topic)"), range }, yaxis: { ...log("β (the same word)"), range } };
  const surface = { ...map, type: "surface", contours: undefined, line: undefined, ncontours: undefined };
  return [
    { traces, layout: { ...axes, height: 480, showlegend: true, legend: { orientation: "h", y: -0.18 } } },
    { traces: [surface], layout: { height: 480, margin: { l: 0, r: 0, b: 0 }, scene: { xaxis: log("α"), yaxis: log("β"), zaxis: { title: { text: "log₁₀ excess loss" } }, camera: { eye: { x: 1.5, y: -1.5, z: 0.9 } } } } },
  ];
}

// Theorem 3: the optimum's weighted average is between two bounds, each a curve in (α, β).
function bandTraces(each, weights) {
  const fades = [];
  const bounds = [["low", "solid"], ["high", "solid"], ["limit", "dash"]].filter(([name]) => each[name] !== null && each[name] !== undefined);
  const lines = bounds.map(([name, dash]) => {
    const points = weights.flatMap((alpha) => {
      const beta = each.words * each[name] - (each.words - 1) * alpha;
      return beta >= weights[0] && beta <= weights[weights.length - 1] ? [[alpha, beta]] : [];
    });
    // The curve falls steeply at its end, between two points of the grid.
    const end = (each.words * each[name] - weights[0]) / (each.words - 1);
    if (end >= weights[0] && end <= weights[weights.length - 1]) {
      for (let share = 0.9; share < 1; share += 0.005) {
        const alpha = end * share, beta = each.words * each[name] - (each.words - 1) * alpha;
        if (beta <= weights[weights.length - 1]) points.push([alpha, beta]);
      }
      points.push([end, weights[0]]);
    }
    points.sort((a, b) => a[0] - b[0]);
    if (points.length > 1 && name !== "limit") fades.push(faded(name, points, weights));
    const label = name === "limit" ? `limit ${shown(each.limit)}` : `Theorem 3's ${name === "low" ? "lower" : "upper"} bound ${shown(each[name])}`;
    return { type: "scatter", mode: "lines", name: label, x: points.map((point) => point[0]), y: points.map((point) => point[1]), line: { color: name === "limit" ? "#56b4e9" : "#cc79a7", width: 3, dash } };
  });
  return [...fades, ...lines];
}

// What is outside a bound: between its curve and the corner of the map.
function faded(name, points, weights) {
  const first = weights[0], last = weights[weights.length - 1];
  const corners = name === "low" ? [[first, first]] : [[last, first], [last, last], [first, last]];
  const outline = [...points, ...corners, points[0]];
  return { type: "scatter", mode: "lines", name: "outside Theorem 3's interval", x: outline.map((point) => point[0]), y: outline.map((point) => point[1]),
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
  const average = ((each.words - 1) * each.alpha + each.beta) / each.words;
  $("landscape-said").textContent = `Least loss ${each.loss.toPrecision(7)} at α = ${shown(each.alpha)}, β = ${shown(each.beta)} (weighted average ${shown(average)}); uniform attention ${each.uniform.toPrecision(7)}.`
    + (each.low === null || each.low === undefined ? "" : ` Theorem 3's interval: (${shown(each.low)}, ${bound}); faded outside.`);
  const [contour, surface] = landscapeSpecs(each);
  draw($("contour"), contour);
  draw($("surface"), surface);
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
    $("topics").disabled = landscape.topics.length < 2;
    $("per-document").disabled = landscape.perDocument.length < 2;
    chooseLandscape();
  };
  $("topics").value = $("per-document").value = 0;
  $("landscape-value").addEventListener("change", fill);
  for (const id of ["topics", "per-document"]) $(id).addEventListener("input", chooseLandscape);
  drawLater($("landscape"), fill);
}
