// Elements are made here and nowhere else. What comes from the server is only ever text.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Set text only if it differs, so that a screen reader and a selection are left alone.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Make the children of a list the same as these texts, with as few changes as possible.
export function setItems(list, texts, tag = "li") {
  while (list.children.length > texts.length) list.lastElementChild.remove();
  texts.forEach((text, place) => {
    if (place < list.children.length) setText(list.children[place], text);
    else list.append(make(tag, {}, text));
  });
}

export function seconds(s) {
  if (s < 60) return `${s.toFixed(1)} s`;
  const whole = Math.round(s);
  for (const [size, unit, smaller, small] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (whole >= size) {
      const rest = Math.floor((whole % size) / smaller);
      return rest ? `${Math.floor(whole / size)} ${unit} ${rest} ${small}` : `${Math.floor(whole / size)} ${unit}`;
    }
  }
  return `${whole} s`;
}

export function badge(state) {
  return make("span", { class: `badge ${STATES.has(state) ? state : "other"}` }, state);
}

const STATES = new Set(["running", "open", "submitted", "done", "failed", "interrupted", "killed", "unreadable"]);

// How long something took, for benchmarks; only the last ones are kept, as a page may be open for days.
export function measured(name, beganMs) {
  if (performance.getEntriesByName(name).length >= 500) performance.clearMeasures(name);
  performance.measure(name, { start: beganMs, end: performance.now() });
}
