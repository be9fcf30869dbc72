// Checking the payload of a command, field by field. What fails is answered
// with 422 and names the field.

import { Array, hasOwn, Number, Object } from "./intrinsics";
import { sameText, sha256, utf8 } from "./encoding";
import { Refusal } from "./refusal";

export type Payload = Record<string, unknown>;
export type Loc = (string | number)[];

/** OPERATION_ID is the form of an operation's id in a manifest. */
export const OPERATION_ID = /^[a-z][a-z0-9_.-]{0,63}$/;

/** UUID is the form of the ids of mutations. */
export const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

const sha256Hex = /^[0-9a-f]{64}$/;
const lastFourForm = /^[A-Za-z0-9_-]{4}$/;
const accountForm = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/;

/** bad refuses a command; `loc` is where in the body. */
export function bad(loc: Loc, msg: string): Refusal {
  return Refusal.problems({ type: "command_invalid", loc: ["body", ...loc], msg });
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** exactKeys refuses an object that has not exactly these keys. */
export function exactKeys(object: Payload, keys: readonly string[], loc: Loc): void {
  for (const key of Object.keys(object)) {
    if (!keys.includes(key)) throw bad([...loc, key], "The key is not known");
  }
  for (const key of keys) {
    if (!hasOwn(object, key)) throw bad([...loc, key], "The key is required");
  }
}

/** revision reads a true integer from 0 to 2^53−1; JSON knows no booleans or texts that pass for one. */
export function revision(payload: Payload, key: string): number {
  const value = payload[key];
  if (!Number.isSafeInteger(value) || (value as number) < 0) {
    throw bad(["payload", key], "An integer from 0 to 9007199254740991 is required");
  }
  return value as number;
}

function matching(value: unknown, form: RegExp, loc: Loc, msg: string): string {
  if (typeof value !== "string" || !form.test(value)) throw bad(loc, msg);
  return value;
}

export function sha256Of(payload: Payload, key: string): string {
  return matching(payload[key], sha256Hex, ["payload", key], "A SHA-256 in lower-case hex is required");
}

export function uuidOf(payload: Payload, key: string): string {
  return matching(payload[key], UUID, ["payload", key], "A UUID is required");
}

export function lastFourOf(payload: Payload, key: string): string {
  return matching(payload[key], lastFourForm, ["payload", key], "Four letters or digits are required");
}

export function named(payload: Payload, key: string, form: RegExp): string {
  return matching(payload[key], form, ["payload", key], "The name must match " + form.source);
}

/** accountId reads the id of a service account. */
export function accountId(value: unknown, loc: Loc): string {
  return matching(value, accountForm, loc, "The id must match " + accountForm.source);
}

export function oneOf<T extends string>(value: unknown, allowed: readonly T[], loc: Loc): T {
  if (typeof value !== "string" || !allowed.includes(value as T)) throw bad(loc, "One of " + allowed.join(", ") + " is required");
  return value as T;
}

/** textOf reads a text of 1 to `max` bytes in UTF-8. */
export function textOf(payload: Payload, key: string, max: number): string {
  const value = payload[key];
  // A code unit is at least one byte: an endless text is not encoded first.
  if (typeof value !== "string" || value === "" || value.length > max || utf8(value).length > max) {
    throw bad(["payload", key], `A text of 1 to ${max} bytes is required`);
  }
  return value;
}

/** checkDigest compares the digest in the payload with that of what it is of. */
export async function checkDigest(payload: Payload, key: string, of: string): Promise<string> {
  const digest = sha256Of(payload, key);
  if (!sameText(digest, await sha256(utf8(of)))) throw bad(["payload", key], "The digest is not that of the value");
  return digest;
}
