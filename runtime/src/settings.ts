// Operation settings: for each release generation one table with a row for
// each operation, and the commands that change it. The table of a coming
// release is staged beside the live one and takes its place with the first
// request that the new release accepts.

import { bare, Map, Object } from "./intrinsics";
import type { Command, Result, State } from "./commands";
import type { Constants } from "./constants";
import { accountId, bad, exactKeys, isObject, lastFourOf, named, oneOf, OPERATION_ID, type Payload, revision, sha256Of } from "./fields";
import { all, first } from "./tables";

const ACCESS = ["inherit", "private", "api_key", "public", "disabled"] as const;
const MAX_OPERATIONS = 200; // as many as a manifest may list

/** KEPT is how many tables of former generations are kept, should one of them come back. */
const KEPT = 8;

export type Access = (typeof ACCESS)[number];

/** Setting is the row of one operation. */
export interface Setting {
  readonly access: Access;
  readonly keySHA256: string | null;
  readonly keyLastFour: string | null;
  readonly serviceAccountId: string | null;
}

/** INHERIT is the row of an operation that has none. */
export const INHERIT: Setting = { access: "inherit", keySHA256: null, keyLastFour: null, serviceAccountId: null };

/** Staged tables wait for their release; reconciled ones are, or were, live. */
type TableState = "staged" | "reconciled";

interface Table {
  readonly state: TableState;
  readonly generation: string;
  readonly revision: number;
  readonly defaultAccount: string | null;
  readonly updatedAt: string | null;
  readonly rows: Map<string, Setting>;
}

function setting(row: Record<string, unknown>): Setting {
  return {
    access: row["access"] as Access,
    keySHA256: row["api_key_sha256"] as string | null,
    keyLastFour: row["api_key_last_four"] as string | null,
    serviceAccountId: row["service_account_id"] as string | null,
  };
}

function load(sql: SqlStorage, state: TableState, generation: string): Table | null {
  const head = first(sql, "SELECT * FROM operation_tables WHERE state = ? AND release_generation = ?", state, generation);
  if (head === null) return null;
  const rows = new Map<string, Setting>();
  const found = all(sql, "SELECT * FROM operation_rows WHERE state = ? AND release_generation = ? ORDER BY operation_id", state, generation);
  for (const row of found) rows.set(row["operation_id"] as string, setting(row));
  return {
    state, generation, rows,
    revision: head["revision"] as number,
    defaultAccount: head["default_service_account_id"] as string | null,
    updatedAt: head["updated_at"] as string,
  };
}

function remove(sql: SqlStorage, where: string, ...bindings: unknown[]): void {
  sql.exec("DELETE FROM operation_rows WHERE " + where, ...bindings);
  sql.exec("DELETE FROM operation_tables WHERE " + where, ...bindings);
}

function store(sql: SqlStorage, table: Table): void {
  remove(sql, "state = ? AND release_generation = ?", table.state, table.generation);
  sql.exec(
    "INSERT INTO operation_tables (state, release_generation, revision, default_service_account_id, updated_at) VALUES (?, ?, ?, ?, ?)",
    table.state, table.generation, table.revision, table.defaultAccount, table.updatedAt,
  );
  for (const [id, row] of table.rows) {
    sql.exec(
      `INSERT INTO operation_rows (state, release_generation, operation_id, access, api_key_sha256, api_key_last_four, service_account_id)
       VALUES (?, ?, ?, ?, ?, ?, ?)`,
      table.state, table.generation, id, row.access, row.keySHA256, row.keyLastFour, row.serviceAccountId,
    );
  }
}

/** show gives a table without the digests of its keys. */
function show(table: Table): Result {
  const operations = bare<Result>();
  for (const [id, row] of table.rows) {
    operations[id] = {
      access: row.access, api_key_configured: row.keySHA256 !== null, api_key_last_four: row.keyLastFour,
      service_account_id: row.serviceAccountId,
    };
  }
  return {
    state: table.state, revision: table.revision, releaseGeneration: table.generation,
    default_service_account_id: table.defaultAccount, operations, updated_at: table.updatedAt,
  };
}

/** live is the table of the running release; one of revision 0 while there is none. */
function live(sql: SqlStorage, generation: string): Table {
  const found = load(sql, "reconciled", generation);
  return found ?? { state: "reconciled", generation, revision: 0, defaultAccount: null, updatedAt: null, rows: new Map() };
}

