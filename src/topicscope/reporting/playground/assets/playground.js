// The playground: controls, a worker that trains, theory beside it, and pictures of both.

const SPEEDS = [["0", "as fast as it can"], ["200", "200 steps per second"], ["50", "50 steps per second"], ["10", "10 steps per second"], ["1", "1 step per second"]];
const MEASURES = ["norm_value", "norm_key", "norm_query", "same_word", "same_topic", "different_topic", "mask_column", "mask_row",
  "attention_same_word", "attention_same_topic", "attention_different_topic", "from_uniform", "mask_from_uniform", "uniform_loss"];
const CURVES = ["loss", ...MEASURES];
const MOST_POINTS = 600, FLOOR_DOCUMENTS = 3000, OPTIMUM_DOCUMENTS = 20000, TAKE_OFF = 0.05;
const GRID = 56, TRAIL = 400;

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// W^V and the like with a raised letter.
function mathematical(text) {
  const parts = String(text).split(/(W\^[VKQ]|p_[mcr])/);
  return parts.map((part) => {
    const raised = /^W\^([VKQ])$/.exec(part), lowered = /^p_([mcr])$/.exec(part);
    if (raised) return make("span", {}, "W", make("sup", {}, raised[1]));
    if (lowered) return make("span", {}, "p", make("sub", {}, lowered[1]));
    return part;
  });
}

// A sample of a line, for legends.
function sample(colour, dash = "") {
  const holder = make("span");
  holder.innerHTML = `<svg width="18" height="10" aria-hidden="true"><line x1="0" y1="5" x2="18" y2="5" stroke="${colour}" stroke-width="2.5" stroke-dasharray="${dash}"/></svg>`;
  return holder.firstChild;
}

class Playground {
  constructor(root, bytes, workerText, initial) {
    Object.assign(this, { root, bytes, workerText });
    this.settings = { ...DEFAULTS };
    this.problems = [];
    this.history = { steps: [], values: Object.fromEntries(CURVES.map((name) => [name, []])), stride: 1, skipped: 0 };
    this.trail = [];
    this.running = this.wanted = false;
    this.frame = null;
    this.floor = null;
    this.theory = null;
    this.scene = null;
    this.takeOff = null;
    this.inView = false;
    this.sampled = null;
    this.runs = this.floors = this.optima = this.predictions = 0;
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    const asked = { ...initial, ...fromHash(location.hash) };
    this.opened = Object.keys(asked).length > 0;
    const { settings, problems } = overlaid(DEFAULTS, asked);
    this.settings = settings;
    this.problems = problems.length ? [...problems, "Other settings are taken from the defaults."] : [];
    this.build();
  }

  async begin() {
    const { instance } = await WebAssembly.instantiate(this.bytes, {});
    this.core = instance.exports;
    const url = URL.createObjectURL(new Blob([this.workerText], { type: "text/javascript" }));
    const worker = (receive) => new Promise((resolve, reject) => {
      const made = new Worker(url);
      made.onerror = (event) => reject(new Error(event.message || "the worker could not start"));
      made.onmessage = ({ data }) => (data.kind === "ready" ? ((this.memory = data.bytes), resolve(made)) : receive(data));
      made.postMessage({ kind: "core", bytes: this.bytes });
    });
    [this.trainer, this.floorer, this.optimiser, this.foreteller] = await Promise.all(["receive", "receiveFloor", "receiveOptimum", "receivePrediction"].map((name) => worker((data) => this[name](data))));
    URL.revokeObjectURL(url);
    this.restart();
    this.dark.addEventListener("change", () => this.draw(true));
    addEventListener("resize", () => this.draw(true));
    addEventListener("hashchange", () => this.followHash());
    document.addEventListener("visibilitychange", () => this.watch());
    let first = true;
    new IntersectionObserver(([entry]) => {
      this.inView = entry.isIntersecting;
      if (this.inView && first) {
        first = false;
        this.begun();
      } else this.watch();
    }).observe(this.root);
    if (location.hash.startsWith(HASH)) this.root.scrollIntoView();
  }

  // ---- what is on the page

