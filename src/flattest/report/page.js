"use strict";
// Okabe and Ito's palette, which colour-blind readers can tell apart.
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];
const DRAWN = [
  ["sharpness", "Sharpness Tr ∇²L", true],
  ["test_error", "Test error", false],
  ["train_loss", "Training loss", true],
];

// Elements are made with text nodes only, so that nothing in a store can become markup.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

async function unpacked() {
  const text = document.getElementById("data").textContent.trim();
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function mark(holds) {
  if (holds === null) return make("span", { class: "dim" }, "? undecided");
  return make("span", { class: holds ? "met" : "missed" }, holds ? "✓" : "✗");
}

function table1(rows) {
  const head = ["Architecture", "All flattest minimizers generalize", "1-SAM generalizes", "Answer"];
  const body = rows.map((row) => {
    const found = row.answer;
    const cell = (finding) =>
      make("td", { title: finding.sentence }, mark(finding.holds), " ", make("span", { class: "dim" }, finding.sentence));
    return make("tr", {},
      make("th", { scope: "row" }, row.title, make("br"), make("span", { class: "dim" }, `${row.theorem}; ${row.variant} runs`)),
      cell(found.flattest_generalize), cell(found.algorithm_generalizes), make("td", {}, found.scenario));
  });
  return make("div", { class: "table" }, make("table", {},
    make("caption", { class: "dim" }, "Table 1 of wen2023 as these runs have it"),
    make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, ...body)));
}

function style() {
  const value = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return { ink: value("--ink"), edge: value("--edge") };
}

function layout(title, logY) {
  const { ink, edge } = style();
  return {
    title: { text: title, font: { size: 14 } }, font: { color: ink }, showlegend: false,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 55, r: 10, t: 40, b: 40 },
    xaxis: { type: "log", title: { text: "epoch" }, gridcolor: edge, exponentformat: "power" },
    yaxis: { type: logY ? "log" : "linear", gridcolor: edge, exponentformat: "power" },
  };
}

function curves(groups, name) {
  const lines = [];
  groups.forEach(([label, runs], index) => {
    const colour = COLOURS[index % COLOURS.length];
    runs.filter((run) => run.series[name]).forEach((run) => lines.push({
      x: run.series.epoch, y: run.series[name], mode: "lines", name: `${label}, seed ${run.seed}`,
      line: { color: colour, width: 1.5, dash: index ? "dashdot" : "solid" },
    }));
    const bounded = runs.find((run) => name === "sharpness" && run.series.bound && run.series.bound.at(-1) !== null);
    if (bounded && index === 0) lines.push({
      x: bounded.series.epoch, y: bounded.series.bound, mode: "lines", name: "certified lower bound",
      line: { color: style().ink, width: 1.5, dash: "dash" },
    });
  });
  return lines;
}

function described(groups, name, title) {
  const ends = groups.flatMap(([label, runs]) => {
    const values = runs.map((run) => run.series[name]?.at(-1)).filter((value) => value != null);
    return values.length ? [`${label}: ends at ${Math.min(...values)} to ${Math.max(...values)} over ${values.length} seeds`] : [];
  });
  return `${title} against epochs. ${ends.join("; ")}.`;
}

// Plots are drawn when they come into view: a page of a hundred panels opens at once.
const pending = new Map();
const watcher = new IntersectionObserver((entries) => entries.forEach((entry) => {
  const draw = pending.get(entry.target);
  if (entry.isIntersecting && draw) { pending.delete(entry.target); draw(); }
}), { rootMargin: "400px" });

function plot(groups, [name, title, logY]) {
  const box = make("div", { class: "plot", role: "img", "aria-label": described(groups, name, title), "data-series": name });
  const draw = () => Plotly.react(box, curves(groups, name), layout(title, box.dataset.log ? box.dataset.log === "log" : logY),
    { responsive: true, displaylogo: false });
  pending.set(box, draw);
  watcher.observe(box);
  box.redraw = () => { if (!pending.has(box)) draw(); };
  return box;
}

