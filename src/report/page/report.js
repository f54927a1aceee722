"use strict";
// The page of `coil report`. Everything in the data is text for `textContent`: nothing of it becomes markup.
const reports = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
let current = 0, view = "", picked = null;
const R = () => reports[current];
const byId = id => document.getElementById(id);

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  return fill(node, attributes, children);
}
function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}
function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}

const time = us => us === undefined ? "" : us >= 1e6 ? (us / 1e6).toPrecision(3) + " s" : us >= 1e3 ? (us / 1e3).toPrecision(3) + " ms" : us.toPrecision(3) + " us";
const amount = (x, unit) => {
  if (x === undefined || x === null) return "";
  const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  for (const [size, letter] of steps) if (Math.abs(x) >= size) return (x / size).toPrecision(3) + " " + letter + unit;
  return +x.toPrecision(3) + " " + unit;
};
const percent = x => x === undefined ? "" : (100 * x).toFixed(1) + " %";
const short = (text, n) => text.length > n ? text.slice(0, n - 1) + "\u2026" : text;
const rate = x => x ? +x.toPrecision(3) : "";
const shapeText = shape => (shape || []).join(" x ");
const place = k => { const o = (k.origins || [])[0]; return o ? [short(o.module || "", 80), short(o.source || "", 80)].filter(Boolean).join("  ") : ""; };
const ran = k => k.us !== undefined;
const kernelsRun = () => R().kernels.filter(ran);
const efficiency = k => k.roof_us && k.us ? k.roof_us / k.us : undefined;

// ---- frame

const VIEWS = [["overview", "Overview"], ["kernels", "Kernels"], ["graph", "Graph"], ["roofline", "Roofline"], ["memory", "Memory"], ["source", "Source lines"], ["fusion", "Not fused"], ["compare", "Compare"]];

function start() {
  byId("tabs").append(...VIEWS.filter(([id]) => id !== "compare" || reports.length === 2).map(([id, name]) =>
    el("button", {role: "tab", id: "tab-" + id, "aria-controls": "view", onclick: () => show(id), onkeydown: moveTab}, name)));
  if (reports.length > 1) {
    byId("tabs").append(el("select", {"aria-label": "Report", onchange: e => { current = +e.target.value; close(); header(); show(view); }},
      reports.map((r, i) => el("option", {value: i}, (reports.length === 2 ? "AB"[i] : i + 1) + ": " + short(r.title, 60)))));
  }
  document.addEventListener("keydown", keys);
  header();
  const [asked, kernel] = location.hash.slice(1).split("/");  // "#graph/12": a view and a kernel
  show(byId("tab-" + asked) ? asked : reports.length === 2 ? "compare" : "overview");
  if (kernel && R().kernels[+kernel]) pick(+kernel);
}

function moveTab(event) {
  const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
  if (!step) return;
  const tabs = [...byId("tabs").querySelectorAll("button")], next = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
  next.focus();
  next.click();
}

function keys(event) {
  if (event.key === "Escape") return close();
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && byId("filter")) { event.preventDefault(); byId("filter").focus(); }
  const tab = byId("tabs").querySelectorAll("button")[+event.key - 1];
  if (/^[1-9]$/.test(event.key) && tab) tab.click();
}

function header() {
  const r = R(), c = r.call, sizes = Object.entries(c.sizes || {}).map(([k, v]) => k + " = " + v).join(", ");
  document.title = "coil report: " + reports.map(x => x.title).join(" and ");
  const peak = r.memory.arena_bytes;
  byId("head").replaceChildren(el("h1", {}, r.title),
    el("div", {class: "dim"}, [c.device, c.isa, c.threads ? c.threads + (c.threads > 1 ? " threads" : " thread") : "", sizes, "coil " + r.coil, r.torch ? "exported by PyTorch " + r.torch : ""].filter(Boolean).join(" \u00b7 ")),
    el("div", {class: "cards"}, card(time(c.call_us), "a call, mean of " + (c.calls || 0)), card(time(c.kernels_us), "kernels, " + percent(c.kernels_us / c.call_us)),
      card(time(c.host_us), "host, " + percent(c.host_us / c.call_us)), card(amount(peak, "B"), "scratch memory"), card(amount(r.constants_bytes, "B"), "weights"),
      r.limits.memory_gb_s ? card(rate(r.limits.gflop_s) + " GFLOP/s", "limit; memory " + rate(r.limits.memory_gb_s) + " GB/s" + (r.limits.cache_gb_s ? ", caches " + rate(r.limits.cache_gb_s) : "")) : null));
}
const card = (value, what) => el("div", {class: "card"}, el("b", {}, value || "\u2013"), el("span", {class: "dim"}, what));

