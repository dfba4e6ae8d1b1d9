// Θ with its errors, machines that stand out, what to run next.

import { byId, contextText, fill, make, percent, plusMinus, say, sentence, short } from "./dom.js";

export function showTheta(found) {
  if (found.missing) {
    say(byId("theta-words"), sentence(found.missing));
    return;
  }
  const words = `Every next state is a sum of the columns, each times its feature of the context and a state or input; `
    + `learnt from ${found.steps.toLocaleString("en")} steps. Values within two standard errors of 0 are grey.`;
  say(byId("theta-words"), found.dark.length ? `${found.dark.length} ${found.dark.length === 1 ? "direction is" : "directions are"} not excited yet:` : `Every direction has been excited. ${words}`);
  const some = found.dark.slice(0, 12);
  const more = found.dark.length - some.length;
  fill(byId("dark"), [...some, ...(more ? [`and ${more} more`] : [])].map((one) => make("li", {}, one)));
  const head = make("tr", {}, make("th", { scope: "col" }, "Feature · quantity"), ...found.rows.map((one) => make("th", { scope: "col" }, `next ${one}`)));
  const rows = found.columns.map((column, j) => make("tr", {}, make("th", { scope: "row" }, column),
    ...found.rows.map((_, i) => {
      const [value, error] = [found.estimate[i][j], found.error[i][j]];
      return make("td", { class: error && Math.abs(value) < 2 * error ? "weak" : null }, plusMinus(value, error));
    })));
  const noise = make("tr", {}, make("th", { scope: "row" }, "noise of a step"), ...found.noise.map((one) => make("td", {}, short(one))));
  fill(byId("theta"), [make("thead", {}, head), make("tbody", {}, ...rows, noise)]);
}

/** The set of machines that stand out. */
export function showAlarm(found) {
  const named = (found.machines ?? []).filter((one) => one.named);
  const line = byId("alarm-line");
  line.hidden = named.length === 0;
  if (named.length) {
    const first = `${named[0].machine} ${named[0].reason.replace(/^'(.*?)' does/, "$1 does")}`;
    const many = found.named > 1 ? `${found.named} machines stand out. ` : "";
    say(line, `⚠ ${many}${first}.`);
  }
  say(byId("alarm-words"), sentence(found.missing ?? found.sentence));
  byId("alarm").hidden = !found.machines?.length;
  fill(byId("alarm").tBodies[0], (found.machines ?? []).slice(0, 6).map((one) => make("tr", {},
    make("th", { scope: "row", class: one.named ? "odd" : null }, one.machine, one.named ? make("small", {}, one.reason) : null),
    make("td", { class: "number" }, short(one.p_value, 2)),
    make("td", { class: "number" }, percent(one.excess)),
  )));
  return new Set(named.map((one) => one.machine));
}

export function showNext(found, look) {
  byId("next").hidden = Boolean(found.missing);
  if (found.missing) {
    say(byId("next-words"), sentence(found.missing));
    return;
  }
  const runs = [...found.known, ...found.new].sort((a, b) => b.saving - a.saving);
  say(byId("next-words"), "How much of the price of not knowing Θ one more run would save, on machines that have played and on new ones.");
  fill(byId("next").tBodies[0], runs.map((one) => {
    const bar = make("span", { class: "bar", "aria-hidden": "true" });
    bar.style.width = `${Math.min(100, 100 * (one.saving ?? 0))}%`;
    const name = one.machine ?? "a new machine";
    return make("tr", {},
      make("th", { scope: "row" }, make("button", {
        type: "button", class: "plain", "data-key": `${name} ${contextText(one.context)}`, onclick: () => look(one.context, one.machine),
      }, name), make("small", {}, contextText(one.context, found.units))),
      make("td", { class: "number" }, percent(one.saving), bar));
  }));
}
