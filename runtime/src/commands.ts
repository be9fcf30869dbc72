// The control commands: one entry for each operation of the control door.

import { bare, JSONparse, JSONstringify, Object } from "./intrinsics";
import { accountCommands } from "./accounts";
import { runtimeConfigCommands } from "./config";
import type { Constants, Policy } from "./constants";
import { type Payload, sha256Of, uuidOf } from "./fields";
import { accessPolicyCommands } from "./policy";
import { Refusal } from "./refusal";
import { secretsCommands } from "./secrets";
import { settingsCommands } from "./settings";
import { first } from "./tables";

export type Result = Record<string, unknown>;

/** State is what a command works on. */
export interface State {
  readonly sql: SqlStorage;
  readonly constants: Constants;
  /** The time of the command, ISO 8601 in UTC with milliseconds. */
  readonly now: string;
}

/** Work is what a command does, without waiting for anything. */
export type Work = (state: State) => Result;

/** Command is one operation of the control door. */
export interface Command {
  /** The builder policy that added it: older bundles do not know it. */
  readonly since: Policy;
  /** A mutation needs a mutationId and leaves a receipt. */
  readonly mutation: boolean;
  /** The exact keys of the payload. */
  readonly payload: readonly string[];
  /** prepare checks the payload's values; nothing is read or changed yet. */
  prepare(payload: Payload): Work | Promise<Work>;
}

/** receipt finds what a mutation answered; the digest must be that of its command. */
export function receipt(sql: SqlStorage, mutationId: string, digest: string): Record<string, unknown> | null {
  const row = first(sql, "SELECT * FROM receipts WHERE mutation_id = ?", mutationId);
  if (row !== null && row["command_digest"] !== digest) {
    throw Refusal.coded(409, "mutation_conflict", "The mutation id was used for another command");
  }
  return row;
}

export function storeReceipt(state: State, mutationId: string, operation: string, digest: string, result: Result): void {
  state.sql.exec(
    "INSERT INTO receipts (mutation_id, operation, command_digest, result_json, created_at) VALUES (?, ?, ?, ?, ?)",
    mutationId, operation, digest, JSONstringify(result), state.now,
  );
}

const receiptCommands: Record<string, Command> = {
  "control.receipt.get": {
    since: "department-worker-project-v2.5",
    mutation: false,
    payload: ["mutationId", "commandDigest"],
    prepare(payload) {
      const mutationId = uuidOf(payload, "mutationId");
      const commandDigest = sha256Of(payload, "commandDigest");
      return ({ sql }) => {
        const row = receipt(sql, mutationId, commandDigest);
        if (row === null) return { found: false, receipt: null };
        const result = JSONparse(row["result_json"] as string);
        return { found: true, receipt: { mutationId, operation: row["operation"], commandDigest, result, createdAt: row["created_at"] } };
      };
    },
  },
  "control.receipt.ack": {
    since: "department-worker-project-v2.5",
    mutation: false,
    payload: ["mutationId", "commandDigest"],
    prepare(payload) {
      const mutationId = uuidOf(payload, "mutationId");
      const commandDigest = sha256Of(payload, "commandDigest");
      return ({ sql }) => {
        receipt(sql, mutationId, commandDigest);
        sql.exec("DELETE FROM receipts WHERE mutation_id = ?", mutationId);
        return { acknowledged: true };
      };
    },
  },
};

const commands = Object.assign(
  bare<Command>(), accessPolicyCommands, runtimeConfigCommands, receiptCommands, secretsCommands, settingsCommands, accountCommands,
);

/** commandFor finds an operation's command. */
export function commandFor(operation: string): Command | null {
  return commands[operation] ?? null;
}

export function unknownOperation(): Refusal {
  return Refusal.coded(404, "control_operation_unknown", "The Worker's release does not know this control operation");
}
