// The few parts of the platform that the runtime uses. The full type package
// describes hundreds of globals that must not be reached from here.

interface SqlStorageCursor extends Iterable<Record<string, unknown>> {
  readonly columnNames: string[];
  readonly rowsRead: number;
  readonly rowsWritten: number;
  next(): { done?: boolean; value?: Record<string, unknown> };
}

interface SqlStorage {
  exec(query: string, ...bindings: unknown[]): SqlStorageCursor;
  readonly databaseSize: number;
}

interface DurableObjectStorage {
  readonly sql: SqlStorage;
  transactionSync<T>(closure: () => T): T;
}

interface DurableObjectId {
  equals(other: DurableObjectId): boolean;
}

interface DurableObjectState {
  readonly id: DurableObjectId;
  readonly storage: DurableObjectStorage;
}

interface DurableObjectStub {
  fetch(input: Request | string, init?: RequestInit): Promise<Response>;
}

interface DurableObjectNamespace {
  idFromName(name: string): DurableObjectId;
  get(id: DurableObjectId): DurableObjectStub;
}

interface Env {
  readonly TEAMSYNC_DEPARTMENT_STORAGE: DurableObjectNamespace;
}

declare module "cloudflare:workers" {
  export class DurableObject {
    protected readonly ctx: DurableObjectState;
    protected readonly env: Env;
    constructor(ctx: DurableObjectState, env: Env);
  }
}
