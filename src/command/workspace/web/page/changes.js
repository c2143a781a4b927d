// The main part: the overview, or the changes of one file.

const main = document.getElementById("main");
// More lines of a file are shown on request.
const MAX_LINES = 1500;

/** The file that is shown; null for the overview. */
let current = null;
/** The number of the hunk with the cursor. */
let hunkAt = 0;
let isSplit = false;

/** Shows a file, or the overview. */
async function show(file, hunk = 0) {
  current = file;
  hunkAt = hunk;
  tree.cursor = file?.path ?? "";
  tree.render();
  if (!file) return main.replaceChildren(overview());
  let hunks;
  try {
    hunks = await model.hunks(file);
  } catch (error) {
    return say(error.message);
  }
  // The user may have gone on meanwhile.
  if (current !== file) return;
  main.replaceChildren(head(file), ...notes(file), ...sections(file, hunks, MAX_LINES));
  if (hunkAt < 0) hunkAt = Math.max(0, hunks.length - 1);
  if (hunk === 0) main.scrollTop = 0;
  point();
}

function head(file) {
  const choose = (split) => () => {
    isSplit = split;
    show(file, hunkAt);
  };
  const what = { added: "new", deleted: "deleted", renamed: "renamed", mode: "mode changed", type: "kind changed", modified: "" }[file.status];
  return make("div", { className: "head" },
    make("label", {}, checkbox([file], file.path), make("span", {}, visible(file.path))),
    what && make("span", { className: "what" }, what),
    make("span", {}, make("span", { className: "plus" }, `+${file.added}`), " ", make("span", { className: "minus" }, `−${file.removed}`)),
    make("span", { className: "switch", role: "group", "aria-label": "View" },
      make("button", { type: "button", "aria-pressed": String(!isSplit), onclick: choose(false) }, "Unified"),
      make("button", { type: "button", "aria-pressed": String(isSplit), onclick: choose(true) }, "Side by side")));
}

/** Says in words what hunks do not show. */
function notes(file) {
  const list = [];
  const note = (text, isWarning) => list.push(make("p", { className: isWarning ? "note warn" : "note" }, visible(text)));
  if (file.state === "conflict") note(`Conflict: ${file.reason}.`, true);
  if (file.state === "merges") note("You changed other lines of this file meanwhile. Both changes are merged.");
  if (file.state === "stays") note(`A ${file.new?.kind ?? "file"}, which stays in the copy.`);
  if (file.from) note(`Renamed from ${file.from}`);
  if (file.ignored) note("Git ignores this file.");
  if (file.old && file.new && file.old.mode !== file.new.mode) note(`Mode ${file.old.mode} → ${file.new.mode}`);
  for (const [word, node] of [["Before", file.old], ["Now", file.new]]) {
    if (node?.kind === "link") note(`${word}: a link to ${node.target}`);
    if (node?.kind === "directory") note(`${word}: a directory`);
  }
  if (file.content === "binary") note(`Binary: ${sized(file.old?.size ?? 0)} before, ${sized(file.new?.size ?? 0)} now.`);
  if (file.content === "large") note(`Too large to show: ${sized(file.old?.size ?? 0)} before, ${sized(file.new?.size ?? 0)} now.`);
  if (file.content === "same" && file.new?.kind === "file" && file.new.size === 0) note("An empty file.");
  return list;
}

/** Makes the hunks, until there are enough lines. */
function sections(file, hunks, limit) {
  const list = [];
  let left = limit;
  for (const [number, hunk] of hunks.entries()) {
    const lines = left >= hunk.lines.length ? hunk.lines : hunk.lines.slice(0, left);
    list.push(section(file, hunk, number, lines));
    left -= hunk.lines.length;
    if (left <= 0 && (lines.length < hunk.lines.length || number + 1 < hunks.length)) {
      const rest = hunks.reduce((sum, one) => sum + one.lines.length, 0) - limit;
      const more = make("button", { type: "button", className: "link", onclick: () => {
        const scroll = main.scrollTop;
        main.replaceChildren(head(file), ...notes(file), ...sections(file, hunks, limit * 10));
        main.scrollTop = scroll;
        point();
      } }, `Show more of ${counted(rest, "further line")}`);
      list.push(make("p", { className: "note" }, more));
      break;
    }
  }
  return list;
}

function section(file, hunk, number, lines) {
  const box = make("input", {
    type: "checkbox", "aria-label": `Apply hunk ${number + 1}`, disabled: !model.canTake(file),
    checked: file.ticks[number] ?? false,
    onchange: (event) => {
      model.setHunk(file, number, event.target.checked);
      refresh();
    },
  });
  const where = `@@ −${hunk.old_start},${hunk.old_lines} +${hunk.new_start},${hunk.new_lines} @@`;
  const body = make("div", { className: `lines ${isSplit ? "split" : "unified"}` });
  (isSplit ? split : unified)(body, hunk, lines, language(file.path));
  const element = make("section", { className: "hunk", "aria-label": `Hunk ${number + 1} of ${file.hunks}` },
    make("header", {}, box, make("span", { className: "where" }, where), make("span", {}, `${number + 1} / ${file.hunks}`)), body);
  element.classList.toggle("left", model.canTake(file) && !file.ticks[number]);
  element.addEventListener("mousedown", () => {
    hunkAt = number;
    point(false);
  });
  return element;
}