function show(id) {
  view = id;
  history.replaceState(null, "", "#" + id + (picked === null ? "" : "/" + picked));
  for (const [name] of VIEWS) {
    const tab = byId("tab-" + name);
    if (tab) { tab.setAttribute("aria-selected", name === id); tab.tabIndex = name === id ? 0 : -1; }
  }
  byId("view").setAttribute("aria-labelledby", "tab-" + id);
  byId("view").replaceChildren(...{overview, kernels: kernelView, graph: graphView, roofline, memory: memoryView, source: sourceView, fusion: fusionView, compare}[id]().flat().filter(Boolean));
}

// ---- a kernel in full

function close() { picked = null; byId("detail").hidden = true; byId("detail").replaceChildren(); mark(); }
function mark() { document.querySelectorAll("[data-n]").forEach(x => x.classList.toggle("picked", picked !== null && +x.dataset.n === picked)); }

function pick(n) {
  picked = n;
  history.replaceState(null, "", "#" + view + "/" + n);
  const k = R().kernels[n], code = R().sources[k.function];
  const rows = [["kind", k.kind], ["time of a call", ran(k) ? time(k.us) + ", " + percent(k.share) : "did not run"], ["launches", k.launches], ["moved", ran(k) ? amount(k.bytes, "B") + (k.gb_s ? ", " + rate(k.gb_s) + " GB/s" : "") : ""],
    ["operations", ran(k) ? k.flops === undefined ? "unknown" : amount(k.flops, "FLOP") + (k.gflop_s ? ", " + rate(k.gflop_s) + " GFLOP/s" : "") : ""],
    ["the machine needs", k.roof_us ? time(k.roof_us) + " (" + percent(efficiency(k)) + " of the roof, bound by " + k.bound + (efficiency(k) > 1.05 ? "; its algorithm needs less than the operator's definition" : "") + ")" : ""], ["time of all threads", k.threads_us ? time(k.threads_us) : ""],
    ["cycles", k.cycles ? amount(k.cycles, "") + ", " + amount(k.instructions, "instructions") + ", " + amount(k.cache_misses, "cache misses") : ""],
    ["variant", k.variant || (k.choices ? "default" : "")], ["its shapes", k.hint ? k.hint.text : ""], ["code", k.function || (k.device ? k.device + ", of the device library (coil inspect --source " + k.device + ")" : "of the device library")]];
  const facts = el("table", {}, rows.filter(([, v]) => v !== "" && v !== undefined).map(([a, b]) => el("tr", {}, el("td", {class: "dim"}, a), el("td", {class: "text"}, b))));
  const parts = [el("button", {onclick: close, "aria-label": "Close"}, "Close"), el("h2", {}, n + ": " + k.name), facts];
  if (k.tuned) parts.push(el("h2", {}, "What the tuner timed"), ...k.tuned.map(tunedTable));
  parts.push(el("h2", {}, "Lines of the model"), el("div", {}, (k.origins || []).map(originLine)));
  parts.push(el("h2", {}, "Operators, as loops of this kernel"), el("div", {}, (k.ops || []).join(", ")));
  const near = neighbours(n);
  if (near.from.length) parts.push(el("h2", {}, "Reads from"), links(near.from));
  if (near.to.length) parts.push(el("h2", {}, "Read by"), links(near.to));
  const reasons = R().not_fused.filter(f => (k.ops || []).includes(f.consumer) || (k.ops || []).includes(f.producer));
  if (reasons.length) parts.push(el("h2", {}, "Why it is not larger"), el("ul", {}, alike(reasons).slice(0, 8).map(x => el("li", {}, x))));
  if (layoutsOf(k).length) parts.push(el("h2", {}, "Why what it writes lies so"), el("ul", {}, layoutsOf(k).map(x => el("li", {}, x))));
  if (code) parts.push(el("h2", {}, "Generated code, " + code.file), el("pre", {tabindex: 0}, code.text));
  if (k.call) parts.push(el("h2", {}, "How the host calls it"), el("pre", {tabindex: 0}, k.call));
  byId("detail").hidden = false;
  byId("detail").replaceChildren(...parts);
  byId("detail").scrollTop = 0;
  if (getComputedStyle(byId("detail")).position === "static") byId("detail").scrollIntoView();  // a narrow window has it above the view
  mark();
}

