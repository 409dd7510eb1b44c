// The playground: controls, a worker that trains, theory beside it, and pictures of both.

const SPEEDS = [[0, "as fast as possible"], ...[200, 50, 10].map((speed) => [speed, `${speed} steps per second`]), [1, "1 step per second"]];
const MEASURES = ["norm_value", "norm_key", "norm_query", "same_word", "same_topic", "different_topic", "mask_column", "mask_row",
  "attention_same_word", "attention_same_topic", "attention_different_topic", "from_uniform", "mask_from_uniform", "uniform_loss"];
const CURVES = ["loss", ...MEASURES];
const MOST_POINTS = 600, TRAIL = 400, GRID = 56, TAKE_OFF = 0.05, DOCUMENTS = { floor: 3000, optimum: 20000 };
// Kinds of word pairs, in the colours that they have everywhere.
const KINDS = ["same word", "same topic", "different topic"].map((label) => ({ name: label.replace(" ", "_"), label, colour: PALETTE.classes[label] }));
const NORMS = [["value", "W^V"], ["key", "W^K"], ["query", "W^Q"]].map(([part, label]) => ({ name: `norm_${part}`, label, colour: PALETTE.parts[part] }));
const FLOOR_DASH = [2, 3], OPTIMUM_DASH = [6, 4];
// What the documents depend on.
const DRAWN = ["topics", "words", "sampler", "per_document", "dirichlet", "overlap", "shortest", "longest", "mask", "keep", "random", "masked_keys"];

class Playground {
  constructor(root, bytes, workerText, initial) {
    Object.assign(this, { root, bytes, workerText, running: false, wanted: false, inView: false, until: 0, timers: {} });
    Object.assign(this, { frame: null, theory: null, scene: null, floor: null, sampled: null, prediction: null, questions: { run: 0, floor: 0, optimum: 0, predict: 0 } });
    this.forget();
    const asked = { ...initial, ...fromHash(location.hash) };
    this.opened = Object.keys(asked).length > 0;
    this.take(asked);
    this.build();
  }

  // Settings from an address, over the defaults.
  take(asked) {
    const { settings, problems } = overlaid(DEFAULTS, asked);
    this.settings = settings;
    this.problems = problems.length ? [...problems, "Other settings are taken from the defaults."] : [];
  }

  forget() {
    this.history = { steps: [], values: Object.fromEntries(CURVES.map((name) => [name, []])), stride: 1, skipped: 0 };
    Object.assign(this, { trail: [], takeOff: null });
  }