  build() {
    const button = (label, act, attributes = {}) => make("button", { type: "button", onclick: act, ...attributes }, ...mathematical(label));
    this.playButton = button("▶ Play", () => (this.wanted ? this.pause() : this.run({ until: this.until })), { class: "go", "aria-pressed": "false" });
    this.speed = make("select", { "aria-label": "speed", onchange: () => this.wanted && this.run() }, ...SPEEDS.map(([value, label]) => make("option", { value }, label)));
    this.facts = Object.fromEntries(["step", "rate", "loss"].map((name) => [name, make("b", {}, "–")]));
    const bar = make("div", { class: "bar", role: "toolbar", "aria-label": "Training" },
      this.playButton, button("Step", () => this.step()), button("Restart", () => this.restart()), button("New seed", () => this.newSeed()), this.speed,
      button("Copy link", () => this.copyLink()), button("Save settings.toml", () => this.save()),
      make("span", { class: "facts" }, "step ", this.facts.step, " · ", this.facts.rate, " per second · loss ", this.facts.loss));
    this.sceneButtons = SCENES.map((scene) => button(scene.title, () => this.show(scene.id), { "aria-pressed": "false", "data-scene": scene.id }));
    this.caption = make("p", { class: "caption", "aria-live": "polite" });
    this.message = make("p", { class: "message", role: "status" }, this.problems.join(" "));
    this.controls = Object.fromEntries(FIELDS.map((field) => [field.name, this.control(field)]));
    const groups = Object.entries(GROUPS).map(([group, title]) => make("fieldset", {}, make("legend", {}, title),
      ...FIELDS.filter((field) => field.group === group).map((field) => this.controls[field.name].line)));
    this.canvases = {};
    const figure = (name, title, kind, legend, ...more) => {
      this.canvases[name] = make("canvas", { role: "img", "aria-label": title });
      return make("figure", { class: kind, "data-figure": name }, make("figcaption", {}, ...mathematical(title)), this.canvases[name], make("p", { class: "legend" }, ...legend), ...more);
    };
    const key = (colour, label, dash) => make("span", { class: "key" }, sample(colour, dash), ...mathematical(label));
    this.legends = { matrix: make("span"), landscape: make("span"), reference: make("select", { "aria-label": "which theory", onchange: () => this.draw(true) }, make("option", { value: "optimum" }, "the optimum for documents of this length"), make("option", { value: "theorem" }, "Theorem 2")) };
    this.missing = make("span", { class: "missing" });
    this.notes = { classes: make("span"), attention: make("span"), norms: make("span") };
    this.landscapeOf = make("select", { "aria-label": "of which W^V", onchange: () => { this.computeLandscape(); this.draw(true); } }, make("option", { value: "theorem" }, "of Theorem 2's values"), make("option", { value: "own" }, "of the trained values"));
    this.table = make("tbody");
    this.paces = make("p", { class: "hint" });
    this.floorText = make("span", {}, "Bayes floor");
    this.optimumText = make("span", {}, "optimum under uniform attention");
    this.exactly = key(COLOURS.word, "W^V under uniform attention, exactly");
    const figures = make("div", { class: "figures" },
      figure("documents", "Documents being drawn and masked", "wide", ["Each square is a word in the colour of its topic; [MASK] has the colour of the text. A frame marks a masked word that was kept or replaced by a random one, and the dot has the colour of the topic of the word to predict."]),
      figure("value", "W^V being trained", "square", [this.legends.matrix]),
      figure("reference", "W^V in theory", "square", [this.missing, this.legends.reference]),
      make("figure", {}, make("figcaption", {}, ...mathematical("W^V by class of entry")),
        make("table", {}, make("thead", {}, make("tr", {}, ...["", "trained", "optimum", "Theorem 2"].map((title) => make("th", { scope: "col" }, title)))), this.table), this.paces),
      figure("loss", "Loss", "", [key(COLOURS.topic, "training"), this.exactly, make("span", { class: "key" }, sample(COLOURS.optimum, "5 3"), this.optimumText), make("span", { class: "key" }, sample(COLOURS.floor, "5 3"), this.floorText)]),
      figure("classes", "W^V by class", "", [key(COLOURS.word, "same word"), key(COLOURS.topic, "same topic"), key(COLOURS.different, "different topic"), this.notes.classes]),
      figure("attention", "Attention by class × 100", "", [key(COLOURS.word, "same word"), key(COLOURS.topic, "same topic"), key(COLOURS.different, "different topic"), this.notes.attention]),
      figure("norms", "Norms", "half", [key(COLOURS.topic, "W^V"), key(COLOURS.word, "W^K"), key(COLOURS.different, "W^Q"), this.notes.norms]),
      figure("landscape", "Loss over attention's weights", "half", [this.legends.landscape], this.landscapeOf));
    this.root.classList.add("playground");
    this.root.append(make("div", { class: "scenes", role: "group", "aria-label": "Scenes" }, ...this.sceneButtons), this.caption, bar, this.message,
      make("div", { class: "columns" }, make("div", { class: "knobs" }, ...groups), figures));
    this.showControls();
  }

