// What both doors answer when they do not do what was asked.

import { Error, JSONstringify, Response } from "./intrinsics";

/** Problem is one entry of a 422 answer. */
export interface Problem {
  type: string;
  loc: (string | number)[];
  msg: string;
}

/**
 * REFUSAL_HEADER marks what a door says of its own channel. An author chooses
 * codes but no headers, so no answer of a Worker can pass for the door's.
 */
const REFUSAL_HEADER = "x-edge-workers-refusal";

/** Refusal is thrown to end a request with a given answer. */
export class Refusal extends Error {
  readonly status: number;
  readonly detail: unknown;
  readonly #door: boolean;

  private constructor(status: number, detail: unknown, door = false) {
    super("refused");
    this.status = status;
    this.detail = detail;
    this.#door = door;
  }

  /** door makes the refusal of an assertion, marked as the door's own. */
  static door(status: number, code: string, message: string): Refusal {
    return new Refusal(status, { code, message }, true);
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
    return this.#door ? text(this.status, body, { [REFUSAL_HEADER]: "door" }) : text(this.status, body);
  }
}

export function json(status: number, value: unknown): Response {
  return text(status, JSONstringify(value));
}

/** text answers with JSON that is already written. */
export function text(status: number, body: string, more: Record<string, string> = {}): Response {
  return new Response(body, { status, headers: { "content-type": "application/json", ...more } });
}
