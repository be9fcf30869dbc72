// Types for authors of Edge Workers: import them, defineWorker and
// OperationError from "@teamsync/edge-worker".

/** Anything that JSON can hold. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** JSON that is frozen. */
export type FrozenJson = null | boolean | number | string | readonly FrozenJson[] | { readonly [key: string]: FrozenJson };

/** A value of an SQL column or binding. */
export type SqlValue = null | number | string | ArrayBuffer;

/** A row: its columns by name. */
export type SqlRow = Record<string, SqlValue>;

/** The whole result of one query, at most 10,000 rows. */
export interface SqlResult extends Iterable<SqlRow> {
  readonly columnNames: string[];
  /** Rows that SQLite read and wrote for this query. */
  readonly rowsRead: number;
  readonly rowsWritten: number;
  /** The number of rows in the result. */
  readonly length: number;
  toArray<T extends SqlRow = SqlRow>(): T[];
  /** The only row; throws unless there is exactly one. */
  one<T extends SqlRow = SqlRow>(): T;
  /** The first row, or null. */
  first<T extends SqlRow = SqlRow>(): T | null;
}

export interface Sql {
  /**
   * Runs one or more statements; `?` takes the bindings in order. It is
   * synchronous, and throws for an SQL error and for more than 10,000 rows.
   * Names that begin with `_cf_` belong to the platform.
   */
  exec(query: string, ...bindings: SqlValue[]): SqlResult;
  /** Bytes of the database. */
  readonly databaseSize: number;
}

export interface Storage {
  readonly sql: Sql;
  /**
   * Runs a synchronous function in a transaction: all of its writes happen, or,
   * if it throws, none. The function must not be async.
   */
  transaction<T>(work: () => T): T;
}

/**
 * Who invokes the operation. `api_key` is said only of a key that was found
 * right for this operation.
 */
export interface Caller {
  readonly kind: "member" | "api_key" | "public" | "system";
  readonly sub: string;
  readonly companyId: string;
  readonly departmentId: string;
  readonly roles: readonly string[];
}

/** The Worker's secrets. */
export interface Secrets {
  /** The value of a secret as it is at the start of the invocation; null when there is none of that name. */
  get(name: string): string | null;
}

/**
 * The identity that an operation uses for its own outbound calls. `password` is
 * not enumerable: logging, spreading or JSON.stringify leaves it out.
 */
export interface ServiceAccount {
  readonly id: string;
  readonly username: string;
  readonly password: string;
}

/** Fields of a log line, as JSON. */
export type LogFields = { readonly [key: string]: unknown };

/** Each call writes one JSON line of at most 8 KiB, with the operation and the request id. */
export interface Log {
  debug(msg: string, fields?: LogFields): void;
  info(msg: string, fields?: LogFields): void;
  warn(msg: string, fields?: LogFields): void;
  error(msg: string, fields?: LogFields): void;
}

/** What a handler gets beside its input. All of it is frozen. */
export interface Ctx {
  /** The department's own SQLite database. */
  readonly storage: Storage;
  /** The runtime configuration; {} until one is put. */
  readonly config: { readonly [key: string]: FrozenJson };
  /** The files below static/, by their path below it: *.json parsed, others as text. */
  readonly staticData: { readonly [path: string]: FrozenJson };
  readonly secrets: Secrets;
  /** The account bound to the operation, else the default one; null without either or without credentials. */
  readonly serviceAccount: ServiceAccount | null;
  readonly caller: Caller;
  /** The id of the operation. */
  readonly operation: string;
  /** The id under which this request is logged everywhere. */
  readonly requestId: string;
  readonly log: Log;
  readonly fetch: typeof fetch;
}

/**
 * A handler. `input` is the JSON object that the gateway makes of the body, the
 * query string (texts) and the path's parameters (texts); it has passed the
 * operation's input_schema. The result must be JSON and pass its output_schema.
 */
export type Handler<Input = any, Output = unknown> = (input: Input, ctx: Ctx) => Output | Promise<Output>;

export type Handlers = { readonly [operation: string]: Handler };

/** Gives the handlers of a Worker their types. Its result is the entry's default export. */
export function defineWorker<T extends Handlers>(handlers: T): T;

/**
 * Thrown by a handler, it answers {"detail": {"code", "message"}} with the given
 * status. Any other error is answered as 500 and its text only logged.
 */
export class OperationError extends Error {
  /**
   * @param status 400 to 499
   * @param code a lower-case word such as "order_not_found": ^[a-z][a-z0-9_.-]{0,63}$
   * @param message at most 1,000 characters; callers see it
   */
  constructor(status: number, code: string, message: string);
  readonly status: number;
  readonly code: string;
}
