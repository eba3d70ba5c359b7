
"use strict";
// The page is whole without this: it filters and unfolds.
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const form = document.getElementById("filter");
  if (!form) return;
  const text = document.getElementById("filter-text");
  const boxes = all("input[name=part]", form);
  const shown = document.getElementById("shown");
  const unfold = document.getElementById("unfold");

  // An entry is a row, with the row below it that tells more of it.
  const parts = all(".part").map((part) => ({
    part,
    entries: all(".entry", part).map((entry) => {
      const below = entry.nextElementSibling;
      const more = below && below.matches(".more") ? below : null;
      const heading = entry.closest("table")?.querySelector("caption")?.textContent ?? "";
      return { entry, more, words: [heading, entry.textContent, more?.textContent].join(" ").toLowerCase() };
    }),
  }));
  const total = parts.reduce((sum, { entries }) => sum + entries.length, 0);
  const unfolded = new Set();

  // Filtering: by words, all of which an entry must hold, and by part. The fragment #?text=WORDS&part=broke,changed keeps it.
  const filter = () => {
    const wanted = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    for (const fold of unfolded) fold.open = false;
    unfolded.clear();
    let count = 0;
    for (const { part, entries } of parts) {
      let here = 0;
      for (const { entry, more, words } of entries) {
        const stays = chosen.has(part.id) && wanted.every((word) => words.includes(word));
        entry.hidden = !stays;
        if (more) more.hidden = !stays;
        here += stays ? 1 : 0;
        const folds = stays && wanted.length ? [entry.closest("details"), more?.querySelector("details")] : [];
        for (const fold of folds) {
          if (!fold || fold.open) continue;
          fold.open = true;
          unfolded.add(fold);
        }
      }
      for (const group of all(".wide, .following", part)) {
        group.hidden = !group.querySelector(".entry:not([hidden])");
        if (group.previousElementSibling?.matches("h3")) group.previousElementSibling.hidden = group.hidden;
      }
      part.hidden = entries.length ? here === 0 : !chosen.has(part.id);
      count += here;
    }
    const narrowed = wanted.length > 0 || chosen.size < boxes.length;
    shown.textContent = narrowed ? count + " of " + total + " shown" : "";
    return { chosen, narrowed };
  };
  const keep = () => {
    const { chosen, narrowed } = filter();
    const kept = new URLSearchParams();
    if (text.value.trim()) kept.set("text", text.value.trim());
    if (chosen.size < boxes.length) kept.set("part", [...chosen].join(","));
    try {
      history.replaceState(null, "", narrowed ? "#?" + kept : "#main");
    } catch { /* some browsers forbid it for files: the filter works all the same */ }
  };
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", keep);
  unfold.addEventListener("click", () => {
    const open = unfold.textContent === "Unfold all";
    for (const fold of all(".part details")) fold.open = open;
    unfold.textContent = open ? "Fold all" : "Unfold all";
  });

  // Addresses: a filter, or a part, which is shown whatever was filtered.
  const follow = () => {
    if (location.hash.startsWith("#?")) {
      const kept = new URLSearchParams(location.hash.slice(2));
      text.value = kept.get("text") ?? "";
      const chosen = kept.get("part")?.split(",");
      for (const box of boxes) box.checked = !chosen || chosen.includes(box.value);
      filter();
      return;
    }
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target || !target.closest("[hidden]")) return;
    text.value = "";
    for (const box of boxes) box.checked = true;
    filter();
    target.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  filter();
  follow();

  // Printing shows what is folded, also where the style sheet cannot.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("details:not([open])");
    for (const details of folded) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of folded) details.open = false;
  });
})();
