// Author code runs in the same isolate. Two measures keep it from changing
// what the runtime does: this module is evaluated first and keeps the globals
// that the runtime uses, and lockdown() freezes their prototypes before any
// author module runs, so that a method call still means what it says.

import { DurableObject } from "cloudflare:workers";

const scope = globalThis;

export const JSONparse = scope.JSON.parse;
export const JSONstringify = scope.JSON.stringify;
export const {
  Array, Date, Error, Headers, Map, Math, Number, Object, Promise, RangeError, Reflect, Request, Response, Set,
  String, SyntaxError, TextDecoder, TextEncoder, TypeError, URL, Uint8Array, WeakMap,
} = scope;

export const { defineProperty, freeze } = Object;
const { create, getOwnPropertyDescriptor, getPrototypeOf } = Object;
const { apply, ownKeys } = Reflect;

// Own properties of these two objects could be replaced, so their methods are
// kept bound.
const subtle = scope.crypto.subtle;
export const digest = subtle.digest.bind(subtle);
export const importKey = subtle.importKey.bind(subtle);
export const verifySignature = subtle.verify.bind(subtle);
export const platformFetch = scope.fetch.bind(scope);
export const log = {
  debug: scope.console.debug.bind(scope.console),
  info: scope.console.info.bind(scope.console),
  warn: scope.console.warn.bind(scope.console),
  error: scope.console.error.bind(scope.console),
};

/** hasOwn asks for an own key, never for an inherited one. */
export const hasOwn = Object.hasOwn;

/** bare makes an object without a prototype. */
export function bare<T>(): Record<string, T> {
  return create(null);
}

/** deepFreeze freezes JSON data and returns it. */
export function deepFreeze<T>(value: T): T {
  if (typeof value !== "object" || value === null) return value;
  for (const key of ownKeys(value)) deepFreeze((value as Record<PropertyKey, unknown>)[key]);
  return freeze(value);
}

function* generator(): Generator { /* only its prototype is used */ }
async function* asyncGenerator(): AsyncGenerator { /* only its prototype is used */ }
const asyncFunction = async (): Promise<void> => {};

/** roots are the objects whose meaning the runtime and its validator rely on. */
function roots(): object[] {
  const names = [
    "Object", "Function", "Array", "Promise", "Map", "Set", "WeakMap", "WeakSet", "String", "Number", "Boolean",
    "BigInt", "Symbol", "RegExp", "Date", "Math", "JSON", "Reflect", "Proxy", "Error", "AggregateError", "EvalError",
    "RangeError", "ReferenceError", "SyntaxError", "TypeError", "URIError", "ArrayBuffer", "Uint8Array", "DataView",
    "Iterator", "TextEncoder", "TextDecoder", "Request", "Response", "Headers", "URL", "Body", "Blob", "ReadableStream",
    "ReadableStreamDefaultReader", "ReadableStreamBYOBReader", "Crypto", "SubtleCrypto", "CryptoKey",
  ];
  const found: object[] = [DurableObject, generator, asyncGenerator, asyncFunction];
  for (const name of names) {
    const value = (scope as unknown as Record<string, unknown>)[name];
    if (typeof value === "function" || (typeof value === "object" && value !== null)) found.push(value);
  }
  for (const iterator of [[][Symbol.iterator](), new Map()[Symbol.iterator](), new Set()[Symbol.iterator](),
    ""[Symbol.iterator](), "".matchAll(/x/g), generator(), asyncGenerator()]) {
    found.push(getPrototypeOf(iterator));
  }
  return found;
}

/**
 * lockdown freezes everything that is reachable from the roots, and takes
 * away what would reach the bindings past the builder's check of imports:
 * code made from text, which workerd allows while modules are evaluated, and
 * process.getBuiltinModule, which newer compatibility dates bring along.
 * What tells of the runtime's own matches goes, too.
 */
