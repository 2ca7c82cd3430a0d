"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const data = {};
  for (const [name, { columns, rows }] of Object.entries(read("data")))
    data[name] = rows.map((row) => Object.fromEntries(columns.map((c, i) => [c, row[i]])));
  const specs = read("specs");
  const config = read("config");
  const views = [];
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
    if (!box || !(words || row)) return;
    box.replaceChildren();
    const title = document.createElement("strong");
    title.textContent = words ? words.sentence : `${row.gpu}, ${row.layout}`;
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

  function fitted(width) {
    const narrow = width < 560;
    const layout = { bottom: { anchor: "start", direction: narrow ? "vertical" : "horizontal" } };
    const columns = Math.max(1, Math.floor(width / (narrow ? 140 : 170)));
    return { ...config, legend: { ...config.legend, columns, layout } };
  }

  const copied = (name) => data[name].map((row) => ({ ...row }));
  const all = [...document.querySelectorAll("[data-chart]")].map(async (place) => {
    const spec = specs[place.dataset.chart];
    const text = JSON.stringify(spec);
    const named = Object.keys(data).filter((name) => text.includes(`{"name":"${name}"}`));
    Object.assign((spec.datasets ||= {}), Object.fromEntries(named.map((name) => [name, copied(name)])));
    const options = { actions: false, renderer: "svg", ast: true, config: fitted(place.clientWidth) };
    const { view } = await vegaEmbed(place, spec, options);
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
