// Training to play: a slider over steps drives every panel of a player, and there may be several on a page.

const CLASS_NAMES = ["same word", "same topic", "different topic", "[MASK] column", "[MASK] row"];
const PLAYERS = {};
// What a player shows: everything of a run that is chosen; or a film of its first matrix that plays by itself; or its two
// stages, from where the first one ends.
const KINDS_OF_PLAYERS = {
  all: { choose: true, theory: true },
  film: { charts: [], theory: true, single: true, film: true },
  stages: { charts: ["growth", "progress", "attention"], single: true, stages: true },
};
// Milliseconds from frame to frame, and before a film that plays by itself begins again.
const TICK = 220, REST = 2500;

// The matrix that has these averages by class: what is shown of seeds without frames.
function fromClasses([word, same, other, column, row], size, boundaries) {
  const topic = Array.from({ length: size }, (_, token) => boundaries.filter((at) => token > at).length);
  return (i, j) => (i === 0 ? row : j === 0 ? column : i === j ? word : topic[i] === topic[j] ? same : other);
}

class Player {
  constructor(id, { kind, run }) {
    const spec = KINDS_OF_PLAYERS[kind];
    Object.assign(this, { id, spec, root: $(id), run: null, beside: null, seed: 0, layer: -1, place: 0, timer: null, alone: false, maps: [], charts: [] });
    this.ask = oncePerFrame((place) => this.moveTo(place));
    const select = (label, act) => {
      const input = make("select", { onchange: () => act(Number(input.value)) });
      return Object.assign(make("label", {}, `${label} `, input), { input });
    };
    const names = DATA.runs.map((run, place) => [place, run.title]);
    this.controls = {
      run: select("Run", (place) => this.show(place)),
      beside: select("Beside it", (place) => { this.beside = DATA.runs[place] || null; this.draw(); }),
      seed: select("Seed", (seed) => { this.seed = seed; this.draw(); }),
      layer: select("Layer", (layer) => { this.layer = layer; this.build(); }),
    };
    options(this.controls.run.input, names);
    options(this.controls.beside.input, [[-1, "nothing"], ...names]);
    for (const name of ["run", "beside"]) this.controls[name].hidden = !spec.choose || names.length < 2;
    this.log = make("input", { type: "checkbox", checked: true, onchange: () => this.draw() });
    this.playButton = make("button", { type: "button", "aria-pressed": "false", onclick: () => { this.alone = false; this.play(); } }, "Play");
    this.output = make("output");
    this.slider = make("input", { type: "range", min: 0, step: 1, "aria-label": "Step of training", oninput: () => { this.alone = false; this.ask(Number(this.slider.value)); } });
    this.described = make("p", { class: "hint" });
    this.grids = { maps: make("div", { class: "maps" }), charts: make("div", { class: "grid" }) };
    this.logLabel = make("label", {}, this.log, " logarithmic norms");
    this.root.append(make("div", { class: "controls" }, ...Object.values(this.controls), this.logLabel),
      make("div", { class: "controls bar" }, this.playButton, make("label", { class: "long" }, "Step ", this.output, this.slider)), this.described, this.grids.maps, this.grids.charts);
    this.show(run);
    if (spec.film && !matchMedia("(prefers-reduced-motion: reduce)").matches) this.playAlone();
  }

  // The steps that the slider goes through: those with matrices, or else all that were logged.
  get steps() { return numbers(shape(this.run.frameSteps)[0] ? this.run.frameSteps : this.run.charts[0].lines[0].steps); }
  get step() { return this.steps[this.place]; }
  get takeOff() { return this.run.takeOffs[this.seed] ?? null; }

  show(place) {
    if (this.timer !== null) this.play();
    const run = this.run = DATA.runs[place], layers = Math.max(0, ...run.matrices.concat(run.charts).map((each) => (each.layer ?? -1) + 1));
    Object.assign(this, { seed: 0, layer: -1, place: this.steps.length - 1 });
    if (this.spec.stages && this.takeOff !== null) this.place = nearest(this.steps, this.takeOff);
    this.controls.run.input.value = place;
    options(this.controls.seed.input, run.seeds.map((seed, each) => [each, String(seed) + (each === 0 || !run.matrices.length ? "" : " (averages)")]));
    options(this.controls.layer.input, [[-1, "all"], ...Array.from({ length: layers }, (_, each) => [each, each + 1])]);
    this.controls.seed.hidden = run.seeds.length < 2 || !this.spec.choose;
    this.controls.layer.hidden = layers < 2;
    this.slider.max = this.steps.length - 1;
    this.playButton.parentElement.hidden = this.steps.length < 2;
    this.described.replaceChildren(...math(run.described + (run.done < run.total ? `; not finished, at step ${whole(run.done)}` : "")));
    this.build();
  }

