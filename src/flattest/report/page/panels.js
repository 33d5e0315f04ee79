// More runs than this are drawn as their median and range.
const MANY = 12;
const CURVES = [
  ["sharpness", "Sharpness Tr ∇²L", true],
  ["test_error", "Test error", false],
  ["train_loss", "Training loss", true],
  ["test_loss", "Test loss", true],
];

function epochs(groups, series) {
  return groups.flatMap(([name, runs], index) => [...drawnRuns(name, runs, series, index), ...bound(runs, series, index)]);
}

function drawnRuns(name, runs, series, index) {
  const drawn = runs.filter((run) => run?.series.epoch && run.series[series]);
  const colour = COLOURS[index % COLOURS.length], dash = PATTERNS[index % PATTERNS.length];
  return drawn.length > MANY ? band(name, drawn, series, colour) : each(name, drawn, series, colour, dash);
}

function each(name, runs, series, colour, dash) {
  return runs.map((run, i) => line(i === 0 ? name : `${name}, seed ${run.seed}`, run.series.epoch, run.series[series], colour,
    { dash, key: i === 0, tip: (k) => [`${name}, seed ${run.seed}`, `epoch ${run.series.epoch[k]}`, shortNumber(run.series[series][k])] }));
}

function band(name, runs, series, colour) {
  const length = Math.min(...runs.map((run) => run.series.epoch.length));
  const x = runs[0].series.epoch.slice(0, length);
  const sorted = x.map((_, i) => Float64Array.from(runs.map((run) => run.series[series][i]).filter((v) => v !== null)).sort());
  const pick = (which) => sorted.map((values) => values.at(which(values.length)) ?? null);
  const [low, middle, high] = [() => 0, (count) => count >> 1, () => -1].map(pick);
  return [{ name: `${name}, range`, x, y: low, until: high, colour, key: false, quiet: true },
    line(`${name}, median and range of ${runs.length} seeds`, x, middle, colour)];
}

function bound(runs, series, index) {
  const found = runs.find((run) => series === "sharpness" && run?.series.epoch && (run.series.bound?.at(-1) ?? null) !== null);
  if (!found || index > 0) return [];
  return [line("certified lower bound", found.series.epoch, found.series.bound, INK, { dash: "dash" })];
}

// The runs of a panel that are shown, and the controls that choose them.
function seeds(id, runs, changed) {
  const usable = runs.filter((run) => Object.keys(run.series).length);
  if (usable.length <= MANY) {
    return {
      shown: () => usable.filter((run) => choice(`${id}-seed-${run.key}`, true)),
      controls: usable.length > 1 ? usable.map((run) => checkbox(`${id}-seed-${run.key}`, `seed ${run.seed}`, true, changed)) : [],
    };
  }
  const options = [["all", `all ${usable.length}: median and range`], ...usable.map((run) => [run.key, `seed ${run.seed}`])];
  return {
    shown: () => usable.filter((run) => [run.key, "all"].includes(choice(`${id}-seed`, "all"))),
    controls: [selection(`${id}-seed`, "seeds", options, changed)],
  };
}

function trainingPanel(id, runs) {
  const boxes = [], redraw = () => boxes.forEach((box) => box.redraw());
  const { shown, controls } = seeds(id, runs, redraw);
  const log = () => choice(`${id}-log`, true), x = () => ({ title: "epoch", log: choice(`${id}-logx`, true) });
  for (const [series, title, logarithmic] of CURVES) {
    if (!runs.some((run) => run.series[series]?.some((v) => v !== null))) continue;
    boxes.push(plot({
      id: `${id}-${series}`, title, traces: () => epochs([["runs", shown()]], series),
      axes: () => ({ x: x(), y: { log: log() && logarithmic } }),
    }));
  }
  return [make("div", { class: "controls" }, controls, checkbox(`${id}-log`, "logarithmic values", true, redraw),
    checkbox(`${id}-logx`, "logarithmic epochs", true, redraw)), make("div", { class: "curves" }, boxes)];
}

// A task whose tag has no panel of its own: its numbers, and its series against their index.
function numbersPanel(id, runs) {
  const usable = runs.filter((run) => Object.keys(run.series).length);
  if (!usable.length) return [];
  const names = [...new Set(usable.flatMap((run) => Object.keys(run.series)))].slice(0, 10), head = ["seed", ...names];
  const curves = names.filter((name) => usable.every(({ series }) => series[name]?.length > 1 && !series[name].some(Array.isArray)));
  return [grid(head, usable.slice(0, 50).map((run) => row(head, String(run.seed), ...names.map((name) => atAGlance(run.series[name]))))),
    make("div", { class: "curves" }, curves.map((name) => numbersPlot(`${id}-${name}`, name, usable.slice(0, MANY))))];
}