  control(field) {
    const id = `playground-${field.name}`;
    if (field.options) {
      const input = make("select", { id, onchange: () => this.set({ [field.name]: input.value }) }, ...field.options.map(([value, label]) => make("option", { value }, label)));
      return { line: make("div", { class: field.long ? "control choice long" : "control choice" }, make("label", { for: id }, field.label), input), show: (value) => (input.value = value) };
    }
    const low = field.log ? Math.log10(field.zero || field.low) : field.low, high = field.log ? Math.log10(field.high) : field.high;
    const slider = make("input", { type: "range", id, min: low, max: high, step: field.log ? 0.05 : field.step || 1 });
    const box = make("input", { type: "text", inputmode: "decimal", "aria-label": `${field.symbol || ""} ${field.label}, as a number`, autocomplete: "off" });
    const read = () => {
      if (!field.log) return Number(slider.value);
      if (field.zero && Number(slider.value) <= low) return 0;
      return Number((10 ** Number(slider.value)).toPrecision(2));
    };
    slider.addEventListener("input", () => this.set({ [field.name]: read() }, { slider: true }));
    box.addEventListener("change", () => this.set({ [field.name]: box.value.trim() === "" ? NaN : Number(box.value.replace(",", ".")) }));
    const label = make("label", { for: id }, ...(field.symbol ? [make("i", {}, ...mathematical(field.symbol)), " "] : []), field.label);
    const show = (value) => {
      box.value = value !== 0 && (Math.abs(value) < 1e-3) ? value.toExponential().replace("e-", "e-") : String(value);
      slider.value = field.log ? (value > 0 ? Math.log10(value) : low) : value;
      slider.setAttribute("aria-valuetext", box.value);
    };
    return { line: make("div", { class: "control" }, label, box, slider), show, slider };
  }

  showControls() {
    for (const field of FIELDS) this.controls[field.name].show(this.settings[field.name]);
    const s = this.settings, hide = (name, hidden) => (this.controls[name].line.hidden = hidden);
    hide("adam_epsilon", s.optimizer !== "adam");
    hide("dirichlet", s.sampler !== "dirichlet");
    this.controls.per_document.slider.max = this.settings.topics;
  }

  tell(...sentences) {
    this.problems = sentences.filter(Boolean);
    this.message.textContent = this.problems.join(" ");
  }

  // ---- what one can do

  // Change settings; what is not allowed is told and left as it was. Some begin the run anew.
  set(changes, { slider = false } = {}) {
    const before = this.settings;
    let wished = { ...changes }, told = "";
    if (slider) {
      // A slider that pushes beyond what is possible together stops there, and says so.
      const s = { ...before, ...wished }, capped = (name, value, sentence) => { wished = { ...wished, [name]: value }; told = sentence; };
      if (s.topics * s.words > MOST_WORDS) {
        const name = "topics" in changes ? "topics" : "words", other = name === "topics" ? s.words : s.topics;
        capped(name, Math.floor(MOST_WORDS / other), `T·v may be at most ${MOST_WORDS} here, so that a browser can train it live: ${SYMBOLS[name]} stops at ${Math.floor(MOST_WORDS / other)}.`);
      }
      if ("shortest" in changes && s.shortest > s.longest) wished.longest = s.shortest;
      if ("longest" in changes && s.longest < s.shortest) wished.shortest = s.longest;
      if ("keep" in changes && s.keep + s.random > 1) wished.random = Number((1 - s.keep).toFixed(2));
      if ("random" in changes && s.keep + s.random > 1) wished.keep = Number((1 - s.random).toFixed(2));
      if ("topics" in changes && s.per_document > s.topics) wished.per_document = s.topics;
      if (s.per_document > s.topics && "per_document" in changes) capped("per_document", s.topics, `A document cannot have more than T = ${s.topics} topics.`);
    }
    const { settings, problems } = overlaid(before, wished);
    this.settings = settings;
    this.tell(told, ...problems);
    this.showControls();
    const changed = EVERY.map(({ name }) => name).filter((name) => settings[name] !== before[name]);
    if (!changed.length) return { settings: { ...settings }, problems };
    this.leaveScene();
    const anew = changed.some((name) => name === "seed" || FIELDS.find((field) => field.name === name)?.restarts);
    if (anew) this.restart();
    else {
      this.settingChanged(changed);
      this.trainer.postMessage({ kind: "change", setting: coreNumbers(settings), forget: changed.includes("optimizer"), theorem: changed.includes("parts") && settings.parts === "theorem" });
    }
    this.keepAddress();
    return { settings: { ...settings }, problems };
  }

  leaveScene() {
    this.scene = null;
    this.until = 0;
    if (this.wanted) this.run();
    this.caption.textContent = "";
    for (const each of this.sceneButtons) each.setAttribute("aria-pressed", "false");
  }

  // A guided scene: its setting from the start, running.
  show(id, { keepAddress = true } = {}) {
    const scene = SCENES.find((each) => each.id === id);
    this.pause();
    const whole = { ...DEFAULTS, ...scene.settings, seed: this.settings.seed };
    const { settings } = overlaid(DEFAULTS, whole);
    this.settings = settings;
    this.tell("");
    this.showControls();
    this.scene = scene;
    for (const each of this.sceneButtons) each.setAttribute("aria-pressed", String(each.dataset.scene === id));
    this.caption.replaceChildren(...mathematical(scene.caption));
    this.restart();
    if (keepAddress) this.keepAddress();
    this.run({ until: scene.until });
  }

  run({ until = 0 } = {}) {
    this.wanted = true;
    if (this.seen) this.trainer.postMessage({ kind: "run", speed: Number(this.speed.value), until });
    this.until = until;
    this.showPlaying();
  }

