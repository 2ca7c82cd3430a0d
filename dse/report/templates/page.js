"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const data = {};
  for (const [name, { columns, rows }] of Object.entries(read("data")))
    data[name] = rows.map((row) => Object.fromEntries(columns.map((c, i) => [c, row[i]])));
  const specs = read("specs");
  const config = read("config");
  const views = [];
  const drawn = [];
  const NARROW = 560;
  const TICK = 80; // room for a tick of a horizontal axis and its label
  const LOW = 210; // height of a printed chart
  const PRINTED = 660; // A4 and Letter within the margins of the style sheet
  const rowsOf = (id) => document.querySelectorAll(`tr[data-point="${CSS.escape(id)}"]`);

  function pick(id) {
    for (const row of document.querySelectorAll("tr[aria-selected=true]"))
      row.setAttribute("aria-selected", "false");
    for (const row of rowsOf(id)) row.setAttribute("aria-selected", "true");
    for (const view of views) view.signal("picked", id).runAsync();
    describe(id);
  }

  function describe(id) {
    const box = document.getElementById("picked");
    const words = (data.words || []).find((each) => each.point_id === id);
    const row = (data.results || []).find((each) => each.point_id === id);
    if (!box) return;
    box.replaceChildren();
    const title = document.createElement("strong");
    title.textContent = words ? words.sentence : row ? `${row.gpu}, ${row.layout}` : "Not drawn here.";
    const list = document.createElement("dl");
    for (const { column, label, scale } of read("shown")) {
      const value = row && row[column];
      if (value === null || value === undefined) continue;
      const item = document.createElement("div");
      const term = document.createElement("dt");
      const text = document.createElement("dd");
      term.textContent = label;
      text.textContent = typeof value === "number"
        ? (value * scale).toLocaleString("en", { maximumSignificantDigits: 4 }) : String(value);
      item.append(term, text);
      list.append(item);
    }
    const code = document.createElement("code");
    code.textContent = id;
    box.append(title, list, code);
  }

  function sort(head, body, index) {
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const each of head.parentNode.children) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (row) => row.children[index].dataset.value;
    const compare = (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
      return up ? order : -order;
    };
    body.append(...[...body.rows].sort(compare));
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, index) => {
      head.querySelector("button").addEventListener("click", () => sort(head, table.tBodies[0], index));
    });
  }
  for (const row of document.querySelectorAll("tr[data-point]")) {
    row.addEventListener("click", () => pick(row.dataset.point));
    row.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      pick(row.dataset.point);
    });
  }

  // A table that is wider than its place says so: with a shade at its edge, and in words.
  function hint(sheet) {
    const box = sheet.querySelector(".scroll");
    const left = box.scrollWidth - box.clientWidth;
    sheet.classList.toggle("wide", left > 1);
    sheet.classList.toggle("more", left - box.scrollLeft > 1);
  }
  const sheets = [...document.querySelectorAll(".sheet")];
  for (const sheet of sheets)
    sheet.querySelector(".scroll").addEventListener("scroll", () => hint(sheet), { passive: true });
  const hints = () => sheets.forEach(hint);
  addEventListener("resize", hints);
  hints();

  // What the legends of a chart name: one list of names a scale.
  function legends(node, found = new Map()) {
    if (!node || typeof node !== "object") return found;
    if (Array.isArray(node.domain) && typeof node.domain[0] === "string")
      found.set(String(node.domain), node.domain);
    for (const inner of Object.values(node)) legends(inner, found);
    return found;
  }

  // The most columns of names with which all legends stand side by side; 0 where none fits.
  function abreast(spec, width) {
    const lists = [...legends(spec).values()];
    const room = (columns) => lists.reduce((sum, names) => sum + Math.min(columns, names.length)
      * (40 + 7 * Math.max(...names.map((name) => name.length))), 0);
    let columns = 6;
    while (columns > 0 && room(columns) > width) columns -= 1;
    return columns;
  }

  const rowed = (spec) => (spec.layer || []).some((layer) => layer.encoding?.y?.type === "nominal");

  function fitted(spec, width) {
    const columns = abreast(spec, Math.min(width, PRINTED)); // a legend is not laid out anew
    const layout = { bottom: { anchor: "start", direction: columns ? "horizontal" : "vertical" } };
    const legend = { ...config.legend, columns: columns || 1, layout };
    const along = spec.facet ? spec.spec.width : width;
    const ticks = { axisXQuantitative: { tickCount: Math.ceil(along / TICK) } };
    if (width >= NARROW || !rowed(spec)) return { ...config, legend, ...ticks };
    // Names of rows stand above their marks, which are 18 pixels high at most: beside them they
    // would leave no room.
    spec.height *= 1.7;
    const above = { labelAlign: "left", labelPadding: -4, labelOffset: -18, ticks: false };
    return { ...config, legend, ...ticks, axisYBand: above, axisYPoint: above };
  }

  // Vega-Lite fits no facet to its place: its panels share the width, as many abreast as can be read.
  function panelled(spec, width) {
    if (!spec.facet) return;
    const columns = Math.max(1, Math.min(spec.columns, Math.floor(width / 240)));
    spec.columns = columns;
    spec.spec.width = panel(spec, width);
  }

  const panel = (spec, width) =>
    Math.floor((width - 70 - spec.spacing * (spec.columns - 1)) / spec.columns);

  // A page is printed at another size than it is shown at: charts are drawn anew for it, lower, so
  // that they fill pages.
  function redraw(width) {
    for (const { view, place, spec } of drawn) {
      const to = width || place.clientWidth;
      if (spec.facet) view.signal("child_width", panel(spec, to));
      else view.signal("width", to);
      if (!spec.facet && !rowed(spec)) view.signal("height", width ? Math.min(spec.height, LOW) : spec.height);
      view.resize().run();
    }
  }
  addEventListener("beforeprint", () => redraw(PRINTED));
  addEventListener("afterprint", () => redraw());

  const copied = (name) => data[name].map((row) => ({ ...row }));
  const all = [...document.querySelectorAll("[data-chart]")].map(async (place) => {
    const spec = specs[place.dataset.chart];
    const text = JSON.stringify(spec);
    const named = Object.keys(data).filter((name) => text.includes(`{"name":"${name}"}`));
    Object.assign((spec.datasets ||= {}), Object.fromEntries(named.map((name) => [name, copied(name)])));
    const width = place.clientWidth;
    panelled(spec, width);
    const options = { actions: false, renderer: "svg", ast: true, config: fitted(spec, width) };
    const { view } = await vegaEmbed(place, spec, options);
    drawn.push({ view, place, spec });
    if (view.signal && text.includes('"picked"')) views.push(view);
    view.addEventListener("click", (_, item) => {
      const id = item && item.datum && item.datum.point_id;
      if (id) pick(id);
    });
  });
  Promise.all(all).then(() => {
    document.body.dataset.ready = "true";
    const first = document.body.dataset.best;
    if (first) pick(first);
  });
})();
