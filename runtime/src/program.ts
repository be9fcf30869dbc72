// The author's program: handlers, schemas and static data, checked once when
// the module is evaluated. Whatever is wrong throws there, so that the upload
// is refused and no half-working release goes live.

import type { Ctx, Json } from "@teamsync/edge-worker";
import { bare, deepFreeze, Error, freeze, getOwn, Map, Object } from "./intrinsics";
import type { Constants, Operation } from "./constants";
import { Schema } from "./schema";

export interface Runnable {
  readonly handler: Function;
  readonly input: Schema | null;
  readonly output: Schema | null;
}

export interface Program {
  readonly operations: Map<string, Runnable>;
  readonly staticData: Ctx["staticData"];
}

export function readProgram(constants: Constants, author: unknown): Program {
  if (typeof author !== "object" || author === null) {
    throw new Error(`The default export of ${constants.entry} must be an object of handlers: use defineWorker({…})`);
  }
  const operations = new Map<string, Runnable>();
  for (const operation of constants.operations) {
    const handler = getOwn(author, operation.id);
    if (typeof handler !== "function") {
      throw new Error(
        `worker.json lists the operation "${operation.id}", but the default export of ${constants.entry} has no function of that name`,
      );
    }
    operations.set(operation.id, {
      handler,
      input: schema(operation, "input_schema"),
      output: schema(operation, "output_schema"),
    });
  }
  return { operations, staticData: staticData(constants.staticData) };
}

function schema(operation: Operation, key: "input_schema" | "output_schema"): Schema | null {
  const value = operation[key];
  if (value === undefined) return null;
  try {
    return new Schema(value);
  } catch (error) {
    throw new Error(`The ${key} of the operation "${operation.id}" cannot be used: ${(error as Error).message}`);
  }
}

function staticData(files: Readonly<Record<string, unknown>>): Ctx["staticData"] {
  const out = bare<Json>();
  for (const path of Object.keys(files)) out[path] = deepFreeze(files[path]) as Json;
  return freeze(out);
}
