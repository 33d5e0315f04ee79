// The palette is flattest/palette.py, which the style has as variables.
const COLOURS = ["blue", "red", "green", "purple", "orange", "sky"].map((name) => getComputedStyle(document.documentElement).getPropertyValue(`--palette-${name}`).trim());
const [BLUE, RED, GREEN, PURPLE, ORANGE, SKY] = COLOURS;
const INK = "currentColor";
const PATTERNS = ["solid", "dashdot", "dot", "longdash"];

function line(name, x, y, colour, more = {}) {
  return { name, x, y, colour, line: true, ...more };
}

function dots(name, x, y, colour, more = {}) {
  return { name, x, y, colour, dots: true, ...more };
}

// Plots are drawn when they come into view: a page of a hundred panels opens at once.
const pending = new Set();
const watcher = new IntersectionObserver((entries) => entries.forEach(({ isIntersecting, target }) => {
  if (isIntersecting) drawNow(target);
}), { rootMargin: "300px" });
const sizes = new ResizeObserver((entries) => entries.forEach(({ target }) => {
  if (!pending.has(target) && target.clientWidth !== target.drawnAt) drawNow(target);
}));

function drawNow(box) {
  if (pending.delete(box)) watcher.unobserve(box);
  box.draw();
}

// A plot that is not in view is drawn anew when it is.
function later(box) {
  pending.add(box);
  watcher.unobserve(box);
  watcher.observe(box);
}

// One plot. `traces` and `axes` are functions, asked again when it is to be drawn anew.
function plot({ id, title, traces, axes, legend = keys }) {
  const box = make("div", { class: "plot", id }), key = make("div", { class: "keys" }), about = make("figcaption", { class: "hidden" }), tools = make("span", { class: "tools" });
  const numbers = make("details", { class: "dim" }, make("summary", {}, "As numbers"));
  let current = null;
  const shown = () => (current ??= { traces: traces(), axes: zoomed(id, axes()) });
  box.draw = () => {
    const width = (box.drawnAt = box.clientWidth), { traces: drawn, axes: asked } = shown();
    const frame = frameOf(width || 300, box.clientHeight || 250, drawn, asked), { picture, points } = drawing(frame, drawn, asked, title);
    explore(box, picture, points, frame, (area) => { keepZoom(id, asked, frame, area); figure.redraw(); });
    key.replaceChildren(...legend(drawn));
    // In the title's line, which has room for them: nothing moves when a plot is zoomed.
    tools.replaceChildren(...(asked.zoomed ? [wayBack(id, asked, figure)] : []),
      button("CSV", `${title} as CSV`, () => download(`${id}.csv`, csv([["curve", asked.x.title || "x", asked.y.title || title], ...seenPoints(drawn, frame)]))),
      button("PNG", `${title} as a picture`, async () => download(`${id}.png`, await png(title, picture, key.querySelectorAll(".key")))));
    box.traces = drawn;
    box.dataset.values = asked.y.log ? "log" : "linear";
  };
  const describe = () => { about.textContent = described(title, shown().axes, shown().traces); };
  numbers.addEventListener("toggle", () => { if (numbers.open) numbers.replaceChildren(numbers.firstChild, asNumbers(shown().traces)); });
  const figure = make("figure", { "aria-label": title }, make("div", { class: "title" }, make("span", {}, title), tools), box, key, about, numbers);
  figure.redraw = () => { current = null; numbers.open = false; whenIdle(describe); later(box); };
  figure.redraw();
  sizes.observe(box);
  return figure;
}

// Texts of plots are written when there is nothing else to do.
function whenIdle(work) {
  (window.requestIdleCallback ?? setTimeout)(work);
}

// A zoom is remembered for the kind of axis that it was made on.
function zoomPlace(id, name, { log }) {
  return `${id} ${name} ${log ?? false}`;
}

function zoomed(id, { x, y }) {
  const [across, up] = [["x", x], ["y", y]].map(([name, asked]) => choice(zoomPlace(id, name, asked), null));
  return { x: across ? { ...x, range: across } : x, y: up ? { ...y, range: up } : y, zoomed: Boolean(across || up) };
}

function keepZoom(id, { x, y }, { horizontal, vertical }, area) {
  chosen.set(zoomPlace(id, "x", x), [area.x, area.x + area.width].map(horizontal.value));
  chosen.set(zoomPlace(id, "y", y), [area.y + area.height, area.y].map(vertical.value));
}

function wayBack(id, { x, y }, figure) {
  return button("Show all", "Leave the zoom", () => { chosen.delete(zoomPlace(id, "x", x)); chosen.delete(zoomPlace(id, "y", y)); figure.redraw(); });
}

// What the lines and dots mean.
function keys(traces) {
  const named = traces.filter((trace) => trace.key !== false);
  if (traces.length < 2) return [];
  return named.map((trace) => make("span", { class: "key" }, shape("svg", { viewBox: "0 0 28 10", "aria-hidden": "true" },
    trace.line ? shape("path", { class: "line", d: "M1 5H27", stroke: trace.colour, "stroke-dasharray": DASHES[trace.dash ?? "solid"] }) : [],
    trace.dots ? shape("path", { d: SYMBOLS[trace.symbol ?? "circle"], transform: "translate(14 5)", fill: trace.colour }) : []), trace.name));
}

function described(title, { x, y }, traces) {
  const parts = traces.filter((trace) => trace.key !== false).slice(0, 8).map((trace) => {
    const values = trace.y.filter((value) => value !== null && value !== undefined);
    if (!values.length) return null;
    const [low, high] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
    return `${trace.name}: from ${shortNumber(values[0])} to ${shortNumber(values.at(-1))}, least ${shortNumber(low)}, most ${shortNumber(high)}`;
  }).filter(Boolean);
  return `${title}, ${y.title || "values"} against ${x.title || "x"}. ${parts.join("; ") || "Nothing to show"}.`;
}

function asNumbers(traces) {
  const rows = traces.slice(0, 12).flatMap((trace) => {
    const last = trace.x.length - 1;
    const picked = [...new Set([...Array(8).keys()].map((i) => Math.round(i * last / 7)))].filter((i) => i >= 0);
    return picked.map((i) => row(["", "x", "y"], trace.name ?? "", shortNumber(trace.x[i]), shortNumber(trace.y[i])));
  });
  return grid(["curve", "x", "y"], rows);
}

window.addEventListener("beforeprint", () => [...pending].forEach(drawNow));
