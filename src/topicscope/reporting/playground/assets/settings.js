// What can be chosen, what is allowed, and its forms: numbers for the core, the address's hash, settings.toml.

const MOST_WORDS = 256;
// In the order in which the core reads them. "log" sliders move by factors.
const FIELDS = [
  { name: "topics", symbol: "T", label: "topics", group: "documents", low: 2, high: 64, whole: true, start: 10, restarts: true },
  { name: "words", symbol: "v", label: "words per topic", group: "documents", low: 1, high: 64, whole: true, start: 10, restarts: true },
  { name: "sampler", label: "topics of a document", long: true, group: "documents", options: [["dirichlet", "shares from a Dirichlet (LDA)"], ["topics", "τ of T topics, equal shares"]], start: "dirichlet" },
  { name: "per_document", symbol: "τ", label: "topics per document", group: "documents", low: 1, high: 64, whole: true, start: 2 },
  { name: "dirichlet", symbol: "α", label: "of the Dirichlet", group: "documents", low: 0.01, high: 10, log: true, start: 0.1 },
  { name: "overlap", symbol: "", label: "overlap of topics", group: "documents", low: 0, high: 1, step: 0.05, start: 0 },
  { name: "shortest", label: "shortest document", group: "documents", low: 2, high: 400, whole: true, start: 100 },
  { name: "longest", label: "longest document", group: "documents", low: 2, high: 400, whole: true, start: 150 },
  { name: "mask", symbol: "p_m", label: "masked", group: "masking", low: 0.01, high: 0.95, step: 0.01, start: 0.15 },
  { name: "keep", symbol: "p_c", label: "of these kept", group: "masking", low: 0, high: 1, step: 0.01, start: 0.1 },
  { name: "random", symbol: "p_r", label: "of these random", group: "masking", low: 0, high: 1, step: 0.01, start: 0.1 },
  { name: "masked_keys", label: "masked keys", group: "masking", options: [["visible", "visible"], ["hidden", "hidden"]], start: "visible" },
  { name: "loss", label: "loss", group: "training", options: [["cross_entropy", "cross-entropy"], ["squared", "squared"]], start: "squared" },
  { name: "optimizer", label: "optimiser", group: "training", options: [["sgd", "SGD"], ["momentum", "momentum 0.9"], ["adam", "Adam"]], start: "adam" },
  { name: "learning_rate", symbol: "η", label: "learning rate", group: "training", low: 1e-5, high: 30, log: true, start: 0.01 },
  { name: "adam_epsilon", symbol: "ε", label: "Adam's epsilon", group: "training", low: 1e-12, high: 0.1, log: true, start: 1e-8 },
  { name: "batch", label: "documents per step", group: "training", low: 1, high: 200, whole: true, start: 40 },
  { name: "l2", symbol: "λ", label: "L2", group: "training", low: 0, high: 0.1, log: true, zero: 1e-8, start: 1e-5 },
  { name: "scale", symbol: "s", label: "initial weights N(0, s²)", group: "model", low: 0, high: 1, log: true, zero: 1e-7, start: 0.001, restarts: true },
  { name: "parts", label: "what is trained", group: "model", long: true, options: [["all", "all of eq. 7: values, keys, queries"], ["uniform", "values, attention held uniform"], ["value", "values, attention frozen at its start"], ["theorem", "attention, values at Theorem 2's"]], start: "uniform" },
];
const GROUPS = { documents: "Documents", masking: "Masking", training: "Training", model: "Model" };
const SEED = { name: "seed", low: 0, high: 2 ** 31, whole: true, start: 0, label: "seed" };
const EVERY = [...FIELDS, SEED];
const DEFAULTS = Object.freeze(Object.fromEntries(EVERY.map((field) => [field.name, field.start])));

const SYMBOLS = Object.fromEntries(FIELDS.map((field) => [field.name, field.symbol || field.label]));

// One sentence on what is wrong with a value by itself, or nothing.
function problemOf(field, value) {
  if (field.options) {
    const allowed = field.options.map(([name]) => name);
    return allowed.includes(value) ? "" : `${field.name} = ${String(value).slice(0, 40)} is not allowed: give one of ${allowed.join(", ")}.`;
  }
  const range = `a ${field.whole ? "whole number" : "number"} from ${field.low} to ${field.high}`;
  const wrong = typeof value !== "number" || !Number.isFinite(value) || value < field.low || value > field.high || (field.whole && !Number.isInteger(value));
  return wrong ? `${field.name} = ${String(value).slice(0, 40)} is not allowed: give ${range}.` : "";
}

