// Makes tables sort and filter, for eyes and keyboards alike. The page is whole without it.
"use strict";
for (const table of document.querySelectorAll("table[data-sorts]")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const rows = [...body.rows];
  const texts = new Map(rows.map((row) => [row, [...row.cells].map((cell) => cell.textContent.trim())]));
  const compare = (a, b) => {
    const x = Number(a), y = Number(b);
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      rows.sort((one, other) => {
        const a = texts.get(one)[column], b = texts.get(other)[column];
        if (a === "none" || b === "none") return (a === "none") - (b === "none"); // what is missing stays last
        return falling ? compare(b, a) : compare(a, b);
      });
      body.append(...rows);
    });
  });
  const tools = document.createElement("p");
  tools.className = "tools";
  const label = document.createElement("label");
  const input = document.createElement("input");
  const count = document.createElement("span");
  input.type = "search";
  label.append(`Show ${table.dataset.sorts} with all of these words `, input);
  count.setAttribute("role", "status");
  const filter = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = texts.get(row).join(" ").toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length} ${table.dataset.sorts} shown`;
  };
  input.addEventListener("input", filter);
  tools.append(label, count);
  (table.closest(".scroll") ?? table).before(tools);
  filter();
}
