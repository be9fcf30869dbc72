// Service accounts: the identities that operations use for their own outbound
// calls, and their commands. An account exists when its credentials were put.

import type { Command } from "./commands";
import { accountId, bad, checkDigest, type Payload, textOf } from "./fields";
import { Refusal } from "./refusal";
import { all, first } from "./tables";

const MAX_ACCOUNTS = 64;
const MAX_USERNAME = 256; // bytes of UTF-8
const MAX_PASSWORD = 1_024;
const MAX_SALT = 256;
const control = /[\u0000-\u001f\u007f]/;

/** Account is what ctx.serviceAccount shows. */
export interface Account {
  readonly id: string;
  readonly username: string;
  readonly password: string;
}

/** account finds the credentials of an account; null when none were put. */
export function account(sql: SqlStorage, id: string): Account | null {
  const row = first(sql, "SELECT username, password FROM service_accounts WHERE service_account_id = ?", id);
  return row === null ? null : { id, username: row["username"] as string, password: row["password"] as string };
}

/** printable reads a text without control characters; a NUL would blur where the salt ends. */
function printable(payload: Payload, key: string, max: number): string {
  const text = textOf(payload, key, max);
  if (control.test(text)) throw bad(["payload", key], "Control characters are not allowed");
  return text;
}

export const accountCommands: Record<string, Command> = {
  "service_accounts.list": {
    since: "department-worker-project-v2.8",
    mutation: false,
    payload: [],
    prepare: () => ({ sql }) => ({
      service_accounts: all(
        sql,
        `SELECT service_account_id AS serviceAccountId, username, password_digest AS passwordDigest, updated_at
         FROM service_accounts ORDER BY service_account_id`,
      ),
    }),
  },
  "service_accounts.credentials.put": {
    since: "department-worker-project-v2.8",
    mutation: true,
    payload: ["serviceAccountId", "username", "password", "salt", "passwordDigest"],
    async prepare(payload) {
      const serviceAccountId = accountId(payload["serviceAccountId"], ["payload", "serviceAccountId"]);
      const username = printable(payload, "username", MAX_USERNAME);
      const password = textOf(payload, "password", MAX_PASSWORD);
      const salt = printable(payload, "salt", MAX_SALT);
      const passwordDigest = await checkDigest(payload, "passwordDigest", salt + "\0" + password);
      return ({ sql, now }) => {
        const others = first(sql, "SELECT COUNT(*) AS n FROM service_accounts WHERE service_account_id <> ?", serviceAccountId)!["n"] as number;
        if (others >= MAX_ACCOUNTS) {
          throw Refusal.coded(409, "service_account_limit_reached", `A Worker has at most ${MAX_ACCOUNTS} service accounts`);
        }
        sql.exec(
          "INSERT OR REPLACE INTO service_accounts (service_account_id, username, password, password_digest, updated_at) VALUES (?, ?, ?, ?, ?)",
          serviceAccountId, username, password, passwordDigest, now,
        );
        return { conflict: false, current: { serviceAccountId, username, passwordDigest, updated_at: now } };
      };
    },
  },
  "service_accounts.credentials.delete": {
    since: "department-worker-project-v2.8",
    mutation: true,
    payload: ["serviceAccountId"],
    prepare(payload) {
      const serviceAccountId = accountId(payload["serviceAccountId"], ["payload", "serviceAccountId"]);
      return ({ sql, now }) => {
        const deleted = sql.exec("DELETE FROM service_accounts WHERE service_account_id = ?", serviceAccountId).rowsWritten > 0;
        return { conflict: false, deleted, current: { serviceAccountId, deleted, updated_at: now } };
      };
    },
  },
};
