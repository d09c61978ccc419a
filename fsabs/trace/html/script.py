"""The report's script: what is at the pointer in a chart, sorting and filtering of tables, light and dark.

Without it, the page shows the same. It makes no request, and puts text in the page only as text.
"""

from __future__ import annotations

SCRIPT = r"""
"use strict";
(() => {
  const root = document.documentElement, tip = document.getElementById("tip");

  // Light and dark: as the system has it, until one says otherwise.
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  const label = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", dark() ? "Use light colours" : "Use dark colours");
    button.setAttribute("aria-pressed", String(dark()));
  };
  if (location.hash === "#dark" || location.hash === "#light") root.dataset.theme = location.hash.slice(1);
  button.hidden = false;
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; label(); });
  system.addEventListener("change", label);
  label();

  // Charts: the text of the place under the pointer, or of the one that the arrow keys lead to.
  const hide = () => { tip.hidden = true; };
  const show = (plot, part) => {
    const tips = plot.tips || (plot.tips = JSON.parse(plot.dataset.tips));
    if (!tips.length) return;
    plot.at = Math.max(0, Math.min(tips.length - 1, Math.floor(part * tips.length)));
    tip.textContent = tips[plot.at];
    tip.hidden = false;
    const box = plot.getBoundingClientRect(), x = box.left + (plot.at + 0.5) / tips.length * box.width;
    const wide = root.clientWidth, half = tip.offsetWidth / 2;
    tip.style.left = Math.max(4 + half, Math.min(wide - half - 4, x)) + "px";
    const above = box.top - tip.offsetHeight - 6;
    tip.style.top = (above < 4 ? box.bottom + 6 : above) + "px";
  };
  for (const plot of document.querySelectorAll(".plot")) {
    const move = (event) => {
      const box = plot.getBoundingClientRect();
      show(plot, (event.clientX - box.left) / box.width);
    };
    plot.addEventListener("pointermove", move);
    plot.addEventListener("pointerdown", move);
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
      const tips = JSON.parse(plot.dataset.tips), way = {ArrowLeft: -1, ArrowRight: 1}[event.key];
      if (event.key === "Escape") hide();
      if (!way) return;
      event.preventDefault();
      const at = plot.at === undefined ? (way > 0 ? 0 : tips.length - 1) : plot.at + way;
      show(plot, (Math.max(0, Math.min(tips.length - 1, at)) + 0.5) / tips.length);
    });
  }
  addEventListener("scroll", hide, {passive: true});

  // Tables.
  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  for (const table of document.querySelectorAll("table")) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, column) => {
      const press = document.createElement("button");
      press.type = "button";
      press.textContent = head.textContent;
      head.replaceChildren(press);
      press.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort"), word = head.classList.contains("word");
        const falling = before ? before === "ascending" : !word;
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
      let shown = 0;
      rows.forEach((row, index) => {
        row.hidden = !wanted.every((word) => texts[index].includes(word));
        shown += !row.hidden;
      });
      count.textContent = wanted.length ? shown + " of " + rows.length : "";
    });
  }
  root.dataset.ready = "yes";
})();
"""
