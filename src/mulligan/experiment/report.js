"use strict";
// Filters the records by words, and opens the one that an address names.
const records = [...document.querySelectorAll("details.record")].map((e) => [e, e.textContent.toLowerCase()]);
const filter = document.getElementById("filter");
function show() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const [element, text] of records) {
    element.hidden = !words.every((word) => text.includes(word));
    shown += !element.hidden;
  }
  document.getElementById("shown").textContent = `${shown} of ${records.length}`;
}
function open() {
  const named = document.querySelector("details:target");
  if (named) named.open = true;
}
if (filter) {
  filter.parentElement.hidden = false;
  filter.addEventListener("input", show);
  show();
}
addEventListener("hashchange", open);
open();