function staged(sql: SqlStorage): Table | null {
  const head = first(sql, "SELECT release_generation FROM operation_tables WHERE state = 'staged'");
  return head === null ? null : load(sql, "staged", head["release_generation"] as string);
}

/** isStaged tells whether a table waits for this generation. */
export function isStaged(sql: SqlStorage, generation: string): boolean {
  return first(sql, "SELECT 1 FROM operation_tables WHERE state = 'staged' AND release_generation = ?", generation) !== null;
}

/** reconcile makes the staged table the live one of its generation. */
export function reconcile(sql: SqlStorage, generation: string): void {
  remove(sql, "state = 'reconciled' AND release_generation = ?", generation);
  for (const table of ["operation_rows", "operation_tables"]) {
    sql.exec(`UPDATE ${table} SET state = 'reconciled' WHERE state = 'staged' AND release_generation = ?`, generation);
  }
  const old = all(
    sql,
    `SELECT release_generation FROM operation_tables WHERE state = 'reconciled' AND release_generation <> ?
     ORDER BY updated_at DESC LIMIT -1 OFFSET ?`,
    generation, KEPT,
  );
  for (const row of old) remove(sql, "state = 'reconciled' AND release_generation = ?", row["release_generation"]);
}

/** settingOf is the live row of one operation, with the account that it uses. */
export function settingOf(sql: SqlStorage, generation: string, operation: string): Setting {
  const head = first(
    sql, "SELECT default_service_account_id FROM operation_tables WHERE state = 'reconciled' AND release_generation = ?", generation,
  );
  if (head === null) return INHERIT;
  const row = first(
    sql, "SELECT * FROM operation_rows WHERE state = 'reconciled' AND release_generation = ? AND operation_id = ?", generation, operation,
  );
  const own = row === null ? INHERIT : setting(row);
  return { ...own, serviceAccountId: own.serviceAccountId ?? (head["default_service_account_id"] as string | null) };
}

/** Wanted is a table as a command gives it: keys are not part of it. */
interface Wanted {
  readonly defaultAccount: string | null;
  readonly operations: Map<string, { access: Access; serviceAccountId: string | null }>;
}

function readAccount(value: unknown, loc: (string | number)[]): string | null {
  return value === null ? null : accountId(value, loc);
}

function readWanted(payload: Payload): Wanted {
  const loc = ["payload", "operations"];
  const given = payload["operations"];
  if (!isObject(given)) throw bad(loc, "An object is required");
  const ids = Object.keys(given);
  if (ids.length > MAX_OPERATIONS) throw bad(loc, `At most ${MAX_OPERATIONS} operations are allowed`);
  const operations: Wanted["operations"] = new Map();
  for (const id of ids) {
    const row = given[id];
    if (!OPERATION_ID.test(id)) throw bad([...loc, id], "The id must match " + OPERATION_ID.source);
    if (!isObject(row)) throw bad([...loc, id], "An object is required");
    exactKeys(row, ["access", "service_account_id"], [...loc, id]);
    operations.set(id, {
      access: oneOf(row["access"], ACCESS, [...loc, id, "access"]),
      serviceAccountId: readAccount(row["service_account_id"], [...loc, id, "service_account_id"]),
    });
  }
  return { defaultAccount: readAccount(payload["defaultServiceAccountId"], ["payload", "defaultServiceAccountId"]), operations };
}

/** next makes the wanted table; an operation keeps the key that it has now. */
function next(state: State, before: Table, as: TableState, generation: string, wanted: Wanted): Table {
  const rows = new Map<string, Setting>();
  for (const [id, row] of wanted.operations) {
    const { keySHA256, keyLastFour } = before.rows.get(id) ?? INHERIT;
    rows.set(id, { ...row, keySHA256, keyLastFour });
  }
  return { state: as, generation, revision: before.revision + 1, defaultAccount: wanted.defaultAccount, updatedAt: state.now, rows };
}

function inManifest(constants: Constants, id: string): boolean {
  return constants.operations.some((operation) => operation.id === id);
}

function notInManifest(loc: (string | number)[]): Error {
  return bad(loc, "operation_id is not present in the release manifest");
}

