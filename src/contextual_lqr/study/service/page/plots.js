// Plots by uPlot, in the colours of the page, as wide as their place.

const drawn = new Map(); // place -> { plot, draw }
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function axis(label, more = {}) {
  const quiet = colour("quiet");
  const grid = { stroke: colour("line"), width: 1 };
  const font = "12px system-ui, sans-serif";
  return { label, stroke: quiet, grid, ticks: { ...grid, size: 5 }, gap: 3, labelGap: 2, labelSize: 18, labelFont: font, font, ...more };
}

function ticks(u, values) {
  return values.map((v) => (v === null ? "" : Number(v.toPrecision(6)).toString().replace("-", "−")));
}

const observer = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const one = drawn.get(target);
    const width = Math.floor(target.clientWidth);
    if (one && width > 0 && one.plot.width !== width) one.plot.setSize({ width, height: one.plot.height });
  }
});

/** Draw into a place, anew whenever the theme changes; `words` are what a screen reader says. */
function draw(place, words, options, data) {
  const paint = () => {
    drawn.get(place)?.plot.destroy();
    const width = Math.max(200, Math.floor(place.clientWidth));
    const plot = new window.uPlot({ width, ...options() }, data, place);
    plot.root.querySelector(".u-wrap").setAttribute("aria-hidden", "true");
    drawn.set(place, { plot, paint });
  };
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", words);
  paint();
  observer.observe(place);
}

export function repaint() {
  for (const [place, { paint }] of drawn) if (place.isConnected) paint();
}

export function clear(parent) {
  for (const [place, { plot }] of drawn) {
    if (parent === place || parent.contains(place)) {
      plot.destroy();
      observer.unobserve(place);
      drawn.delete(place);
    }
  }
  parent.replaceChildren();
}

const whole = [1, 2, 5].flatMap((k) => [...Array(8).keys()].map((e) => k * 10 ** e)).sort((a, b) => a - b);
const across = (label) => axis(label, { size: 26, incrs: whole });
const dots = (label, name) => ({
  label, stroke: colour(name), paths: () => null, value: (u, v) => tick(v),
  points: { show: true, size: 6, fill: colour(name), stroke: colour(name) },
});
const line = (label, name, more = {}) => ({
  label, stroke: colour(name), width: 2, points: { show: false }, value: (u, v) => tick(v), ...more,
});
const tick = (v) => (v === null || v === undefined ? "" : Number(v.toPrecision(4)).toString());
// The legend says what lies under the pointer; without one, colours and names alone.
const first = (what) => ({ label: what, value: (u, v) => (v === null || v === undefined ? "" : `${what} ${v}`) });
const legend = { markers: { fill: (u, k) => u.series[k].stroke(u, k) } };

/** Cost of each episode, beside the best possible; machines that stand out in another colour. */
export function costPlot(place, words, numbers, usual, odd, best) {
  const values = [...usual, ...odd, ...best].filter((v) => v !== null && v > 0);
  const least = Math.min(...values);
  const log = values.length > 0 && Math.max(...values) > 30 * least;
  const above = (column) => (log ? column.map((v) => (v > 0 ? v : null)) : column);
  const some = odd.some((v) => v !== null);
  draw(place, words, () => ({
    height: 215,
    scales: { x: { time: false }, y: log ? { distr: 3 } : { range: (u, a, b) => [Math.min(0, a), b + 0.05 * (b - Math.min(0, a) || 1)] } },
    legend,
    axes: [across("episode"), axis(log ? "cost, logarithmic" : "cost", { size: 50, values: ticks })],
    series: [
      first("episode"),
      dots("cost", "accent"),
      ...(some ? [dots("of a machine that stands out", "refuse")] : []),
      line("best possible, by the current belief", "quiet", { width: 1.5, dash: [5, 4] }),
    ],
  }), [numbers, above(usual), ...(some ? [above(odd)] : []), above(best)]);
}

/** The sum of what episodes have cost above the best possible. */
export function regretPlot(place, words, numbers, total) {
  draw(place, words, () => ({
    height: 185,
    scales: { x: { time: false } },
    legend,
    axes: [across("episode"), axis("regret, in all", { size: 50, values: ticks })],
    series: [first("episode"), line("regret, current estimate", "accent", { points: { show: numbers.length < 2 } })],
  }), [numbers, total]);
}

/** Likely excess in per cent over one name of the context. */
export function excessPlot(place, words, values, excess, name) {
  draw(place, words, () => ({
    height: 215,
    legend,
    scales: { x: { time: false }, y: { distr: 3 } },
    axes: [axis(name, { size: 26, values: ticks }), axis("likely excess [%]", { size: 50, values: ticks })],
    series: [
      { label: "", value: (u, v) => (v === null || v === undefined ? "" : tick(v)) },
      line("of the controller, at most, at 95 %", "accent", { points: { show: true, size: 5 } }),
    ],
  }), [values, excess.map((v) => (v > 0 && v < 1e6 ? v : null))]);
}

/** A state or an input of the closed loop, with its band. */
export function bandPlot(place, words, steps, one) {
  const [ink, band] = one.kind === "state" ? ["accent", "band"] : ["input", "input-band"];
  const label = one.unit ? `${one.name} [${one.unit}]` : one.name;
  draw(place, words, () => ({
    height: 160,
    legend: { show: false },
    scales: { x: { time: false } },
    axes: [across("step"), axis(label, { size: 48, values: ticks })],
    series: [
      { label: "step" },
      line("low", ink, { width: 0 }),
      line("high", ink, { width: 0 }),
      line("median", ink),
      line("expected", "quiet", { width: 1.5, dash: [5, 4] }),
    ],
    bands: [{ series: [2, 1], fill: colour(band) }],
  }), [steps, one.low, one.high, one.median, one.expected]);
}

/** Gains over the steps of an episode. */
export function gainPlot(place, words, steps, lines) {
  const inks = ["accent", "input", "trust", "refuse", "quiet", "caution"];
  draw(place, words, () => ({
    height: 160,
    scales: { x: { time: false } },
    legend,
    axes: [across("step"), axis("gain", { size: 48, values: ticks })],
    series: [first("step"), ...lines.map((one, k) => line(one.name, inks[k % inks.length]))],
  }), [steps, ...lines.map((one) => one.values)]);
}
