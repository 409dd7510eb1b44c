// Training: one slider over steps drives every panel.

const CLASS_NAMES = ["same word", "same topic", "different topic", "[MASK] column", "[MASK] row"];
const PART_NAMES = { embedding: "W^E", value: "W^V", key: "W^K", query: "W^Q", key_bias: "b^K", query_bias: "b^Q", value_bias: "b^V", prediction_bias: "b^pred" };
// Blue through white to red, symmetric around zero; the ends differ in lightness from the middle alone.
const DIVERGING = [[0, "#053061"], [0.25, "#4393c3"], [0.5, "#f7f7f7"], [0.75, "#d6604d"], [1, "#67001f"]];
const training = { run: null, seed: 0, frame: 0, timer: null, wanted: null };

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

function trainedMatrix(matrix) {
  const { run, seed } = training;
  if (matrix.frames && seed === 0) return frame(matrix.frames, training.frame);
  return fromClasses(entry(matrix.classes, seed, training.frame), matrix.size, run.boundaries);
}

function heatSpec(z, limit, title, text) {
  const size = z.length, line = (at) => [
    { type: "line", x0: at, x1: at, y0: -0.5, y1: size - 0.5, line: { color: "#808080", width: 0.6 } },
    { type: "line", y0: at, y1: at, x0: -0.5, x1: size - 0.5, line: { color: "#808080", width: 0.6 } },
  ];
  return {
    title, text,
    traces: [{ type: "heatmap", name: title, z, zmin: -limit, zmax: limit, colorscale: DIVERGING, colorbar: { thickness: 12, len: 0.9 },
      hovertemplate: "token i = %{y}<br>token j = %{x}<br>%{z:.4g}<extra></extra>" }],
    layout: {
      shapes: training.run.boundaries.flatMap(line),
      xaxis: { title: { text: "token j (0 is [MASK])" }, constrain: "domain", showgrid: false, zeroline: false },
      yaxis: { title: { text: "token i" }, autorange: "reversed", scaleanchor: "x", constrain: "domain", showgrid: false, zeroline: false },
      margin: { l: 50, r: 5, t: 10, b: 45 },
    },
  };
}

function subtract(left, right) {
  return left.map((line, i) => line.map((value, j) => value - right[i][j]));
}

function theoryOf(matrix) {
  matrix.unpacked ??= matrix.theory && rows(Float32Array.from(numbers(matrix.theory)), matrix.size);
  return matrix.unpacked;
}

// Panels of each matrix: trained, theory, difference.
function mapPanels() {
  const template = $("loss");
  $("maps").replaceChildren(...training.run.matrices.map((matrix, place) => {
    const group = document.createElement("div");
    const kinds = theoryOf(matrix) ? ["trained", "theory", "difference"] : ["trained", "theory"];
    const grid = document.createElement("div");
    grid.className = "grid";
    for (const kind of kinds) {
      const panel = template.cloneNode(true);
      panel.id = `map-${place}-${kind}`;
      panel.querySelector(".plot").replaceChildren();
      panel.querySelector(".now")?.remove();
      panel.querySelector(".plot").className = "plot";
      panel.querySelector(".plot").removeAttribute("style");
      wireSave(panel);
      grid.append(panel);
    }
    const table = document.createElement("table");
    table.className = "averages";
    table.id = `averages-${place}`;
    const holder = document.createElement("div");
    holder.className = "wide";
    holder.tabIndex = 0;
    holder.setAttribute("role", "region");
    holder.setAttribute("aria-label", `Averages of ${matrix.label}`);
    holder.append(table);
    group.append(grid, holder);
    return group;
  }));
}

function drawMaps() {
  training.run.matrices.forEach((matrix, place) => {
    const trained = trainedMatrix(matrix), theory = theoryOf(matrix);
    const exact = matrix.frames && training.seed === 0;
    draw($(`map-${place}-trained`), heatSpec(trained, matrix.limit, `${matrix.label}, trained`,
      exact ? "" : "Averages by class of entry: frames are kept for one seed only."));
    if (theory) {
      draw($(`map-${place}-theory`), heatSpec(theory, matrix.limit, `${matrix.label}, theory`, matrix.what));
      draw($(`map-${place}-difference`), heatSpec(subtract(trained, theory), matrix.limit, `${matrix.label}, trained − theory`, "The same colours as the other two."));
    } else {
      const panel = $(`map-${place}-theory`);
      caption(panel, `${matrix.label}, theory`);
      panel.querySelector(".plot").className = "plot missing";
      panel.querySelector(".plot").textContent = matrix.what || "No matrix of theory is recorded.";
      panel.querySelector(".save").remove();
    }
    averagesTable(matrix, place);
  });
}

