"use strict";
// The page is whole without this: it filters, folds, copies, and adds the reader's local time.
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const said = document.getElementById("said");

  // Copying: a button behind each command, made here so that none stands there dead.
  const copy = async (code, button) => {
    let done = false;
    try {
      await navigator.clipboard.writeText(code.textContent);
      done = true;
    } catch {
      const selection = getSelection();
      selection.selectAllChildren(code);
      done = document.execCommand("copy");
      if (done) selection.removeAllRanges();
    }
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    said.textContent = done ? "Copied: " + code.textContent : "Selected; press Ctrl+C to copy";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };
  for (const code of all("pre.command > code")) {
    if (code.nextElementSibling) continue; // a page saved by a browser has them already
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy command " + code.textContent);
    code.after(button);
  }
  for (const button of all("pre.command > button")) {
    button.addEventListener("click", () => copy(button.previousElementSibling, button));
  }

  // Findings are links to themselves, to be copied.
  for (const finding of all("a[id]")) finding.href = "#" + finding.id;

  // Times: the reader's own below UTC.
  for (const time of all("time[datetime]:only-child")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.getTime()) || moment.getTimezoneOffset() === 0) continue;
    const here = document.createElement("span");
    here.className = "here";
    here.textContent = moment.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" }) + " here";
    time.after(here);
  }

  // Filtering: by words, all of which an entry must hold, and by status. The fragment #?text=WORDS&status=fail,warn keeps it.
  const form = document.getElementById("filter");
  const text = document.getElementById("filter-text");
  const boxes = all("input[name=status]", form);
  const shown = document.getElementById("shown");
  const unfold = document.getElementById("unfold");
  // Rows that name several subjects are found by what each of them says too: by its own path, say.
  const spelled = (place) => {
    const names = all("a[id]", place).map((one) => one.id.replace(/^[^@]*@[^:]*:/, ""));
    const more = all("dt, dd", place).flatMap((line) => {
      const texts = line.querySelector("var")
        ? names.map((name) => [...line.childNodes].map((node) => node.nodeName === "VAR" ? name : node.textContent).join(""))
        : [line.textContent];
      return texts.map((words) => words.replace(/(\S*)\{([\da-f:., ]+)\}(\S*)/g, (_, before, listed, after) =>
        listed.split(", ").map((one) => before + one + after).join(" ")));
    });
    return [place.textContent, ...more].join(" ").toLowerCase();
  };
  const counted = (place) => all("a[id]", place).length || 1;
  const checks = all(".check").map((check) => ({
    check,
    fold: check.closest("details"),
    number: counted(check),
    words: check.matches("li") ? spelled(check) : check.querySelector("summary").textContent.toLowerCase(),
    entries: all(".finding", check).map((entry) => ({ entry, number: counted(entry), words: spelled(entry) })),
  }));
  const unfolded = new Set();
  const matches = (words, state, wanted, states) => states.has(state) && wanted.every((word) => words.includes(word));
  const filter = () => {
    const wanted = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const states = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    const narrowed = wanted.length > 0 || states.size < boxes.length;
    // A search unfolds what it finds, leaving out a status such as skipped does not.
    const unfolding = wanted.length > 0 || !states.has("pass");
    if (!unfolding) for (const fold of unfolded) fold.open = false;
    if (!unfolding) unfolded.clear();
    let count = 0, total = 0;
    for (const { check, fold, number, words, entries } of checks) {
      let here = 0;
      for (const one of entries) {
        one.entry.hidden = !matches(words + " " + one.words, one.entry.dataset.s, wanted, states);
        here += one.entry.hidden ? 0 : one.number;
      }
      if (!entries.length) here = matches(words, check.dataset.s, wanted, states) ? number : 0;
      check.hidden = here === 0;
      if (unfolding && here > 0 && (entries.length || fold !== check) && !fold.open) {
        fold.open = true;
        unfolded.add(fold);
      }
      count += here;
      total += number;
    }
    for (const part of all(".skipped, section.link")) part.hidden = !part.querySelector(".check:not([hidden])");
    shown.textContent = narrowed ? count + " of " + total + " shown" : "";
    return { wanted, states, narrowed };
  };
  const keep = () => {
    const { states, narrowed } = filter();
    const kept = new URLSearchParams();
    if (text.value.trim()) kept.set("text", text.value.trim());
    if (states.size < boxes.length) kept.set("status", [...states].join(","));
    try {
      history.replaceState(null, "", narrowed ? "#?" + kept : "#checks");
    } catch { /* some browsers forbid it for files: the filter works all the same */ }
  };
  const everything = () => {
    text.value = "";
    for (const box of boxes) box.checked = true;
    filter();
  };
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", keep);
  unfold.addEventListener("click", () => {
    const open = unfold.textContent === "Unfold all";
    for (const { fold } of checks) fold.open = open;
    unfold.textContent = open ? "Fold all" : "Unfold all";
  });

  // Addresses: a filter, or the id of a finding or check, which is unfolded and shown whatever was filtered.
  const follow = () => {
    if (location.hash.startsWith("#?")) {
      const kept = new URLSearchParams(location.hash.slice(2));
      text.value = kept.get("text") ?? "";
      const states = kept.get("status")?.split(",");
      for (const box of boxes) box.checked = !states || states.includes(box.value);
      filter();
      form.scrollIntoView();
      return;
    }
    const raw = location.hash.slice(1);
    const target = raw && document.getElementById(raw);
    if (!target) return;
    if (target.closest("[hidden]")) everything();
    for (let place = target; place; place = place.parentElement) if (place.matches("details")) place.open = true;
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
