// The page: which view is shown, the state of the connection, questions before anything is changed.

import { make, setText } from "./dom.js";
import { logIn, session } from "./server.js";
import { showRun } from "./run.js";
import { showRuns } from "./runs.js";

const main = document.getElementById("main");
const link = document.getElementById("link");
let leave = () => {};
let turn = 0;

const LINKS = { live: "live", lost: "connection lost, trying again", refused: "not connected" };

export function onLink(state, problem) {
  setText(link, LINKS[state] ?? state);
  link.className = `link ${state}`;
  if (problem?.status === 401) showLogin(problem.message);
  else if (problem) notice(problem.message);
}

function notice(words) {
  let banner = main.querySelector(".problem");
  if (!banner) main.prepend(banner = make("p", { class: "problem", role: "alert" }));
  banner.hidden = false;
  setText(banner, words);
}

function showLogin(words) {
  leave();
  document.title = "qloom: log in";
  main.replaceChildren(make("section", { class: "card login" },
    make("h1", {}, "Log in"),
    make("p", { role: "alert" }, words),
    make("p", {}, "In a terminal on the machine of your runs:"),
    make("pre", {}, "qloom dashboard"),
    make("p", {}, "Open the link that it prints. A link works once, within ten minutes.")));
}

export function say(words) {
  const said = document.getElementById("said");
  setText(said, words);
  clearTimeout(say.timer);
  say.timer = setTimeout(() => setText(said, ""), 8000);
}

// Ask before something is changed; resolves to whether the answer was yes.
export function ask(question, yes) {
  const dialog = document.getElementById("question");
  setText(document.getElementById("question-text"), question);
  setText(document.getElementById("question-yes"), yes);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((answered) => {
    dialog.addEventListener("close", () => answered(dialog.returnValue === "yes"), { once: true });
  });
}

document.getElementById("question-yes").addEventListener("click", () => document.getElementById("question").close("yes"));
document.getElementById("question-no").addEventListener("click", () => document.getElementById("question").close("no"));
document.getElementById("skip").addEventListener("click", () => main.focus());

async function route() {
  const place = location.hash;
  const own = ++turn;
  leave();
  leave = () => {};
  try {
    if (place.startsWith("#key=")) {
      const key = place.slice(5);
      history.replaceState(null, "", "/");  // before anything else: a key does not belong in the history
      await logIn(key);
    }
    await session();
  } catch (error) {
    onLink("refused", error);
    return;
  }
  if (own !== turn) return;  // the reader has gone elsewhere meanwhile
  const run = /^#\/run\/([^/]+)$/.exec(place);
  leave = run ? showRun(main, decodeURIComponent(run[1])) : showRuns(main);
  window.scrollTo(0, 0);
}

window.addEventListener("hashchange", route);
route();
