// Elements are made of text, never of markup: a name with HTML in it is shown as it is written.

export const byId = (id) => document.getElementById(id);

/** An element with attributes and children; strings become text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((one) => one !== null && one !== undefined));
  return element;
}

/** Put children in the place of what was there; what had the focus keeps it, by its data-key. */
export function fill(parent, children) {
  const key = parent.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  parent.replaceChildren(...children);
  if (key) [...parent.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key)?.focus();
}

/** Text, changed only if it is another, so that nothing is read aloud twice. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Words as a sentence. */
export const sentence = (words) => `${words.charAt(0).toUpperCase()}${words.slice(1)}.`;

/** A number to three or so digits. */
export function short(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(digits - 1).replace("e+", "e").replace("-", "−");
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 9 }).replace("-", "−");
}

/** A share in per cent. */
export function percent(share) {
  if (share === null || share === undefined) return "–";
  if (share > 10) return "> 1000 %";
  if (share !== 0 && Math.abs(share) < 1e-4) return "< 0.01 %";
  return `${short(100 * share, 2)} %`;
}

/** An estimate to the second digit of its standard error. */
export function plusMinus(value, error) {
  if (value === null) return "–";
  if (!error) return short(value, 5);
  const digits = Math.max(0, Math.min(9, 1 - Math.floor(Math.log10(error))));
  if (Math.abs(value) >= 1e6 || error < 1e-8 || error >= 1e6) return `${short(value, 4)} ± ${short(error, 2)}`;
  const shown = value.toFixed(digits).replace(/^-(0(\.0*)?)$/, "$1").replace("-", "−");
  return `${shown} ±\u00a0${error.toFixed(digits)}`;
}

/** A context in one line, in the order in which units are declared. */
export function contextText(context, units = {}) {
  if (context === null || typeof context !== "object") return context === undefined ? "" : String(context);
  const order = Object.keys(units);
  return Object.entries(context)
    .sort(([a], [b]) => order.indexOf(a) - order.indexOf(b))
    .map(([name, value]) => {
      const unit = units[name] ? ` ${units[name]}` : "";
      return `${name} ${typeof value === "number" ? short(value) : String(value)}${unit}`;
    })
    .join(", ");
}

/** Seconds, in words. */
export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} days`;
}
