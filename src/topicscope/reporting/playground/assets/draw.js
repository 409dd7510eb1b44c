// Pictures on canvases: documents, a matrix, curves, the landscape. Each takes numbers and colours, and draws anew.

const COLOURS = { word: "#d55e00", topic: "#0072b2", different: "#8c6d00", optimum: "#009e73", theorem: "#cc79a7", floor: "#a40e26" };

// The colours of the reader's theme, from the style sheet.
function theme(root) {
  const style = getComputedStyle(root), read = (name) => style.getPropertyValue(name).trim();
  return { paper: read("--paper"), ink: read("--ink"), soft: read("--soft"), line: read("--line"), raised: read("--raised") };
}

function rgb(colour) {
  const hex = colour.replace("#", ""), full = hex.length === 3 ? [...hex].map((digit) => digit + digit).join("") : hex;
  return [0, 2, 4].map((at) => parseInt(full.slice(at, at + 2), 16) || 0);
}

// A canvas as large as it is shown, in the screen's own points; null while it is not shown.
function pen(canvas, height) {
  const width = canvas.clientWidth, ratio = Math.min(window.devicePixelRatio || 1, 2);
  if (!width) return null;
  const tall = height || canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(tall * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(tall * ratio);
    if (height) canvas.style.height = height + "px";
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, tall);
  context.font = "12px system-ui, sans-serif";
  return { context, width, height: tall };
}

// A line through points, broken where one is null.
function line(context, points) {
  context.beginPath();
  let open = false;
  for (const point of points) {
    if (point && open) context.lineTo(...point);
    else if (point) context.moveTo(...point);
    open = Boolean(point);
  }
  context.stroke();
}

function disc(context, [x, y], radius, colour) {
  context.beginPath();
  context.arc(x, y, radius, 0, 7);
  context.fillStyle = colour;
  context.fill();
}

function write(context, text, x, y, textAlign, textBaseline) {
  Object.assign(context, { textAlign, textBaseline });
  context.fillText(text, x, y);
}

// A point of a picture: so far from one colour to the other.
function blend(data, at, from, to, share) {
  for (let i = 0; i < 3; i++) data[at + i] = from[i] + (to[i] - from[i]) * share;
  data[at + 3] = 255;
}

// As many colours as there are topics, neighbours far apart.
function topicColour(topic, topics, dark) {
  const hue = topics <= 12 ? (360 * topic) / topics : (topic * 137.508) % 360;
  const lightness = (dark ? [58, 68] : [44, 56])[topic % 2];
  return `hsl(${hue.toFixed(0)} 65% ${lightness}%)`;
}

const DOCUMENT_BYTES = 2008, ROOM = 400;

function readDocuments(bytes) {
  return Array.from({ length: bytes.length / DOCUMENT_BYTES }, (_, number) => {
    const at = number * DOCUMENT_BYTES, [length] = new Int32Array(bytes.buffer, at, 1);
    return {
      token: new Int16Array(bytes.buffer, at + 8, length),
      word: new Int16Array(bytes.buffer, at + 8 + 2 * ROOM, length),
      masked: new Uint8Array(bytes.buffer, at + 8 + 4 * ROOM, length),
    };
  });
}

// A square per word, coloured by topic. Masked: a dark square for [MASK], a frame for a kept or random word; the dot is
// the topic of the word to be predicted.
function drawDocuments(canvas, bytes, settings, colours, dark) {
  const documents = readDocuments(bytes), size = 12, columns = Math.max(10, Math.floor(canvas.clientWidth / size));
  const shown = [];
  let height = 0;
  for (const document of documents) {
    const lines = Math.ceil(document.token.length / columns);
    if (shown.length >= 2 && height + lines * size > 130) break;
    shown.push({ document, top: height });
    height += lines * size + 8;
  }
  const drawn = pen(canvas, Math.max(height - 8, size));
  if (!drawn) return;
  const { context } = drawn;
  const topicOf = (word) => Math.floor((word - 1) / settings.words), colour = (word) => topicColour(topicOf(word), settings.topics, dark);
  for (const { document, top } of shown) {
    document.token.forEach((token, place) => {
      const x = (place % columns) * size, y = top + Math.floor(place / columns) * size;
      context.fillStyle = token ? colour(token) : colours.ink;
      context.fillRect(x, y, size - 1.5, size - 1.5);
      if (!document.masked[place]) return;
      if (token) {
        context.strokeStyle = colours.ink;
        context.lineWidth = 2;
        context.strokeRect(x + 0.5, y + 0.5, size - 2.5, size - 2.5);
        if (token === document.word[place]) return;
        disc(context, [x + 5.25, y + 5.25], 3.6, colours.paper);
      }
      disc(context, [x + 5.25, y + 5.25], 2.7, colour(document.word[place]));
    });
  }
}

