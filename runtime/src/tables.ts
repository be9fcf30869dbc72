// The tables of the control instance. They are only ever created, never
// altered, so that any release can run on the storage of any other.

const tables = [
  `CREATE TABLE IF NOT EXISTS access_policy (
     id INTEGER PRIMARY KEY CHECK (id = 1),
     mode TEXT NOT NULL,
     ip_allowlist TEXT NOT NULL,
     api_key_sha256 TEXT,
     api_key_last_four TEXT,
     revision INTEGER NOT NULL,
     updated_at TEXT)`,
  `CREATE TABLE IF NOT EXISTS runtime_config (
     id INTEGER PRIMARY KEY CHECK (id = 1),
     value_json TEXT NOT NULL,
     revision INTEGER NOT NULL,
     updated_at TEXT)`,
  // The ids of assertions that were used, until they expire.
  `CREATE TABLE IF NOT EXISTS assertion_ids (
     jti TEXT PRIMARY KEY,
     expires_at INTEGER NOT NULL) WITHOUT ROWID`,
  `CREATE INDEX IF NOT EXISTS assertion_ids_expiry ON assertion_ids (expires_at)`,
  // What each mutation answered, until the control plane has acknowledged it.
  `CREATE TABLE IF NOT EXISTS receipts (
     mutation_id TEXT PRIMARY KEY,
     operation TEXT NOT NULL,
     command_digest TEXT NOT NULL,
     result_json TEXT NOT NULL,
     created_at TEXT NOT NULL)`,
];

export function createTables(sql: SqlStorage): void {
  for (const table of tables) sql.exec(table);
}

/** first returns the first row of a query, or null. */
export function first(sql: SqlStorage, query: string, ...bindings: unknown[]): Record<string, unknown> | null {
  const row = sql.exec(query, ...bindings).next();
  return row.done ? null : row.value ?? null;
}
