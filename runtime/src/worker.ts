// The two things that a bundle exports, made of the constants and the author's
// default export.

import { DurableObject } from "cloudflare:workers";
import { Verifier } from "./assertion";
import { drain } from "./body";
import { readConstants } from "./constants";
import { describeError, writeLog } from "./context";
import { Control } from "./control";
import { Data } from "./data";
import { URL } from "./intrinsics";
import { readProgram } from "./program";
import { json, Refusal } from "./refusal";

interface Instance {
  fetch(request: Request, path: string): Promise<Response>;
}

/** createWorker makes the default export and the storage class of a bundle. */
export function createWorker(constantsText: string, author: unknown) {
  const constants = readConstants(constantsText);
  const program = readProgram(constants, author);
  const verifier = new Verifier(constants);

  /**
   * Each instance checks the assertion itself. So nothing that cannot sign
   * can act, even if it got hold of the binding.
   */
  class TeamSyncDepartmentStorage extends DurableObject {
    readonly #instance: Instance | null;

    constructor(ctx: DurableObjectState, env: Env) {
      super(ctx, env);
      const namespace = env.TEAMSYNC_DEPARTMENT_STORAGE;
      const control = namespace.idFromName("control");
      if (ctx.id.equals(control)) {
        this.#instance = new Control(constants, verifier, ctx.storage);
      } else if (ctx.id.equals(namespace.idFromName("data"))) {
        this.#instance = new Data(constants, program, verifier, ctx.storage, () => namespace.get(control));
      } else {
        this.#instance = null;
      }
    }

    async fetch(request: Request): Promise<Response> {
      try {
        if (this.#instance === null) throw Refusal.notFound();
        return await this.#instance.fetch(request, new URL(request.url).pathname);
      } catch (error) {
        await drain(request);
        return answer(error);
      }
    }
  }

  return { door: { fetch: (request: Request, env: Env) => enter(request, env) }, TeamSyncDepartmentStorage };
}

/** enter is the default fetch handler: it passes a request to the instance of its door. */
async function enter(request: Request, env: Env): Promise<Response> {
  const name = doorOf(request);
  if (name === null) return Refusal.notFound().response();
  const namespace = env.TEAMSYNC_DEPARTMENT_STORAGE;
  return namespace.get(namespace.idFromName(name)).fetch(request);
}

function doorOf(request: Request): "control" | "data" | null {
  if (request.method !== "POST") return null;
  const url = new URL(request.url);
  if (url.search !== "") return null;
  if (url.pathname === "/__control") return "control";
  return /^\/__invoke\/[a-z][a-z0-9_.-]{0,63}$/.test(url.pathname) ? "data" : null;
}

function answer(error: unknown): Response {
  if (error instanceof Refusal) return error.response();
  writeLog("error", "", "", "worker failed", { error: describeError(error) });
  return json(500, { detail: { code: "worker_failed", message: "The Worker failed" } });
}
