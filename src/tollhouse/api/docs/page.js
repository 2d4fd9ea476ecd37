// Shows /openapi.json as operations with search, examples and a form to try each.
// Text only ever enters the page as text: nothing of the description is read as HTML.
"use strict";

const METHODS = ["get", "post", "put", "patch", "delete"];
const SAMPLE_ORIGIN = "http" + "://127.0.0.1:8080";
const SAMPLE_KEY = "sk-th-v1-...";
const page = document.getElementById("page");
const sidebar = document.getElementById("operations");
const search = document.getElementById("search");
const keyField = document.getElementById("key");
let description;

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// What the schemas say

function resolve(schema) {
  if (!schema || !schema.$ref) return schema || {};
  return schema.$ref.slice(2).split("/").reduce((at, key) => at[key], description);
}

function kind(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(kind).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if ("const" in schema) return JSON.stringify(schema.const);
  const types = Array.isArray(schema.type) ? schema.type : [schema.type || "any"];
  const text = types.join(" or ");
  if (types.includes("array")) return `${text} of ${kind(schema.items || {})}`;
  return schema.format ? `${text} (${schema.format})` : text;
}

function rules(schema) {
  const shown = [
    ["minLength", "at least", "characters"], ["maxLength", "at most", "characters"],
    ["minimum", "from", ""], ["exclusiveMinimum", "more than", ""], ["maximum", "up to", ""],
    ["minItems", "at least", "items"], ["maxItems", "at most", "items"],
    ["pattern", "like", ""], ["default", "default", ""],
  ];
  const variants = [schema, ...(schema.anyOf || [])];
  const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  return shown.flatMap(([key, before, after]) => variants
    .filter((variant) => key in variant)
    .map((variant) => `${before} ${text(variant[key])} ${after}`.trim())).join(", ");
}

function nested(schema) {
  if (schema.$ref) return schema;
  if (schema.items) return nested(schema.items);
  return (schema.anyOf || []).map(nested).find((found) => found) || (schema.properties ? schema : null);
}

// A value that fits a schema: its example, or the simplest one with all required fields.
function example(reference, seen = new Set()) {
  const schema = resolve(reference);
  if ("example" in schema) return schema.example;
  if (schema.examples && schema.examples.length) return schema.examples[0];
  if ("const" in schema) return schema.const;
  if ("default" in schema && schema.default !== null) return schema.default;
  if (schema.enum) return schema.enum[0];
  if (schema.anyOf) return example(schema.anyOf[0], seen);
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (type === "array") return seen.has(schema) ? [] : [example(schema.items || {}, new Set([...seen, schema]))];
  if (schema.properties) {
    const wanted = schema.required || [];
    const inner = new Set([...seen, schema]);
    return Object.fromEntries(wanted.filter((name) => schema.properties[name] && !seen.has(schema))
      .map((name) => [name, example(schema.properties[name], inner)]));
  }
  return { string: "...", integer: 1, number: 1, boolean: true, object: {} }[type] ?? null;
}

function row(name, schema, required, about) {
  const notes = [about || schema.description, rules(schema)].filter(Boolean).join(" - ");
  return element("tr", {},
    element("td", {}, element("code", {}, name), required ? " *" : ""),
    element("td", { class: "kind" }, kind(schema)),
    element("td", {}, notes));
}

function fields(reference, seen) {
  const schema = resolve(reference);
  const box = element("div");
  if (schema.description) box.append(element("p", { class: "about" }, schema.description));
  if (!schema.properties) {
    box.append(element("p", { class: "kind" }, kind(schema)));
    return box;
  }
  const required = new Set(schema.required || []);
  const entries = Object.entries(schema.properties);
  box.append(element("table", {}, ...entries.map(([name, each]) => row(name, each, required.has(name)))));
  for (const [name, each] of entries) {
    const inner = nested(each);
    const key = inner && (inner.$ref || name);
    if (!inner || seen.has(key)) continue;
    box.append(element("details", {}, element("summary", {}, element("code", {}, name)),
      fields(inner, new Set([...seen, key]))));
  }
  return box;
}

function bodies(content) {
  return Object.entries(content || {}).map(([type, media]) => element("div", {},
    element("p", { class: "kind" }, type), fields(media.schema || {}, new Set())));
}

function bodyExample(found) {
  const media = found.requestBody && found.requestBody.content["application/json"];
  if (!media) return null;
  return JSON.stringify(media.example ?? example(media.schema || {}), null, 2);
}

