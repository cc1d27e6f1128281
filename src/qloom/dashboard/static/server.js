// Everything that is asked of the server: streams that come back by themselves, and requests that change something.

let token = "";

export class Problem extends Error {
  constructor(status, body) {
    super(body.hint ? `${body.error} (${body.hint})` : body.error);
    this.status = status;
  }
}

async function check(response) {
  if (response.ok) return response;
  let body = { error: `the dashboard answered ${response.status}` };
  try {
    body = await response.json();
  } catch { /* not from the dashboard itself */ }
  throw new Problem(response.status, body);
}

export async function logIn(key) {
  await check(await fetch("/login", { method: "POST", body: JSON.stringify({ key }) }));
}

export async function session() {
  const content = await (await check(await fetch("/api/session"))).json();
  token = content.token;
  return content;
}

export async function act(run, action, content = {}) {
  const options = { method: "POST", headers: { "X-Qloom-Token": token }, body: JSON.stringify(content) };
  const answer = await (await check(await fetch(`/api/runs/${encodeURIComponent(run)}/${action}`, options))).json();
  if (answer.problem) throw new Error(answer.problem);
  return answer;
}

// Follow a stream of events until `stop` is called. A hidden page lets go of it; a lost one is asked for again.
export function follow(path, handlers, onLink) {
  let stopped = false;
  let controller = null;

  async function once() {
    controller = new AbortController();
    const response = await check(await fetch(path, { signal: controller.signal }));
    onLink("live", null);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (text + value).split("\n\n");
      text = blocks.pop();
      for (const block of blocks) dispatch(block);
    }
  }

  function dispatch(block) {
    const fields = Object.fromEntries(block.split("\n").map((line) => [line.split(": ", 1)[0], line.slice(line.indexOf(": ") + 2)]));
    if (fields.event) handlers[fields.event]?.(JSON.parse(fields.data));
  }

  async function always() {
    while (!stopped) {
      if (document.hidden) {
        await new Promise((go) => document.addEventListener("visibilitychange", go, { once: true }));
        continue;
      }
      try {
        await once();
      } catch (error) {
        if (stopped) return;
        if (error instanceof Problem && error.status < 500) return onLink("refused", error);
      }
      if (stopped) return;
      if (!document.hidden) onLink("lost", null);
      await new Promise((go) => setTimeout(go, 1000));
    }
  }

  const hide = () => document.hidden && controller?.abort();
  document.addEventListener("visibilitychange", hide);
  always();
  return () => {
    stopped = true;
    document.removeEventListener("visibilitychange", hide);
    controller?.abort();
  };
}
