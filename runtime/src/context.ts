// What a handler sees: ctx.

import type { Ctx, Json, LogFields, SqlResult, SqlValue } from "@teamsync/edge-worker";
import type { Account } from "./accounts";
import type { CallerClaim } from "./assertion";
import type { Features } from "./constants";
import { deepFreeze, defineProperty, Error, freeze, getOwn, JSONstringify, log, platformFetch, String } from "./intrinsics";

/** MAX_ROWS bounds one query's result: it is held in memory as a whole. */
export const MAX_ROWS = 10_000;

const MAX_LOG_LINE = 8 * 1024; // characters

/** Rows is a query's whole result. */
class Rows implements SqlResult {
  readonly columnNames: string[];
  readonly rowsRead: number;
  readonly rowsWritten: number;
  readonly #rows: Record<string, SqlValue>[] = [];

  constructor(cursor: SqlStorageCursor) {
    for (const row of cursor) {
      if (this.#rows.length >= MAX_ROWS) throw new Error(`The query returned more than ${MAX_ROWS} rows: use LIMIT`);
      this.#rows.push(row as Record<string, SqlValue>);
    }
    this.columnNames = cursor.columnNames;
    this.rowsRead = cursor.rowsRead;
    this.rowsWritten = cursor.rowsWritten;
  }

  get length(): number { return this.#rows.length; }

  toArray<T extends Record<string, SqlValue>>(): T[] {
    return this.#rows.slice() as T[];
  }

  one<T extends Record<string, SqlValue>>(): T {
    if (this.#rows.length !== 1) throw new Error(`Expected exactly one row, got ${this.#rows.length}`);
    return this.#rows[0] as T;
  }

  first<T extends Record<string, SqlValue>>(): T | null {
    return (this.#rows[0] as T | undefined) ?? null;
  }

  [Symbol.iterator](): IterableIterator<Record<string, SqlValue>> {
    return this.#rows[Symbol.iterator]();
  }
}

/** authorStorage wraps the storage of the data instance. */
export function authorStorage(storage: DurableObjectStorage): Ctx["storage"] {
  return freeze({
    sql: freeze({
      exec: (query: string, ...bindings: SqlValue[]) => new Rows(storage.sql.exec(query, ...bindings)),
      get databaseSize() { return storage.sql.databaseSize; },
    }),
    transaction: <T>(work: () => T): T =>
      storage.transactionSync(() => {
        const result = work();
        if (typeof result === "object" && result !== null && "then" in result) {
          throw new Error("A transaction's function must not be async: it would end before its work does");
        }
        return result;
      }),
  }) as Ctx["storage"];
}

/** Given is what the control instance gave for one invocation. */
export interface Given {
  caller: CallerClaim;
  /** Frozen already: all invocations share it. */
  config: Json;
  secrets: Ctx["secrets"];
  serviceAccount: Account | null;
}

export interface Invocation extends Given {
  operation: string;
  features: Features;
}

/** secretReader gives out values by name; nothing lists or prints them. */
export function secretReader(values: Record<string, string>): Ctx["secrets"] {
  return freeze({ get: (name: string) => (getOwn(values, name) as string | undefined) ?? null });
}

/** identity shows an account. Whatever lists, logs or copies the object leaves the password out. */
function identity(account: Account | null): Ctx["serviceAccount"] {
  if (account === null) return null;
  const { id, username, password } = account;
  return freeze(defineProperty({ id, username }, "password", { value: password })) as Ctx["serviceAccount"];
}

export function makeContext(call: Invocation, storage: Ctx["storage"], staticData: Ctx["staticData"]): Ctx {
  const { kind, sub, company_id, department_id, roles, request_id } = call.caller;
  const ctx = {
    storage,
    staticData,
    config: call.config as Ctx["config"],
    caller: deepFreeze({ kind, sub, companyId: company_id, departmentId: department_id, roles }),
    operation: call.operation,
    requestId: request_id,
    fetch: platformFetch as Ctx["fetch"],
    log: logger(call.operation, request_id),
    ...(call.features.secrets ? { secrets: call.secrets } : {}),
    ...(call.features.settings ? { serviceAccount: identity(call.serviceAccount) } : {}),
  };
  return freeze(ctx) as Ctx;
}

function logger(operation: string, requestId: string): Ctx["log"] {
  const at = (level: keyof typeof log) => (msg: string, fields?: LogFields) => {
    writeLog(level, operation, requestId, String(msg), fields);
  };
  return freeze({ debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") });
}

/** writeLog writes one bounded JSON line. */
export function writeLog(level: keyof typeof log, operation: string, requestId: string, msg: string, fields?: unknown): void {
  const head = { level, msg: msg.slice(0, MAX_LOG_LINE / 4), operation, request_id: requestId };
  let line: string;
  try {
    line = JSONstringify(fields === undefined ? head : { ...head, fields });
  } catch {
    line = JSONstringify({ ...head, fields: "not JSON" });
  }
  if (line.length > MAX_LOG_LINE) line = JSONstringify({ ...head, fields: "too long" });
  log[level](line);
}

/** describeError gives an error's text for the log; it never throws. */
export function describeError(error: unknown): string {
  try {
    const stack = error instanceof Error ? error.stack : undefined;
    return String(stack ?? error);
  } catch {
    return "an error without a text";
  }
}
