// SPDX-License-Identifier: GPL-2.0-or-later
// Filters the two tables of hosts. Without this script all hosts are shown.
"use strict";
(() => {
  const form = document.getElementById("filter");
  const words = document.getElementById("words");
  const attention = document.getElementById("attention");
  const shown = document.getElementById("shown");
  const rows = [...document.querySelectorAll(".matrix tbody tr:not(.cluster)")];
  if (!rows.length) return;
  const names = (some) => new Set(some.map((row) => row.cells[0].textContent));
  const all = names(rows).size;
  const bad = names(rows.filter((row) => row.querySelector(".fail, .warn, .unknown")));
  const filter = () => {
    const text = words.value.trim().toLowerCase();
    for (const row of rows) {
      const fits = row.textContent.toLowerCase().includes(text);
      row.hidden = !fits || (attention.checked && !bad.has(row.cells[0].textContent));
    }
    for (const body of document.querySelectorAll(".matrix tbody")) {
      body.hidden = ![...body.rows].slice(1).some((row) => !row.hidden);
    }
    const left = names(rows.filter((row) => !row.hidden)).size;
    shown.textContent = left === all ? "" : `${left} of ${all} hosts`;
  };
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", filter);
  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details")) one.open = true;
  });
})();