// Examples

function withOurs(text) {
  return text.replaceAll(SAMPLE_ORIGIN, location.origin);
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function curl(method, path, found) {
  const lines = [`curl ${location.origin}/v1${path}`];
  if (method !== "get") lines[0] += ` -X ${method.toUpperCase()}`;
  if (!found.security || found.security.length) lines.push(`-H ${quoted(`Authorization: Bearer ${SAMPLE_KEY}`)}`);
  const body = bodyExample(found);
  if (body) lines.push("-H 'Content-Type: application/json'", `-d ${quoted(body)}`);
  return lines.join(" \\\n  ");
}

function samples(method, path, found) {
  const all = [{ label: "curl", source: curl(method, path, found) }, ...(found["x-codeSamples"] || [])];
  const shown = element("pre");
  const buttons = all.map((sample) => {
    const button = element("button", { type: "button" }, sample.label);
    button.addEventListener("click", () => {
      shown.textContent = withOurs(sample.source);
      for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
    });
    return button;
  });
  const copy = element("button", { type: "button" }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(shown.textContent);
    } catch {
      getSelection().selectAllChildren(shown);
    }
  });
  buttons[0].click();
  return element("div", {}, element("div", { class: "fields" }, ...buttons, copy), shown);
}

// Trying an operation

async function show(reply, output) {
  output.textContent = `${reply.status} ${reply.statusText}\n\n`;
  const reader = reply.body ? reply.body.pipeThrough(new TextDecoderStream()).getReader() : null;
  let text = "";
  for (let piece = reader && await reader.read(); piece && !piece.done; piece = await reader.read()) {
    text += piece.value;
    output.append(piece.value);
  }
  if ((reply.headers.get("content-type") || "").startsWith("application/json") && text) {
    output.textContent = `${reply.status} ${reply.statusText}\n\n${JSON.stringify(JSON.parse(text), null, 2)}`;
  }
}

function trial(method, path, found) {
  const parameters = (found.parameters || []).filter((each) => each.in !== "cookie")
    .map((each) => [each, element("input", { size: 20 })]);
  const bodyText = bodyExample(found);
  const body = bodyText === null ? null : element("textarea", { spellcheck: "false", "aria-label": "Body" });
  if (body) body.value = bodyText;
  const output = element("pre", { hidden: "" });
  const send = element("button", { type: "button" }, "Send");
  send.addEventListener("click", async () => {
    const url = new URL(`/v1${path}`, location.origin);
    const headers = {};
    if (keyField.value) headers.Authorization = `Bearer ${keyField.value}`;
    for (const [each, input] of parameters) {
      if (each.in === "path") url.pathname = url.pathname.replace(encodeURI(`{${each.name}}`), encodeURIComponent(input.value));
      else if (input.value && each.in === "query") url.searchParams.append(each.name, input.value);
      else if (input.value) headers[each.name] = input.value;
    }
    if (body) headers["Content-Type"] = "application/json";
    output.hidden = false;
    output.textContent = "...";
    send.disabled = true;
    try {
      await show(await fetch(url, { method: method.toUpperCase(), headers, body: body ? body.value : undefined }), output);
    } catch (error) {
      output.append(`\n${error.message}`);
    } finally {
      send.disabled = false;
    }
  });
  const box = element("details", {}, element("summary", {}, "Try it"),
    element("div", { class: "fields" }, ...parameters.map(([each, input]) =>
      element("label", {}, `${each.name}${each.required ? " *" : ""} `, input))), body, send, output);
  if (method !== "get") {
    box.append(element("p", { class: "about" }, "Send does it for real: it changes this installation, or costs credits."));
  }
  return box;
}

// The page

function operation(method, path, found) {
  const box = element("details", { id: found.operationId },
    element("summary", {},
      element("span", { class: "method" }, method.toUpperCase()),
      element("span", { class: "path" }, path), "  ",
      element("span", { class: "about" }, found.summary || "")),
    ...(found.description || "").split("\n\n").map((text) => element("p", {}, text)));
  box.addEventListener("toggle", () => { if (box.open && !box.dataset.filled) fill(box, method, path, found); });
  return box;
}

