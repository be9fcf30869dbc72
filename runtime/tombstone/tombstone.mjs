// What stands in the place of a retired Worker. It answers 410 to everything.
// The storage class stays, because a release without it would have to say what
// becomes of the data; nothing here touches them.
import { DurableObject } from "cloudflare:workers";

const gone = () =>
  Response.json(
    { code: "worker_retired", message: "This department Worker was retired" },
    { status: 410, headers: { "cache-control": "no-store" } },
  );

export class TeamSyncDepartmentStorage extends DurableObject {
  fetch() {
    return gone();
  }
}

export default { fetch: gone };
