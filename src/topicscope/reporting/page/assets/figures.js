// Figures: drawn when they come into view, in the reader's colours; saved in those of paper.

const SPECS = new Map();
// A legend under a figure, clear of its axis.
const BELOW = { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0, xanchor: "left", xref: "container", font: { size: 12 } };

function theme(light) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name, onPaper) => (light ? onPaper : style.getPropertyValue(name).trim());
  // Names inside a plot would else be given a colour for white paper.
  const axis = { tickfont: { color: colour("--ink", "#1b1f24") }, gridcolor: colour("--grid", "#e4e8ec"), linecolor: colour("--soft", "#57606a"), zerolinecolor: colour("--line", "#d0d7de") };
  return {
    paper_bgcolor: light ? "#ffffff" : "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("--ink", "#1b1f24"), size: present() ? 20 : 13, family: "system-ui, sans-serif" },
    colorway: COLOURS, xaxis: axis, yaxis: { ...axis, automargin: true },
    scene: { xaxis: { ...axis, backgroundcolor: "rgba(0,0,0,0)" }, yaxis: axis, zaxis: axis },
  };
}

function merged(under, over) {
  const result = { ...under };
  for (const [key, value] of Object.entries(over || {})) {
    const nested = value && typeof value === "object" && !Array.isArray(value) && result[key] && typeof result[key] === "object";
    result[key] = nested ? merged(result[key], value) : value;
  }
  return result;
}

// A figure is as high as its place, which the style sheet sets before anything is drawn.
function layoutOf(spec, light, plot) {
  const base = { margin: { l: 55, r: 15, t: 10, b: 45 }, showlegend: false, legend: BELOW, hovermode: "closest" };
  const layout = merged(merged(merged(base, theme(light)), spec.layout), narrow() ? spec.narrow : {});
  layout.height = plot.clientHeight || layout.height;
  const ink = layout.font.color;
  if (spec.step !== undefined && light) layout.shapes = [...(layout.shapes || []), { type: "line", x0: spec.step, x1: spec.step, yref: "paper", y0: 0, y1: 1, line: { dash: "dot" } }];
  layout.shapes = (layout.shapes || []).map((each) => merged({ line: { color: ink, width: 1 } }, each));
  return layout;
}

// Maps around zero have the paper's colour there.
function tracesOf(spec, light) {
  return spec.traces.map((trace) => (trace.type === "heatmap" && trace.zmin === -trace.zmax ? { ...trace, colorscale: diverging(light) } : trace));
}

const narrow = () => innerWidth < 600;
const present = () => document.documentElement.classList.contains("present");

function draw(panel, spec) {
  SPECS.set(panel, spec);
  if (spec.title) caption(panel, spec.title);
  if (spec.text !== undefined) typeset(panel.querySelector(".said"), spec.text);
  const plot = panel.querySelector(".plot");
  resized.observe(plot);
  const config = { displaylogo: false, responsive: true, displayModeBar: false, showTips: false };
  return Plotly.react(plot, tracesOf(spec, PRINT.matches), layoutOf(spec, PRINT.matches, plot), config);
}

function caption(panel, text) {
  typeset(panel.querySelector("figcaption"), text);
  panel.querySelector(".plot").setAttribute("aria-label", text);
}

// A figure is laid out anew where its place becomes narrower or wider.
const WIDTHS = new WeakMap();
const resized = new ResizeObserver((entries) => requestAnimationFrame(() => {
  for (const { target } of entries) {
    const before = WIDTHS.get(target), spec = SPECS.get(target.closest(".panel"));
    WIDTHS.set(target, target.clientWidth);
    if (spec && before && target.clientWidth && target.clientWidth !== before) redraw(target, spec);
  }
}));

const redraw = (plot, spec) => Plotly.react(plot, tracesOf(spec, PRINT.matches), layoutOf(spec, PRINT.matches, plot));

// Draw now if in view, else when it comes into view, or when the page is printed.
const WAITING = new Map();
const observer = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) drawWaiting(entry.target);
}, { rootMargin: "400px" });

function drawWaiting(panel) {
  const make = WAITING.get(panel);
  WAITING.delete(panel);
  observer.unobserve(panel);
  if (make) make();
}

function drawLater(panel, make) {
  WAITING.set(panel, make);
  observer.observe(panel);
}

function redrawAll() {
  for (const [panel, spec] of SPECS) if (panel.isConnected) redraw(panel.querySelector(".plot"), spec);
}

