// The loss over attention's weights at each T and τ that was computed, and a sweep's runs by any two of their numbers.

const distinct = (values) => [...new Set(values.filter((value) => value !== null && value !== undefined && value !== ""))].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));

// ---- landscapes

// Theorem 3: the optimum's weighted average ((v − 1)α + β)/v is between two bounds, each a curve in (α, β).
function boundCurve(average, words, weights) {
  const first = weights[0], last = weights.at(-1), end = (words * average - first) / (words - 1), inside = (value) => value >= first && value <= last;
  // The curve falls steeply at its end, between two points of the grid.
  const alphas = [...weights, ...Array.from({ length: 40 }, (_, at) => end * (0.9 + at / 400)), end];
  return alphas.sort((a, b) => a - b).map((alpha) => [alpha, alpha === end ? first : words * average - (words - 1) * alpha]).filter(([alpha, beta]) => inside(alpha) && inside(beta));
}

function showLandscapes() {
  const root = $("landscape"), panel = new Panel("landscape-map"), values = distinct(DATA.landscapes.map((each) => each.value));
  const range = (name, max, act) => make("input", { type: "range", min: 0, max, step: 1, value: 0, "aria-label": name, oninput: oncePerFrame(act) });
  const value = make("select", { onchange: () => choose() }), said = make("p", { class: "said", "aria-live": "polite" });
  const sliders = { topics: range("T", 0, () => choose()), perDocument: range("τ", 0, () => choose()), alpha: range("α", 0, () => show()), beta: range("β", 0, () => show()) };
  const outputs = Object.fromEntries(Object.keys(sliders).map((name) => [name, make("output")]));
  const control = (name, label) => make("label", { class: "long" }, `${label} = `, outputs[name], sliders[name]);
  let lists, now, weights, grid;
  options(value, values.map((each) => [each, each]));
  const valueLabel = make("label", { hidden: values.length < 2 }, ...math("W^V "), value);
  root.append(make("div", { class: "controls" }, valueLabel, control("topics", "Topics T"), control("perDocument", "Topics per document τ")), said, panel.element,
    make("div", { class: "controls" }, control("alpha", "Your point: α"), control("beta", "β")));

  function choose() {
    const same = DATA.landscapes.filter((each) => each.value === value.value);
    lists = { topics: distinct(same.map((each) => each.topics)), perDocument: distinct(same.map((each) => each.perDocument)) };
    for (const [name, list] of Object.entries(lists)) Object.assign(sliders[name], { max: list.length - 1, hidden: list.length < 2 });
    const topics = lists.topics[sliders.topics.value], wanted = lists.perDocument[sliders.perDocument.value];
    // Not every τ goes with every T: the nearest that does.
    now = same.filter((each) => each.topics === topics).reduce((best, next) => (Math.abs(next.perDocument - wanted) < Math.abs(best.perDocument - wanted) ? next : best));
    weights = numbers(now.weights);
    grid = numbers(now.grid);
    outputs.topics.textContent = whole(now.topics);
    outputs.perDocument.textContent = whole(now.perDocument) + (now.perDocument === wanted ? "" : ` (nearest to ${wanted})`);
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
      title: `Loss over attention's weights: T = ${now.topics}, τ = ${now.perDocument}, W^V ${now.value}`,
      said: `Your point: loss ${loss.toPrecision(7)}, ${brief(loss - least)} above the least; weighted average ${brief(average(weights[alpha], weights[beta]))}. Click or drag in the map, or use the sliders below it.`,
      legend: [key("currentColor", "optimum", [], "cross"), key("currentColor", "uniform attention", [], "square"), key(PALETTE.orange, "your point", [], "circle"),
        ...bounds.map(({ name, dash }) => key(PALETTE.classes["[MASK]"], `${names[name]}: ${brief(now[name], 4)}${name === "limit" ? "" : "; faded outside"}`, dash))],
      draw: (canvas, colours) => drawLandscape(canvas, { grid, points, low, high, least, optimum: [now.alpha, now.beta], bounds, point: [weights[alpha], weights[beta]], height: 520 }, colours),
      table: () => [["alpha", "beta", "loss"], ...Array.from(grid, (each, at) => [weights[Math.floor(at / points)], weights[at % points], each])],
      file: () => ["landscape", now.value, "T", now.topics, "tau", now.perDocument].map(slug).join("-"),
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

// ---- sweeps

const SHAPE_NAMES = ["circle", "square", "diamond", "triangle", "plus"];
// A measure's name, to be read; a setting keeps the name that it is given by.
const spaced = (name) => (name.includes(".") ? name : name.replace(/_/g, " "));

function showSweep(sweep) {
  const section = $(sweep.anchor), numeric = Object.keys(sweep.numbers), panel = new Panel(`${sweep.anchor}-figure`);
  const column = (name) => sweep.numbers[name] || sweep.texts[name], isSetting = (name) => sweep.settings.includes(name);
  const words = sweep.settings.filter((name) => sweep.texts[name]);
  const [across, up, colour] = ["Across", "Up", "Colour"].map((label) => make("select", { "aria-label": label, onchange: () => show() }));
  for (const [select, names] of [[across, [...numeric, ...words]], [up, numeric], [colour, [...numeric, ...words]]]) options(select, names.map((name) => [name, name]));
  const measures = numeric.filter((name) => !isSetting(name) && name !== "seed");
  // What people sweep for, against what was varied: numbers first; a seed is no setting.
  up.value = [...sweep.first, ...measures, ...numeric].find((name) => numeric.includes(name));
  across.value = [...sweep.settings.filter((name) => numeric.includes(name)), ...sweep.settings, ...measures.filter((name) => name !== up.value), ...numeric][0];
  colour.value = sweep.settings.find((name) => name !== across.value) || (numeric.includes("seed") ? "seed" : across.value);
  section.querySelector(".chart").append(make("div", { class: "controls" }, make("label", {}, "Across ", across), make("label", {}, "Up ", up), make("label", {}, "Colour ", colour)), panel.element);

  function axisOf(name) {
    const values = column(name), label = spaced(name), known = distinct(values);
    if (sweep.texts[name]) return { names: known, low: -0.5, high: known.length - 0.5, label, place: (value) => known.indexOf(value) };
    // Settings by factors from a factor of 8 on, as in the drawings, measures from one of 100.
    const log = known[0] > 0 && known.at(-1) >= (isSetting(name) ? 8 : 100) * known[0];
    return { ...ends(known, { log }), marks: isSetting(name) && known.length <= 5 ? known : null, label, place: (value) => value };
  }

  function show() {
    const axes = { across: axisOf(across.value), up: axisOf(up.value) }, shade = column(colour.value), kinds = distinct(shade);
    const apart = sweep.texts[colour.value] || kinds.length <= PALETTE.colours.length, scale = shades([PALETTE.blue, PALETTE.orange]);
    const shadeAxis = apart ? null : axis(axisOf(colour.value), 0, 255, 2);
    const colourOf = (value) => (apart ? PALETTE.colours[kinds.indexOf(value) % PALETTE.colours.length] : value === null ? "#808080" : `rgb(${scale[Math.round(Math.min(Math.max(shadeAxis.at(value), 0), 255))].map(Math.round)})`);
    const shapeOf = (value) => (apart ? SHAPE_NAMES[kinds.indexOf(value) % SHAPE_NAMES.length] : "circle"), text = (value) => (typeof value === "number" ? brief(value, 4) : value);
    const points = shade.flatMap((value, run) => {
      const [x, y] = [axes.across.place(column(across.value)[run]), axes.up.place(column(up.value)[run])];
      return x === null || y === null ? [] : [{ x, y, run, colour: colourOf(value), shape: shapeOf(value) }];
    });
    const named = [...new Set([...sweep.settings, "seed", across.value, up.value, colour.value, "run"])].filter(column);
    panel.show({
      title: `${spaced(up.value)} against ${spaced(across.value)}, coloured by ${spaced(colour.value)}`, said: "Every dot is a run; point at one to see its settings.",
      legend: apart ? kinds.map((value) => key(colourOf(value), `${colour.value} ${text(value)}`, [], shapeOf(value))) : [scaleBar([PALETTE.blue, PALETTE.orange], text(kinds[0]), text(kinds.at(-1)))],
      draw: (canvas, colours) => drawPoints(canvas, { points, ...axes }, colours),
      table: () => [named, ...shade.map((_, run) => named.map((name) => column(name)[run]))],
      file: () => [sweep.name, up.value, "by", across.value].map(slug).join("-"),
      seen: (frame, x, y) => {
        const far = (point) => Math.hypot(frame.x.at(point.x) - x, frame.y.at(point.y) - y), best = points.reduce((a, b) => (far(b) < far(a) ? b : a), points[0]);
        if (best && far(best) < 20) panel.say(named.map((name) => `${name} = ${text(column(name)[best.run])}`).join(", "));
      },
    });
  }
  show();
}
