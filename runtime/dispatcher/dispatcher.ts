// The dispatcher Worker: the cloud's data plane, as the edge host's dispatcher
// is on-prem. It passes a request to the Worker that the path names, with the
// name taken off the path. It checks no signature: each Worker's own doors do.

/** Fetcher is a Worker that can be called. */
interface Fetcher {
  fetch(request: Request): Promise<Response>;
}

interface Env {
  /** The dispatch namespace of the Workers. A missing one throws when it is called. */
  readonly DISPATCHER: {
    get(name: string, args: object, options: { limits: { cpuMs: number; subRequests: number } }): Fetcher;
  };
}

/** What one request may use. */
const LIMITS = { cpuMs: 10_000, subRequests: 50 };

const MAX_BODY = 8 * 1024 * 1024; // bytes; the doors have bounds of their own

/** PATH takes no escapes: no name or operation has any. */
const PATH = /^\/(dw-[0-9a-f]{48})(\/__control|\/__invoke\/[a-z][a-z0-9_.-]{0,63})$/;

/** All else stays behind, such as what would choose another version of a script. */
const FORWARDED = ["authorization", "content-type", "accept", "x-request-id"];

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const url = new URL(request.url);
    const to = PATH.exec(url.pathname);
    if (to === null || request.method !== "POST") return detail(404, "Not Found");
    if (Number(request.headers.get("content-length") ?? "0") > MAX_BODY) {
      return trouble(413, "body_too_large", "Request body is too large");
    }
    try {
      return await env.DISPATCHER.get(to[1]!, {}, { limits: LIMITS }).fetch(outgoing(request, to[2]!));
    } catch (error) {
      return failure(error);
    }
  },
};

/** outgoing drops the query as well: no assertion covers it. */
function outgoing(request: Request, path: string): Request {
  const headers = new Headers();
  for (const name of FORWARDED) {
    const value = request.headers.get(name);
    if (value !== null) headers.set(name, value);
  }
  return new Request("https://worker" + path, { method: "POST", headers, body: request.body, redirect: "manual" });
}

/** failure says what the platform's errors mean; what they say stays here. */
function failure(error: unknown): Response {
  if (error instanceof Error && error.message.startsWith("Worker not found")) {
    return trouble(404, "worker_not_found", "Worker not found");
  }
  return trouble(502, "worker_crashed", "Worker stopped while it handled the request");
}

/** trouble is an answer of the dispatcher itself, which no Worker can give. */
function trouble(status: number, code: string, message: string): Response {
  return detail(status, { code, message }, { "x-edge-workers-refusal": "host" });
}

function detail(status: number, value: unknown, headers: Record<string, string> = {}): Response {
  return Response.json({ detail: value }, { status, headers });
}