// A matrix with a row per word to predict; blue below zero, orange above. `entry(row, column)` gives its numbers.
const spare = document.createElement("canvas");
function drawMatrix(canvas, size, entry, scale, colours) {
  const drawn = pen(canvas, canvas.clientWidth);
  if (!drawn) return;
  spare.width = spare.height = size;
  const context = spare.getContext("2d"), image = context.createImageData(size, size), data = image.data;
  const middle = rgb(colours.paper), above = rgb("#d55e00"), below = rgb("#0072b2");
  for (let row = 0, at = 0; row < size; row++)
    for (let column = 0; column < size; column++, at += 4) {
      const value = entry(row, column) / scale;
      blend(data, at, middle, value > 0 ? above : below, Math.min(Math.abs(value), 1));
    }
  context.putImageData(image, 0, 0);
  drawn.context.imageSmoothingEnabled = false;
  drawn.context.drawImage(spare, 0, 0, drawn.width, drawn.height);
  drawn.context.strokeStyle = colours.line;
  drawn.context.strokeRect(0.5, 0.5, drawn.width - 1, drawn.height - 1);
}

function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough) || power;
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return found;
}

const brief = (value) => {
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size >= 1e5 || size < 1e-3) return value.toExponential(1).replace(/e\+?(.+)/, (_, power) => "·10" + power.replace(/./g, (each) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(each)]));
  return String(Number(value.toPrecision(3)));
};

// Curves over steps, with theory as dashed lines (a number), bands (a pair) or curves of their own.
function drawCurves(canvas, { steps, curves, references = [], dots = [], from = null, to = null, log = false }, colours) {
  const drawn = pen(canvas, 220);
  if (!drawn) return;
  const { context, width, height } = drawn, left = 50, right = 8, top = 8, bottom = 24;
  const last = Math.max(steps.length ? steps[steps.length - 1] : 1, 1);
  const values = [...curves.flatMap((curve) => Array.from(curve.values)), ...references.map((each) => each.at), ...dots.map((each) => each.at)]
    .filter((value) => Number.isFinite(value) && (!log || value > 0));
  let low = from ?? Math.min(...values), high = to ?? Math.max(...values);
  if (!values.length || !(high > low)) { low = (values[0] ?? 0) - (log ? 0 : 0.5); high = low + 1; }
  if (log) { low = Math.max(low, high / 1e6); low /= 1.3; high *= 1.3; } else { const room = 0.06 * (high - low); if (from === null) low -= room; if (to === null) high += room; }
  const place = log ? (value) => Math.log(value / low) / Math.log(high / low) : (value) => (value - low) / (high - low);
  const x = (step) => left + ((width - left - right) * step) / last, y = (value) => height - bottom - (height - bottom - top) * Math.min(Math.max(place(value), -0.02), 1.02);
  context.fillStyle = colours.soft;
  context.strokeStyle = colours.line;
  context.lineWidth = 1;
  const marks = log ? Array.from({ length: 13 }, (_, i) => 10 ** (i - 8)).filter((value) => value >= low && value <= high) : ticks(low, high, 4);
  for (const value of marks.length > 1 ? marks : ticks(low, high, 3)) {
    line(context, [[left, y(value)], [width - right, y(value)]]);
    write(context, brief(value), left - 6, y(value), "right", "middle");
  }
  for (const value of ticks(0, last, Math.max(2, Math.floor(width / 110))).filter((each) => x(each) < width - 14))
    write(context, value >= 1000 ? `${brief(value / 1000)}k` : String(value), x(value), height - bottom + 7, "center", "top");
  context.save();
  context.beginPath();
  context.rect(left, top - 4, width - left - right, height - top - bottom + 8);
  context.clip();
  for (const each of references) {
    context.strokeStyle = context.fillStyle = each.colour;
    if (each.band) {
      context.globalAlpha = 0.25;
      context.fillRect(left, y(each.band[1]), width - left - right, Math.max(y(each.band[0]) - y(each.band[1]), 1));
      context.globalAlpha = 1;
    }
    context.setLineDash(each.dash || [6, 4]);
    context.lineWidth = 1.5;
    line(context, [[left, y(each.at)], [width - right, y(each.at)]]);
  }
  for (const curve of curves) {
    context.setLineDash(curve.dash || []);
    context.strokeStyle = curve.colour;
    context.lineWidth = curve.thin ? 1 : 2;
    context.globalAlpha = curve.faint ? 0.45 : 1;
    const there = (value) => Number.isFinite(value) && !(log && value <= 0);
    line(context, Array.from(steps, (step, i) => (there(curve.values[i]) ? [x(step), y(curve.values[i])] : null)));
    context.globalAlpha = 1;
  }
  context.lineWidth = 1.5;
  for (const each of dots.filter(({ step }) => step <= last)) {
    context.strokeStyle = each.colour;
    context.setLineDash(each.dash || [2, 3]);
    line(context, [[x(each.step), top], [x(each.step), height - bottom]]);
  }
  // The dashes, the clip and the colours go with what was saved.
  context.restore();
}

