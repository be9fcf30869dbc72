// The access policy of the Worker and its commands.

import { Array, JSONparse, JSONstringify } from "./intrinsics";
import { readRange } from "./address";
import type { Command, Result, State } from "./commands";
import { bad, lastFourOf, oneOf, type Payload, revision, sha256Of } from "./fields";
import { first } from "./tables";

const MODES = ["private", "api_key", "public"] as const;
const MAX_RANGES = 64;

export type Mode = (typeof MODES)[number];

export interface AccessPolicy {
  readonly mode: Mode;
  readonly ipAllowlist: readonly string[];
  readonly keySHA256: string | null;
  readonly keyLastFour: string | null;
  readonly revision: number;
  readonly updatedAt: string | null;
}

export function accessPolicy(sql: SqlStorage): AccessPolicy {
  const row = first(sql, "SELECT * FROM access_policy WHERE id = 1");
  if (row === null) {
    return { mode: "private", ipAllowlist: [], keySHA256: null, keyLastFour: null, revision: 0, updatedAt: null };
  }
  return {
    mode: row["mode"] as Mode,
    ipAllowlist: JSONparse(row["ip_allowlist"] as string) as string[],
    keySHA256: row["api_key_sha256"] as string | null,
    keyLastFour: row["api_key_last_four"] as string | null,
    revision: row["revision"] as number,
    updatedAt: row["updated_at"] as string | null,
  };
}

/** show gives the policy without the digest of its key (S1-211). */
function show(policy: AccessPolicy): Result {
  return {
    api_key_configured: policy.keySHA256 !== null, api_key_last_four: policy.keyLastFour, ip_allowlist: policy.ipAllowlist,
    mode: policy.mode, revision: policy.revision, updated_at: policy.updatedAt,
  };
}

/** change stores the next revision of the policy. */
function change(state: State, before: AccessPolicy, changes: Partial<AccessPolicy>): AccessPolicy {
  const next = { ...before, ...changes, revision: before.revision + 1, updatedAt: state.now };
  state.sql.exec(
    `INSERT OR REPLACE INTO access_policy (id, mode, ip_allowlist, api_key_sha256, api_key_last_four, revision, updated_at)
     VALUES (1, ?, ?, ?, ?, ?, ?)`,
    next.mode, JSONstringify(next.ipAllowlist), next.keySHA256, next.keyLastFour, next.revision, next.updatedAt,
  );
  return next;
}

function readAllowlist(payload: Payload): string[] {
  const value = payload["ipAllowlist"];
  const loc = ["payload", "ipAllowlist"];
  if (!Array.isArray(value) || value.length > MAX_RANGES) throw bad(loc, `A list of at most ${MAX_RANGES} CIDR ranges is required`);
  for (let i = 0; i < value.length; i++) {
    if (typeof value[i] !== "string" || readRange(value[i]) === null) {
      throw bad([...loc, i], "A CIDR range such as 192.0.2.0/24 is required, its host bits 0");
    }
    if (value.indexOf(value[i]) !== i) throw bad([...loc, i], "The range is given twice");
  }
  return value;
}

export const accessPolicyCommands: Record<string, Command> = {
  "access_policy.get": {
    since: "department-worker-project-v2.5",
    mutation: false,
    payload: [],
    prepare: () => ({ sql }) => ({ policy: show(accessPolicy(sql)) }),
  },
  "access_policy.replace": {
    since: "department-worker-project-v2.5",
    mutation: true,
    payload: ["baseRevision", "mode", "ipAllowlist"],
    prepare(payload) {
      const base = revision(payload, "baseRevision");
      const mode = oneOf(payload["mode"], MODES, ["payload", "mode"]);
      const ipAllowlist = readAllowlist(payload);
      return (state) => {
        const before = accessPolicy(state.sql);
        if (before.revision !== base) return { conflict: true, current: show(before) };
        return { conflict: false, current: show(change(state, before, { mode, ipAllowlist })) };
      };
    },
  },
  "access_policy.api_key.rotate": {
    since: "department-worker-project-v2.5",
    mutation: true,
    payload: ["baseRevision", "keyDigest", "lastFour"],
    prepare(payload) {
      const base = revision(payload, "baseRevision");
      const keySHA256 = sha256Of(payload, "keyDigest");
      const keyLastFour = lastFourOf(payload, "lastFour");
      return (state) => {
        const before = accessPolicy(state.sql);
        if (before.revision !== base) return { conflict: true, current: show(before) };
        return { conflict: false, current: show(change(state, before, { keySHA256, keyLastFour })) };
      };
    },
  },
  "access_policy.api_key.revoke": {
    since: "department-worker-project-v2.5",
    mutation: true,
    payload: ["baseRevision"],
    prepare(payload) {
      const base = revision(payload, "baseRevision");
      return (state) => {
        const before = accessPolicy(state.sql);
        if (before.revision !== base) return { conflict: true, revoked: false, current: show(before) };
        if (before.keySHA256 === null) {
          // A receipt needs a time (S1-191), also where nothing was ever set.
          return { conflict: false, revoked: false, current: show({ ...before, updatedAt: before.updatedAt ?? state.now }) };
        }
        return { conflict: false, revoked: true, current: show(change(state, before, { keySHA256: null, keyLastFour: null })) };
      };
    },
  },
};
