// The Worker's secrets, which handlers read through ctx.secrets, and their
// commands. A value goes in and is never shown again: answers and receipts
// carry its SHA-256.

import { bare } from "./intrinsics";
import type { Command, Work } from "./commands";
import { checkDigest, named, textOf } from "./fields";
import { Refusal } from "./refusal";
import { all, bumpShared, first } from "./tables";

const NAME = /^[A-Z][A-Z0-9_]{0,63}$/;
const MAX_SECRETS = 64;
const MAX_VALUE = 5_120; // bytes of UTF-8

/** secretValues are the values by name; only the data instance gets them. */
export function secretValues(sql: SqlStorage): Record<string, string> {
  const values = bare<string>();
  for (const row of all(sql, "SELECT name, value FROM secrets")) values[row["name"] as string] = row["value"] as string;
  return values;
}

function put(name: string, value: string, digest: string): Work {
  return ({ sql, now }) => {
    const others = first(sql, "SELECT COUNT(*) AS n FROM secrets WHERE name <> ?", name)!["n"] as number;
    if (others >= MAX_SECRETS) throw Refusal.coded(409, "secret_limit_reached", `A Worker has at most ${MAX_SECRETS} secrets`);
    sql.exec("INSERT OR REPLACE INTO secrets (name, value, sha256, updated_at) VALUES (?, ?, ?, ?)", name, value, digest, now);
    bumpShared(sql);
    return { conflict: false, current: { name, sha256: digest, updated_at: now } };
  };
}

export const secretsCommands: Record<string, Command> = {
  "secrets.list": {
    since: "department-worker-project-v2.6",
    mutation: false,
    payload: [],
    prepare: () => ({ sql }) => ({ secrets: all(sql, "SELECT name, sha256, updated_at FROM secrets ORDER BY name") }),
  },
  "secrets.put": {
    since: "department-worker-project-v2.6",
    mutation: true,
    payload: ["name", "value", "valueDigest"],
    async prepare(payload) {
      const name = named(payload, "name", NAME);
      const value = textOf(payload, "value", MAX_VALUE);
      return put(name, value, await checkDigest(payload, "valueDigest", value));
    },
  },
  "secrets.delete": {
    since: "department-worker-project-v2.6",
    mutation: true,
    payload: ["name"],
    prepare(payload) {
      const name = named(payload, "name", NAME);
      return ({ sql, now }) => {
        const deleted = sql.exec("DELETE FROM secrets WHERE name = ?", name).rowsWritten > 0;
        if (deleted) bumpShared(sql);
        return { conflict: false, deleted, current: { name, deleted, updated_at: now } };
      };
    },
  },
  "secrets.purge": {
    since: "department-worker-project-v2.7",
    mutation: true,
    payload: [],
    prepare: () => ({ sql }) => {
      const purged = first(sql, "SELECT COUNT(*) AS n FROM secrets")!["n"];
      sql.exec("DELETE FROM secrets");
      bumpShared(sql);
      return { purged };
    },
  },
};
