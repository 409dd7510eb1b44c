// Matrices over tokens as maps: trained, theory, and their difference, at the step that is shown.

// Blue to red, symmetric around zero, which has the colour of the paper: white, or nearly black in the dark.
const ON_WHITE = [[0, "#053061"], [0.25, "#4393c3"], [0.5, "#f7f7f7"], [0.75, "#d6604d"], [1, "#67001f"]];
const ON_BLACK = [[0, "#b9e3ff"], [0.25, "#3787c0"], [0.5, "#161b22"], [0.75, "#d6604d"], [1, "#ffd9c4"]];
const diverging = (light) => (light || !DARK.matches ? ON_WHITE : ON_BLACK);
// The matrix that has these averages by class: what is shown of seeds without frames.
function fromClasses(averages, size, boundaries) {
  const topic = [];
  for (let token = 0, now = 0; token < size; token++) {
    while (now < boundaries.length && token > boundaries[now]) now++;
    topic.push(now);
  }
  const [word, same, other, column, line] = averages;
  return topic.map((ours, i) => Float32Array.from(topic, (theirs, j) => {
    if (i === 0) return line;
    if (j === 0) return column;
    return i === j ? word : ours === theirs ? same : other;
  }));
}

// `bare`: three side by side at the head of the page, which need neither names of axes nor, but for one, a scale.
function heatSpec(z, limit, title, text, boundaries, bare, scale = true) {
  const size = z.length, line = (at) => [
    { type: "line", x0: at, x1: at, y0: -0.5, y1: size - 0.5, line: { color: "#808080", width: 0.6 } },
    { type: "line", y0: at, y1: at, x0: -0.5, x1: size - 0.5, line: { color: "#808080", width: 0.6 } },
  ];
  const below = { orientation: "h", thickness: 10, len: 0.8, y: 0, yref: "container", yanchor: "bottom" };
  return {
    title, text,
    traces: [{ type: "heatmap", name: title, showscale: scale && !narrow(), z, zmin: -limit, zmax: limit, colorscale: diverging(PRINT.matches), colorbar: bare ? below : { thickness: 12, len: 0.9 },
      hovertemplate: "token i = %{y}<br>token j = %{x}<br>%{z:.4g}<extra></extra>" }],
    layout: {
      shapes: boundaries.flatMap(line),
      xaxis: { title: { text: bare ? "" : "token j (0 is [MASK])" }, constrain: "domain", showgrid: false, zeroline: false },
      yaxis: { title: { text: bare ? "" : "token i" }, autorange: "reversed", scaleanchor: "x", constrain: "domain", showgrid: false, zeroline: false },
      margin: { l: 50, r: 5, t: 10, b: 45 },
      ...(bare ? { margin: { l: 35, r: 16, t: 8, b: 65 } } : {}),
    },
    narrow: { xaxis: { visible: false }, yaxis: { visible: false }, margin: { l: 0, r: 0, t: 0, b: 0 } },
  };
}

function subtract(left, right) {
  return left.map((line, i) => line.map((value, j) => value - right[i][j]));
}

function theoryOf(matrix) {
  matrix.unpacked ??= matrix.theory && rows(Float32Array.from(numbers(matrix.theory)), matrix.size);
  return matrix.unpacked;
}

// Paint the map's own picture at once; the library, which takes longer, follows when the slider rests.
function replaceMatrix(panel, z) {
  const trace = SPECS.get(panel).traces[0], image = panel.querySelector(".heatmaplayer image");
  trace.z = z;
  if (image) image.setAttribute("href", painted(z, trace.zmax));
  clearTimeout(panel.settling);
  panel.settling = setTimeout(() => { if (panel.isConnected) Plotly.restyle(panel.querySelector(".plot"), { z: [z] }, [0]); }, 400);
}

const CANVAS = document.createElement("canvas");
const shades = (scale) => Uint8Array.from({ length: 4 * 256 }, (_, at) => {
  const share = (at >> 2) / 255, upper = Math.max(1, scale.findIndex(([stop]) => stop >= share));
  const [[low, first], [high, second]] = [scale[upper - 1], scale[upper]];
  const channel = (colour) => parseInt(colour.slice(1 + 2 * (at & 3), 3 + 2 * (at & 3)), 16);
  return (at & 3) === 3 ? 255 : Math.round(channel(first) + ((channel(second) - channel(first)) * (share - low)) / (high - low));
});
const SHADES = new Map([ON_WHITE, ON_BLACK].map((scale) => [scale, shades(scale)]));