function scenarios(page) {
  const runsOf = (name, variant) => page.panels.find((p) => p.name === name && p.variant === variant)?.runs ?? [];
  return make("div", { class: "scenarios" }, ...page.table1.map((row) => {
    const groups = [["1-SAM", runsOf(row.panels.algorithm, row.variant)]];
    if (row.panels.baseline) groups.push(["gradient descent", runsOf(row.panels.baseline, row.variant)]);
    return make("section", { class: "card" }, make("h3", {}, `${row.title}: ${row.answer.scenario}`),
      ...DRAWN.slice(0, 2).map((what) => plot(groups, what)));
  }));
}

function facts(panel) {
  const seconds = panel.runs.reduce((sum, run) => sum + run.seconds, 0);
  const machines = [...new Set(panel.runs.map((run) => run.machine).filter(Boolean))].join("; ");
  return make("p", { class: "dim" }, `${panel.runs.length} runs, ${seconds.toFixed(1)} s in all${machines ? `, on ${machines}` : ""}.`);
}

function troubles(runs) {
  const odd = runs.filter((run) => run.status !== "finished");
  return odd.length ? make("ul", {}, ...odd.map((run) =>
    make("li", {}, make("span", { class: "missed" }, run.status), ` seed ${run.seed} (${run.key}): ${run.sentence} ${(100 * run.progress).toFixed(0)} %`))) : null;
}

function panelCard(panel) {
  const trained = panel.runs.some((run) => run.series.epoch);
  const shown = new Set(panel.runs.map((run) => run.seed));
  const groups = () => [["run", panel.runs.filter((run) => shown.has(run.seed))]];
  const boxes = trained ? DRAWN.map((what) => {
    const box = plot(groups(), what);
    box.redraw = () => Plotly.react(box, curves(groups(), what[0]), layout(what[1], box.dataset.log ? box.dataset.log === "log" : what[2]), { responsive: true, displaylogo: false });
    return box;
  }) : [];
  const redraw = () => boxes.filter((box) => !pending.has(box)).forEach((box) => box.redraw());
  return make("section", { class: "card", id: `${panel.name}-${panel.variant}` },
    make("h3", {}, `${panel.figure} `, make("span", { class: "dim" }, `${panel.name}, ${panel.variant}`)),
    make("p", {}, panel.claim), panel.notes ? make("p", { class: "dim" }, panel.notes) : null,
    make("ul", {}, ...panel.verdicts.map((v) => make("li", {}, mark(v.met), " ", v.sentence))),
    troubles(panel.runs), trained ? controls(panel, shown, boxes, redraw) : null,
    make("div", { class: "curves" }, ...boxes), facts(panel),
    make("details", {}, make("summary", {}, "Settings"), make("pre", {}, JSON.stringify(panel.settings, null, 1))));
}

function controls(panel, shown, boxes, redraw) {
  const box = (text, checked, change) => {
    const input = make("input", { type: "checkbox" });
    input.checked = checked;
    input.addEventListener("change", () => { change(input.checked); redraw(); });
    return make("label", {}, input, ` ${text}`);
  };
  return make("div", { class: "controls" },
    ...panel.runs.map((run) => box(`seed ${run.seed}`, true, (on) => (on ? shown.add(run.seed) : shown.delete(run.seed)))),
    box("logarithmic", true, (on) => boxes.forEach((b) => { b.dataset.log = on ? "log" : "linear"; })));
}

function section(id, title, ...content) {
  document.getElementById("nav").append(make("a", { href: `#${id}` }, title), " ");
  return make("section", { id }, make("h2", {}, title), ...content);
}

function show(page) {
  const main = document.getElementById("main");
  main.replaceChildren();
  if (page.table1.length) main.append(section("table1", "Table 1", table1(page.table1), scenarios(page)));
  for (const paper of [...new Set(page.panels.map((panel) => panel.paper))]) {
    if (paper === "table1") continue;
    main.append(section(paper, paper, ...page.panels.filter((panel) => panel.paper === paper).map(panelCard)));
  }
  if (page.others.length) main.append(section("others", "Other runs", troubles(page.others) ?? make("p", {}, `${page.others.length} runs.`)));
  if (!main.children.length) main.append(make("p", {}, "This store has no runs yet."));
}

unpacked().then(show).catch((error) => {
  document.getElementById("main").replaceChildren(make("p", { class: "missed" }, `The page cannot be read: ${error.message}`));
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
  document.querySelectorAll(".plot").forEach((box) => box.redraw()));
