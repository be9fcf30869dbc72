// The runtime configuration, which handlers see as ctx.config, and its
// commands.

import { JSONparse } from "./intrinsics";
import type { Command, Result, State } from "./commands";
import { isCanonical, sha256, utf8 } from "./encoding";
import { bad, isObject, type Payload, revision, textOf } from "./fields";
import { forbiddenKey } from "./schema";
import { bumpShared, first } from "./tables";

const MAX_VALUE = 65_536; // bytes of UTF-8 (S1-241)
const EMPTY = "{}";
const EMPTY_SHA256 = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

interface Config {
  readonly valueJson: string;
  readonly sha256: string;
  readonly revision: number;
  readonly updatedAt: string | null;
}

function runtimeConfig(sql: SqlStorage): Config {
  const row = first(sql, "SELECT * FROM runtime_configuration WHERE id = 1");
  if (row === null) return { valueJson: EMPTY, sha256: EMPTY_SHA256, revision: 0, updatedAt: null };
  return {
    valueJson: row["value_json"] as string,
    sha256: row["sha256"] as string,
    revision: row["revision"] as number,
    updatedAt: row["updated_at"] as string,
  };
}

/** configText is what ctx.config shows, as JSON; {} until one is put. */
export function configText(sql: SqlStorage): string {
  return runtimeConfig(sql).valueJson;
}

function show(config: Config): Result {
  return { valueJson: config.valueJson, sha256: config.sha256, revision: config.revision, updated_at: config.updatedAt };
}

/** change stores the next revision, unless the base is not the current one. */
function change(state: State, base: number, valueJson: string, digest: string): Result {
  const before = runtimeConfig(state.sql);
  if (before.revision !== base) return { conflict: true, current: show(before) };
  const next = { valueJson, sha256: digest, revision: before.revision + 1, updatedAt: state.now };
  state.sql.exec(
    "INSERT OR REPLACE INTO runtime_configuration (id, value_json, sha256, revision, updated_at) VALUES (1, ?, ?, ?, ?)",
    next.valueJson, next.sha256, next.revision, next.updatedAt,
  );
  bumpShared(state.sql);
  return { conflict: false, current: show(next) };
}

/** readValue reads valueJson: the canonical text of an object. */
function readValue(payload: Payload): string {
  const text = textOf(payload, "valueJson", MAX_VALUE);
  const loc = ["payload", "valueJson"];
  let value: unknown;
  try {
    value = JSONparse(text);
  } catch {
    throw bad(loc, "JSON is required");
  }
  if (!isObject(value)) throw bad(loc, "A JSON object is required");
  const problem = forbiddenKey(value, "valueJson");
  if (problem !== null) throw bad(["payload", ...problem.loc], problem.msg);
  if (!isCanonical(value, text)) throw bad(loc, "Canonical JSON is required");
  return text;
}

export const runtimeConfigCommands: Record<string, Command> = {
  "runtime_config.get": {
    since: "department-worker-project-v2.5",
    mutation: false,
    payload: [],
    prepare: () => ({ sql }) => ({ config: show(runtimeConfig(sql)) }),
  },
  "runtime_config.replace": {
    since: "department-worker-project-v2.5",
    mutation: true,
    payload: ["baseRevision", "valueJson"],
    async prepare(payload) {
      const base = revision(payload, "baseRevision");
      const text = readValue(payload);
      const digest = await sha256(utf8(text));
      return (state) => change(state, base, text, digest);
    },
  },
  "runtime_config.delete": {
    since: "department-worker-project-v2.5",
    mutation: true,
    payload: ["baseRevision"],
    prepare(payload) {
      const base = revision(payload, "baseRevision");
      return (state) => change(state, base, EMPTY, EMPTY_SHA256);
    },
  },
};
