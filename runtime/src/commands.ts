// The control commands: one entry for each operation of the control door.

import { bare, JSONparse, Object } from "./intrinsics";
import type { Policy } from "./constants";
import { Refusal } from "./refusal";
import { first } from "./tables";

/** Command is one operation of the control door. */
export interface Command {
  /** The builder policy that added it: older bundles do not know it. */
  since: Policy;
  /** A mutation needs a mutationId and leaves a receipt. */
  mutation: boolean;
  /** The exact keys of the payload. */
  payload: readonly string[];
  run(sql: SqlStorage, payload: Record<string, unknown>): Record<string, unknown>;
}

/** Policy as the control plane reads it. */
function accessPolicy(sql: SqlStorage): Record<string, unknown> {
  const row = first(sql, "SELECT * FROM access_policy WHERE id = 1");
  if (row === null) {
    return {
      api_key_configured: false, api_key_last_four: null, ip_allowlist: [], mode: "private", revision: 0, updated_at: null,
    };
  }
  return {
    api_key_configured: row["api_key_sha256"] !== null,
    api_key_last_four: row["api_key_last_four"],
    ip_allowlist: JSONparse(row["ip_allowlist"] as string),
    mode: row["mode"],
    revision: row["revision"],
    updated_at: row["updated_at"],
  };
}

/** runtimeConfig is what ctx.config shows; {} until one is put. */
export function runtimeConfig(sql: SqlStorage): string {
  const row = first(sql, "SELECT value_json FROM runtime_config WHERE id = 1");
  return row === null ? "{}" : (row["value_json"] as string);
}

const table: Record<string, Command> = {
  "access_policy.get": {
    since: "department-worker-project-v2.5",
    mutation: false,
    payload: [],
    run: (sql) => ({ policy: accessPolicy(sql) }),
  },
};

const commands = Object.assign(bare<Command>(), table);

/** commandFor finds an operation's command. */
export function commandFor(operation: string): Command | null {
  return commands[operation] ?? null;
}

export function unknownOperation(): Refusal {
  return Refusal.coded(404, "control_operation_unknown", "The Worker's release does not know this control operation");
}