function fill(box, method, path, found) {
  box.dataset.filled = "yes";
  if (found.security && !found.security.length) box.append(element("p", { class: "about" }, "No key is needed."));
  box.append(samples(method, path, found), trial(method, path, found));
  if (found.parameters) {
    box.append(element("h4", {}, "Parameters"), element("table", {}, ...found.parameters.map((each) =>
      row(`${each.name} (${each.in})`, each.schema || {}, each.required, each.description))));
  }
  if (found.requestBody) box.append(element("h4", {}, "Body"), ...bodies(found.requestBody.content));
  const statuses = Object.entries(found.responses);
  const refused = statuses.filter(([status]) => Number(status) >= 400);
  for (const [status, reply] of statuses.filter(([code]) => Number(code) < 400)) {
    box.append(element("h4", {}, `${status} ${reply.description}`), ...bodies(reply.content));
  }
  if (refused.length) {
    box.append(element("h4", {}, "Refusals"), element("p", {},
      refused.map(([status, reply]) => `${status} ${reply.description}`).join(", "), ". ",
      element("a", { href: "#error" }, "All of them look alike.")));
  }
}

// What a search looks through: path, texts, and the names of fields of bodies and replies.
function searchable(method, path, found) {
  const names = new Set();
  const visit = (reference, seen) => {
    const schema = resolve(reference);
    if (seen.has(schema)) return;
    seen.add(schema);
    for (const [name, each] of Object.entries(schema.properties || {})) { names.add(name); visit(each, seen); }
    for (const each of [schema.items, ...(schema.anyOf || [])].filter(Boolean)) visit(each, seen);
  };
  const media = [found.requestBody, ...Object.values(found.responses)].filter(Boolean)
    .flatMap((each) => Object.values(each.content || {}));
  for (const each of media) visit(each.schema || {}, new Set());
  const parameters = (found.parameters || []).map((each) => each.name);
  const statuses = Object.keys(found.responses);
  return [method, path, found.summary, found.description, ...parameters, ...statuses, ...names].join(" ").toLowerCase();
}

function openWanted() {
  const wanted = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!wanted) return;
  if (wanted.tagName === "DETAILS") wanted.open = true;
  wanted.scrollIntoView();
}

function filter(entries, sections) {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const entry of entries) {
    entry.box.hidden = entry.link.hidden = !words.every((word) => entry.text.includes(word));
  }
  for (const section of sections) {
    const none = section.entries.every((entry) => entry.box.hidden);
    for (const each of section.parts) each.hidden = none;
  }
}

function introduction() {
  return [
    element("p", {}, description.info.description || ""),
    element("p", {}, "Server: ", element("code", {}, location.origin + description.servers[0].url),
      ". Key: ", element("code", {}, `Authorization: Bearer ${SAMPLE_KEY}`),
      ". A field with * is required. The description itself, for generators of clients: ",
      element("a", { href: "/openapi.json" }, "/openapi.json"), "."),
  ];
}

function render() {
  const found = Object.entries(description.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => [method, path, item[method]]));
  const entries = [];
  const sections = [];
  page.replaceChildren(...introduction());
  for (const tag of description.tags) {
    const own = found.filter(([, , each]) => (each.tags || []).includes(tag.name)).map((each) => ({
      box: operation(...each),
      link: element("a", { href: `#${each[2].operationId}`, title: `${each[0].toUpperCase()} ${each[1]}` }, each[2].summary),
      text: `${tag.name.toLowerCase()} ${searchable(...each)}`,
    }));
    if (!own.length) continue;
    const parts = [element("h2", {}, tag.name), element("p", { class: "about" }, tag.description || ""), element("h2", {}, tag.name)];
    page.append(parts[0], parts[1], ...own.map((each) => each.box));
    sidebar.append(parts[2], ...own.map((each) => each.link));
    entries.push(...own);
    sections.push({ entries: own, parts });
  }
  page.append(element("h2", { id: "error" }, "Errors"), fields({ $ref: "#/components/schemas/Error" }, new Set()));
  search.addEventListener("input", () => filter(entries, sections));
  addEventListener("hashchange", openWanted);
  openWanted();
}

async function read(path) {
  const reply = await fetch(path);
  if (!reply.ok) throw new Error(`${path} answered ${reply.status}`);
  return reply.json();
}

Promise.all([read("/openapi.json"), read("/")])
  .then(([found, welcome]) => {
    description = found;
    document.getElementById("title").textContent = `Tollhouse ${welcome.version} API`;
    render();
  })
  .catch((error) => page.replaceChildren(element("p", {}, `The description could not be read: ${error.message}`)));
