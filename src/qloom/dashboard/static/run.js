// One run: how it stands, what it holds as a timeline that grows, why, its phases and results.

import { badge, make, measured, seconds, setItems, setText } from "./dom.js";
import { ask, onLink, say } from "./main.js";
import { Logs } from "./logs.js";
import { progressOf } from "./runs.js";
import { act, follow } from "./server.js";
import { Timeline } from "./timeline.js";
import { WhatIf } from "./whatif.js";

const TILES = [
  ["elapsed", "Elapsed", (head) => seconds(head.now_us / 1e6), () => null],
  ["work", "Work done", (head) => `${head.tasks.toLocaleString("en")} ${head.tasks === 1 ? "task" : "tasks"}`,
    (head) => `${head.calls.toLocaleString("en")}${head.all_calls ? ` of about ${head.all_calls.toLocaleString("en")}` : ""} calls returned`],
  ["nodes", "Nodes", (head) => `${amount(head.figures.node_s_held)} node-s`, (head) => used(head.figures.node_s_busy, head.figures.node_s_held)],
  ["qpu", "QPU", (head) => `${amount(head.figures.qpu_s_held)} s`, (head) => used(head.figures.qpu_s_busy, head.figures.qpu_s_held)],
  ["waits", "Waited", (head) => seconds((head.figures.node_wait_s ?? 0) + (head.figures.qpu_wait_s ?? 0)),
    (head) => `${seconds(head.figures.node_wait_s ?? 0)} nodes, ${seconds(head.figures.qpu_wait_s ?? 0)} QPU`],
];

const NO_ESTIMATE = "The end cannot be estimated: no earlier run of the same plan is done.";

const amount = (value) => (value ?? 0).toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const used = (busy, held) => held ? `held; ${Math.round(100 * busy / held)} % busy` : "held";

export function showRun(main, name) {
  document.title = `qloom: ${name}`;
  const place = build(main, name);
  let head = null;
  let receivedMs = 0;
  let whatIf = null;

  function update(content) {
    head = content;
    receivedMs = performance.now();
    setText(place.title, head.program || name);
    setText(place.plan, `${name}, under ${head.strategy || "?"}, ${head.world || "?"}`);
    place.state.replaceChildren(badge(head.state));
    place.problem.hidden = !head.problem;
    setText(place.problem, head.problem ?? "");
    place.progress.hidden = !head.goes_on;
    place.progress.replaceChildren(head.done === undefined ? make("p", { class: "soft" }, NO_ESTIMATE) : progressOf(head));
    place.cancel.hidden = !head.goes_on;
    place.resume.hidden = !head.resumable;
    tiles(head);
    setItems(place.sentences, head.sentences);
    place.jobs.replaceChildren(...head.jobs.map((job) => jobOf(job, place.timeline.colourOf(job.name))));
    place.phases.replaceChildren(...head.phases.slice().reverse().map(phaseOf));
    place.noPhases.hidden = head.phases.length > 0;
    place.timeline.setClock(head.now_us, head.grows, head.gaps);
    place.whatIf.hidden = head.state !== "done";
    if (head.state === "done") whatIf ??= new WhatIf(place.whatIf, name);
  }

  function tiles(shown) {
    for (const [id, , value, detail] of TILES) {
      setText(place.tiles[id].value, value(shown));
      setText(place.tiles[id].detail, detail(shown) ?? "");
    }
  }

  const clock = setInterval(() => {
    if (!head?.grows) return;
    const now = { ...head, now_us: head.now_us + 1000 * (performance.now() - receivedMs) };
    setText(place.tiles.elapsed.value, TILES[0][2](now));
  }, 250);

  async function change(action, question, yes) {
    if (!await ask(question, yes)) return;
    try {
      say((await act(name, action)).message);
    } catch (error) {
      say(error.message);
    }
  }
  place.cancel.addEventListener("click", () => change("cancel",
    `Stop ${name}? It gives back its nodes and QPUs. What is done is kept, and it can be resumed.`, "Stop it"));
  place.resume.addEventListener("click", () => change("resume",
    `Resume ${name}? It goes on on this machine where its journal ends; what is done is not run again.`, "Resume it"));

  const stop = follow(`/api/runs/${encodeURIComponent(name)}`, {
    whole: (content) => {
      place.timeline.reset(content.look, content.rows, content.bars);
      update(content.head);
      requestAnimationFrame(() => setTimeout(() => measured("qloom-whole", 0)));  // it is drawn
    },
    change: (content) => {
      const beganMs = performance.now();
      place.timeline.change(content);
      update(content.head);
      measured("qloom-update", beganMs);
    },
  }, onLink);
  return () => {
    stop();
    clearInterval(clock);
    place.timeline.close();
    whatIf?.close();
    place.logs.close();
  };
}