// A figure's numbers: a line per point, with the ends of its interval and its description where it has them.
function tableOf(spec) {
  if (spec.table) return spec.table();
  const intervals = spec.traces.some((trace) => trace.error_x || trace.error_y), notes = spec.traces.some((trace) => trace.hovertext);
  const lines = [["trace", "x", "y", "z", ...(intervals ? ["low", "high"] : []), ...(notes ? ["note"] : [])]];
  for (const trace of spec.traces) {
    // Edges behind a line repeat it.
    if (trace.hoverinfo === "skip") continue;
    const name = unplain(trace.meta || trace.name || ""), text = (values, place) => (values ? unplain(values[place]) : place);
    if (trace.z && typeof trace.z[0] !== "number") {
      trace.z.forEach((line, y) => Array.from(line).forEach((value, x) => lines.push(
        [name, text(trace.x, x), text(trace.y, y), value, ...(notes ? [trace.hovertext ? unplain(trace.hovertext[y][x]) : ""] : [])])));
    } else if (trace.x) {
      Array.from(trace.x).forEach((x, place) => {
        const error = trace.error_x || trace.error_y, middle = trace.error_x ? x : trace.y[place];
        const known = error && middle !== null && error.array[place] !== null;
        const ends = known ? [middle - error.arrayminus[place], middle + error.array[place]] : ["", ""];
        lines.push([name, x === null ? "" : unplain(x), trace.y[place] === null ? "" : unplain(trace.y[place]), trace.z ? trace.z[place] : "", ...(intervals ? ends : [])]);
      });
    }
  }
  return lines;
}

async function save(panel, kind) {
  const image = panel.dataset.image;
  const name = (image ? panel.dataset.name : SPECS.get(panel).file?.() || panel.id) || "figure";
  if (kind === "csv") {
    const table = image ? drawnTable(image) || claimsOf(panel) : tableOf(SPECS.get(panel));
    return downloadText(name + ".csv", csv(table), "text/csv");
  }
  if (image) return saveImage(panel, name, kind);
  const spec = SPECS.get(panel), plot = panel.querySelector(".plot");
  const layout = merged(layoutOf(spec, true, plot), { title: { text: plain(panel.querySelector("figcaption").textContent), font: { size: 14 } }, margin: { t: 45 } });
  const size = { width: Math.max(plot.clientWidth, 500), height: plot.clientHeight + 40 };
  const url = await Plotly.toImage({ data: tracesOf(spec, true), layout }, { format: kind, scale: kind === "png" ? 2 : 1, ...size });
  return download(name + "." + kind, url);
}

// The table of a drawing, to as many digits as the page has.
function drawnTable(image) {
  const drawn = DATA.images[image].numbers;
  if (!drawn) return null;
  const columns = drawn.columns.map((column) => {
    const found = Array.from(numbers(column.numbers));
    return column.words ? found.map((place) => column.words[place]) : found.map((value) => brief(value, drawn.digits));
  });
  return [drawn.names, ...Array.from({ length: drawn.rows }, (_, row) => columns.map((column) => column[row]))];
}

const brief = (value, digits) => (Number.isNaN(value) ? "" : Number.isInteger(value) ? value : Number(value.toPrecision(digits)));

function saveImage(panel, name, kind) {
  const content = bytes(DATA.images[panel.dataset.image].drawing);
  if (kind === "svg") return downloadText(name + ".svg", content, "image/svg+xml");
  const image = panel.querySelector("img"), canvas = document.createElement("canvas");
  canvas.width = 2 * image.naturalWidth;
  canvas.height = 2 * image.naturalHeight;
  const context = canvas.getContext("2d");
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return download(name + ".png", canvas.toDataURL("image/png"));
}

function showPictures() {
  for (const panel of document.querySelectorAll("[data-image]")) {
    drawLater(panel, () => {
      const holder = panel.querySelector(".picture"), image = new Image();
      image.alt = holder.dataset.alt;
      image.src = URL.createObjectURL(new Blob([bytes(DATA.images[panel.dataset.image].drawing)], { type: "image/svg+xml" }));
      holder.replaceChildren(image);
    });
  }
}

function showFigures() {
  for (const spec of DATA.figures) drawLater($(spec.id), () => draw($(spec.id), { ...viewOf(spec), title: undefined }));
  for (const sweep of DATA.sweeps) showSweep(sweep);
}

// Probes: one choice of threshold for the maps of heads of all their models.

// A figure as it is at the threshold that is chosen.
function viewOf(spec) {
  if (!spec.views) return spec;
  const chosen = $(spec.id).closest("section").querySelector("[data-thresholds]").value;
  return { ...spec, ...(spec.views[chosen] || { traces: [], text: `Not measured at ${chosen}.` }) };
}

function showProbes() {
  for (const select of document.querySelectorAll("[data-thresholds]")) {
    const panels = DATA.figures.filter((spec) => spec.views && $(spec.id).closest("section").contains(select));
    select.addEventListener("change", () => {
      for (const spec of panels) if (!WAITING.has($(spec.id))) draw($(spec.id), { ...viewOf(spec), title: undefined });
    });
  }
}