function painted(z, limit) {
  CANVAS.width = z[0].length;
  CANVAS.height = z.length;
  const context = CANVAS.getContext("2d"), picture = context.createImageData(CANVAS.width, CANVAS.height);
  const colours = SHADES.get(diverging(PRINT.matches));
  let at = 0;
  for (const line of z) for (const value of line) {
    const shade = 4 * Math.round(255 * Math.min(Math.max((value + limit) / (2 * limit), 0), 1));
    for (let channel = 0; channel < 4; channel++) picture.data[at++] = colours[shade + channel];
  }
  context.putImageData(picture, 0, 0);
  return CANVAS.toDataURL();
}

function classAverages(matrix, boundaries) {
  const topic = matrix.map((_, token) => boundaries.filter((at) => token > at).length);
  const sum = [0, 0, 0, 0, 0], count = [0, 0, 0, 0, 0];
  matrix.forEach((line, i) => line.forEach((value, j) => {
    const kind = i === 0 ? 4 : j === 0 ? 3 : i === j ? 0 : topic[i] === topic[j] ? 1 : 2;
    sum[kind] += value;
    count[kind]++;
  }));
  return sum.map((value, kind) => (count[kind] ? value / count[kind] : NaN));
}

// Training to play: a slider over steps drives every panel of a player, and there may be several on a page.

const CLASS_NAMES = ["same word", "same topic", "different topic", "[MASK] column", "[MASK] row"];
const PART_NAMES = { embedding: "W^E", value: "W^V", key: "W^K", query: "W^Q", key_bias: "b^K", query_bias: "b^Q", value_bias: "b^V", prediction_bias: "b^pred" };
// A part's bias, and what grows in it, have its colour and another dash.
const PART_COLOURS = { embedding: 0, value: 1, key: 2, query: 3, prediction: 4, position: 5 };
// Names of matrices where nothing can be typeset.
const inWords = (text) => text.replace(/W\^([EVKQ])/g, (_, part) => ({ E: "embeddings", V: "values", K: "keys", Q: "queries" })[part]);
const PLAYERS = {};
// Milliseconds from frame to frame, and before a film that plays by itself begins again.
const TICK = 220, REST = 2500;

function row(reference, place) {
  const width = shape(reference).at(-1);
  return numbers(reference).subarray(place * width, (place + 1) * width);
}

// [seed, frame, class] → numbers of the classes.
function entry(reference, seed, place) {
  const [, frames, width] = shape(reference);
  const at = (seed * frames + place) * width;
  return numbers(reference).subarray(at, at + width);
}

function nearest(values, wanted) {
  let best = 0;
  values.forEach((value, place) => { if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = place; });
  return best;
}

class Player {
  constructor(spec) {
    Object.assign(this, { spec, root: $(spec.id), run: null, beside: null, seed: 0, layer: -1, frame: 0, timer: null, alone: false });
    this.ask = oncePerFrame((place) => this.moveTo(place));
    PLAYERS[spec.id] = this;
    const choose = (name, act) => this.part(name).addEventListener("change", () => act(Number(this.part(name).value)));
    if (spec.choose) {
      DATA.runs.forEach((run, place) => {
        for (const name of ["run", "beside"]) this.part(name).add(new Option(inWords(run.title), place));
      });
      this.part("beside").add(new Option("nothing", -1), 0);
      this.part("beside").value = -1;
      for (const name of ["run", "beside"]) this.part(name).parentElement.hidden = DATA.runs.length < 2;
      choose("run", (place) => this.show(place));
      choose("beside", (place) => { this.beside = DATA.runs[place] || null; this.draw(); });
    }
    for (const name of ["seed", "layer"]) choose(name, (value) => { this[name] = value; this.draw(); });
    this.part("frame").addEventListener("input", () => { this.alone = false; this.ask(this.frameAt(Number(this.part("frame").value))); });
    this.part("even").addEventListener("change", () => this.layOutSlider());
    this.part("log")?.addEventListener("change", () => this.drawCurves());
    this.part("play").addEventListener("click", () => { this.alone = false; this.play(); });
    if (this.part("log")) this.part("log").checked = Boolean(spec.log);
    drawLater(this.root, () => {
      this.show(spec.run);
      if (spec.play && !matchMedia("(prefers-reduced-motion: reduce)").matches) this.playAlone();
    });
  }

