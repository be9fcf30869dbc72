// Bytes and texts: strict base64url, hex, UTF-8, canonical JSON, SHA-256.

import { Array, digest, JSONstringify, Math, Object, SyntaxError, TextDecoder, TextEncoder, Uint8Array } from "./intrinsics";

export type Bytes = Uint8Array<ArrayBuffer>;

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export function utf8(text: string): Bytes {
  return encoder.encode(text) as Bytes;
}

/** fromUTF8 throws for bytes that are not UTF-8. */
export function fromUTF8(bytes: Bytes): string {
  return decoder.decode(bytes);
}

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const values = new Uint8Array(128).fill(255);
for (let i = 0; i < 64; i++) values[alphabet.charCodeAt(i)] = i;

/**
 * fromBase64url decodes unpadded base64url. It returns null for any other
 * character and for spare bits that are not zero, so that each value has one
 * spelling.
 */
export function fromBase64url(text: string): Bytes | null {
  if (text.length % 4 === 1) return null;
  const out = new Uint8Array(Math.floor((text.length * 3) / 4));
  let bits = 0;
  let held = 0;
  let at = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    const value = code < 128 ? values[code]! : 255;
    if (value === 255) return null;
    held = ((held << 6) | value) & 0xffff;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out[at++] = (held >> bits) & 0xff;
    }
  }
  return (held & ((1 << bits) - 1)) === 0 ? out : null;
}

const digits = "0123456789abcdef";

export function hex(bytes: Uint8Array): string {
  let text = "";
  for (let i = 0; i < bytes.length; i++) text += digits[bytes[i]! >> 4]! + digits[bytes[i]! & 15]!;
  return text;
}

export async function sha256(bytes: Bytes): Promise<string> {
  return hex(new Uint8Array(await digest("SHA-256", bytes)));
}

/** sameText compares two texts in a time that depends on their lengths only. */
export function sameText(a: string, b: string): boolean {
  if (a.length !== b.length) return false;
  let difference = 0;
  for (let i = 0; i < a.length; i++) difference |= a.charCodeAt(i) ^ b.charCodeAt(i);
  return difference === 0;
}

const loneSurrogate = /\p{Cs}/u;

/** canonicalText writes a text; the RFC has no form for half of a surrogate pair. */
function canonicalText(text: string): string {
  if (loneSurrogate.test(text)) throw new SyntaxError("a text is not Unicode");
  return JSONstringify(text);
}

/** canonicalJSON gives JSON data the form of RFC 8785; it throws for text that is not Unicode. */
export function canonicalJSON(value: unknown): string {
  if (typeof value === "string") return canonicalText(value);
  if (typeof value !== "object" || value === null) return JSONstringify(value);
  if (Array.isArray(value)) {
    let text = "[";
    for (let i = 0; i < value.length; i++) text += (i > 0 ? "," : "") + canonicalJSON(value[i]);
    return text + "]";
  }
  // sort() without a comparison orders by UTF-16 code units, as the RFC wants.
  const keys = Object.keys(value).sort();
  let text = "{";
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i]!;
    text += (i > 0 ? "," : "") + canonicalText(key) + ":" + canonicalJSON((value as Record<string, unknown>)[key]);
  }
  return text + "}";
}

/** isCanonical tells whether the text is the canonical form of the value that was read from it. */
export function isCanonical(value: unknown, text: string): boolean {
  try {
    return canonicalJSON(value) === text;
  } catch {
    return false;
  }
}
