// The control instance: it executes signed commands and keeps their state.

import { Date, hasOwn, JSONparse, Object, String } from "./intrinsics";
import { admit } from "./access";
import { type Account, account } from "./accounts";
import { type CallerClaim, type Claims, checkBody, generationMismatch, now, replayed, type Verifier } from "./assertion";
import { MAX_CONTROL_BODY, readBody } from "./body";
import { commandFor, receipt, type Result, type State, storeReceipt, unknownOperation, type Work } from "./commands";
import { configText } from "./config";
import { type Constants, type Features, featuresOf, understands } from "./constants";
import { canonicalJSON, fromUTF8, isCanonical, sameText, sha256, utf8 } from "./encoding";
import { bad, exactKeys, isObject, UUID } from "./fields";
import { json, Refusal } from "./refusal";
import { forbiddenKey } from "./schema";
import { secretValues } from "./secrets";
import { INHERIT, isStaged, reconcile, settingOf } from "./settings";
import { createTables, first, sharedVersion } from "./tables";

const COMMAND_DOMAIN = "teamsync-edge-worker-command";

/** SHARED_HEADER says which version of the shared state the data instance has. */
export const SHARED_HEADER = "x-shared-version";

/** Shared is what changes only by commands: the data instance keeps it in memory. */
export interface Shared {
  version: number;
  config: unknown;
  secrets: Record<string, string>;
}

/** InvocationContext is what the control instance gives for one invocation. */
export interface InvocationContext {
  caller: CallerClaim;
  serviceAccount: Account | null;
  /** null when the data instance has the current version. */
  shared: Shared | null;
}

/** Envelope is the body of a control request. */
interface Envelope {
  operation: string;
  mutationId?: string;
  commandDigest: string;
  releaseGeneration: string;
  payload: Record<string, unknown>;
}

export class Control {
  readonly #constants: Constants;
  readonly #features: Features;
  readonly #verifier: Verifier;
  readonly #storage: DurableObjectStorage;

  constructor(constants: Constants, verifier: Verifier, storage: DurableObjectStorage) {
    this.#constants = constants;
    this.#features = featuresOf(constants);
    this.#verifier = verifier;
    this.#storage = storage;
    createTables(storage.sql);
  }

  async fetch(request: Request, path: string): Promise<Response> {
    if (path === "/__internal/context") return this.#context(request);
    if (path === "/__control") return this.#command(request);
    throw Refusal.notFound();
  }

  /**
   * #context decides whether the caller may invoke the operation and gives the
   * data instance what the handler needs. It checks the same assertion as the
   * data instance, but does not use up its id and does not see the body.
   */
  async #context(request: Request): Promise<Response> {
    const claims = await this.#verifier.verify(request.headers.get("authorization"), "invoke", null);
    const { sql } = this.#storage;
    this.#reconcile();
    const { releaseGeneration } = this.#constants;
    const setting = this.#features.settings ? settingOf(sql, releaseGeneration, claims.op) : INHERIT;
    const given: InvocationContext = { caller: admit(sql, setting, claims.caller!), serviceAccount: null, shared: null };
    if (setting.serviceAccountId !== null) given.serviceAccount = account(sql, setting.serviceAccountId);
    const version = sharedVersion(sql);
    if (request.headers.get(SHARED_HEADER) !== String(version)) {
      given.shared = { version, config: JSONparse(configText(sql)), secrets: this.#features.secrets ? secretValues(sql) : {} };
    }
    return json(200, given);
  }

  /** #reconcile belongs to each request that this release accepts. */
  #reconcile(): void {
    const { releaseGeneration } = this.#constants;
    if (!this.#features.settings || !isStaged(this.#storage.sql, releaseGeneration)) return;
    this.#storage.transactionSync(() => reconcile(this.#storage.sql, releaseGeneration));
  }

