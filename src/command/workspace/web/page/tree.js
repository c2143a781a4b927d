// The tree of changed files. Only the rows that are visible are in the document, so that its size does not
// matter.

const ROW = 28;
const LETTERS = { added: "A", deleted: "D", renamed: "R", modified: "M", mode: "X", type: "T" };

const tree = {
  element: document.getElementById("tree"),
  rows: [],
  folded: new Set(),
  filter: "",
  /** The path of the row with the cursor; the empty one is the overview. */
  cursor: "",

  /** Builds the rows, and puts the files of the model into the same order. */
  build() {
    const root = { directories: new Map(), files: [] };
    for (const file of model.files) {
      const parts = file.path.split("/");
      const name = parts.pop();
      let at = root;
      for (const part of parts) {
        if (!at.directories.has(part)) at.directories.set(part, { directories: new Map(), files: [] });
        at = at.directories.get(part);
      }
      at.files.push({ name, file });
    }
    const wanted = this.filter.toLowerCase();
    const ordered = [];
    this.rows = [{ kind: "overview", path: "", depth: 0 }];
    const compare = (one, other) => (one < other ? -1 : one > other ? 1 : 0);
    const walk = (node, above, depth, isHidden) => {
      const files = [];
      for (let [name, below] of [...node.directories].sort(([one], [other]) => compare(one, other))) {
        // Directories with nothing but one directory share a row.
        while (below.files.length === 0 && below.directories.size === 1) {
          const [[next, inner]] = below.directories;
          name += `/${next}`;
          below = inner;
        }
        const path = `${above}${name}/`;
        const row = { kind: "directory", path, name, depth, files: [] };
        const at = this.rows.length;
        if (!isHidden) this.rows.push(row);
        const isFolded = this.folded.has(path) && !wanted;
        row.files = walk(below, path, depth + 1, isHidden || isFolded);
        if (row.files.length === 0) this.rows.splice(at, 1);
        files.push(...row.files);
      }
      for (const { name, file } of node.files.sort((one, other) => compare(one.name, other.name))) {
        ordered.push(file);
        if (wanted && !file.path.toLowerCase().includes(wanted)) continue;
        files.push(file);
        if (!isHidden) this.rows.push({ kind: "file", path: file.path, name, depth, file, files: [file] });
      }
      return files;
    };
    const shown = walk(root, "", 0, false);
    model.files = ordered;
    this.shown = shown;
    this.render();
  },

  render() {
    const { element, rows } = this;
    const first = Math.max(0, Math.floor(element.scrollTop / ROW) - 8);
    const last = Math.min(rows.length, first + Math.ceil(element.clientHeight / ROW) + 16);
    const container = document.getElementById("rows");
    container.style.height = `${rows.length * ROW}px`;
    container.replaceChildren(...rows.slice(first, last).map((row, index) => this.row(row, first + index)));
    element.setAttribute("aria-activedescendant", `row-${rows.findIndex((row) => row.path === this.cursor)}`);
  },

  row(row, number) {
    const element = make("div", {
      className: "row", id: `row-${number}`, role: "treeitem", "aria-level": row.depth + 1, "aria-setsize": this.rows.length,
      "aria-posinset": number + 1, "aria-selected": String(row.path === this.cursor), onclick: () => this.choose(row),
    });
    element.style.top = `${number * ROW}px`;
    element.style.paddingLeft = `${10 + row.depth * 15}px`;
    if (row.kind === "overview") {
      element.append(make("span", { className: "fold" }), make("span", { className: "name" }, "Overview"));
      return element;
    }
    const box = checkbox(row.files, row.path);
    if (row.kind === "directory") {
      const isFolded = this.folded.has(row.path) && !this.filter;
      element.classList.add("dir");
      element.setAttribute("aria-expanded", String(!isFolded));
      element.append(make("span", { className: "fold" }, isFolded ? "▸" : "▾"), box, make("span", { className: "name" }, visible(row.name)));
      return element;
    }
    const { file } = row;
    element.classList.add(file.status, ...(file.state === "clean" ? [] : [file.state]), ...(file.ignored ? ["ignored"] : []));
    element.title = file.reason ?? "";
    const letter = { conflict: "!", stays: "–" }[file.state] ?? LETTERS[file.status];
    element.append(make("span", { className: "fold" }), box, make("span", { className: "name" }, visible(row.name)), make("span", { className: "status" }, letter));
    return element;
  },

  choose(row) {
    this.cursor = row.path;
    if (row.kind === "directory") {
      if (!this.folded.delete(row.path)) this.folded.add(row.path);
      this.build();
    } else {
      show(row.file ?? null);
    }
  },

  /** Moves the cursor, and shows the file that it is on. */
  move(by) {
    const at = this.rows.findIndex((row) => row.path === this.cursor);
    const row = this.rows[Math.min(Math.max(at + by, 0), this.rows.length - 1)];
    this.cursor = row.path;
    if (row.kind !== "directory") show(row.file ?? null);
    this.reveal();
  },

  /** Unfolds what is above the cursor and scrolls to it. */
  reveal() {
    let at = this.rows.findIndex((row) => row.path === this.cursor);
    if (at < 0) {
      [...this.folded].filter((path) => this.cursor.startsWith(path)).forEach((path) => this.folded.delete(path));
      this.build();
      at = this.rows.findIndex((row) => row.path === this.cursor);
    }
    const { element } = this;
    if (at * ROW < element.scrollTop) element.scrollTop = at * ROW;
    else if ((at + 1) * ROW > element.scrollTop + element.clientHeight) element.scrollTop = (at + 1) * ROW - element.clientHeight;
    this.render();
  },

  key(event) {
    const row = this.rows.find((one) => one.path === this.cursor);
    const fold = (isFolded) => {
      if (row?.kind !== "directory") return;
      if (isFolded) this.folded.add(row.path);
      else this.folded.delete(row.path);
      this.build();
    };
    const actions = {
      ArrowDown: () => this.move(1),
      ArrowUp: () => this.move(-1),
      Home: () => this.move(-Infinity),
      End: () => this.move(Infinity),
      ArrowLeft: () => fold(true),
      ArrowRight: () => fold(false),
      " ": () => row?.files && setTicks(row.files, !row.files.every((file) => model.tick(file) === 2 || !model.canTake(file))),
      Enter: () => row && this.choose(row),
    };
    const action = actions[event.key];
    if (action) {
      event.preventDefault();
      action();
    }
    return Boolean(action);
  },
};

/** Makes the tick of one file, or of all in a directory. */
function checkbox(files, label) {
  const takeable = files.filter((file) => model.canTake(file));
  const ticks = takeable.map((file) => model.tick(file));
  const isAll = ticks.length > 0 && ticks.every((tick) => tick === 2);
  return make("input", {
    type: "checkbox", tabIndex: -1, "aria-label": `Apply ${label}`, disabled: takeable.length === 0,
    checked: isAll, indeterminate: !isAll && ticks.some((tick) => tick > 0),
    onclick: (event) => event.stopPropagation(),
    onchange: (event) => setTicks(files, event.target.checked),
  });
}

tree.element.addEventListener("scroll", () => tree.render(), { passive: true });
new ResizeObserver(() => tree.render()).observe(tree.element);

