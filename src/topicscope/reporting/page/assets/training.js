// Training: one slider over steps drives every panel.

const CLASS_NAMES = ["same word", "same topic", "different topic", "[MASK] column", "[MASK] row"];
const PART_NAMES = { embedding: "W^E", value: "W^V", key: "W^K", query: "W^Q", key_bias: "b^K", query_bias: "b^Q", value_bias: "b^V", prediction_bias: "b^pred" };
// A layer below 0 stands for all: each one's matrices, and attention averaged over them.
const training = { run: null, seed: 0, layer: -1, frame: 0, timer: null, wanted: null };

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

// [seed, snapshot, layer, class] → numbers of the classes, of the chosen layer or of all on average.
function attentionAt(seed, place) {
  const [, snapshots, layers, width] = shape(training.run.attention);
  const { layer } = training, first = ((seed * snapshots + place) * layers + Math.max(layer, 0)) * width;
  const count = layer < 0 ? layers : 1, values = numbers(training.run.attention).subarray(first, first + count * width);
  return Array.from({ length: width }, (_, kind) => {
    let sum = 0;
    for (let at = kind; at < values.length; at += width) sum += values[at];
    return sum / count;
  });
}

// A file's name has the run, by the last parts of its path, and what is shown of it.
function fileOf(...parts) {
  const folders = training.run.name.split(/[\\/]/).filter((part) => part && !/^(seed-\d+|\.+)$/.test(part));
  return [...folders.slice(-2), ...parts].map(slug).join("-");
}

const seedName = () => `seed-${training.run.seeds[training.seed]}`;
const layerName = () => (shape(training.run.attention)[2] < 2 ? [] : [training.layer < 0 ? "all-layers" : `layer-${training.layer + 1}`]);
const snapshotCount = () => shape(training.run.frameSteps)[0];
// Without snapshots, the last step that was logged.
const frameStep = () => (snapshotCount() ? numbers(training.run.frameSteps)[training.frame] : training.run.done);

function sayStep() {
  const text = `${frameStep().toLocaleString("en")} of ${training.run.total.toLocaleString("en")}`;
  $("step").textContent = text;
  $("frame").setAttribute("aria-valuetext", `step ${text}`);
}

function moveTo(place) {
  training.frame = place;
  $("frame").value = place;
  sayStep();
  updateMaps();
  updateCurves();
}

// Many slider events a frame are one move.
function askFor(place) {
  if (training.wanted === null) requestAnimationFrame(() => {
    const last = training.wanted;
    training.wanted = null;
    moveTo(last);
  });
  training.wanted = place;
}

function play() {
  const going = training.timer !== null;
  if (going) {
    clearInterval(training.timer);
    training.timer = null;
  } else {
    const last = Number($("frame").max);
    if (training.frame >= last) moveTo(0);
    training.timer = setInterval(() => (training.frame >= last ? play() : moveTo(training.frame + 1)), 350);
  }
  $("play").textContent = going ? "Play" : "Pause";
  $("play").setAttribute("aria-pressed", String(!going));
}

// Snapshots are mostly spaced logarithmically: a slider's step is then not one of a fixed number of training's.
function spacing() {
  const steps = numbers(training.run.frameSteps), last = steps.length - 1;
  return last > 1 && steps[1] - steps[0] < steps[last] - steps[last - 1] ? `; the slider goes through ${last + 1} snapshots, logarithmically spaced` : "";
}

function chooseRun(place) {
  if (training.timer !== null) play();
  const run = training.run = DATA.runs[place];
  $("run").value = place;
  training.seed = 0;
  const last = Math.max(shape(run.frameSteps)[0] - 1, 0);
  training.frame = last;
  $("frame").max = last;
  $("frame").value = last;
  $("frame").hidden = $("play").hidden = last === 0;
  $("attention").hidden = !snapshotCount();
  $("seed").replaceChildren(...run.seeds.map((seed, each) => new Option(String(seed) + (each === 0 || run.matrices.every((matrix) => !matrix.frames) ? "" : " (averages)"), each)));
  training.layer = -1;
  const layers = shape(run.attention)[2];
  $("layer").replaceChildren(new Option("all", -1), ...Array.from({ length: layers }, (_, each) => new Option(String(each + 1), each)));
  $("layer").parentElement.hidden = layers < 2;
  $("described").textContent = run.described + (run.done < run.total ? `; not finished, at step ${run.done.toLocaleString("en")}` : "")
    + (snapshotCount() ? spacing() : "; no snapshots, so no matrices and no attention to show");
  sayStep();
  drawTraining();
}

function drawTraining() {
  mapPanels();
  drawMaps();
  drawCurves();
}

// A claim's own run, if it is here: figure2/squared-adam for figure2/squared-adam/contrast.
function chooseRunOf(claim) {
  const place = DATA.runs.findIndex((run) => claim.startsWith(run.name + "/"));
  if (place >= 0 && training.run) chooseRun(place);
}

function showTraining() {
  if (!DATA.runs.length) return;
  DATA.runs.forEach((run, place) => $("run").add(new Option(run.name, place)));
  $("run").addEventListener("change", () => chooseRun(Number($("run").value)));
  for (const name of ["seed", "layer"]) $(name).addEventListener("change", () => {
    training[name] = Number($(name).value);
    drawTraining();
  });
  $("frame").addEventListener("input", () => askFor(Number($("frame").value)));
  $("play").addEventListener("click", play);
  drawLater($("training"), () => chooseRun(0));
}
