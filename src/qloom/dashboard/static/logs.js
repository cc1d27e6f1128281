// What the tasks of a run print, followed once somebody wants to see it.

import { make } from "./dom.js";
import { onLink } from "./main.js";
import { follow } from "./server.js";

const LINES = 500;

export class Logs {
  constructor(card, run) {
    this.lines = [];
    this.stop = () => {};
    this.text = make("pre", { class: "log", role: "log", "aria-label": "Output of tasks", tabindex: 0, hidden: true });
    this.button = make("button", { id: "logs", onclick: () => this.open(run) }, "Follow the output");
    card.replaceChildren(make("div", { class: "headline" }, make("h2", {}, "Output of tasks"), this.button), this.text);
  }

  open(run) {
    this.button.hidden = true;
    this.text.hidden = false;
    this.show();
    this.stop = follow(`/api/runs/${encodeURIComponent(run)}/logs`, {
      whole: ({ lines }) => { this.lines = lines; this.show(); },
      more: ({ lines }) => { this.lines = [...this.lines, ...lines].slice(-LINES); this.show(); },
    }, onLink);
  }

  // The end stays in sight, unless the reader has scrolled away from it.
  show() {
    const atEnd = this.text.scrollTop + this.text.clientHeight >= this.text.scrollHeight - 4;
    this.text.textContent = this.lines.join("\n") || "Nothing has been printed yet.";
    if (atEnd) this.text.scrollTop = this.text.scrollHeight;
  }

  close() {
    this.stop();
  }
}