  part(name) { return this.root.querySelector(`[data-part=${name}]`); }
  panel(name) { return $(`${this.spec.id}-${name}`); }
  has(name) { return this.spec.panels.includes(name); }
  get frames() { return shape(this.run.frameSteps)[0]; }
  // Without snapshots, the last step that was logged.
  get step() { return this.frames ? numbers(this.run.frameSteps)[this.frame] : this.run.done; }
  get takeOff() { return this.run.takeOffs[this.seed]?.step ?? null; }

  show(place) {
    if (this.timer !== null) this.play();
    const run = this.run = DATA.runs[place], averages = run.matrices.some((matrix) => matrix.frames);
    if (this.spec.choose) this.part("run").value = place;
    Object.assign(this, { seed: 0, layer: -1 });
    this.frame = Math.max(this.frames - 1, 0);
    if (this.spec.at === "take-off" && this.takeOff !== null && this.frames) this.frame = nearest(numbers(run.frameSteps), this.takeOff);
    this.part("play").hidden = this.part("frame").hidden = this.frames < 2;
    this.part("even").parentElement.hidden = this.frames < 2 || Boolean(this.spec.play);
    const layers = shape(run.attention)[2];
    this.part("seed").replaceChildren(...run.seeds.map((seed, each) => new Option(String(seed) + (each === 0 || !averages ? "" : " (averages)"), each)));
    this.part("seed").parentElement.hidden = run.seeds.length < 2 || !this.spec.choose;
    this.part("layer").replaceChildren(new Option("all", -1), ...Array.from({ length: layers }, (_, each) => new Option(String(each + 1), each)));
    this.part("layer").parentElement.hidden = layers < 2;
    typeset(this.part("described"), run.described + (run.done < run.total ? `; not finished, at step ${run.done.toLocaleString("en")}` : "")
      + (this.frames ? `; ${this.frames} snapshots` : "; no snapshots, so no matrices and no attention to show"));
    for (const [name, there] of [["attention", this.frames > 0 && this.attends], ["gain", Object.keys(run.stages).length > 0]])
      if (this.has(name)) this.panel(name).hidden = !there;
    this.layOutSlider();
    this.draw();
  }

  // Attention that is frozen says nothing.
  get attends() {
    const values = numbers(this.run.attention), [, snapshots, layers, width] = shape(this.run.attention);
    const first = layers * width, seed = snapshots * first;
    return values.some((value, at) => Math.abs(value - values[at - (at % seed) + (at % first)]) > 1e-6);
  }

  // The slider goes from snapshot to snapshot, or evenly through the steps to the snapshot next to each.
  layOutSlider() {
    const even = this.part("even").checked;
    this.part("frame").max = even ? this.run.done : Math.max(this.frames - 1, 0);
    this.sayStep();
  }

  frameAt(value) { return this.part("even").checked ? nearest(numbers(this.run.frameSteps), value) : value; }

  sayStep() {
    const text = `${this.step.toLocaleString("en")} of ${this.run.total.toLocaleString("en")}`;
    this.part("step").textContent = text;
    const even = this.part("even").checked;
    if (document.activeElement !== this.part("frame") || !even) this.part("frame").value = even ? this.step : this.frame;
    this.part("frame").setAttribute("aria-valuetext", `step ${text}`);
  }

  moveTo(place) {
    this.frame = place;
    this.sayStep();
    this.updateMaps();
    this.updateCurves();
  }

  play() {
    const going = this.timer !== null, last = this.frames - 1;
    clearInterval(this.timer);
    this.timer = null;
    if (!going) {
      if (this.frame >= last) this.moveTo(0);
      this.timer = setInterval(() => {
        if (this.frame < last) return this.moveTo(this.frame + 1);
        this.play();
        if (this.alone) setTimeout(() => { if (this.alone && this.timer === null) this.playAlone(); }, REST);
      }, TICK);
    }
    this.part("play").textContent = going ? "Play" : "Pause";
    this.part("play").setAttribute("aria-pressed", String(!going));
  }

