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
  `CREATE TABLE IF NOT EXISTS runtime_configuration (
     id INTEGER PRIMARY KEY CHECK (id = 1),
     value_json TEXT NOT NULL,
     sha256 TEXT NOT NULL,
     revision INTEGER NOT NULL,
     updated_at TEXT NOT NULL)`,
  // The version of what the data instance keeps in memory: configuration and
  // secrets.
  `CREATE TABLE IF NOT EXISTS shared_version (
     id INTEGER PRIMARY KEY CHECK (id = 1),
     version INTEGER NOT NULL)`,
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
  `CREATE TABLE IF NOT EXISTS secrets (
     name TEXT PRIMARY KEY,
     value TEXT NOT NULL,
     sha256 TEXT NOT NULL,
     updated_at TEXT NOT NULL) WITHOUT ROWID`,
  `CREATE TABLE IF NOT EXISTS service_accounts (
     service_account_id TEXT PRIMARY KEY,
     username TEXT NOT NULL,
     password TEXT NOT NULL,
     password_digest TEXT NOT NULL,
     updated_at TEXT NOT NULL) WITHOUT ROWID`,
  // Operation settings: at most one staged table, and one reconciled table for
  // each of the last release generations.
  `CREATE TABLE IF NOT EXISTS operation_tables (
     state TEXT NOT NULL,
     release_generation TEXT NOT NULL,
     revision INTEGER NOT NULL,
     default_service_account_id TEXT,
     updated_at TEXT,
     PRIMARY KEY (state, release_generation)) WITHOUT ROWID`,
  `CREATE TABLE IF NOT EXISTS operation_rows (
     state TEXT NOT NULL,
     release_generation TEXT NOT NULL,
     operation_id TEXT NOT NULL,
     access TEXT NOT NULL,
     api_key_sha256 TEXT,
     api_key_last_four TEXT,
     service_account_id TEXT,
     PRIMARY KEY (state, release_generation, operation_id)) WITHOUT ROWID`,
];

export function createTables(sql: SqlStorage): void {
  for (const table of tables) sql.exec(table);
}

/** first returns the first row of a query, or null. */
export function first(sql: SqlStorage, query: string, ...bindings: unknown[]): Record<string, unknown> | null {
  const row = sql.exec(query, ...bindings).next();
  return row.done ? null : row.value ?? null;
}

/** all returns the rows of a query. */
export function all(sql: SqlStorage, query: string, ...bindings: unknown[]): Record<string, unknown>[] {
  return [...sql.exec(query, ...bindings)];
}

/** sharedVersion is the version of the configuration and the secrets together. */
export function sharedVersion(sql: SqlStorage): number {
  const row = first(sql, "SELECT version FROM shared_version WHERE id = 1");
  return row === null ? 0 : (row["version"] as number);
}

/** bumpShared belongs to each change of the configuration or a secret. */
export function bumpShared(sql: SqlStorage): void {
  sql.exec("INSERT INTO shared_version (id, version) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET version = version + 1");
}
