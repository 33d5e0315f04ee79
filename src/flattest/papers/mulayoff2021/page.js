// Step sizes and the functions that gradient descent finds.
function functionPlot(id, series, shown) {
  return plot({
    id: `${id}-function`, title: "f and the data",
    traces: () => [...shown().map(([name, f, colour], i) => line(name, f.corners, f.values, colour, { dash: PATTERNS[i] })),
      dots("data", series().x, series().y, ORANGE)],
    axes: () => ({ x: { title: "x" }, y: {} }),
  });
}

// |f″| as stems at the knots (with gaps between them), g on an axis of its own.
function curvaturePlot(id, series, shown) {
  const stems = (f) => ({ x: f.knots.flatMap((k) => [k, k, null]), y: f.masses.flatMap((m) => [1e-3, m, null]) });
  return plot({
    id: `${id}-curvature`, title: "|f″| at the knots, and g",
    traces: () => [...shown().map(([name, f, colour], i) => line(name, stems(f).x, stems(f).y, colour, { dash: PATTERNS[i] })),
      line("g, on a scale of its own", series().grid, series().g, ORANGE, { right: true, until: series().g.map(() => 0), quiet: true })],
    axes: () => ({ x: { title: "x" }, y: { log: true } }),
  });
}

function twoStepSizesPanel(id, runs) {
  const usable = runs.filter((run) => run.series.functions?.length === 2);
  if (!usable.length) return [];
  const boxes = [], redraw = () => boxes.forEach((box) => box.redraw());
  const series = () => usable.find((run) => run.key === choice(`${id}-seed`, usable[0].key))?.series ?? usable[0].series;
  const names = () => [`η = ${shortNumber(series().lr[0])}`, `then η = ${shortNumber(series().lr[1])}`];
  const shown = () => series().functions.map((f, i) => [names()[i], f, [BLUE, GREEN][i]]);
  const trace = (name, title, thresholds) => plot({
    id: `${id}-${name}`, title,
    traces: () => names().flatMap((label, i) => [line(label, series().epoch, series()[name][i], [BLUE, GREEN][i], { dash: PATTERNS[i] }),
      ...(thresholds ? [line(`2/η, ${label}`, [series().epoch[0], series().epoch.at(-1)], Array(2).fill(2 / series().lr[i]), [BLUE, GREEN][i], { dash: "dot" })] : [])]),
    axes: () => ({ x: { title: "iteration", log: true }, y: { log: true } }),
  });
  boxes.push(functionPlot(id, series, shown), curvaturePlot(id, series, shown), trace("train_loss", "Loss", false), trace("sharpness_trace", "λ_max and 2/η", true));
  return [make("div", { class: "controls" }, seedChoice(id, usable, redraw)), make("div", { class: "curves" }, boxes)];
}

function seedChoice(id, runs, changed) {
  return selection(`${id}-seed`, "seed", runs.map((run) => [run.key, String(run.seed)]), changed);
}

function sweepPanel(id, runs) {
  const usable = runs.filter((run) => run.series.functions?.length);
  if (!usable.length) return [];
  const boxes = [], redraw = () => boxes.forEach((box) => box.redraw());
  const series = () => usable.find((run) => run.key === choice(`${id}-seed`, usable[0].key))?.series ?? usable[0].series;
  const place = () => series().functions[Math.min(choice(`${id}-step`, 0), series().functions.length - 1)];
  const step = () => `η = ${shortNumber(series().lr[place().run])}, ∫|f″|g = ${shortNumber(series().variation[place().run])}`;
  const shown = () => [[step(), place(), BLUE]];
  boxes.push(sweepPlot(id, series, place), functionPlot(id, series, shown), curvaturePlot(id, series, shown));
  const holder = make("div", { class: "controls" });
  const refill = () => {
    chosen.set(`${id}-step`, Math.min(choice(`${id}-step`, 0), series().functions.length - 1));
    holder.replaceChildren(seedChoice(id, usable, () => { refill(); redraw(); document.getElementById(`${id}-seed`).focus(); }),
      slider(`${id}-step`, "step size", series().functions.length, 0, (i) => `η = ${shortNumber(series().lr[series().functions[i].run])}`, redraw));
  };
  refill();
  return [holder, make("div", { class: "curves" }, boxes)];
}

function sweepPlot(id, series, place) {
  const curves = [["sharpness", "λ_max", RED], ["flattest", "flattest implementation", BLUE], ["bound", "1 + 2∫|f″|g", GREEN]];
  return plot({
    id: `${id}-sweep`, title: "λ_max, its bound and 2/η",
    traces: () => [line("2/η", series().lr, series().threshold, INK, { dash: "dash" }),
      ...curves.map(([name, text, colour], i) => dots(text, series().lr, series()[name], colour, { symbol: ["circle", "diamond", "square"][i] })),
      line("shown", Array(2).fill(series().lr[place().run]), [1, series().threshold[0]], INK, { dash: "dot", quiet: true })],
    axes: () => ({ x: { title: "η", log: true }, y: { log: true } }),
  });
}

function magnitudesPanel(id, runs) {
  const usable = runs.filter((run) => run.series.factor);
  if (!usable.length) return [];
  const series = () => usable.find((run) => run.key === choice(`${id}-seed`, usable[0].key))?.series ?? usable[0].series;
  const box = plot({
    id: `${id}-magnitudes`, title: "λ_max for scales of the initialization",
    traces: () => [line("2/η", series().lr[0], series().threshold[0], INK, { dash: "dash" }),
      ...series().factor.map((factor, i) => line(`× ${factor}`, series().lr[i], series().sharpness[i], COLOURS[i % COLOURS.length], { dots: true, dash: PATTERNS[i % PATTERNS.length] }))],
    axes: () => ({ x: { title: "η", log: true }, y: { log: true } }),
  });
  return [make("div", { class: "controls" }, seedChoice(id, usable, () => box.redraw())), box];
}

PANELS["mulayoff2021/two-step-sizes"] = twoStepSizesPanel;
PANELS["mulayoff2021/step-size-sweep"] = sweepPanel;
PANELS["mulayoff2021/init-magnitudes"] = magnitudesPanel;