// One sentence on settings that do not go together, or nothing.
function conflictIn(s) {
  if (s.topics * s.words > MOST_WORDS) return `T·v = ${s.topics * s.words} is too large for a browser to train live: it may be at most ${MOST_WORDS}; lower T or v.`;
  if (s.per_document > s.topics && s.sampler === "topics") return `τ = ${s.per_document} is not allowed: a document cannot have more than T = ${s.topics} distinct topics.`;
  if (s.shortest > s.longest) return `The shortest document (${s.shortest} words) may not be longer than the longest (${s.longest}).`;
  if (s.keep + s.random > 1 + 1e-9) return `p_c + p_r = ${Number((s.keep + s.random).toFixed(4))} is not allowed: together they may be at most 1.`;
  const some = 1 - (1 - s.mask) ** s.shortest, all = s.masked_keys === "hidden" ? s.mask ** s.shortest : 0;
  if (some - all < 1e-3) return `A document of ${s.shortest} words almost never has a masked position and a visible key at p_m = ${s.mask}: lengthen documents.`;
  if (s.parts === "theorem" && s.keep + s.random > 1 - 1e-9) return "Theorem 2's W^V needs [MASK] tokens: lower p_c or p_r.";
  return "";
}

// Settings over others: those that are allowed, and a sentence for each that is not. Never throws.
function overlaid(under, over) {
  const result = { ...under }, problems = [];
  for (const [name, value] of Object.entries(over)) {
    const field = EVERY.find((each) => each.name === name);
    const problem = field ? problemOf(field, value) : `${name.slice(0, 40)} is not a setting of the playground.`;
    if (problem) problems.push(problem);
    else result[name] = value;
  }
  // τ is of no effect for the Dirichlet, and follows T.
  if (result.per_document > result.topics && result.sampler !== "topics") result.per_document = result.topics;
  const conflict = conflictIn(result);
  if (conflict) problems.push(conflict);
  return { settings: conflict ? { ...under } : result, problems };
}

const coreNumbers = (s) => FIELDS.map((field) => {
  const value = s[field.name];
  return field.options ? field.options.findIndex(([name]) => name === value) : value;
});

const HASH = "#playground?";
const toHash = (s) => HASH + EVERY.filter(({ name }) => s[name] !== DEFAULTS[name]).map(({ name }) => `${name}=${s[name]}`).join("&");

// The settings that an address asks for. Anything may stand there: what is no setting is told, and defaults are taken.
function fromHash(hash) {
  const asked = {};
  if (!hash.startsWith(HASH)) return asked;
  for (const pair of hash.slice(HASH.length).slice(0, 2000).split("&").filter(Boolean).slice(0, 60)) {
    const [name, text = ""] = pair.split("=");
    let plain = text;
    try { plain = decodeURIComponent(text); } catch { /* kept as it is, and refused */ }
    const field = EVERY.find((each) => each.name === name);
    asked[name] = field && !field.options ? (plain.trim() === "" ? NaN : Number(plain)) : plain;
  }
  return asked;
}