  here(each) { return this.layer < 0 || (each.layer ?? this.layer) === this.layer; }

  // A panel per matrix (three if there is a theory) and per chart.
  build() {
    for (const { panels } of this.maps) panels.forEach((panel) => panel.remove());
    for (const { panel } of this.charts) panel.remove();
    const { single, choose, charts, theory } = this.spec;
    const matrices = this.run.matrices.filter((each) => this.here(each)).slice(0, single ? 1 : undefined);
    this.maps = matrices.map((matrix) => {
      const kinds = matrix.theory && theory ? ["trained", "theory", "difference"] : ["trained"];
      const panels = kinds.map((kind) => new Panel(`${this.id}-${this.run.matrices.indexOf(matrix)}-${kind}`, "map"));
      return { matrix, kinds, panels, table: make("table", { class: "averages" }) };
    });
    this.grids.maps.replaceChildren(...this.maps.map(({ matrix, kinds, panels, table }) => {
      const label = `Averages of ${matrix.label}`, stops = diverging(theme());
      const below = make("div", { class: "below" }, scaleBar(stops, brief(-matrix.limit, 2), brief(matrix.limit, 2)), make("p", { class: "hint" }, ...math((theory ? matrix.what + " " : "") + "Rows i and columns j are tokens: 0 is [MASK], then come the words, topic by topic.")));
      return make("div", { class: kinds.length > 1 ? "with-theory" : "without-theory" }, make("div", { class: "grid" }, ...panels.map((panel) => panel.element)), below,
        ...(choose ? [make("div", { class: "sideways", tabindex: 0, role: "region", "aria-label": label }, table)] : []));
    }));
    this.charts = this.run.charts.filter((chart) => (!charts || charts.includes(chart.id)) && this.here(chart)).map((chart) => ({ chart, panel: new Panel(`${this.id}-${chart.id}`) }));
    this.grids.charts.replaceChildren(...this.charts.map(({ panel }) => panel.element));
    this.logLabel.hidden = !this.charts.some(({ chart }) => chart.log);
    this.draw();
  }

  // A file's name has the run, by the last parts of its path, and what is shown of it.
  file(...parts) {
    const folders = this.run.name.split(/[\\/]/).filter((part) => part && !/^(seed-\d+|\.+)$/.test(part));
    return [...folders.slice(-2), `seed-${this.run.seeds[this.seed]}`, ...parts].map(slug).join("-");
  }

  draw() {
    this.maps.forEach((each) => this.drawMaps(each));
    this.charts.forEach((each) => this.drawChart(each));
    this.sayStep();
  }

  sayStep() {
    const text = `${whole(this.step)} of ${whole(this.run.total)}`;
    this.output.textContent = text;
    this.slider.value = this.place;
    this.slider.setAttribute("aria-valuetext", `step ${text}`);
  }

  moveTo(place) {
    this.place = place;
    this.draw();
  }

  entries({ size, frames, classes, theory }) {
    const flat = (values) => (i, j) => values[i * size + j];
    const exact = frames && this.seed === 0;
    const trained = exact ? flat(numbers(frames, this.place)) : fromClasses(row(classes, this.seed, this.place), size, this.run.boundaries);
    const expected = theory ? flat(numbers(theory)) : null;
    return { exact, trained, theory: expected, difference: (i, j) => trained(i, j) - expected(i, j) };
  }

