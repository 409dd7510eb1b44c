// Matrices over tokens as maps: trained, theory, and their difference, at the step that is shown.

// Blue through white to red, symmetric around zero; the ends differ in lightness from the middle alone.
const DIVERGING = [[0, "#053061"], [0.25, "#4393c3"], [0.5, "#f7f7f7"], [0.75, "#d6604d"], [1, "#67001f"]];
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
      height: Math.min(400, 0.8 * innerWidth),
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

// Matrices of the chosen layer, and those of all layers, with their places.
function shownMatrices() {
  const { run, layer } = training;
  return [...run.matrices.entries()].filter(([, matrix]) => layer < 0 || matrix.layer === null || matrix.layer === layer);
}

// Panels of each matrix: trained, theory, difference.
function mapPanels() {
  $("maps").replaceChildren(...shownMatrices().map(([place, matrix]) => {
    const group = document.createElement("div");
    const kinds = theoryOf(matrix) ? ["trained", "theory", "difference"] : ["trained"];
    group.className = theoryOf(matrix) ? "with-theory" : "without-theory";
    const grid = document.createElement("div");
    grid.className = "grid";
    for (const kind of kinds) {
      const panel = $("panel").content.firstElementChild.cloneNode(true);
      panel.id = `map-${place}-${kind}`;
      panel.querySelector(".save").setAttribute("aria-label", `Save ${matrix.label}, ${kind}`);
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
  // Why there is no theory is the same for all layers: it is shown once.
  const said = new Set(), once = (text) => (said.has(text) ? "" : (said.add(text), text));
  for (const [place, matrix] of shownMatrices()) {
    const trained = trainedMatrix(matrix), theory = theoryOf(matrix);
    const exact = matrix.frames && training.seed === 0;
    const file = (kind) => ({ file: () => fileOf(...(kind === "theory" ? [] : [seedName(), `step-${frameStep()}`]), matrix.label, kind) });
    draw($(`map-${place}-trained`), { ...heatSpec(trained, matrix.limit, `${matrix.label}, trained`,
      [exact ? "" : "Averages by class of entry: frames are kept for one seed only.", theory ? "" : once(matrix.what)].join(" ").trim()), ...file("trained") });
    if (theory) {
      draw($(`map-${place}-theory`), { ...heatSpec(theory, matrix.limit, `${matrix.label}, theory`, matrix.what), ...file("theory") });
      draw($(`map-${place}-difference`), { ...heatSpec(subtract(trained, theory), matrix.limit, `${matrix.label}, trained − theory`, "The same colours as the other two."), ...file("difference") });
    }
    averagesTable(matrix, place);
  }
}

function updateMaps() {
  for (const [place, matrix] of shownMatrices()) {
    const trained = trainedMatrix(matrix), theory = theoryOf(matrix);
    replaceMatrix($(`map-${place}-trained`), trained);
    if (theory) replaceMatrix($(`map-${place}-difference`), subtract(trained, theory));
    averagesTable(matrix, place);
  }
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
  const lines = [["average", ...CLASS_NAMES], ["trained", ...Array.from(now, short)]];
  if (theory) {
    matrix.theoryClasses ??= classAverages(theory, training.run.boundaries);
    lines.push(["theory", ...matrix.theoryClasses.map(short)]);
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
