"use strict";
// Text of the sandbox becomes text on the page, never markup.

/** Makes an element with properties and children. Strings become text. */
function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key.startsWith("aria-") || key.startsWith("data-") || key === "role") element.setAttribute(key, value);
    else element[key] = value;
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Characters that are invisible, or that change the order or the meaning of others.
const CONTROLS = /[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** Divides a text so that control characters are shown by their numbers. */
function visible(text) {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(CONTROLS)) {
    if (found.index > at) parts.push(text.slice(at, found.index));
    const code = found[0].charCodeAt(0).toString(16).toUpperCase().padStart(4, "0");
    parts.push(make("span", { className: "control" }, found[0] === "\n" ? "\\n" : `U+${code}`));
    at = found.index + 1;
  }
  if (at < text.length) parts.push(text.slice(at));
  return parts;
}

const counted = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

function sized(bytes) {
  for (const unit of ["bytes", "kB", "MB", "GB"]) {
    if (bytes < 1000 || unit === "GB") return `${unit === "bytes" ? bytes : bytes.toFixed(1)} ${unit}`;
    bytes /= 1000;
  }
}

// Languages differ here only by their comments and words.
const WORDS = new Set(("as async await begin bool break case catch class const continue crate def default defer del do elif else end enum " +
  "export extends extern false False final finally fn for foreach from func function go if impl implements import in include " +
  "instanceof int interface is lambda let local loop match mod module move mut namespace new nil None not null of or and override " +
  "package pass private protected pub public raise ref require return select self Self static string struct super switch " +
  "then this throw trait true True try type typeof undefined union unless unsafe until use using var void when where while with yield").split(" "));
const COMMENTS = {
  "//": ["c", "cc", "cpp", "cs", "css", "dart", "go", "h", "hpp", "java", "js", "jsx", "kt", "m", "mjs", "php", "rs", "scala", "scss", "swift", "ts", "tsx", "zig", "proto"],
  "#": ["bash", "cmake", "conf", "dockerfile", "ex", "gitignore", "makefile", "mk", "nix", "pl", "py", "rb", "sh", "tf", "toml", "yaml", "yml", "zsh", "r"],
  "--": ["hs", "lua", "sql", "elm"],
  ";": ["clj", "el", "ini", "lisp", "scm", "asm"],
};
const PLAIN = new Set(["md", "txt", "rst", "csv", "log", "lock", "diff", "patch", "svg", "html", "xml"]);

/** Returns the comment sign of a file's language; null if its text is not code. */
function language(path) {
  const name = path.slice(path.lastIndexOf("/") + 1).toLowerCase();
  const ending = name.includes(".") ? name.slice(name.lastIndexOf(".") + 1) : name;
  if (PLAIN.has(ending)) return null;
  const found = Object.entries(COMMENTS).find(([, endings]) => endings.includes(ending));
  if (found) return found[0];
  return ending === "json" ? "" : null;
}

// A line that is longer is neither divided into words nor compared by words.
const MAX_CODE = 1000;
const TOKEN = /\s+|[A-Za-z_$][\w$]*|\d[\w.]*|"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`?|[^\s\w]/gu;

/** Divides a line of code into pairs of a class and a text. */
function tokens(text, comment) {
  if (comment === null || text.length > MAX_CODE) return [["", text]];
  const list = [];
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    const rest = text.slice(index);
    const isBlock = comment === "//" && (rest.startsWith("/*") || (rest.startsWith("*") && !text.slice(0, index).trim()));
    if ((comment && rest.startsWith(comment)) || isBlock) {
      list.push(["c", rest]);
      return list;
    }
    const first = token[0];
    const isText = token.length > 1 && "\"'`".includes(first);
    list.push([isText ? "s" : first >= "0" && first <= "9" ? "d" : WORDS.has(token) ? "k" : "", token]);
  }
  return list;
}

/** Finds which words of two lines differ: a list of ranges for each, or null if little is the same. */
function differences(old, now) {
  if (old.length > MAX_CODE || now.length > MAX_CODE) return null;
  const divide = (text) => text.match(/\s+|\w+|[^\w\s]/gu) ?? [];
  const [a, b] = [divide(old), divide(now)];
  if (a.length * b.length > 40000) return null;
  const width = b.length + 1;
  const common = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const ranges = [[], []];
  const at = [0, 0];
  let same = 0;
  const differ = (side, token) => {
    const last = ranges[side].at(-1);
    if (last && last[1] === at[side]) last[1] += token.length;
    else ranges[side].push([at[side], at[side] + token.length]);
    at[side] += token.length;
  };
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      if (a[i].trim()) same += a[i].length;
      at[0] += a[i].length;
      at[1] += b[j].length;
      i++, j++;
    } else if (j === b.length || (i < a.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) differ(0, a[i++]);
    else differ(1, b[j++]);
  }
  return same * 3 < Math.max(old.trim().length, now.trim().length) ? null : ranges;
}

// The rest of a longer line is not shown.
const MAX_LINE = 4000;

/** Fills an element with a line of code. */
function paint(element, text, comment, marks) {
  const shown = text.length > MAX_LINE ? text.slice(0, MAX_LINE) : text;
  let at = 0;
  for (const [kind, token] of tokens(shown, comment)) {
    const end = at + token.length;
    for (let from = at; from < end;) {
      const mark = marks?.find(([, to]) => to > from);
      const isMarked = mark && mark[0] <= from;
      const to = Math.min(end, isMarked ? mark[1] : mark ? mark[0] : end);
      let parts = visible(shown.slice(from, to));
      if (kind) parts = [make("span", { className: kind }, parts)];
      element.append(...(isMarked ? [make("mark", {}, parts)] : parts));
      from = to;
    }
    at = end;
  }
  if (shown !== text) element.append(make("span", { className: "end" }, ` … ${counted(text.length - shown.length, "character")} more`));
}

