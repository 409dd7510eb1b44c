// The loss over attention's weights at each T and τ that was computed.

// Theorem 3: the optimum's weighted average ((v − 1)α + β)/v is between two bounds, each a curve in (α, β).
function boundCurve(average, words, weights) {
  const first = weights[0], last = weights.at(-1), end = (words * average - first) / (words - 1), inside = (value) => value >= first && value <= last;
  // The curve falls steeply at its end, between two points of the grid.
  const alphas = [...weights, ...Array.from({ length: 40 }, (_, at) => end * (0.9 + at / 400)), end];
  return alphas.sort((a, b) => a - b).map((alpha) => [alpha, alpha === end ? first : words * average - (words - 1) * alpha]).filter(([alpha, beta]) => inside(alpha) && inside(beta));
}

function showLandscapes() {
  const root = $("landscape"), panel = new Panel("landscape-map"), values = [...new Set(DATA.landscapes.map((each) => each.value))].sort();
  const range = (name, max, act) => make("input", { type: "range", min: 0, max, step: 1, value: 0, "aria-label": name, oninput: oncePerFrame(act) });
  const value = make("select", { onchange: () => choose() }), said = make("p", { class: "said", "aria-live": "polite" });
  const sliders = { topics: range("T", 0, () => choose()), per_document: range("τ", 0, () => choose()), alpha: range("α", 0, () => show()), beta: range("β", 0, () => show()) };
  const outputs = Object.fromEntries(Object.keys(sliders).map((name) => [name, make("output")]));
  const control = (name, label) => make("label", { class: "long" }, `${label} = `, outputs[name], sliders[name]);
  let lists, now, weights, grid;
  options(value, values.map((each) => [each, each]));
  const valueLabel = make("label", { hidden: values.length < 2 }, ...math("W^V "), value);
  root.append(make("div", { class: "controls" }, valueLabel, control("topics", "Topics T"), control("per_document", "Topics per document τ")), said, panel.element,
    make("div", { class: "controls" }, control("alpha", "Your point: α"), control("beta", "β")));

  function choose() {
    const same = DATA.landscapes.filter((each) => each.value === value.value);
    lists = Object.fromEntries(["topics", "per_document"].map((name) => [name, [...new Set(same.map((each) => each[name]))].sort((a, b) => a - b)]));
    for (const [name, list] of Object.entries(lists)) Object.assign(sliders[name], { max: list.length - 1, hidden: list.length < 2 });
    const topics = lists.topics[sliders.topics.value], wanted = lists.per_document[sliders.per_document.value];
    // Not every τ goes with every T: the nearest that does.
    now = same.filter((each) => each.topics === topics).reduce((best, next) => (Math.abs(next.per_document - wanted) < Math.abs(best.per_document - wanted) ? next : best));
    weights = numbers(now.weights);
    grid = numbers(now.grid);
    outputs.topics.textContent = whole(now.topics);
    outputs.per_document.textContent = whole(now.per_document) + (now.per_document === wanted ? "" : ` (nearest to ${wanted})`);
    for (const name of ["alpha", "beta"]) {
      const before = sliders[name].max === "0" ? 1 : weights[sliders[name].value] || weights.at(-1);
      sliders[name].max = weights.length - 1;
      sliders[name].value = nearest(weights, before);
    }
    show();
  }

  function show() {
    const low = Math.log(weights[0]), high = Math.log(weights.at(-1)), least = Math.min(now.loss, ...grid), points = weights.length;
    const [alpha, beta] = ["alpha", "beta"].map((name) => Number(sliders[name].value)), loss = grid[alpha * points + beta];
    const names = { low: "Theorem 3's lower bound", high: "Theorem 3's upper bound", limit: "limit of the average" };
    const bounds = Object.keys(names).filter((name) => now[name] !== null && now[name] !== undefined).map((name) =>
      ({ name, curve: boundCurve(now[name], now.words, weights), outside: { low: "below", high: "above" }[name], dash: name === "limit" ? [6, 4] : [] })).filter(({ curve }) => curve.length > 1);
    const average = (a, b) => ((now.words - 1) * a + b) / now.words;
    for (const [name, at] of [["alpha", alpha], ["beta", beta]]) {
      outputs[name].textContent = brief(weights[at]);
      sliders[name].setAttribute("aria-valuetext", brief(weights[at]));
    }
    said.replaceChildren(...math(`Least loss ${now.loss.toPrecision(7)} at α = ${brief(now.alpha, 4)}, β = ${brief(now.beta, 4)}${now.attained ? "" : " (not attained)"}, where the weighted average is ${brief(average(now.alpha, now.beta), 4)}; uniform attention has ${now.uniform.toPrecision(7)}.`
      + (now.low === null || now.low === undefined ? "" : ` Theorem 3's interval of the average: (${brief(now.low)}, ${now.high ? brief(now.high) : "∞"}).`)));
    panel.show({
      title: `Loss over attention's weights: T = ${now.topics}, τ = ${now.per_document}, W^V ${now.value}`,
      said: `Your point: loss ${loss.toPrecision(7)}, ${brief(loss - least)} above the least; weighted average ${brief(average(weights[alpha], weights[beta]))}. Click or drag in the map, or use the sliders below it.`,
      legend: [key("currentColor", "optimum", [], "cross"), key("currentColor", "uniform attention", [], "square"), key(PALETTE.orange, "your point", [], "circle"),
        ...bounds.map(({ name, dash }) => key(PALETTE.classes["[MASK]"], `${names[name]}: ${brief(now[name], 4)}${name === "limit" ? "" : "; faded outside"}`, dash))],
      draw: (canvas, colours) => drawLandscape(canvas, { grid, points, low, high, least, optimum: [now.alpha, now.beta], bounds, point: [weights[alpha], weights[beta]], height: 520 }, colours),
      table: () => [["alpha", "beta", "loss"], ...Array.from(grid, (each, at) => [weights[Math.floor(at / points)], weights[at % points], each])],
      file: () => ["landscape", now.value, "T", now.topics, "tau", now.per_document].map(slug).join("-"),
      seen: (frame, x, y, pressed) => {
        if (!pressed) return;
        sliders.alpha.value = nearest(weights, frame.x.value(x));
        sliders.beta.value = nearest(weights, frame.y.value(y));
        show();
      },
    });
  }
  choose();
}
