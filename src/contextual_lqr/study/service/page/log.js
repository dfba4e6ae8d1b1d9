// What the log says: machines and their state, cost and regret by episode.

import { byId, contextText, fill, make, percent, say, sentence, short, span } from "./dom.js";
import { clear, costPlot, regretPlot } from "./plots.js";

let shown = null; // the last overview, and when it came
let look = () => {};

/** What to do when a machine is chosen. */
export function onMachine(action) {
  look = action;
}

export function showOverview(overview) {
  shown = { overview, came: performance.now() };
  showMachines();
}

/** Machines, as of now: a lease that has run out in the meantime makes one late. */
export function showMachines() {
  if (!shown) return;
  const { overview, came } = shown;
  const now = overview.now + (performance.now() - came) / 1000;
  const rows = overview.machines.map((one) => ({
    ...one,
    state: one.state === "running" && one.expires_at < now ? "late" : one.state,
  }));
  const late = overview.late + rows.filter((one, k) => one.state !== overview.machines[k].state).length;
  const stands = overview.sentence.replace(/[\d,]+ late$/, `${late.toLocaleString("en")} late`);
  say(byId("sentence"), sentence(stands));
  byId("machines").parentElement.hidden = !overview.machines.length;
  fill(byId("machines").tBodies[0], rows.map((one) => machineRow(one, now, overview.units)));
  const more = overview.count - rows.length;
  say(byId("machines-note"), more > 0 ? `and ${more.toLocaleString("en")} more` : rows.length ? "" : "No machine has asked or told yet.");
}

function machineRow(one, now, units) {
  const known = one.context !== undefined;
  const button = make("button", {
    type: "button", class: "plain", "data-key": one.machine, title: "Show this machine",
    onclick: () => look(one.context, one.episodes ? one.machine : null),
  }, one.machine);
  return make("tr", {},
    make("th", { scope: "row" }, known ? button : one.machine, make("small", {}, contextText(one.context, units))),
    make("td", {}, make("span", { class: "state", "data-state": one.state }, one.state), make("small", {}, lease(one, now))),
    make("td", { class: "number" }, one.episodes.toLocaleString("en")),
    make("td", { class: "number later" }, short(one.cost)),
  );
}

function lease(one, now) {
  const who = one.worker ? `, ${one.worker}` : "";
  if (one.state === "late") return `for ${span(now - one.expires_at)}${who}`;
  if (one.state === "running") return `${span(one.expires_at - now)} left${who}`;
  return one.told_at ? `told ${span(now - one.told_at)} ago` : "";
}

/** Costs and regret; `odd` are the machines that stand out. */
export function showCosts(costs, odd) {
  const missing = costs.missing ?? (costs.number.length ? null : "no episode has been told yet");
  if (missing) {
    say(byId("costs-words"), sentence(missing));
    clear(byId("cost-plot"));
    clear(byId("regret-plot"));
    return;
  }
  const stands = costs.machine.map((one) => odd.has(one));
  const usual = costs.cost.map((v, k) => (stands[k] ? null : v));
  const other = costs.cost.map((v, k) => (stands[k] ? v : null));
  let sum = 0;
  const total = costs.excess.map((v) => (v === null ? null : (sum += v)));
  const words = inWords(costs, sum);
  say(byId("costs-words"), words);
  costPlot(byId("cost-plot"), `Cost by episode. ${words}`, costs.number, usual, other, costs.best);
  const first = costs.number[0];
  const since = first > 1 ? ` since episode ${first.toLocaleString("en")}` : "";
  regretPlot(byId("regret-plot"), `Regret, in all${since}: ${short(sum)}.`, costs.number, total);
}

function inWords(costs, sum) {
  const counted = costs.excess.map((v, k) => [v, costs.best[k]]).filter(([v]) => v !== null).slice(-20);
  const cut = costs.steps.filter((n) => n < costs.whole).length;
  const part = (list) => list.reduce((a, [v]) => a + v, 0) / list.reduce((a, [, b]) => a + b, 0);
  const latest = counted.length
    ? `The last ${counted.length === 1 ? "episode" : `${counted.length} episodes`} cost ${percent(Math.abs(part(counted)))} ${part(counted) < 0 ? "less" : "more"} than the best possible, by the current belief; the regret of all shown is ${short(sum)}.`
    : "The best possible cost is not known yet.";
  return cut ? `${latest} ${cut.toLocaleString("en")} ended early.` : latest;
}