/** Pairs removed lines with the new ones that follow them, and finds the words that differ. */
function paired(hunk, lines) {
  const rows = [];
  let [oldNumber, newNumber] = [hunk.old_start, hunk.new_start];
  for (let at = 0; at < lines.length;) {
    if (lines[at].side === "both") {
      const text = lines[at++].text;
      rows.push([{ side: "both", n: oldNumber++, text }, { side: "both", n: newNumber++, text }]);
      continue;
    }
    const [old, now] = [[], []];
    while (lines[at]?.side === "old") old.push({ side: "old", n: oldNumber++, text: lines[at++].text });
    while (lines[at]?.side === "new") now.push({ side: "new", n: newNumber++, text: lines[at++].text });
    for (let index = 0; index < Math.max(old.length, now.length); index++) {
      const [one, other] = [old[index], now[index]];
      const marks = one && other ? differences(one.text.replace(/\n$/, ""), other.text.replace(/\n$/, "")) : null;
      if (marks) [one.marks, other.marks] = marks;
      rows.push([one, other]);
    }
  }
  return rows;
}

const SIGNS = { both: "", old: "−", new: "+" };

function code(line, comment) {
  const element = make("span", { className: "code" });
  const text = line.text.replace(/\r?\n$/, "");
  paint(element, text, comment, line.marks);
  if (line.text.endsWith("\r\n")) element.append(make("span", { className: "control" }, "CR"));
  else if (!line.text.endsWith("\n")) element.append(make("span", { className: "end" }, " no newline at the end"));
  return element;
}

const lineNumber = (number) => make("span", { className: "number", "data-n": number ?? "" });
const sign = (side) => make("span", { className: "sign", "data-s": SIGNS[side] });

function unified(body, hunk, lines, comment) {
  let pending = [];
  const put = (side, old, now, line) => body.append(
    make("div", { className: `line ${side}` }, lineNumber(old), lineNumber(now), sign(side), code(line, comment)));
  const flush = () => {
    pending.forEach(([old]) => old && put("old", old.n, null, old));
    pending.forEach(([, now]) => now && put("new", null, now.n, now));
    pending = [];
  };
  for (const row of paired(hunk, lines)) {
    if (row[0]?.side === "both") {
      flush();
      put("both", row[0].n, row[1].n, row[0]);
    } else pending.push(row);
  }
  flush();
}

function split(body, hunk, lines, comment) {
  const half = (line) => (line
    ? make("div", { className: `half ${line.side}` }, lineNumber(line.n), sign(line.side), code(line, comment))
    : make("div", { className: "half none" }));
  for (const [old, now] of paired(hunk, lines)) body.append(make("div", { className: "line" }, half(old), half(now)));
}

/** Marks the hunk with the cursor and scrolls to it. */
function point(scrolls = true) {
  const elements = [...main.querySelectorAll(".hunk")];
  hunkAt = Math.min(Math.max(hunkAt, 0), Math.max(0, elements.length - 1));
  elements.forEach((element, number) => element.classList.toggle("current", elements.length > 1 && number === hunkAt));
  if (scrolls && hunkAt > 0) elements[hunkAt]?.scrollIntoView({ block: "nearest" });
  if (scrolls && hunkAt === 0) main.scrollTop = 0;
}

function overview() {
  const { list } = model;
  const files = model.files;
  const sum = (key) => files.reduce((total, file) => total + file[key], 0);
  const element = make("div", { className: "overview" });
  element.append(
    files.length
      ? make("h2", {}, `${counted(files.length, "changed file")} in `, visible(list.id))
      : make("h2", {}, "Nothing waits in ", visible(list.id)),
    make("p", {}, files.length
      ? [make("span", { className: "plus" }, counted(sum("added"), "line") + " added"), ", ",
        make("span", { className: "minus" }, `${sum("removed").toLocaleString("en")} removed`),
        ". Your files are as they were; what you apply is merged with what you changed meanwhile, and can be undone."]
      : "Everything has been taken over, or nothing was changed."));
  const actions = make("div", { className: "actions" });
  if (files.length) actions.append(make("button", { type: "button", className: "primary", onclick: () => nextFile(1) }, "Look at the files ", make("kbd", {}, "n")));
  else actions.append(make("button", { type: "button", className: "danger", onclick: discard }, "Discard the copy…"));
  element.append(actions);
  const section = (title, items) => items.length && element.append(make("h3", {}, title), make("ul", {}, items));
  const conflicts = files.filter((file) => file.state === "conflict");
  section("Conflicts", conflicts.slice(0, 100).map((file) => make("li", {},
    make("button", { type: "button", className: "link", onclick: () => show(file) }, visible(file.path)), ` – ${file.reason}`)));
  section(counted(list.commits.length, "commit"), list.commits.map((commit) => make("li", {},
    make("div", {}, visible(commit.subject)),
    make("div", { className: "by" }, make("span", { className: "id" }, commit.id.slice(0, 10)), " on ", visible(commit.branch), " by ", visible(commit.author)),
    commit.body && make("pre", {}, commit.body.split("\n").flatMap((line, at) => (at ? ["\n", ...visible(line)] : visible(line)))))));
  const stays = [
    ...files.filter((file) => file.state === "stays").map((file) => make("li", {}, visible(file.path), ` – a ${file.new?.kind}`)),
    ...list.git_directories.map((path) => make("li", {}, visible(path), " – a Git directory that was made inside")),
  ];
  section("Stays in the copy", stays);
  return element;
}

