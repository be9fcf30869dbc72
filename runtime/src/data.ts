// The data instance: it holds the author's storage and runs the operations.

import type { Ctx, Json } from "@teamsync/edge-worker";
import { call, deepFreeze, JSONparse, JSONstringify, Map, Response, String } from "./intrinsics";
import { type Claims, checkBody, now, replayed, type Verifier } from "./assertion";
import { answerOf } from "./author";
import { MAX_INVOKE_BODY, readBody } from "./body";
import { type Constants, type Features, featuresOf } from "./constants";
import { authorStorage, describeError, type Given, makeContext, secretReader, writeLog } from "./context";
import { type InvocationContext, SHARED_HEADER } from "./control";
import { fromUTF8 } from "./encoding";
import type { Program } from "./program";
import { Refusal, REFUSAL_HEADER, text } from "./refusal";
import { forbiddenKey } from "./schema";

/** MAX_IDS bounds the ids of used assertions that are remembered. */
const MAX_IDS = 100_000;
const MAX_OUTPUT = 4 * 1024 * 1024; // characters
const CONTEXT_URL = "https://control/__internal/context";

/** SharedMemory is the last version of what all invocations share. */
interface SharedMemory {
  readonly version: number;
  readonly config: Json;
  readonly secrets: Ctx["secrets"];
}

export class Data {
  readonly #program: Program;
  readonly #verifier: Verifier;
  readonly #storage: Ctx["storage"];
  readonly #control: () => DurableObjectStub;
  readonly #used = new Map<string, number>(); // expiry by id
  #pruned = 0;
  #shared: SharedMemory = { version: -1, config: null, secrets: secretReader({}) };
  readonly #features: Features;

  constructor(constants: Constants, program: Program, verifier: Verifier, storage: DurableObjectStorage, control: () => DurableObjectStub) {
    this.#features = featuresOf(constants);
    this.#program = program;
    this.#verifier = verifier;
    this.#storage = authorStorage(storage);
    this.#control = control;
  }

  async fetch(request: Request, path: string): Promise<Response> {
    if (!path.startsWith("/__invoke/")) throw Refusal.notFound();
    const id = path.slice("/__invoke/".length);
    const authorization = request.headers.get("authorization");
    const claims = await this.#verifier.verify(authorization, "invoke", id);
    const body = await readBody(request, MAX_INVOKE_BODY);
    await checkBody(claims, body);
    this.#useOnce(claims);
    const operation = this.#program.operations.get(id);
    if (!operation) throw Refusal.coded(404, "operation_unknown", "The Worker's release has no such operation");
    const given = await this.#admitted(authorization!);
    if (given instanceof Response) return given;
    // Not before: who may not invoke an operation learns nothing of its schema.
    const input = readInput(body);
    const problems = operation.input?.problems(input, "body") ?? [];
    if (problems.length > 0) throw Refusal.problems(...problems);
    const ctx = makeContext({ ...given, operation: id, features: this.#features }, this.#storage, this.#program.staticData);
    return this.#run(id, input, ctx);
  }

  /**
   * #useOnce remembers the assertion's id in memory. After a restart the
   * memory is empty; the assertion's life of at most 60 seconds bounds what
   * could be repeated then.
   */
  #useOnce(claims: Claims): void {
    if (this.#used.has(claims.jti)) throw replayed();
    // At most once a second: a scan for each request would make overload worse.
    if (this.#used.size >= MAX_IDS && this.#pruned < now()) {
      this.#pruned = now();
      for (const [jti, expires] of this.#used) if (expires < this.#pruned - 10) this.#used.delete(jti);
    }
    if (this.#used.size >= MAX_IDS) {
      throw Refusal.coded(503, "worker_overloaded", "The Worker has too many invocations");
    }
    this.#used.set(claims.jti, claims.exp);
  }

  /**
   * #admitted asks the control instance, which checks the assertion itself,
   * whether the caller may invoke the operation. Configuration and secrets come
   * along when they are not the ones that are in memory.
   */
  async #admitted(authorization: string): Promise<Given | Response> {
    const known = this.#shared;
    const headers = { authorization, [SHARED_HEADER]: String(known.version) };
    const answer = await this.#control().fetch(CONTEXT_URL, { headers });
    if (answer.headers.get(REFUSAL_HEADER) === "access") return answer;
    if (answer.status !== 200) throw Refusal.coded(503, "worker_context_unavailable", "The Worker's settings cannot be read");
    const given = JSONparse(await answer.text()) as InvocationContext;
    let shared = known;
    if (given.shared !== null) {
      const { version, config, secrets } = given.shared;
      shared = { version, config: deepFreeze(config) as Json, secrets: secretReader(secrets) };
      // Answers may overtake each other: the memory never goes back.
      if (version > this.#shared.version) this.#shared = shared;
    }
    return { caller: given.caller, serviceAccount: given.serviceAccount, config: shared.config, secrets: shared.secrets };
  }

  async #run(id: string, input: Json, ctx: Ctx): Promise<Response> {
    const operation = this.#program.operations.get(id)!;
    let output: unknown;
    try {
      output = await call(operation.handler, undefined, [input, ctx]);
    } catch (error) {
      const answer = answerOf(error);
      if (answer) throw Refusal.coded(answer.status, answer.code, answer.message);
      writeLog("error", id, ctx.requestId, "operation failed", { error: describeError(error) });
      throw Refusal.coded(500, "operation_failed", "The operation failed");
    }
    return text(200, this.#output(id, output, ctx.requestId));
  }

  /** #output turns the handler's result into JSON and checks it. */
  #output(id: string, output: unknown, requestId: string): string {
    const invalid = (reason: unknown): Refusal => {
      writeLog("error", id, requestId, "operation output invalid", { reason });
      return Refusal.coded(500, "output_invalid", "The operation returned an invalid output");
    };
    let written: string;
    try {
      written = JSONstringify(output) ?? "null";
    } catch (error) {
      throw invalid(describeError(error));
    }
    if (written.length > MAX_OUTPUT) throw invalid("longer than 4 MiB");
    const schema = this.#program.operations.get(id)!.output;
    // Checked is what is sent, not the object it was made of.
    const problems = schema?.problems(JSONparse(written), "output") ?? [];
    if (problems.length > 0) throw invalid(problems);
    return written;
  }
}

/** readInput reads the input; no bytes at all are null. */
function readInput(body: Uint8Array<ArrayBuffer>): Json {
  if (body.length === 0) return null;
  let input: Json;
  try {
    input = JSONparse(fromUTF8(body)) as Json;
  } catch {
    throw Refusal.problems({ type: "json_invalid", loc: ["body"], msg: "The body is not JSON in UTF-8" });
  }
  const problem = forbiddenKey(input, "body");
  if (problem) throw Refusal.problems(problem);
  return input;
}