/** changeKey gives one operation another key, or none. */
function changeKey(state: State, before: Table, id: string, keySHA256: string | null, keyLastFour: string | null): Table {
  const rows = new Map(before.rows);
  rows.set(id, { ...(before.rows.get(id) ?? INHERIT), keySHA256, keyLastFour });
  const table: Table = { ...before, revision: before.revision + 1, updatedAt: state.now, rows };
  store(state.sql, table);
  return table;
}

export const settingsCommands: Record<string, Command> = {
  "operation_settings.get": {
    since: "department-worker-project-v2.8",
    mutation: false,
    payload: [],
    prepare: () => ({ sql, constants }) => {
      const now = load(sql, "reconciled", constants.releaseGeneration);
      const coming = staged(sql);
      return { settings: now === null ? null : show(now), staged: coming === null ? null : show(coming) };
    },
  },
  "operation_settings.stage": {
    since: "department-worker-project-v2.8",
    mutation: true,
    payload: ["releaseGeneration", "liveRevision", "defaultServiceAccountId", "operations"],
    prepare(payload) {
      const generation = sha256Of(payload, "releaseGeneration");
      const base = revision(payload, "liveRevision");
      const wanted = readWanted(payload);
      return (state) => {
        const before = live(state.sql, state.constants.releaseGeneration);
        if (before.revision !== base) return { conflict: true, current: show(before) };
        // One deployment at a time: a table that no release ever took is void.
        remove(state.sql, "state = 'staged'");
        const table = next(state, before, "staged", generation, wanted);
        store(state.sql, table);
        return { conflict: false, current: show(table) };
      };
    },
  },
  "operation_settings.replace": {
    since: "department-worker-project-v2.8",
    mutation: true,
    payload: ["baseRevision", "releaseGeneration", "defaultServiceAccountId", "operations"],
    prepare(payload) {
      const base = revision(payload, "baseRevision");
      const generation = sha256Of(payload, "releaseGeneration");
      const wanted = readWanted(payload);
      return (state) => {
        if (generation !== state.constants.releaseGeneration) {
          throw bad(["payload", "releaseGeneration"], "The generation of the running release is required");
        }
        for (const id of wanted.operations.keys()) {
          if (!inManifest(state.constants, id)) throw notInManifest(["payload", "operations", id]);
        }
        const before = live(state.sql, generation);
        if (before.revision !== base) return { conflict: true, current: show(before) };
        const table = next(state, before, "reconciled", generation, wanted);
        store(state.sql, table);
        return { conflict: false, current: show(table) };
      };
    },
  },
  "operation_settings.api_key.rotate": {
    since: "department-worker-project-v2.8",
    mutation: true,
    payload: ["baseRevision", "operationId", "keyDigest", "lastFour"],
    prepare(payload) {
      const base = revision(payload, "baseRevision");
      const id = named(payload, "operationId", OPERATION_ID);
      const digest = sha256Of(payload, "keyDigest");
      const lastFour = lastFourOf(payload, "lastFour");
      return (state) => {
        if (!inManifest(state.constants, id)) throw notInManifest(["payload", "operationId"]);
        const before = live(state.sql, state.constants.releaseGeneration);
        if (before.revision !== base) return { conflict: true, current: show(before) };
        return { conflict: false, current: show(changeKey(state, before, id, digest, lastFour)) };
      };
    },
  },
  "operation_settings.api_key.revoke": {
    since: "department-worker-project-v2.8",
    mutation: true,
    payload: ["baseRevision", "operationId"],
    prepare(payload) {
      const base = revision(payload, "baseRevision");
      const id = named(payload, "operationId", OPERATION_ID);
      return (state) => {
        if (!inManifest(state.constants, id)) throw notInManifest(["payload", "operationId"]);
        const before = live(state.sql, state.constants.releaseGeneration);
        if (before.revision !== base) return { conflict: true, revoked: false, current: show(before) };
        if ((before.rows.get(id)?.keySHA256 ?? null) === null) {
          // A receipt needs a time (S1-191), also where nothing was ever set.
          return { conflict: false, revoked: false, current: show({ ...before, updatedAt: before.updatedAt ?? state.now }) };
        }
        return { conflict: false, revoked: true, current: show(changeKey(state, before, id, null, null)) };
      };
    },
  },
};
