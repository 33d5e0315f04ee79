// One's own questions: what was judged, swept or run from a file.
const ROLES = { algorithm: "the algorithm", baseline: "the baseline" };

function ownCard(asked, page) {
  if (asked.problem) return make("section", { class: "card", id: asked.name }, make("h3", {}, asked.name), make("p", { class: "missed" }, asked.problem));
  const runs = Object.fromEntries(Object.entries(asked.runs).map(([role, keys]) => [role, keys.map((key) => page.runs[key]).filter(Boolean)]));
  if (asked.panel) return panelCard(asked.panel, asked.panel.runs.map((key) => page.runs[key]).filter(Boolean), asked.panel.name);
  return make("section", { class: "card", id: asked.name }, make("h3", {}, `${asked.name.split("/").slice(1).join("/")} `, make("span", { class: "dim" }, asked.kind === "diagram" ? "a phase diagram" : "judged")),
    ...(asked.kind === "diagram" ? diagramOf(asked, runs) : judgementOf(asked, runs, page.outline.glyphs)), whenAsked(asked, runs),
    make("details", {}, make("summary", {}, "Settings"), make("pre", {}, JSON.stringify(asked.settings, null, 1))));
}

function whenAsked({ asked, earlier }, runs) {
  const all = Object.values(runs).flat(), done = all.filter((run) => ["finished", "diverged", "stagnated"].includes(run.status)).length;
  const seconds = all.reduce((sum, run) => sum + run.seconds, 0), before = earlier.length ? ` With other settings it was asked ${earlier.map(dayOf).join(" and ")}.` : "";
  return make("p", { class: "dim" }, `Asked ${dayOf(asked)}. ${done} of ${all.length} runs are done, ${seconds.toFixed(1)} s in all.${before}`);
}

function dayOf(seconds) {
  return new Date(1000 * seconds).toLocaleString("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });
}

function judgementOf({ name, answer }, runs, glyphs) {
  const halves = [["All flattest minimizers generalize", answer?.flattest_generalize], ["The algorithm generalizes", answer?.algorithm_generalizes], ["The baseline generalizes", answer?.baseline_generalizes]];
  const head = ["question", "answer", "evidence"];
  const findings = halves.filter(([, found]) => found).map(([question, found]) => row(head, question, make("span", { class: "whole" }, graded(glyphs, found.grade)), found.sentence));
  const said = answer ? [make("p", { class: "answer" }, make("strong", {}, `${answer.scenario}. `), SCENARIOS[answer.scenario] ?? ""), grid(head, findings)]
    : [make("p", { class: "answer" }, make("strong", {}, "Not judged yet. "), "The same command goes on where it stopped.")];
  return [...said, troubles(Object.values(runs).flat()), ownCurves(name, runs), challenged(runs.challenge ?? [])];
}

function ownCurves(id, runs) {
  const groups = Object.keys(ROLES).filter((role) => runs[role]?.some((run) => run.series.epoch)).map((role) => [ROLES[role], runs[role]]);
  if (!groups.length) return make("p", { class: "dim" }, "No curves yet.");
  const errors = () => groups.flatMap(([name, own], i) => [["test_error", "test error", i], ["train_error", "train error", i + 2]]
    .flatMap(([series, text, colour]) => drawnRuns(`${name}: ${text}`, own, series, colour)));
  return make("div", { class: "curves" },
    plot({ id: `${id}-sharpness`, title: "Sharpness Tr ∇²L", traces: () => epochs(groups, "sharpness"), axes: () => ({ x: EPOCH, y: { log: true } }) }),
    plot({ id: `${id}-errors`, title: "Train and test error", traces: errors, axes: () => ({ x: EPOCH, y: {} }) }),
    plot({ id: `${id}-train_loss`, title: "Training loss", traces: () => epochs(groups, "train_loss"), axes: () => ({ x: EPOCH, y: { log: true } }) }));
}

// What the search for a flattest network that does not generalize came to.
function challenged(runs) {
  const found = runs.filter((run) => run.series.test_error);
  if (!found.length) return null;
  const columns = [["began at test error", "start_test_error"], ["ended at sharpness", "sharpness"], ["certified lower bound", "bound"], ["ended at test error", "test_error"]];
  const head = ["challenge", ...columns.map(([text]) => text)];
  const rows = found.map((run) => row(head, `seed ${run.seed}`, ...columns.map(([, name]) => { const [value] = run.series[name] ?? [null]; return name === "start_test_error" && value === null ? "built, not searched for" : shortNumber(value); })));
  return grid(head, rows, { caption: "Flattest networks that do not generalize, looked for" });
}

function diagramOf({ name, answer, settings }, runs) {
  const { x, y } = settings, values = answer ? answer.error : y.values.map((_, i) => x.values.map((__, j) => meanError(runs[`${i},${j}`] ?? [])));
  const missing = answer ? (answer.missing ? `${answer.missing} runs have no result. ` : "") : "Not all runs are done: these are the errors so far. ";
  return [make("p", {}, `${missing}Mean test error over ${settings.seeds} ${settings.seeds === 1 ? "seed" : "seeds"} for each pair of settings.`),
    troubles(Object.values(runs).flat().filter((run) => run.status !== "pending")),
    heatMap({ id: `${name}-diagram`, title: "Test error", x, y, values, most: 0.5 })];
}

function meanError(runs) {
  const errors = runs.filter((run) => run.series.test_error).map((run) => run.series.test_error.at(-1)).filter((value) => value !== null);
  return errors.length ? errors.reduce((a, b) => a + b, 0) / errors.length : null;
}
