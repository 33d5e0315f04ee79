// Flatness against population loss, coloured by correlation.
function scatterPanel(id, runs) {
  const boxes = [], redraw = () => boxes.forEach((box) => box.redraw());
  const { shown, controls } = seeds(id, runs, redraw);
  const log = () => choice(`${id}-log`, true);
  for (const [x, y, title] of [["flatness", "population_loss", "Minimizer of ‖a‖ₚᵖ, Eq. (3)"],
    ["weighted_flatness", "weighted_population_loss", "Minimizer of the flatness itself"]]) {
    boxes.push(plot({
      id: `${id}-${x}`, title, legend: correlationKeys,
      traces: () => shown().map((run) => correlated(run, x, y)),
      axes: () => ({ x: { title: "flatness S_min", log: log() }, y: { title: "population loss", log: log() } }),
    }));
  }
  return [make("div", { class: "controls" }, controls, checkbox(`${id}-log`, "logarithmic", true, redraw)),
    make("div", { class: "curves" }, boxes)];
}

function correlated({ seed, series }, x, y) {
  return dots(`seed ${seed}`, series[x], series[y], BLUE, {
    colours: series.correlation.map(correlationColour),
    tip: (i) => [`seed ${seed}, ρ = ${shortNumber(series.correlation[i])}`, `flatness ${shortNumber(series[x][i])}`, `loss ${shortNumber(series[y][i])}`],
  });
}

// Viridis over ρ from 0.01 to 1, logarithmically.
const VIRIDIS = ["#440154", "#3b528b", "#21918c", "#5ec962", "#fde725"];

function correlationColour(rho) {
  return `rgb(${mixed(VIRIDIS, 1 + Math.log10(rho) / 2).join(" ")})`;
}

function correlationKeys() {
  return ["ρ", ...[0.01, 0.03, 0.1, 0.3, 1].map((rho) => make("span", { class: "key" },
    shape("svg", { viewBox: "-5 -5 10 10", "aria-hidden": "true" }, shape("path", { d: SYMBOLS.circle, fill: correlationColour(rho) })), String(rho)))];
}

function scalingPanel(id, runs) {
  const { shown, controls } = seeds(id, runs, () => box.redraw());
  const box = plot({
    id: `${id}-scaling`, title: "‖a‖ₚᵖ of the flattest interpolator",
    traces: () => shown().flatMap((run, i) => [["good", BLUE], ["bad", RED]].map(([name, colour], j) =>
      line(`${name} inner weights, n^${power(run.series.n, run.series[name])}`, run.series.n, run.series[name], colour,
        { dots: true, dash: PATTERNS[j], key: i === 0 }))),
    axes: () => ({ x: { title: "n", log: true }, y: { log: true } }),
  });
  return [make("div", { class: "controls" }, controls), box];
}

// The least-squares exponent of y against x.
function power(x, y) {
  const [u, v] = [x, y].map((values) => values.map(Math.log)), mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
  const [mu, mv] = [mean(u), mean(v)];
  const slope = u.reduce((sum, ui, i) => sum + (ui - mu) * (v[i] - mv), 0) / u.reduce((sum, ui) => sum + (ui - mu) ** 2, 0);
  return slope.toFixed(2);
}

PANELS["vardhan2026/scatter"] = scatterPanel;
PANELS["vardhan2026/scaling"] = scalingPanel;