  // Again and again until the reader touches a control, and only where it is seen.
  playAlone() {
    this.alone = true;
    const box = this.root.getBoundingClientRect();
    if (document.hidden || box.bottom < 0 || box.top > innerHeight) setTimeout(() => { if (this.alone) this.playAlone(); }, REST);
    else if (this.timer === null && this.frames > 1) this.play();
  }

  // A file's name has the run, by the last parts of its path, and what is shown of it.
  file(...parts) {
    const folders = this.run.name.split(/[\\/]/).filter((part) => part && !/^(seed-\d+|\.+)$/.test(part));
    return [...folders.slice(-2), ...parts].map(slug).join("-");
  }
  get seedName() { return `seed-${this.run.seeds[this.seed]}`; }
  get layerName() { return shape(this.run.attention)[2] < 2 ? [] : [this.layer < 0 ? "all-layers" : `layer-${this.layer + 1}`]; }

  // [seed, snapshot, layer, class] → numbers of the classes, of the chosen layer or of all on average.
  attentionAt(seed, place, run = this.run) {
    const [, snapshots, layers, width] = shape(run.attention);
    const layer = layers > 1 ? this.layer : -1, first = ((seed * snapshots + place) * layers + Math.max(layer, 0)) * width;
    const count = layer < 0 ? layers : 1, values = numbers(run.attention).subarray(first, first + count * width);
    return Array.from({ length: width }, (_, kind) => {
      let sum = 0;
      for (let at = kind; at < values.length; at += width) sum += values[at];
      return sum / count;
    });
  }

  draw() {
    this.mapPanels();
    this.drawMaps();
    this.drawCurves();
  }

  // Matrices of the chosen layer, and those of all layers, with their places.
  get matrices() {
    if (!this.has("maps")) return [];
    const found = [...this.run.matrices.entries()].filter(([, matrix]) => this.layer < 0 || matrix.layer === null || matrix.layer === this.layer);
    return this.spec.maps === "first" ? found.slice(0, 1) : found;
  }

  kinds(matrix) { return theoryOf(matrix) && this.spec.theory !== false ? ["trained", "theory", "difference"] : ["trained"]; }

  mapPanels() {
    if (!this.has("maps")) return;
    this.part("maps").replaceChildren(...this.matrices.map(([place, matrix]) => {
      const kinds = this.kinds(matrix), panels = kinds.map((kind) => {
        const panel = $("panel").content.firstElementChild.cloneNode(true);
        panel.id = `${this.spec.id}-map-${place}-${kind}`;
        panel.querySelector(".save").setAttribute("aria-label", `Save ${matrix.label}, ${kind}`);
        wireSave(panel);
        return panel;
      });
      const table = make("table", { class: "averages", id: `${this.spec.id}-averages-${place}` });
      const averages = make("div", { class: "sideways", tabindex: 0, role: "region", "aria-label": `Averages of ${matrix.label}` }, table);
      return make("div", { class: kinds.length > 1 ? "with-theory" : "without-theory" },
        make("div", { class: "grid" }, ...panels), this.spec.maps === "first" ? "" : averages);
    }));
  }

  trained(matrix) {
    if (matrix.frames && this.seed === 0) return frame(matrix.frames, this.frame);
    return fromClasses(entry(matrix.classes, this.seed, this.frame), matrix.size, this.run.boundaries);
  }

