// Keys, buttons and messages.

const byId = (id) => document.getElementById(id);

function say(text, undo = false) {
  const shown = make("div", {}, visible(text), undo && make("button", { type: "button", className: "link", onclick: takeBack }, "Undo"));
  byId("said").replaceChildren(shown);
  setTimeout(() => shown.remove(), undo ? 12000 : 6000);
}

/** Shows what changed by a tick. */
function refresh() {
  const chosen = model.chosen();
  const parts = chosen.filter((file) => model.tick(file) === 1).length;
  byId("chosen").textContent = model.files.length ? `${chosen.length} of ${model.files.length} ticked${parts ? `, ${parts} in part` : ""}` : "";
  byId("apply").textContent = chosen.length ? `Apply ${counted(chosen.length, "file")}` : "Apply";
  byId("apply").disabled = chosen.length === 0;
  byId("undo").hidden = !model.list?.can_undo;
  tree.render();
  const box = main.querySelector(".head input");
  if (current && box) box.replaceWith(checkbox([current], current.path));
  main.querySelectorAll(".hunk").forEach((element, number) => {
    element.querySelector("input").checked = current.ticks[number];
    element.classList.toggle("left", model.canTake(current) && !current.ticks[number]);
  });
}

function setTicks(files, isTicked) {
  files.forEach((file) => model.setFile(file, isTicked));
  refresh();
}

/** Shows the file after or before the current one, among those that the filter shows. */
function nextFile(by, hunk = 0) {
  const files = tree.shown ?? [];
  const at = files.indexOf(current);
  const file = at < 0 ? files[by > 0 ? 0 : files.length] : files[at + by];
  if (!file) return by < 0 ? show(null) : undefined;
  show(file, hunk);
  tree.reveal();
}

function nextHunk(by) {
  const count = main.querySelectorAll(".hunk").length;
  if (!current || hunkAt + by < 0 || hunkAt + by >= count) return nextFile(by, by < 0 ? -1 : 0);
  hunkAt += by;
  point();
}

/** Asks in a dialog. Resolves to whether the answer was yes. */
function ask(title, content, yes, isDanger = false) {
  const dialog = byId("dialog");
  const accept = make("button", { value: "yes", className: isDanger ? "danger" : "primary" }, yes);
  const refuse = yes && make("button", { value: "no" }, "Cancel");
  const form = dialog.querySelector("form");
  form.replaceChildren(make("h2", {}, title), ...content, make("menu", {}, yes ? [refuse, accept] : make("button", { value: "no" }, "Close")));
  dialog.returnValue = "no";
  dialog.showModal();
  (isDanger ? refuse : yes ? accept : form.querySelector("menu button")).focus();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

async function reload() {
  const path = current?.path;
  await model.load();
  tree.build();
  byId("copy").replaceChildren(...visible(model.list.id));
  byId("directory").replaceChildren("a copy of ", ...visible(model.list.directory));
  document.title = `${model.list.id} – sandpen`;
  const { ignored } = model.list;
  byId("side-note").replaceChildren(...(ignored.files ? [
    `${counted(ignored.files, "file")} that Git ignores (${sized(ignored.bytes)}) `,
    make("button", { type: "button", className: "link", onclick: toggleIgnored }, model.showsIgnored ? "Hide" : "Show"),
  ] : []));
  await show(model.files.find((file) => file.path === path) ?? null, hunkAt);
  refresh();
}

async function toggleIgnored() {
  model.showsIgnored = !model.showsIgnored;
  await attempt(reload);
}

/** Does something that may fail, and says why it did. */
async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    if (!error.causes?.length) return say(error.message);
    await ask(error.message, [make("ul", {}, error.causes.map((cause) => make("li", {}, visible(cause))))]);
  }
}

