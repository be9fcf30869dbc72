// The signed assertion that opens a door: a compact JWS with Ed25519.

import { Array, Date, hasOwn, importKey, JSONparse, Map, Math, Number, Object, verifySignature } from "./intrinsics";
import { readAddress } from "./address";
import { type Bytes, fromBase64url, fromUTF8, sameText, sha256, utf8 } from "./encoding";
import { type Constants, ISSUER } from "./constants";
import { Refusal } from "./refusal";

export type Door = "control" | "invoke";

/** Caller is who invokes an operation, as the gateway admitted them. */
export interface CallerClaim {
  kind: "member" | "api_key" | "public" | "system";
  sub: string;
  company_id: string;
  department_id: string;
  roles: string[];
  request_id: string;
  /** SHA-256 in hex of the API key that was presented; not yet compared with any. */
  api_key_sha256?: string | null;
  /** The address from which the call reached the gateway. */
  client_address?: string | null;
}

export interface Claims {
  sub: string;
  jti: string;
  exp: number;
  bsh: string;
  op: string;
  caller?: CallerClaim;
}

const MAX_TOKEN = 16 * 1024;
const MAX_LIFETIME = 60; // seconds
const CLOCK_SKEW = 5; // seconds
const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const sha256Hex = /^[0-9a-f]{64}$/;
const kinds = ["member", "api_key", "public", "system"];

function invalid(why: string): Refusal {
  return Refusal.door(401, "assertion_invalid", `The assertion is not valid: ${why}`);
}

export function now(): number {
  return Math.floor(Date.now() / 1000);
}

/** Verifier checks assertions against the keys of one bundle. */
export class Verifier {
  readonly #constants: Constants;
  readonly #keys = new Map<string, CryptoKey>();

  constructor(constants: Constants) {
    this.#constants = constants;
  }

  /**
   * verify checks everything but the body's hash. `op` is the operation that
   * the request names; null accepts any. `used` tells of an id that came before:
   * its second copy is a replay whatever release it meets by then, for "made for
   * another release" would say that nothing came of the first.
   */
  async verify(authorization: string | null, door: Door, op: string | null, used: (jti: string) => boolean = never): Promise<Claims> {
    const claims = await this.#open(authorization);
    if (claims["iss"] !== ISSUER) throw invalid("issuer");
    checkTimes(claims["iat"], claims["exp"], claims["nbf"]);
    if (claims["door"] !== door) throw invalid("door");
    if (typeof claims["op"] !== "string" || (op !== null && claims["op"] !== op)) throw invalid("operation");
    if (typeof claims["sub"] !== "string" || claims["sub"] === "") throw invalid("subject");
    if (typeof claims["jti"] !== "string" || !uuid.test(claims["jti"])) throw invalid("id");
    if (typeof claims["bsh"] !== "string" || !sha256Hex.test(claims["bsh"])) throw invalid("body hash");
    if (typeof claims["aud"] !== "string" || typeof claims["gen"] !== "string") throw invalid("claims");
    if (door === "invoke" && !isCaller(claims["caller"])) throw invalid("caller");
    if (claims["aud"] !== this.#constants.scriptName) {
      throw Refusal.door(403, "assertion_audience", "The assertion is for another Worker");
    }
    if (used(claims["jti"])) throw replayed();
    if (claims["gen"] !== this.#constants.releaseGeneration) throw generationMismatch();
    return claims as unknown as Claims;
  }

  /** #open verifies the signature and returns the claims, own keys only. */
  async #open(authorization: string | null): Promise<Record<string, unknown>> {
    if (authorization === null || !authorization.startsWith("Bearer ")) throw invalid("no bearer token");
    const token = authorization.slice("Bearer ".length);
    if (token.length > MAX_TOKEN) throw invalid("too long");
    const parts = token.split(".");
    if (parts.length !== 3) throw invalid("form");
    const header = readObject(fromBase64url(parts[0]!), ["alg", "typ", "kid"]);
    if (header["alg"] !== "EdDSA" || header["typ"] !== "JWT") throw invalid("algorithm");
    const key = await this.#key(header["kid"]);
    const signature = fromBase64url(parts[2]!);
    if (signature === null || signature.length !== 64) throw invalid("signature");
    const good = await verifySignature({ name: "Ed25519" }, key, signature, utf8(parts[0]! + "." + parts[1]!));
    if (good !== true) throw invalid("signature");
    return readObject(fromBase64url(parts[1]!), null);
  }

