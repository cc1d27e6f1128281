// The timeline: nodes above, QPUs below, drawn on a canvas that is as large as what is seen of it. Bars grow by a clock.

import { make, measured, seconds, setText } from "./dom.js";

const ROW = 20, TIGHT_ROW = 11, LANE = 8, MOST_STRIP = 56, GAP = 3, AXIS = 24, TIGHT_ABOVE = 48;
const FRAME_MS = 200;
const FREE = 1e4;  // microseconds: the shortest time that the whole width may show
const LEGEND = [["busy", "a task runs"], ["spare", "spare work"], ["idle", "held but idle"], ["share", "share of a QPU held"], ["waiting", "waits in line"]];
const STYLE = { task: "busy", quantum: "busy", spare: "spare", node: "idle", qpu: "idle", vqpu: "share", wait: "waiting" };
const WORDS = { task: "runs", quantum: "executes", spare: "runs as spare work", node: "held", qpu: "QPU held", vqpu: "share of the QPU held", wait: "waits" };
const OUTCOMES = { granted: "granted", grown: "granted", withdrawn: "withdrawn", quantum_started: "started", quantum_ended: "ended", open: "cut off when the driver stopped" };

export class Timeline {
  static count = 0;

  constructor(card) {
    this.rows = [];
    this.bars = new Map();
    this.byRow = new Map();
    this.jobs = new Map();
    this.look = { palette: ["#0072b2"], opacity: {} };
    this.nowUs = 0;
    this.grows = false;
    this.gaps = [];
    this.view = null;  // null: everything, from the beginning until now
    this.selected = null;
    this.build(card);
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.onScheme = () => this.draw();
    this.scheme.addEventListener("change", this.onScheme);
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.frame);
    this.timer = setInterval(() => this.grows && !document.hidden && this.draw(), FRAME_MS);
  }

  build(card) {
    const readoutId = `readout-${++Timeline.count}`;
    const button = (words, label, action) => make("button", { "aria-label": label, title: label, onclick: action }, words);
    this.legend = make("ul", { class: "legend", "aria-label": "Legend" }, ...LEGEND.map(([style, words]) => make("li", {}, make("i", { class: `swatch ${style}` }), words)));
    this.canvas = make("canvas", { tabindex: 0, role: "application", "aria-label": "Timeline of nodes and QPUs. Arrow keys go from bar to bar, plus and minus zoom, 0 shows everything.", "aria-describedby": readoutId });
    this.spacer = make("div", { class: "spacer" }, this.canvas);
    this.frame = make("div", { class: "frame" }, this.spacer);
    this.readout = make("p", { id: readoutId, class: "readout soft", role: "status", "aria-live": "polite" }, "Point at a bar, or use the arrow keys.");
    this.tip = make("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    card.append(
      make("div", { class: "headline" }, make("h2", {}, "Timeline"),
        make("div", { class: "buttons small" }, button("\u2212", "Zoom out", () => this.zoom(2)), button("+", "Zoom in", () => this.zoom(0.5)), button("All", "Show everything", () => this.showAll()))),
      this.legend, this.frame, this.readout, this.tip);
    this.frame.addEventListener("scroll", () => this.draw());
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("pointerdown", (event) => this.grab(event));
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  close() {
    clearInterval(this.timer);
    this.observer.disconnect();
    this.scheme.removeEventListener("change", this.onScheme);
  }

  // What the server sends

  reset(look, rows, bars) {
    this.look = look;
    this.bars.clear();
    this.byRow.clear();
    this.selected = null;
    this.rows = rows;
    for (const bar of bars) this.add(bar);
    this.draw();
  }

  change({ opened, ended, dropped, rows }) {
    if (rows) this.rows = rows;
    for (const id of dropped) this.remove(id);
    for (const bar of opened) this.add(bar);
    for (const [id, begin, end, state] of ended) {
      const bar = this.bars.get(id);
      if (bar) Object.assign(bar, { begin, end, state });
    }
    this.draw();
  }

  add([id, row, lane, kind, job, begin, end, label, state]) {
    const bar = { id, row, lane, kind, job, begin, end, label, state };
    this.bars.set(id, bar);
    if (!this.byRow.has(row)) this.byRow.set(row, []);
    this.byRow.get(row).push(bar);
    if (!this.jobs.has(job)) this.jobs.set(job, this.jobs.size);
  }

  remove(id) {
    const bar = this.bars.get(id);
    if (!bar) return;
    this.bars.delete(id);
    const row = this.byRow.get(bar.row);
    row.splice(row.indexOf(bar), 1);
    if (this.selected === bar) this.selected = null;
  }

  setClock(nowUs, grows, gaps) {
    this.nowUs = nowUs;
    this.grows = grows;
    this.gaps = gaps;
    this.receivedMs = performance.now();
    this.draw();
  }

  now() {
    return this.grows ? this.nowUs + 1000 * (performance.now() - this.receivedMs) : this.nowUs;
  }

  // Where things are

  span() {
    return this.view ?? { from: 0, to: this.whole() };
  }

  // The end of everything; timelines side by side are given one length.
  whole() {
    return this.length ?? Math.max(this.now() * 1.01, FREE);
  }

  setLength(us) {
    this.length = us;
    this.view = null;
  }

  heightOf(row) {
    if (row.kind === "node" || row.kind === "qpu") {
      const base = this.rows.length > TIGHT_ABOVE && row.kind === "node" ? TIGHT_ROW : ROW;
      return row.lanes > 2 ? Math.min(MOST_STRIP, Math.max(base, row.lanes * LANE)) : base;
    }
    return Math.min(MOST_STRIP, row.lanes * LANE);
  }

  layout() {
    let top = AXIS;
    const places = new Map();
    for (const row of this.rows) {
      const height = this.heightOf(row);
      places.set(row.id, { row, top, height });
      top += height + GAP;
    }
    return { places, height: top + 2 };
  }

  // Drawing

  draw() {
    if (this.due) return;
    this.due = requestAnimationFrame(() => {
      this.due = null;
      const beganMs = performance.now();
      this.paint();
      measured("qloom-paint", beganMs);
    });
  }

  paint() {
    const { places, height } = this.layout();
    const width = this.frame.clientWidth;
    if (!width) return;
    this.spacer.style.height = `${height}px`;
    const shown = Math.min(height, this.frame.clientHeight || height);
    const ratio = devicePixelRatio || 1;
    const canvas = this.canvas;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(shown * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(shown * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${shown}px`;
    }
    const style = getComputedStyle(canvas);
    const ink = style.getPropertyValue("--ink"), soft = style.getPropertyValue("--soft"), line = style.getPropertyValue("--line");
    const paper = style.getPropertyValue("--card");
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, shown);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const gutter = width < 520 ? 62 : 96;
    const scroll = this.frame.scrollTop;
    const span = this.span(), now = this.now();
    const scale = (width - gutter - 6) / (span.to - span.from);
    const x = (us) => gutter + (us - span.from) * scale;
    this.map = { places, gutter, scale, span, x, scroll, width };

    for (const [from, to] of this.gaps) {
      pen.fillStyle = soft;
      pen.globalAlpha = 0.18;
      pen.fillRect(x(from), AXIS, Math.max(1, (to - from) * scale), shown);
      pen.globalAlpha = 1;
    }
    for (const { row, top, height: tall } of places.values()) {
      const y = top - scroll;
      if (y + tall < AXIS || y > shown) continue;
      this.paintRow(pen, row, y, tall, { ink, soft, line }, now);
      pen.fillStyle = paper;
      pen.fillRect(0, y - 1, gutter - 4, tall + 2);
      pen.fillStyle = row.kind === "node" || row.kind === "qpu" ? ink : soft;
      if (tall >= 8) pen.fillText(fitted(pen, row.label, gutter - 8), 2, y + tall / 2 + 0.5);
    }
    this.paintAxis(pen, { ink, soft, line, paper }, shown);
    if (this.grows && x(now) <= width) {
      pen.strokeStyle = ink;
      pen.globalAlpha = 0.5;
      pen.beginPath();
      pen.moveTo(x(now), AXIS);
      pen.lineTo(x(now), shown);
      pen.stroke();
      pen.globalAlpha = 1;
    }
  }

  paintRow(pen, row, y, tall, colours, now) {
    const { gutter, x, width } = this.map;
    pen.strokeStyle = colours.line;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(gutter, y + tall + GAP / 2);
    pen.lineTo(width, y + tall + GAP / 2);
    pen.stroke();
    const bars = this.byRow.get(row.id) ?? [];
    for (const under of [true, false]) {
      for (const bar of bars) {
        const style = STYLE[bar.kind];
        if ((style === "idle") !== under) continue;
        const left = Math.max(gutter, x(bar.begin)), right = Math.min(width, x(bar.end ?? now));
        if (right < gutter || left > width || right < left) continue;
        const [top, high] = this.extent(row, bar, y, tall);
        this.paintBar(pen, bar, style, left, top, Math.max(right - left, 1), high);
      }
    }
  }

  extent(row, bar, y, tall) {
    if (STYLE[bar.kind] === "idle" || row.lanes <= 1) return [y, tall];
    const lane = tall / row.lanes;
    return [y + bar.lane * lane, Math.max(1, lane - 1)];
  }

  paintBar(pen, bar, style, left, top, wide, high) {
    const colour = this.colourOf(bar.job);
    pen.globalAlpha = this.look.opacity[style] ?? 1;
    pen.fillStyle = colour;
    pen.fillRect(left, top, wide, high);
    pen.globalAlpha = 1;
    if (style === "idle" && wide > 3) {
      pen.fillStyle = this.hatching(pen, colour);
      pen.fillRect(left, top, wide, high);
    }
    pen.strokeStyle = colour;
    pen.lineWidth = 1;
    if (style === "spare") pen.setLineDash([2, 2]);
    if (wide > 2 && style !== "busy") pen.strokeRect(left + 0.5, top + 0.5, wide - 1, high - 1);
    pen.setLineDash([]);
    if (style === "busy" && wide > 4) {  // a gap between tasks that follow each other
      pen.clearRect(left + wide - 1, top, 1, high);
    }
    if (bar.state === "failed" && high > 5) {
      pen.strokeStyle = "#fff";
      pen.lineWidth = 2;
      pen.beginPath();
      for (const [dx, dy] of [[-3, -3], [-3, 3]]) {
        pen.moveTo(left + wide / 2 + dx, top + high / 2 + dy);
        pen.lineTo(left + wide / 2 - dx, top + high / 2 - dy);
      }
      pen.stroke();
    }
    if (bar === this.selected) {
      pen.strokeStyle = getComputedStyle(this.canvas).getPropertyValue("--ink");
      pen.lineWidth = 2;
      pen.strokeRect(left - 1, top - 1, wide + 2, high + 2);
    }
    if (style === "busy" && wide > 40 && high >= 12 && bar.label) {
      pen.fillStyle = isDark(colour) ? "#fff" : "#16181c";
      pen.fillText(fitted(pen, bar.label, wide - 8), left + 4, top + high / 2 + 0.5);
    }
  }

  hatching(pen, colour) {
    this.patterns ??= new Map();
    if (!this.patterns.has(colour)) {
      const tile = new OffscreenCanvas(6, 6);
      const tilePen = tile.getContext("2d");
      tilePen.strokeStyle = colour;
      tilePen.globalAlpha = 0.55;
      tilePen.beginPath();
      for (const shift of [-6, 0, 6]) {
        tilePen.moveTo(shift - 1, 7);
        tilePen.lineTo(shift + 7, -1);
      }
      tilePen.stroke();
      this.patterns.set(colour, pen.createPattern(tile, "repeat"));
    }
    return this.patterns.get(colour);
  }

  paintAxis(pen, colours, shown) {
    const { gutter, x, span, width } = this.map;
    pen.fillStyle = colours.paper;
    pen.fillRect(0, 0, width, AXIS - 2);
    const step = niceStep((span.to - span.from) / 1e6, Math.max(2, Math.floor((width - gutter) / 90)));
    pen.fillStyle = colours.soft;
    pen.strokeStyle = colours.line;
    for (let s = Math.ceil(span.from / 1e6 / step) * step; s * 1e6 <= span.to; s += step) {
      const at = Math.round(x(s * 1e6)) + 0.5;
      pen.beginPath();
      pen.moveTo(at, AXIS - 6);
      pen.lineTo(at, AXIS - 2);
      pen.stroke();
      const words = clock(s, step);
      pen.fillText(words, Math.min(at - pen.measureText(words).width / 2, width - pen.measureText(words).width - 2), AXIS / 2 - 2);
    }
  }

  colourOf(job) {
    const palette = this.look.palette;
    return palette[this.jobs.get(job) % palette.length];
  }

  // Looking closer

  showAll() {
    this.view = null;
    this.draw();
  }

  zoom(factor, aroundUs = null) {
    const span = this.span();
    const middle = aroundUs ?? (this.selected ? (this.selected.begin + (this.selected.end ?? this.now())) / 2 : (span.from + span.to) / 2);
    const whole = this.whole();
    const length = Math.max(FREE, (span.to - span.from) * factor);
    if (length >= whole) return this.showAll();
    const from = Math.min(Math.max(0, middle - (middle - span.from) * factor), whole - length);
    this.view = { from, to: from + length };
    this.draw();
  }

  pan(us) {
    if (!this.view) return;
    const length = this.view.to - this.view.from;
    const from = Math.min(Math.max(0, this.view.from + us), this.whole() - length);
    this.view = { from, to: from + length };
    this.draw();
  }

  wheel(event) {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.timeAt(event));
    } else if (event.deltaX && this.view) {
      event.preventDefault();
      this.pan(event.deltaX / this.map.scale);
    }
  }

  grab(event) {
    const startX = event.clientX, view = this.view && { ...this.view };
    const found = this.at(event);
    if (found) this.select(found);
    if (!view) return;
    const move = (moved) => {
      this.view = { ...view };
      this.pan((startX - moved.clientX) / this.map.scale);
    };
    this.canvas.setPointerCapture(event.pointerId);
    this.canvas.addEventListener("pointermove", move);
    this.canvas.addEventListener("pointerup", () => this.canvas.removeEventListener("pointermove", move), { once: true });
  }

  timeAt(event) {
    const { gutter, scale, span } = this.map;
    return span.from + (event.clientX - this.canvas.getBoundingClientRect().left - gutter) / scale;
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const y = event.clientY - box.top + this.map.scroll, us = this.timeAt(event), reach = 3 / this.map.scale;
    for (const { row, top, height } of this.map.places.values()) {
      if (y < top || y > top + height) continue;
      let found = null;
      for (const bar of this.byRow.get(row.id) ?? []) {
        if (us < bar.begin - reach || us > (bar.end ?? this.now()) + reach) continue;
        const [from, high] = this.extent(row, bar, top, height);
        const fits = y >= from && y <= from + high + 1;
        if (STYLE[bar.kind] !== "idle" && fits) return bar;
        if (fits) found = bar;
      }
      return found;
    }
    return null;
  }

  point(event) {
    const bar = this.map && this.at(event);
    this.tip.hidden = !bar;
    if (!bar) return;
    setText(this.tip, this.words(bar));
    const box = this.tip.parentElement.getBoundingClientRect();
    const left = Math.min(event.clientX - box.left + 12, box.width - this.tip.offsetWidth - 8);
    this.tip.style.left = `${Math.max(4, left)}px`;
    this.tip.style.top = `${event.clientY - box.top + 16}px`;
  }

  words(bar) {
    const row = this.rows.find((one) => one.id === bar.row);
    const end = bar.end ?? this.now();
    const where = row.kind === "node" ? ` on ${row.label}` : row.kind === "qpu" ? ` on QPU ${row.label}` : "";
    const held = bar.kind === "node" || bar.kind === "qpu" || bar.kind === "vqpu";
    const what = held ? "" : ` ${bar.label}`;
    const how = bar.end === null ? "since then" : OUTCOMES[bar.state] ?? bar.state;
    const verb = bar.kind === "wait" && !bar.label.startsWith("for ") ? "waits with" : WORDS[bar.kind];
    return `Job ${bar.job}: ${verb}${what}${where}, from ${seconds(bar.begin / 1e6)} for ${seconds((end - bar.begin) / 1e6)}${how ? `, ${how}` : ""}`;
  }

  select(bar) {
    this.selected = bar;
    setText(this.readout, this.words(bar));
    const place = this.layout().places.get(bar.row);
    if (place.top - AXIS < this.frame.scrollTop) this.frame.scrollTop = place.top - AXIS;
    else if (place.top + place.height > this.frame.scrollTop + this.frame.clientHeight) this.frame.scrollTop = place.top + place.height - this.frame.clientHeight;
    if (this.view && (bar.begin > this.view.to || (bar.end ?? this.now()) < this.view.from)) this.pan(bar.begin - (this.view.from + this.view.to) / 2);
    this.draw();
  }

  key(event) {
    const keys = { "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.showAll(),
      ArrowRight: () => this.step(1), ArrowLeft: () => this.step(-1), ArrowDown: () => this.otherRow(1), ArrowUp: () => this.otherRow(-1) };
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  }

  sorted(rowId) {
    return (this.byRow.get(rowId) ?? []).slice().sort((one, other) => one.begin - other.begin || one.id - other.id);
  }

  step(by) {
    if (!this.selected) return this.otherRow(1);
    const bars = this.sorted(this.selected.row);
    const bar = bars[bars.indexOf(this.selected) + by];
    if (bar) this.select(bar);
  }

  otherRow(by) {
    const order = this.rows.filter((row) => this.byRow.get(row.id)?.length);
    if (!order.length) return;
    const place = this.selected ? order.findIndex((row) => row.id === this.selected.row) + by : 0;
    const row = order[Math.min(Math.max(place, 0), order.length - 1)];
    const at = this.selected ? this.selected.begin : 0;
    const bars = this.sorted(row.id);
    this.select(bars.find((bar) => (bar.end ?? this.now()) >= at) ?? bars.at(-1));
  }
}

function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let short = text.slice(0, 60);
  while (short.length > 1 && pen.measureText(`${short}\u2026`).width > width) short = short.slice(0, -1);
  return short.length > 1 ? `${short}\u2026` : "";
}

function niceStep(length, most) {
  const rough = length / most;
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];
  if (rough > 1) return steps.find((step) => step >= rough) ?? 604800;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
}

function clock(s, step) {
  if (step < 1) return `${s.toFixed(Math.max(1, Math.ceil(-Math.log10(step))))} s`;
  if (step < 60) return s < 60 ? `${Math.round(s)} s` : `${Math.floor(s / 60)}:${String(Math.round(s % 60)).padStart(2, "0")}`;
  return seconds(s);
}

function isDark(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return red * 0.3 + green * 0.59 + blue * 0.11 < 140;
}
