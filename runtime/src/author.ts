// What author code imports from "@teamsync/edge-worker".

import { Error, Number, RangeError, freeze } from "./intrinsics";

const codes = /^[a-z][a-z0-9_.-]{0,63}$/;
const MAX_MESSAGE = 1000; // characters

export interface Answer {
  readonly status: number;
  readonly code: string;
  readonly message: string;
}

/** answerOf returns the answer of a real OperationError and null for anything else. */
export let answerOf: (error: unknown) => Answer | null;

/** OperationError ends an operation with an answer of the author's choice. */
export class OperationError extends Error {
  readonly #answer: Answer;

  constructor(status: number, code: string, message: string) {
    super(message);
    if (!Number.isInteger(status) || status < 400 || status > 499) {
      throw new RangeError("OperationError: the status must be an integer from 400 to 499");
    }
    if (typeof code !== "string" || !codes.test(code)) {
      throw new RangeError("OperationError: the code must match " + codes.source);
    }
    if (typeof message !== "string" || message.length > MAX_MESSAGE) {
      throw new RangeError("OperationError: the message must be a text of at most 1000 characters");
    }
    this.#answer = freeze({ status, code, message });
  }

  override get name(): string { return "OperationError"; }
  get status(): number { return this.#answer.status; }
  get code(): string { return this.#answer.code; }

  static {
    answerOf = (error) =>
      typeof error === "object" && error !== null && #answer in error ? (error as OperationError).#answer : null;
  }
}

/** defineWorker gives the operations' handlers their types; it changes nothing. */
export function defineWorker<T>(handlers: T): T {
  return handlers;
}
