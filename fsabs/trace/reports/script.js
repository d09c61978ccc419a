// The charts, by uPlot; sorting and filtering of tables; light and dark. Without it, tables and bars show the same
// figures. It makes no request, and puts text into the page only as text.
"use strict";
(() => {
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  const colour = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();

  // Values as people read them.
  const digits = (value) => String(Number(value.toPrecision(3)));
  const scaled = (value, base, names) => {
    let at = 0;
    while (Math.abs(value) >= base && at < names.length - 1) { value /= base; at += 1; }
    return digits(value) + " " + names[at];
  };
  const shown = {
    "bytes/s": (value) => scaled(value, 1024, ["B/s", "KiB/s", "MiB/s", "GiB/s"]),
    s: (value) => value < 0.001 ? digits(value * 1e6) + " µs" : value < 1 ? digits(value * 1e3) + " ms" : digits(value) + " s",
    "": digits,
  };
  const least = {  // of a log2 bucket
    bytes: (bucket) => bucket < 1 ? "0" : scaled(2 ** (bucket - 1), 1024, ["B", "KiB", "MiB", "GiB", "TiB"]),
    ns: (bucket) => bucket < 1 ? "0" : shown.s(2 ** (bucket - 1) / 1e9),
  };

  const charts = [];
  const draw = (box) => {
    const chart = box.made || (box.made = JSON.parse(box.querySelector("script").textContent));
    if (box.plot) box.plot.destroy();
    const colours = ["asked", "fetched", "third"].map(colour), buckets = least[chart.unit];
    const value = (buckets ? digits : shown[chart.unit]), axis = {stroke: colour("muted"), grid: {stroke: colour("rule"), width: 1}};
    const x = buckets || (chart.section === "steps" ? digits : (v) => digits(v) + " s");
    box.plot = new uPlot({
      width: Math.max(120, box.clientWidth), height: chart.section === "latency" || chart.section === "sizes" ? 130 : 190,
      scales: {x: {time: false, range: chart.bars ? (u, min, max) => [min - 0.5, max + 0.5] : undefined},
               y: {range: (u, min, max) => [0, max > 0 ? max * 1.05 : 1]}},
      axes: [{...axis, values: (u, ticks) => ticks.map((v) => Number.isInteger(v) || !chart.bars ? x(v) : "")},
             {...axis, size: 84, values: (u, ticks) => ticks.map(value)}],
      series: [{label: chart.section === "time" ? "time" : chart.section === "steps" ? "step" : "from", value: (u, v) => v == null ? "" : x(v)},
               ...chart.names.map((name, at) => ({
                 label: name, stroke: colours[at], width: 1.5, value: (u, v) => v == null ? "" : value(v),
                 fill: chart.bars ? colours[at] : undefined, points: {show: false},
                 paths: chart.bars ? uPlot.paths.bars({size: [0.9, 60]}) : undefined}))],
      cursor: {drag: {x: !chart.bars, y: false}},
    }, chart.data, box);
  };
  const redraw = () => charts.forEach(draw);
  for (const box of document.querySelectorAll(".chart")) {
    charts.push(box);
    draw(box);
    box.addEventListener("keydown", (event) => {
      const way = {ArrowLeft: -1, ArrowRight: 1}[event.key], xs = box.made.data[0];
      if (!way) return;
      event.preventDefault();
      box.at = Math.max(0, Math.min(xs.length - 1, box.at === undefined ? 0 : box.at + way));
      box.plot.setCursor({left: box.plot.valToPos(xs[box.at], "x"), top: 10});
    });
  }
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });

  // Light and dark: as the system has it, until one says otherwise.
  const label = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", dark() ? "Use light colours" : "Use dark colours");
    button.setAttribute("aria-pressed", String(dark()));
  };
  button.hidden = false;
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; label(); redraw(); });
  system.addEventListener("change", () => { label(); redraw(); });
  label();

  // Tables.
  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  for (const table of document.querySelectorAll(".tabular table")) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, column) => {
      const press = document.createElement("button");
      press.type = "button";
      press.textContent = head.textContent;
      head.replaceChildren(press);
      press.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort"), falling = before ? before === "ascending" : !head.classList.contains("word");
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", falling ? "descending" : "ascending");
        const rows = [...body.rows].map((row) => [key(row, column), row]);
        rows.sort((a, b) => (falling ? -1 : 1) * compare(a[0], b[0]));
        body.append(...rows.map((pair) => pair[1]));
      });
    });
  }
  for (const filter of document.querySelectorAll(".filter")) {
    const rows = [...filter.parentNode.querySelector("tbody").rows], count = filter.querySelector("output");
    const texts = rows.map((row) => row.textContent.toLowerCase());
    filter.hidden = false;
    filter.querySelector("input").addEventListener("input", (event) => {
      const wanted = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      rows.forEach((row, index) => { row.hidden = !wanted.every((word) => texts[index].includes(word)); });
      count.textContent = wanted.length ? rows.filter((row) => !row.hidden).length + " of " + rows.length : "";
    });
  }
  root.dataset.ready = "yes";
})();