  pause() {
    this.wanted = false;
    this.trainer.postMessage({ kind: "pause" });
    this.showPlaying();
  }

  step() {
    if (this.wanted) this.pause();
    this.trainer.postMessage({ kind: "step", count: 1 });
  }

  // From step 0 with the same seed; what runs goes on running.
  restart() {
    const { values } = this.history;
    this.history = { steps: [], values: Object.fromEntries(Object.keys(values).map((name) => [name, []])), stride: 1, skipped: 0 };
    this.trail = [];
    this.takeOff = null;
    this.trainer.postMessage({ kind: "start", setting: coreNumbers(this.settings), seed: this.settings.seed, question: ++this.runs });
    this.settingChanged(EVERY.map(({ name }) => name));
    this.until = this.scene ? this.scene.until : 0;
    if (this.wanted) this.run({ until: this.until });
  }

  newSeed() {
    this.settings = { ...this.settings, seed: (this.settings.seed + 1) % SEED.high };
    this.restart();
    this.keepAddress();
  }

  // Not while nobody looks: neither in a hidden tab nor out of sight.
  get seen() {
    return !document.hidden && this.inView;
  }

  watch() {
    if (!this.seen) this.trainer.postMessage({ kind: "pause" });
    else if (this.wanted) this.trainer.postMessage({ kind: "run", speed: Number(this.speed.value), until: this.until || 0 });
  }

  // Something happens in the first second, unless the reader asked for less motion.
  begun() {
    if (this.wanted || this.scene) this.watch();
    else if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    else if (this.opened) this.run();
    else this.show("figure2", { keepAddress: false });
  }

  showPlaying() {
    this.playButton.textContent = this.wanted ? "❚❚ Pause" : "▶ Play";
    this.playButton.setAttribute("aria-pressed", String(this.wanted));
  }

  keepAddress() {
    clearTimeout(this.addressTimer);
    this.addressTimer = setTimeout(() => {
      // A sandboxed frame has no address of its own to keep it in.
      try { history.replaceState(null, "", toHash(this.settings)); } catch { /* nothing is lost: the link can be copied */ }
    }, 200);
  }

  followHash() {
    if (!location.hash.startsWith(HASH) || location.hash === toHash(this.settings)) return;
    const { settings, problems } = overlaid(DEFAULTS, fromHash(location.hash));
    this.settings = settings;
    this.tell(...problems, problems.length ? "Other settings are taken from the defaults." : "");
    this.showControls();
    this.leaveScene();
    this.restart();
  }

  async copyLink() {
    const link = location.href.split("#")[0] + toHash(this.settings);
    try {
      await navigator.clipboard.writeText(link);
      this.tell("The link is copied.");
    } catch {
      this.tell(`Copy this link: ${link}`);
    }
  }

  // The file for `topicscope train`, and the topics where they overlap.
  files() {
    const found = { "settings.toml": toToml(this.settings, this.frame?.step || 2000) };
    if (this.settings.overlap > 0) found["topic_words.csv"] = topicWords(this.settings);
    return found;
  }