export function lockdown(): void {
  forbidDynamicCode();
  hideMatches();
  defineProperty(scope, "process", { value: undefined, writable: false, configurable: false });
  for (const name of ["Error", "EvalError", "RangeError", "ReferenceError", "SyntaxError", "TypeError", "URIError"]) {
    const constructor = (scope as unknown as Record<string, { prototype: object }>)[name];
    if (constructor) allowOverride(constructor.prototype, ["constructor", "name", "message", "toString"]);
  }
  allowOverride(Object.prototype, ownKeys(Object.prototype));
  // Libraries that are one function with others on it, as lodash is, have a
  // bind of their own. call and apply stay plain: every program is full of them.
  allowOverride(Function.prototype, ["constructor", "toString", "bind"]);
  const seen = new Set<object>([scope]);
  const queue = roots();
  for (let value = queue.pop(); value !== undefined; value = queue.pop()) {
    if (seen.has(value)) continue;
    seen.add(value);
    freeze(value);
    const prototype = getPrototypeOf(value);
    if (prototype !== null) queue.push(prototype);
    for (const key of ownKeys(value)) {
      const property = getOwnPropertyDescriptor(value, key)!;
      for (const part of [property.value, property.get, property.set]) {
        if (typeof part === "function" || (typeof part === "object" && part !== null)) queue.push(part);
      }
    }
  }
}

/**
 * allowOverride keeps `object.toString = …` working although the prototype
 * that it shadows is frozen: in strict code such an assignment would throw.
 */
function allowOverride(prototype: object, keys: PropertyKey[]): void {
  for (const key of keys) {
    const property = getOwnPropertyDescriptor(prototype, key);
    if (!property || !property.configurable || !property.writable) continue;
    const value = property.value;
    defineProperty(prototype, key, {
      get() { return value; },
      set(this: object, next: unknown) {
        if (this === prototype) throw new TypeError("the built-in objects are frozen");
        defineProperty(this, key, { value: next, writable: true, enumerable: true, configurable: true });
      },
      enumerable: property.enumerable ?? false,
      configurable: false,
    });
  }
}

/**
 * hideMatches closes RegExp.$_, RegExp.$1 and their like: they show the text
 * that was matched last by anybody, so also what the runtime compared with a
 * form: digests of keys, addresses, ids of assertions. They throw, because code
 * that relies on them would go on with a wrong text without them.
 */
function hideMatches(): void {
  const owner = scope.RegExp;
  for (const key of ownKeys(owner)) {
    // Symbol.species is the one accessor that is not of this kind.
    if (typeof key !== "string" || !getOwnPropertyDescriptor(owner, key)!.get) continue;
    const get = () => { throw new TypeError(`RegExp["${key}"] is not available in an Edge Worker: use what exec or match returns`); };
    defineProperty(owner, key, { get, set: undefined, enumerable: false, configurable: false });
  }
}

function forbidDynamicCode(): void {
  const refuse = (name: string) => {
    const refusal = function () { throw new scope.EvalError("code cannot be made from text in an Edge Worker"); };
    defineProperty(refusal, "name", { value: name });
    return refusal;
  };
  const kinds = [Function.prototype, getPrototypeOf(asyncFunction), getPrototypeOf(generator), getPrototypeOf(asyncGenerator)];
  for (const prototype of kinds) {
    const constructor = refuse(prototype.constructor.name);
    defineProperty(constructor, "prototype", { value: prototype });
    defineProperty(prototype, "constructor", { value: constructor, writable: true, configurable: true });
  }
  defineProperty(scope, "Function", { value: Function.prototype.constructor, writable: false, configurable: false });
  defineProperty(scope, "eval", { value: refuse("eval"), writable: false, configurable: false });
}

/** call runs a function without reading anything from it. */
export function call(target: Function, receiver: unknown, args: unknown[]): unknown {
  return apply(target, receiver, args);
}

/** getOwn reads an own property, and undefined where there is none. */
export function getOwn(object: object, key: string): unknown {
  return hasOwn(object, key) ? (object as Record<string, unknown>)[key] : undefined;
}