function build(main, name) {
  const place = { tiles: {} };
  const keep = (key, element) => (place[key] = element);
  const tile = ([id, label]) => {
    const value = make("dd", { class: "value" }, "-");
    const detail = make("dd", { class: "soft" });
    place.tiles[id] = { value, detail };
    return make("div", { class: "tile", id: `tile-${id}` }, make("dt", {}, label), value, detail);
  };
  const headings = (...names) => make("thead", {}, make("tr", {}, ...names.map((one) => make("th", { scope: "col" }, one))));
  const logCard = make("section", { class: "card wide", "aria-label": "Output" });
  const canvasCard = make("section", { class: "card", "aria-label": "Timeline" });
  main.replaceChildren(
    keep("problem", make("p", { class: "problem", role: "alert", hidden: true })),
    make("div", { class: "headline" },
      make("div", {},
        make("h1", {}, keep("title", make("span", {}, name)), " ", keep("state", make("span", { role: "status" }))),
        keep("plan", make("p", { class: "soft" }))),
      make("div", { class: "buttons" },
        keep("cancel", make("button", { id: "cancel", hidden: true }, "Stop")),
        keep("resume", make("button", { id: "resume", class: "strong", hidden: true }, "Resume")))),
    keep("progress", make("div", { class: "whole-progress" })),
    make("dl", { class: "tiles" }, ...TILES.map(tile)),
    canvasCard,
    keep("whatIf", make("section", { class: "card", "aria-label": "What if?", hidden: true })),
    make("div", { class: "columns" },
      make("section", { class: "card" }, make("h2", {}, "What happens, and why"), keep("sentences", make("ul", { class: "sentences" }))),
      make("section", { class: "card" }, make("h2", {}, "Jobs and results"),
        make("table", {}, headings("Job", "State", "Tasks", "Result"), keep("jobs", make("tbody")))),
      make("section", { class: "card wide" }, make("h2", {}, "Phases, the latest first"),
        make("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": "Phases" },
          make("table", {}, headings("Job", "Phase", "Kind", "What", "Began", "Took"), keep("phases", make("tbody")))),
        keep("noPhases", make("p", { class: "soft" }, "No phase has begun."))),
      logCard));
  place.timeline = new Timeline(canvasCard);
  place.logs = new Logs(logCard, name);
  return place;
}

function jobOf(job, colour) {
  const swatch = make("i", { class: "swatch job" });
  if (colour) swatch.style.background = colour;
  const tasks = job.failed ? `${job.tasks}, ${job.failed} failed` : String(job.tasks);
  const result = job.error ? make("span", { class: "error" }, job.error) : make("code", {}, job.result ?? "");
  return make("tr", {}, make("th", { scope: "row" }, swatch, job.name), make("td", {}, job.state), make("td", {}, tasks), make("td", { class: "result" }, result));
}

function phaseOf(phase) {
  const cells = [phase.order, phase.kind, phase.what, phase.began, phase.took ?? "goes on"];
  return make("tr", { class: phase.took ? null : "now" }, make("th", { scope: "row" }, phase.job), ...cells.map((cell) => make("td", {}, String(cell))));
}
