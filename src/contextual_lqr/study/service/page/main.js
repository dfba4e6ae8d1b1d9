// Ties the page together: who watches which study, what is fetched when, and whether it is live.

import { showAlarm, showNext, showTheta } from "./belief.js";
import { byId, fill, make, say, sentence } from "./dom.js";
import { onMachine, showCosts, showMachines, showOverview } from "./log.js";
import { repaint } from "./plots.js";
import { Refused, get, listen, token } from "./server.js";
import { middle, onChoice, showDetail, showMap } from "./trust.js";

const AGAIN = 5000; // ms after which answers of fewer episodes are asked for again
const SOON = 1000; // the same of the overview, which is never older
let study = null;
let stop = () => {};
let axes = {};
let chosen = null; // { context, machine } of the detail
let odd = new Set();
let costs = null;
let latest = Date.now();

// -- who watches ---------------------------------------------------------------------------------

async function begin() {
  try {
    const { studies } = await get();
    byId("sign-in").hidden = true;
    byId("leave").hidden = !token.get();
    const wanted = decodeURIComponent(location.hash.slice(1) || location.pathname.split("/").at(-1));
    fill(byId("study"), studies.map((one) => make("option", { value: one }, one)));
    byId("studies").hidden = studies.length < 2;
    watch(studies.includes(wanted) ? wanted : studies[0]);
  } catch (error) {
    if (error instanceof Refused && (error.status === 401 || error.status === 403)) ask(error);
    else {
      link("gone", "The service does not answer");
      setTimeout(begin, AGAIN);
    }
  }
}

function ask(error) {
  stop();
  const again = Boolean(token.get());
  if (!again && !byId("sign-in").hidden) return; // several requests may be refused at once
  token.forget();
  byId("watching").hidden = true;
  byId("leave").hidden = true;
  byId("sign-in").hidden = false;
  say(byId("refused"), again ? `This token is not accepted here: ${error.message}.` : "This service needs a token.");
  link("waiting", "Not signed in");
  byId("token").focus();
}

byId("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  token.set(byId("token").value.trim());
  byId("token").value = "";
  begin();
});
byId("leave").addEventListener("click", () => {
  token.forget();
  location.reload();
});
byId("study").addEventListener("change", () => {
  location.hash = encodeURIComponent(byId("study").value);
});
addEventListener("hashchange", () => {
  const wanted = decodeURIComponent(location.hash.slice(1));
  if ([...byId("study").options].some((one) => one.value === wanted)) watch(wanted);
});

function watch(name) {
  stop();
  [study, axes, chosen, odd, costs, told] = [name, {}, null, new Set(), null, {}];
  byId("study").value = name;
  say(byId("name"), name);
  document.title = `${name} · contextual-lqr`;
  byId("watching").hidden = false;
  stop = listen(name, { changed, state, refused: ask });
}

// -- whether it is live --------------------------------------------------------------------------

function link(kind, words) {
  byId("link").dataset.state = kind;
  say(byId("link"), words);
}

function state(now) {
  if (now === "live") {
    latest = Date.now();
    link("live", "Live");
  } else {
    const at = new Date(latest).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    link("gone", `The service does not answer; this is how things stood at ${at}`);
  }
}

// -- what is fetched -----------------------------------------------------------------------------

let running = false;
let again = false;
let timer = null;
let episodes = 0;
let told = {}; // how many episodes there are and how many are out, as the last event said

function changed(event) {
  if (event.trouble) link("gone", event.trouble);
  else told = event;
  refresh();
}

async function refresh() {
  if (running) {
    again = true;
    return;
  }
  running = true;
  clearTimeout(timer);
  const mine = study;
  try {
    const overview = await get(mine, "overview");
    if (mine !== study) return;
    episodes = overview.episodes;
    showOverview(overview);
    const asked = [part("costs", (found) => { costs = found; drawCosts(); }),
      part("theta", showTheta), part("next", (found) => showNext(found, look)),
      part("map", showMap, axes), part("trust", showTrust), part("alarm", (found) => { odd = showAlarm(found); drawCosts(); })];
    const older = (await Promise.all(asked)).some(Boolean);
    if (mine !== study) return;
    if (chosen === null && middle()) chosen = { context: middle(), machine: null };
    await detail();
    announce();
    const stale = overview.episodes < told.episodes || overview.out !== told.out;
    if (stale || older) timer = setTimeout(refresh, stale ? SOON : AGAIN);
  } catch (error) {
    if (error instanceof Refused && error.status === 401) ask(error);
    else timer = setTimeout(refresh, AGAIN);
  } finally {
    running = false;
    if (again || mine !== study) {
      again = false;
      refresh();
    }
  }
}

/** Fetch and show one part; whether it is of fewer episodes than there are. */
async function part(name, show, query = {}) {
  const mine = study;
  try {
    const found = await get(mine, name, query);
    if (mine === study && (name !== "map" || query === axes)) show(found);
    return found.episodes < episodes;
  } catch (error) {
    if (error instanceof Refused && error.status === 401) throw error;
    if (error instanceof Refused && mine === study) show({ missing: error.message, episodes });
    return true;
  }
}

function drawCosts() {
  if (costs) showCosts(costs, odd);
}

function showTrust(found) {
  say(byId("trusted"), found.missing ? `Nothing can be trusted yet: ${found.missing}.` : sentence(found.sentence));
}

async function detail() {
  if (chosen === null) return;
  const query = { context: JSON.stringify(chosen.context) };
  if (chosen.machine) query.machine = chosen.machine;
  try {
    showDetail(await get(study, "look", query));
  } catch (error) {
    if (error instanceof Refused && error.status === 401) throw error;
    say(byId("detail-verdict"), sentence(error.message));
  }
}

async function look(context, machine) {
  chosen = { context, machine };
  await detail();
  byId("detail-title").focus({ preventScroll: true });
  byId("detail").scrollIntoView({ block: "nearest" });
}

onMachine(look);
onChoice(
  (context) => { chosen = { context, machine: null }; detail(); },
  (wanted) => { axes = wanted; part("map", showMap, axes); },
);

// -- said, at most every quarter of a minute, to those who listen -------------------------------------

let saidAt = 0;
function announce() {
  const now = Date.now();
  if (now - saidAt < 15000) return;
  saidAt = now;
  say(byId("said"), `${byId("sentence").textContent} ${byId("trusted").textContent}`);
}
setInterval(showMachines, 5000);

// -- light and dark ------------------------------------------------------------------------------

const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";

function showTheme() {
  say(byId("theme"), isDark() ? "Light" : "Dark");
  repaint();
}
byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  try {
    localStorage.setItem("theme", document.documentElement.dataset.theme);
  } catch {
    // It holds for this page then.
  }
  showTheme();
});
dark.addEventListener("change", showTheme);
showTheme();
begin();