  drawMaps() {
    // Why there is no theory is the same for all layers: it is shown once.
    const said = new Set(), once = (text) => (said.has(text) ? "" : (said.add(text), text));
    for (const [place, matrix] of this.matrices) {
      const trained = this.trained(matrix), theory = theoryOf(matrix), several = this.kinds(matrix).length > 1;
      const exact = matrix.frames && this.seed === 0, bare = this.spec.maps === "first" && several;
      const heat = (z, title, text, scale) => heatSpec(z, matrix.limit, title, text, this.run.boundaries, bare, scale);
      const file = (kind) => ({ file: () => this.file(...(kind === "theory" ? [] : [this.seedName, `step-${this.step}`]), matrix.label, kind) });
      const reason = theory || this.spec.theory === false ? "" : once(matrix.what);
      draw(this.panel(`map-${place}-trained`), { ...heat(trained, `${matrix.label}, trained`,
        [exact ? "" : "Averages by class of entry: frames are kept for one seed only.", reason].join(" ").trim(), !bare), ...file("trained") });
      if (several) {
        draw(this.panel(`map-${place}-theory`), { ...heat(theory, `${matrix.label}, theory`, matrix.what, !bare), ...file("theory") });
        draw(this.panel(`map-${place}-difference`), { ...heat(subtract(trained, theory), `${matrix.label}, trained − theory`, "One scale of colours for all three."), ...file("difference") });
      }
      this.averages(matrix, place);
    }
  }

  updateMaps() {
    for (const [place, matrix] of this.matrices) {
      const trained = this.trained(matrix);
      replaceMatrix(this.panel(`map-${place}-trained`), trained);
      if (this.kinds(matrix).length > 1) replaceMatrix(this.panel(`map-${place}-difference`), subtract(trained, theoryOf(matrix)));
      this.averages(matrix, place);
    }
  }

  averages(matrix, place) {
    const table = $(`${this.spec.id}-averages-${place}`);
    if (!table) return;
    const now = entry(matrix.classes, this.seed, this.frame), theory = theoryOf(matrix);
    const lines = [["average", ...CLASS_NAMES], ["trained", ...Array.from(now, short)]];
    if (theory) {
      matrix.theoryClasses ??= classAverages(theory, this.run.boundaries);
      lines.push(["theory", ...matrix.theoryClasses.map(short)]);
    }
    const tag = (line, column) => (line === 0 ? ["th", { scope: "col" }] : column === 0 ? ["th", { scope: "row" }] : ["td", {}]);
    table.replaceChildren(...lines.map((cells, line) => make("tr", {}, ...cells.map((text, column) => make(...tag(line, column), text)))));
  }

  // Lines of all seeds, the chosen one in bold; then that of the run beside it, dashed. `meta` is a line's name in a table.
  curves(name, of, style, visible = true) {
    const lines = this.run.seeds.map((seed, place) => {
      const chosen = place === this.seed;
      return { type: "scatter", mode: "lines", name: marked(name), meta: `${name}, seed ${seed}`, ...of(this.run, place), legendgroup: name, visible,
        showlegend: chosen, opacity: chosen ? 1 : 0.25, line: { width: chosen ? 2.5 : 1, ...style } };
    });
    const other = this.beside && of(this.beside, 0);
    if (other?.y) lines.push({ type: "scatter", mode: "lines", name: marked(`${name}, beside`), meta: `${name}, ${this.beside.title}`, ...other, visible, line: { ...style, width: 1.5, dash: "dot" } });
    return lines;
  }

  normCurves() {
    return Object.keys(this.run.norms).flatMap((name, place) => {
      const mode = name.match(/^(topics|\[MASK\]) in (W\^[KQ])$/), bias = name.endsWith("_bias");
      const base = mode ? (mode[2] === "W^K" ? "key" : "query") : bias ? name.slice(0, -5) : name;
      // What grows in W^K and W^Q is shown in their place where it is asked for; biases wait in the legend.
      const visible = bias || (this.spec.apart ? !mode && base !== "value" && base !== "embedding" && this.modes : Boolean(mode)) ? "legendonly" : true;
      const dash = bias ? "dash" : mode ? (mode[1] === "topics" ? "solid" : "dot") : this.spec.apart && base !== "value" ? "dash" : "solid";
      const color = COLOURS[(PART_COLOURS[base] ?? place) % COLOURS.length];
      const label = mode ? `${mode[2]}: ${mode[1]}` : `‖${PART_NAMES[name] || name}‖`;
      const of = (run, seed) => (run.norms[name] ? { x: Array.from(numbers(run.steps)), y: row(run.norms[name], seed) } : {});
      return this.curves(label, of, { color, dash }, visible);
    });
  }
  get modes() { return Object.keys(this.run.norms).some((name) => name.startsWith("topics in")); }

