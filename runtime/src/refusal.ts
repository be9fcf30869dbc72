// What both doors answer when they do not do what was asked.

import { Error, JSONstringify, Response } from "./intrinsics";

/** Problem is one entry of a 422 answer. */
export interface Problem {
  type: string;
  loc: (string | number)[];
  msg: string;
}

/**
 * REFUSAL_HEADER marks what the runtime says of its own: `door` of the channel,
 * `access` to a caller who may not invoke the operation. An author chooses
 * codes but no headers, so no answer of a Worker can pass for one of these.
 */
export const REFUSAL_HEADER = "x-edge-workers-refusal";

type Mark = "door" | "access" | null;

/** Refusal is thrown to end a request with a given answer. */
export class Refusal extends Error {
  readonly status: number;
  readonly detail: unknown;
  readonly #mark: Mark;

  private constructor(status: number, detail: unknown, mark: Mark = null) {
    super("refused");
    this.status = status;
    this.detail = detail;
    this.#mark = mark;
  }

  /** door makes the refusal of an assertion, marked as the door's own. */
  static door(status: number, code: string, message: string): Refusal {
    return new Refusal(status, { code, message }, "door");
  }

  /** access makes the refusal of a caller. */
  static access(status: number, detail: unknown): Refusal {
    return new Refusal(status, detail, "access");
  }

  /** coded makes an answer {"detail": {code, message}}. */
  static coded(status: number, code: string, message: string): Refusal {
    return new Refusal(status, { code, message });
  }

  /** problems makes a 422 answer {"detail": [{type, loc, msg}]}. */
  static problems(...list: Problem[]): Refusal {
    return new Refusal(422, list);
  }

  static notFound(): Refusal {
    return new Refusal(404, "Not Found");
  }

  response(): Response {
    const body = JSONstringify({ detail: this.detail });
    return this.#mark === null ? text(this.status, body) : text(this.status, body, { [REFUSAL_HEADER]: this.#mark });
  }
}

export function json(status: number, value: unknown): Response {
  return text(status, JSONstringify(value));
}

/** text answers with JSON that is already written. */
export function text(status: number, body: string, more: Record<string, string> = {}): Response {
  return new Response(body, { status, headers: { "content-type": "application/json", ...more } });
}
