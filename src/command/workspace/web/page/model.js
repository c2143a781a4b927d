// What waits in the copy, as the server listed it, and what of it is ticked.

const session = document.querySelector('meta[name="session"]').content;
// With this token the page can be loaded again, once.
history.replaceState(null, "", `/?token=${document.querySelector('meta[name="next"]').content}`);

/** Sends a request. Throws an error with the server's message. */
async function request(path, body) {
  let answer;
  try {
    answer = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers: { Authorization: `Bearer ${session}` },
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store", credentials: "omit", redirect: "error",
    });
  } catch {
    throw Object.assign(new Error("`sandpen diff --web` has ended"), { causes: [] });
  }
  if (answer.status === 403) throw Object.assign(new Error("this page is no longer accepted; run `sandpen diff --web` again"), { causes: [] });
  const value = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(value.message), { causes: value.causes });
  return value;
}

const model = {
  list: null,
  /** Files in the order of the tree. */
  files: [],
  showsIgnored: false,
  takesMarkers: false,

  async load() {
    const before = new Map(this.files.map((file) => [file.path, file]));
    this.list = await request(this.showsIgnored ? "/review?ignored" : "/review");
    // A new directory is taken with the files in it.
    const above = new Set(this.list.files.map((file) => file.path.slice(0, file.path.lastIndexOf("/"))));
    this.files = this.list.files.filter((file) => file.old || file.new?.kind !== "directory" || !above.has(file.path));
    for (const file of this.files) {
      const known = before.get(file.path);
      const isSame = known && known.hunks === file.hunks && known.added === file.added && known.removed === file.removed && known.state === file.state;
      /** One tick for each hunk; a file without hunks has one. */
      file.ticks = isSame ? known.ticks : Array(Math.max(1, file.hunks)).fill(this.canTake(file) && !file.ignored);
      file.loaded = null;
    }
  },

  isTextConflict: (file) => file.state === "conflict" && file.content === "text" && file.new?.kind === "file",

  /** Tells whether a file can be applied at all. */
  canTake(file) {
    return file.state === "clean" || file.state === "merges" || (this.takesMarkers && this.isTextConflict(file));
  },

  /** Tells whether single hunks of a file can be applied. */
  hasParts: (file) => file.hunks > 1 && file.state !== "conflict" && file.old?.kind === "file" && file.new?.kind === "file",

  /** 0: nothing is ticked, 1: a part, 2: everything. */
  tick(file) {
    const count = file.ticks.filter(Boolean).length;
    return count === 0 ? 0 : count === file.ticks.length ? 2 : 1;
  },

  setFile(file, isTicked) {
    if (this.canTake(file)) file.ticks.fill(isTicked);
  },

  setHunk(file, number, isTicked) {
    if (!this.hasParts(file)) this.setFile(file, isTicked);
    else if (this.canTake(file)) file.ticks[number] = isTicked;
  },

  setMarkers(isOn) {
    this.takesMarkers = isOn;
    this.files.filter((file) => this.isTextConflict(file)).forEach((file) => file.ticks.fill(isOn));
  },

  chosen() {
    return this.files.filter((file) => this.tick(file) > 0);
  },

  async hunks(file) {
    file.loaded ??= file.hunks ? (await request(`/hunks?${this.list.review}-${file.number}`)).hunks : [];
    return file.loaded;
  },

  apply(takesCommits) {
    const files = this.chosen().map((file) => {
      const numbers = file.ticks.flatMap((isTicked, number) => (isTicked ? [number] : []));
      return { number: file.number, hunks: this.tick(file) === 2 ? null : numbers };
    });
    return request("/apply", { review: this.list.review, markers: this.takesMarkers, commits: takesCommits, files });
  },
};

