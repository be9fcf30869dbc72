// What the builder compiles into each bundle.

import { JSONparse } from "./intrinsics";

export interface PublicKey {
  /** First 16 hex digits of the SHA-256 of the raw key. */
  readonly kid: string;
  /** The raw Ed25519 key, 32 bytes, as base64url. */
  readonly key: string;
}

export interface Operation {
  readonly id: string;
  readonly method: string;
  readonly path: string;
  readonly input_schema?: object;
  readonly output_schema?: object;
}

export interface Constants {
  readonly scriptName: string;
  readonly releaseGeneration: string;
  readonly builderPolicy: string;
  readonly entry: string;
  readonly publicKeys: readonly PublicKey[];
  readonly operations: readonly Operation[];
  readonly staticData: Readonly<Record<string, unknown>>;
}

/** ISSUER is the issuer of every assertion. */
export const ISSUER = "edge-workers";

/** POLICIES are the builder policies, oldest first. */
export const POLICIES = [
  "department-worker-project-v2.5",
  "department-worker-project-v2.6",
  "department-worker-project-v2.7",
  "department-worker-project-v2.8",
] as const;

export type Policy = (typeof POLICIES)[number];

/** understands tells whether a bundle of the policy `built` has what `since` added. */
export function understands(built: string, since: Policy): boolean {
  return POLICIES.indexOf(built as Policy) >= POLICIES.indexOf(since);
}

/** Features are the parts of the runtime that only some policies have. */
export interface Features {
  readonly secrets: boolean;
  /** Operation settings and service accounts. */
  readonly settings: boolean;
}

export function featuresOf(constants: Constants): Features {
  return {
    secrets: understands(constants.builderPolicy, "department-worker-project-v2.6"),
    settings: understands(constants.builderPolicy, "department-worker-project-v2.8"),
  };
}

/** readConstants reads the text that the builder wrote. */
export function readConstants(text: string): Constants {
  return JSONparse(text) as Constants;
}