  save() {
    for (const [name, text] of Object.entries(this.files())) {
      const url = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
      const link = make("a", { href: url, download: name });
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 10000);
    }
    this.tell("Saved. Run it with: topicscope train settings.toml --out runs/playground");
  }

  // ---- theory

  numbers(address, count) {
    return Array.from(new Float64Array(this.core.memory.buffer, address, count));
  }

  settingChanged(changed) {
    const s = this.settings;
    new Float64Array(this.core.memory.buffer, this.core.settings(), FIELDS.length).set(coreNumbers(s));
    const found = this.numbers(this.core.theory(), 20), classes = (at) => ({ mask_column: found[at], same_word: found[at + 1], same_topic: found[at + 2], different_topic: found[at + 3], loss: found[at + 4] });
    const masks = s.keep + s.random < 1 - 1e-9;
    this.theory = {
      // Closed forms are for the squared loss and visible masked keys, and Theorem 2 for topics that share no words.
      // Other optima are sampled.
      exact: s.masked_keys === "visible" && s.loss === "squared",
      optimum: s.masked_keys === "visible" && s.loss === "squared" ? classes(5) : null,
      theorem: masks && s.masked_keys === "visible" && s.loss === "squared" && !(s.overlap > 0) ? classes(0) : null,
      eigenvalues: { within: found[10], topics: found[11], mean: found[12], mask: found[13] },
      lambda1: found[18], lambda2: found[19] < 0 ? null : found[19],
    };
    this.computeLandscape();
    const drawn = ["topics", "words", "sampler", "per_document", "dirichlet", "overlap", "shortest", "longest", "mask", "keep", "random", "masked_keys"];
    if (changed.some((name) => drawn.includes(name))) this.askFloor();
    if (changed.some((name) => [...drawn, "loss", "l2"].includes(name))) this.askOptimum();
    else if (this.sampled) this.theory.optimum = this.sampled;
    this.askPrediction();
    this.dirty = true;
    this.schedule();
  }

  // What takes a while is computed in a worker of its own, when the sliders rest. An answer to an earlier question is no
  // answer, so questions are numbered.
  ask(timer, delay, worker, message) {
    clearTimeout(this[timer]);
    if (message) this[timer] = setTimeout(() => worker.postMessage({ setting: coreNumbers(this.settings), ...message }), delay);
  }

  askFloor() {
    const s = this.settings, question = ++this.floors;
    this.floor = null;
    // Where topics overlap the posterior is no finite sum. Where masked keys are hidden a model can tell which words are genuine.
    this.noFloor = s.overlap > 0 ? "not computed for overlapping topics" : s.masked_keys === "hidden" ? "not computed where masked keys are hidden" : "";
    this.ask("floorTimer", 150, this.floorer, this.noFloor ? null : { kind: "floor", documents: FLOOR_DOCUMENTS, question });
  }

  receiveFloor(data) {
    if (this.noFloor || data.question !== this.floors) return;
    this.floor = data;
    this.schedule();
  }

  askOptimum() {
    const question = ++this.optima;
    this.sampled = null;
    this.ask("optimumTimer", 150, this.optimiser, this.theory.exact ? null : { kind: "optimum", documents: OPTIMUM_DOCUMENTS, question });
  }

  receiveOptimum({ entries, loss, documents, question }) {
    if (question !== this.optima || this.theory.exact) return;
    const [mask_column, same_word, same_topic, different_topic] = entries, [mean, low, high] = loss;
    this.sampled = { loss: mean, low, high, documents };
    // Without L2 the cross-entropy's optimum is at infinity: [MASK] is never right. Its loss is not.
    if (this.settings.loss === "squared" || this.settings.l2 > 0) Object.assign(this.sampled, { mask_column, same_word, same_topic, different_topic });
    this.theory.optimum = this.sampled;
    this.schedule();
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

  askPrediction() {
    const s = this.settings, key = toHash(s);
    if (key === this.predictedFor) return;
    this.prediction = null;
    this.predictedFor = key;
    this.noPrediction = this.unpredictable();
    const question = ++this.predictions;
    this.ask("predictionTimer", 200, this.foreteller, this.noPrediction ? null : { kind: "predict", seed: s.seed, question });
  }

  receivePrediction({ steps, question }) {
    if (question !== this.predictions || this.noPrediction) return;
    this.prediction = steps.every((step) => step > 0) ? { low: Math.min(...steps), high: Math.max(...steps) } : { never: true };
    this.schedule();
  }

  predictionText() {
    if (this.noPrediction) return this.noPrediction;
    if (!this.prediction) return "The take-off of attention is being predicted.";
    if (this.prediction.never) return "Attention is predicted not to take off within 10 million steps.";
    const [low, high] = [this.prediction.low, this.prediction.high].map((step) => Math.round(Number(step.toPrecision(3))).toLocaleString("en"));
    return `Attention is predicted to take off ${low === high ? `at step ${low}` : `between steps ${low} and ${high}`}.`;
  }

  // Why there is no landscape; nothing if there is.
  flat() {
    const s = this.settings;
    if (s.overlap > 0) return "There is no landscape for overlapping topics: its formula is for topics that share no words.";
    if (s.masked_keys === "hidden") return "There is no landscape where masked keys are hidden: its formula is for visible ones.";
    if (s.per_document >= s.topics) return `There is no landscape: with τ = T = ${s.topics} every document has the same topics. Lower τ or raise T.`;
    if (s.keep + s.random > 1 - 1e-9) return "There is no landscape without [MASK] tokens: lower p_c or p_r.";
    return "";
  }

  computeLandscape() {
    this.landscape = null;
    if (this.flat()) return;
    const own = this.landscapeOf.value === "own" && this.settings.loss === "squared" && this.frame, m = own ? this.frame.measures : null;
    const [alpha, beta, loss, uniform] = this.numbers(own ? this.core.landscape(1, m.mask_column, m.same_word, m.same_topic, m.different_topic) : this.core.landscape(0, 0, 0, 0, 0), 4);
    const low = Math.log(0.05), high = Math.log(Math.max(300, 20 * Math.max(alpha, beta) < 1e6 ? 20 * Math.max(alpha, beta) : 300));
    const grid = this.numbers(this.core.landscape_grid(GRID, low, high), GRID * GRID);
    this.landscape = { alpha, beta, loss, uniform, grid, points: GRID, low, high, least: Math.min(loss, ...grid), optimum: [alpha, beta], at: performance.now() };
  }

  // ---- frames

  receive(data) {
    if (data.kind === "stopped") {
      this.running = false;
      if (this.until && this.frame?.step >= this.until) {
        this.wanted = false;
        this.until = 0;
        this.showPlaying();
      }
      return;
    }
    if (data.kind === "diverged") {
      this.wanted = false;
      this.showPlaying();
      this.tell(`Training diverged at step ${data.step}: lower the learning rate, then restart.`);
      return;
    }
    // A picture of the run before, still on its way.
    if (data.question !== this.runs) {
      this.trainer.postMessage({ kind: "drawn" });
      return;
    }
    this.frame = { ...this.frame, ...data, documents: data.documents || this.frame?.documents, measures: Object.fromEntries(MEASURES.map((name, at) => [name, data.measured[at]])) };
    this.running = data.running;
    this.remember();
    this.schedule();
  }

  // Keep at most so many points, every second one dropped when there are more.
  remember() {
    const { frame, history } = this, { measures } = frame;
    if (measures.from_uniform >= TAKE_OFF && this.takeOff === null) this.takeOff = { step: frame.step, gain: this.gain() };
    if (history.skipped + 1 < history.stride && frame.running) {
      history.skipped++;
      return;
    }
    history.skipped = 0;
    history.steps.push(frame.step);
    for (const name of CURVES) history.values[name].push(name === "loss" ? frame.loss ?? NaN : measures[name]);
    const { attention_same_topic: topic, attention_same_word: word, attention_different_topic: different } = measures;
    if (different > 0) this.trail.push([topic / different, word / different]);
    if (this.trail.length > TRAIL) this.trail = this.trail.filter((_, i) => i % 2 === 1 || i > TRAIL - 20);
    if (history.steps.length > MOST_POINTS) {
      const kept = (list) => list.filter((_, i) => i % 2 === 0);
      history.steps = kept(history.steps);
      for (const name of CURVES) history.values[name] = kept(history.values[name]);
      history.stride *= 2;
    }
  }

  // The share of what the optimum under uniform attention gains that W^V has.
  gain() {
    const best = this.theory?.exact ? this.theory.optimum.loss : null;
    return best ? (1 - this.frame.measures.uniform_loss) / (1 - best) : null;
  }

  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.draw();
      this.trainer.postMessage({ kind: "drawn" });
      this.drawn = { at: performance.now(), mask: this.settings.mask, topics: this.frame?.vocabulary === this.settings.topics * this.settings.words + 1 ? this.settings.topics : null };
    });
  }

  draw(all = false) {
    const { frame, settings, theory, canvases } = this, colours = theme(this.root), dark = this.dark.matches;
    if (!frame || !theory) return;
    const size = frame.vocabulary, m = frame.measures, optimum = theory.optimum;
    this.facts.step.textContent = frame.step.toLocaleString("en");
    this.facts.rate.textContent = frame.running ? Math.round(frame.rate).toLocaleString("en") : "0";
    if (frame.loss !== null) this.facts.loss.textContent = frame.loss.toFixed(4);
    if (frame.documents && (all || this.dirty || frame.documents !== this.drawnDocuments)) {
      drawDocuments(canvases.documents, frame.documents, settings, colours, dark);
      this.drawnDocuments = frame.documents;
    }
    const classes = [m.same_word, m.same_topic, m.different_topic, m.mask_column], scale = 1.1 * Math.max(...classes.map(Math.abs), 3 * m.norm_value / size) || 1;
    drawMatrix(canvases.value, size, (row, column) => frame.value[column * size + row], scale, colours);
    this.legends.matrix.textContent = `Rows are the words to predict, columns the words seen. Blue is −${brief(scale)}, orange ${brief(scale)}.`;
    this.drawReference(scale, colours, all);
    this.drawTable(m);
    this.drawHistory(colours);
    if (this.landscapeOf.value === "own" && this.landscape && performance.now() - this.landscape.at > 500) this.computeLandscape();
    const land = this.landscape;
    this.canvases.landscape.hidden = !land;
    // What cross-entropy trains are logits, which have no squared loss.
    this.landscapeOf.hidden = !land || settings.loss !== "squared";
    if (!land) this.legends.landscape.replaceChildren(...mathematical(this.flat()));
    else {
      drawLandscape(canvases.landscape, { ...land, trail: settings.parts === "uniform" ? this.trail.slice(-1) : this.trail }, colours);
      this.legends.landscape.textContent = `Squared loss, infinite documents of τ = ${settings.per_document} topics. The cross is the optimum, α = ${brief(land.alpha)}, β = ${brief(land.beta)}; uniform attention is white, the trained point orange.`;
    }
    this.dirty = false;
    if (!this.saidAt || performance.now() - this.saidAt > 1000) this.describe(m, optimum);
  }

  drawReference(scale, colours, all) {
    const kind = this.legends.reference.value, classes = this.theory[kind], size = this.frame.vocabulary, words = this.settings.words;
    const known = classes?.same_word !== undefined;
    this.canvases.reference.hidden = !known;
    this.missing.replaceChildren(...mathematical(known ? "" : this.whyNoMatrix(kind)));
    if (!known) return;
    const key = `${kind} ${size} ${scale.toPrecision(2)} ${Object.values(classes)}`;
    if (key === this.drawnReference && !all) return;
    this.drawnReference = key;
    drawMatrix(this.canvases.reference, size, (row, column) => {
      if (!row) return 0;
      if (!column) return classes.mask_column;
      if (row === column) return classes.same_word;
      return Math.floor((row - 1) / words) === Math.floor((column - 1) / words) ? classes.same_topic : classes.different_topic;
    }, scale, colours);
  }

  whyNoMatrix(kind) {
    const s = this.settings;
    if (kind === "theorem" && s.loss !== "squared") return "Theorem 2 is about the squared loss.";
    if (kind === "theorem") return s.overlap > 0 ? "Theorem 2 is about topics that share no words." : s.masked_keys === "hidden" ? "Theorem 2 is about visible masked keys." : "Theorem 2 needs [MASK] tokens: lower p_c or p_r.";
    return this.theory.optimum ? "Under cross-entropy without L2 the optimum is at infinity; its loss is drawn. Raise λ to see a matrix." : "The optimum is being computed.";
  }

  drawTable(m) {
    const { optimum, theorem, eigenvalues, exact } = this.theory, digits = (value) => (value === undefined || value === null ? "–" : value.toFixed(4));
    const lines = [["same word", "same_word"], ["same topic", "same_topic"], ["different topic", "different_topic"], ["[MASK]'s column", "mask_column"]];
    const rows = [...lines.map(([label, name]) => [label, digits(m[name]), digits(optimum?.[name]), digits(theorem?.[name])]),
      [`expected ${this.settings.loss === "squared" ? "squared loss" : "cross-entropy"}, uniform attention`, digits(exact ? m.uniform_loss : null), digits(optimum?.loss), digits(exact ? theorem?.loss : null)]];
    this.table.replaceChildren(...rows.map((row) => make("tr", {}, ...row.map((cell, i) => make(i ? "td" : "th", i ? {} : { scope: "row" }, cell)))));
    const rate = this.settings.learning_rate, pace = (value) => brief(1 / (2 * rate * value));
    const gain = this.gain(), far = m.from_uniform, sentences = [];
    if (gain !== null) sentences.push(`W^V has made ${Math.round(100 * gain)} % of the gain that uniform attention allows.`);
    if (["all", "theorem"].includes(this.settings.parts)) sentences.push(this.takeOff ? `Attention took off at step ${this.takeOff.step.toLocaleString("en")}; a word's is now ${far.toFixed(2)} from uniform.` : `A word's attention is ${far.toFixed(3)} from uniform; at ${TAKE_OFF} it has taken off.`);
    if (exact && this.settings.optimizer === "sgd" && this.settings.parts !== "theorem")
      sentences.push(`Under SGD the distance to the optimum falls to 37 % within ${pace(eigenvalues.topics)} steps for topics, and within ${pace(eigenvalues.within)} for words of a topic.`);
    sentences.push(this.predictionText());
    this.paces.replaceChildren(...mathematical(sentences.join(" ")));
  }

  drawHistory(colours) {
    const { history, theory, settings } = this, { steps, values } = history, { optimum } = theory, squared = settings.loss === "squared";
    const references = [], curves = [{ values: values.loss, colour: COLOURS.topic, faint: squared && settings.parts === "uniform", thin: true }];
    if (theory.exact) curves.push({ values: values.uniform_loss, colour: COLOURS.word });
    this.exactly.hidden = !theory.exact;
    if (optimum) references.push({ at: optimum.loss, band: theory.exact ? null : [optimum.low, optimum.high], colour: COLOURS.optimum });
    const within = (mean, low, high) => `${mean.toFixed(4)} ± ${((high - low) / 2).toFixed(4)}`;
    this.optimumText.textContent = `optimum under uniform attention${!optimum ? ": being computed" : theory.exact ? ` ${optimum.loss.toFixed(4)}` : ` ${within(optimum.loss, optimum.low, optimum.high)}`}`;
    if (this.floor) {
      const [mean, low, high] = this.floor[settings.loss];
      references.push({ at: mean, band: [low, high], colour: COLOURS.floor });
      this.floorText.textContent = `Bayes floor ${within(mean, low, high)}`;
    } else this.floorText.textContent = `Bayes floor: ${this.noFloor || "being computed"}`;
    drawCurves(this.canvases.loss, { steps, curves, references, to: squared ? 1.005 : null }, colours);
    const kinds = [["same_word", COLOURS.word], ["same_topic", COLOURS.topic], ["different_topic", COLOURS.different]];
    const byClass = kinds.map(([name, colour]) => ({ values: values[name], colour }));
    if (theory.exact && settings.optimizer === "sgd" && settings.parts === "uniform" && steps.length) {
      const path = steps.map((step) => this.numbers(this.core.descent(settings.learning_rate, step), 4));
      kinds.forEach(([, colour], i) => byClass.push({ values: path.map((classes) => classes[i + 1]), colour, dash: [2, 3], thin: true }));
    }
    drawCurves(this.canvases.classes, { steps, curves: byClass, references: optimum?.same_word !== undefined ? kinds.map(([name, colour]) => ({ at: optimum[name], colour })) : [] }, colours);
    const attention = kinds.map(([name, colour]) => ({ values: values[`attention_${name}`].map((value) => 100 * value), colour }));
    const uniform = 200 / (settings.shortest + settings.longest);
    const foreseen = this.prediction && !this.prediction.never ? [{ step: (this.prediction.low + this.prediction.high) / 2, at: NaN, colour: COLOURS.optimum, dash: [6, 4] }] : [];
    drawCurves(this.canvases.attention, { steps, curves: attention, references: [{ at: uniform, colour: colours.soft }], dots: foreseen, from: 0 }, colours);
    const foretold = foreseen.length ? "upright, dashed: predicted take-off" : "", told = (...parts) => parts.filter(Boolean).join("; ");
    this.notes.classes.textContent = told(optimum?.same_word !== undefined && "dashed: optimum", byClass.length > 3 && "dotted: gradient descent, exactly");
    this.notes.attention.textContent = told("dashed: uniform", foretold);
    this.notes.norms.textContent = told(this.takeOff && "upright, dotted: attention takes off", foretold);
    const dots = this.takeOff ? [{ step: this.takeOff.step, at: NaN, colour: colours.ink }] : [];
    drawCurves(this.canvases.norms, { steps, curves: [["norm_value", COLOURS.topic], ["norm_key", COLOURS.word], ["norm_query", COLOURS.different]].map(([name, colour]) => ({ values: values[name], colour })), dots: [...dots, ...foreseen], log: true }, colours);
  }

  // Words for those who do not see the pictures.
  describe(m, optimum) {
    this.saidAt = performance.now();
    const label = (name, text) => this.canvases[name].setAttribute("aria-label", text);
    label("value", `W^V at step ${this.frame.step}: same word ${brief(m.same_word)}, same topic ${brief(m.same_topic)}, different topic ${brief(m.different_topic)} on average`);
    if (optimum?.same_word !== undefined) label("reference", `Theory's W^V: same word ${brief(optimum.same_word)}, same topic ${brief(optimum.same_topic)}, different topic ${brief(optimum.different_topic)}`);
    label("attention", `Average attention times 100: same word ${brief(100 * m.attention_same_word)}, same topic ${brief(100 * m.attention_same_topic)}, different topic ${brief(100 * m.attention_different_topic)}`);
    label("norms", `Norms: W^V ${brief(m.norm_value)}, W^K ${brief(m.norm_key)}, W^Q ${brief(m.norm_query)}`);
    if (this.frame.loss !== null) label("loss", `Loss at step ${this.frame.step}: ${this.frame.loss.toFixed(4)}`);
  }

  // ---- for tests, and for whoever embeds it

  state() {
    const { frame } = this, m = frame?.measures;
    if (!m) return { step: 0, running: false, settings: { ...this.settings }, problems: [...this.problems] };
    return {
      step: frame.step, loss: frame.loss, steps_per_second: frame.running ? frame.rate : 0, running: this.wanted, settings: { ...this.settings }, scene: this.scene?.id ?? null,
      value: { same_word: m.same_word, same_topic: m.same_topic, different_topic: m.different_topic, mask_column: m.mask_column },
      attention: { same_word: m.attention_same_word, same_topic: m.attention_same_topic, different_topic: m.attention_different_topic, from_uniform: m.from_uniform },
      norms: { value: m.norm_value, key: m.norm_key, query: m.norm_query }, uniform_loss: this.theory.exact ? m.uniform_loss : null, gain: this.gain(), take_off: this.takeOff, prediction: this.prediction ?? null, drawn: this.drawn,
      theory: { optimum: this.theory.optimum, theorem: this.theory.theorem, eigenvalues: this.theory.eigenvalues, landscape: this.landscape && { alpha: this.landscape.alpha, beta: this.landscape.beta, loss: this.landscape.loss } },
      floor: this.floor && { documents: this.floor.documents, cross_entropy: this.floor.cross_entropy, squared: this.floor.squared }, problems: [...this.problems],
    };
  }
}

const bytesOf = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)).buffer;

async function startPlayground() {
  const read = (id) => document.getElementById(id).textContent, root = document.getElementById("playground");
  const made = new Playground(root, bytesOf(read("playground-wasm").trim()), read("playground-worker"), JSON.parse(read("playground-settings")));
  try {
    await made.begin();
  } catch (error) {
    made.tell(`The playground cannot run here (${error.message}): it needs a browser with WebAssembly SIMD and workers.`);
    root.dataset.ready = "failed";
    return;
  }
  window.topicscope = Object.assign(window.topicscope || {}, {
    playground: {
      state: () => made.state(), set: (settings) => made.set(settings), run: (options) => made.run(options), pause: () => made.pause(), step: () => made.step(),
      restart: () => made.restart(), show: (scene) => made.show(scene), files: () => made.files(), scenes: SCENES.map(({ id, title, caption }) => ({ id, title, caption })),
    },
  });
  root.dataset.ready = "yes";
}

startPlayground();
