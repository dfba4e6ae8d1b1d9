// What to trust: a map over contexts, and one machine in detail.

import { byId, contextText, fill, make, percent, say, sentence, short } from "./dom.js";
import { bandPlot, clear, excessPlot, gainPlot } from "./plots.js";

const SIGNS = { trust: ["trust", "✓"], caution: ["caution", "!"], "do not use": ["refuse", "✕"] };
let map = null;
let focus = [0, 0]; // row as drawn, column
let selected = null; // the context that is shown, as text
let choose = () => {};
let chooseAxes = () => {};

export function onChoice(context, axes) {
  choose = context;
  chooseAxes = axes;
}

export function showMap(found) {
  const table = byId("map");
  byId("map-pair").hidden = Boolean(found.missing);
  if (found.missing) {
    map = null;
    table.replaceChildren();
    clear(byId("map-plot"));
    say(byId("map-words"), `There is no map yet: ${found.missing}.`);
    return;
  }
  const same = map && map.cells.length === found.cells.length && map.cells[0].length === found.cells[0].length
    && map.x.name === found.x.name && map.y?.name === found.y?.name;
  map = found;
  const all = found.cells.flat();
  const trusted = all.filter((one) => one.verdict === "trust").length;
  const held = contextText(found.held, found.units);
  say(byId("map-words"), `${trusted} of ${all.length} machines on this map would be trusted`
    + `${held ? `, all with ${held}` : ""}; after ${found.episodes.toLocaleString("en")} ${found.episodes === 1 ? "episode" : "episodes"}.`);
  if (!same) build(table);
  paint(table);
  if (map.y) clear(byId("map-plot"));
  else excessPlot(byId("map-plot"), `Likely excess over ${map.x.name}.`, map.x.values, all.map((one) => one.excess && 100 * one.excess), named(map.x));
  if (!byId("axes").contains(document.activeElement)) buildAxes();
}

const drawnRow = (k) => map.cells.length - 1 - k; // small values are at the bottom
const named = (one) => `${one.name}${map.units[one.name] ? ` [${map.units[one.name]}]` : ""}`;

function build(table) {
  const rows = map.cells.map((_, k) => make("tr", {},
    make("th", { scope: "row" }, map.y ? short(map.y.values[drawnRow(k)]) : ""),
    ...map.x.values.map((_, j) => make("td", {
      role: "gridcell", tabindex: "-1", onclick: () => pick(k, j), onkeydown: (event) => move(event, k, j),
      onfocus: () => roam(k, j),
    }, make("b", { "aria-hidden": "true" }), make("span", { class: "excess", "aria-hidden": "true" }), make("span", { class: "tried", "aria-hidden": "true" })))));
  const every = map.x.values.length > 15 ? 5 : 1;
  const foot = make("tr", {}, make("td", { role: "presentation", class: "corner" }),
    ...map.x.values.map((v, j) => make("th", { scope: "col" }, j % every ? "" : short(v))));
  fill(table, [
    make("tbody", {}, ...rows),
    make("tfoot", {}, foot),
  ]);
  say(byId("map-up"), map.y ? `↑ ${named(map.y)}` : "");
  say(byId("map-across"), `${named(map.x)} →`);
  table.setAttribute("aria-label", `Trust over ${map.x.name}${map.y ? ` and ${map.y.name}` : ""}`);
  focus = [Math.floor(map.cells.length / 2), Math.floor(map.x.values.length / 2)];
}

function paint(table) {
  map.cells.forEach((_, k) => map.x.values.forEach((_, j) => {
    const cell = cellAt(table, k, j);
    const one = map.cells[drawnRow(k)][j];
    const [kind, sign] = SIGNS[one.verdict];
    cell.className = kind;
    cell.children[0].textContent = sign;
    cell.children[1].textContent = map.x.values.length > 15 ? "" : cellText(one.excess);
    cell.children[2].textContent = one.tried ? "●" : "";
    const played = one.tried ? `, ${one.tried} played` : "";
    cell.setAttribute("aria-label", `${contextText(at(k, j), map.units)}: ${one.verdict}, excess ${cellText(one.excess)}${played}`);
    cell.title = cell.getAttribute("aria-label");
    cell.setAttribute("aria-selected", String(JSON.stringify(at(k, j)) === selected));
    cell.tabIndex = k === focus[0] && j === focus[1] ? 0 : -1;
  }));
}

function cellText(excess) {
  if (excess === null || excess > 10) return ">10×";
  return excess < 1e-3 ? "<0.1%" : percent(excess).replaceAll(" ", "");
}

const cellAt = (table, k, j) => table.tBodies[0].rows[k].cells[j + 1];

function at(k, j) {
  const context = { ...map.held, [map.x.name]: map.x.values[j] };
  if (map.y) context[map.y.name] = map.y.values[drawnRow(k)];
  return context;
}

function roam(k, j) {
  const table = byId("map");
  cellAt(table, ...focus).tabIndex = -1;
  focus = [k, j];
  cellAt(table, k, j).tabIndex = 0;
}

