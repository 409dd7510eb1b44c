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
  return {
    title, text,
    traces: [{ type: "heatmap", name: title, showscale: scale && !(bare && narrow()), z, zmin: -limit, zmax: limit, colorscale: diverging(PRINT.matches), colorbar: { thickness: 12, len: 0.9 },
      hovertemplate: "token i = %{y}<br>token j = %{x}<br>%{z:.4g}<extra></extra>" }],
    layout: {
      shapes: boundaries.flatMap(line),
      xaxis: { title: { text: bare ? "" : "token j (0 is [MASK])" }, constrain: "domain", showgrid: false, zeroline: false },
      yaxis: { title: { text: bare ? "" : "token i" }, autorange: "reversed", scaleanchor: "x", constrain: "domain", showgrid: false, zeroline: false },
      margin: { l: 50, r: 5, t: 10, b: 45 },
      ...(bare ? { margin: { l: 30, r: narrow() ? 0 : 74, t: 8, b: 25 } } : {}),
    },
    narrow: bare ? { xaxis: { visible: false }, yaxis: { visible: false }, margin: { l: 0, r: 0, t: 0, b: 0 } } : {},
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
