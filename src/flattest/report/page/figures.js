// Okabe and Ito's palette, which colour-blind readers can tell apart.
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];
const [BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY] = COLOURS;
const DASHES = ["solid", "dashdot", "dot", "longdash"];
const SETTINGS = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };

let plotly = null;
function withPlotly() {
  plotly ??= unzipped("plotly").then((text) => {
    const script = make("script");
    script.textContent = text;
    document.head.append(script);
    return window.Plotly;
  });
  return plotly;
}

function ink() {
  const value = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return { ink: value("--ink"), edge: value("--edge") };
}

function line(name, x, y, colour, more = {}) {
  return { name, x, y, mode: "lines", line: { color: colour, width: 1.6, dash: more.dash ?? "solid" }, ...more };
}

function dots(name, x, y, colour, more = {}) {
  return { name, x, y, mode: "markers", marker: { color: colour, size: 6 }, ...more };
}

// Plots are drawn when they come into view: a page of a hundred panels opens at once.
const pending = new Map();
const watcher = new IntersectionObserver((entries) => entries.forEach(({ isIntersecting, target }) => {
  if (isIntersecting) drawNow(target);
}), { rootMargin: "300px" });

function drawNow(box) {
  const draw = pending.get(box);
  if (!draw) return Promise.resolve();
  pending.delete(box);
  watcher.unobserve(box);
  return draw();
}

function axis(asked, colours, kept) {
  const shown = { gridcolor: colours.edge, zerolinecolor: colours.edge, exponentformat: "power", automargin: true, ...asked };
  shown.title = { text: asked.title ?? "", standoff: 6 };
  shown.type = asked.log ? "log" : "linear";
  delete shown.log;
  return kept ? { ...shown, range: kept, autorange: false } : shown;
}

// One plot. `traces` and `axes` are functions, asked again at every drawing.
function plot({ id, title, traces, axes, legend = true, more = () => ({}) }) {
  const box = make("div", { class: "plot", id });
  const about = make("figcaption", { class: "hidden" });
  const numbers = make("details", { class: "dim" }, make("summary", {}, "As numbers"));
  const layout = () => {
    const colours = ink(), { x, y } = axes(), kept = (name, asked) => choice(`${id} ${name} ${asked.log ?? false}`, null);
    return {
      title: { text: title, font: { size: 14 }, x: 0, xref: "paper" }, font: { color: colours.ink, size: 12 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 50, r: 10, t: 34, b: 40 },
      showlegend: legend && traces().length > 1, legend: { orientation: "h", y: -0.22, font: { size: 11 } },
      hovermode: "closest", xaxis: axis(x, colours, kept("x", x)), yaxis: axis(y, colours, kept("y", y)), ...more(),
    };
  };
  const describe = () => { about.textContent = described(title, axes(), traces()); };
  const draw = async () => {
    const library = await withPlotly();
    const first = !box.classList.contains("js-plotly-plot");
    await library.react(box, traces(), layout(), SETTINGS);
    if (first) box.on("plotly_relayout", (change) => keepZoom(id, axes(), change));
  };
  box.redraw = () => { describe(); if (!pending.has(box)) draw(); };
  numbers.addEventListener("toggle", () => { if (numbers.open) numbers.replaceChildren(numbers.firstChild, asNumbers(traces())); });
  whenIdle(describe);
  pending.set(box, draw);
  watcher.observe(box);
  const figure = make("figure", { "aria-label": title }, box, about, numbers);
  figure.redraw = () => { box.redraw(); numbers.open = false; };
  return figure;
}

// Texts of plots are written once the page is there.
function whenIdle(work) {
  (window.requestIdleCallback ?? setTimeout)(work);
}

function keepZoom(id, { x, y }, change) {
  for (const [name, asked] of [["x", x], ["y", y]]) {
    const place = `${id} ${name} ${asked.log ?? false}`;
    if (change[`${name}axis.autorange`]) chosen.delete(place);
    else if (change[`${name}axis.range[0]`] !== undefined) chosen.set(place, [change[`${name}axis.range[0]`], change[`${name}axis.range[1]`]]);
  }
}

function described(title, { x, y }, traces) {
  const parts = traces.filter((trace) => trace.showlegend !== false || trace.text).slice(0, 8).map((trace) => {
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

function redrawAll() {
  document.querySelectorAll(".plot").forEach((box) => box.redraw());
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
window.addEventListener("beforeprint", () => {
  document.documentElement.classList.add("printing");
  document.querySelectorAll(".plot").forEach((box) => (pending.has(box) ? drawNow(box) : box.redraw()));
});
window.addEventListener("afterprint", () => {
  document.documentElement.classList.remove("printing");
  redrawAll();
});