function atAGlance(values = []) {
  const flat = values.flat(Infinity);
  return flat.length < 2 ? shortNumber(flat[0]) : `${shortNumber(flat[0])} … ${shortNumber(flat.at(-1))} (${flat.length} numbers)`;
}

function numbersPlot(id, name, runs) {
  return plot({
    id, title: name, axes: () => ({ x: { title: "index" }, y: {} }),
    traces: () => runs.map(({ seed, series }, i) => line(`seed ${seed}`, [...series[name].keys()], series[name], COLOURS[i % COLOURS.length])),
  });
}

// By the tag of a task; the script of a paper adds its own, functions of an id and the runs.
const PANELS = { training: trainingPanel };

// A committed summary: what each seed ended with beside what was expected; curves were not kept.
function keptPanel(id, { verdicts, columns }) {
  const drawn = verdicts.filter((found) => found.values.filter((value) => value !== null).length > 1);
  const head = ["in the end", "median", "least", "most"], known = Object.entries(columns).filter(([, spread]) => spread);
  return [make("div", { class: "curves small" }, drawn.map((found, i) => keptPlot(`${id}-${i}`, found))),
    make("details", {}, make("summary", {}, `${known.length} ${known.length === 1 ? "number" : "numbers"} over seeds`),
      grid(head, known.map(([name, { median, low, high }]) => row(head, name, ...[median, low, high].map(shortNumber)))))];
}

function keptPlot(id, { statement, values, bound, relation }) {
  const x = values.map((_, i) => i), shown = [...values, bound].filter((value) => value !== null), log = Math.min(...shown) > 0 && Math.max(...shown) > 100 * Math.min(...shown);
  return plot({
    id, title: statement, axes: () => ({ x: { title: "seed", whole: true }, y: { log } }),
    traces: () => [line(`must be ${relation} ${shortNumber(bound)}`, [x[0], x.at(-1)], [bound, bound], INK, { dash: "dash" }), dots("by seed", x, values, BLUE)],
  });
}

function keptFacts({ name, variant, seeds, kept }) {
  const odd = Object.entries(kept.statuses).filter(([status]) => status !== "finished").map(([status, count]) => `, ${count} ${status}`).join("");
  return make("p", { class: "dim" }, `${seeds} ${seeds === 1 ? "seed" : "seeds"}${odd}, ${shortNumber(kept.seconds)} s each, on ${kept.machine}, commit ${kept.commit.slice(0, 12)}. Curves are not committed: `,
    make("code", {}, `flattest run ${name}${variant === "full" ? " --full" : ""}`), " makes the runs again.");
}

function facts(panel, runs) {
  if (panel.kept) return keptFacts(panel);
  const seconds = runs.reduce((sum, run) => sum + run.seconds, 0);
  const machines = [...new Set(runs.map((run) => run.machine).filter(Boolean))].join("; ");
  return make("p", { class: "dim" }, `${runs.length} of ${Math.max(panel.seeds, runs.length)} seeds, ${seconds.toFixed(1)} s in all${machines ? `, on ${machines}` : ""}.`);
}

function troubles(runs) {
  const odd = runs.filter((run) => run.status !== "finished");
  if (!odd.length) return null;
  return make("ul", {}, odd.slice(0, 100).map((run) => make("li", { class: run.status === "broken" ? "broken" : "" }, make("span", { class: ["pending", "running"].includes(run.status) ? "dim" : "missed" }, run.status),
    ` ${run.label} seed ${run.seed} (${run.key}): ${run.sentence} ${(100 * run.progress).toFixed(0)} %`)),
    odd.length > 100 ? make("li", {}, `and ${odd.length - 100} more`) : null);
}

function idOf({ name, variant }) {
  return `${name}-${variant}`;
}

function panelCard(panel, runs, id = idOf(panel)) {
  return make("section", { class: "card", id },
    make("h3", {}, `${panel.figure} `, make("span", { class: "dim" }, `${panel.name}, ${panel.variant}`)),
    make("p", {}, panel.statement), panelBody(panel, runs, id));
}

function panelBody(panel, runs, id) {
  const kind = runs.find((run) => run.kind)?.kind;
  return [panel.notes ? make("p", { class: "dim" }, panel.notes) : null,
    make("ul", {}, panel.verdicts.map((v) => make("li", {}, verdict(v.met), " ", v.sentence))),
    troubles(runs), panel.kept ? keptPanel(id, panel.kept) : (PANELS[kind] ?? numbersPanel)(id, runs), facts(panel, runs),
    make("details", {}, make("summary", {}, "Settings"), make("pre", {}, JSON.stringify(panel.settings, null, 1)))].flat();
}
