// The runtime of an Edge Worker. A bundle evaluates it before any author module.

import { lockdown } from "./intrinsics";

export { defineWorker, OperationError } from "./author";
export { createWorker } from "./worker";

lockdown();