  // Where attention takes off: as measured, with its name above, and as predicted, dashed, with its name below.
  takeOffLines() {
    const line = (step, text, place, style) => ({ type: "line", x0: step, x1: step, yref: "paper", y0: 0, y1: 1, line: { width: 1.5, ...style },
      label: { text, textposition: place[0], textangle: 0, xanchor: step > this.run.done / 2 ? "right" : "left", yanchor: place[1], padding: 4, font: { size: present() ? 18 : 11 } } });
    const { take_off: predicted } = this.run.predicted, lines = [];
    if (this.takeOff !== null) lines.push(line(this.takeOff, "stage 1 ends", ["end", "top"], {}));
    if (predicted && predicted <= this.run.done) lines.push(line(predicted, "predicted", ["start", "bottom"], { dash: "dash", color: COLOURS[5] }));
    return lines;
  }

  drawCurves() {
    const { run } = this, layout = (label, more) => curveLayout(label, { shapes: this.takeOffLines(), ...more });
    if (this.has("loss")) {
      const losses = this.curves("loss of the batch", (each, seed) => ({ x: Array.from(numbers(each.steps)), y: row(each.loss, seed) }), { color: COLOURS[0] });
      if (run.heldOut) losses.push(...this.curves("held-out loss", (each, seed) => (each.heldOut ? { x: Array.from(numbers(each.heldOutSteps)), y: row(each.heldOut, seed) } : {}), { color: COLOURS[1] }));
      const levels = run.levels.map((level, place) => ({ type: "scatter", mode: "lines", name: `${level.label}: ${shown(level.loss)}`,
        x: [0, run.done], y: [level.loss, level.loss], line: { color: COLOURS[2 + place], dash: ["dash", "dashdot", "dot"][place], width: 2 } }));
      draw(this.panel("loss"), { file: () => this.file(this.seedName, "loss"), traces: [...losses, ...levels], layout: layout("loss"), narrow: HIGH });
    }
    if (this.has("norms")) {
      const log = this.part("log").checked;
      draw(this.panel("norms"), { file: () => this.file(this.seedName, "norms"), traces: [...this.normCurves(), ...this.reducedModel()],
        layout: layout("Frobenius norm", log ? { yaxis: { type: "log", exponentformat: "power", dtick: 1 } } : {}), narrow: HIGH });
    }
    if (this.has("gain") && Object.keys(run.stages).length) {
      const of = (name) => (each, seed) => (each.stages[name] ? { x: Array.from(numbers(each.steps)), y: row(each.stages[name], seed) } : {});
      const traces = [["W^V: share of what uniform attention can gain", "gain", 1], ["word queries: distance from uniform attention", "words", 2], ["[MASK] queries: distance from uniform attention", "mask", 3]]
        .flatMap(([label, name, colour]) => this.curves(label, of(name), { color: COLOURS[colour], dash: name === "mask" ? "dot" : "solid" }));
      draw(this.panel("gain"), { file: () => this.file(this.seedName, "stages"), traces, layout: layout("share, distance", { yaxis: { range: [-0.05, 1.05] } }), narrow: HIGH });
    }
    if (this.has("attention") && !this.panel("attention").hidden) {
      const of = (kind) => (each, seed) => {
        const steps = Array.from(numbers(each.attentionSteps));
        return { mode: "lines+markers", x: steps, y: steps.map((_, at) => 100 * this.attentionAt(seed, at, each)[kind]), marker: { size: 4, symbol: ["circle", "square", "diamond"][kind] } };
      };
      const traces = CLASS_NAMES.slice(0, 3).flatMap((name, kind) => this.curves(name, of(kind), { color: COLOURS[kind] }));
      const which = this.layer < 0 ? "all layers" : `layer ${this.layer + 1}`, several = shape(run.attention)[2] > 1;
      draw(this.panel("attention"), { file: () => this.file(this.seedName, ...this.layerName, "attention"), title: "Average attention × 100" + (several ? `, ${which}` : ""), traces, layout: layout("attention × 100"), narrow: HIGH });
    }
    this.updateCurves();
  }