function updateMaps() {
  training.run.matrices.forEach((matrix, place) => {
    const trained = trainedMatrix(matrix), theory = theoryOf(matrix);
    replaceMatrix($(`map-${place}-trained`), trained);
    if (theory) replaceMatrix($(`map-${place}-difference`), subtract(trained, theory));
    averagesTable(matrix, place);
  });
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
const SHADES = Uint8Array.from({ length: 4 * 256 }, (_, at) => {
  const share = (at >> 2) / 255, upper = Math.max(1, DIVERGING.findIndex(([stop]) => stop >= share));
  const [[low, first], [high, second]] = [DIVERGING[upper - 1], DIVERGING[upper]];
  const channel = (colour) => parseInt(colour.slice(1 + 2 * (at & 3), 3 + 2 * (at & 3)), 16);
  return (at & 3) === 3 ? 255 : Math.round(channel(first) + ((channel(second) - channel(first)) * (share - low)) / (high - low));
});

function painted(z, limit) {
  CANVAS.width = z[0].length;
  CANVAS.height = z.length;
  const context = CANVAS.getContext("2d"), picture = context.createImageData(CANVAS.width, CANVAS.height);
  let at = 0;
  for (const line of z) for (const value of line) {
    const shade = 4 * Math.round(255 * Math.min(Math.max((value + limit) / (2 * limit), 0), 1));
    for (let channel = 0; channel < 4; channel++) picture.data[at++] = SHADES[shade + channel];
  }
  context.putImageData(picture, 0, 0);
  return CANVAS.toDataURL();
}

function averagesTable(matrix, place) {
  const now = entry(matrix.classes, training.seed, training.frame), theory = theoryOf(matrix);
  const lines = [["average of", ...CLASS_NAMES], [`${matrix.label}, trained`, ...Array.from(now, shown)]];
  if (theory) {
    matrix.theoryClasses ??= classAverages(theory, training.run.boundaries);
    lines.push([`${matrix.label}, theory`, ...matrix.theoryClasses.map(shown)]);
  }
  $(`averages-${place}`).replaceChildren(...lines.map((cells, line) => {
    const found = document.createElement("tr");
    found.append(...cells.map((text, column) => {
      const cell = document.createElement(line === 0 || column === 0 ? "th" : "td");
      if (cell.tagName === "TH") cell.scope = line === 0 ? "col" : "row";
      cell.textContent = text;
      return cell;
    }));
    return found;
  }));
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

const frameStep = () => (training.run.frameSteps.$ !== undefined && shape(training.run.frameSteps)[0] ? numbers(training.run.frameSteps)[training.frame] : 0);

// Lines of all seeds, the chosen one in bold.
function curves(name, x, values, colour, dash) {
  return training.run.seeds.map((seed, place) => {
    const chosen = place === training.seed;
    return { type: "scatter", mode: "lines", name: `${name}, seed ${seed}`, x, y: row(values, place), legendgroup: name,
      showlegend: chosen, opacity: chosen ? 1 : 0.3, line: { color: colour, width: chosen ? 2.5 : 1, dash } };
  });
}

function curveLayout(label, more) {
  return merged({ showlegend: true, legend: { orientation: "h", y: -0.22, font: { size: 11 } },
    xaxis: { title: { text: "step", standoff: 5 } }, yaxis: { title: { text: label } }, margin: { b: 90 }, height: 380 }, more);
}

function drawCurves() {
  const { run } = training, steps = Array.from(numbers(run.steps));
  const losses = curves("loss of the batch", steps, run.loss, COLOURS[0]);
  if (run.heldOut) losses.push(...curves("held-out loss", Array.from(numbers(run.heldOutSteps)), run.heldOut, COLOURS[1]));
  const levels = run.levels.map((level, place) => ({ type: "scatter", mode: "lines", name: `${level.label}: ${shown(level.loss)}`,
    x: [steps[0], steps.at(-1)], y: [level.loss, level.loss], line: { color: COLOURS[2 + place], dash: ["dash", "dashdot", "dot"][place], width: 2 } }));
  draw($("loss"), { traces: [...losses, ...levels], layout: curveLayout("loss") });
  const norms = Object.entries(run.norms).flatMap(([name, values], place) => curves(`‖${PART_NAMES[name] || plain(name)}‖`, steps, values, COLOURS[place % COLOURS.length]));
  draw($("norms"), { traces: norms, layout: curveLayout("Frobenius norm") });
  const frames = Array.from(numbers(run.frameSteps)), [, count] = shape(run.attention);
  const lines = CLASS_NAMES.slice(0, 3).flatMap((name, kind) => run.seeds.map((seed, place) => {
    const chosen = place === training.seed;
    return { type: "scatter", mode: "lines+markers", name: `${name}, seed ${seed}`, legendgroup: name, showlegend: chosen, opacity: chosen ? 1 : 0.3,
      x: frames, y: Array.from({ length: count }, (_, at) => 100 * entry(run.attention, place, at)[kind]),
      line: { color: COLOURS[kind], width: chosen ? 2.5 : 1 }, marker: { size: chosen ? 4 : 2, symbol: ["circle", "square", "diamond"][kind] } };
  }));
  draw($("attention"), { traces: lines, layout: curveLayout("attention × 100") });
  updateCurves();
}

const CURVES = ["loss", "norms", "attention"];

function sayCurves() {
  const { run } = training, step = frameStep();
  const at = nearest(numbers(run.steps), step);
  $("loss").querySelector(".said").textContent = `Step ${numbers(run.steps)[at].toLocaleString("en")}: loss ${shown(row(run.loss, training.seed)[at])}.`;
  const parts = Object.entries(run.norms).map(([name, values]) => `‖${PART_NAMES[name] || name}‖ ${shown(row(values, training.seed)[at])}`);
  $("norms").querySelector(".said").textContent = parts.join(", ") + ".";
  if (!shape(run.frameSteps)[0]) return;
  const classes = entry(run.attention, training.seed, training.frame);
  $("attention").querySelector(".said").textContent = CLASS_NAMES.slice(0, 3).map((name, kind) => `${name} ${shown(100 * classes[kind])}`).join(", ") + ".";
}

function nearest(values, wanted) {
  let best = 0;
  values.forEach((value, place) => { if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = place; });
  return best;
}

function updateCurves() {
  for (const name of CURVES) markStep($(name));
  sayCurves();
}

// A line at the step that is shown, over the plot: moving it redraws nothing.
function markStep(panel) {
  const plot = panel.querySelector(".plot"), full = plot._fullLayout;
  if (!full || !full.xaxis) return;
  let line = panel.querySelector(".now");
  if (!line) {
    line = document.createElement("div");
    line.className = "now";
    panel.append(line);
    plot.on("plotly_afterplot", () => markStep(panel));
  }
  const { xaxis, yaxis } = full, step = frameStep();
  SPECS.get(panel).step = step;
  const left = plot.offsetLeft + xaxis._offset + xaxis.d2p(step);
  line.style.cssText = `left: ${left}px; top: ${plot.offsetTop + yaxis._offset}px; height: ${yaxis._length}px`;
}

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

function chooseRun(place) {
  if (training.timer !== null) play();
  const run = training.run = DATA.runs[place];
  $("run").value = place;
  training.seed = 0;
  const last = Math.max(shape(run.frameSteps)[0] - 1, 0);
  training.frame = last;
  $("frame").max = last;
  $("frame").value = last;
  $("frame").disabled = $("play").disabled = last === 0;
  $("seed").replaceChildren(...run.seeds.map((seed, each) => new Option(String(seed) + (each === 0 || run.matrices.every((matrix) => !matrix.frames) ? "" : " (averages)"), each)));
  $("described").textContent = run.described + (run.done < run.total ? `; not finished, at step ${run.done.toLocaleString("en")}` : "");
  sayStep();
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
  $("seed").addEventListener("change", () => { training.seed = Number($("seed").value); drawMaps(); drawCurves(); });
  $("frame").addEventListener("input", () => askFor(Number($("frame").value)));
  $("play").addEventListener("click", play);
  drawLater($("training"), () => chooseRun(0));
}
