// The sections in order: id, title, what it shows, and what it depends on.
function sections(page) {
  const { outline, runs, networks: insides } = page;
  const marked = (keys) => keys.map((key) => outline.marks[key]);
  const committed = outline.panels.some((panel) => panel.kept);
  const panelsOf = (paper) => outline.panels.filter((panel) => panel.paper === paper);
  const runsOf = (paper) => panelsOf(paper).flatMap((panel) => panel.runs);
  const cards = (paper) => panelsOf(paper).map((panel) => ({ signature: [panel, marked(panel.runs)], id: idOf(panel),
    build: () => (committed ? foldedCard : panelCard)(panel, panel.runs.map((key) => runs[key])) }));
  const own = outline.questions.map((asked) => ({ signature: [asked, marked(Object.values(asked.runs).flat())], id: asked.name, build: () => ownCard(asked, page) }));
  const work = atWork(page), inner = Object.keys(insides), odd = outline.others.map((key) => runs[key]).filter(Boolean);
  const byPaper = outline.papers.map(({ name, title }) => ({ id: name, title: name, about: title, cards: cards(name), folded: committed && panelsOf(name) })).filter((asked) => asked.cards.length);
  return [
    work && { id: "work", title: "At work", signature: Date.now(), build: () => work },
    own.length && { id: "own", title: "Your questions", about: "What you judged, swept or ran from a file, the last first.", cards: own },
    // Of what is committed the list of all figures comes first, on a page of one's own runs Table 1.
    ...(committed ? [{ id: "figures", title: "Figures", signature: "", build: finder }, ...byPaper] : []),
    ...outline.fronts.map((front) => ({ id: `${front.paper}-front`, title: front.title, signature: [front, marked(runsOf(front.paper))],
      build: () => [scenarioTable(front, outline), make("div", { class: "scenarios" }, front.scenarios.map((found) => scenario(page, found)))] })),
    inner.length && { id: "inside", title: "Inside a network", signature: marked(inner), build: () => networks(page) },
    ...(committed ? [] : byPaper),
    Object.keys(runs).length && { id: "runs", title: "Runs", last: true, signature: outline.marks, build: () => runTable(page) },
    page.claims.length && { id: "claims", title: "Claims", last: true, signature: outline.problem, build: () => claims(page.claims, outline.problem, outline.glyphs) },
    odd.length && { id: "others", title: "Other runs", signature: marked(outline.others), build: () => others(odd) },
  ].filter(Boolean);
}

function others(runs) {
  return [make("p", {}, `${runs.length} runs of experiments that this flattest does not know.`), troubles(runs)];
}

// Puts the wanted children into a parent, keeping those whose signature is the same.
function fill(parent, wanted) {
  const before = new Map([...parent.children].map((child) => [child.dataset.part, child]));
  const after = wanted.map(({ id, signature, build }) => {
    const text = JSON.stringify(signature), old = before.get(id);
    if (old && old.signature === text) return old;
    const element = build();
    element.dataset.part = id;
    element.signature = text;
    return element;
  });
  if (after.length !== parent.children.length || after.some((child, i) => child !== parent.children[i])) parent.replaceChildren(...after);
}

function section(asked) {
  const element = make("section", { id: asked.id }, make("h2", {}, asked.title));
  if (asked.cards) {
    const holder = make("div", { class: "cards" });
    element.append(make("p", { class: "dim" }, asked.about), asked.folded ? foldedList(asked.id, asked.folded, holder) : holder);
    fill(holder, asked.cards);
  } else {
    const build = () => element.append(...[asked.build()].flat(2).filter(Boolean));
    // Tables at the page's end are made after its first view.
    if (asked.last && !document.body.dataset.ready) whenIdle(build); else build();
  }
  return element;
}

function show(page) {
  const main = document.getElementById("main"), focused = document.activeElement?.id, found = sections(page);
  const before = [...document.querySelectorAll(".plot")];
  // Sections made of cards stay, and their cards are renewed one by one.
  fill(main, found.map((asked) => ({ id: asked.id, signature: asked.cards ? asked.id : asked.signature, build: () => section(asked) })));
  found.filter((asked) => asked.cards).forEach((asked) => fill(document.querySelector(`#${asked.id} .cards`), asked.cards));
  navigate(found);
  document.getElementById("glance").textContent = glance(page);
  forget(before);
  if (!Object.keys(page.runs).length && !page.outline.panels.length) main.prepend(make("p", {}, "This store has no runs yet."));
  if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

function navigate(found) {
  const nav = document.getElementById("nav"), links = found.map(({ id, title }) => make("a", { href: `#${id}` }, title));
  if (nav.textContent !== links.map((link) => link.textContent).join("")) nav.replaceChildren(...links);
}

// Plots that have left the page are watched no longer.
function forget(boxes) {
  for (const box of boxes.filter((plotted) => !plotted.isConnected)) {
    pending.delete(box);
    watcher.unobserve(box);
    sizes.unobserve(box);
  }
}

// Asks the server what has changed; where it does not answer, until it answers again.
const POLL = 1000, AT_ONCE = 6;

async function update(page, tag) {
  const answer = await fetch("live", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
  if (answer.status === 304) return tag;
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  const outline = await answer.json();
  const stale = Object.keys(outline.marks).filter((key) => outline.marks[key] !== page.outline.marks[key]);
  for (let i = 0; i < stale.length; i += AT_ONCE) await Promise.all(stale.slice(i, i + AT_ONCE).map((key) => renew(page, key)));
  for (const key of Object.keys(page.runs)) if (!(key in outline.marks)) { delete page.runs[key]; delete page.networks[key]; }
  page.outline = outline;
  show(page);
  return answer.headers.get("ETag");
}

async function renew(page, key) {
  const answer = await fetch(`run/${encodeURIComponent(key)}`, { cache: "no-store" });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  const { run, network: inner } = await answer.json();
  page.runs[key] = run;
  if (inner) page.networks[key] = inner;
}

async function follow(page) {
  const status = document.getElementById("connection");
  for (let tag = null; ;) {
    let text = "Live: this page follows the store.";
    try {
      tag = await update(page, tag);
    } catch {
      tag = null;
      text = "The server does not answer; this page shows what there was and keeps trying.";
    }
    if (status.textContent !== text) status.textContent = text;
    await new Promise((wake) => setTimeout(wake, POLL));
  }
}

unzipped("data").then((page) => {
  document.getElementById("data").remove();
  show(page);
  // The browser looked for the place in the address before there was any.
  if (location.hash) reveal(decodeURIComponent(location.hash.slice(1)));
  window.addEventListener("hashchange", () => reveal(decodeURIComponent(location.hash.slice(1))));
  document.body.dataset.ready = `after ${Math.round(performance.now())} ms`;
  if (document.body.dataset.live === "yes") follow(page);
}).catch((error) => {
  document.getElementById("main").replaceChildren(make("p", { class: "missed" }, `The page cannot be read: ${error.message}`));
});
