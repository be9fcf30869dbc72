// Reading a request's body within a bound.

import { Number, Uint8Array } from "./intrinsics";
import type { Bytes } from "./encoding";
import { Refusal } from "./refusal";

export const MAX_CONTROL_BODY = 256 * 1024;
export const MAX_INVOKE_BODY = 1024 * 1024;


/** MAX_DRAIN bounds what is read of a refused request's body. */
const MAX_DRAIN = 4 * 1024 * 1024;

/** readBody reads at most `limit` bytes and refuses a longer body while it is being read. */
export async function readBody(request: Request, limit: number): Promise<Bytes> {
  const tooLarge = () => Refusal.coded(413, "body_too_large", `The request body exceeds ${limit} bytes`);
  if (Number(request.headers.get("content-length") ?? "0") > limit) throw tooLarge();
  if (request.body === null) return new Uint8Array(0);
  const chunks: Uint8Array[] = [];
  const size = await consume(request.body, limit, (chunk) => chunks.push(chunk));
  if (size > limit) throw tooLarge();
  const all = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}

/**
 * drain reads the rest of a refused request's body and forgets it: a client
 * that is still sending would lose the answer with the connection.
 */
export async function drain(request: Request): Promise<void> {
  if (request.body === null || request.body.locked) return;
  try {
    await consume(request.body, MAX_DRAIN, () => {});
  } catch {
    // The client went away; there is nobody to answer.
  }
}

/** consume reads until the end or until more than `limit` bytes came, and returns how many did. */
async function consume(body: ReadableStream<Uint8Array>, limit: number, take: (chunk: Uint8Array) => void): Promise<number> {
  const reader = body.getReader();
  let size = 0;
  while (size <= limit) {
    const { done, value } = await reader.read();
    if (done) return size;
    size += value.length;
    if (size <= limit) take(value);
  }
  reader.releaseLock();
  return size;
}