  drawMaps({ matrix, kinds, panels, table }) {
    const entries = this.entries(matrix), { size, label } = matrix, { boundaries } = this.run;
    kinds.forEach((kind, at) => {
      const entry = entries[kind], said = kind === "trained" && !entries.exact ? "Averages by class of entry: whole matrices are kept for one seed only." : "";
      panels[at].show({
        title: `${label}, ${kind === "difference" ? "trained − theory" : kind}`, said,
        draw: (canvas, colours) => drawMatrix(canvas, size, entry, matrix.limit, colours, boundaries),
        table: () => [["token i", "token j", "value"], ...Array.from({ length: size * size }, (_, place) => [Math.floor(place / size), place % size]).map(([i, j]) => [i, j, entry(i, j)])],
        file: () => this.file(label, kind, ...(kind === "theory" ? [] : [`step-${this.step}`])),
        seen: ({ place }, x, y) => { const [i, j] = place(x, y); panels[at].say(`token i = ${i}, token j = ${j}${i * j ? "" : " (0 is [MASK])"}: ${brief(entry(i, j), 4)}`); },
      });
    });
    const lines = [["average", ...CLASS_NAMES], ["trained", ...Array.from(row(matrix.classes, this.seed, this.place), (value) => brief(value))]];
    if (kinds.length > 1) lines.push(["theory", ...matrix.theoryClasses.map((value) => brief(value))]);
    table.replaceChildren(...lines.map((cells, at) => make("tr", {}, ...cells.map((text, column) => make(at && column ? "td" : "th", at && column ? {} : { scope: at ? "row" : "col" }, text)))));
  }

  // The chosen seed's lines, those of other seeds faint behind them, and that of the run beside it, dotted.
  curves(chart, run, seeds, style) {
    const own = run?.charts.find((each) => each.id === chart.id);
    return seeds.flatMap((seed) => (own?.lines || []).filter((each) => shape(each.values)[0] > seed).map((each) =>
      ({ ...each, name: `${each.name}, seed ${run.seeds[seed]}`, steps: numbers(each.steps), values: row(each.values, seed), ...style })));
  }

  drawChart({ chart, panel }) {
    const { run } = this, log = chart.log && this.log.checked, marks = [];
    if (chart.marks && this.takeOff !== null) marks.push({ step: this.takeOff, text: "stage 1 ends" });
    if (chart.marks && run.predicted) marks.push({ step: run.predicted, dash: [6, 4], colour: PALETTE.purple, text: "predicted" });
    const others = run.seeds.map((_, seed) => seed).filter((seed) => seed !== this.seed);
    const curves = [...this.curves(chart, run, others, { faint: true, thin: true }), ...this.curves(chart, this.beside, [0], { dash: [2, 3] }), ...this.curves(chart, run, [this.seed], {})];
    const levels = (chart.levels || []).map(({ label, value, dash }) => ({ at: value, dash, label }));
    const legend = [...chart.lines.map(({ name, colour, dash }) => key(colour, name, dash)), ...levels.map(({ label, at, dash }) => key("currentColor", `${label} ${brief(at, 4)}`, dash))];
    const shown = chart.lines.filter(({ thin, values }) => !thin && shape(values)[0] > this.seed).slice(0, 6);
    const values = shown.map(({ name, steps, values: reference }) => `${name} ${brief(row(reference, this.seed)[nearest(numbers(steps), this.step)])}`);
    panel.show({
      title: chart.title, legend, said: `Step ${whole(this.step)}: ${values.join(", ")}. ${chart.text || ""}`,
      draw: (canvas, colours) => drawCurves(canvas, { curves, references: levels, marks, now: this.step, log, label: chart.label, height: 300 }, colours),
      table: () => tableOf([...curves, ...levels.map(({ label, at }) => ({ name: label, steps: [run.done], values: [at] }))]),
      file: () => this.file(chart.title),
      seen: ({ x }, at, _, pressed) => { if (pressed) { this.alone = false; this.ask(nearest(this.steps, x.value(at))); } },
    });
  }

  play() {
    const going = this.timer !== null, last = this.steps.length - 1;
    clearInterval(this.timer);
    this.timer = null;
    if (!going) {
      if (this.place >= last) this.moveTo(0);
      this.timer = setInterval(() => {
        if (this.place < last) return this.moveTo(this.place + 1);
        this.play();
        if (this.alone) setTimeout(() => { if (this.alone && this.timer === null) this.playAlone(); }, REST);
      }, TICK);
    }
    this.playButton.textContent = going ? "Play" : "Pause";
    this.playButton.setAttribute("aria-pressed", String(!going));
  }

  // Again and again until the reader touches a control, and only where it is seen.
  playAlone() {
    this.alone = true;
    const box = this.root.getBoundingClientRect();
    if (document.hidden || box.bottom < 0 || box.top > innerHeight) setTimeout(() => { if (this.alone) this.playAlone(); }, REST);
    else if (this.timer === null && this.steps.length > 1) this.play();
  }
}
