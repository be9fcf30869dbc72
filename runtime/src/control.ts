// The control instance: it executes signed commands and keeps their state.

import { Array, Date, hasOwn, JSONparse, JSONstringify, Object } from "./intrinsics";
import { type Claims, checkBody, generationMismatch, now, replayed, type Verifier } from "./assertion";
import { MAX_CONTROL_BODY, readBody } from "./body";
import { type Command, commandFor, runtimeConfig, unknownOperation } from "./commands";
import { type Constants, understands } from "./constants";
import { canonicalJSON, fromUTF8, sameText, sha256, utf8 } from "./encoding";
import { json, Refusal } from "./refusal";
import { createTables, first } from "./tables";

const COMMAND_DOMAIN = "teamsync-edge-worker-command";
const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

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
  readonly #verifier: Verifier;
  readonly #storage: DurableObjectStorage;

  constructor(constants: Constants, verifier: Verifier, storage: DurableObjectStorage) {
    this.#constants = constants;
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
   * #context gives the data instance what an invocation needs. It checks the
   * same assertion as the data instance, but does not use up its id and does
   * not see the body.
   */
  async #context(request: Request): Promise<Response> {
    await this.#verifier.verify(request.headers.get("authorization"), "invoke", null);
    return json(200, { config: JSONparse(runtimeConfig(this.#storage.sql)) });
  }

  async #command(request: Request): Promise<Response> {
    const claims = await this.#verifier.verify(request.headers.get("authorization"), "control", null);
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
    // From here on nothing waits: the id is used up and the command executed
    // without another request in between.
    this.#useOnce(claims);
    const result = this.#execute(envelope);
    return json(200, { operation: envelope.operation, releaseGeneration: envelope.releaseGeneration, result });
  }

  /** #useOnce stores the assertion's id and drops the expired ones. */
  #useOnce(claims: Claims): void {
    const sql = this.#storage.sql;
    if (first(sql, "SELECT 1 FROM assertion_ids WHERE jti = ?", claims.jti) !== null) throw replayed();
    // Kept beyond the allowed clock skew: an id may go only when its assertion
    // cannot be accepted any more.
    sql.exec("DELETE FROM assertion_ids WHERE expires_at < ?", now() - 10);
    sql.exec("INSERT INTO assertion_ids (jti, expires_at) VALUES (?, ?)", claims.jti, claims.exp);
  }

  #execute(envelope: Envelope): Record<string, unknown> {
    const command = commandFor(envelope.operation);
    if (command === null || !understands(this.#constants.builderPolicy, command.since)) throw unknownOperation();
    checkPayload(command, envelope);
    if (!command.mutation) return command.run(this.#storage.sql, envelope.payload);
    return this.#storage.transactionSync(() => this.#mutate(command, envelope));
  }

  /**
   * #mutate runs a mutation and stores its receipt in one transaction. A
   * repeated mutation gets the receipt; another one under the same id is a
   * conflict (decision D10).
   */
  #mutate(command: Command, envelope: Envelope): Record<string, unknown> {
    const sql = this.#storage.sql;
    const stored = first(sql, "SELECT command_digest, result_json FROM receipts WHERE mutation_id = ?", envelope.mutationId);
    if (stored !== null) {
      if (stored["command_digest"] === envelope.commandDigest) return JSONparse(stored["result_json"] as string);
      throw Refusal.coded(409, "mutation_conflict", "The mutation id was used for another command");
    }
    const result = command.run(sql, envelope.payload);
    sql.exec(
      "INSERT INTO receipts (mutation_id, operation, command_digest, result_json, created_at) VALUES (?, ?, ?, ?, ?)",
      envelope.mutationId, envelope.operation, envelope.commandDigest, JSONstringify(result), new Date().toISOString(),
    );
    return result;
  }
}

function bad(loc: (string | number)[], msg: string): Refusal {
  return Refusal.problems({ type: "command_invalid", loc: ["body", ...loc], msg });
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
  // One spelling for one command: with this no key can be given twice.
  if (canonicalJSON(value) !== text) throw bad([], "The body is not canonical JSON");
  for (const key of Object.keys(value)) {
    if (!["operation", "mutationId", "commandDigest", "releaseGeneration", "payload"].includes(key)) {
      throw bad([key], "The key is not known");
    }
  }
  for (const key of ["operation", "commandDigest", "releaseGeneration"]) {
    if (!hasOwn(value, key) || typeof value[key] !== "string") throw bad([key], "A text is required");
  }
  if (!hasOwn(value, "payload") || !isObject(value["payload"])) throw bad(["payload"], "An object is required");
  if (hasOwn(value, "mutationId") && !(typeof value["mutationId"] === "string" && uuid.test(value["mutationId"]))) {
    throw bad(["mutationId"], "A UUID is required");
  }
  return value as unknown as Envelope;
}

function checkPayload(command: Command, envelope: Envelope): void {
  if (command.mutation !== hasOwn(envelope, "mutationId")) {
    throw bad(["mutationId"], command.mutation ? "A mutation needs a mutationId" : "Only a mutation has a mutationId");
  }
  for (const key of Object.keys(envelope.payload)) {
    if (!command.payload.includes(key)) throw bad(["payload", key], "The key is not known");
  }
  for (const key of command.payload) {
    if (!hasOwn(envelope.payload, key)) throw bad(["payload", key], "The key is required");
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
