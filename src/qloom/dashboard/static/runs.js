// The list of runs, newest first.

import { badge, make, seconds } from "./dom.js";
import { onLink } from "./main.js";
import { follow } from "./server.js";

export function showRuns(main) {
  document.title = "qloom: runs";
  const body = make("tbody");
  const empty = make("p", { class: "empty", hidden: true }, "There is no run yet. Start one in a terminal: qloom run PROGRAM");
  const head = make("tr", {}, ...["Run", "Program", "Strategy", "World", "Progress", "State"].map((name) => make("th", { scope: "col" }, name)));
  main.replaceChildren(
    make("h1", {}, "Runs"),
    make("div", { class: "card" }, make("table", { class: "runs" }, make("thead", {}, head), body), empty));

  const shown = new Map();
  return follow("/api/runs", {
    runs: ({ runs }) => {
      empty.hidden = runs.length > 0;
      const names = new Set(runs.map((run) => run.run));
      for (const [name, row] of shown) if (!names.has(name)) (row.element.remove(), shown.delete(name));
      runs.forEach((run, place) => {
        const text = JSON.stringify(run);
        let row = shown.get(run.run);
        if (row?.text !== text) {
          const element = rowOf(run);
          if (row) row.element.replaceWith(element);
          shown.set(run.run, row = { text, element });
        }
        if (body.children[place] !== row.element) body.insertBefore(row.element, body.children[place] ?? null);
      });
    },
  }, onLink);
}

function rowOf(run) {
  const cell = (label, ...content) => make("td", { "data-label": label }, ...content);
  return make("tr", {},
    make("th", { scope: "row" }, make("a", { href: `#/run/${encodeURIComponent(run.run)}` }, run.run)),
    cell("Program", run.program || "?"),
    cell("Strategy", run.strategy || "?"),
    cell("World", run.world || "?"),
    cell("Progress", progressOf(run)),
    cell("State", badge(run.state)));
}

export function progressOf(run) {
  if (run.problem) return make("span", { class: "soft" }, run.problem);
  if (run.done === undefined) {
    const tasks = run.tasks === 1 ? "1 task done" : `${run.tasks} tasks done`;
    return make("span", { class: "soft" }, tasks);
  }
  const percent = Math.round(100 * run.done);
  const words = `${percent} %, about ${seconds(run.left_s)} left`;
  return make("span", { class: "progress" },
    make("progress", { max: 100, value: percent, "aria-label": words }), make("span", {}, words));
}