function move(event, k, j) {
  const last = [map.cells.length - 1, map.x.values.length - 1];
  const to = {
    ArrowUp: [k - 1, j], ArrowDown: [k + 1, j], ArrowLeft: [k, j - 1], ArrowRight: [k, j + 1],
    Home: event.ctrlKey ? [0, 0] : [k, 0], End: event.ctrlKey ? last : [k, last[1]],
  }[event.key];
  if (event.key === "Enter" || event.key === " ") pick(k, j);
  else if (!to) return;
  else cellAt(byId("map"), Math.min(Math.max(to[0], 0), last[0]), Math.min(Math.max(to[1], 0), last[1])).focus();
  event.preventDefault();
}

function pick(k, j) {
  roam(k, j);
  choose(at(k, j), null);
}

/** The machine in the middle of the map. */
export function middle() {
  return map ? at(...focus) : null;
}

function buildAxes() {
  const names = Object.keys(map.ranges);
  const form = byId("axes");
  if (names.length < 3) return;
  const picker = (label, key, value, other) => make("label", {}, `${label} `, make("select", { "data-key": key, onchange: changed },
    ...names.filter((one) => one !== other).map((one) => make("option", { value: one, selected: one === value }, one))));
  const box = (name) => {
    const [low, high] = map.ranges[name];
    const unit = map.units[name] ? ` [${map.units[name]}]` : "";
    return make("label", {}, `${name}${unit} `, make("input", {
      type: "number", "data-key": name, min: low, max: high, step: (high - low) / 20 || "any", value: Number(map.held[name].toPrecision(6)), onchange: changed,
    }));
  };
  fill(form, [picker("Across", "x", map.x.name, map.y.name), picker("Up", "y", map.y.name, map.x.name), ...Object.keys(map.held).map(box)]);
  form.onsubmit = (event) => event.preventDefault();
}

function changed() {
  const form = byId("axes");
  const value = (key) => [...form.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key)?.value;
  const held = {};
  for (const name of Object.keys(map.held)) {
    const number = Number.parseFloat(value(name));
    if (Number.isFinite(number)) held[name] = number;
  }
  chooseAxes({ x: value("x"), y: value("y"), held: JSON.stringify(held) });
}

export function showDetail(found, units) {
  say(byId("detail-title"), `${found.machine ? `${found.machine}: ` : ""}${contextText(found.context, units ?? map?.units)}`);
  selected = found.machine ? null : JSON.stringify(map ? ordered(found.context) : found.context);
  const [kind, sign] = SIGNS[found.verdict] ?? ["", ""];
  fill(byId("detail-verdict"), found.missing ? [sentence(found.missing)] : [make("span", { class: `verdict ${kind}` }, `${sign} ${found.verdict}`), ` ${found.reason}.`]);
  clear(byId("detail-plots"));
  if (found.missing) return;
  const facts = [
    ["Expected cost", short(found.predicted_cost)],
    ["Likely excess", `${percent(found.likely_excess)}, at 95 %`],
    ["Loop grows on", `${percent(found.instability)} of plausible machines`],
    ["Data", found.extrapolation],
  ];
  if (found.saturated_runs) facts.push(["Meets limits in", `${percent(found.saturated_runs)} of runs`]);
  fill(byId("detail-facts"), facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  showGains(found);
  const plots = byId("detail-plots");
  for (const one of found.lines) {
    const place = make("div", { class: "plot" });
    plots.append(place);
    const steps = one.median.map((_, k) => k * found.every + 1);
    bandPlot(place, `${one.name}: from ${short(one.median[0])} to ${short(one.median.at(-1))} in the median, `
      + `at the end between ${short(one.low.at(-1))} and ${short(one.high.at(-1))} in 90 % of runs.`, steps, one);
  }
  if (found.gains.length > 1) {
    const place = make("div", { class: "plot" });
    plots.append(place);
    const lines = found.inputs.flatMap((input, i) => found.states.map((state, j) => ({
      name: `${input} per ${state}`, values: found.gains.map((K) => K[i][j]),
    })));
    gainPlot(place, `Gains over ${found.gains.length} steps.`, found.gains.map((_, k) => k * found.every + 1), lines.slice(0, 6));
  }
  if (map) paint(byId("map"));
}

function ordered(context) {
  const keys = [...Object.keys(map.held), map.x.name, ...(map.y ? [map.y.name] : [])];
  return Object.fromEntries(keys.filter((key) => key in context).map((key) => [key, context[key]]));
}

function showGains(found) {
  const head = make("tr", {}, make("th", { scope: "col" }, "input"), ...found.states.map((one) => make("th", { scope: "col", class: "number" }, `× ${one}`)));
  const rows = found.inputs.map((one, i) => make("tr", {}, make("th", { scope: "row" }, one),
    ...found.gains[0][i].map((v) => make("td", { class: "number" }, short(v, 5)))));
  fill(byId("detail-gains"), [make("table", {}, make("caption", {}, "Gains of the first step, u = K x"), make("thead", {}, head), make("tbody", {}, ...rows))]);
}
