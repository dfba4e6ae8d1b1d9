// The service: answers as JSON, and events. A token is sent in a header, and kept in this tab only.

const KEY = "token";
const SILENCE = 40000; // ms without a sign of life after which the service counts as gone

export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

function kept() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

export const token = {
  get: kept,
  set(value) {
    try {
      sessionStorage.setItem(KEY, value);
    } catch {
      // Without storage, every request goes without a token.
    }
  },
  forget() {
    try {
      sessionStorage.removeItem(KEY);
    } catch {
      // There is none.
    }
  },
};

async function call(path, options = {}) {
  const secret = kept();
  const headers = secret ? { Authorization: `Bearer ${secret}` } : {};
  const answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  if (answer.ok) return answer;
  let sentence = `the service answered ${answer.status}`;
  try {
    sentence = (await answer.json()).error ?? sentence;
  } catch {
    // No JSON: the status must do.
  }
  throw new Refused(answer.status, sentence);
}

/** The answer at a path below api/. */
export async function get(...path) {
  const query = typeof path.at(-1) === "object" ? new URLSearchParams(path.pop()).toString() : "";
  const where = ["api", ...path.map(encodeURIComponent)].join("/");
  return (await call(query ? `${where}?${query}` : where)).json();
}

/**
 * Events of a study until stopped: `changed` with every one, `state` with live or gone.
 * Comes again by itself, at first soon, then every half minute.
 */
export function listen(study, { changed, state, refused }) {
  const stop = new AbortController();
  let wait = 1000;

  async function once() {
    const quiet = new AbortController();
    let timer = setTimeout(() => quiet.abort(), SILENCE);
    const end = () => quiet.abort();
    stop.signal.addEventListener("abort", end);
    try {
      const answer = await call(`api/${encodeURIComponent(study)}/events`, { signal: quiet.signal });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(() => quiet.abort(), SILENCE);
        state("live");
        wait = 1000;
        const parts = (text + value).split("\n\n");
        text = parts.pop();
        for (const part of parts) {
          if (part.startsWith("data: ")) changed(JSON.parse(part.slice(6)));
        }
      }
    } finally {
      clearTimeout(timer);
      stop.signal.removeEventListener("abort", end);
    }
  }

  async function always() {
    while (!stop.signal.aborted) {
      try {
        await once();
      } catch (error) {
        if (stop.signal.aborted) return;
        if (error instanceof Refused && [401, 403, 404].includes(error.status)) {
          refused(error);
          return;
        }
        state("gone");
        await new Promise((resolve) => setTimeout(resolve, wait));
        wait = Math.min(2 * wait, 30000);
      }
    }
  }
  always();
  return () => stop.abort();
}