  async #command(request: Request): Promise<Response> {
    const claims = await this.#verifier.verify(request.headers.get("authorization"), "control", null, (jti) => this.#isUsed(jti));
    const body = await readBody(request, MAX_CONTROL_BODY);
    await checkBody(claims, body);
    const envelope = readEnvelope(body);
    if (envelope.operation !== claims.op) {
      throw Refusal.door(401, "assertion_invalid", "The assertion is not valid: operation");
    }
    if (envelope.releaseGeneration !== this.#constants.releaseGeneration) throw generationMismatch();
    const command = canonicalJSON({ operation: envelope.operation, payload: envelope.payload });
    const digest = await sha256(utf8(COMMAND_DOMAIN + "\0" + command));
    if (!sameText(digest, envelope.commandDigest)) {
      throw Refusal.coded(409, "command_digest_mismatch", "The command differs from its digest");
    }
    const work = await this.#prepare(envelope);
    // From here on nothing waits: the id is used up and the command executed
    // without another request in between.
    this.#useOnce(claims);
    this.#reconcile();
    const result = this.#execute(envelope, work);
    return json(200, { operation: envelope.operation, releaseGeneration: envelope.releaseGeneration, result });
  }

  #isUsed(jti: string): boolean {
    return first(this.#storage.sql, "SELECT 1 FROM assertion_ids WHERE jti = ?", jti) !== null;
  }

  /** #useOnce stores the assertion's id and drops the expired ones. */
  #useOnce(claims: Claims): void {
    const sql = this.#storage.sql;
    if (this.#isUsed(claims.jti)) throw replayed();
    // Kept beyond the allowed clock skew: an id may go only when its assertion
    // cannot be accepted any more.
    sql.exec("DELETE FROM assertion_ids WHERE expires_at < ?", now() - 10);
    sql.exec("INSERT INTO assertion_ids (jti, expires_at) VALUES (?, ?)", claims.jti, claims.exp);
  }

  /** #prepare checks all of the command that does not depend on the state. */
  async #prepare(envelope: Envelope): Promise<Work> {
    const command = commandFor(envelope.operation);
    if (command === null || !understands(this.#constants.builderPolicy, command.since)) throw unknownOperation();
    if (command.mutation !== hasOwn(envelope, "mutationId")) {
      throw bad(["mutationId"], command.mutation ? "A mutation needs a mutationId" : "Only a mutation has a mutationId");
    }
    exactKeys(envelope.payload, command.payload, ["payload"]);
    return command.prepare(envelope.payload);
  }

  #execute(envelope: Envelope, work: Work): Result {
    const state = { sql: this.#storage.sql, constants: this.#constants, now: new Date().toISOString() };
    return this.#storage.transactionSync(() =>
      envelope.mutationId === undefined ? work(state) : mutate(state, envelope, envelope.mutationId, work),
    );
  }
}

/**
 * mutate runs a mutation and stores its receipt in the same transaction. A
 * repeated mutation gets the receipt's result; another one under the same id is
 * a conflict (decision D10). A mutation whose base was not current changed
 * nothing and leaves no receipt: whoever asks for one learns that nothing was
 * applied.
 */
function mutate(state: State, envelope: Envelope, mutationId: string, work: Work): Result {
  const stored = receipt(state.sql, mutationId, envelope.commandDigest);
  if (stored !== null) return JSONparse(stored["result_json"] as string);
  const result = work(state);
  if (result["conflict"] !== true) storeReceipt(state, mutationId, envelope.operation, envelope.commandDigest, result);
  return result;
}

/** readEnvelope reads the body: canonical JSON with exactly the known keys. */
function readEnvelope(body: Uint8Array<ArrayBuffer>): Envelope {
  let text: string;
  let value: unknown;
  try {
    text = fromUTF8(body);
    value = JSONparse(text);
  } catch {
    throw bad([], "The body is not JSON");
  }
  if (!isObject(value)) throw bad([], "The body is not an object");
  const problem = forbiddenKey(value, "body");
  if (problem !== null) throw bad(problem.loc.slice(1), problem.msg);
  // One spelling for one command: with this no key can be given twice.
  if (!isCanonical(value, text)) throw bad([], "The body is not canonical JSON");
  for (const key of Object.keys(value)) {
    if (!["operation", "mutationId", "commandDigest", "releaseGeneration", "payload"].includes(key)) {
      throw bad([key], "The key is not known");
    }
  }
  for (const key of ["operation", "commandDigest", "releaseGeneration"]) {
    if (!hasOwn(value, key) || typeof value[key] !== "string") throw bad([key], "A text is required");
  }
  if (!hasOwn(value, "payload") || !isObject(value["payload"])) throw bad(["payload"], "An object is required");
  if (hasOwn(value, "mutationId") && !(typeof value["mutationId"] === "string" && UUID.test(value["mutationId"]))) {
    throw bad(["mutationId"], "A UUID is required");
  }
  return value as unknown as Envelope;
}
