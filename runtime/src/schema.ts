// Operation schemas, interpreted: a Worker may not make code from text.

import { type OutputUnit, Validator } from "@cfworker/json-schema";
import { Array, Number, Object, hasOwn } from "./intrinsics";
import type { Problem } from "./refusal";

const MAX_PROBLEMS = 20;
const MAX_DEPTH = 100;

/** containers are the keywords whose errors only say that something inside is wrong. */
const containers = [
  "properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "items", "prefixItems",
  "unevaluatedItems", "$ref", "allOf", "if", "dependentSchemas", "propertyNames",
];

export class Schema {
  readonly #validator: Validator;

  constructor(schema: object) {
    this.#validator = new Validator(plain(schema) as object, "2020-12", false);
  }

  /** problems returns what is wrong with the value, at most MAX_PROBLEMS; none for a valid one. */
  problems(value: unknown, root: string): Problem[] {
    const result = this.#validator.validate(value);
    if (result.valid) return [];
    const found: Problem[] = [];
    for (const unit of result.errors) {
      if (found.length >= MAX_PROBLEMS) break;
      if (containers.includes(unit.keyword)) continue;
      found.push({ type: "schema_violation", loc: [root, ...locate(value, unit.instanceLocation)], msg: message(unit) });
    }
    if (found.length === 0) found.push({ type: "schema_violation", loc: [root], msg: "The value does not match its schema" });
    return found;
  }
}

function message(unit: OutputUnit): string {
  return unit.keyword === "false" ? "The key is not allowed here" : unit.error;
}

/** locate turns a pointer such as #/lines/0/sku into keys and indexes. */
function locate(value: unknown, pointer: string): (string | number)[] {
  const loc: (string | number)[] = [];
  let at = value;
  const parts = pointer.split("/");
  for (let i = 1; i < parts.length; i++) {
    const key = unescape(parts[i]!);
    loc.push(Array.isArray(at) ? Number(key) : key);
    at = typeof at === "object" && at !== null && hasOwn(at, key) ? (at as Record<string, unknown>)[key] : undefined;
  }
  return loc;
}

function unescape(part: string): string {
  let text = part.replaceAll("~1", "/").replaceAll("~0", "~");
  try {
    text = decodeURIComponent(text);
  } catch {
    // A lone % was not an escape: the text is the key.
  }
  return text;
}

/**
 * plain copies a schema without its annotations. The validator would take an
 * `id` inside an example for the id of a schema.
 */
function plain(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(plain);
  if (typeof schema !== "object" || schema === null) return schema;
  const out: Record<string, unknown> = {};
  for (const key of Object.keys(schema)) {
    if (key === "examples" && Array.isArray((schema as Record<string, unknown>)[key])) continue;
    const inner = (schema as Record<string, unknown>)[key];
    const value = key === "enum" || key === "const" || key === "default" ? inner : plain(inner);
    Object.defineProperty(out, key, { value, writable: true, enumerable: true, configurable: true });
  }
  return out;
}

/**
 * forbiddenKey finds a key named __proto__, with which a careless copy of the
 * input would change an object's prototype, and input that is nested too deep.
 */
export function forbiddenKey(value: unknown, root: string): Problem | null {
  const found = inspect(value, 0);
  if (found === null) return null;
  const loc = [root, ...found.path.reverse()];
  return found.deep
    ? { type: "input_too_deep", loc: loc.slice(0, 10), msg: `The input is nested deeper than ${MAX_DEPTH} levels` }
    : { type: "input_key_forbidden", loc, msg: "The key __proto__ is not allowed" };
}

/** Forbidden is what inspect found; its path is written from the inside out, so that good input costs nothing. */
interface Forbidden {
  deep: boolean;
  path: (string | number)[];
}

function inspect(value: unknown, depth: number): Forbidden | null {
  if (typeof value !== "object" || value === null) return null;
  if (depth > MAX_DEPTH) return { deep: true, path: [] };
  if (hasOwn(value, "__proto__")) return { deep: false, path: ["__proto__"] };
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      const found = inspect(value[i], depth + 1);
      if (found !== null) return inside(found, i);
    }
    return null;
  }
  for (const key of Object.keys(value)) {
    const found = inspect((value as Record<string, unknown>)[key], depth + 1);
    if (found !== null) return inside(found, key);
  }
  return null;
}

function inside(found: Forbidden, key: string | number): Forbidden {
  found.path.push(key);
  return found;
}