async function apply() {
  const chosen = model.chosen();
  if (!chosen.length) return;
  const parts = chosen.filter((file) => model.tick(file) === 1).length;
  const left = model.files.length - chosen.length;
  const text = [
    parts ? `${counted(parts, "file")} in part.` : "",
    left ? `${counted(left, "file")} will go on waiting in the copy.` : "",
    "You can undo it.",
  ];
  const content = [make("p", {}, "To ", visible(model.list.directory), ". ", text.filter(Boolean).join(" "))];
  // Commits contain all of their files.
  const isAll = model.files.every((file) => file.ignored || file.state === "stays" || model.tick(file) === 2);
  const box = make("input", { type: "checkbox" });
  if (isAll && model.list.commits.length) {
    content.push(make("label", { className: "check" }, box, `Take ${counted(model.list.commits.length, "commit")} onto the current branch as well`));
  }
  if (!(await ask(`Apply ${counted(chosen.length, "file")}?`, content, "Apply"))) return;
  await attempt(async () => {
    const { applied } = await model.apply(box.checked);
    await reload();
    say(`${counted(applied, "file")} applied.`, true);
  });
}

async function takeBack() {
  await attempt(async () => {
    const { restored } = await request("/undo", {});
    await reload();
    say(`${counted(restored, "file")} restored.`);
  });
}

async function discard() {
  const waiting = model.files.length ? `${counted(model.files.length, "change")} that you did not apply, and everything else in the copy, will be gone.` : "Nothing waits in it.";
  const content = [make("p", {}, waiting, " This cannot be undone.")];
  if (!(await ask(["Discard ", visible(model.list.id), "?"], content, "Discard", true))) return;
  await attempt(async () => {
    await request("/discard", {});
    document.body.replaceChildren(make("div", { className: "overview" }, make("h2", {}, "The copy is removed."), make("p", {}, "You can close this page.")));
  });
}

const markers = () => {
  if (!model.files.some((file) => model.isTextConflict(file))) return;
  model.setMarkers(!model.takesMarkers);
  say(model.takesMarkers ? "Texts that conflict will be written with conflict markers." : "Texts that conflict will not be applied.");
  show(current, hunkAt).then(refresh);
};

// Each key with its name in the footer, if it is shown there, and in the help.
const KEYS = {
  j: ["next hunk", () => nextHunk(1), true],
  k: ["previous hunk", () => nextHunk(-1), true],
  n: ["next file", () => nextFile(1), true],
  p: ["previous file", () => nextFile(-1), true],
  x: ["tick the hunk", () => current && (model.setHunk(current, hunkAt, !current.ticks[hunkAt]), refresh()), true],
  f: ["tick the file", () => current && setTicks([current], model.tick(current) !== 2), true],
  s: ["side by side", () => ((isSplit = !isSplit), current && show(current, hunkAt)), true],
  a: ["apply", apply, true],
  u: ["undo the last apply", () => model.list.can_undo && takeBack()],
  D: ["discard the copy", discard],
  i: ["show or hide ignored files", toggleIgnored],
  m: ["write conflict markers", markers],
  r: ["compare anew", () => attempt(reload)],
  o: ["overview", () => show(null)],
  "/": ["filter files", () => byId("filter").focus(), true],
  "?": ["all keys", help, true],
};

function help() {
  const rows = Object.entries(KEYS).flatMap(([key, [name]]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, name)]);
  const inTree = [make("dt", {}, make("kbd", {}, "↑ ↓ ← →"), " ", make("kbd", {}, "space")), make("dd", {}, "in the tree: move, fold, tick")];
  ask("Keys", [make("dl", {}, rows, inTree)]);
}

byId("keys").append(...Object.entries(KEYS).filter(([, [, , isShown]]) => isShown).map(([key, [name]]) => make("span", {}, make("kbd", {}, key), ` ${name}`)));
byId("apply").addEventListener("click", apply);
byId("undo").addEventListener("click", takeBack);
byId("discard").addEventListener("click", discard);
byId("filter").addEventListener("input", (event) => {
  tree.filter = event.target.value;
  tree.element.scrollTop = 0;
  tree.build();
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("dialog").open) return;
  if (event.target === byId("filter")) {
    if (event.key === "Escape" || event.key === "Enter") {
      if (event.key === "Enter") nextFile(1);
      event.target.blur();
    }
    return;
  }
  if (document.activeElement === tree.element && tree.key(event)) return;
  const action = KEYS[event.key];
  if (action && model.list) {
    event.preventDefault();
    action[1]();
  }
});

refresh();
attempt(reload);