// The loss over (α, β), both on logarithmic axes, in bands; uniform attention, the optimum, the trained point and its trail.
function drawLandscape(canvas, { grid, points, low, high, least, optimum, trail }, colours) {
  const drawn = pen(canvas, Math.min(canvas.clientWidth, 340));
  if (!drawn) return;
  const { context, width, height } = drawn, left = 44, right = 10, top = 8, bottom = 34;
  spare.width = spare.height = points;
  const small = spare.getContext("2d"), image = small.createImageData(points, points), ground = rgb(colours.paper), tint = rgb("#0072b2");
  const range = Math.log(1 + 1e4 * (Math.max(...grid) - least)) || 1;
  for (let row = 0; row < points; row++)
    for (let column = 0; column < points; column++) {
      const share = Math.log(1 + 1e4 * Math.max(grid[row * points + column] - least, 0)) / range;
      blend(image.data, 4 * ((points - 1 - column) * points + row), ground, tint, 0.85 * (1 - Math.round(share * 12) / 12));
    }
  small.putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(spare, left, top, width - left - right, height - top - bottom);
  const x = (alpha) => left + ((width - left - right) * (Math.log(Math.max(alpha, 1e-12)) - low)) / (high - low);
  const y = (beta) => height - bottom - ((height - top - bottom) * (Math.log(Math.max(beta, 1e-12)) - low)) / (high - low);
  const inside = ([alpha, beta]) => [Math.min(Math.max(x(alpha), left), width - right), Math.min(Math.max(y(beta), top), height - bottom)];
  context.fillStyle = colours.soft;
  for (let power = -2; power <= 8; power++) {
    const value = 10 ** power;
    if (Math.log(value) < low || Math.log(value) > high) continue;
    write(context, brief(value), x(value), height - bottom + 5, "center", "top");
    write(context, brief(value), left - 6, y(value), "right", "middle");
  }
  write(context, "α, same topic", left + (width - left - right) / 2, height - 14, "center", "top");
  context.save();
  context.translate(10, top + (height - top - bottom) / 2);
  context.rotate(-Math.PI / 2);
  write(context, "β, same word", 0, -6, "center", "top");
  context.restore();
  context.strokeStyle = colours.ink;
  context.lineWidth = 1.5;
  line(context, trail.map(inside));
  const spot = (point, colour, radius) => {
    disc(context, inside(point), radius, colour);
    context.strokeStyle = colours.ink;
    context.stroke();
  };
  spot([1, 1], colours.paper, 4);
  if (optimum) {
    const [a, b] = inside(optimum);
    context.strokeStyle = COLOURS.optimum;
    context.lineWidth = 3;
    line(context, [[a - 6, b - 6], [a + 6, b + 6], null, [a + 6, b - 6], [a - 6, b + 6]]);
    context.lineWidth = 1.5;
  }
  if (trail.length) spot(trail[trail.length - 1], COLOURS.word, 6);
}
