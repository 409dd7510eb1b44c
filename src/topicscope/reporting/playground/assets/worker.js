"use strict";
// Trains, or computes what takes a while (the Bayes floor, the sampled optimum, the predicted take-off), away from the
// page: one instance of the compiled core per worker.

const SLICE = 12; // milliseconds of work between two looks at the messages
const FRAME = 33; // milliseconds between two pictures
const DOCUMENTS = 400; // milliseconds between two pictures of documents, which nobody reads faster
let core = null, running = false, speed = 0, waiting = false, timer = null;
let frameAt = 0, documentsAt = 0, lossSum = 0, lossCount = 0, until = 0;
let rateSteps = 0, rateSince = 0, rate = 0, owed = 0, lastSlice = 0;
let numbers = [], question = 0;

const doubles = (address, count) => Array.from(new Float64Array(core.memory.buffer, address, count));

function write(setting) {
  numbers = setting;
  new Float64Array(core.memory.buffer, core.settings(), setting.length).set(setting);
}

function frame(withDocuments) {
  const vocabulary = numbers[0] * numbers[1] + 1, width = core.padded_width();
  const measured = doubles(core.measure(), 14);
  const packed = (matrix) => {
    const from = new Float32Array(core.memory.buffer, matrix, width * width), to = new Float32Array(vocabulary * vocabulary);
    for (let row = 0; row < vocabulary; row++) to.set(from.subarray(row * width, row * width + vocabulary), row * vocabulary);
    return to;
  };
  const value = packed(core.weights(0));
  const message = {
    kind: "frame", question, step: core.steps_done(), loss: lossCount ? lossSum / lossCount : null, measured, value, vocabulary, rate, running,
  };
  if (withDocuments) message.documents = new Uint8Array(core.memory.buffer, core.shown_documents(), 8 * core.document_bytes()).slice();
  lossSum = lossCount = 0;
  waiting = true;
  postMessage(message, [value.buffer]);
}

function train(steps) {
  for (let i = 0; i < steps; i++) {
    const loss = core.train(1);
    lossSum += loss;
    lossCount++;
    if (!Number.isFinite(loss)) {
      running = false;
      postMessage({ kind: "diverged", step: core.steps_done() });
      return;
    }
    if (until && core.steps_done() >= until) {
      running = false;
      until = 0;
      return;
    }
  }
}

function slice() {
  timer = null;
  if (!running) return;
  const began = performance.now();
  if (speed) {
    // So many steps per second, whatever a slice can do.
    owed = Math.min(owed + ((began - lastSlice) / 1000) * speed, 1 + speed / 10);
    lastSlice = began;
    while (running && owed >= 1 && performance.now() - began < SLICE) {
      train(1);
      owed--;
      rateSteps++;
    }
  } else {
    while (running && performance.now() - began < SLICE) {
      train(1);
      rateSteps++;
    }
  }
  const now = performance.now();
  if (now - rateSince > 500) {
    rate = (1000 * rateSteps) / (now - rateSince);
    rateSteps = 0;
    rateSince = now;
  }
  if (!running || (!waiting && now - frameAt >= FRAME)) {
    const withDocuments = !running || now - documentsAt >= DOCUMENTS;
    if (withDocuments) documentsAt = now;
    frameAt = now;
    frame(withDocuments);
  }
  if (!running) postMessage({ kind: "stopped" });
  else again();
}

// A message to oneself comes at once; timeouts are held back to 4 ms.
const bell = new MessageChannel();
bell.port1.onmessage = slice;
function again() {
  if (speed && speed < 100) timer = setTimeout(slice, 10);
  else bell.port2.postMessage(0);
}

// What takes long goes on in slices, so that a new question is heard; the old one is then forgotten.
let work = null;
function goOn() {
  const began = performance.now(), mine = work;
  let answer = null;
  while (work === mine && answer === null && performance.now() - began < 10 * SLICE) answer = mine();
  if (answer) postMessage({ question, ...answer });
  if (answer?.done) work = null;
  else setTimeout(() => work === mine && goOn(), 0);
}

// A mean over documents with its 95 % interval, from their number, sum and sum of squares.
function interval(count, sum, squares) {
  const mean = sum / count, half = 1.96 * Math.sqrt(Math.max(squares / count - mean * mean, 0) / (count - 1));
  return [mean, mean - half, mean + half];
}

// Documents a few at a time; what is known so far is told several times per second.
function inParts(documents, add, answer) {
  let told = performance.now();
  return () => {
    const sums = add(), done = sums[0] >= documents;
    if (!done && performance.now() - told < 10 * SLICE) return null;
    told = performance.now();
    return { ...answer(sums), documents: sums[0], done };
  };
}

const tasks = {
  start({ setting, seed, question: number }) {
    write(setting);
    question = number;
    core.start(seed);
    lossSum = lossCount = rateSteps = 0;
    rateSince = performance.now();
    frame(true);
  },
  change({ setting, forget, theorem }) {
    write(setting);
    if (forget) core.forget();
    if (theorem) core.set_theorem_2();
    core.draw_held_out();
    lossSum = lossCount = 0;
    if (!running) frame(true);
  },
  run(message) {
    speed = message.speed;
    until = message.until || 0;
    lastSlice = rateSince = performance.now();
    rateSteps = 0;
    if (running) return;
    running = true;
    again();
  },
  pause() {
    if (!running) return;
    running = false;
    if (timer) clearTimeout(timer);
    timer = null;
    frame(true);
    postMessage({ kind: "stopped" });
  },
  step({ count }) {
    train(count);
    frame(true);
  },
  drawn() {
    waiting = false;
  },
  // Two samples of documents tell how sure the prediction is.
  predict({ setting, seed, question: number }) {
    write(setting);
    question = number;
    const steps = [];
    let begun = false;
    work = () => {
      if (!begun) core.predict_begin(seed, steps.length + 1);
      begun = true;
      const step = core.predict_more(1e7);
      if (step === 0) return null;
      steps.push(step);
      begun = false;
      return { kind: "predict", steps, done: steps.length === 2 };
    };
    goOn();
  },
  floor({ setting, documents, question: number }) {
    write(setting);
    question = number;
    core.floor_begin(1);
    work = inParts(documents, () => doubles(core.floor_add(5), 5), ([count, ...sums]) => ({
      kind: "floor", cross_entropy: interval(count, sums[0], sums[1]), squared: interval(count, sums[2], sums[3]),
    }));
    goOn();
  },
  // First the six entries, then their loss on other documents.
  optimum({ setting, documents, question: number }) {
    write(setting);
    question = number;
    core.optimum_begin(1);
    const loss = inParts(documents, () => doubles(core.optimum_add(50), 3), ([count, ...sums]) => ({
      kind: "optimum", entries: doubles(core.optimum_entries(), 6), loss: interval(count, ...sums),
    }));
    let found = false;
    work = () => {
      if (found) return loss();
      found = core.optimum_step() !== 0;
      return null;
    };
    goOn();
  },
};

onmessage = async ({ data }) => {
  if (data.kind === "core") {
    const { instance } = await WebAssembly.instantiate(data.bytes, {});
    core = instance.exports;
    postMessage({ kind: "ready", bytes: core.memory.buffer.byteLength });
    return;
  }
  tasks[data.kind](data);
};