  // Theory's reduced model of the norms, thin, where the run's reference has it.
  reducedModel() {
    const { steps, norms } = this.run.predicted;
    return Object.entries(norms || {}).filter(([, values]) => values.length).map(([name, values]) => {
      const label = `‖${PART_NAMES[name] || name}‖, predicted`;
      // On a phone the sentence below says it, and the legend leaves room for the axis.
      return { type: "scatter", mode: "lines", showlegend: !narrow(), name: marked(label), meta: label, x: steps, y: values, line: { color: COLOURS[(PART_COLOURS[name] ?? 4) % COLOURS.length], width: 1, dash: "dash" } };
    });
  }

  // What the predicted lines are, in words; nothing where there are none.
  get predictedWords() {
    const { take_off: step, steps, note } = this.run.predicted;
    return steps?.length ? `Thin dashed lines are predicted${step ? `; attention should take off at step ${step.toLocaleString("en")}` : ""}. ${note}` : "";
  }

  updateCurves() {
    for (const name of this.spec.panels) if (name !== "maps") markStep(this.panel(name), this.step);
    this.sayCurves();
  }

  sayCurves() {
    const { run, step } = this, at = nearest(numbers(run.steps), step), say = (name, text) => typeset(this.panel(name).querySelector(".said"), text);
    const now = numbers(run.steps)[at].toLocaleString("en");
    if (this.has("loss")) say("loss", `Step ${now}: loss ${shown(row(run.loss, this.seed)[at])}.`
      + (run.levels.length ? " Measured losses are averages over a limited number of documents: they scatter, and may be below the lines of theory." : ""));
    if (this.has("norms")) say("norms", `Step ${now}: ` + Object.entries(run.norms).filter(([name]) => PART_NAMES[name] && !name.endsWith("_bias")).map(([name, values]) => `‖${PART_NAMES[name]}‖ ${shown(row(values, this.seed)[at])}`).join(", ") + ". " + this.predictedWords);
    if (this.has("gain") && run.stages.gain) say("gain", `Step ${now}: W^V has ${percent(row(run.stages.gain, this.seed)[at])} of the gain; word queries are ${shown(row(run.stages.words, this.seed)[at])} from uniform.`
      + (this.takeOff === null ? " Attention does not take off." : ` Attention takes off at step ${this.takeOff.toLocaleString("en")}.`));
    if (!this.has("attention") || this.panel("attention").hidden) return;
    const classes = this.attentionAt(this.seed, nearest(numbers(run.attentionSteps), step));
    say("attention", CLASS_NAMES.slice(0, 3).map((name, kind) => `${name} ${shown(100 * classes[kind])}`).join(", ") + ".");
  }
}

const percent = (share) => `${shown(Number((100 * share).toPrecision(3)))} %`;

// Room for a legend of many short lines.
const HIGH = { margin: { b: 190 }, height: 480 };

function curveLayout(label, more) {
  return merged({ showlegend: true, legend: BELOW,
    xaxis: { title: { text: "step", standoff: 5 } }, yaxis: { title: { text: label } }, margin: { b: 130, t: 25 }, height: 420 }, more);
}

// A line at the step that is shown, over the plot: moving it redraws nothing.
function markStep(panel, step) {
  const plot = panel.querySelector(".plot"), full = plot._fullLayout;
  if (!full || !full.xaxis || !SPECS.has(panel)) return;
  let line = panel.querySelector(".now");
  if (!line) {
    line = make("div", { class: "now" });
    panel.append(line);
    plot.on("plotly_afterplot", () => markStep(panel, SPECS.get(panel).step));
  }
  const { xaxis, yaxis } = full;
  SPECS.get(panel).step = step;
  const left = plot.offsetLeft + xaxis._offset + xaxis.d2p(step);
  line.style.cssText = `left: ${left}px; top: ${plot.offsetTop + yaxis._offset}px; height: ${yaxis._length}px`;
}

// A claim's own run, if it is here: figure2/squared-adam for figure2/squared-adam/contrast.
function chooseRunOf(claim) {
  const place = DATA.runs.findIndex((run) => claim.startsWith(run.name + "/")), player = PLAYERS.runs;
  if (place >= 0 && player?.run) player.show(place);
}

function showPlayers() {
  for (const spec of DATA.players) new Player(spec);
}