// The file that `topicscope train` runs: the same setting, from step 0.
function toToml(s, steps) {
  const part = (name, lines) => `[model.${name}]\n${lines.join("\n")}\n`;
  const number = (value) => (Number.isInteger(value) ? value.toFixed(1) : String(value));
  const frozen = ['start = "zero"', "train = false"];
  const drawn = (train) => [`scale = ${number(s.scale)}`, `train = ${train}`];
  const attention = s.parts === "uniform" ? frozen : drawn(s.parts !== "value");
  const value = s.parts === "theorem" ? ['start = "theorem"', "train = false"] : drawn(true);
  const topics = s.overlap > 0
    ? ["# Topics that overlap are given as a matrix, saved beside this file.", 'topic_words = "topic_words.csv"']
    : [`topics = ${s.topics}`, `words = ${s.words}`];
  return [
    "# From the playground: eq. 7 with one-hot embeddings, fresh documents at every step.",
    `seed = ${s.seed}`, "",
    "[data]", `sampler = "${s.sampler}"`, ...topics,
    ...(s.sampler === "topics" ? [`per_document = ${s.per_document}`] : [`dirichlet = [${number(s.dirichlet)}]`]),
    `length = [${s.shortest}, ${s.longest}]`, "fresh = true", "",
    "[masking]", `mask = ${number(s.mask)}`, `keep = ${number(s.keep)}`, `random = ${number(s.random)}`, "",
    "[model]", `masked_keys = "${s.masked_keys}"`, "",
    part("embedding", ['start = "identity"', "train = false"]), part("value", value), part("key", attention), part("query", attention),
    ...["key_bias", "query_bias", "value_bias", "prediction_bias"].map((name) => part(name, ["train = false"])),
    "[training]", `loss = "${s.loss}"`, `optimizer = "${s.optimizer}"`, `learning_rate = ${number(s.learning_rate)}`,
    `adam_epsilon = ${number(s.adam_epsilon)}`, `batch = ${s.batch}`, `l2 = ${number(s.l2)}`, `steps = ${Math.max(1, steps)}`, "",
  ].join("\n");
}

// The topic-word matrix of topics that overlap, a row per topic.
function topicWords(s) {
  const lines = [], all = s.topics * s.words;
  for (let topic = 0; topic < s.topics; topic++) {
    const row = Array.from({ length: all }, (_, word) => (Math.floor(word / s.words) === topic ? (1 - s.overlap) / s.words : 0) + s.overlap / all);
    lines.push(row.join(","));
  }
  return lines.join("\n") + "\n";
}

// Guided scenes: a setting, how long it runs, and what it shows, which a test reads from the numbers.

const SCENES = [
  {
    id: "figure2", title: "Figure 2", until: 1500, settings: {},
    caption: "Attention is uniform, and W^V alone is trained. Within a few hundred steps the topics stand out as blocks, and W^V settles at the optimum for documents of this length, not at that of Theorem 2: its diagonal is about twice as high as its blocks.",
  },
  {
    id: "stages", title: "Two stages", until: 1500,
    settings: { parts: "all", learning_rate: 0.003, adam_epsilon: 1e-6, l2: 0 },
    caption: "All three matrices are trained from near zero. W^V comes first: when attention ceases to be uniform, W^V already has more than two thirds of all that it can gain under uniform attention. Then attention turns to the query's own topic.",
  },
  {
    id: "predicted", title: "Take-off, predicted", until: 3200,
    settings: { parts: "all", topics: 6, words: 4, sampler: "topics", per_document: 3, mask: 0.2, keep: 0.3, random: 0.2, optimizer: "sgd", learning_rate: 5, scale: 0.01, l2: 0 },
    caption: "A small vocabulary and plain SGD. Long before attention moves, theory says when it will: thirty equations, followed from this seed's start, give the dashed upright line in the pictures of attention and of the norms. Wait for it.",
  },
  {
    id: "never", title: "p_c = 0: attention never learns topics", until: 1500,
    settings: { parts: "theorem", sampler: "topics", keep: 0, l2: 0, learning_rate: 0.003 },
    caption: "No masked word is ever kept, so the word at a query says nothing about the word to predict, and attention has no reason to prefer its topic: same and different topic stay alike. Raise p_c to 0.1 and watch them part.",
  },
  {
    id: "sgd", title: "SGD passes Theorem 2's block, the diagonal comes later", until: 3000,
    settings: { optimizer: "sgd", learning_rate: 3, scale: 0.0001, l2: 0 },
    caption: "Plain SGD learns each direction at its own pace: topics within a hundred steps, words within a topic fifty times more slowly. At step 100 W^V is near Theorem 2's flat blocks; only thousands of steps later the diagonal of the finite-document optimum stands out.",
  },
  {
    id: "overlap", title: "Overlapping topics", until: 1500,
    settings: { overlap: 0.5 },
    caption: "Half of all words are drawn from the whole vocabulary, whatever the topic, so topics are no longer disjoint as the paper assumes. Blocks form all the same, at the optimum for such topics, but they explain much less: the loss stays nearer to 1.",
  },
];