function tunedTable(point) {
  const sizes = Object.entries(point.sizes || {}).map(([a, b]) => a + " = " + b).join(", ");
  return el("div", {}, el("div", {class: "dim"}, [sizes, "chosen: " + point.chosen, point.reason].filter(Boolean).join(" \u00b7 ")),
    el("table", {}, (point.timings || []).map(t => el("tr", {}, el("td", {class: "text"}, t.choice), el("td", {class: "n"}, time(t.median_us)), el("td", {class: "text dim"}, t.fault || "")))));
}

function originLine(o) {
  return el("div", {}, el("button", {onclick: () => showLine(o.source)}, o.source || "?"), " ", el("span", {class: "dim", title: o.module || null}, short(o.module || "", 200)), o.line ? el("pre", {}, o.line) : null);
}
// The first row of a table; columns of numbers begin with "#".
const heads = (...names) => el("tr", {}, names.map(x => el("th", {scope: "col", class: x.startsWith("#") ? "n" : null}, x.replace(/^#/, ""))));
const links = list => el("div", {class: "links"}, list.slice(0, 24).map(n => el("button", {onclick: () => pick(n)}, n + ": " + short(R().kernels[n].name, 40))));

// Tables whose rows open a kernel.
function rowOf(k, cells) {
  const open = () => pick(k.n);
  return el("tr", {class: "pick", tabindex: 0, "data-n": k.n, onclick: open, onkeydown: e => {
    if (e.key === "Enter") open();
    const next = {ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling"}[e.key];
    if (next && e.currentTarget[next]) { e.preventDefault(); e.currentTarget[next].focus(); }
  }}, cells);
}

// ---- views

function overview() {
  const r = R(), total = r.call.call_us || 0, most = [...kernelsRun()].sort((a, b) => b.us - a.us).slice(0, 15);
  const advice = r.advice.length ? r.advice.map(a => el("div", {class: "advice"}, a.text + " ", a.kernels.length ? links(a.kernels.slice(0, 6)) : null)) : [el("p", {class: "dim"}, "Nothing stands out.")];
  const kinds = {};
  for (const k of kernelsRun()) kinds[k.kind] = (kinds[k.kind] || 0) + k.us;
  const shares = Object.entries(kinds).sort((a, b) => b[1] - a[1]);
  return [el("h2", {}, "Advice"), ...advice, el("h2", {}, "Where a call's time goes"), strip(total),
    el("table", {}, [...shares, ["host: checks, memory, between kernels", r.call.host_us || 0]].map(([name, us]) => el("tr", {}, el("td", {}, name), el("td", {class: "n"}, time(us)), el("td", {class: "n"}, percent(us / total)), el("td", {}, bar(us / total))))),
    el("p", {class: "dim"}, "Kernels and host add up to the call. On the host: inputs checked in " + time(r.call.check_us) + ", memory found in " + time(r.call.place_us) + "."),
    ...inPyTorch(r.graph), el("h2", {}, "The busiest kernels"), table(most), r.call.counters ? el("p", {class: "dim"}, r.call.counters) : null];
}

// Of a program of torch.compile: the operators of its graph that coil did not take, each kind once.
function inPyTorch(graph) {
  if (!graph) return [];
  const head = el("h2", {}, "What stayed in PyTorch"), of = "the " + graph.kind + " graph's " + graph.operators + (graph.operators === 1 ? " operator" : " operators");
  if (!graph.in_torch.length) return [head, el("p", {class: "dim"}, "Nothing: coil computes all of " + of + ".")];
  const kinds = new Map();
  for (const o of graph.in_torch) {
    const key = o.operator + "\n" + o.reason, kind = kinds.get(key) || {...o, times: 0, sources: new Set()};
    kind.times++;
    if (o.source) kind.sources.add(o.source);
    kinds.set(key, kind);
  }
  const cells = k => [k.times, k.operator, k.reason, short([...k.sources].join(", "), 120)];
  return [head, el("p", {class: "dim"}, graph.in_torch.length + " of " + of + ", between coil's programs; their time is in no kernel here."),
    el("table", {}, heads("#times", "operator", "why", "from"), [...kinds.values()].map(k => el("tr", {}, cells(k).map((c, i) => el("td", {class: i ? "text" : "n"}, c)))))];
}
const bar = share => el("span", {class: "bar", style: "width:" + Math.max(0, Math.min(200, 200 * share || 0)) + "px"});

let order = "us", rising = false;
function kernelView() {
  const box = el("div", {});
  const filter = el("input", {id: "filter", type: "search", placeholder: "Filter by name, module, line", "aria-label": "Filter", oninput: () => box.replaceChildren(sorted(filter.value))});
  box.append(sorted(""));
  return [el("p", {}, filter), box];
}
function sorted(words) {
  const wanted = words.toLowerCase(), value = k => order === "name" ? k.name : order === "roof" ? efficiency(k) : order === "place" ? place(k) : k[order];
  const rows = R().kernels.filter(k => k.kind !== "control" && (!wanted || (k.name + " " + place(k) + " " + (k.ops || []).join(" ")).toLowerCase().includes(wanted)));
  rows.sort((a, b) => {
    const x = value(a), y = value(b);
    if (x === y) return a.n - b.n;
    if (x === undefined || y === undefined) return x === undefined ? 1 : -1;
    return (x < y ? -1 : 1) * (rising ? 1 : -1);
  });
  return table(rows, true);
}
const COLUMNS = [["n", "#", true], ["us", "time", true], ["share", "share", true], ["launches", "launches", true], ["bytes", "bytes", true], ["flops", "FLOPs", true], ["gb_s", "GB/s", true], ["gflop_s", "GFLOP/s", true], ["roof", "of the roof", true], ["name", "kernel", false], ["place", "from", false]];
function table(rows, sortable) {
  const head = el("tr", {}, COLUMNS.map(([key, name, number]) => el("th", {class: number ? "n" : null, scope: "col", "aria-sort": sortable && order === key ? rising ? "ascending" : "descending" : null},
    sortable ? el("button", {onclick: () => { rising = order === key ? !rising : !number; order = key; show("kernels"); }}, name) : name)));
  return el("table", {}, el("thead", {}, head), el("tbody", {}, rows.map(k => rowOf(k, [el("td", {class: "n"}, k.n), el("td", {class: "n"}, time(k.us)), el("td", {class: "n"}, percent(k.share)), el("td", {class: "n"}, k.launches), el("td", {class: "n"}, amount(k.bytes, "B")),
    el("td", {class: "n"}, amount(k.flops, "")), el("td", {class: "n"}, rate(k.gb_s)), el("td", {class: "n"}, rate(k.gflop_s)), el("td", {class: "n"}, k.roof_us ? percent(efficiency(k)) + " " + k.bound : ""), el("td", {class: "text"}, k.name), el("td", {class: "text dim"}, place(k))]))));
}

const memoryView = () => [...scratchView(), ...layoutView()];

// What is not stored row by row, and copies, each reason once.
function layoutView() {
  const groups = new Map(), add = (why, name, text, n) => { const g = groups.get(why) || {names: [], text, kernels: new Set()}; g.names.push(name); if (n !== undefined) g.kernels.add(n); groups.set(why, g); };
  for (const l of R().layouts || []) add(l.why, l.name, l.dtype + " " + shapeText(l.shape) + ", strides " + (l.strides || []).join(" "), l.kernel);
  for (const k of R().kernels) if (k.why) add(k.why, k.name, "a copy", k.n);
  const named = g => g.names.slice(0, 3).join(", ") + (g.names.length > 3 ? " and " + (g.names.length - 3) + " more" : "");
  return [el("h2", {}, "Layouts and copies"), groups.size ? el("table", {}, heads("tensor", "how it lies", "why", "kernels"), [...groups].map(([why, g]) =>
    el("tr", {}, el("td", {class: "text"}, named(g)), el("td", {class: "text"}, g.text), el("td", {class: "text"}, why), el("td", {}, links([...g.kernels].slice(0, 8)))))) : el("p", {class: "dim"}, "All tensors are stored row by row, and none is copied.")];
}
const layoutsOf = k => [...new Set([...(R().layouts || []).filter(l => (k.writes || []).includes(l.buffer)).map(l => l.name + ": " + l.why), ...(k.why ? [k.why] : [])])];

// ---- lines of the model

let lineWanted = "";
function showLine(source) { lineWanted = source; show("source"); const row = document.querySelector("tr.picked-line"); if (row) row.scrollIntoView({block: "center"}); }
function sourceView() {
  const lines = new Map();
  for (const k of R().kernels) {
    const origins = k.origins || [], each = ran(k) ? k.us / Math.max(1, new Set(origins.map(o => o.source)).size) : 0;
    for (const source of new Set(origins.map(o => o.source || "?"))) {
      const line = lines.get(source) || {us: 0, kernels: [], text: "", modules: new Set()};
      line.us += each, line.kernels.push(k.n);
      for (const o of origins) if ((o.source || "?") === source) { line.text = line.text || o.line || ""; if (o.module) line.modules.add(o.module); }
      lines.set(source, line);
    }
  }
  if (!lines.size) return [el("p", {class: "dim"}, "The program was exported without its source lines.")];
  return [el("p", {class: "dim"}, "A kernel of several lines gives each an equal part of its time."), el("table", {}, heads("line", "code", "#time", "modules", "kernels"),
    [...lines].sort((a, b) => b[1].us - a[1].us).map(([source, line]) => el("tr", {class: source === lineWanted ? "picked picked-line" : null}, el("td", {class: "text"}, source), el("td", {class: "text"}, line.text), el("td", {class: "n"}, time(line.us)),
      el("td", {class: "text dim"}, [...line.modules].slice(0, 3).map(m => short(m, 80)).join(", ") + (line.modules.size > 3 ? ", ..." : "")), el("td", {}, links(line.kernels)))))];
}

// What fusing a pair would save: time, nothing where one kernel computes both already, or unknown.
const spared = f => f.saves_us !== undefined ? time(f.saves_us) : f.within ? "nothing goes through memory" : "unknown";
const sparedText = (f, before) => f.saves_us === undefined && !f.within ? "" : before + spared(f);

// Pairs that differ in their numbers alone, as of the layers of a network, once.
function alike(list) {
  const plain = name => name.replace(/_\d+$/, "");
  return [...d3.group(list, f => plain(f.producer) + " \u2192 " + plain(f.consumer) + ": " + f.reason)].map(([text, those]) => text + sparedText(those[0], "; fusing would spare ") + (those.length > 1 ? " (" + those.length + " such pairs)" : ""));
}

// How many pairs a row stands for, and which.
function pairs(g) {
  if (g.list.length === 1) return "1";
  return el("details", {}, el("summary", {}, String(g.list.length)), g.list.slice(0, 200).map(f => el("div", {class: "dim"}, f.producer + " \u2192 " + f.consumer + sparedText(f, ": "))));
}

function fusionView() {
  const groups = new Map();
  for (const f of R().not_fused) {
    const key = f.producer.replace(/_\d+$/, "") + "\u0000" + f.consumer.replace(/_\d+$/, "") + "\u0000" + f.reason, g = groups.get(key) || {list: [], bytes: 0, us: 0, f};
    g.list.push(f), g.bytes += f.bytes || 0, g.us += f.saves_us || 0;
    groups.set(key, g);
  }
  const moves = kernelsRun().filter(k => k.moves && k.bytes > 0), reasonsOf = k => [...layoutsOf(k), ...new Set(R().not_fused.filter(f => (k.ops || []).includes(f.consumer) || (k.ops || []).includes(f.producer) || k.ops.some(o => f.producer.startsWith(o))).map(f => f.reason))].slice(0, 3).join("; ");
  const copies = moves.length ? [el("h2", {}, "Kernels that only move data"), el("table", {}, heads("kernel", "#time", "#bytes", "operators", "why it stands alone"), moves.map(k => rowOf(k, [el("td", {class: "text"}, k.n + ": " + k.name), el("td", {class: "n"}, time(k.us)), el("td", {class: "n"}, amount(k.bytes, "B")), el("td", {class: "text"}, (k.ops || []).join(", ")), el("td", {class: "text dim"}, reasonsOf(k))])))] : [];
  if (!groups.size) return [el("p", {class: "dim"}, "All neighbours became one kernel."), ...copies];
  return [el("p", {class: "dim"}, "Fusing would spare writing the value and reading it again: an estimate by the bandwidth that was measured."), el("table", {}, heads("producer", "consumer", "reason", "#pairs", "#bytes", "#would spare"),
    [...groups.values()].sort((a, b) => b.us - a.us || b.list.length - a.list.length).map(g => el("tr", {}, el("td", {class: "text"}, g.f.producer), el("td", {class: "text"}, g.f.consumer), el("td", {class: "text"}, g.f.reason), el("td", {class: "n"}, pairs(g)), el("td", {class: "n"}, g.bytes ? amount(g.bytes, "B") : ""), el("td", {class: g.us ? "n" : "text"}, g.us ? time(g.us) : spared(g.f))))), ...copies];
}

// ---- the graph

function writers() { const of = new Map(); for (const k of R().kernels) for (const b of k.writes || []) if (!of.has(b)) of.set(b, k.n); return of; }
function neighbours(n) {
  const of = writers(), mine = new Set(R().kernels[n].writes || []);
  const from = [...new Set((R().kernels[n].reads || []).map(b => of.get(b)).filter(x => x !== undefined && x !== n))];
  return {from, to: R().kernels.filter(k => k.n !== n && (k.reads || []).some(b => mine.has(b))).map(k => k.n)};
}

function layout() {
  const of = writers(), nodes = [], number = new Map(), edges = [];
  const add = (key, node) => { number.set(key, nodes.length); nodes.push(Object.assign(node, {depth: 0})); };
  const inputs = new Map((R().inputs || []).filter(i => i.buffer !== undefined).map((i, n) => [i.buffer, n]));
  for (const [b, n] of inputs) add("in" + b, {title: R().inputs[n].name, lines: [R().inputs[n].dtype + " " + shapeText(R().inputs[n].shape)]});
  for (const k of R().kernels) {
    if (k.kind === "control") continue;
    const ops = k.ops || [];
    add(k.n, {title: k.n + ": " + short(k.name, 27), lines: [...ops.slice(0, 5).map(o => short(o, 30)), ...(ops.length > 5 ? ["and " + (ops.length - 5) + " more"] : [])], k});
    for (const b of new Set(k.reads || [])) {
      const source = of.has(b) && of.get(b) < k.n ? number.get(of.get(b)) : number.get("in" + b);
      if (source !== undefined) edges.push([source, number.get(k.n)]);
    }
  }
  (R().outputs || []).forEach((o, i) => { add("out" + i, {title: o.name, lines: [o.dtype + " " + shapeText(o.shape)]}); if (of.has(o.buffer)) edges.push([number.get(of.get(o.buffer)), number.get("out" + i)]); });
  for (const [a, b] of edges) nodes[b].depth = Math.max(nodes[b].depth, nodes[a].depth + 1);
  const rows = [];
  for (const node of nodes) (rows[node.depth] = rows[node.depth] || []).push(node);
  const parents = new Map(nodes.map(n => [n, []]));
  for (const [a, b] of edges) parents.get(nodes[b]).push(nodes[a]);
  let y = 20;
  for (const row of rows.filter(Boolean)) {
    const middle = n => { const p = parents.get(n); return p.length ? p.reduce((s, q) => s + q.x, 0) / p.length : 0; };
    row.sort((a, b) => middle(a) - middle(b));
    row.forEach((n, i) => { n.w = 240, n.h = 26 + 15 * n.lines.length + (n.k && ran(n.k) ? 16 : 0), n.x = (i - (row.length - 1) / 2) * 270, n.y = y; });
    y += Math.max(...row.map(n => n.h)) + 36;
  }
  return {nodes, edges, height: y};
}

function graphView() {
  const {nodes, edges, height} = layout(), most = Math.max(...kernelsRun().map(k => k.us), 1e-9), least = Math.min(...nodes.map(n => n.x)) - 140, width = Math.max(...nodes.map(n => n.x)) + 280 - least;
  const scene = svg("g", {}), lines = [];
  for (const [a, b] of edges) {
    const p = nodes[a], q = nodes[b], x1 = p.x, y1 = p.y + p.h, x2 = q.x, y2 = q.y, line = svg("path", {class: "edge", d: `M ${x1} ${y1} C ${x1} ${y1 + 24}, ${x2} ${y2 - 24}, ${x2} ${y2}`});
    lines.push([line, p, q]);
    scene.append(line);
  }
  for (const n of nodes) {
    const open = () => { if (n.k) pick(n.k.n); for (const [line, p, q] of lines) line.classList.toggle("near", p === n || q === n); };
    const box = svg("g", {class: "node", transform: `translate(${n.x - n.w / 2} ${n.y})`, tabindex: 0, role: "button", "aria-label": n.title, "data-n": n.k ? n.k.n : -1, onclick: open, onkeydown: e => e.key === "Enter" && open()},
      svg("rect", {width: n.w, height: n.h, rx: 6}), n.k && ran(n.k) ? svg("rect", {class: "heat", width: n.w, height: 22, rx: 6, style: `fill: rgba(var(--hot), ${(0.06 + 0.6 * n.k.us / most).toFixed(2)})`}) : null, svg("text", {x: 8, y: 16, "font-weight": 600}, n.title),
      n.lines.map((text, i) => svg("text", {x: 14, y: 36 + 15 * i, class: "dim"}, text)), n.k && ran(n.k) ? svg("text", {x: 8, y: n.h - 6}, time(n.k.us) + ", " + percent(n.k.share) + (n.k.roof_us ? ", " + percent(efficiency(n.k)) + " of the roof" : "")) : null);
    scene.append(box);
  }
  const picture = svg("svg", {id: "canvas", preserveAspectRatio: "xMidYMin meet", tabindex: 0, role: "group", "aria-label": "Kernels and what flows between them. Plus and minus zoom, arrows move."}, scene);
  const W = 1200, H = 720, zoom = d3.zoom().scaleExtent([0.01, 8]).on("zoom", e => scene.setAttribute("transform", e.transform));
  zoom.filter(e => (e.type === "wheel" || !e.target.closest(".node")) && !e.button);  // a click on a node opens it
  picture.setAttribute("viewBox", `0 0 ${W} ${H}`);
  const at = d3.select(picture).call(zoom), scaleBy = factor => at.call(zoom.scaleBy, factor), move = (dx, dy) => at.call(zoom.translateBy, dx / d3.zoomTransform(picture).k, dy / d3.zoomTransform(picture).k);
  const fit = (w, h) => { const k = Math.min(W / w, H / h); at.call(zoom.transform, d3.zoomIdentity.translate((W - w * k) / 2, 10).scale(k).translate(-(least + (width - w) / 2), 0)); };
  const whole = () => fit(width, height + 20);
  fit(Math.max(900, Math.min(width, 1600)), Math.min(height + 20, 700));
  picture.addEventListener("keydown", e => {
    const act = {"+": () => scaleBy(1.25), "=": () => scaleBy(1.25), "-": () => scaleBy(1 / 1.25), "0": whole, ArrowUp: () => move(0, 100), ArrowDown: () => move(0, -100), ArrowLeft: () => move(150, 0), ArrowRight: () => move(-150, 0)}[e.key];
    if (act) { e.preventDefault(); e.stopPropagation(); act(); }
  });
  return [el("p", {}, el("button", {onclick: () => scaleBy(1.25)}, "Zoom in"), " ", el("button", {onclick: () => scaleBy(1 / 1.25)}, "Zoom out"), " ", el("button", {onclick: whole}, "Whole graph"), el("span", {class: "dim"}, "  A box is a kernel with its operators; the warmer, the longer it takes.")), picture];
}

// ---- two reports

// Rows of kernels that do the same, as src/report/compare.cc found them.
function compare() {
  const [a, b] = reports, beside = b.beside, sum = list => list.length ? list.reduce((all, k) => all + k.us, 0) : undefined;
  const rows = beside.rows.map(([x, y]) => ({x: x.map(n => a.kernels[n]), y: y.map(n => b.kernels[n])})).map(r => ({...r, was: sum(r.x), is: sum(r.y)}));
  rows.sort((p, q) => Math.abs((q.was || 0) - (q.is || 0)) - Math.abs((p.was || 0) - (p.is || 0)));
  const change = (x, y) => el("td", {class: "n " + (y < x ? "better" : y > x ? "worse" : "")}, x && y ? (y > x ? "+" : "") + (100 * (y / x - 1)).toFixed(1) + " %" : "");
  const facts = [["call", r => r.call.call_us, time], ["kernels", r => r.call.kernels_us, time], ["host", r => r.call.host_us, time], ["scratch memory", r => r.memory.arena_bytes, x => amount(x, "B")], ["package", r => r.package_bytes, x => amount(x, "B")], ["kernels that ran", r => r.kernels.filter(ran).length, String]];
  const kind = (r, name) => r.kernels.filter(k => ran(k) && k.kind === name).reduce((all, k) => all + k.us, 0);
  const kinds = [...new Set([a, b].flatMap(r => r.kernels.filter(ran).map(k => k.kind)))].sort((x, y) => kind(a, y) + kind(b, y) - kind(a, x) - kind(b, x));
  const go = (i, k) => { current = i; byId("tabs").querySelector("select").value = i; header(); pick(k.n); };
  const buttons = (i, list) => el("td", {class: "n"}, list.length ? list.map(k => el("button", {onclick: () => go(i, k), title: k.name}, time(k.us))) : "\u2013");
  const names = ({x, y}) => { const [p, q] = [x, y].map(l => l.map(k => k.name).join(" + ")); return !p || !q || p === q ? q || p : p + " \u2192 " + q; };
  const part = x => (100 * x).toFixed(0) + " %";
  return [beside.one_program ? null : el("div", {class: "advice"}, "These are different programs: kernels with " + part(beside.matched_a) + " of A's time and " + part(beside.matched_b) + " of B's have the same operators. The rest stands alone below."),
    el("table", {}, el("tr", {}, el("th", {}, ""), el("th", {class: "n"}, "A: " + a.title), el("th", {class: "n"}, "B: " + b.title), el("th", {class: "n"}, "B beside A")),
      el("tr", {}, el("td", {}, "on"), [a, b].map(r => el("td", {class: "n"}, [r.call.device, r.call.isa, r.call.threads + " threads"].join(", "))), el("td")),
      facts.map(([name, of, text]) => el("tr", {}, el("td", {}, name), el("td", {class: "n"}, text(of(a))), el("td", {class: "n"}, text(of(b))), change(of(a), of(b)))),
      kinds.map(name => el("tr", {}, el("td", {}, "kernels of kind " + name), [a, b].map(r => el("td", {class: "n"}, kind(r, name) ? time(kind(r, name)) : "\u2013")), change(kind(a, name), kind(b, name))))),
    el("h2", {}, "Kernels, the largest differences first"), el("table", {}, heads("kernel", "from", "#A", "#B", "#B beside A"),
      rows.slice(0, 400).map(r => el("tr", {}, el("td", {class: "text"}, names(r)), el("td", {class: "text dim"}, place((r.x[0] || r.y[0]))), buttons(0, r.x), buttons(1, r.y), change(r.was || 0, r.is || 0))))];
}
