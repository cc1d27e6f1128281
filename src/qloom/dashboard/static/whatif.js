// What if? A run that is done, replayed in virtual time under other conditions: two timelines, and what each costs.

import { make, seconds, setText } from "./dom.js";
import { act } from "./server.js";
import { Timeline } from "./timeline.js";

const COSTS = [
  ["turnaround_s", "Submission to end", "s"], ["node_s_held", "Nodes held", "node-s"], ["node_s_busy", "Nodes busy", "node-s"],
  ["qpu_s_held", "QPU held", "s"], ["qpu_s_busy", "QPU busy", "s"], ["node_wait_s", "Wait for nodes", "s"], ["qpu_wait_s", "Wait for a QPU", "s"],
];
const TYPING_MS = 300;
const number = (value) => value.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export class WhatIf {
  constructor(card, run) {
    this.card = card;
    this.run = run;
    this.asked = 0;
    this.timelines = [];
    const open = make("button", { id: "what-if", onclick: () => this.open() }, "Try other conditions");
    card.replaceChildren(
      make("div", { class: "headline" }, make("h2", {}, "What if?"), open),
      make("p", { class: "soft" }, "Replays the recorded work in virtual time: another strategy, more nodes, a slower QPU. Nothing is computed."));
    this.button = open;
  }

  close() {
    for (const timeline of this.timelines) timeline.close();
    clearTimeout(this.timer);
  }

  async open() {
    this.button.disabled = true;
    this.status = make("p", { class: "soft", role: "status", id: "what-if-status" }, "Replaying ...");
    this.card.append(this.status);
    const found = await this.ask({});
    this.button.hidden = Boolean(found);
    this.button.disabled = false;
    if (found) this.build(found);
  }

  async ask(change) {
    const asked = ++this.asked;
    setText(this.status, "Replaying ...");
    try {
      const found = await act(this.run, "what-if", change);
      if (asked !== this.asked) return null;  // another question was asked meanwhile
      setText(this.status, "");
      return found;
    } catch (error) {
      if (asked === this.asked) setText(this.status, error.message);
      return null;
    }
  }

  build(found) {
    const was = found.as_was;
    const choice = make("select", { id: "if-strategy" }, ...found.strategies.map((name) => make("option", { value: name }, name)));
    if (!found.strategies.includes(was.strategy)) choice.prepend(make("option", { value: was.strategy }, was.strategy));
    choice.value = was.strategy;
    const slider = (id, label, least, most, value, step, words, read) => {
      const output = make("output", { for: id }, words(read(value)));
      const input = make("input", { id, type: "range", min: least, max: most, step, value });
      input.addEventListener("input", () => { setText(output, words(read(Number(input.value)))); input.setAttribute("aria-valuetext", output.textContent); });
      return { element: make("label", { for: id }, label, output, input), read: () => read(Number(input.value)) };
    };
    const same = (value) => value;
    this.sliders = {
      nodes: slider("if-nodes", "Nodes", 1, Math.max(4 * was.nodes, 8), was.nodes, 1, String, same),
      quantum: slider("if-quantum", "Quantum seconds", -1, 1, 0, 0.05, (by) => `times ${by >= 1 ? by.toFixed(1) : by.toFixed(2)}`, (power) => 10 ** power),
      wait_s: slider("if-wait", "Wait for nodes", 0, 40, waitPlace(found.wait_s), 1, seconds, (place) => place === waitPlace(found.wait_s) ? found.wait_s : place ** 2),
      jobs: slider("if-jobs", "Jobs at once", 1, Math.max(8, 2 * was.jobs), was.jobs, 1, String, same),
    };
    const ends = make("div", { class: "sides" });
    this.sides = ["As it was", "Changed"].map((title) => {
      const side = make("div", { class: "side" }, make("h3", {}, title), make("p", { class: "soft" }));
      ends.append(side);
      const timeline = new Timeline(side);
      this.timelines.push(timeline);
      return { side, timeline };
    });
    this.costs = make("tbody");
    this.table = make("tbody");
    const heads = (...names) => make("thead", {}, make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name))));
    const form = make("form", { class: "sliders" }, make("label", { for: "if-strategy" }, "Strategy", choice), ...Object.values(this.sliders).map((one) => one.element));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(async () => {
        const change = { strategy: choice.value };
        for (const [name, one] of Object.entries(this.sliders)) change[name] = one.read();
        const next = await this.ask(change);
        if (next) this.show(next);
      }, TYPING_MS);
    });
    this.card.append(form, this.status, ends,
      make("div", { class: "sides" },
        make("div", { class: "side" }, make("h3", {}, "Costs"), make("table", { id: "if-costs" }, heads("", "As it was", "Changed", "Difference"), this.costs)),
        make("div", { class: "side" }, make("h3", {}, "Every strategy under the changed conditions"),
          make("table", { id: "if-table" }, heads("Strategy", "Time", "Node-s", "QPU-s", "Cost"), this.table),
          this.reason = make("p", { class: "soft" }))));
    this.show(found);
  }

  show(found) {
    const longest = Math.max(found.as_was.end_us, found.changed.end_us, 1);
    [found.as_was, found.changed].forEach((replay, place) => {
      const { side, timeline } = this.sides[place];
      setText(side.querySelector("p"), `${replay.strategy}, ${replay.nodes} nodes, ${replay.jobs === 1 ? "1 job" : `${replay.jobs} jobs`}: ${seconds(replay.figures.turnaround_s)}`);
      timeline.setLength(longest * 1.01);
      timeline.reset(found.look, replay.rows, replay.bars);
      timeline.setClock(replay.end_us, false, []);
    });
    this.costs.replaceChildren(...COSTS.map(([name, label, unit]) => {
      const before = found.as_was.figures[name], after = found.changed.figures[name];
      const part = before ? `${after >= before ? "+" : "\u2212"}${Math.abs(Math.round(100 * (after - before) / before))} %` : "";
      return make("tr", {}, make("th", { scope: "row" }, `${label}, ${unit}`), ...[number(before), number(after), part].map((text) => make("td", { class: "number" }, text)));
    }));
    this.table.replaceChildren(...found.table.map((row) => make("tr", { class: row.strategy === found.changed.strategy ? "now" : null },
      make("th", { scope: "row" }, row.strategy),
      ...[row.turnaround_s, row.node_s_held, row.qpu_s_held, row.cost_node_s].map((value) => make("td", { class: "number" }, number(value))))));
    const worth = found.changed.nodes * found.changed.jobs;
    setText(this.reason, `Cost is in node-seconds: those held, and ${worth} for each second from submission to end, as qloom advise weighs them.`);
  }
}

const waitPlace = (waitS) => Math.min(40, Math.round(Math.sqrt(waitS)));
