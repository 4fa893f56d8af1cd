// Tables that are sorted by clicking a column name and downloaded as CSV.

function sortBy(table, column, button) {
  const heads = [...table.tHead.rows[0].cells];
  const ascending = heads[column].getAttribute("aria-sort") !== "ascending";
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[column].setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
  const rows = [...table.tBodies[0].rows];
  const number = rows.every((row) => value(row) === "" || Number.isFinite(Number(value(row))));
  rows.sort((a, b) => {
    const [left, right] = [value(a), value(b)];
    if (left === "" || right === "") return (left === "") - (right === ""); // missing values stay at the end
    const order = number ? Number(left) - Number(right) : left.localeCompare(right, undefined, { numeric: true });
    return ascending ? order : -order;
  });
  table.tBodies[0].append(...rows);
  button.focus();
}

function makeSortable(table) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const columnName = head.querySelector(".column") ?? head;
    const button = tag("button", { type: "button", class: "sort", title: columnName.title }, columnName.textContent.trim());
    const info = head.querySelector(".info");
    head.replaceChildren(tag("span", { class: "head" }, button, ...(info ? [info] : [])));
    button.addEventListener("click", () => sortBy(table, column, button));
  });
}

function tableRows(table) {
  const text = (cell) => cell.dataset.csv ?? (cell.querySelector(".sort") ?? cell).textContent.trim();
  return [...table.rows].map((row) => [...row.cells].map(text));
}

function startTables() {
  for (const table of document.querySelectorAll("table.sortable")) makeSortable(table);
  for (const button of document.querySelectorAll("button[data-table]")) {
    const table = document.getElementById(button.dataset.table);
    button.addEventListener("click", () => save(`${table.id}.csv`, "text/csv", csvText(tableRows(table))));
  }
  for (const button of document.querySelectorAll("button[data-text]")) {
    const text = document.getElementById(button.dataset.text).textContent;
    button.addEventListener("click", () => save(button.dataset.file, "text/x-shellscript", text));
  }
}
