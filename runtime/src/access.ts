// Who may invoke an operation (decision D11). All that is decided on is
// signed: the caller, the digest of the key that they presented and the
// address that the gateway saw. Nothing is read from headers.

import type { CallerClaim } from "./assertion";
import { contains, readAddress, readRange } from "./address";
import { sameText } from "./encoding";
import { accessPolicy, type AccessPolicy } from "./policy";
import { Refusal } from "./refusal";
import type { Setting } from "./settings";

/**
 * admit returns the caller as the handler may see them, or refuses. Members
 * whom the gateway signed in, and the system, pass in every mode; a key or
 * nothing at all is enough where the mode says so.
 */
export function admit(sql: SqlStorage, setting: Setting, caller: CallerClaim): CallerClaim {
  // As if it were not in the manifest: the gateway's own answer.
  if (setting.access === "disabled") throw Refusal.access(404, "Operation not found");
  const policy = accessPolicy(sql);
  if (caller.kind === "system") return caller;
  if (!allowed(policy.ipAllowlist, caller)) {
    throw Refusal.access(403, { code: "address_not_allowed", message: "Calls from this address are not allowed" });
  }
  if (caller.kind === "member") return caller;
  const mode = setting.access === "inherit" ? policy.mode : setting.access;
  const presented = caller.api_key_sha256 ?? null;
  const key = keyOf(policy, setting);
  if (mode !== "private" && key !== null && presented !== null && sameText(presented, key)) {
    return { ...caller, kind: "api_key" };
  }
  // A key that opens nothing says nothing about its bearer.
  if (mode === "public") return { ...caller, kind: "public", sub: "" };
  if (mode === "private") {
    throw Refusal.access(401, { code: "sign_in_required", message: "The operation is for signed-in members only" });
  }
  if (presented === null) throw Refusal.access(401, { code: "api_key_required", message: "The operation needs an API key" });
  throw Refusal.access(401, { code: "api_key_invalid", message: "The API key is not valid for the operation" });
}

/** keyOf is the key that counts: the operation's own where it has one and is set to ask for one, else the Worker's. */
function keyOf(policy: AccessPolicy, setting: Setting): string | null {
  return setting.access === "inherit" ? policy.keySHA256 : (setting.keySHA256 ?? policy.keySHA256);
}

/** allowed fails closed: with a list, a caller without an address is outside. */
function allowed(list: readonly string[], caller: CallerClaim): boolean {
  if (list.length === 0) return true;
  const address = readAddress(caller.client_address ?? "");
  if (address === null) return false;
  for (const text of list) {
    const range = readRange(text);
    if (range !== null && contains(range, address)) return true;
  }
  return false;
}