  async begin() {
    const { instance } = await WebAssembly.instantiate(this.bytes, {});
    this.core = instance.exports;
    const url = URL.createObjectURL(new Blob([this.workerText], { type: "text/javascript" }));
    const worker = () => new Promise((resolve, reject) => {
      const made = new Worker(url);
      made.onerror = (event) => reject(new Error(event.message || "the worker could not start"));
      made.onmessage = ({ data }) => (data.kind === "ready" ? resolve(made) : this.receive(data));
      made.postMessage({ kind: "core", bytes: this.bytes });
    });
    const [run, floor, optimum, predict] = await Promise.all([worker(), worker(), worker(), worker()]);
    this.workers = { run, floor, optimum, predict };
    URL.revokeObjectURL(url);
    this.restart();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw(true));
    addEventListener("resize", () => this.draw(true));
    addEventListener("hashchange", () => this.followHash());
    document.addEventListener("visibilitychange", () => this.watch());
    let first = true;
    new IntersectionObserver(([entry]) => {
      this.inView = entry.isIntersecting;
      if (!this.inView || !first) return this.watch();
      first = false;
      this.begun();
    }).observe(this.root);
    if (location.hash.startsWith(HASH)) this.root.scrollIntoView();
  }

  // ---- what is on the page

  build() {
    const button = (label, act, attributes = {}) => make("button", { type: "button", onclick: act, ...attributes }, ...math(label));
    this.playButton = button("▶ Play", () => (this.wanted ? this.pause() : this.run({ until: this.until })), { class: "go", "aria-pressed": "false" });
    this.speed = make("select", { "aria-label": "speed", onchange: () => this.wanted && this.run() });
    options(this.speed, SPEEDS);
    this.facts = Object.fromEntries(["step", "rate", "loss"].map((name) => [name, make("b", {}, "–")]));
    const bar = make("div", { class: "bar", role: "toolbar", "aria-label": "Training" },
      this.playButton, button("Step", () => this.step()), button("Restart", () => this.restart()), button("New seed", () => this.newSeed()), this.speed,
      button("Copy link", () => this.copyLink()), button("Save settings.toml", () => this.save()),
      make("span", { class: "facts" }, "step ", this.facts.step, " · ", this.facts.rate, " per second · loss ", this.facts.loss));
    this.sceneButtons = SCENES.map((scene) => button(scene.title, () => this.show(scene.id), { "aria-pressed": "false", "data-scene": scene.id }));
    this.caption = make("p", { class: "caption", "aria-live": "polite" });
    this.message = make("p", { class: "message", role: "status" }, this.problems.join(" "));
    this.controls = Object.fromEntries(FIELDS.map((field) => [field.name, this.control(field)]));
    const groups = Object.entries(GROUPS).map(([group, title]) => make("fieldset", {}, make("legend", {}, title), ...FIELDS.filter((field) => field.group === group).map(({ name }) => this.controls[name].line)));
    this.canvases = {};
    this.legends = Object.fromEntries(["value", "missing", "landscape", "classes", "optimum", "floor"].map((name) => [name, make("span")]));
    this.reference = make("select", { "aria-label": "which theory", onchange: () => this.draw(true) });
    options(this.reference, [["optimum", "the optimum for documents of this length"], ["theorem", "Theorem 2"]]);
    this.exactly = key(PALETTE.orange, "W^V under uniform attention, exactly");
    const figure = (name, title, kind, ...legend) => {
      this.canvases[name] = make("canvas", { role: "img", "aria-label": title });
      return make("figure", { class: kind, "data-figure": name }, make("figcaption", {}, ...math(title)), this.canvases[name], make("p", { class: "legend" }, ...legend));
    };
    const keys = (kinds) => kinds.map(({ colour, label }) => key(colour, label)), ink = "currentColor";
    const heads = ["", "trained", "optimum", "Theorem 2"].map((title) => make("th", { scope: "col" }, title));
    this.table = make("tbody");
    this.paces = make("p", { class: "hint" });
    const figures = make("div", { class: "figures" },
      figure("documents", "Documents being drawn and masked", "wide", "Each square is a word in the colour of its topic; [MASK] has the colour of the text. A frame marks a masked word that was kept or replaced by a random one, and the dot has the colour of the topic of the word to predict."),
      figure("value", "W^V being trained", "square", "Rows are the words to predict, columns the words seen. ", this.legends.value),
      figure("reference", "W^V in theory", "square", this.legends.missing, this.reference),
      make("figure", {}, make("figcaption", {}, ...math("W^V by class of entry")), make("table", {}, make("thead", {}, make("tr", {}, ...heads)), this.table), this.paces),
      figure("loss", "Loss", "", key(PALETTE.blue, "training"), this.exactly, key(ink, this.legends.optimum, OPTIMUM_DASH), key(ink, this.legends.floor, FLOOR_DASH)),
      figure("classes", "W^V by class", "", ...keys(KINDS), this.legends.classes),
      figure("attention", "Attention by class × 100", "", ...keys(KINDS), "dashed: uniform"),
      figure("norms", "Norms", "half", ...keys(NORMS)),
      figure("landscape", "Loss over attention's weights", "half", this.legends.landscape));
    this.root.classList.add("playground");
    this.root.append(make("div", { class: "scenes", role: "group", "aria-label": "Scenes" }, ...this.sceneButtons), this.caption, bar, this.message,
      make("div", { class: "columns" }, make("div", { class: "knobs" }, ...groups), figures));
    this.showControls();
  }

  control(field) {
    const id = `playground-${field.name}`, set = (value, how) => this.set({ [field.name]: value }, how);
    const label = make("label", { for: id }, ...(field.symbol ? [...math(field.symbol), " "] : []), field.label);
    if (field.options) {
      const input = make("select", { id, onchange: () => set(input.value) });
      options(input, field.options);
      return { line: make("div", { class: field.long ? "control choice long" : "control choice" }, label, input), show: (value) => (input.value = value) };
    }
    // A slider of factors reaches zero, where that is allowed, at its low end.
    const low = field.log ? Math.log10(field.zero || field.low) : field.low, high = field.log ? Math.log10(field.high) : field.high;
    const read = (value) => (!field.log ? value : field.zero && value <= low ? 0 : Number((10 ** value).toPrecision(2)));
    const slider = make("input", { type: "range", id, min: low, max: high, step: field.log ? 0.05 : field.step || 1, oninput: () => set(read(Number(slider.value)), { slider: true }) });
    const box = make("input", { type: "text", inputmode: "decimal", "aria-label": `${field.symbol || ""} ${field.label}, as a number`, autocomplete: "off",
      onchange: () => set(box.value.trim() === "" ? NaN : Number(box.value.replace(",", "."))) });
    const show = (value) => {
      box.value = value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential() : String(value);
      slider.value = field.log ? (value > 0 ? Math.log10(value) : low) : value;
      slider.setAttribute("aria-valuetext", box.value);
    };
    return { line: make("div", { class: "control" }, label, box, slider), show, slider };
  }

  showControls() {
    const { settings, controls } = this;
    for (const { name } of FIELDS) controls[name].show(settings[name]);
    controls.adam_epsilon.line.hidden = settings.optimizer !== "adam";
    controls.dirichlet.line.hidden = settings.sampler !== "dirichlet";
    controls.per_document.slider.max = settings.topics;
    this.message.textContent = this.problems.join(" ");
  }

  tell(...sentences) {
    this.problems = sentences.filter(Boolean);
    this.message.textContent = this.problems.join(" ");
  }

  // ---- what one can do

  // A slider that pushes beyond what is possible together stops there, or takes others along, and says so.
  limited(changes) {
    const s = { ...this.settings, ...changes }, told = [];
    if (s.topics * s.words > MOST_WORDS) {
      const [name, other] = "topics" in changes ? ["topics", "words"] : ["words", "topics"];
      s[name] = Math.floor(MOST_WORDS / s[other]);
      told.push(`T·v may be at most ${MOST_WORDS} here, so that a browser can train it live: ${SYMBOLS[name]} stops at ${s[name]}.`);
    }
    if (s.per_document > s.topics) {
      if ("per_document" in changes) told.push(`A document cannot have more than T = ${s.topics} topics.`);
      s.per_document = s.topics;
    }
    if (s.shortest > s.longest) s.shortest = s.longest = "shortest" in changes ? s.shortest : s.longest;
    if (s.keep + s.random > 1) s["keep" in changes ? "random" : "keep"] = Number((1 - ("keep" in changes ? s.keep : s.random)).toFixed(2));
    return { wished: s, told };
  }

  // Change settings; what is not allowed is told and left as it was. Some begin the run anew.
  set(changes, { slider = false } = {}) {
    const before = this.settings, { wished, told } = slider ? this.limited(changes) : { wished: changes, told: [] };
    const { settings, problems } = overlaid(before, wished), changed = EVERY.filter(({ name }) => settings[name] !== before[name]);
    this.settings = settings;
    this.tell(...told, ...problems);
    this.showControls();
    if (!changed.length) return { settings: { ...settings }, problems };
    this.leaveScene();
    if (changed.some((field) => field === SEED || field.restarts)) this.restart();
    else {
      const names = changed.map(({ name }) => name);
      this.settingChanged(names);
      this.ask("run", { kind: "change", forget: names.includes("optimizer"), theorem: names.includes("parts") && settings.parts === "theorem" });
    }
    this.keepAddress();
    return { settings: { ...settings }, problems };
  }

  setScene(scene) {
    this.scene = scene;
    this.until = scene ? scene.until : 0;
    this.caption.replaceChildren(...math(scene ? scene.caption : ""));
    for (const each of this.sceneButtons) each.setAttribute("aria-pressed", String(each.dataset.scene === scene?.id));
  }

  leaveScene() {
    this.setScene(null);
    if (this.wanted) this.run();
  }

  // A guided scene: its setting from the start, running.
  show(id, { keepAddress = true } = {}) {
    const scene = SCENES.find((each) => each.id === id);
    this.pause();
    this.take({ ...scene.settings, seed: this.settings.seed });
    this.showControls();
    this.setScene(scene);
    this.restart();
    if (keepAddress) this.keepAddress();
    this.run({ until: scene.until });
  }

  run({ until = 0 } = {}) {
    this.until = until;
    this.setWanted(true);
    this.watch();
  }

  pause() {
    this.setWanted(false);
    this.watch();
  }

  step() {
    if (this.wanted) this.pause();
    this.ask("run", { kind: "step", count: 1 });
  }

  // From step 0 with the same seed; what runs goes on running.
  restart() {
    this.forget();
    this.ask("run", { kind: "start", seed: this.settings.seed, question: ++this.questions.run });
    this.settingChanged(EVERY.map(({ name }) => name));
    if (this.wanted) this.run({ until: this.scene?.until });
  }

  newSeed() {
    this.settings = { ...this.settings, seed: (this.settings.seed + 1) % SEED.high };
    this.restart();
    this.keepAddress();
  }

  setWanted(wanted) {
    this.wanted = wanted;
    this.playButton.textContent = wanted ? "❚❚ Pause" : "▶ Play";
    this.playButton.setAttribute("aria-pressed", String(wanted));
  }

  // Not while nobody looks: neither in a hidden tab nor out of sight.
  watch() {
    const seen = !document.hidden && this.inView;
    this.ask("run", this.wanted && seen ? { kind: "run", speed: Number(this.speed.value), until: this.until || 0 } : { kind: "pause" });
  }

  // Something happens in the first second, unless the reader asked for less motion.
  begun() {
    if (this.wanted || this.scene) this.watch();
    else if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    else if (this.opened) this.run();
    else this.show("figure2", { keepAddress: false });
  }

  keepAddress() {
    this.later("address", 200, () => {
      // A sandboxed frame has no address of its own to keep it in.
      try { history.replaceState(null, "", toHash(this.settings)); } catch { /* nothing is lost: the link can be copied */ }
    });
  }

  followHash() {
    if (!location.hash.startsWith(HASH) || location.hash === toHash(this.settings)) return;
    this.take(fromHash(location.hash));
    this.showControls();
    this.leaveScene();
    this.restart();
  }

  copyLink() {
    const link = location.href.split("#")[0] + toHash(this.settings);
    return copyText(link, () => this.tell("Link copied."), () => this.tell(`Copy this link: ${link}`));
  }

  // The file for `topicscope train`, and the topics where they overlap.
  files() {
    const found = { "settings.toml": toToml(this.settings, this.frame?.step || 2000) };
    if (this.settings.overlap > 0) found["topic_words.csv"] = topicWords(this.settings);
    return found;
  }

  save() {
    for (const [name, text] of Object.entries(this.files())) download(name, text, "text/plain");
    this.tell("Saved. Run it with: topicscope train settings.toml --out runs/playground");
  }

  // ---- theory

  later(name, delay, act) {
    clearTimeout(this.timers[name]);
    this.timers[name] = setTimeout(act, delay);
  }

  ask(name, message) { this.workers[name].postMessage({ setting: coreNumbers(this.settings), ...message }); }

  // What takes a while is computed in a worker of its own, when the sliders rest. An answer to an earlier question is no
  // answer, so questions are numbered.
  askLater(name, message) {
    const question = ++this.questions[name];
    clearTimeout(this.timers[name]);
    if (message) this.later(name, 150, () => this.ask(name, { kind: name, documents: DOCUMENTS[name], question, ...message }));
  }

  numbers(address, count) { return Array.from(new Float64Array(this.core.memory.buffer, address, count)); }

  settingChanged(changed) {
    const s = this.settings, exact = s.masked_keys === "visible" && s.loss === "squared", touched = (...names) => changed.some((name) => names.includes(name));
    new Float64Array(this.core.memory.buffer, this.core.settings(), FIELDS.length).set(coreNumbers(s));
    const found = this.numbers(this.core.theory(), 20), classes = (at) => Object.fromEntries(["mask_column", "same_word", "same_topic", "different_topic", "loss"].map((name, i) => [name, found[at + i]]));
    // Closed forms are for the squared loss and visible masked keys, and Theorem 2 for topics that share no words. Other
    // optima are sampled.
    const theorem = exact && s.keep + s.random < 1 - 1e-9 && !(s.overlap > 0);
    this.theory = { exact, optimum: exact ? classes(5) : null, theorem: theorem ? classes(0) : null, eigenvalues: { within: found[10], topics: found[11], mean: found[12] } };
    this.computeLandscape();
    if (touched(...DRAWN)) {
      this.floor = null;
      // Where topics overlap the posterior is no finite sum. Where masked keys are hidden a model can tell which words are genuine.
      this.noFloor = s.overlap > 0 ? "not computed for overlapping topics" : s.masked_keys === "hidden" ? "not computed where masked keys are hidden" : "";
      this.askLater("floor", this.noFloor ? null : {});
    }
    if (touched(...DRAWN, "loss", "l2")) {
      this.sampled = null;
      this.askLater("optimum", exact ? null : {});
    } else if (this.sampled) this.theory.optimum = this.sampled;
    if (this.predictedFor !== toHash(s)) {
      Object.assign(this, { prediction: null, predictedFor: toHash(s), noPrediction: this.unpredictable() });
      this.askLater("predict", this.noPrediction ? null : { seed: s.seed });
    }
    this.dirty = true;
    this.schedule();
  }

  takeOptimum({ entries, loss: [mean, low, high], documents }) {
    this.sampled = { loss: mean, low, high, documents };
    // Without L2 the cross-entropy's optimum is at infinity: [MASK] is never right. Its loss is not.
    const names = ["mask_column", "same_word", "same_topic", "different_topic"];
    if (this.settings.loss === "squared" || this.settings.l2 > 0) names.forEach((name, at) => (this.sampled[name] = entries[at]));
    this.theory.optimum = this.sampled;
  }

  // Why no take-off is predicted; nothing if it is.
  unpredictable() {
    const s = this.settings, rate = s.learning_rate * (s.optimizer === "momentum" ? 10 : 1), most = (s.loss === "squared" ? 1 : 4) / this.theory.eigenvalues.mean;
    if (s.parts === "uniform" || s.parts === "value") return "Attention is not trained, so it does not take off.";
    if (s.overlap > 0) return "No take-off is predicted: the equations are for topics that share no words.";
    if (s.masked_keys === "hidden") return "No take-off is predicted: the equations are for visible masked keys.";
    if (s.optimizer !== "adam" && rate >= most) return `No take-off is predicted: W^V diverges at this learning rate; take less than ${brief((most * s.learning_rate) / rate)}.`;
    return "";
  }

  predictionText() {
    if (this.noPrediction) return this.noPrediction;
    if (!this.prediction) return "The take-off of attention is being predicted.";
    if (this.prediction.never) return "Attention is predicted not to take off within 10 million steps.";
    const [low, high] = [this.prediction.low, this.prediction.high].map((step) => whole(Math.round(Number(step.toPrecision(3)))));
    return `Attention is predicted to take off ${low === high ? `at step ${low}` : `between steps ${low} and ${high}`}.`;
  }

  // Why there is no landscape; nothing if there is.
  flat() {
    const s = this.settings;
    if (s.overlap > 0) return "There is no landscape for overlapping topics: its formula is for topics that share no words.";
    if (s.masked_keys === "hidden") return "There is no landscape where masked keys are hidden: its formula is for visible ones.";
    if (s.per_document >= s.topics) return `There is no landscape: with τ = T = ${s.topics} every document has the same topics. Lower τ or raise T.`;
    return s.keep + s.random > 1 - 1e-9 ? "There is no landscape without [MASK] tokens: lower p_c or p_r." : "";
  }

  computeLandscape() {
    this.landscape = null;
    if (this.flat()) return;
    const [alpha, beta, loss] = this.numbers(this.core.landscape(0, 0, 0, 0, 0), 4), far = 20 * Math.max(alpha, beta);
    const low = Math.log(0.05), high = Math.log(Math.max(300, far < 1e6 ? far : 0)), grid = this.numbers(this.core.landscape_grid(GRID, low, high), GRID * GRID);
    this.landscape = { alpha, beta, loss, grid, points: GRID, low, high, least: Math.min(loss, ...grid), optimum: [alpha, beta] };
  }

  // ---- what workers say

  receive(data) {
    const current = data.question === this.questions[data.kind === "frame" ? "run" : data.kind];
    if (data.kind === "stopped") {
      this.running = false;
      if (this.until && this.frame?.step >= this.until) {
        this.until = 0;
        this.setWanted(false);
      }
    } else if (data.kind === "diverged") {
      this.setWanted(false);
      this.tell(`Training diverged at step ${data.step}: lower the learning rate, then restart.`);
    } else if (data.kind === "frame") {
      // A picture of the run before may still be on its way.
      if (!current) return this.workers.run.postMessage({ kind: "drawn" });
      this.frame = { ...this.frame, ...data, documents: data.documents || this.frame?.documents, measures: Object.fromEntries(MEASURES.map((name, at) => [name, data.measured[at]])) };
      this.running = data.running;
      this.remember();
      this.schedule();
    } else if (current) {
      if (data.kind === "floor") this.floor = data;
      if (data.kind === "optimum") this.takeOptimum(data);
      if (data.kind === "predict") this.prediction = data.steps.every((step) => step > 0) ? { low: Math.min(...data.steps), high: Math.max(...data.steps) } : { never: true };
      this.schedule();
    }
  }

  // Keep at most so many points, every second one dropped when there are more.
  remember() {
    const { frame, history } = this, { measures } = frame;
    if (measures.from_uniform >= TAKE_OFF && this.takeOff === null) this.takeOff = { step: frame.step, gain: this.gain() };
    if (history.skipped + 1 < history.stride && frame.running) return history.skipped++;
    history.skipped = 0;
    history.steps.push(frame.step);
    for (const name of CURVES) history.values[name].push(name === "loss" ? frame.loss ?? NaN : measures[name]);
    const { attention_same_topic: topic, attention_same_word: word, attention_different_topic: different } = measures;
    if (different > 0) this.trail.push([topic / different, word / different]);
    if (this.trail.length > TRAIL) this.trail = this.trail.filter((_, i) => i % 2 === 1 || i > TRAIL - 20);
    if (history.steps.length <= MOST_POINTS) return;
    const kept = (list) => list.filter((_, i) => i % 2 === 0);
    history.steps = kept(history.steps);
    for (const name of CURVES) history.values[name] = kept(history.values[name]);
    history.stride *= 2;
  }

  // The share of what the optimum under uniform attention gains that W^V has.
  gain() {
    const best = this.theory?.exact ? this.theory.optimum.loss : null;
    return best ? (1 - this.frame.measures.uniform_loss) / (1 - best) : null;
  }

  // ---- pictures

  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.draw();
      this.workers.run.postMessage({ kind: "drawn" });
      const { settings, frame } = this;
      this.drawn = { at: performance.now(), mask: settings.mask, topics: frame?.vocabulary === settings.topics * settings.words + 1 ? settings.topics : null };
    });
  }

  draw(all = false) {
    const { frame, settings, theory, canvases, landscape } = this, colours = theme();
    if (!frame || !theory) return;
    const size = frame.vocabulary, m = frame.measures;
    this.facts.step.textContent = whole(frame.step);
    this.facts.rate.textContent = frame.running ? whole(Math.round(frame.rate)) : "0";
    if (frame.loss !== null) this.facts.loss.textContent = frame.loss.toFixed(4);
    if (frame.documents && (all || this.dirty || frame.documents !== this.drawnDocuments)) {
      drawDocuments(canvases.documents, frame.documents, settings, colours);
      this.drawnDocuments = frame.documents;
    }
    const scale = 1.1 * Math.max(...[m.same_word, m.same_topic, m.different_topic, m.mask_column].map(Math.abs), (3 * m.norm_value) / size) || 1;
    drawMatrix(canvases.value, size, (row, column) => frame.value[column * size + row], scale, colours);
    this.legends.value.replaceChildren(scaleBar(diverging(colours), brief(-scale, 2), brief(scale, 2)));
    this.drawReference(scale, colours);
    this.drawTable(m);
    this.drawHistory(colours);
    canvases.landscape.hidden = !landscape;
    this.legends.landscape.replaceChildren(...math(landscape ? `Squared loss at Theorem 2's W^V, infinite documents of τ = ${settings.per_document} topics. The cross is the optimum, α = ${brief(landscape.alpha)}, β = ${brief(landscape.beta)}; the square is uniform attention, the disc what is trained.` : this.flat()));
    if (landscape) drawLandscape(canvases.landscape, { ...landscape, trail: settings.parts === "uniform" ? this.trail.slice(-1) : this.trail }, colours);
    this.dirty = false;
  }

  drawReference(scale, colours) {
    const kind = this.reference.value, classes = this.theory[kind], { words } = this.settings, known = classes?.same_word !== undefined, topic = (token) => Math.floor((token - 1) / words);
    this.canvases.reference.hidden = !known;
    this.legends.missing.replaceChildren(...math(known ? "" : this.whyNoMatrix(kind)));
    if (known) drawMatrix(this.canvases.reference, this.frame.vocabulary, (row, column) =>
      (!row ? 0 : !column ? classes.mask_column : row === column ? classes.same_word : topic(row) === topic(column) ? classes.same_topic : classes.different_topic), scale, colours);
  }

  whyNoMatrix(kind) {
    const s = this.settings;
    if (kind === "theorem" && s.loss !== "squared") return "Theorem 2 is about the squared loss.";
    if (kind === "theorem") return s.overlap > 0 ? "Theorem 2 is about topics that share no words." : s.masked_keys === "hidden" ? "Theorem 2 is about visible masked keys." : "Theorem 2 needs [MASK] tokens: lower p_c or p_r.";
    return this.theory.optimum ? "Under cross-entropy without L2 the optimum is at infinity; its loss is drawn. Raise λ to see a matrix." : "The optimum is being computed.";
  }

  drawTable(m) {
    const { optimum, theorem, eigenvalues, exact } = this.theory, s = this.settings, digits = (value) => (value === undefined || value === null ? "–" : value.toFixed(4));
    const line = ({ name, label }) => [label, m[name], optimum?.[name], theorem?.[name]];
    const rows = [...[...KINDS, { name: "mask_column", label: "[MASK]'s column" }].map(line),
      [`expected ${s.loss === "squared" ? "squared loss" : "cross-entropy"}, uniform attention`, exact ? m.uniform_loss : null, optimum?.loss, exact ? theorem?.loss : null]];
    this.table.replaceChildren(...rows.map(([label, ...cells]) => make("tr", {}, make("th", { scope: "row" }, label), ...cells.map((value) => make("td", {}, digits(value))))));
    const pace = (value) => brief(1 / (2 * s.learning_rate * value)), gain = this.gain(), far = m.from_uniform, sentences = [];
    if (gain !== null) sentences.push(`W^V has made ${Math.round(100 * gain)} % of the gain that uniform attention allows.`);
    if (["all", "theorem"].includes(s.parts)) sentences.push(this.takeOff ? `Attention took off at step ${whole(this.takeOff.step)}; a word's attention is now ${far.toFixed(2)} from uniform.` : `A word's attention is ${far.toFixed(3)} from uniform; at ${TAKE_OFF} it has taken off.`,
      `Attention × 100: ${KINDS.map(({ name, label }) => `${label} ${brief(100 * m[`attention_${name}`])}`).join(", ")}.`);
    if (exact && s.optimizer === "sgd" && s.parts !== "theorem")
      sentences.push(`Under SGD the distance to the optimum falls to 37 % within ${pace(eigenvalues.topics)} steps for topics, and within ${pace(eigenvalues.within)} for words of a topic.`);
    this.paces.replaceChildren(...math([...sentences, this.predictionText()].join(" ")));
  }

  drawHistory(colours) {
    const { theory, settings, prediction, takeOff, legends } = this, { steps, values } = this.history, { optimum, exact } = theory, squared = settings.loss === "squared";
    const picture = (name, curves, more) => drawCurves(this.canvases[name], { steps, curves, ...more }, colours), references = [];
    const level = (mean, low, high, dash) => {
      references.push({ at: mean, band: low === undefined ? null : [low, high], dash });
      return low === undefined ? mean.toFixed(4) : `${mean.toFixed(4)} ± ${((high - low) / 2).toFixed(4)}`;
    };
    legends.optimum.textContent = `optimum under uniform attention${optimum ? " " + level(optimum.loss, optimum.low, optimum.high, OPTIMUM_DASH) : ": being computed"}`;
    legends.floor.textContent = this.floor ? `Bayes floor ${level(...this.floor[settings.loss], FLOOR_DASH)}` : `Bayes floor: ${this.noFloor || "being computed"}`;
    this.exactly.hidden = !exact;
    picture("loss", [{ values: values.loss, colour: PALETTE.blue, faint: squared && settings.parts === "uniform", thin: true }, ...(exact ? [{ values: values.uniform_loss, colour: PALETTE.orange }] : [])], { references, to: squared ? 1.005 : null });
    const known = optimum?.same_word !== undefined, byClass = KINDS.map(({ name, colour }) => ({ values: values[name], colour }));
    if (exact && settings.optimizer === "sgd" && settings.parts === "uniform" && steps.length) {
      const path = steps.map((step) => this.numbers(this.core.descent(settings.learning_rate, step), 4));
      KINDS.forEach(({ colour }, at) => byClass.push({ values: path.map((classes) => classes[at + 1]), colour, dash: [2, 3], thin: true }));
    }
    picture("classes", byClass, { references: known ? KINDS.map(({ name, colour }) => ({ at: optimum[name], colour })) : [] });
    legends.classes.textContent = [known && "dashed: optimum", byClass.length > 3 && "dotted: gradient descent, exactly"].filter(Boolean).join("; ");
    const foreseen = prediction && !prediction.never ? [{ step: (prediction.low + prediction.high) / 2, colour: PALETTE.purple, dash: [6, 4], text: "predicted" }] : [];
    picture("attention", KINDS.map(({ name, colour }) => ({ values: values[`attention_${name}`].map((value) => 100 * value), colour })),
      { references: [{ at: 200 / (settings.shortest + settings.longest), colour: colours.soft }], marks: foreseen, from: 0 });
    const marks = [...(takeOff ? [{ step: takeOff.step, text: "attention takes off" }] : []), ...foreseen];
    picture("norms", NORMS.map(({ name, colour }) => ({ values: values[name], colour })), { marks, log: true });
  }

  // ---- for tests, and for whoever embeds it

  state() {
    const { frame, settings, problems, theory, landscape, floor, takeOff, prediction, drawn } = this, m = frame?.measures, common = { settings: { ...settings }, problems: [...problems] };
    if (!m) return { step: 0, running: false, ...common };
    const picked = (before, ...names) => Object.fromEntries(names.map((name) => [name, m[before + name]])), kinds = KINDS.map(({ name }) => name);
    return {
      ...common, step: frame.step, loss: frame.loss, running: this.wanted, scene: this.scene?.id ?? null, value: picked("", ...kinds, "mask_column"),
      attention: { ...picked("attention_", ...kinds), from_uniform: m.from_uniform }, norms: picked("norm_", "value", "key", "query"),
      uniform_loss: theory.exact ? m.uniform_loss : null, gain: this.gain(), take_off: takeOff, prediction, drawn,
      theory: { optimum: theory.optimum, theorem: theory.theorem, landscape: landscape && { alpha: landscape.alpha, beta: landscape.beta, loss: landscape.loss } },
      floor: floor && { documents: floor.documents, cross_entropy: floor.cross_entropy, squared: floor.squared },
    };
  }
}

async function startPlayground() {
  const read = (id) => $(id).textContent.trim(), root = $("playground"), bytes = Uint8Array.from(atob(read("playground-wasm")), (character) => character.charCodeAt(0));
  const made = new Playground(root, bytes.buffer, read("playground-worker"), JSON.parse(read("playground-settings")));
  try {
    await made.begin();
  } catch (error) {
    made.tell(`The playground cannot run here (${error.message}): it needs a browser with WebAssembly SIMD and workers.`);
    root.dataset.ready = "failed";
    return;
  }
  const names = ["state", "set", "run", "pause", "step", "restart", "show", "files"];
  window.topicscope = { playground: Object.fromEntries(names.map((name) => [name, (...given) => made[name](...given)])) };
  lowerSuperscripts();
  root.dataset.ready = "yes";
}

startPlayground();
