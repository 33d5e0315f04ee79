const EPOCH = { title: "epoch", log: true };
// wen2023, Section 1: three answers to one question.
const SCENARIOS = {
  "Scenario I": "Every flattest minimum generalizes, and so does what the algorithm finds.",
  "Scenario II": "Some flattest minima do not generalize, and neither does what the algorithm finds.",
  "Scenario III": "Some flattest minima do not generalize, yet what the algorithm finds does: flatness alone cannot explain it.",
  undetermined: "These runs do not decide it.",
};

// What there is, in one line.
function glance({ outline, runs, claims: entries }) {
  const judged = outline.panels.flatMap((panel) => panel.verdicts).filter(({ met }) => met !== null), checked = entries.filter((entry) => entry.checked);
  const kept = outline.panels.filter((panel) => panel.kept).length;
  const parts = [...(kept ? [`results of ${kept} experiments`] : []), `${Object.keys(runs).length} runs`];
  if (judged.length) parts.push(`${judged.filter(({ met }) => met).length} of ${judged.length} expectations met`);
  if (checked.length) parts.push(`${checked.filter((entry) => entry.checked.as_expected).length} of ${checked.length} claims checked are as expected`);
  return `In ${outline.place}: ${parts.join(", ")}.`;
}

function scenarioTable({ title: name, scenarios }, { glyphs, place }) {
  const flows = scenarios.some(({ answer }) => answer.flow_generalizes);
  const head = ["Architecture", "All flattest minimizers generalize", "1-SAM generalizes", ...(flows ? ["The flow generalizes"] : []), "Answer"];
  const body = scenarios.map(({ title, theorem, variant, printed, reason, answer }) => {
    const cell = (finding, expected) => make("span", { title: finding.sentence }, graded(glyphs, finding.grade), " ",
      expected !== undefined && finding.grade !== "open" && (finding.grade !== "refuted") !== expected ? make("span", { class: "missed" }, `(the paper prints ${expected ? "✓" : "✗"}) `) : null,
      make("span", { class: "dim" }, finding.sentence));
    return row(head, [title, make("br"), make("span", { class: "dim" }, `${theorem}; ${variant} runs`)],
      cell(answer.flattest_generalize, printed[0]), cell(answer.algorithm_generalizes, printed[1]),
      ...(flows ? [answer.flow_generalizes ? cell(answer.flow_generalizes) : ""] : []), [make("strong", {}, answer.scenario.replace("Scenario ", "Scenario\u00a0")), make("br"), make("span", { class: "dim" }, reason)]);
  });
  return [grid(head, body, { caption: `${name} as the runs of ${place} have it` }),
    make("p", { class: "dim" }, "The certified lower bound holds for networks that fit the data exactly; at a positive training loss the sharpness may lie below it.")];
}

// One scenario: the sharpness falling to its certified bound, and the test error.
function scenario(page, found) {
  const runsOf = (role) => {
    const named = page.outline.panels.filter((p) => p.name === found.panels[role]);
    const panel = named.find((p) => p.variant === found.variant) ?? named[0];
    return (panel?.runs ?? []).map((key) => page.runs[key]);
  };
  const groups = [["1-SAM", runsOf("algorithm")], ["gradient descent", runsOf("baseline")]].filter(([, runs]) => runs.length);
  if (!groups.some(([, runs]) => runs.some((run) => run.series.epoch))) {
    return make("section", { class: "card" }, make("h3", {}, found.title), make("p", { class: "dim" }, "No curves yet."));
  }
  const draw = (series, title, log) => plot({
    id: `front-${found.title}-${series}`, title, traces: () => epochs(groups, series), axes: () => ({ x: EPOCH, y: { log } }),
  });
  return make("section", { class: "card" }, make("h3", {}, found.title),
    make("p", { class: "meaning" }, make("strong", {}, `${found.answer.scenario}. `), SCENARIOS[found.answer.scenario]),
    draw("sharpness", "Sharpness Tr ∇²L", true), draw("test_error", "Test error", false));
}

function atWork(page) {
  const runs = Object.values(page.runs).filter((run) => run.status === "running");
  const waiting = Object.values(page.runs).filter((run) => run.status === "pending").length;
  if (!runs.length && !waiting) return null;
  const bar = (run) => make("li", {}, `${run.label} seed ${run.seed}: ${(100 * run.progress).toFixed(0)} %${last(run)}`,
    make("progress", { max: 1, value: run.progress, "aria-label": `${run.label} seed ${run.seed}` }));
  return [make("ul", {}, runs.map(bar)), waiting ? make("p", { class: "dim" }, `${waiting} more are waiting.`) : null];
}

function last(run) {
  const at = (name) => run.series[name]?.at(-1);
  return at("train_loss") === undefined ? "" : `, loss ${shortNumber(at("train_loss"))}, sharpness ${shortNumber(at("sharpness"))}`;
}