  async #key(kid: unknown): Promise<CryptoKey> {
    if (typeof kid !== "string") throw invalid("key");
    const known = this.#keys.get(kid);
    if (known) return known;
    for (const candidate of this.#constants.publicKeys) {
      if (candidate.kid !== kid) continue;
      const raw = fromBase64url(candidate.key)!;
      const key = await importKey("raw", raw, { name: "Ed25519" }, false, ["verify"]);
      this.#keys.set(kid, key);
      return key;
    }
    throw invalid("key");
  }
}

const never = (): boolean => false;

export function generationMismatch(): Refusal {
  return Refusal.door(409, "release_generation_mismatch", "The Worker runs another release");
}

/** checkBody compares the body with the hash that was signed. */
export async function checkBody(claims: Claims, body: Bytes): Promise<void> {
  if (!sameText(claims.bsh, await sha256(body))) throw invalid("body hash");
}

export function replayed(): Refusal {
  return Refusal.door(409, "assertion_replayed", "The assertion was used before");
}

/** checkTimes checks the life of an assertion. Ours have no `nbf`; one that is there counts (RFC 7519, 4.1.5). */
function checkTimes(iat: unknown, exp: unknown, nbf: unknown): void {
  if (!Number.isSafeInteger(iat) || !Number.isSafeInteger(exp)) throw invalid("times");
  if (nbf !== undefined && !(Number.isSafeInteger(nbf) && (nbf as number) <= now() + CLOCK_SKEW)) throw invalid("not valid yet");
  const issued = iat as number;
  const expires = exp as number;
  if (expires <= issued || expires - issued > MAX_LIFETIME) throw invalid("lifetime");
  if (now() >= expires + CLOCK_SKEW) throw invalid("expired");
  if (issued > now() + CLOCK_SKEW) throw invalid("issued in the future");
}

/** readObject reads a JSON object; with `keys`, one of exactly those keys. */
function readObject(bytes: Bytes | null, keys: string[] | null): Record<string, unknown> {
  if (bytes === null) throw invalid("encoding");
  let value: unknown;
  try {
    value = JSONparse(fromUTF8(bytes));
  } catch {
    throw invalid("JSON");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw invalid("JSON");
  const out = Object.assign(Object.create(null), value) as Record<string, unknown>;
  if (keys !== null) {
    if (Object.keys(out).length !== keys.length) throw invalid("header");
    for (const key of keys) if (!hasOwn(out, key)) throw invalid("header");
  }
  return out;
}

function isCaller(value: unknown): value is CallerClaim {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  const caller = value as Record<string, unknown>;
  for (const key of ["kind", "sub", "company_id", "department_id", "request_id"]) {
    if (!hasOwn(caller, key) || typeof caller[key] !== "string") return false;
  }
  if (!kinds.includes(caller["kind"] as string)) return false;
  if (!isAbsent(caller, "api_key_sha256") && !isSHA256(caller["api_key_sha256"])) return false;
  if (!isAbsent(caller, "client_address") && !isAddress(caller["client_address"])) return false;
  if (!hasOwn(caller, "roles") || !Array.isArray(caller["roles"])) return false;
  for (const role of caller["roles"]) if (typeof role !== "string") return false;
  return true;
}

function isAbsent(object: Record<string, unknown>, key: string): boolean {
  return !hasOwn(object, key) || object[key] === null;
}

function isSHA256(value: unknown): boolean {
  return typeof value === "string" && sha256Hex.test(value);
}

function isAddress(value: unknown): boolean {
  return typeof value === "string" && readAddress(value) !== null;
}
