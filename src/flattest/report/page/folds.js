// What is committed is a list of figures by paper, folded: a card is made when it is opened.
function fold(id, line, build, attributes = {}) {
  const element = make("details", { id, class: "fold", ...attributes }, make("summary", {}, line));
  let made = false;
  element.unfold = () => {
    if (!made) element.append(...build().filter(Boolean));
    made = element.open = true;
  };
  element.addEventListener("toggle", () => { if (element.open) element.unfold(); });
  return element;
}

// A place of the page, with every fold around it and its own opened.
function reveal(id) {
  const target = document.getElementById(id);
  for (let around = target; around; around = around.parentElement) around.unfold?.();
  target?.querySelector(":scope > .fold")?.unfold();
  target?.scrollIntoView();
}

// A paper's figures under one line, which says how many there are and how they came out. They are
// there from the start, so that the browser's own search finds their words.
function foldedList(id, panels, cards) {
  const missed = panels.filter(isMissed).length, list = fold(`${id}-list`, [make("span", {}, counted(panels.length)),
    missed ? make("span", { class: "missed" }, `✗ ${missed} not as expected`) : make("span", { class: "met" }, "✓ all as expected")], () => []);
  list.append(cards);
  return list;
}

function foldedCard(panel, runs) {
  const id = idOf(panel), words = `${panel.name} ${panel.variant} ${panel.figure} ${panel.statement} ${panel.notes}`.toLowerCase();
  return fold(id, [make("span", {}, make("strong", {}, panel.figure), " ", make("span", { class: "dim" }, `${panel.name}, ${panel.variant}`)),
    outcome(panel), make("span", { class: "said" }, panel.statement)], () => panelBody(panel, runs, id), { class: "fold card", "data-words": words, "data-missed": isMissed(panel) });
}

function isMissed({ verdicts }) {
  return verdicts.some(({ met }) => met === false);
}

function outcome({ verdicts }) {
  const missed = verdicts.filter(({ met }) => met === false).length;
  if (!verdicts.length) return make("span", { class: "dim" }, "nothing expected");
  return make("span", { class: missed ? "missed" : "met" }, missed ? `✗ ${missed} of ${verdicts.length} not met` : "✓ as expected");
}

function counted(figures) {
  return figures === 1 ? "1 figure" : `${figures} figures`;
}

// In a search the papers without a match are out of sight, and the lists of the others are open.
function showMatches(list, searching) {
  const found = list.querySelector(".card:not([hidden])") !== null;
  list.open = searching && found;
  list.parentElement.hidden = searching && !found;
}

// Words of a search may be part of a name or of what a figure shows.
function finder() {
  const count = make("p", { role: "status", id: "figures-count" }), search = make("input", { type: "search", id: "figures-search", placeholder: "label noise" });
  const cards = () => [...document.querySelectorAll(".fold.card")];
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean), missed = choice("figures-missed", false);
    for (const card of cards()) card.hidden = !words.every((word) => card.dataset.words.includes(word)) || (missed && card.dataset.missed !== "true");
    for (const list of document.querySelectorAll(".fold:has(> .cards)")) showMatches(list, missed || words.length > 0);
    say();
  };
  const say = () => { count.textContent = `${cards().filter((card) => !card.hidden).length} of ${counted(cards().length)}, by paper and study`; };
  search.addEventListener("input", show);
  whenIdle(say);
  return [make("div", { class: "controls" }, make("label", { for: "figures-search" }, "search", search), checkbox("figures-missed", "only those not as expected", false, show)), count];
}
